"""Tensors and how far they are apart, for the terminal: `run` and `compare`."""

from onnxsurgeon_lite.matching.sets import SetComparison
from onnxsurgeon_lite.names import counted
from onnxsurgeon_lite.report.mismatches import explain, unproved
from onnxsurgeon_lite.report.plain import say, say_all, show_notes
from onnxsurgeon_lite.report.tables import show_table
from onnxsurgeon_lite.runtime.run import RunResult
from onnxsurgeon_lite.tensors.comparison import Comparison
from onnxsurgeon_lite.tensors.metrics import number_text, texts, titles, verdict

_EXPLAINED = 8  # tensors; the table has them all


def show_run(result: RunResult) -> None:
    """Show what a run returned, a line a tensor."""
    columns = ["name", "dtype", "shape", "min", "max", "mean", "NaN", "Inf"]
    rows = []
    for s in result.statistics():
        numbers = map(number_text, (s.min, s.max, s.mean))
        rows.append((s.name, s.dtype, list(s.shape), *numbers, s.nan or "", s.inf or ""))
    show_table(columns, rows)


def show_tensors(comparison: Comparison, every_metric: bool = False) -> None:
    """Show one comparison of two arrays."""
    show_comparison(SetComparison({"array": comparison}), every_metric)


def show_comparison(result: SetComparison, every_metric: bool = False) -> None:
    """Show the verdict, every compared tensor in a line, then what is wrong with those that mismatch."""
    wrong = {name: c for name, c in result.compared.items() if not c.match}
    count = counted(len(result.compared), "tensor")
    say(f"MISMATCH in {len(wrong)} of {count}" if wrong else f"{count} compared: match")
    other = ["reference"] if result.stored_as else []
    rows = []
    for name, c in result.compared.items():
        stored = [result.stored_as.get(name, name)] if other else []
        rows.append((verdict(c), name, *stored, *texts(c, every_metric)))
    show_table(["", "name", *other, *titles(every_metric)], rows)
    for name, comparison in list(wrong.items())[:_EXPLAINED]:
        say_all(explain(name, comparison))
        if place := result.places.get(name):
            say_all([f"  scope: {place}"])
    if len(wrong) > _EXPLAINED:
        say(f"... and {len(wrong) - _EXPLAINED} more, as the table says")
    say_all(unproved(result))
    for names, where in ((result.only_actual, "reference"), (result.only_reference, "other side")):
        if names:
            show_notes([f"not compared, the {where} lacks: {', '.join(map(repr, names[:8]))}"])
