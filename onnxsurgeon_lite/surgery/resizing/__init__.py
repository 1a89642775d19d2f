"""Change dimensions of a model's inputs: which constants depend on them, and every size that results."""
