"""Find the place in the source program that each node comes from."""

from onnxsurgeon_lite.graph.scopes.origin import UNKNOWN, Provenance, fits_class, place_text, texts
from onnxsurgeon_lite.graph.scopes.origins import Provenances

__all__ = [
    "UNKNOWN",
    "Provenance",
    "Provenances",
    "fits_class",
    "place_text",
    "texts",
]
