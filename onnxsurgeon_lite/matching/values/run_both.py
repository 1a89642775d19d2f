"""Two models, or a reference set and a model, brought side by side on the same feeds."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from onnxsurgeon_lite.errors import FeedsError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.scopes import place_text
from onnxsurgeon_lite.matching.values.facts import INPUT, Side, side_of_model, side_of_references
from onnxsurgeon_lite.matching.values.mapping import save_map
from onnxsurgeon_lite.matching.values.pairing import Matching, match
from onnxsurgeon_lite.runtime.feeds import Feeds, check_feeds, required_inputs
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.shown import Shown
from onnxsurgeon_lite.tensors.references import ReferenceSet

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Unmatched:
    """A value that is in no pair: what makes it, and where that comes from."""

    name: str
    op_type: str
    place: str


@dataclass(repr=False)
class MatchResult(Shown):
    """What `onnxdbg match` shows.

    Attributes:
        a, b: the two sides. values_a, values_b: how many computed values they have.
        only_a, only_b: the unmatched ones; constants and what is computed from them alone are left out.
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
    progress: Progress = lambda _: None,
) -> MatchResult:
    """Align the values of two models, which are run side by side: b in a process of its own.

    Args:
        feeds: a's; b is given the same, by name or in order.

    Raises:
        FeedsError: b does not take them.
        RuntimeFailure: one of them does not run.
    """
    given = feeds_of_other(b, feeds)
    with ThreadPoolExecutor(1) as pool, Runtime(runtime.options) as second:
        other = pool.submit(side_of_model, b, given, second)
        return _result(side_of_model(a, feeds, runtime, progress), other.result())


def match_references(
    references: ReferenceSet,
    model: GraphIndex,
    feeds: Feeds,
    runtime: Runtime,
    progress: Progress = lambda _: None,
) -> MatchResult:
    """Align stored references with the values of a model that is given their feeds."""
    side = side_of_model(model, feeds, runtime, progress, with_weights=False)
    return _result(side_of_references(references), side)


def feeds_of_other(index: GraphIndex, feeds: Feeds) -> Feeds:
    """One model's feeds for another: by name where all names fit, else in order."""
    wanted = required_inputs(index)
    if len(wanted) != len(feeds):
        raise FeedsError(
            f"the models take {len(feeds)} and {len(wanted)} inputs",
            "cut them to the same inputs with onnxdbg extract",
        )
    named = all(name in feeds for name in wanted)
    given = (
        {n: feeds[n] for n in wanted} if named else dict(zip(wanted, feeds.values(), strict=True))
    )
    check_feeds(index, given)
    return given


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
    """The values that depend on what is given."""
    facts = side.facts.values()
    return dict.fromkeys(
        f.name for f in facts if f.op != INPUT and (f.inputs or not side.structured)
    )


def _unmatched(side: Side, name: str) -> Unmatched:
    fact = side.facts[name]
    return Unmatched(name, fact.op, place_text(fact.scope, fact.class_name, ""))
