"""Match two models, two reference sets, or a reference set and a model."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path

import numpy as np

from onnxsurgeon_lite.errors import ReferenceSetError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.scopes import Provenance, place_text
from onnxsurgeon_lite.matching.values.facts import (
    INPUT,
    Side,
    outputs_of,
    side_of_model,
    side_of_references,
)
from onnxsurgeon_lite.matching.values.mapping import feeds_of_other, load_map, rearranged, save_map
from onnxsurgeon_lite.matching.values.pair_table import Pair
from onnxsurgeon_lite.matching.values.pairing import Matching, match
from onnxsurgeon_lite.matching.values.references import named_as_modules, with_modules
from onnxsurgeon_lite.runtime.choice import runtime_of
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.shown import Progress, Shown, quiet
from onnxsurgeon_lite.tensors.references import Entry, ReferenceSet


@dataclass(frozen=True)
class Unmatched:
    """An unpaired value, its operator and its origin."""

    name: str
    op_type: str
    place: str


@dataclass
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


def set_alignment(
    references: ReferenceSet, actual: ReferenceSet, how: str | None
) -> Callable[[ReferenceSet, ReferenceSet], ReferenceSet]:
    """Return what gives references the names of another set; of each sample as of this one.

    Args:
        how: `names` keeps them, `auto` matches them, else a map file, of either direction; None matches them if most
            values of the smaller set have other names.

    Raises:
        ReferenceSetError: no value matches.
    """
    if how == "names" or (how is None and _share_names(references, actual)):
        return lambda references, _: references
    left = list[str]()
    if how is None or how == "auto":
        matching = match(_side(references, actual), _side(actual, references))
        left = _left_over(references, actual, matching)
    else:
        pairs = _in_direction(load_map(Path(how)), references, actual)
        mapped = {pair.a for pair in pairs}
        matching = Matching(pairs, [name for name in references if name not in mapped])
    # inputs alone prove nothing
    if all(actual.entries[pair.b].is_input for pair in matching.pairs):
        raise ReferenceSetError(
            f"no tensor of {references.place!r} matches one of {actual.place!r}",
            "write a map: onnxdbg match SET MODEL --save map.json",
        )
    return partial(_aligned, matching, tuple(left))


def _aligned(
    matching: Matching, left: tuple[str, ...], references: ReferenceSet, actual: ReferenceSet
) -> ReferenceSet:
    """Return references under the names of the other set, by the pairs of a sample."""
    entries = _renamed(references, actual, matching.pairs)
    # references without a partner keep their names, unless another value has them
    alone = {
        name: references.entries[name]
        for name in matching.only_a
        if name not in entries and name in references
    }
    # unless one of this name has another shape
    shapes = {name: entry.shape for name, entry in actual.entries.items()}
    entries |= {n: entry for n, entry in alone.items() if entry.may_have(shapes.get(n))}
    return replace(references, entries=entries, left_over=left)


def _side(references: ReferenceSet, other: ReferenceSet) -> Side:
    """Collect the facts of a set; what it, or one of its modules, computed last is the output."""
    inputs = [name for name, entry in other.entries.items() if entry.is_input]
    named = named_as_modules(references, _modules(other), inputs)
    side = side_of_references(named, list(references)[-1:])
    # the last value in each module, which later ones overwrite
    last = {path: fact for fact in side.facts.values() for path in Provenance(fact.scope).around()}
    for path, fact in last.items():
        fact.leaves += (path,)
    return side


def _renamed(
    references: ReferenceSet, actual: ReferenceSet, pairs: Sequence[Pair]
) -> dict[str, Entry]:
    """Return the references that have a partner under its name."""
    entries = {}
    for pair in pairs:
        if pair.a not in references or pair.b not in actual:
            continue
        entry = references.entries[pair.a]
        read = partial(rearranged, entry, pair.axes, actual.entries[pair.b].shape)
        entries[pair.b] = replace(entry, read=read, stored_as=pair.a)
    return entries


def _left_over(references: ReferenceSet, actual: ReferenceSet, matching: Matching) -> list[str]:
    """Return the references after the last pair, if the other set ends without a partner, too."""
    ends = any(pair.b == list(actual)[-1] for pair in matching.pairs)
    return [] if ends else matching.after_last(references)


def _in_direction(pairs: list[Pair], references: ReferenceSet, actual: ReferenceSet) -> list[Pair]:
    """Return the pairs of a map that both sets have, with the references on side a."""
    # a map is written by sides; the direction that fits more names is the one meant
    ways = (
        [pair for pair in way if pair.a in references and pair.b in actual]
        for way in (pairs, list(map(_swapped, pairs)))
    )
    return max(ways, key=len)


def _swapped(pair: Pair) -> Pair:
    # argsort inverts a permutation
    axes = None if pair.axes is None else tuple(map(int, np.argsort(pair.axes)))
    return replace(pair, a=pair.b, b=pair.a, axes=axes)


def _share_names(one: ReferenceSet, other: ReferenceSet) -> bool:
    """Return whether the smaller set has at least half of its computed tensors in the other, by name."""
    fewer, more = sorted((one, other), key=len)
    names = [name for name in fewer if not fewer.entries[name].is_input]
    return 2 * sum(name in more for name in names) >= len(names)


def _modules(references: ReferenceSet) -> set[str]:
    # without modules, names are the paths
    scopes: Iterable[str] = {entry.scope for entry in references.entries.values()} - {""}
    return {path for scope in scopes or references for path in Provenance(scope).around()}
