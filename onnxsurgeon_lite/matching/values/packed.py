"""References of the parts of a packed projection, joined: q, k and v of a module are one value of a package."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.names import stems_of
from onnxsurgeon_lite.tensors.dtypes import Stored, is_array
from onnxsurgeon_lite.tensors.references import Entry, ReferenceSet

_FEWEST = 2  # parts of a packed projection


@dataclass(frozen=True)
class Packed:
    """A reference that is made of others.

    Attributes:
        name: the path of its module, as if the references had it.
        parts: the references that it joins along the last axis, in this order.
    """

    name: str
    parts: Sequence[str]


def packed_of(references: ReferenceSet, index: GraphIndex) -> list[Packed]:
    """Return what the model's modules such as `qkv_proj` join, where the references have `q_proj`, `k_proj`, `v_proj`.

    Names and their number say which belong together: each module of the references with such parts is one of the
    model's, in their order.
    """
    # the references that modules returned, by the module around these: path -> last part of the name -> reference
    children: dict[str, dict[str, str]] = defaultdict(dict)
    for name, entry in references.entries.items():
        parent, _, child = entry.scope.rpartition(".")
        # further calls of a module, and what it returned in parts, have other names
        if name == entry.scope and parent:
            children[parent][child] = name
    # modules of the model that the references lack, by the last part of their path
    lacking: dict[str, set[str]] = defaultdict(set)
    for origin in index.origins:
        parent, _, last = origin.scope.rpartition(".")
        if origin.known and parent:
            lacking[last].add(parent)
    found = list[Packed]()
    for last, places in lacking.items():
        joined = list[Packed]()
        for parent, there in children.items():
            parts = _parts(last, there)
            if parts and last not in there:
                joined.append(Packed(f"{parent}.{last}", parts))
        # one for each module of the model
        if len(joined) == len(places):
            found += joined
    return found


def _parts(last: str, children: Mapping[str, str]) -> list[str]:
    """Return the references that a name joins: `qkv_proj` has the stems of `q_proj`, `k_proj` and `v_proj`.

    Args:
        children: last part of the name -> reference.
    """
    # the end that all parts have: "_proj"
    for place, letter in enumerate(last):
        if letter != "_":
            continue
        end = last[place:]
        stems = [child.removesuffix(end) for child in children if child.endswith(end)]
        found = stems_of(last[:place], stems)
        if len(found) >= _FEWEST:
            return [children[stem + end] for stem in found]
    return []


def with_packed(references: ReferenceSet, packed: Sequence[Packed]) -> ReferenceSet:
    """Return the references with those that are joined, each after the last of its parts."""
    if not packed:
        return references
    after = {each.parts[-1]: each for each in packed}
    parts = {each.name: each.parts for each in packed}
    entries = dict[str, Entry]()
    for name, entry in references.entries.items():
        entries[name] = entry
        each = after.get(name)
        if each is None:
            continue
        # the whole is of the same class and line as its last part
        entries[each.name] = replace(
            entry,
            read=partial(_joined, references.entries, each.parts),
            shape=None,
            scope=each.name,
            size=sum(references.entries[part].size for part in each.parts),
        )

    def prefetch(names: Sequence[str]) -> None:
        references.prefetch([part for name in names for part in parts.get(name, (name,))])

    return replace(references, entries=entries, prefetch=prefetch)


def _joined(entries: Mapping[str, Entry], parts: Sequence[str]) -> Stored:
    arrays = [value for value in (entries[part].read() for part in parts) if is_array(value)]
    return np.concatenate(arrays, -1)
