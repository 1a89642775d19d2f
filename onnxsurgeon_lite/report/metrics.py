"""Tensors and how far they are apart: what the terminal and the page show of `run` and `compare`."""

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from onnxsurgeon_lite.matching.decode import DecodeComparison
from onnxsurgeon_lite.matching.over_samples import SampleComparison, SampleOutcome
from onnxsurgeon_lite.matching.sets import SetComparison
from onnxsurgeon_lite.names import counted, first, joined
from onnxsurgeon_lite.report.plain import (
    Columns,
    Rows,
    T,
    say,
    say_all,
    show_notes,
    show_rows,
    show_table,
)
from onnxsurgeon_lite.tensors.comparison import Comparison, gap, texts, titles, verdict
from onnxsurgeon_lite.tensors.metrics import number_text

if TYPE_CHECKING:
    from onnxsurgeon_lite.matching.split import Split
    from onnxsurgeon_lite.runtime.run import RunResult

Compared = tuple[str, Comparison]
_EXPLAINED = 8  # tensors; the table has them all


def show_run(result: "RunResult") -> None:
    """Show what a run returned, a line a tensor."""
    columns = ["name", "dtype", "shape", "min", "max", "mean", "NaN", "Inf"]
    # numbers that are 0 are left out: NaN and Inf show where there are some
    rows = []
    for s in result.statistics():
        numbers = map(number_text, (s.min, s.max, s.mean))
        rows.append((s.name, s.dtype, list(s.shape), *numbers, s.nan or "", s.inf or ""))
    show_table(columns, rows)


def show_tensors(comparison: Comparison, every_metric: bool = False) -> None:
    """Show one comparison of two arrays."""
    show_comparison(SetComparison({"array": comparison}), every_metric)


def tensors(result: SetComparison, every_metric: bool) -> Rows[Compared]:
    """Return the compared tensors."""
    # a column of its own where references have other names
    stored: Columns[Compared] = {"reference": lambda each: result.stored_as.get(each[0], each[0])}
    columns: Columns[Compared] = {
        "verdict": lambda each: verdict(each[1]),
        "name": "{0[0]}",
        **(stored if result.stored_as else {}),
        **measured(itemgetter(1), every_metric),
    }
    return Rows("Compared", list(result.compared.items()), columns)


def measured(
    of: Callable[[T], Comparison | None], every_metric: bool
) -> dict[str, Callable[[T], str]]:
    """Return the columns of metrics.

    Args:
        of: gives the comparison of an item.
    """

    # a function of its own for each column, so that `place` stays bound
    def cell(place: int) -> Callable[[T], str]:
        def text(item: T) -> str:
            compared = of(item)
            found = [] if compared is None else texts(compared, every_metric)
            return found[place] if place < len(found) else ""

        return text

    return {title: cell(place) for place, title in enumerate(titles(every_metric))}


def show_split(found: "Split") -> None:
    """A line for each part, then how they compare with the whole."""
    for number, part in enumerate(found.parts, 1):
        what = f"wrote {str(part.path)!r}" if part.path else f"part {number}"
        ends = f"{', '.join(part.inputs)} -> {', '.join(part.outputs)}"
        say_all([f"{what}: {ends} ({counted(len(part.nodes), 'node')})"])
    for name, comparison in found.outputs.items():
        agrees = f"{name!r} agrees with the whole: max abs difference {comparison.max_abs:.3g}"
        say_all([agrees] if comparison.match else explain(name, comparison))


def show_comparison(result: SetComparison, every_metric: bool = False) -> None:
    """Show the verdict, every compared tensor in a line, then what is wrong with those that mismatch."""
    wrong = {name: c for name, c in result.compared.items() if not c.match}
    count = counted(len(result.compared), "tensor")
    say(f"MISMATCH in {len(wrong)} of {count}" if wrong else f"{count} compared: match")
    show_rows(tensors(result, every_metric), None)
    for name, comparison in list(wrong.items())[:_EXPLAINED]:
        say_all(explain(name, comparison))
        if place := result.places.get(name):
            say_all([f"  scope: {place}"])
    if len(wrong) > _EXPLAINED:
        say(f"... and {len(wrong) - _EXPLAINED} more, as the table says")
    # notes of what matches: mismatches are explained with theirs
    said = {name: c.notes for name, c in result.compared.items() if c.match and c.notes}
    show_notes([f"{name!r}: {note}" for name in list(said)[:_EXPLAINED] for note in said[name]])
    say_all(unproved(result))
    for names, where in ((result.only_actual, "reference"), (result.only_reference, "other side")):
        if names:
            show_notes([f"not compared, the {where} lacks: {', '.join(map(repr, names[:8]))}"])


_NAMED = 8  # references


