"""What the page of a bisection shows."""

from collections.abc import Iterable, Iterator

from onnxsurgeon_lite.debug.bisection.result import BisectResult, Culprit
from onnxsurgeon_lite.names import command
from onnxsurgeon_lite.report.bisection import headlines
from onnxsurgeon_lite.report.metrics import verdict
from onnxsurgeon_lite.report.page import data
from onnxsurgeon_lite.report.page.measures import Row, position_of, table
from onnxsurgeon_lite.report.page.sight import Sight
from onnxsurgeon_lite.report.page.tensors import tensor_part
from onnxsurgeon_lite.tensors.metrics import texts, titles

_DRAWN = 4  # culprits with a neighborhood
_STATES: dict[str, data.State] = {
    "agrees": "agrees",
    "mismatch": "mismatch",
    "inconclusive": "unknown",
}


def page(result: BisectResult, sight: Sight) -> data.Page:
    """Return what the page shows."""
    nodes = [_positions(culprit)[-1] for culprit in result.culprits]
    state = _STATES[result.verdict]
    return data.Page(
        "bisect",
        sight.title(),
        data.Verdict(state, [*headlines(result)], steps=[*_steps(result)]),
        sight.graphs(1, nodes[:_DRAWN]),
        sight.measures,
        [*_marks(result.culprits, "culprit"), *_marks(result.cleared, "cleared")],
        tensors=[*_tensors(result, sight)],
        tables=[each for culprit in result.culprits for each in _values(culprit)],
        notes=result.notes,
    )


def _steps(result: BisectResult) -> Iterator[data.Step]:
    for culprit in result.culprits:
        for cause in culprit.causes:
            what = f"cause: {cause.sentence}"
            yield data.Step(what, command(*cause.repair) if cause.repair else "")
    if result.reproduce:
        yield data.Step("reproduce it", command(*result.reproduce))


def _positions(culprit: Culprit) -> list[int]:
    """Return the nodes of the main graph that a culprit may be, the likeliest last."""
    ids = culprit.covers or [each for each in culprit.region if each != culprit.id] + [culprit.id]
    return [*dict.fromkeys(map(position_of, ids))]


def _marks(culprits: Iterable[Culprit], kind: data.MarkKind) -> Iterator[data.Mark]:
    for culprit in culprits:
        *region, last = _positions(culprit)
        because = "; ".join(f"{f.verdict}: {f.because}" for f in culprit.findings)
        yield data.Mark(0, last, kind, because)
        for position in region:
            yield data.Mark(0, position, "region", f"one of {len(region) + 1} nodes: {because}")


def _tensors(result: BisectResult, sight: Sight) -> Iterator[data.TensorPart]:
    """Yield those of the culprits, what they make first, then others."""
    producer = sight.models[0].producer if sight.models else {}
    made = [name for culprit in result.culprits for name in [culprit.value, *culprit.inputs]]
    for name in dict.fromkeys([*(n for n in made if n in result.tensors), *result.tensors]):
        reference, actual = result.tensors[name]
        compared = sight.compared.get(name)
        part = tensor_part(0, producer.get(name, -1), name, actual, reference, compared)
        if part is not None:
            yield part
    yield from (part for part in sight.tensors if part.name not in result.tensors)


def _values(culprit: Culprit) -> list[data.Table]:
    rows = [
        Row([v.role, v.name, verdict(v.comparison), *texts(v.comparison, True)], culprit.id)
        for v in culprit.values
        if v.comparison is not None
    ]
    title = f"Values of {culprit.op_type} {culprit.name!r} ({culprit.id})"
    return table(title, ["", "value", "", *titles(True)], rows)
