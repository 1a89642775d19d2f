"""`match` for the terminal."""

from collections.abc import Sequence

from onnxsurgeon_lite.match.models import MatchResult, Unmatched
from onnxsurgeon_lite.match.pairing import Pair
from onnxsurgeon_lite.names import shown
from onnxsurgeon_lite.report.lines import out
from onnxsurgeon_lite.report.tables import show_table

_SHOWN = 40


def show_matching(result: MatchResult) -> None:
    """The pairs with their evidence, then what is left on either side."""
    pairs = result.matching.pairs
    rows = [(pair.a, pair.b, _evidence(pair), f"{pair.confidence:.2f}") for pair in pairs[:_SHOWN]]
    show_table(["a", "b", "evidence", "confidence"], rows)
    if len(pairs) > _SHOWN:
        out(f"... and {len(pairs) - _SHOWN} more (--json, or --save FILE)")
    out(
        f"{len(pairs)} pairs; a has {result.values_a} computed values, {len(result.only_a)} unmatched; "
        f"b has {result.values_b}, {len(result.only_b)} unmatched"
    )
    _show_left("a", result.only_a)
    _show_left("b", result.only_b)


def _evidence(pair: Pair) -> str:
    parts = list(pair.evidence)
    if pair.axes is not None:
        parts.append(f"transposed {list(pair.axes)}")
    if pair.agrees is False:
        parts.append("values differ")
    return ", ".join(parts)


def _show_left(side: str, values: Sequence[Unmatched]) -> None:
    for value in values[:_SHOWN]:
        place = f", {value.place}" if value.place else ""
        made = f" ({value.op_type}{place})" if value.op_type else place
        out(shown(f"  only in {side}: {value.name!r}{made}"))
    if len(values) > _SHOWN:
        out(f"  ... and {len(values) - _SHOWN} more (--json)")
