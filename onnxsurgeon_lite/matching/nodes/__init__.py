"""Pair the nodes of two graphs without relying on their names or order."""

from onnxsurgeon_lite.matching.nodes.pairing import Alignment, align
from onnxsurgeon_lite.matching.nodes.scope import NamedGraph

__all__ = ["Alignment", "NamedGraph", "align"]
