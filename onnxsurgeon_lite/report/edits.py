"""What an edit changed, for the terminal."""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from onnxsurgeon_lite.errors import GraphError
from onnxsurgeon_lite.matching.edit_result import EditResult
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.report.plain import (
    out,
    show_changes,
    show_files,
    show_graph,
    show_notes,
    show_planned,
    show_table,
    show_written,
)

if TYPE_CHECKING:
    from onnxsurgeon_lite.model.storage import Collected, Manifest, Moved, StoredTensor, Stripped


def show_result(result: PassResult) -> None:
    """What a pass changed, and what the user should know of it."""
    show_notes(result.notes)
    show_changes(result.changes or ["nothing to change"])


def show_edited(result: EditResult) -> None:
    """What an edit changed, how the result differs from its source, and what running both showed."""
    show_notes(result.notes)
    # made from nothing: there is no original to compare with
    if result.source is None:
        show_changes(result.changes)
        show_graph(result.verb, result.model.graph)
        return
    show_changes(result.changes if result.changed else ["nothing to change"])
    if result.changed:
        from onnxsurgeon_lite.matching.diff import edit_diff
        from onnxsurgeon_lite.report.differences import show_edit

        with suppress(GraphError):  # the source was broken, and is repaired
            show_edit(edit_diff(result.source, result.model))
    show_notes(result.ran)
    for line in result.proof:
        out(line)
    if result.verified is not None and result.match:
        count = len(result.verified.compared) - len(result.verified.unmoved)
        proved = f"verified: {count} output{' agrees' if count == 1 else 's agree'}"
        out(proved if count else "not verified: no output depends on the feeds")
    elif result.verified is not None:
        from onnxsurgeon_lite.report.metrics import show_comparison

        show_comparison(result.verified)


def show_data(found: "Sequence[StoredTensor]") -> None:
    """Where each tensor is and what it holds."""
    columns = ["name", "file", "offset #", "bytes #", "dtype", "shape", "fingerprint"]
    rows = [
        (t.name, t.file, t.offset, t.bytes, t.dtype, list(t.shape), t.fingerprint) for t in found
    ]
    show_table(columns, rows)


def show_collected(result: "Collected") -> None:
    """The files that were rewritten, and what that saves."""
    if result.planned:
        show_planned(result.files)
    for file in () if result.planned else result.files:
        show_written(file)
    out(f"{result.before - result.after} bytes less")


def show_manifest(result: "Manifest") -> None:
    """Which files differ from it, and how many it has."""
    for name in result.differing:
        out(f"{name!r} differs from its digest")
    out(f"{len(result.digests)} digests in {str(result.place)!r}")


def show_moved(result: "Moved") -> None:
    """What stays, and the files."""
    show_notes(result.notes)
    show_files(result.written)


def show_stripped(result: "Stripped") -> None:
    """How many tensors are noise now, and the files."""
    show_notes(f"no weights, so kept as they are: {name!r}" for name in result.kept)
    for line in result.removed:
        out(line)
    out(f"stripped {result.changed} tensors")
    show_files(result.written)
