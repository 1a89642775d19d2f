"""`rank` for the terminal."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from onnxsurgeon_lite.names import shown
from onnxsurgeon_lite.report.plain import out, say_all, show_notes, size_text
from onnxsurgeon_lite.report.tables import show_table
from onnxsurgeon_lite.tensors.metrics import number_text

if TYPE_CHECKING:
    from onnxsurgeon_lite.debug.bits import BitsPerLayer
    from onnxsurgeon_lite.debug.float16 import Float16Risks
    from onnxsurgeon_lite.debug.leave_one_out import LeaveOneOut
    from onnxsurgeon_lite.debug.rank import Ranking
    from onnxsurgeon_lite.debug.shares import Blame

_SHOWN = 20  # nodes
_WORTH = 0.01  # a sentence


def show_ranking(ranking: "Ranking") -> None:
    """Show the lossiest nodes, then what to exclude."""
    many = any(n.samples > 1 for n in ranking.nodes)
    columns = [
        "own dB",
        *(["median"] * many),
        "total dB",
        "node",
        "operator",
        "name",
        "value",
        "place",
    ]
    rows = [
        (
            f"{n.own_db:.3g}",
            *([number_text(n.median_db, 3)] * many),
            f"{n.total_db:.3g}",
            *(n.id, n.op_type, n.name, n.value, n.place),
        )
        for n in ranking.nodes[:_SHOWN]
    ]
    show_table(columns, rows)
    _show_rest(len(ranking.nodes))
    count = len(ranking.exclude)
    out(f"exclude ({count} below {ranking.below:g} dB): {_pasted(ranking.exclude)}")


def show_blame(blame: "Blame") -> None:
    """Show the shares, then what they leave out."""
    columns = ["share", "node", "operator", "name", "value", "place"]
    rows = [
        (f"{n.share:.1%}", n.id, n.op_type, n.name, n.value, n.place) for n in blame.nodes[:_SHOWN]
    ]
    show_table(columns, rows)
    _show_rest(len(blame.nodes))
    say_all(blame_lines(blame, 1))


def blame_lines(blame: "Blame", most: int) -> Iterator[str]:
    """Yield the largest shares in words, their sum, and what they leave out."""
    yield from (blame.sentence(node) for node in blame.nodes[:most] if abs(node.share) >= _WORTH)
    total = f"all shares, to first order, are {blame.explained:.0%} of it"
    yield f"{total} (SQNR {blame.output_db:.3g} dB)"
    yield from (f"left out: {line}" for line in blame.left_out)


def show_bits(found: "BitsPerLayer") -> None:
    """Show the bits of each weight, then what they save and reach."""
    rows = [(str(w.bits), size_text(w.bytes), f"{w.share:.1%}", w.name) for w in found.layers]
    show_table(["bits", "bytes", "error", "weight"], rows)
    reached = (
        f"run, {found.output!r} has {found.reached_db:.3g} dB, predicted {found.predicted_db:.3g}"
    )
    missed = "" if found.reached_db >= found.wanted_db else f": not the {found.wanted_db:g} wanted"
    out(f"{size_text(found.bytes)} of {size_text(found.before)}; {reached}{missed}")


def show_left_out(found: "LeaveOneOut") -> None:
    """Show what each layer gains the outputs, then what to exclude."""
    columns = ["output dB", "gain dB", "node", "operator", "name", "place"]
    rows = [
        (f"{n.output_db:.3g}", f"{n.gain_db:+.3g}", n.id, n.op_type, n.name, n.place)
        for n in found.nodes[:_SHOWN]
    ]
    show_table(columns, rows)
    _show_rest(len(found.nodes))
    out(f"the outputs have {found.output_db:.3g} dB")
    if found.reached_db is not None:
        count = len(found.exclude)
        out(f"exclude ({count} reach {found.reached_db:.3g} dB): {_pasted(found.exclude)}")


def show_risks(risks: "Float16Risks") -> None:
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
        for r in risks.nodes[:_SHOWN]
    ]
    if rows:
        show_table(columns, rows)
    _show_rest(len(risks.nodes))
    if risks.simulated:
        out(risks.simulated)
    out(f"keep in float32 ({len(risks.exclude)}): {_pasted(risks.exclude)}")


def _show_rest(count: int) -> None:
    if count > _SHOWN:
        show_notes([f"{count - _SHOWN} more with --json"])


def _pasted(names: Sequence[str]) -> str:
    """Names as a Python list, which is also a TOML and (but for the quotes) a JSON one."""
    return shown("[" + ", ".join(map(repr, names)) + "]")
