"""Quantized models against the values of their float model: errors beyond what rounding makes."""
