"""List a model's tensors on disk, and move them from file to file without loading them all into memory."""

from onnxsurgeon_lite.model.storage.listing import DataListing, StoredTensor, fingerprint, list_data
from onnxsurgeon_lite.model.storage.moving import (
    Collected,
    Manifest,
    Moved,
    collect,
    embed,
    link,
    manifest,
    move,
)
from onnxsurgeon_lite.model.storage.stripping import Stripped, strip, unstrip

__all__ = [
    "Collected",
    "DataListing",
    "Manifest",
    "Moved",
    "StoredTensor",
    "Stripped",
    "collect",
    "embed",
    "fingerprint",
    "link",
    "list_data",
    "manifest",
    "move",
    "strip",
    "unstrip",
]  # fmt: skip
