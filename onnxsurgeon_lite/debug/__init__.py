"""Where a model goes wrong, and why: bisection, ranking, stepping."""
