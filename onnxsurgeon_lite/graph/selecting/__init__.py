"""The nodes and values that a text names, and a graph to look around in."""
