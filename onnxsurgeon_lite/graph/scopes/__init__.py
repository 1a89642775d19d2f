"""Where in the source program each node comes from."""

from onnxsurgeon_lite.graph.scopes.origin import UNKNOWN, Origin, place_text
from onnxsurgeon_lite.graph.scopes.origins import Origins

__all__ = ["UNKNOWN", "Origin", "Origins", "place_text"]
