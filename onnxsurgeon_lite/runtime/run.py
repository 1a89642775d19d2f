"""One run of a whole model, optimized, its results, and where the runtime computes half precision in float32."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, starmap
from pathlib import Path

import numpy as np

from onnxsurgeon_lite.errors import PartialAnswer
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.model import Model, drop, drop_at
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.shown import Shown
from onnxsurgeon_lite.surgery.exposing import Exposed, expose_inner
from onnxsurgeon_lite.tensors.dtypes import RunValue, RunValues, is_array, present
from onnxsurgeon_lite.tensors.references import save_tensors
from onnxsurgeon_lite.tensors.statistics import Statistics, statistics


class RunResult(Shown, dict[str, RunValue]):
    """What a run returned: name -> array; a list of arrays for a sequence, None for what was not computed.

    Attributes:
        made: how feeds were made, a line each.

    Example:
        >>> osl.run("whole_model.onnx", fetch="28")["28"].dtype
        dtype('float32')
    """

    def __init__(self, values: RunValues, made: Sequence[str] = ()) -> None:
        super().__init__(values)
        self.made = list(made)

    def statistics(self) -> list[Statistics]:
        """Return a line for each tensor."""
        return list(chain.from_iterable(starmap(statistics, self.items())))

    def contract(self) -> object:
        """Return how the feeds were made, and the statistics."""
        return {"feeds": self.made, "values": self.statistics()}

    def save(self, path: str | Path) -> None:
        """Store the tensors in a folder, `.npz` or `.safetensors`."""
        save_tensors(Path(path), present(self))


def run(
    index: GraphIndex, feeds: Feeds, runtime: Runtime, fetch: Sequence[str] = ()
) -> dict[str, RunValue]:
    """Run a model once, in the runtime's optimization level; `fetch` names values to return instead of the outputs.

    Only what the fetched values need is computed.

    A value inside a body comes once for each time that it was computed: `@12/body/q[0]`, `@12/body/q[1]`. It comes as
    None under its own name if it was never computed.

    Raises:
        UnknownNameError: a fetched value does not exist.
        GraphError: a cycle, a function that calls itself.
        RuntimeFailure: the runtime refuses the model, fails, crashes or takes too long.
    """
    return opened(index, runtime, fetch)(feeds)


@dataclass(frozen=True)
class Opened:
    """Runs an open model; values inside bodies are read from what exposes them."""

    index: GraphIndex
    runtime: Runtime
    exposed: Exposed
    names: Sequence[str]

    def __call__(self, feeds: Feeds) -> dict[str, RunValue]:
        put_feeds(self.index, feeds, self.runtime)
        made = _values(self.exposed.model, self.runtime, feeds, self.names)
        return dict(self.exposed.read(made.items()))

    def each(self, samples: Sequence[Feeds]) -> list[dict[str, RunValue]]:
        """Run on several samples at once; see `Runtime.runs`."""
        tensors = [{n: np.asarray(value) for n, value in feeds.items()} for feeds in samples]
        made = self.runtime.runs(tensors, self.names)
        return [dict(self.exposed.read(values.items())) for values in made]


def put_feeds(index: GraphIndex, feeds: Feeds, runtime: Runtime) -> None:
    """Store feeds in the runtime; the model says of what an empty sequence is one."""
    for name, value in feeds.items():
        element = index.inputs[name].type.sequence_type.elem_type.tensor_type.elem_type
        runtime.put(name, value, element or None)


def opened(index: GraphIndex, runtime: Runtime, fetch: Sequence[str] = ()) -> Opened:
    """Like `run`, for several feeds: open the model, and return what runs it."""
    requested = list(fetch) or list(index.outputs)
    index.require_sound()
    # values of bodies become outputs that the model did not have
    exposed = expose_inner(index, [name for name in requested if name not in index])
    model = exposed.model
    names = exposed.sources(requested)
    # only what is fetched is computed
    if fetch:
        _keep_only(model, names)
    runtime.open(model)
    return Opened(index, runtime, exposed, names)


def _values(
    model: Model, runtime: Runtime, feeds: Feeds, names: Sequence[str]
) -> dict[str, RunValue]:
    """Run the open session; a runtime that gives no inner values gets a model for each."""
    # values inside of the graph are outputs now, so the runtime gives them unless it cuts
    if not runtime.cuts:
        try:
            return runtime.run(list(feeds), names).values
        except PartialAnswer:
            runtime.forget(feeds)
    # part by part, in sessions of their own; then the model is opened again
    observer = Observer(GraphIndex.of(model), runtime)
    observer.feed(feeds)
    found = observer.fetch(names)
    runtime.open(model)
    return found


def _keep_only(model: Model, names: Sequence[str]) -> None:
    """Make values the outputs of a model, and drop what they are not computed from."""
    index, graph = GraphIndex.of(model), model.graph
    needed = index.ancestors(names)
    read = index.read_by(needed).union(names)
    drop_at(graph.node, set(range(len(graph.node))) - needed)
    drop(graph.initializer, lambda tensor: tensor.name not in read)
    drop(graph.sparse_initializer, lambda tensor: tensor.values.name not in read)
    drop(graph.output, lambda output: output.name not in names)
    declared = {output.name for output in graph.output}
    for name in names:
        if name not in declared:
            graph.output.add(name=name)  # the runtime needs no output type here


def computed_wider(
    index: GraphIndex, feeds: Feeds, runtime: Runtime, values: RunValues
) -> Iterator[str]:
    """Yield why a value after an overflow is finite, if it is not with every value rounded."""
    # values that nodes compute
    made = {n: v for n, v in values.items() if is_array(v) and n in index.producer}
    over = [n for n, v in made.items() if v.dtype == np.float16 and np.isinf(v).any()]
    for name in over:
        position = index.producer[name]
        # what depends on the overflow, and is finite all the same
        below = index.descendants([position]) - {position}
        finite = [n for n, v in made.items() if index.producer[n] in below and _is_finite(v)]
        # each node alone, so that every value is rounded
        observer = Observer(index, runtime, by_node=True)
        observer.feed(feeds)
        rounded = observer.fetch(finite)
        other = next((n for n in finite if not _is_finite(rounded[n])), None)
        if other is not None:
            yield (
                f"{name!r} overflows, but {other!r} after it is finite: the runtime computes float16 in float32 and "
                "rounds what is fetched; bisect --look node rounds every value"
            )


def _is_finite(value: RunValue) -> bool:
    if not is_array(value) or value.dtype.kind not in "fc":
        return True
    return bool(np.isfinite(value).all())
