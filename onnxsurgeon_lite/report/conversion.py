"""`convert` for the terminal."""

from collections.abc import Callable
from operator import attrgetter

from onnxsurgeon_lite.debug.conversion.result import Conversion, Introduced
from onnxsurgeon_lite.report.plain import say
from onnxsurgeon_lite.report.tables import show_items, show_table
from onnxsurgeon_lite.tensors.metrics import number_text

_BAR = 30  # characters


def show_conversion(result: Conversion) -> None:
    """Show which nodes bring which error, which stay in float32, then what was made in a sentence."""
    if result.report:
        _show_report(result)
    elif result.kept:
        columns = ("id", "op_type", "name", "why", "place")
        titles = ("in float", "operator", "name", "why", "place")
        show_items(result.kept, dict(zip(titles, map(attrgetter, columns), strict=True)))
    if result.curve:
        most = max(share for _, share, _ in result.curve)
        rows = []
        for count, share, error in result.curve:
            bar = "━" * round(_BAR * share / most)
            rows.append([count, number_text(error, 4), f"{100 * share:.1f}%", bar])
        show_table(["in float", "measured", "bytes", ""], rows)
    say(result.sentence)
    if result.ran:
        say(f"  {result.ran}")


def _show_report(result: Conversion) -> None:
    columns: dict[str, Callable[[Introduced], object]] = {
        "": lambda n: "keep" if n.kept else "",
        "node": lambda n: n.id,
        "operator": lambda n: n.op_type,
        "name": lambda n: n.name,
        "error of the outputs": _error,
        "smallest": lambda n: number_text(n.smallest, 3),
        "largest": lambda n: number_text(n.largest, 3),
        "place": lambda n: n.place,
    }
    show_items(result.report, columns)


def _error(node: Introduced) -> str:
    if node.error is not None:
        return number_text(node.error, 3)
    return "not known" if node.largest is None else "not finite"
