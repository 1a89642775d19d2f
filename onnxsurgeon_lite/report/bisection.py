"""Bisections for the terminal: first what is wrong, a line each, then why."""

from collections import Counter
from collections.abc import Iterator, Sequence
from operator import attrgetter

from onnxsurgeon_lite.debug.result import (
    HARMLESS,
    WORKAROUND,
    BesideEager,
    BisectResult,
    Cause,
    Culprit,
    Repair,
    SampleSummary,
    ValueReport,
)
from onnxsurgeon_lite.graph.scopes import place_text
from onnxsurgeon_lite.matching.judge import PROVES_LITTLE
from onnxsurgeon_lite.names import command, counted, first, joined
from onnxsurgeon_lite.report.metrics import explain, measured, numbers
from onnxsurgeon_lite.report.plain import Columns, Rows, Whole, out, say_all, show_notes, table
from onnxsurgeon_lite.report.ranking import blame_lines
from onnxsurgeon_lite.tensors.comparison import Comparison, gap, texts, verdict
from onnxsurgeon_lite.tensors.metrics import number_text

_FEW = 4  # cleared nodes, or nodes of a region, that are shown without --verbose
_NAMED = 8  # mismatching values
_BLAMED = 3  # nodes with the largest shares
_WIDE = 3  # nodes of a region that need no narrowing
_GROUP = 4  # culprits of one kind that are shown as one group
Eager = tuple[str, BesideEager]
_LOOKS = {"unoptimized": "", "optimized": ", optimized", "node": ", node by node"}


def show_headlines(result: BisectResult, told: str) -> str:
    """Print what is certain before causes are searched, unless `told` has it; return all that is printed by now."""
    lines = list(headlines(result))
    every = list(result.told) + list(result.notes)
    notes = [note for note in every if note not in told]
    show_notes(notes)
    if not told.endswith("\n".join(lines)):
        say_all(lines)
    return "\n".join([told] + notes + lines)


def show_bisection(
    result: BisectResult, verbose: bool = False, every_metric: bool = False, told: str = ""
) -> None:
    """Show what is wrong, then why.

    Args:
        verbose: the details of every culprit, not of the first alone, and what the search took.
        told: what `show_headlines` showed.
    """
    show_notes(note for note in result.notes if note not in told)
    first = list(headlines(result))
    # headlines that were shown before the causes were searched are not shown twice, unless causes changed them
    say_all([] if told.endswith("\n".join(first)) else first)
    say_all(bisection_lines(result, verbose, every_metric))
    if result.reproducer is not None:
        out(f"  reproducer: {str(result.reproducer)!r}")
        if result.reproduce:
            out(f"  reproduce: {command(*result.reproduce)}")
        if result.reduced:
            out(f"  reduced: {str(result.reproducer / 'reduced')!r}, {result.reduced}")
        if result.further:
            out(f"  reduce further: {command(*result.further)}")
    if result.repair is not None:
        _show_repair(result.repair)


def _show_repair(repair: Repair) -> None:
    """Show what was repaired, and whether that suffices."""
    if repair.model is None:
        agrees = repair.verdict == "agrees"
        out(
            f"repair: nothing {'to repair' if agrees else 'was repaired, because no cause is known'}"
        )
        return
    say_all([f"repair: {counted(repair.edits, 'edit')}, in {str(repair.recipe)!r}"])
    out(f"wrote {str(repair.model)!r}")
    if repair.left is not None:
        say_all(f"repaired: {line}" for line in (*headlines(repair.left), repair.fresh) if line)


