"""Change dimensions of a model's inputs: which constants depend on them, and every size that results."""

from onnxsurgeon_lite.surgery.resizing.follow import follow
from onnxsurgeon_lite.surgery.resizing.plan import ResizePlan, Symbol
from onnxsurgeon_lite.surgery.resizing.symbols import ShapeRequest, symbols_for

__all__ = ["ResizePlan", "ShapeRequest", "Symbol", "follow", "symbols_for"]
