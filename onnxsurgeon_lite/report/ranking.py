"""`rank`: what the terminal and the page show of it."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from onnxsurgeon_lite.names import joined, shown
from onnxsurgeon_lite.report.plain import Columns, Rows, out, say_all, show_rows, size_text
from onnxsurgeon_lite.tensors.metrics import number_text

if TYPE_CHECKING:
    from onnxsurgeon_lite.debug.conversion.float16 import Float16Risk, Float16Risks
    from onnxsurgeon_lite.debug.ranking.bits import BitsPerLayer, LayerBits
    from onnxsurgeon_lite.debug.ranking.leave_one_out import LeaveOneOut, LeftOut
    from onnxsurgeon_lite.debug.ranking.rank import RankedNode, Ranking
    from onnxsurgeon_lite.debug.shares import Blame, BlamedNode

_WORTH = 0.01  # a sentence
ID = "{0.id}"
NODE = {"node": ID, "operator": "{0.op_type}", "name": "{0.name}"}
PLACE = {"place": "{0.place}"}
VALUE = {"value": "{0.value}"}


def ranked(ranking: "Ranking") -> "Rows[RankedNode]":
    """Return the nodes, the lossiest first."""
    median: Columns[RankedNode] = {"median": lambda n: number_text(n.median_db, 3)}
    columns: Columns[RankedNode] = {
        "own dB": "{0.own_db:.3g}",
        **(median if any(n.samples > 1 for n in ranking.nodes) else {}),
        "total dB": "{0.total_db:.3g}",
        **NODE,
        **VALUE,
        **PLACE,
    }
    return Rows("The lossiest nodes", ranking.nodes, columns, ID)


def show_ranking(ranking: "Ranking") -> None:
    """Show the lossiest nodes, then what to exclude."""
    show_rows(ranked(ranking))
    count = len(ranking.exclude)
    out(f"exclude ({count} below {ranking.below:g} dB): {_pasted(ranking.exclude)}")


def shares(blame: "Blame") -> "Rows[BlamedNode]":
    """Return the nodes, the largest share first."""
    columns: Columns[BlamedNode] = {"share": "{0.share:.1%}", **NODE, **VALUE, **PLACE}
    return Rows("Shares", blame.nodes, columns, ID)


def show_blame(blame: "Blame") -> None:
    """Show the shares, then what they leave out."""
    show_rows(shares(blame))
    say_all(blame_lines(blame, 1))


def blame_lines(blame: "Blame", most: int) -> Iterator[str]:
    """Yield lines: the largest shares, their sum, and what they leave out."""
    yield from (blame.sentence(node) for node in blame.nodes[:most] if abs(node.share) >= _WORTH)
    # shares that do not sum up to about 1 are not to be trusted
    total = f"all shares, to first order, are {blame.explained:.0%} of it"
    yield f"{total} (SQNR {blame.output_db:.3g} dB)"
    yield from (f"left out: {line}" for line in blame.left_out)


def chosen_bits(found: "BitsPerLayer") -> "Rows[LayerBits]":
    """Return the weights with their bits."""
    columns: Columns[LayerBits] = {
        "bits": "{0.bits}",
        "bytes": lambda w: size_text(w.bytes),
        "error": "{0.share:.1%}",
        "weight": "{0.name}",
    }
    return Rows("Weights", found.layers, columns)


def show_bits(found: "BitsPerLayer") -> None:
    """Show the bits of each weight, then what they save and reach."""
    show_rows(chosen_bits(found), None)
    reached = f"{found.reached_db:.3g} dB, predicted {found.predicted_db:.3g}"
    # the search for bits gives up after some runs
    missed = "" if found.reached_db >= found.wanted_db else f": not the {found.wanted_db:g} wanted"
    sizes = f"{size_text(found.bytes)} of {size_text(found.before)}"
    out(f"{sizes}; run, {found.output!r} has {reached}{missed}")


def gains(found: "LeaveOneOut") -> "Rows[LeftOut]":
    """Return the layers, the one that gains most first."""
    columns: Columns[LeftOut] = {
        "output dB": "{0.output_db:.3g}",
        "gain dB": "{0.gain_db:+.3g}",
        **NODE,
        **PLACE,
    }
    return Rows("Layers", found.nodes, columns, ID)


def show_left_out(found: "LeaveOneOut") -> None:
    """Show what each layer gains the outputs, then what to exclude."""
    show_rows(gains(found))
    out(f"the outputs have {found.output_db:.3g} dB")
    if found.reached_db is not None:
        count = len(found.exclude)
        out(f"exclude ({count} reach {found.reached_db:.3g} dB): {_pasted(found.exclude)}")


def in_danger(risks: "Float16Risks") -> "Rows[Float16Risk]":
    """Return the nodes that may not bear float16."""
    columns: Columns[Float16Risk] = {
        "keep": lambda n: "keep" if n.keep else "",
        **NODE,
        "largest": lambda n: number_text(n.largest, 4),
        "overflow": "{0.overflowing}/{0.elements}",
        "vanish": "{0.vanishing}/{0.elements}",
        "clamped": lambda n: ", ".join(n.clamped),
        **PLACE,
    }
    return Rows("Nodes", risks.nodes, columns, ID)


def show_risks(risks: "Float16Risks") -> None:
    """Show the nodes in danger, then what to keep."""
    if risks.nodes:
        show_rows(in_danger(risks))
    if risks.simulated:
        out(risks.simulated)
    out(f"keep in float32 ({len(risks.exclude)}): {_pasted(risks.exclude)}")


def _pasted(names: Sequence[str]) -> str:
    """Names as a Python list, which is also a TOML and (but for the quotes) a JSON one."""
    return shown("[" + joined(names) + "]")