def bisection_lines(result: BisectResult, verbose: bool, every_metric: bool) -> Iterator[str]:
    """Yield the details, and what was cleared."""
    yield from (f"{finding.verdict}: {finding.because}" for finding in result.findings)
    if result.samples is not None and result.verdict == "mismatch":
        yield from _samples(result.samples)
    # one culprit is explained, or all
    culprits = list(_all(result.culprits))
    for culprit in culprits if verbose else culprits[:1]:
        if len(culprits) > 1:
            yield from ("", f"{_node(culprit)}:")
        yield from _details(culprit, verbose, every_metric, result.has_factory)
    if len(culprits) > 1 and not verbose:
        yield "  (--verbose shows the same of every culprit)"
    # then what was cleared, and what else is known of the outputs
    yield from _cleared(result.cleared, verbose)
    if result.beside_eager:
        yield "how far the compiled module and the export are from the eager module:"
        found = beside_eager(result)
        yield from table(found.titles(), found.cells())
    if result.blame is not None:
        yield from (f"  {line}" for line in blame_lines(result.blame, _BLAMED))
    if result.elsewhere:
        names = joined(result.elsewhere[:_NAMED])
        yield f"  mismatching too, and not downstream of it: {names}"
    # what the search took
    if verbose:
        sessions = counted(result.sessions, "session")
        yield f"  {result.compared} values compared in {sessions}{_LOOKS[result.look]}"


def beside_eager(result: BisectResult) -> Rows[Eager]:
    """Return the outputs of a compiled module, and how far they and the export are off the eager one."""
    columns: Columns[Eager] = {
        "output": "{0[0]}",
        "eager": lambda each: f"up to {number_text(each[1].eager)}",
        "compiled": lambda each: _off(each[1].compiled),
        "export": lambda each: _off(each[1].export),
        "allowed": lambda each: number_text(
            max(each[1].compiled.allowed, each[1].export.allowed), 4
        ),
    }
    return Rows("Off the eager module", list(result.beside_eager.items()), columns)


def _off(compared: Comparison) -> str:
    return f"{texts(compared)[0]} {verdict(compared)}"


def headlines(result: BisectResult) -> Iterator[str]:
    """Yield what was found, a line each."""
    if result.verdict == "inconclusive":
        yield f"inconclusive: what was compared {_agreement(result)}"
    elif result.verdict == "agrees":
        yield _agreement(result)
    elif result.masked:
        count = len(result.masked)
        names = first(list(map(repr, result.masked)), _NAMED)
        values = "value does" if count == 1 else "values do"
        yield f"outputs agree, {count} inner {values} not: {names}"
    elif not result.culprits:
        wrong = (repr(name) for name, c in result.outputs.items() if not c.match)
        yield f"no culprit; mismatching: {', '.join(wrong)}"
    many = len(result.culprits) > 1
    if many:
        yield f"{len(result.culprits)} culprits, those that err by themselves first:"
    # kinds that were shown as a group; a few culprits of a kind have a line each
    told = set[str]()
    for culprit in result.culprits:
        kind = _kind(culprit)
        group = [other for other in result.culprits if _kind(other) == kind]
        if len(group) >= _GROUP and kind not in told:
            yield f"  {_group(group)}"
        elif kind not in told:
            known = many and culprit.healed is not None
            share = f" ({culprit.healed:.0%} of the error)" if known else ""
            yield f"{'  ' * many}{_headline(culprit)}{share}"
            yield from _inner_headlines(culprit, "  " * (many + 1))
        told |= {kind} if len(group) >= _GROUP else set()


def _kind(culprit: Culprit) -> str:
    """Return what several culprits may have in common: verdict, operator and class."""
    return f"{culprit.verdict}: {culprit.op_type} {culprit.class_name}"


def _group(group: Sequence[Culprit]) -> str:
    """`wrong constant: all 11 BatchNormalization of BatchNorm2d: '12', '15', ...; the first: 'g' is wrong: ...`."""
    model = group[0]
    count = len(group)
    of = f" in {model.class_name}" if model.class_name else ""
    # example: 11 of the 20 BatchNormalizations of such modules are culprits
    number = f"all {count}" if count == model.alike else f"{count} of {model.alike}"
    names = first([repr(culprit.value) for culprit in group], _NAMED)
    because = f"; of the first: {model.findings[0].because}" if model.findings else ""
    return f"{model.verdict}: {number} {model.op_type}{of} make {names}{because}"


