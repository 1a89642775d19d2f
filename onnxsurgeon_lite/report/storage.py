"""Stored tensors for the terminal."""

from collections.abc import Sequence

from onnxsurgeon_lite.model.storage import StoredTensor
from onnxsurgeon_lite.report.tables import show_table


def show_data(found: Sequence[StoredTensor]) -> None:
    """Where each tensor is and what it holds."""
    columns = ["name", "file", "offset #", "bytes #", "dtype", "shape", "fingerprint"]
    rows = [
        (t.name, t.file, t.offset, t.bytes, t.dtype, list(t.shape), t.fingerprint) for t in found
    ]
    show_table(columns, rows)
