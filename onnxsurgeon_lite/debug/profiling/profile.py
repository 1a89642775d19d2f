"""Time a model by the runtime's own profiler, and give each kernel back to the nodes that it computes."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from statistics import median

from onnx import NodeProto, helper

from onnxsurgeon_lite.debug.profiling.events import Kernel, TimedRun, read_trace
from onnxsurgeon_lite.debug.profiling.macs import macs
from onnxsurgeon_lite.debug.profiling.parts import parts
from onnxsurgeon_lite.debug.profiling.result import Cost, HeldTensor, Profile, ProfiledNode
from onnxsurgeon_lite.errors import RuntimeFailure, SurgeonError
from onnxsurgeon_lite.graph import GraphIndex, fixed_shape, tensor_type
from onnxsurgeon_lite.graph.scopes import UNKNOWN
from onnxsurgeon_lite.model import attributes_of, by_name, copied
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.optimized import load_structure, structure_file
from onnxsurgeon_lite.runtime.options import provider_name
from onnxsurgeon_lite.runtime.run import put_feeds
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.search.grouping import groups
from onnxsurgeon_lite.tensors.dtypes import Shape, byte_count, data_type_of_numpy, is_array

_MOST = 500_000  # kernels in a trace: the runtime drops what comes after a million


def profile(
    index: GraphIndex, feeds: Feeds, runtime: Runtime, runs: int, trace: Path | None = None
) -> Profile:
    """Run a model `runs` times and once before; return what its nodes cost.

    Args:
        trace: where the runtime's own trace goes, in Chrome's format.

    Raises:
        RuntimeFailure: the runtime refuses the model, fails, crashes or takes too long.
    """
    index.require_sound()
    runs = max(1, min(runs, _MOST // max(1, len(index.nodes))))
    writes = runtime.abilities.optimized_graph  # else nobody knows which nodes a fused one replaces
    with structure_file() as optimized:
        runtime.open(
            index.model, optimized if writes else None, profile=optimized.with_name("profile")
        )
        put_feeds(index, feeds, runtime)
        # the trace is in a folder that goes with the block
        written = runtime.profile(list(feeds), list(index.outputs), runs + 1)
        timed = read_trace(written)[1:]  # the first run allocates
        ran = load_structure(optimized) if writes else index.model.copy()
        if trace is not None:
            trace.write_bytes(written.read_bytes())
    if not timed:
        raise RuntimeFailure("the runtime's profile holds no run")
    _name(ran.graph.node, timed[0].kernels)
    result = _Attribution(index, feeds, GraphIndex.of(ran)).profile(timed)
    result.provider = provider_name(runtime.options.provider)
    return result


def _name(nodes: Iterable[NodeProto], kernels: Iterable[Kernel]) -> None:
    """Name nodes without a name, such as those of functions, as their kernels are called: they run in this order."""
    # per operator: nodes without a name, and names of kernels that no node has; matched in order if as many
    known = {node.name for node in nodes}
    unnamed = groups((node.op_type, node) for node in nodes if not node.name)
    called = groups((each.op_type, each.name) for each in kernels if each.name not in known)
    for op_type, found in unnamed.items():
        names = list(dict.fromkeys(called[op_type]))
        for node, name in zip(found, names if len(names) == len(found) else (), strict=False):
            node.name = name


@dataclass
class _Attribution:
    """Kernels, and the nodes of the model that they compute."""

    original: GraphIndex
    feeds: Feeds
    executed: GraphIndex
    _counted: set[str] = field(default_factory=set)

    def profile(self, runs: Sequence[TimedRun]) -> Profile:
        first, seconds = runs[0].kernels, _medians(runs)
        # kernels by name: one in a loop runs several times
        nodes = {k.name: ProfiledNode(k.name, k.op_type, k.provider, times=0) for k in first}
        for kernel in first:
            node = nodes[kernel.name]
            node.times += 1
            node.cost += _own(kernel)
        for name, node in nodes.items():
            node.cost.seconds = seconds[name]
        named = by_name(self.executed.nodes)
        kernels = by_name(first)
        shapes = self._shapes()
        # of the kernels of a part, the one that computes most gets the arithmetic and the weights
        for part in parts(self.original, (named[name] for name in nodes if name in named)):
            members = [nodes[name] for name in part.kernels]
            # where they come from
            positions = part.positions
            origins = [self.original.origins[position] for position in positions]
            origin = next((o for o in origins if o.known), origins[0] if origins else UNKNOWN)
            for node in members:
                node.covers += [self.original.node_id(position) for position in positions]
                node.place, node.modules = str(origin), origin.around()
            main = max(part.kernels, key=lambda k: (_macs_of(kernels[k]) or 0, seconds[k]))
            nodes[main].cost += self._cost(positions, kernels[main], shapes)
        held, peak = _live(kernels, self.executed, list(nodes.values()))
        path = str(self.original.model.path or self.original.graph.name)
        total = median(run.seconds for run in runs)
        return Profile(path, len(runs), total, list(nodes.values()), held, peak)

    def _cost(self, positions: Sequence[int], kernel: Kernel, shapes: Mapping[str, Shape]) -> Cost:
        """Return what nodes of the model compute, and the weights that they are the first to read."""
        counts = [self._macs(position, shapes) for position in positions]
        # without shapes in the model, the kernel's own tell; padded ones would count too much
        is_padded = kernel.name.endswith("_nchwc")  # its channels are a multiple of the block
        if None in counts and not is_padded and (own := _macs_of(kernel)):
            counts = [own]
        # a weight counts for the first nodes that read it; the trace leaves packed ones out
        read = self.original.read_by(positions)
        tensors = self.original.initializers
        new = {name for name in read if name in tensors} - self._counted
        self._counted |= new
        kinds = {n: tensor_type(tensors[n]).tensor_type.elem_type for n in new}
        weights = sum(byte_count(kinds[n], tensors[n].dims) for n in new)
        return Cost(0.0, sum(count or 0 for count in counts), counts.count(None), weights, weights)

    def _shapes(self) -> dict[str, Shape]:
        """Return the shapes that the model's values have on the feeds, as far as inference tells."""
        proto = copied(self.original.model.structure())
        del proto.graph.value_info[:]
        for value in proto.graph.input:
            if is_array(fed := self.feeds.get(value.name)):
                element = data_type_of_numpy(fed.dtype)
                value.type.CopyFrom(helper.make_tensor_type_proto(element, fed.shape))
        for output in proto.graph.output:
            output.type.Clear()
        index = GraphIndex.of(self.original.model.with_proto(proto))
        with suppress(SurgeonError):  # what is known without inference is used
            index.learn_types(index.producer)
        found = ((name, fixed_shape(kind)) for name, kind in index.types.items())
        weights = {name: tuple(t.dims) for name, t in self.original.initializers.items()}
        return {name: shape for name, shape in found if shape is not None} | weights

    def _macs(self, position: int, shapes: Mapping[str, Shape]) -> int | None:
        node = self.original.nodes[position]
        equation = attributes_of(node).get("equation", b"").decode()
        if node.op_type in ("If", "Loop", "Scan"):
            return 0  # its kernels are counted
        inputs, outputs = ([shapes.get(n) for n in side] for side in (node.input, node.output))
        return macs(node.op_type, inputs, outputs, equation)


