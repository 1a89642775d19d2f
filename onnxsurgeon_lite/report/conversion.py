"""`convert`: what the terminal and the page show of it."""

from onnxsurgeon_lite.debug.conversion.result import Conversion, Introduced, Kept
from onnxsurgeon_lite.report.plain import Columns, Rows, say, show_rows
from onnxsurgeon_lite.report.ranking import ID, NODE, PLACE
from onnxsurgeon_lite.tensors.metrics import number_text

_BAR = 30  # characters
Choice = tuple[int, float, float]
"""Nodes in float, their share of the bytes, what was measured."""


def kept(result: Conversion) -> Rows[Kept]:
    """Return the nodes that stay in float32."""
    where = {"in float": ID, "operator": "{0.op_type}", "name": "{0.name}"}
    columns: Columns[Kept] = {**where, "why": "{0.why}", **PLACE}
    return Rows("Nodes that stay in float32", result.kept, columns, ID)


def introduced(result: Conversion) -> Rows[Introduced]:
    """Return the nodes with the error that each introduces."""
    columns: Columns[Introduced] = {
        "keep": lambda n: "keep" if n.kept else "",
        **NODE,
        "error of the outputs": _error,
        "smallest": lambda n: number_text(n.smallest, 3),
        "largest": lambda n: number_text(n.largest, 3),
        **PLACE,
    }
    return Rows("Error of the outputs by each node alone", result.report, columns, ID)


def tried(result: Conversion) -> Rows[Choice]:
    """Return the choices of nodes that were tried."""
    most = max((share for _, share, _ in result.curve), default=1.0)
    columns: Columns[Choice] = {
        "in float": "{0[0]}",
        "measured": lambda choice: number_text(choice[2], 4),
        "bytes": lambda choice: f"{100 * choice[1]:.1f}%",
        "": lambda choice: "━" * round(_BAR * choice[1] / most),
    }
    return Rows("Choices that were tried", result.curve, columns)


def show_conversion(result: Conversion) -> None:
    """Show which nodes bring which error, which stay in float32, then what was made in a sentence."""
    if result.report:
        show_rows(introduced(result))
    elif result.kept:
        show_rows(kept(result))
    if result.curve:
        show_rows(tried(result), None)
    say(result.sentence)
    if result.ran:
        say(f"  {result.ran}")


def _error(node: Introduced) -> str:
    # no error: bodies are not measured at all (no magnitudes either), others overflow
    if node.error is not None:
        return number_text(node.error, 3)
    return "not known" if node.largest is None else "not finite"
