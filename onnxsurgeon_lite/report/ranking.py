"""`rank` for the terminal."""

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from onnxsurgeon_lite.names import shown
from onnxsurgeon_lite.report.plain import out, say_all, size_text
from onnxsurgeon_lite.report.tables import show_items, show_table
from onnxsurgeon_lite.tensors.metrics import number_text

if TYPE_CHECKING:
    from onnxsurgeon_lite.debug.conversion.float16 import Float16Risk, Float16Risks
    from onnxsurgeon_lite.debug.ranking.bits import BitsPerLayer
    from onnxsurgeon_lite.debug.ranking.leave_one_out import LeaveOneOut, LeftOut
    from onnxsurgeon_lite.debug.ranking.rank import RankedNode, Ranking
    from onnxsurgeon_lite.debug.shares import Blame, BlamedNode

_WORTH = 0.01  # a sentence
_NODE = {"node": attrgetter("id"), "operator": attrgetter("op_type"), "name": attrgetter("name")}
_VALUE, _PLACE = attrgetter("value"), attrgetter("place")


def show_ranking(ranking: "Ranking") -> None:
    """Show the lossiest nodes, then what to exclude."""
    many = any(n.samples > 1 for n in ranking.nodes)
    columns: dict[str, Callable[[RankedNode], object]] = {
        "own dB": lambda n: f"{n.own_db:.3g}",
        **({"median": lambda n: number_text(n.median_db, 3)} if many else {}),
        "total dB": lambda n: f"{n.total_db:.3g}",
        **_NODE,
        "value": _VALUE,
        "place": _PLACE,
    }
    show_items(ranking.nodes, columns)
    count = len(ranking.exclude)
    out(f"exclude ({count} below {ranking.below:g} dB): {_pasted(ranking.exclude)}")


def show_blame(blame: "Blame") -> None:
    """Show the shares, then what they leave out."""
    columns: dict[str, Callable[[BlamedNode], object]] = {
        "share": lambda n: f"{n.share:.1%}",
        **_NODE,
        "value": _VALUE,
        "place": _PLACE,
    }
    show_items(blame.nodes, columns)
    say_all(blame_lines(blame, 1))


def blame_lines(blame: "Blame", most: int) -> Iterator[str]:
    """Yield lines: the largest shares, their sum, and what they leave out."""
    yield from (blame.sentence(node) for node in blame.nodes[:most] if abs(node.share) >= _WORTH)
    total = f"all shares, to first order, are {blame.explained:.0%} of it"
    yield f"{total} (SQNR {blame.output_db:.3g} dB)"
    yield from (f"left out: {line}" for line in blame.left_out)


def show_bits(found: "BitsPerLayer") -> None:
    """Show the bits of each weight, then what they save and reach."""
    rows = [(str(w.bits), size_text(w.bytes), f"{w.share:.1%}", w.name) for w in found.layers]
    show_table(["bits", "bytes", "error", "weight"], rows)
    reached = f"{found.reached_db:.3g} dB, predicted {found.predicted_db:.3g}"
    missed = "" if found.reached_db >= found.wanted_db else f": not the {found.wanted_db:g} wanted"
    sizes = f"{size_text(found.bytes)} of {size_text(found.before)}"
    out(f"{sizes}; run, {found.output!r} has {reached}{missed}")


def show_left_out(found: "LeaveOneOut") -> None:
    """Show what each layer gains the outputs, then what to exclude."""
    columns: dict[str, Callable[[LeftOut], object]] = {
        "output dB": lambda n: f"{n.output_db:.3g}",
        "gain dB": lambda n: f"{n.gain_db:+.3g}",
        **_NODE,
        "place": _PLACE,
    }
    show_items(found.nodes, columns)
    out(f"the outputs have {found.output_db:.3g} dB")
    if found.reached_db is not None:
        count = len(found.exclude)
        out(f"exclude ({count} reach {found.reached_db:.3g} dB): {_pasted(found.exclude)}")


def show_risks(risks: "Float16Risks") -> None:
    """Show the nodes in danger, then what to keep."""
    columns: dict[str, Callable[[Float16Risk], object]] = {
        "": lambda n: "keep" if n.keep else "",
        **_NODE,
        "largest": lambda n: number_text(n.largest, 4),
        "overflow": lambda n: f"{n.overflowing}/{n.elements}",
        "vanish": lambda n: f"{n.vanishing}/{n.elements}",
        "clamped": lambda n: ", ".join(n.clamped),
        "place": _PLACE,
    }
    if risks.nodes:
        show_items(risks.nodes, columns)
    if risks.simulated:
        out(risks.simulated)
    out(f"keep in float32 ({len(risks.exclude)}): {_pasted(risks.exclude)}")


def _pasted(names: Sequence[str]) -> str:
    """Names as a Python list, which is also a TOML and (but for the quotes) a JSON one."""
    return shown("[" + ", ".join(map(repr, names)) + "]")
