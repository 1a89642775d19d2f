"""Compute references on demand with another model, or with the same model under other settings."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from onnxsurgeon_lite.errors import ReferenceSetError
from onnxsurgeon_lite.graph import GraphIndex, fixed_shape
from onnxsurgeon_lite.graph.half import coarse_values
from onnxsurgeon_lite.matching.values import feeds_of_other
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.runtime.optimized import optimized_graph
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.surgery.exposing import exposable, expose_inner
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array, RunValue, Stored
from onnxsurgeon_lite.tensors.references.sets import Entry, ReferenceSet

_APART = "\x06"  # begins the names of values in the runtime, which may run the model that is searched, too


@contextmanager
def computed_references(
    index: GraphIndex,
    feeds: Feeds,
    runtime: Runtime,
    optimized: Runtime | None = None,
    fused: bool = False,
) -> Iterator[ReferenceSet]:
    """Compute references with a model, lazily, as a reference set.

    Args:
        feeds: by name, else in order; float feeds are cast to the dtypes that the model declares.
        runtime: with optimization off.
        optimized: with optimization on; the values are then those of the optimized graph.
        fused: values that this graph lacks are computed without optimization.

    Raises:
        FeedsError: the feeds do not fit the model.
    """
    given = feeds_of_other(index, feeds)
    if optimized is None:
        yield _Computed.of(index, given, runtime)
        return
    with optimized_graph(index, optimized) as graph:
        found = _Computed.of(graph, given, runtime)
        known = {name: entry for name, entry in found.entries.items() if name in index}
        if not fused:
            yield replace(found, entries=known)
            return
        # fused values come from the optimized graph, the rest from the model as written
        others = _Computed.of(index, given, runtime)

        def prefetch(names: Sequence[str]) -> None:
            found.prefetch([name for name in names if name in known])
            others.prefetch([name for name in names if name not in known])

        yield replace(others, entries={**others.entries, **known}, prefetch=prefetch)


@dataclass
class _Computed:
    """Values computed on demand, usually in graph order."""

    index: GraphIndex
    observer: Observer
    waiting: dict[str, RunValue] = field(default_factory=dict)

    @classmethod
    def of(cls, index: GraphIndex, feeds: Feeds, runtime: Runtime) -> ReferenceSet:
        computed = cls(index, Observer(index, runtime, prefix=_APART))
        computed.observer.feed(feeds)
        index.learn_types(index.producer)
        # value -> half precision that went into it: it is only as precise as that
        coarse = coarse_values(index)
        entries = {
            name: Entry(
                partial(computed.read, name),
                size=_size(index, name),
                computed_in=coarse.get(name),
            )
            for name in index.producer
        }
        place = str(index.model.path or "the other model")
        return ReferenceSet(place, entries, prefetch=computed.prefetch, bodies=computed.inside)

    def prefetch(self, names: Sequence[str]) -> None:
        """Compute values together; the runtime keeps those that later values need."""
        index = self.index
        missing = [name for name in names if name in index.producer and name not in self.waiting]
        self.waiting = {name: self.waiting[name] for name in names if name in self.waiting}
        if not missing:
            return
        # keep all that is computed up to here and read later, so that each node runs about once
        last = max(index.rank[name] for name in missing)
        crossing = [
            name
            for name, place in index.rank.items()
            if place <= last and index.last_use.get(name, -1) > last
        ]
        self.waiting |= self.observer.fetch(missing, keep=crossing)
        needed = set(crossing).union(index.inputs)
        self.observer.forget([name for name in self.observer.kept if name not in needed])

    def read(self, name: str) -> Stored:
        """Return a value; compute it alone if it was not prefetched."""
        value = self.waiting[name] if name in self.waiting else self.observer.fetch([name])[name]
        if value is None:
            raise ReferenceSetError(f"the other model produces no value {name!r}")
        return value

    def inside(self, value: str) -> Mapping[str, Entry]:
        """Return the values in the bodies of a value's node."""
        if value not in self.index.producer:
            return {}
        position = self.index.producer[value]
        names, _ = exposable(self.index, [position])
        # the values of bodies as outputs, computed from what is kept
        exposed = expose_inner(self.index, names)
        kept = dict(self.observer.kept)
        observer = replace(self.observer, index=GraphIndex.of(exposed.model), kept=kept)
        found = exposed.read(observer.fetch(exposed.sources(names)).items())
        start = f"@{position}/"
        inner = {name.removeprefix(start): array for name, array in found if array is not None}
        return ReferenceSet.of(inner).entries


@dataclass(frozen=True)
class ChangedInitializers(Mapping[str, Array]):
    """Initializers that two models both have, with different numbers: name -> the other model's."""

    ours: GraphIndex
    theirs: GraphIndex

    def __contains__(self, name: object) -> bool:
        here, there = self.ours.dense(str(name)), self.theirs.dense(str(name))
        if here is None or there is None:
            return False
        if list(here.dims) != list(there.dims):
            return True
        a, b = self.ours.model.array(here), self.theirs.model.array(there)
        if a.dtype == b.dtype:
            return a.tobytes() != b.tobytes()
        # of two dtypes the narrower one decides: 0.1 in float32 and in float16 are the same initializer
        coarse = min(a.dtype, b.dtype, key=lambda dtype: dtype.itemsize)
        return not np.array_equal(a.astype(coarse), b.astype(coarse))

    def __getitem__(self, name: str) -> Array:
        if name not in self:
            raise KeyError(name)
        return self.theirs.model.array(self.theirs.initializers[name])

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.ours.initializers if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _size(index: GraphIndex, name: str) -> int:
    """Return the bytes of a value with a fixed type, else 0."""
    shape = fixed_shape(index.types.get(name))
    return 0 if shape is None else dtypes.byte_count(index.element_of(name), shape)
