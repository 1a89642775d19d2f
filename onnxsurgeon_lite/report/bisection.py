"""Runs, comparisons and bisections for the terminal."""

from collections.abc import Sequence

from onnxsurgeon_lite.debug.bisection.result import BisectResult, Culprit, Samples, ValueReport
from onnxsurgeon_lite.debug.rank import Float16Risks, Ranking
from onnxsurgeon_lite.graph.scopes import place_text
from onnxsurgeon_lite.matching.sets import SetComparison
from onnxsurgeon_lite.names import command, shown
from onnxsurgeon_lite.report.mismatches import explain, number_text
from onnxsurgeon_lite.report.plain import out, show_notes
from onnxsurgeon_lite.report.tables import show_table
from onnxsurgeon_lite.runtime.run import RunResult, Statistics
from onnxsurgeon_lite.tensors.comparison import Comparison

_RANKED = 20  # nodes of a ranking that are shown


def show_statistics(lines: Sequence[Statistics]) -> None:
    """What a run gave, a line a tensor."""
    columns = ["name", "dtype", "shape", "min", "max", "mean", "NaN", "Inf"]
    rows = [
        (s.name, s.dtype, list(s.shape), *map(number_text, (s.min, s.max, s.mean)), s.nan, s.inf)
        for s in lines
    ]
    show_table(columns, rows)


def show_run(result: RunResult) -> None:
    """What a run gave, a line a tensor."""
    show_statistics(result.statistics())


def show_tensors(comparison: Comparison) -> None:
    """One comparison of two arrays."""
    show_comparison(SetComparison({"array": comparison}))


def show_comparison(result: SetComparison) -> None:
    """Every compared tensor in a line, then what is wrong with those that mismatch."""
    columns = ["", "name", "max abs", "max rel", "RMSE", "cosine", "SQNR dB", "ULP", "over"]
    rows = [(_verdict(c), name, *_metrics(c)) for name, c in result.compared.items()]
    styles = ["" if c.match else "red" for c in result.compared.values()]
    show_table(columns, rows, styles)
    for name, comparison in result.compared.items():
        for line in explain(name, comparison):
            out(line)
        if not comparison.match and result.places.get(name):
            out(f"  scope: {shown(result.places[name])}")
    for names, where in ((result.only_actual, "reference"), (result.only_reference, "other side")):
        if names:
            show_notes([f"not compared, the {where} lacks: {', '.join(map(repr, names[:8]))}"])


def show_bisection(result: BisectResult) -> None:
    """The verdict, every culprit with its values, what was cleared."""
    show_notes(result.notes)
    if result.verdict == "agrees":
        _show_agreement(result)
    for finding in result.findings:
        out(f"{finding.verdict}: {shown(finding.because)}")
    for number, culprit in enumerate(result.culprits):
        if number:
            out("")
        _show_culprit(culprit, many=len(result.culprits) > 1)
        _show_inside(culprit)
    for culprit in result.cleared:
        _show_cleared(culprit)
    if result.verdict == "mismatch":
        _show_search(result)
    if result.reproducer is not None:
        out(f"  reproducer: {str(result.reproducer)!r}; reproduce: {command(*result.reproduce)}")


def _show_agreement(result: BisectResult) -> None:
    if not result.outputs:
        out(f"nothing found in {result.compared} values")
        return
    worst = max(result.outputs.values(), key=lambda c: c.max_abs)
    margin = f"max abs difference {worst.max_abs:.3g}, {worst.tolerance} allowed"
    out(f"agrees at {', '.join(map(repr, result.outputs))}: {margin}")


def _show_search(result: BisectResult) -> None:
    """What else the search saw, and what it took."""
    if not result.culprits:
        wrong = (repr(name) for name, c in result.outputs.items() if not c.match)
        out(f"no culprit; mismatching: {', '.join(wrong)}")
    if result.elsewhere:
        names = ", ".join(map(repr, result.elsewhere[:8]))
        out(f"  mismatching too, and not downstream of it: {names}")
    looked = {"unoptimized": "", "optimized": ", optimized", "node": ", node by node"}[result.look]
    sessions = f"{result.sessions} session{'s' * (result.sessions != 1)}"
    out(f"  {result.compared} values compared in {sessions}{looked}")
    if result.samples is not None:
        _show_samples(result.samples)


def show_ranking(ranking: Ranking) -> None:
    """The lossiest nodes, then what to exclude."""
    columns = ["own SQNR dB", "total SQNR dB", "node", "operator", "name", "value", "place"]
    rows = [
        (number_text(n.own_db), number_text(n.total_db), n.id, n.op_type, n.name, n.value, n.place)
        for n in ranking.nodes[:_RANKED]
    ]
    show_table(columns, rows)
    _show_rest(len(ranking.nodes))
    count = len(ranking.exclude)
    out(f"exclude ({count} below {ranking.below:g} dB): {_pasted(ranking.exclude)}")


