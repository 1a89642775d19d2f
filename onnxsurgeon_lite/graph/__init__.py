"""Read one graph: producers and consumers, selectors, cuts, bodies, summaries."""
