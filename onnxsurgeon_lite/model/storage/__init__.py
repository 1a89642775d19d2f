"""List a model's tensors on disk, and move them from file to file without loading them all into memory."""

from onnxsurgeon_lite.model.storage.listing import StoredTensor, fingerprint, list_data
from onnxsurgeon_lite.model.storage.moving import Collected, collect, embed, move
from onnxsurgeon_lite.model.storage.stripping import Stripped, strip, unstrip

__all__ = [
    "Collected",
    "StoredTensor",
    "Stripped",
    "collect",
    "embed",
    "fingerprint",
    "list_data",
    "move",
    "strip",
    "unstrip",
]
