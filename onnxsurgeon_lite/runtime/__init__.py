"""Running models in onnxruntime, in a process of its own; the only importer of onnxruntime.

Nothing is imported here: `child` starts the process with the standard library alone, so that it gets ready while
the caller imports the rest.
"""
