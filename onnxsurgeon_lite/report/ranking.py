"""`rank` for the terminal."""

from collections.abc import Sequence

from onnxsurgeon_lite.debug.rank import Float16Risk, RankedNode
from onnxsurgeon_lite.names import shown
from onnxsurgeon_lite.report.plain import out, show_notes
from onnxsurgeon_lite.report.tables import show_table
from onnxsurgeon_lite.tensors.metrics import number_text

_SHOWN = 20  # nodes


def show_ranking(nodes: Sequence[RankedNode], exclude: Sequence[str], below: float) -> None:
    """Show the lossiest nodes, then what to exclude."""
    columns = ["own dB", "total dB", "node", "operator", "name", "value", "place"]
    rows = [
        (f"{n.own_db:.3g}", f"{n.total_db:.3g}", n.id, n.op_type, n.name, n.value, n.place)
        for n in nodes[:_SHOWN]
    ]
    show_table(columns, rows)
    _show_rest(len(nodes))
    out(f"exclude ({len(exclude)} below {below:g} dB): {_pasted(exclude)}")


def show_risks(risks: Sequence[Float16Risk], keep: Sequence[str]) -> None:
    """Show the nodes in danger, then what to keep."""
    columns = ["", "node", "operator", "name", "largest", "overflow", "vanish", "clamped", "place"]
    rows = [
        [
            "keep" if r.keep else "",
            r.id,
            r.op_type,
            r.name,
            number_text(r.largest, 4),
            f"{r.overflowing}/{r.elements}",
            f"{r.vanishing}/{r.elements}",
            ", ".join(r.clamped),
            r.place,
        ]
        for r in risks[:_SHOWN]
    ]
    if rows:
        show_table(columns, rows)
    _show_rest(len(risks))
    out(f"keep in float32 ({len(keep)}): {_pasted(keep)}")


def _show_rest(count: int) -> None:
    if count > _SHOWN:
        show_notes([f"{count - _SHOWN} more with --json"])


def _pasted(names: Sequence[str]) -> str:
    """Names as a Python list, which is also a TOML and (but for the quotes) a JSON one."""
    return shown("[" + ", ".join(map(repr, names)) + "]")