def _agreement(result: BisectResult) -> str:
    if not result.outputs:
        return f"nothing found in {result.compared} values"
    worst = max(result.outputs.values(), key=lambda c: c.max_abs)
    # agrees as a whole, and yet differs: by what was cleared
    if not worst.match:
        why = "ties" if any(f.verdict == "tie" for f in result.findings) else "rounding"
        return f"differs by {why} at {joined(result.outputs)}: max abs {worst.max_abs:.3g}"
    weak = [note for note in worst.notes if note.endswith(PROVES_LITTLE)]
    return "; ".join([f"agrees at {joined(result.outputs)}: {gap(worst)}"] + weak)


def _headline(culprit: Culprit) -> str:
    """`wrong node: Conv 'Conv_6' (@6) makes '27': max abs 2.11 where 0.000149 is allowed`."""
    count = len(culprit.region)
    where = f"one of {count} nodes up to " if count > 1 else ""
    what = f"{culprit.verdict}: {where}{_node(culprit)}"
    made = f"{what} makes {culprit.value!r}"
    if culprit.seen:
        seen = first(list(map(repr, dict.fromkeys([culprit.value] + culprit.seen))), _FEW)
        # the fault may also lie on the way to any of them
        either = ", or what follows it" if culprit.verdict == "wrong node" else ""
        made = f"{what}{either}, seen at {seen}"
    compared = culprit.comparison
    if compared is not None and not compared.match:
        return f"{made}: {gap(compared)}"
    return f"{made}: {culprit.findings[0].because}" if culprit.findings else made


def _inner_headlines(culprit: Culprit, indent: str) -> Iterator[str]:
    for inner in culprit.inside:
        yield f"{indent}inside it, {_headline(inner)}"
        yield from _inner_headlines(inner, f"{indent}  ")


def _all(culprits: Sequence[Culprit]) -> Iterator[Culprit]:
    """Yield each culprit behind those in its body: the innermost tells most."""
    for culprit in culprits:
        yield from _all(culprit.inside)
        yield culprit


def _samples(samples: SampleSummary) -> Iterator[str]:
    """Yield how many samples fail, and the culprits of those that were searched."""
    # steps of a loop follow from one another: only the first that fails says something
    others = "the same culprit" if samples.same else "not all with the same culprit"
    if samples.steps:
        count = f"{len(samples.failing)} of {samples.total} steps"
        yield f"  fails on {count}; this is the first of them, number {samples.worst}"
        return
    failing = f"fails on {len(samples.failing)} of {samples.total} samples, {others}"
    yield f"  {failing}; this is the worst, number {samples.worst}"
    if (metric := samples.metric) is not None:
        yield f"  {metric.name} decides: {metric.value:.4g} where {metric.limit:g} is allowed"
    for group in samples.groups if len(samples.groups) > 1 else ():
        named = ", ".join(group.culprits) or "no culprit"
        yield f"  {named}: {'samples' if len(group.samples) > 1 else 'sample'} {numbers(group.samples)}"
    yield from (f"  {line}" for line in samples.repeated)


def _details(
    culprit: Culprit, verbose: bool, every_metric: bool, has_factory: bool
) -> Iterator[str]:
    """Yield what a culprit's verdict rests on, where it is from, and its values."""
    yield from (f"  {finding.verdict}: {finding.because}" for finding in culprit.findings[:1])
    yield from (f"  evidence: {finding.because}" for finding in culprit.findings[1:])
    yield from _causes(culprit)
    compared = culprit.comparison
    if compared is not None:
        yield from explain(culprit.value, compared)[1:]
    if place := place_text(culprit.scope, culprit.class_name, culprit.source):
        yield f"  scope: {place}"
    if culprit.attributes:
        text = ", ".join(f"{name}={value}" for name, value in culprit.attributes.items())
        yield f"  attributes: {text}"
    if culprit.lacking and not culprit.misses and not culprit.causes:
        names = joined(culprit.lacking)
        yield f"  a node may be missing: the references have {names}, the model does not"
    yield from _region(culprit, verbose, has_factory)
    if any(value.comparison is not None for value in culprit.values):
        found = values(culprit, every_metric)
        yield from table(found.titles(), found.cells())


