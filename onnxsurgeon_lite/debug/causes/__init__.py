"""What is wrong with a culprit: hypotheses, one file a family, what tries them, and what repairs a model by them."""
