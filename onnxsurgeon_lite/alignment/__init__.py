"""Which node of one graph is which of another, whatever they are called and in whatever order they stand."""

from onnxsurgeon_lite.alignment.matching import Alignment, align
from onnxsurgeon_lite.alignment.scope import Scope

__all__ = ["Alignment", "Scope", "align"]
