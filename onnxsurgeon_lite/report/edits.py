"""What an edit changed, for the terminal."""

from contextlib import suppress

from onnxsurgeon_lite.errors import GraphError
from onnxsurgeon_lite.matching.edit_result import EditResult
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.report import plain


def show_result(result: PassResult) -> None:
    """What a pass changed, and what the user should know of it."""
    plain.show_notes(result.notes)
    plain.show_changes(result.changes or ["nothing to change"])


def show_edited(result: EditResult) -> None:
    """What an edit changed, how the result differs from its source, and what running both showed."""
    plain.show_notes(result.notes)
    if result.source is None:
        plain.show_changes(result.changes)
        plain.show_graph(result.verb, result.model.proto.graph)
        return
    plain.show_changes(result.changes if result.changed else ["nothing to change"])
    if result.changed:
        from onnxsurgeon_lite.matching.diff import edit_diff
        from onnxsurgeon_lite.report.differences import show_edit

        with suppress(GraphError):  # the source was broken, and is repaired
            show_edit(edit_diff(result.source, result.model))
    plain.show_notes(result.ran)
    for line in result.proof:
        plain.out(line)
    if result.verified is not None and result.match:
        count = len(result.verified.compared) - len(result.verified.unmoved)
        proved = f"verified: {count} output{' agrees' if count == 1 else 's agree'}"
        plain.out(proved if count else "not verified: no output depends on the feeds")
    elif result.verified is not None:
        from onnxsurgeon_lite.report.metrics import show_comparison

        show_comparison(result.verified)
