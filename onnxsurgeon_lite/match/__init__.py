"""Values of two models, or of references and a model, side by side whatever they are called."""

from onnxsurgeon_lite.match.aligning import aligned, needs_alignment
from onnxsurgeon_lite.match.board import Pair
from onnxsurgeon_lite.match.mapping import feeds_in_order, load_map, save_map
from onnxsurgeon_lite.match.nodes import same_nodes
from onnxsurgeon_lite.match.pairing import Matching, lost_note, match
from onnxsurgeon_lite.match.sides import Side, side_of_model, side_of_references

__all__ = [
    "Matching",
    "Pair",
    "Side",
    "aligned",
    "feeds_in_order",
    "load_map",
    "lost_note",
    "match",
    "needs_alignment",
    "same_nodes",
    "save_map",
    "side_of_model",
    "side_of_references",
]
