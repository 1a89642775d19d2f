"""Where in the source program each node comes from."""

from onnxsurgeon_lite.scopes.origin import UNKNOWN, Origin, place_text
from onnxsurgeon_lite.scopes.origins import Origins

__all__ = ["UNKNOWN", "Origin", "Origins", "place_text"]
