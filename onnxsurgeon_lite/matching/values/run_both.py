"""Match two models, or a reference set and a model, on the same feeds."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.scopes import place_text
from onnxsurgeon_lite.matching.values.facts import (
    INPUT,
    Side,
    outputs_of,
    side_of_model,
    side_of_references,
)
from onnxsurgeon_lite.matching.values.mapping import feeds_of_other, save_map
from onnxsurgeon_lite.matching.values.pairing import Matching, match
from onnxsurgeon_lite.matching.values.references import with_modules
from onnxsurgeon_lite.runtime.choice import runtime_of
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.shown import Progress, Shown, quiet
from onnxsurgeon_lite.tensors.references import ReferenceSet


@dataclass(frozen=True)
class Unmatched:
    """An unpaired value, its operator and its origin."""

    name: str
    op_type: str
    place: str


@dataclass(repr=False)
class MatchResult(Shown):
    """The result of `onnxdbg match`.

    Attributes:
        a, b: the two sides. values_a, values_b: their numbers of computed values.
        only_a, only_b: the unmatched values, without constants and values computed only from constants.
    """

    a: str
    b: str
    values_a: int
    values_b: int
    matching: Matching
    only_a: list[Unmatched]
    only_b: list[Unmatched]

    def save(self, path: str | PathLike[str]) -> None:
        """Write the pairs to a file that `map=` takes."""
        save_map(self.matching, Path(path))


def match_models(
    a: GraphIndex,
    b: GraphIndex,
    feeds: Feeds,
    runtime: Runtime,
    progress: Progress = quiet,
) -> MatchResult:
    """Match the values of two models; b runs in a process of its own at the same time.

    Args:
        feeds: feeds for a; b gets the same, by name or in order.
    """
    given = feeds_of_other(b, feeds)
    with ThreadPoolExecutor(1) as pool, runtime_of(runtime.options) as second:
        other = pool.submit(side_of_model, b, given, second)
        return _result(side_of_model(a, feeds, runtime, progress), other.result())


def match_references(
    references: ReferenceSet,
    model: GraphIndex,
    feeds: Feeds,
    runtime: Runtime,
    progress: Progress = quiet,
) -> MatchResult:
    """Match stored references with the values of a model on the same feeds."""
    side = side_of_model(model, feeds, runtime, progress, with_weights=False)
    named = with_modules(references, model)
    return _result(side_of_references(named, outputs_of(named, model.outputs)), side)


def _result(a: Side, b: Side) -> MatchResult:
    matching = match(a, b)
    return MatchResult(
        a.place,
        b.place,
        len(_computed(a)),
        len(_computed(b)),
        matching,
        [_unmatched(a, name) for name in matching.only_a if name in _computed(a)],
        [_unmatched(b, name) for name in matching.only_b if name in _computed(b)],
    )


def _computed(side: Side) -> dict[str, None]:
    """Return the values that depend on inputs."""
    facts = side.facts.values()
    return dict.fromkeys(
        # a value of references has no inputs; one of a model without inputs is a constant
        f.name
        for f in facts
        if f.op != INPUT and (f.inputs or not side.structured)
    )


def _unmatched(side: Side, name: str) -> Unmatched:
    fact = side.facts[name]
    return Unmatched(name, fact.op, place_text(fact.scope, fact.class_name, ""))
