"""List a model's tensors on disk, and move them from file to file without loading them all into memory."""

from onnxsurgeon_lite.model.storage.listing import DataListing, StoredTensor, fingerprint, list_data
from onnxsurgeon_lite.model.storage.moving import Collected, Moved, collect, embed, move
from onnxsurgeon_lite.model.storage.stripping import Stripped, strip, unstrip

__all__ = [
    "Collected", "Moved", "DataListing", "StoredTensor", "Stripped", "collect", "embed", "fingerprint",
    "list_data", "move", "strip", "unstrip",
]  # fmt: skip
