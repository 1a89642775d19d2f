"""Reference tensors of a model as this runtime computes them, one part of the model after another."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from onnx import TensorProto

from onnxsurgeon_lite.feeds import Feeds
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.lifting import lift
from onnxsurgeon_lite.observe import Observer
from onnxsurgeon_lite.references import FolderWriter, save_tensors
from onnxsurgeon_lite.references.sets import Stored
from onnxsurgeon_lite.runtime.session import Runtime

Progress = Callable[[str], None]


def record(
    index: GraphIndex,
    feeds: Feeds,
    runtime: Runtime,
    target: Path,
    values: Sequence[str] = (),
    progress: Progress = lambda _: None,
) -> int:
    """Store the feeds and every value of the main graph, or the named ones; returns how many were stored.

    A folder is written value by value, and memory holds one part of the model at a time; `.npz` and `.safetensors`
    are collected first.

    Raises:
        UnknownNameError: a named value does not exist.
        ReferenceSetError: the format cannot hold one of the values.
        RuntimeFailure: the runtime cannot run the model.
    """
    stream = computed(index, feeds, runtime, values, progress)
    if target.suffix in (".npz", ".safetensors"):
        collected = dict(stream)
        save_tensors(target, collected)
        return len(collected)
    count = 0
    with FolderWriter(target) as writer:
        for name, value in stream:
            position = index.producer.get(name)
            writer.add(name, value, "" if position is None else index.origins[position].scope)
            count += 1
    return count


def computed(
    index: GraphIndex,
    feeds: Feeds,
    runtime: Runtime,
    values: Sequence[str] = (),
    progress: Progress = lambda _: None,
) -> Iterator[tuple[str, Stored]]:
    """The feeds, then the values in topological order; what later parts need stays in the runtime meanwhile.

    A value inside a body comes once for each time that it was computed: `@12/body/q[0]`, `@12/body/q[1]`.
    """
    yield from feeds.items()
    for name in values:
        constant = index.initializers.get(name)
        if isinstance(constant, TensorProto) and name not in feeds:
            yield name, index.model.array(constant)
    lifted = lift(index, [name for name in values if name not in index])
    whole = GraphIndex.of(lifted.model) if lifted.asked else index
    observer = Observer(whole, runtime)
    observer.feed(feeds)
    wanted = lifted.sources(values or index.producer)
    sources = observer.sweep([name for name in wanted if name in whole.producer], progress)
    for name, value in lifted.read(sources):
        if value is not None:
            yield name, value