def _medians(runs: Sequence[TimedRun]) -> dict[str, float]:
    """Return kernel -> the median of its seconds in a run."""
    found = defaultdict[str, list[float]](list)
    for run in runs:
        sums = defaultdict[str, float](float)
        for kernel in run.kernels:
            sums[kernel.name] += kernel.seconds
        for name, seconds in sums.items():
            found[name].append(seconds)
    return {name: median(seconds) for name, seconds in found.items()}


def _own(kernel: Kernel) -> Cost:
    """Return what a kernel moves, and what those in its body compute."""
    counts = [_macs_of(inner) for inner in _all_inside(kernel)]
    return Cost(
        macs=sum(count or 0 for count in counts),
        unknown=counts.count(None),
        moved_bytes=kernel.input_bytes + kernel.output_bytes,
    )


def _all_inside(kernel: Kernel) -> Iterable[Kernel]:
    for inner in kernel.inside:
        yield inner
        yield from _all_inside(inner)


def _macs_of(kernel: Kernel) -> int | None:
    """Return those of a kernel by the shapes that it ran on."""
    return macs(kernel.op_type, kernel.inputs, kernel.outputs)


def _live(
    kernels: Mapping[str, Kernel], executed: GraphIndex, nodes: Sequence[ProfiledNode]
) -> tuple[list[HeldTensor], int]:
    """Say of each node how many bytes are in memory while it runs; return the tensors at the peak, and where."""
    known = {node.name: place for place, node in enumerate(executed.nodes)}
    # position in the executed graph of each kernel, None for one of a body
    order = [known.get(node.name) for node in nodes]
    # value -> the kernel that reads it last; outputs stay to the end
    last = dict[str, int]()
    for place, position in enumerate(order):
        if position is not None:  # what its bodies capture is read, too
            names = (*executed.nodes[position].output, *executed.needs[position])
            last |= dict.fromkeys(names, place)
    last |= dict.fromkeys(executed.outputs, len(order))
    # walk once: add what a kernel makes, note the sum, drop what it read last
    live = dict[str, int]()
    most, held, peak = -1, list[HeldTensor](), 0
    for place, (node, position) in enumerate(zip(nodes, order, strict=True)):
        made = () if position is None else executed.nodes[position].output
        live |= _sizes(kernels[node.name], [name for name in made if name])
        node.live_bytes = sum(live.values())
        if node.live_bytes > most:
            most, peak = node.live_bytes, place
            held = [HeldTensor(name, size) for name, size in live.items()]
        live = {name: size for name, size in live.items() if last[name] > place}
    return sorted(held, key=lambda each: -each.bytes), peak


def _sizes(kernel: Kernel, names: Sequence[str]) -> dict[str, int]:
    """Return the bytes of each output; the trace tells their sum, and their shapes."""
    # split the sum by the number of elements
    elements = [max(1, prod(shape)) for shape in kernel.outputs]
    if len(names) != len(elements):
        return {names[0]: kernel.output_bytes} if names else {}
    whole = sum(elements)
    return {
        n: kernel.output_bytes * count // whole for n, count in zip(names, elements, strict=True)
    }
