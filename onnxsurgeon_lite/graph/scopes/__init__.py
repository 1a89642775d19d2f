"""Find the place in the source program that each node comes from."""

from onnxsurgeon_lite.graph.scopes.origin import UNKNOWN, Provenance, fits_class, place_text
from onnxsurgeon_lite.graph.scopes.origins import Provenances, Values, values_of

__all__ = [
    "UNKNOWN",
    "Provenance",
    "Provenances",
    "Values",
    "fits_class",
    "place_text",
    "values_of",
]
