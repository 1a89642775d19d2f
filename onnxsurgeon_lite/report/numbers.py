"""Runs, comparisons and bisections for the terminal."""

from collections.abc import Sequence

from onnxsurgeon_lite.bisection.result import BisectResult, Culprit, ValueReport
from onnxsurgeon_lite.comparing import SetComparison
from onnxsurgeon_lite.comparison import Comparison
from onnxsurgeon_lite.names import command, shown
from onnxsurgeon_lite.report.lines import out, show_notes
from onnxsurgeon_lite.report.tables import show_table
from onnxsurgeon_lite.running import Statistics
from onnxsurgeon_lite.scopes import place_text


def show_statistics(lines: Sequence[Statistics]) -> None:
    """What a run gave, a line a tensor."""
    columns = ["name", "dtype", "shape", "min", "max", "mean", "NaN", "Inf"]
    rows = [
        (s.name, s.dtype, list(s.shape), *map(_number, (s.min, s.max, s.mean)), s.nan, s.inf)
        for s in lines
    ]
    show_table(columns, rows)


def show_comparison(result: SetComparison) -> None:
    """Every compared tensor in a line, then what is wrong with those that mismatch."""
    columns = ["", "name", "max abs", "max rel", "RMSE", "cosine", "SQNR dB", "ULP", "over"]
    rows = [(_verdict(c), name, *_metrics(c)) for name, c in result.compared.items()]
    styles = ["" if c.match else "red" for c in result.compared.values()]
    show_table(columns, rows, styles)
    for name, comparison in result.compared.items():
        for line in explain(name, comparison):
            out(line)
    for names, where in ((result.only_actual, "reference"), (result.only_reference, "other side")):
        if names:
            show_notes([f"not compared, the {where} lacks: {', '.join(map(repr, names[:8]))}"])


def show_bisection(result: BisectResult, reproduce: Sequence[str]) -> None:
    """The verdict, the culprit and its values."""
    show_notes(result.notes)
    if result.verdict == "agrees":
        worst = max(result.outputs.values(), key=lambda c: c.max_abs, default=None)
        margin = (
            f": max abs difference {worst.max_abs:.3g}, {worst.tolerance} allowed" if worst else ""
        )
        out(f"agrees at {', '.join(map(repr, result.outputs))}{margin}")
        return
    for culprit in result.culprits:
        _show_culprit(culprit)
    if result.elsewhere:
        names = ", ".join(map(repr, result.elsewhere[:8]))
        out(f"  mismatching too, and not downstream of it: {names}")
    out(
        f"  {result.compared} values compared in {result.sessions} session{'s' * (result.sessions != 1)}"
    )
    if result.reproducer is not None:
        out(f"  reproducer: {str(result.reproducer)!r}; reproduce: {command(*reproduce)}")


def explain(name: str, comparison: Comparison, produced_by: str = "") -> list[str]:
    """Why a comparison mismatches, in sentences; nothing for a match."""
    if comparison.match:
        return []
    by = f", produced by {produced_by}" if produced_by else ""
    dtype, shape = comparison.dtypes[0], list(comparison.shapes[0])
    lines = [f"mismatch at value {name!r} ({dtype} {shape}){by}"]
    if comparison.reason in ("shape", "dtype"):
        sides = comparison.shapes if comparison.reason == "shape" else comparison.dtypes
        actual, reference = (list(s) if isinstance(s, tuple) else s for s in sides)
        return [*lines, f"  its {comparison.reason} is {actual}, the reference's {reference}"]
    if comparison.non_finite is not None:
        (nan, nan_r), (inf, inf_r) = comparison.nan, comparison.inf
        lines.append(
            f"  first non-finite difference at {list(comparison.non_finite)}: "
            f"actual has {nan} NaN and {inf} Inf, the reference {nan_r} and {inf_r}"
        )
    over = f"{comparison.exceeding} of {comparison.elements} elements exceed {comparison.tolerance}"
    lines.append(f"  {over}")
    worst = comparison.worst
    if worst is not None:
        lines.append(
            f"  worst at {list(worst.index)}: actual {_number(worst.actual)}, "
            f"reference {_number(worst.reference)}, "
            f"off by {worst.difference:.3g} where {worst.allowed:.3g} is allowed"
        )
    return [*lines, *(f"  {note}" for note in comparison.notes)]


def _show_culprit(culprit: Culprit) -> None:
    node = " ".join(filter(None, (culprit.op_type, repr(culprit.name) if culprit.name else "")))
    mismatching = next((v for v in culprit.values if v.name == culprit.value), None)
    if mismatching is not None and mismatching.comparison is not None:
        for line in explain(culprit.value, mismatching.comparison, f"{node} ({culprit.id})"):
            out(shown(line))
    place = place_text(culprit.scope, culprit.class_name, culprit.source)
    if place:
        out(f"  scope: {shown(place)}")
    if culprit.attributes:
        text = ", ".join(f"{name}={value}" for name, value in culprit.attributes.items())
        out(f"  attributes: {shown(text)}")
    if len(culprit.region) > 1:
        shown_ids = ", ".join(culprit.region[:10]) + (" ..." if len(culprit.region) > 10 else "")
        out(
            f"  one of {len(culprit.region)} nodes, between which no value has a reference: {shown_ids}"
        )
    columns = ["", "", "name", "max abs", "max rel", "RMSE", "cosine", "SQNR dB", "ULP", "over"]
    show_table(columns, map(_value_row, culprit.values))


def _value_row(value: ValueReport) -> Sequence[object]:
    if value.comparison is None:
        return (value.role, "no reference", value.name)
    return (value.role, _verdict(value.comparison), value.name, *_metrics(value.comparison))


def _verdict(comparison: Comparison) -> str:
    return "match" if comparison.match else "MISMATCH"


def _metrics(c: Comparison) -> Sequence[object]:
    if c.reason in ("shape", "dtype"):
        return (c.reason,)
    numbers = (c.max_abs, c.max_rel, c.rmse, c.cosine, c.sqnr_db)
    return (*map(_number, numbers), "" if c.ulp is None else c.ulp, f"{c.exceeding}/{c.elements}")


def _number(value: float | str | None) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else repr(value)
