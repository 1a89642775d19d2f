"""Record a model's values as reference tensors, one part of the model after the other."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.graph.half import coarse_values
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.float64 import Float64, widened
from onnxsurgeon_lite.runtime.observe import BUDGET, Observer
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.shown import HIDDEN, Progress, Shown, quiet
from onnxsurgeon_lite.surgery.exposing import expose_inner
from onnxsurgeon_lite.system import TemporaryFolder
from onnxsurgeon_lite.tensors.dtypes import RunValue, Stored
from onnxsurgeon_lite.tensors.references import FolderWriter, save_stream

_LONGEST = 120.0  # seconds for one node outside the runtime


@dataclass(frozen=True)
class Recording(Shown):
    """How many values were stored, and where; a path to them.

    Attributes:
        notes: what was not stored, and why.
        kept: the folder that holds them, if it is to be gone with this.
    """

    values: int
    place: Path
    notes: list[str] = field(default_factory=list)
    kept: TemporaryFolder | None = field(default=None, repr=False, metadata=HIDDEN)

    def __fspath__(self) -> str:
        return os.fspath(self.place)


def record(
    index: GraphIndex,
    feeds: Feeds,
    runtime: Runtime,
    target: Path,
    values: Sequence[str] = (),
    progress: Progress = quiet,
    wide: bool = False,
    budget: int = BUDGET,
) -> int:
    """Store the feeds and every value of the main graph, or the named ones; return the number of stored values.

    A folder or a `.npz` is written value by value, so memory holds one part of the model at a time; `.safetensors` are
    collected in memory first.

    Args:
        wide: compute in float64, node by node, where possible.
        budget: bytes of values that are computed at once.

    Raises:
        UnknownNameError: a named value does not exist.
        ReferenceSetError: the format cannot hold one of the values.
        RuntimeFailure: the runtime cannot run the model.
    """
    if wide:
        stream = computed_wide(index, feeds, runtime, values, progress)
    else:
        stream = computed(index, feeds, runtime, values, progress, budget)
    # these formats are written as a whole
    if target.suffix in (".npz", ".safetensors"):
        return save_stream(target, stream)
    count, coarse = 0, coarse_values(index)
    with FolderWriter(target, computed_outputs(index)) as writer:
        for name, value in stream:
            writer.add(name, value, place_of(index, name, coarse))
            count += 1
    return count


def computed_outputs(index: GraphIndex) -> list[str]:
    """Return the outputs of the graph that nodes compute, in order."""
    return [name for name in index.outputs if name in index.producer]


def place_of(
    index: GraphIndex, name: str, coarse: Mapping[str, np.dtype[np.generic]]
) -> dict[str, str]:
    """Return a value's origin, and the half precision that went into it, as a reference folder stores them."""
    if name in index.inputs:
        return {"kind": "input"}
    position = index.producer.get(name)
    if position is None:
        return {}
    origin = index.origins[position]
    return {
        # module, class and line, as far as the exporter recorded them
        "scope": origin.scope,
        "class": origin.class_name,
        "source": origin.source,
        "computed_in": coarse[name].name if name in coarse else "",
    }


def computed(
    index: GraphIndex,
    feeds: Feeds,
    runtime: Runtime,
    values: Sequence[str] = (),
    progress: Progress = quiet,
    budget: int = BUDGET,
) -> Iterator[tuple[str, Stored]]:
    """Yield the feeds, then the values in topological order; values that later parts need stay in the runtime.

    A value inside a body comes once for each time that it was computed: `@12/body/q[0]`, `@12/body/q[1]`.
    """
    yield from _given(index, feeds, values)
    exposed = expose_inner(index, [name for name in values if name not in index])
    # the graph with values of bodies as outputs, if any are asked for
    whole = GraphIndex.of(exposed.model) if exposed.asked else index
    observer = Observer(whole, runtime, budget=budget)
    observer.feed(feeds)
    requested = exposed.sources(values or index.producer)
    sources = observer.sweep([name for name in requested if name in whole.producer], progress)
    for name, value in exposed.read(sources):
        if value is not None:
            yield name, value


def computed_wide(
    index: GraphIndex,
    feeds: Feeds,
    runtime: Runtime,
    values: Sequence[str] = (),
    progress: Progress = quiet,
) -> Iterator[tuple[str, Stored]]:
    """Like `computed`, in float64 from node to node; nodes without a float64 evaluation run in the model's dtypes.

    Memory holds the values that later nodes read. Values inside bodies are not computed.
    """
    for name in values:
        index.require(name)
    yield from _given(index, feeds, values)
    requested = set(values or index.producer)
    # only what the requested values depend on
    needed = index.ancestors(requested & index.producer.keys())
    with Float64(Observer(index, runtime), seconds=_LONGEST) as evaluator:
        live: dict[str, RunValue] = {name: widened(value) for name, value in feeds.items()}
        for number, position in enumerate(p for p in index.order if p in needed):
            progress(f"{number} of {len(needed)} nodes computed in float64")
            # inputs that are values of this run; constants are in the model
            made = evaluator.outputs(
                position, {n: live[n] for n in index.reads[position] if n in live}
            )
            yield from ((n, v) for n, v in made.items() if n in requested and v is not None)
            rank = index.places[position]
            live |= made
            # values are dropped after their last reader
            live = {n: v for n, v in live.items() if index.last_use.get(n, -1) > rank}


def _given(index: GraphIndex, feeds: Feeds, values: Sequence[str]) -> Iterator[tuple[str, Stored]]:
    """Yield the feeds, and the constants among the named values."""
    yield from feeds.items()
    for name in values:
        constant = index.dense(name)
        if constant and name not in feeds:
            yield name, index.model.array(constant)