def show_risks(risks: Float16Risks) -> None:
    """The nodes in danger, then what to keep."""
    columns = ["", "node", "operator", "name", "largest", "overflow", "vanish", "clamped constants"]
    columns.append("place")
    rows = [
        (
            "keep" if r.keep else "",
            r.id,
            r.op_type,
            r.name,
            number_text(r.largest),
            f"{r.overflowing}/{r.elements}",
            f"{r.vanishing}/{r.elements}",
            ", ".join(r.clamped),
            r.place,
        )
        for r in risks.nodes[:_RANKED]
    ]
    show_table(columns, rows)
    _show_rest(len(risks.nodes))
    out(f"keep in float32 ({len(risks.exclude)}): {_pasted(risks.exclude)}")


def _show_rest(count: int) -> None:
    if count > _RANKED:
        show_notes([f"{count - _RANKED} more with --json"])


def _pasted(names: Sequence[str]) -> str:
    """Names as a Python list, which is also a TOML and (but for the quotes) a JSON one."""
    return shown("[" + ", ".join(map(repr, names)) + "]")


def _show_samples(samples: Samples) -> None:
    others = "the same culprit" if samples.same else "not all with the same culprit"
    out(
        f"  fails on {len(samples.failing)} of {samples.total} samples, {others}; "
        f"this is the worst, number {samples.worst}"
    )


def _show_culprit(culprit: Culprit, many: bool) -> None:
    mismatching = next((v for v in culprit.values if v.name == culprit.value), None)
    if mismatching is not None and mismatching.comparison is not None:
        for line in explain(culprit.value, mismatching.comparison, _node(culprit)):
            out(shown(line))
    else:
        out(shown(f"{culprit.value!r}, produced by {_node(culprit)}"))
    for finding in culprit.findings:
        out(f"  {finding.verdict}: {shown(finding.because)}")
    if many and culprit.healed is not None:
        out(f"  healing it alone removes {100 * culprit.healed:.0f}% of the outputs' error")
    place = place_text(culprit.scope, culprit.class_name, culprit.source)
    if place:
        out(f"  scope: {shown(place)}")
    if culprit.attributes:
        text = ", ".join(f"{name}={value}" for name, value in culprit.attributes.items())
        out(f"  attributes: {shown(text)}")
    if culprit.lacking:
        names = ", ".join(map(repr, culprit.lacking))
        out(f"  a node may be missing: the references have, and the model lacks, {shown(names)}")
    if culprit.covers:
        out(f"  original nodes: {_some(culprit.covers)}")
    if len(culprit.region) > 1:
        count = len(culprit.region)
        region = _some(culprit.region)
        out(f"  one of {count} nodes, between which no value has a reference: {region}")
    _show_values(culprit.values)


def _show_inside(culprit: Culprit) -> None:
    """The culprits in a culprit's body, then those in theirs."""
    for inner in culprit.inside:
        out(f"inside {culprit.id}:")
        _show_culprit(inner, many=False)
        _show_inside(inner)


def _show_values(values: Sequence[ValueReport]) -> None:
    """The values of a culprit, a line each."""
    columns = ["", "", "name", "max abs", "max rel", "RMSE", "cosine", "SQNR dB", "ULP", "over"]
    split = any(value.introduced is not None for value in values)
    rows = [_value_row(value, split) for value in values]
    show_table([*columns, *(["its own error"] if split else [])], rows)


def _show_cleared(culprit: Culprit) -> None:
    """An origin that is no fault, in a line."""
    finding = culprit.findings[0]
    out(
        f"cleared: {culprit.value!r} by {_node(culprit)}: {finding.verdict}, {shown(finding.because)}"
    )


def _node(culprit: Culprit) -> str:
    named = f" {culprit.name!r}" if culprit.name else ""
    return shown(f"{culprit.op_type}{named} ({culprit.id})")


def _some(ids: Sequence[str]) -> str:
    return ", ".join(ids[:10]) + (" ..." if len(ids) > 10 else "")


def _value_row(value: ValueReport, split: bool) -> Sequence[object]:
    if value.comparison is None:
        return (value.role, "no reference", value.name)
    row = (value.role, _verdict(value.comparison), value.name, *_metrics(value.comparison))
    if not split or value.introduced is None:
        return row
    return (*row, _verdict(value.introduced) if value.introduced.match else _own(value.introduced))


def _own(introduced: Comparison) -> str:
    return (
        introduced.reason
        if introduced.reason in ("shape", "dtype")
        else number_text(introduced.max_abs)
    )


def _verdict(comparison: Comparison) -> str:
    return "match" if comparison.match else "MISMATCH"


def _metrics(c: Comparison) -> Sequence[object]:
    if c.reason in ("shape", "dtype"):
        return (c.reason,)
    numbers = (c.max_abs, c.max_rel, c.rmse, c.cosine, c.sqnr_db)
    return (
        *map(number_text, numbers),
        "" if c.ulp is None else c.ulp,
        f"{c.exceeding}/{c.elements}",
    )
