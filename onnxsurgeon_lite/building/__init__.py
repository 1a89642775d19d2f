"""Models from nothing: from ONNX text syntax, or by a builder."""

from onnxsurgeon_lite.building.builder import Builder, Value
from onnxsurgeon_lite.building.text import add_initializers, parse_text

__all__ = ["Builder", "Value", "add_initializers", "parse_text"]
