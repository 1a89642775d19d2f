"""Running models in onnxruntime, in a process of its own; the only importer of onnxruntime."""

from onnxsurgeon_lite.runtime.session import Opt, Runtime, RuntimeOptions, Value

__all__ = ["Opt", "Runtime", "RuntimeOptions", "Value"]
