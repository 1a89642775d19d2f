"""Which node of one graph is which of another, whatever they are called and in whatever order they stand."""

from onnxsurgeon_lite.matching.nodes.pairing import Alignment, align
from onnxsurgeon_lite.matching.nodes.scope import NamedGraph

__all__ = ["Alignment", "NamedGraph", "align"]
