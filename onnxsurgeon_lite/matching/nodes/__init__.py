"""Pair the nodes of two graphs without relying on their names or order."""

from onnxsurgeon_lite.matching.nodes.pairing import NodeAlignment, align, same_nodes
from onnxsurgeon_lite.matching.nodes.scope import NamedGraph

__all__ = ["NamedGraph", "NodeAlignment", "align", "same_nodes"]
