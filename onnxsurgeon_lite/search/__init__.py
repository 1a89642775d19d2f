"""Searches that know no ONNX: the origins of errors in a graph, and a few of many items.

Callers bring predicates and probes as functions; tests bring lambdas.
"""
