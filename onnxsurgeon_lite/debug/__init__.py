"""Debug models: bisect to the node and the reason, rank accuracy losses, step through a run."""
