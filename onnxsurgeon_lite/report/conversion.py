"""`convert` for the terminal."""

from onnxsurgeon_lite.debug.conversion.result import Conversion, Introduced
from onnxsurgeon_lite.report.plain import say, show_notes
from onnxsurgeon_lite.report.tables import show_table
from onnxsurgeon_lite.tensors.metrics import number_text

_SHOWN = 20  # nodes
_BAR = 30  # characters


def show_conversion(result: Conversion) -> None:
    """Show which nodes bring which error, which stay in float32, then what was made in a sentence."""
    if result.report:
        _show_report(result)
    elif result.kept:
        rows = [[k.id, k.op_type, k.name, k.why, k.place] for k in result.kept[:_SHOWN]]
        show_table(["in float", "operator", "name", "why", "place"], rows)
        _show_rest(len(result.kept))
    if result.curve:
        most = max(share for _, share, _ in result.curve)
        rows = [
            [str(n), number_text(e, 4), f"{100 * share:.1f}%", "━" * round(_BAR * share / most)]
            for n, share, e in result.curve
        ]
        show_table(["in float", "measured", "bytes", ""], rows)
    say(result.sentence)
    if result.ran:
        say(f"  {result.ran}")


def _show_report(result: Conversion) -> None:
    columns = [
        "",
        "node",
        "operator",
        "name",
        "error of the outputs",
        "smallest",
        "largest",
        "place",
    ]
    rows = [
        [
            "keep" if n.kept else "",
            n.id,
            n.op_type,
            n.name,
            _error(n),
            number_text(n.smallest, 3),
            number_text(n.largest, 3),
            n.place,
        ]
        for n in result.report[:_SHOWN]
    ]
    show_table(columns, rows)
    _show_rest(len(result.report))


def _error(node: Introduced) -> str:
    if node.error is not None:
        return number_text(node.error, 3)
    return "not known" if node.largest is None else "not finite"


def _show_rest(count: int) -> None:
    if count > _SHOWN:
        show_notes([f"{count - _SHOWN} more with --json"])
