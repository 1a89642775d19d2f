"""Run models in onnxruntime, in a process of its own; only this package imports onnxruntime.

This file imports nothing: `child` starts the process with the standard library alone, so that it gets ready while
the caller imports the rest.
"""
