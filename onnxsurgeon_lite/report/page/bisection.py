"""What the page of a bisection shows."""

from collections.abc import Iterable, Iterator

from onnxsurgeon_lite.debug.bisection.result import BisectResult, Culprit
from onnxsurgeon_lite.names import command
from onnxsurgeon_lite.report.bisection import bisection_lines, headlines
from onnxsurgeon_lite.report.metrics import verdict
from onnxsurgeon_lite.report.page.data import (
    Mark,
    MarkKind,
    Page,
    State,
    Step,
    Table,
    TensorPart,
    Verdict,
)
from onnxsurgeon_lite.report.page.measures import position_of
from onnxsurgeon_lite.report.page.sight import Sight, title_of
from onnxsurgeon_lite.report.page.tensors import tensor_part
from onnxsurgeon_lite.tensors.metrics import texts, titles

_DRAWN = 4  # culprits with a neighborhood
_STATES: dict[str, State] = {
    "agrees": "agrees",
    "mismatch": "mismatch",
    "inconclusive": "unknown",
}


def page(result: BisectResult, sight: Sight) -> Page:
    """Return what the page shows."""
    index = sight.models[0]
    nodes = [position for culprit in result.culprits for position in _positions(culprit)[-1:]]
    return Page(
        "bisect",
        title_of(index),
        Verdict(
            _STATES[result.verdict],
            [*headlines(result)],
            [*bisection_lines(result, verbose=True)],
            [*_steps(result)],
        ),
        sight.graphs(nodes[:_DRAWN]),
        sight.measures,
        [*_marks(result.culprits, "culprit"), *_marks(result.cleared, "cleared")],
        tensors=[*_tensors(result, sight)],
        tables=[*_tables(result)],
        notes=[*result.notes, *sight.notes],
        versions=result.versions(),
    )


def _steps(result: BisectResult) -> Iterator[Step]:
    for culprit in result.culprits:
        for cause in culprit.causes:
            if cause.repair:
                yield Step(f"repair: {cause.sentence}", command(*cause.repair))
    if result.reproduce:
        yield Step("reproduce it", command(*result.reproduce))


def _positions(culprit: Culprit) -> list[int]:
    """Return the nodes of the main graph that a culprit may be, itself last."""
    ids = [*culprit.region, culprit.id] if not culprit.covers else culprit.covers
    return [*dict.fromkeys(map(position_of, ids))]


def _marks(culprits: Iterable[Culprit], kind: MarkKind) -> Iterator[Mark]:
    for culprit in culprits:
        *region, last = _positions(culprit)
        because = "; ".join(f"{f.verdict}: {f.because}" for f in culprit.findings)
        yield Mark(0, last, kind, because)
        for position in region:
            yield Mark(0, position, "region", f"one of {len(region) + 1} nodes: {because}")


def _tensors(result: BisectResult, sight: Sight) -> Iterator[TensorPart]:
    index = sight.models[0]
    for name, (reference, actual) in result.tensors.items():
        node = index.producer.get(name, -1)
        part = tensor_part(0, node, name, actual, reference, sight.compared.get(name))
        if part is not None:
            yield part
    yield from (part for part in sight.tensors if part.name not in result.tensors)


def _tables(result: BisectResult) -> Iterator[Table]:
    for culprit in result.culprits:
        rows = [
            [v.role, v.name, verdict(v.comparison), *texts(v.comparison, True)]
            for v in culprit.values
            if v.comparison is not None
        ]
        node = 0, _positions(culprit)[-1]
        columns = ["", "value", "", *titles(True)]
        title = f"Values of {culprit.op_type} {culprit.name!r} ({culprit.id})"
        yield Table(title, columns, rows, [node] * len(rows))
