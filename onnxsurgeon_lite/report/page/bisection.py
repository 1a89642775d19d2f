"""What the page of a bisection shows."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, product

from onnxsurgeon_lite.debug.causes.everywhere import edited
from onnxsurgeon_lite.debug.result import BisectResult, Culprit, ValueReport
from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.names import command
from onnxsurgeon_lite.report.bisection import (
    beside_eager,
    edits_text,
    headlines,
    kind_of,
    values,
)
from onnxsurgeon_lite.report.page import data
from onnxsurgeon_lite.report.page.measures import Sight, node_of, table
from onnxsurgeon_lite.report.page.tensors import tensor_part
from onnxsurgeon_lite.report.plain import Rows

_STATES: dict[str, data.State] = {
    "agrees": "agrees",
    "mismatch": "mismatch",
    "inconclusive": "unknown",
}


def page(result: BisectResult, sight: Sight) -> data.Page:
    """Return what the page shows."""
    marks = list(chain(_marks(result.culprits, "culprit"), _marks(result.cleared, "cleared")))
    marks += _named(result.culprits, sight)
    state = _STATES[result.verdict]
    return data.Page(
        "bisect",
        sight.title(),
        data.Verdict(state, list(_headlines(result)), steps=list(_steps(result))),
        sight.graphs(1, marks),
        sight.measures,
        marks,
        tensors=list(_tensors(result, sight)),
        tables=table(*_values(result), beside_eager(result)),
        notes=result.notes,
    )


def _headlines(result: BisectResult) -> Iterator[str]:
    """Yield what was found; a cause at the end of a line is shown below it, with its repair."""
    # the headline ends with the cause; the page shows it as a step with its repair
    known = [f": {cause.sentence}" for c in _with_inner(result.culprits) for cause in c.causes]
    for line in headlines(result):
        yield next((line.removesuffix(cause) for cause in known if line.endswith(cause)), line)


def _steps(result: BisectResult) -> Iterator[data.Step]:
    for culprit in _with_inner(result.culprits):
        for cause in culprit.causes:
            words = command(*cause.repair) if cause.repair else ""
            repair = "" if words else f"; repair: {edits_text(cause)}"
            yield data.Step(f"{kind_of(cause)}: {cause.sentence}{repair}", words)
    if result.reproduce:
        yield data.Step("reproduce it", command(*result.reproduce))


def _values(result: BisectResult) -> Iterator[Rows[ValueReport]]:
    for culprit in _with_inner(result.culprits):
        if any(value.comparison is not None for value in culprit.values):
            yield values(culprit, every_metric=True)


def _with_inner(culprits: Iterable[Culprit]) -> Iterator[Culprit]:
    """Yield culprits, each before those in its bodies."""
    for culprit in culprits:
        yield culprit
        yield from _with_inner(culprit.inside)


def _marks(culprits: Iterable[Culprit], kind: data.MarkKind) -> Iterator[data.Mark]:
    for culprit in culprits:
        yield from _marks(culprit.inside, kind)  # the first mark is chosen first
        # the nodes that it may be, the likeliest last: itself, behind its region
        others = [each for each in culprit.region if each != culprit.id]
        ids = culprit.covers or [*others, culprit.id]
        *region, last = dict.fromkeys(map(node_of, ids))
        because = "; ".join(f"{f.verdict}: {f.because}" for f in culprit.findings)
        yield data.Mark(0, last, kind, because)
        for position in region:
            yield data.Mark(0, position, "region", f"one of {len(region) + 1} nodes: {because}")


def _named(culprits: Iterable[Culprit], sight: Sight) -> Iterator[data.Mark]:
    """Yield marks of the nodes that causes name, but for those that their own edits make."""
    for culprit, index in product(culprits, sight.models):
        for cause in culprit.causes[:1]:
            with suppress(SurgeonError):
                for node in edited(index, cause.steps):
                    yield data.Mark(0, node, "cause", cause.sentence)


def _tensors(result: BisectResult, sight: Sight) -> Iterator[data.TensorPart]:
    """Yield those of the culprits, what they make first, then others."""
    producer = sight.models[0].producer if sight.models else {}
    # first what culprits make, each followed by what it reads
    made = [name for culprit in result.culprits for name in [culprit.value] + culprit.inputs]
    compared = {v.name: v.comparison for culprit in result.culprits for v in culprit.values}
    for name in dict.fromkeys(chain((n for n in made if n in result.tensors), result.tensors)):
        reference, actual = result.tensors[name]
        at = producer.get(name, -1)
        part = tensor_part(at, name, actual, reference, compared.get(name))
        if part is not None:
            yield part
    yield from (part for part in sight.tensors if part.name not in result.tensors)
