"""Align two reference sets: by equal names, by a map, or by matching."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from onnxsurgeon_lite.errors import ReferenceSetError
from onnxsurgeon_lite.graph.scopes import Provenance
from onnxsurgeon_lite.matching.values.facts import Side, side_of_references
from onnxsurgeon_lite.matching.values.mapping import load_map, rearranged
from onnxsurgeon_lite.matching.values.pair_table import Pair
from onnxsurgeon_lite.matching.values.pairing import Matching, match
from onnxsurgeon_lite.matching.values.references import named_as_modules
from onnxsurgeon_lite.tensors.references import Entry, ReferenceSet


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
    entries |= {n: entry for n, entry in alone.items() if _may_be(entry, actual.entries.get(n))}
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


def _may_be(entry: Entry, other: Entry | None) -> bool:
    """Return whether a tensor may be the one of the same name in the other set."""
    return other is None or None in (entry.shape, other.shape) or entry.shape == other.shape


def _left_over(references: ReferenceSet, actual: ReferenceSet, matching: Matching) -> list[str]:
    """Return the references after the last pair, if the other set ends without a partner, too."""
    place = {name: number for number, name in enumerate(references)}
    last = max((place[pair.a] for pair in matching.pairs), default=-1)
    ends = any(pair.b == list(actual)[-1] for pair in matching.pairs)
    return [] if ends else [name for name in matching.only_a if place[name] > last]


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
