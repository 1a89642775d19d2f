"""Values of two models, or of references and a model, side by side whatever they are called."""

from onnxsurgeon_lite.match.pairing import Matching, Pair, match
from onnxsurgeon_lite.match.sides import Side, side_of_model, side_of_references

__all__ = ["Matching", "Pair", "Side", "match", "side_of_model", "side_of_references"]
