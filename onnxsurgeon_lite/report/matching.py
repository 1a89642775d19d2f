"""`match` and `weights`: what the terminal and the page show of them."""

from collections import Counter
from collections.abc import Sequence

from onnxsurgeon_lite.matching.values import Pair, lost_note
from onnxsurgeon_lite.matching.values.run_both import MatchResult, Unmatched
from onnxsurgeon_lite.matching.weights import Weight, WeightsResult
from onnxsurgeon_lite.names import counted, shown
from onnxsurgeon_lite.report.metrics import explain
from onnxsurgeon_lite.report.plain import Columns, Rows, say, say_all, show_rows

_SHOWN = 40


def matched(result: MatchResult) -> Rows[Pair]:
    """Return the pairs with their evidence."""
    columns: Columns[Pair] = {
        "a": "{0.a}",
        "b": "{0.b}",
        "evidence": _evidence,
        "confidence": "{0.confidence:.2f}",
    }
    return Rows("Pairs", result.matching.pairs, columns)


def show_matching(result: MatchResult) -> None:
    """The pairs with their evidence, then what is left on either side."""
    pairs = result.matching.pairs
    show_rows(matched(result), _SHOWN, "(--json, or --save FILE)")
    say(
        f"{len(pairs)} pairs; a has {result.values_a} computed values, {len(result.only_a)} unmatched; "
        f"b has {result.values_b}, {len(result.only_b)} unmatched"
    )
    _show_left("a", result.only_a)
    _show_left("b", result.only_b)
    if lost := lost_note(result.matching):
        say(shown(f"  {lost}"))


def _evidence(pair: Pair) -> str:
    parts = list(pair.evidence)
    if pair.axes is not None:
        parts.append(f"transposed {list(pair.axes)}")
    # None: the values were not compared
    if pair.agrees is False:
        parts.append("values differ")
    return ", ".join(parts)


def _show_left(side: str, values: Sequence[Unmatched]) -> None:
    for value in values[:_SHOWN]:
        place = f", {value.place}" if value.place else ""
        made = f" ({value.op_type}{place})" if value.op_type else place
        say(shown(f"  only in {side}: {value.name!r}{made}"))
    if len(values) > _SHOWN:
        say(f"  ... and {len(values) - _SHOWN} more (--json)")


def show_weights(result: WeightsResult) -> None:
    """The weights that differ, then how the others were found and what was not."""
    differing = [weight for weight in result.weights if not weight.comparison.match]
    for weight in differing:
        say(shown(f"differs: {weight.name!r} from {weight.parameter!r}, {weight.how}"))
        say_all([f"  {weight.finding}"] if weight.finding else [])
        say_all(explain(weight.name, weight.comparison)[1:])
    found = [weight for weight in result.weights if weight.finding and weight.comparison.match]
    for weight in found:
        say(shown(f"suspicious: {weight.name!r} from {weight.parameter!r}, {weight.how}"))
        say(shown(f"  {weight.finding}"))
    # `same`, `transposed`, `folded with NORM`: counted without the name of the norm
    counts = Counter(w.how.partition(" with")[0] for w in result.weights if w.comparison.match)
    parts = [f"{count} {kind}" for kind, count in counts.items()]
    suspicious = f", {len(found)} suspicious" if found else ""
    total = len(result.weights) + len(result.only_model)
    found_of = f"{len(result.weights)} of {total} weights found"
    parts = [f"{found_of}: {len(differing)} differ{suspicious}"] + parts
    say(f"{parts[0]}; {', '.join(parts[1:])}" if parts[1:] else parts[0])
    _show_turned([weight for weight in result.weights if weight.how == "transposed"])
    if result.epsilon is not None:
        say(f"  the folded BatchNorms have epsilon {result.epsilon:.3g}")
    for names, where in ((result.only_model, "model"), (result.only_checkpoint, "checkpoint")):
        if names:
            more = " ..." if len(names) > _SHOWN else ""
            say(shown(f"  only in the {where}: {', '.join(map(repr, names[:_SHOWN]))}{more}"))

    if result.updated is not None:
        say(f"{counted(len(result.updated), 'weight')} got other numbers")
    if result.branches:
        say(f"{counted(len(result.branches), 'weight')} got a branch")
    for name, reason in result.kept.items():
        say(shown(f"kept {name!r}: {reason}"))


def _show_turned(weights: Sequence[Weight]) -> None:
    """The weights whose axes are in another order than their parameter's."""
    pairs = [f"{weight.name!r} from {weight.parameter!r}" for weight in weights[:_SHOWN]]
    if pairs:
        more = " ..." if len(weights) > _SHOWN else ""
        say(shown(f"  transposed: {', '.join(pairs)}{more}"))