def unproved(result: SetComparison) -> Iterator[str]:
    """Yield why what was compared proves nothing, or not all."""
    if result.only_inner:
        yield "inconclusive: no output of the model was compared"
    if result.exchanged:
        yield f"inconclusive: {result.exchanged}"
    if names := result.left_over:
        which = f"{counted(len(names), 'reference')} after the last match"
        shown = joined(names[:_NAMED])
        yield f"{which} {'was' if len(names) == 1 else 'were'} not compared: {shown}"


def explain(name: str, comparison: Comparison) -> list[str]:
    """Return why a comparison mismatches, in sentences; nothing for a match."""
    if comparison.match:
        return []
    dtype = comparison.dtypes[0]
    # what, then the first element that is not finite, how many are off, and the worst
    lines = [f"mismatch at value {name!r} ({dtype} {list(comparison.shapes[0])})"]
    if comparison.reason in ("shape", "dtype"):
        return lines + [f"  {gap(comparison)}"]
    if comparison.non_finite is not None:
        where = list(comparison.non_finite)
        lines.append(f"  first non-finite difference at {where}: {gap(comparison)}")
    over = f"{comparison.exceeding} of {comparison.elements} elements exceed {comparison.tolerance}"
    lines.append(f"  {over}")
    worst = comparison.worst
    if worst is not None:
        lines.append(
            f"  worst at {list(worst.index)}: actual {number_text(worst.actual)}, "
            f"reference {number_text(worst.reference)}, "
            f"off by {worst.difference:.3g} where {worst.allowed:.3g} is allowed"
        )
    lines += (f"  {note}" for note in comparison.notes)
    return lines


_LISTED = 8  # samples in a list of numbers
_STEPS = 8  # of decoding that are shown


def show_decoding(result: DecodeComparison, every_metric: bool = False) -> None:
    """Show the first token that differs, then the steps: all of them, or the first ones and those that differ."""
    off = result.divergent
    count = len(result.steps)
    if off is None:
        say(f"{counted(count, 'token')}: all agree")
    else:
        step = result.steps[off]
        say(
            f"token {off} of {count} differs first: {step.token}, the reference decodes {step.wanted}"
        )
        say(f"  the reference prefers its own by {number_text(step.margin, 4)} (logits)")
        say(f"  {100 * result.agreement:.1f}% of the tokens agree")
    # the first steps, and the one where the tokens part
    told = [s for s in result.steps if every_metric or s.number < _STEPS or s.number == off]
    rows = [
        (s.number, s.token, s.wanted, number_text(s.margin, 4), number_text(s.kl, 4)) for s in told
    ]
    show_table(["step", "token", "reference", "margin", "KL"], rows)
    if len(told) < count:
        say(f"  {count - len(told)} more steps: --json, or --metrics all")


def show_samples(result: SampleComparison, every_metric: bool = False) -> None:
    """Show the verdict, quantiles of each value, then the worst samples.

    Args:
        every_metric: explain every one of the worst.
    """
    # 1. the verdict
    count = counted(result.total, "sample")
    fails = f"MISMATCH in {len(result.failing)} of {count}" if result.failing else f"{count}: match"
    say(fails if result.failing or result.match else f"MISMATCH over {count}")
    if result.worst and (found := result.worst[0].found) is not None:
        say_all(unproved(found))
    # 2. the number that was asked for
    if (metric := result.metric) is not None:
        whole = "of all samples" if metric.whole else "largest of a sample"
        limit = number_text(metric.limit, 4)
        say(f"{metric.name}: {number_text(metric.value, 4)} ({whole}), {limit} is allowed")
    # 3. the distribution of each output
    rows = []
    for name, v in result.values.items():
        quantiles = map(_short, (v.median, v.q90, v.q99, v.largest))
        rows.append((name, f"{v.failing} of {v.samples}", *quantiles))
    if rows:
        show_table(["max abs of", "fails", "median", "90%", "99%", "largest"], rows)
    # 4. the worst samples, explained
    wrong = [outcome for outcome in result.worst if not outcome.match]
    if wrong:
        say(f"failing: {numbers(result.failing)}")
        show_table(["worst sample", "off by", "at"], [_line(outcome) for outcome in wrong])
    for outcome in wrong if every_metric else wrong[:1]:
        say_all(_explained(outcome))
    show_notes(result.repeated)


def _line(outcome: SampleOutcome) -> tuple[object, ...]:
    found = outcome.compared
    at = max(found, key=lambda name: found[name].excess) if found else outcome.failure
    return outcome.number, _short(outcome.error), at


def numbers(samples: Sequence[int]) -> str:
    """Return the first numbers of samples."""
    return first(list(map(str, samples)), _LISTED)


def _explained(outcome: SampleOutcome) -> Iterator[str]:
    if outcome.failure:
        yield f"sample {outcome.number} failed: {outcome.failure}"
    for name, comparison in outcome.compared.items():
        if not comparison.match:
            yield from explain(name, comparison)


def _short(number: float) -> str:
    return number_text(number, 3)
