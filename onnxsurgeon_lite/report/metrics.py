"""Tensors and how far they are apart, for the terminal: `run` and `compare`."""

from collections.abc import Sequence

from onnxsurgeon_lite.matching.sets import SetComparison
from onnxsurgeon_lite.report.mismatches import explain
from onnxsurgeon_lite.report.plain import say, say_all, show_notes
from onnxsurgeon_lite.report.tables import show_table
from onnxsurgeon_lite.runtime.run import RunResult
from onnxsurgeon_lite.tensors.comparison import Comparison
from onnxsurgeon_lite.tensors.metrics import number_text, texts, titles
from onnxsurgeon_lite.tensors.statistics import Statistics

_EXPLAINED = 8  # tensors; the table has them all


def show_run(result: RunResult) -> None:
    """Show what a run returned, a line a tensor."""
    columns = ["name", "dtype", "shape", "min", "max", "mean", "NaN", "Inf"]
    rows = [
        (s.name, s.dtype, list(s.shape), *_range(s), s.nan or "", s.inf or "")
        for s in result.statistics()
    ]
    show_table(columns, rows)


def _range(line: Statistics) -> list[str]:
    return [number_text(number) for number in (line.min, line.max, line.mean)]


def show_tensors(comparison: Comparison, every_metric: bool = False) -> None:
    """Show one comparison of two arrays."""
    show_comparison(SetComparison({"array": comparison}), every_metric)


def show_comparison(result: SetComparison, every_metric: bool = False) -> None:
    """Show the verdict, every compared tensor in a line, then what is wrong with those that mismatch."""
    wrong = {name: c for name, c in result.compared.items() if not c.match}
    count = f"{len(result.compared)} tensor{'s' * (len(result.compared) != 1)}"
    say(f"MISMATCH in {len(wrong)} of {count}" if wrong else f"{count} compared: match")
    other = ["reference"] if result.stored_as else []
    rows = [
        (
            verdict(c),
            name,
            *(result.stored_as.get(name, name) for _ in other),
            *texts(c, every_metric),
        )
        for name, c in result.compared.items()
    ]
    show_table(["", "name", *other, *titles(every_metric)], rows)
    for name, comparison in list(wrong.items())[:_EXPLAINED]:
        say_all(explain(name, comparison))
        if place := result.places.get(name):
            say_all([f"  scope: {place}"])
    if len(wrong) > _EXPLAINED:
        say(f"... and {len(wrong) - _EXPLAINED} more, as the table says")
    if result.left_over:
        say_all([_left_over(result.left_over)])
    for names, where in ((result.only_actual, "reference"), (result.only_reference, "other side")):
        if names:
            show_notes([f"not compared, the {where} lacks: {', '.join(map(repr, names[:8]))}"])


def _left_over(names: Sequence[str]) -> str:
    """Say which references were not compared, although they are behind the last match."""
    shown = ", ".join(map(repr, names[:_EXPLAINED]))
    one = len(names) == 1
    which = f"{len(names)} reference{'' if one else 's'} behind the last match"
    return f"{which} {'was' if one else 'were'} not compared: {shown}"


def verdict(comparison: Comparison) -> str:
    """Return the word for one tensor."""
    return "match" if comparison.match else "MISMATCH"
