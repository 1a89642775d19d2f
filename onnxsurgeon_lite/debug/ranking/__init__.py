"""Rank nodes and layers by the accuracy that they cost."""