def _causes(culprit: Culprit) -> Iterator[str]:
    """Yield the mistakes that explain a culprit, each with what repairs it; or that none does."""
    for number, cause in enumerate(culprit.causes):
        yield f"  {'or ' * bool(number)}{kind_of(cause)}: {cause.sentence}"
        if cause.repair:
            yield Whole(f"    repair: {command(*cause.repair)}")
        else:
            yield f"    repair: {edits_text(cause)}"
        if cause.apart:
            yield f"    {cause.apart}"
    if culprit.unexplained:
        yield f"  cause: {culprit.unexplained}"


def kind_of(cause: Cause) -> str:
    """Say whether a cause is one: an edit that avoids an error of the runtime is none."""
    return "workaround" if cause.hypothesis == WORKAROUND else "cause"


def edits_text(cause: Cause) -> str:
    """Say who makes the edits that are too long to be typed."""
    if not cause.edits:
        return "none: no edit reaches into a body"
    return f"{counted(len(cause.edits), 'edit')}, made by --repair OUT"


def _region(culprit: Culprit, verbose: bool, has_factory: bool) -> Iterator[str]:
    """Yield the nodes that a culprit may be, or that it covers."""
    if len(culprit.region) > 1:
        yield "  between these nodes no value has a reference"
    elif not culprit.covers:
        return
    if culprit.covers:
        yield "  in the model these are"
    # without --verbose the first of many nodes
    nodes = [f"    {title} ({node_id})" for node_id, title in culprit.nodes.items()]
    yield from nodes if verbose or len(nodes) <= _FEW else nodes[:_FEW]
    if len(nodes) > _FEW and not verbose:
        yield f"    and {len(nodes) - _FEW} more (--verbose)"
    if len(culprit.region) > _WIDE and not culprit.covers and not culprit.causes:
        factory = "" if has_factory else "--factory FILE.py:FUNCTION of the PyTorch module, or "
        yield f"  to narrow it, give {factory}references in between"
    if culprit.seen:
        yield "  or an operation is missing directly after the last of them"


def value_verdict(culprit: Culprit, value: ValueReport) -> str:
    """Return the word for a culprit's value.

    What a quantizer cuts off or scales wrongly can be as near to the reference as its own quanta allow: the culprit's
    verdict counts for what it makes.
    """
    if value.comparison is None:
        return "no reference"
    # a value that matches, of a node that is wrong: the verdict's word, not `match`
    made = value.name == culprit.value and value.comparison.match
    wrong = (f.verdict for f in culprit.findings if f.verdict not in HARMLESS)
    return next(wrong, "match") if made else verdict(value.comparison)


def values(culprit: Culprit, every_metric: bool) -> Rows[ValueReport]:
    """Return a culprit's values."""
    own: Columns[ValueReport] = {"own error": _introduced}
    columns: Columns[ValueReport] = {
        "role": "{0.role}",
        "verdict": lambda value: value_verdict(culprit, value),
        "name": "{0.name}",
        **measured(attrgetter("comparison"), every_metric),
        **(own if any(value.introduced is not None for value in culprit.values) else {}),
    }
    called = f"{culprit.op_type} {culprit.name!r}" if culprit.name else culprit.op_type
    return Rows(f"Values of {called} ({culprit.id})", culprit.values, columns, lambda _: culprit.id)


def _introduced(value: ValueReport) -> str:
    own = value.introduced
    return "" if own is None else "match" if own.match else texts(own)[0]


def _cleared(culprits: Sequence[Culprit], verbose: bool) -> Iterator[str]:
    """Yield the origins that are no fault; many of them as a count."""
    if verbose or len(culprits) <= _FEW:
        for culprit in culprits:
            harmless = (f for f in culprit.findings if f.verdict in HARMLESS)
            finding = next(harmless, culprit.findings[0])
            yield f"cleared: {_node(culprit)} makes {culprit.value!r}: {finding.verdict}, {finding.because}"
        return
    kinds = Counter(culprit.verdict for culprit in culprits)
    counts = ", ".join(f"{count} by {kind}" for kind, count in kinds.items())
    yield f"cleared: {len(culprits)} nodes, {counts} (--verbose lists them)"


def _node(culprit: Culprit) -> str:
    named = f" {culprit.name!r}" if culprit.name else ""
    return f"{culprit.op_type}{named} ({culprit.id})"
