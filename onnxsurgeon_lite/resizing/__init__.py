"""Other sizes for dimensions of a model's inputs: which constants follow, and every size that results."""

from onnxsurgeon_lite.resizing.plan import Plan, Symbol
from onnxsurgeon_lite.resizing.symbols import ShapeRequest, symbols_for
from onnxsurgeon_lite.resizing.tracing import trace

__all__ = ["Plan", "ShapeRequest", "Symbol", "symbols_for", "trace"]
