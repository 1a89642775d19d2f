"""Convert a model to half precision, with as few nodes in float32 as a goal for its outputs takes."""
