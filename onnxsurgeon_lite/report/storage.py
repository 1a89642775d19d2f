"""Stored tensors for the terminal."""

from collections.abc import Sequence

from onnxsurgeon_lite.model.storage import Collected, Moved, StoredTensor, Stripped
from onnxsurgeon_lite.report.plain import out, show_files, show_notes, show_planned, show_written
from onnxsurgeon_lite.report.tables import show_table


def show_data(found: Sequence[StoredTensor]) -> None:
    """Where each tensor is and what it holds."""
    columns = ["name", "file", "offset #", "bytes #", "dtype", "shape", "fingerprint"]
    rows = [
        (t.name, t.file, t.offset, t.bytes, t.dtype, list(t.shape), t.fingerprint) for t in found
    ]
    show_table(columns, rows)


def show_collected(result: Collected) -> None:
    """The files that were rewritten, and what that saves."""
    if result.planned:
        show_planned(result.files)
    for file in () if result.planned else result.files:
        show_written(file)
    out(f"{result.before - result.after} bytes less")


def show_moved(result: Moved) -> None:
    """What stays, and the files."""
    show_notes(result.notes)
    show_files(result.written)


def show_stripped(result: Stripped) -> None:
    """How many tensors are noise now, and the files."""
    show_notes(f"no weights, so kept as they are: {name!r}" for name in result.kept)
    for line in result.removed:
        out(line)
    out(f"stripped {result.changed} tensors")
    show_files(result.written)
