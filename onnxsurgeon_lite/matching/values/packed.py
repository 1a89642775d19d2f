"""References of the parts of a packed projection, joined: q, k and v of a module are one value of a package."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.names import joined_in
from onnxsurgeon_lite.tensors.dtypes import Stored, is_array
from onnxsurgeon_lite.tensors.references import Entry, ReferenceSet

Packed = Mapping[str, Sequence[str]]
"""The path of a module, as if the references had it -> those that it joins along the last axis, in order."""


def packed_of(references: ReferenceSet, index: GraphIndex) -> Packed:
    """Return what the model's modules such as `qkv_proj` join, where the references have `q_proj`, `k_proj`, `v_proj`.

    Names and their number say which belong together: each module of the references with such parts is one of the
    model's, in their order.
    """
    # the references that modules returned, by the module around these: path -> last part of the name -> reference
    children = defaultdict[str, dict[str, str]](dict)
    for name, entry in references.entries.items():
        parent, _, child = entry.scope.rpartition(".")
        # further calls of a module, and what it returned in parts, have other names
        if name == entry.scope and parent:
            children[parent][child] = name
    # modules of the model that the references lack, by the last part of their path
    lacking = defaultdict[str, set[str]](set)
    for origin in index.origins:
        parent, _, last = origin.scope.rpartition(".")
        if origin.known and parent:
            lacking[last].add(parent)
    found = dict[str, Sequence[str]]()
    for last, places in lacking.items():
        joined = {
            f"{parent}.{last}": [there[part] for part in parts]
            for parent, there in children.items()
            if last not in there and (parts := joined_in(last, there))
        }
        # one for each module of the model
        if len(joined) == len(places):
            found |= joined
    return found


def with_packed(references: ReferenceSet, packed: Packed) -> ReferenceSet:
    """Return the references with those that are joined, each after the last of its parts."""
    if not packed:
        return references
    after = {parts[-1]: whole for whole, parts in packed.items()}
    entries = dict[str, Entry]()
    for name, entry in references.entries.items():
        entries[name] = entry
        if (whole := after.get(name)) is None:
            continue
        parts = [references.entries[part] for part in packed[whole]]
        size = sum(part.size for part in parts)
        # the whole is of the same class and line as its last part
        read = partial(_joined, parts)
        entries[whole] = replace(entry, read=read, shape=None, scope=whole, size=size)

    def prefetch(names: Sequence[str]) -> None:
        references.prefetch([part for name in names for part in packed.get(name, (name,))])

    return replace(references, entries=entries, prefetch=prefetch)


def _joined(parts: Sequence[Entry]) -> Stored:
    return np.concatenate([value for part in parts if is_array(value := part.read())], -1)
