"""Time a model by the runtime's own profiler, and give each kernel back to the nodes that it stands for."""

import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from statistics import median

import numpy as np
from onnx import NodeProto, helper

from onnxsurgeon_lite.debug.profiling.events import Kernel, TimedRun, read_trace
from onnxsurgeon_lite.debug.profiling.macs import Shape, macs
from onnxsurgeon_lite.debug.profiling.result import Cost, Held, Profile, ProfiledNode
from onnxsurgeon_lite.errors import RuntimeFailure, SurgeonError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.model import load
from onnxsurgeon_lite.model.messages import copied
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.optimized import stands_for
from onnxsurgeon_lite.runtime.session import Runtime, provider_name
from onnxsurgeon_lite.tensors.dtypes import byte_count, data_type_of_numpy

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
    with tempfile.TemporaryDirectory(prefix="onnxdbg-") as folder:
        optimized = Path(folder) / "optimized.onnx"
        runtime.open(index.model, optimized, profile=Path(folder) / "profile")
        for name, value in feeds.items():
            element = index.inputs[name].type.sequence_type.elem_type.tensor_type.elem_type
            runtime.put(name, value, element or None)
        written = runtime.profile(list(feeds), list(index.outputs), runs + 1)
        timed = read_trace(written)[1:]  # the first run allocates
        executed = GraphIndex.of(load(optimized))
        if trace is not None:
            trace.write_bytes(written.read_bytes())
    if not timed:
        raise RuntimeFailure("the runtime's profile holds no run")
    result = _Attribution(index, feeds, executed).profile(timed)
    result.provider = provider_name(runtime.options.provider)
    return result


@dataclass
class _Attribution:
    """Kernels, and the nodes of the model that they stand for."""

    original: GraphIndex
    feeds: Feeds
    executed: GraphIndex
    _counted: set[str] = field(default_factory=set)

    def profile(self, runs: Sequence[TimedRun]) -> Profile:
        first, seconds = runs[0].kernels, _medians(runs)
        named = {node.name: node for node in self.executed.nodes}
        covers = self._covered({k.name: named[k.name] for k in first if k.name in named})
        shapes = self._shapes()
        nodes, seen = list[ProfiledNode](), dict[str, ProfiledNode]()
        for kernel in first:
            if (node := seen.get(kernel.name)) is not None:
                node.times += 1
                continue
            node = seen[kernel.name] = self._node(kernel, covers.get(kernel.name, []), shapes)
            node.cost.seconds = seconds[kernel.name]
            nodes.append(node)
        held, peak = _live(first, named, nodes, self.executed.outputs)
        path = str(self.original.model.path or self.original.graph.name)
        total = median(run.seconds for run in runs)
        return Profile(path, len(runs), total, nodes, held, peak)

    def _node(
        self, kernel: Kernel, covered: Sequence[int], shapes: Mapping[str, Shape]
    ) -> ProfiledNode:
        origins = [self.original.origins[position] for position in covered]
        origin = next((o for o in origins if o.known), origins[0] if origins else None)
        counts = [self._macs(position, shapes) for position in covered]
        counts += [_macs_of(inner) for inner in _all_inside(kernel)]
        parameters = self._parameters(covered)
        return ProfiledNode(
            kernel.name,
            kernel.op_type,
            kernel.provider,
            [self.original.node_id(position) for position in covered],
            str(origin) if origin is not None else "",
            list(origin.around()) if origin is not None else [],
            1,
            Cost(
                0.0,
                sum(count or 0 for count in counts),
                counts.count(None),
                parameters,
                parameters + kernel.input_bytes + kernel.output_bytes,
            ),
        )

    def _covered(self, nodes: Mapping[str, NodeProto]) -> dict[str, list[int]]:
        """Return kernel -> positions of the original nodes behind its outputs, up to what other kernels make."""
        known: set[str] = set()
        made = {}
        for name, node in nodes.items():
            made[name] = [value for value in self._values(node) if value not in known]
            known |= {*made[name]}  # a conversion back from a blocked layout makes nothing new
        return {
            name: sorted(self.original.ancestors(values, stop=known - set(values)))
            for name, values in made.items()
            if values
        }

    def _values(self, node: NodeProto) -> list[str]:
        """Return the original values that a node of the executed graph makes."""
        own = [value for value in node.output if value in self.original.producer]
        stood = None if own else stands_for(self.original, node)
        return own or ([stood] if stood in self.original.producer else [])

    def _shapes(self) -> dict[str, Shape]:
        """Return the shapes that the model's values have on the feeds, as far as inference tells."""
        proto = copied(self.original.model.structure())
        del proto.graph.value_info[:]
        for value in proto.graph.input:
            if isinstance(fed := self.feeds.get(value.name), np.ndarray):
                element = data_type_of_numpy(fed.dtype)
                value.type.CopyFrom(helper.make_tensor_type_proto(element, fed.shape))
        for output in proto.graph.output:
            output.type.Clear()
        index = GraphIndex.of(self.original.model.with_proto(proto))
        with suppress(SurgeonError):  # what is known without inference is used
            index.learn_types(index.producer)
        return {
            name: tuple(dim.dim_value for dim in kind.tensor_type.shape.dim)
            for name, kind in index.types.items()
            if kind.tensor_type.HasField("shape")
            and all(dim.HasField("dim_value") for dim in kind.tensor_type.shape.dim)
        } | {name: tuple(t.dims) for name, t in self.original.initializers.items()}

    def _parameters(self, covered: Iterable[int]) -> int:
        """Return the bytes of the weights that nodes are the first to read; the trace leaves packed ones out."""
        read = {name for position in covered for name in self.original.reads[position]}
        tensors = self.original.initializers
        new = {name for name in read if name in tensors} - self._counted
        self._counted |= new
        return sum(byte_count(tensors[n].data_type, tensors[n].dims) for n in new)

    def _macs(self, position: int, shapes: Mapping[str, Shape]) -> int | None:
        node = self.original.nodes[position]
        equation = next((a.s.decode() for a in node.attribute if a.name == "equation"), "")
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


def _all_inside(kernel: Kernel) -> Iterable[Kernel]:
    for inner in kernel.inside:
        yield inner
        yield from _all_inside(inner)


def _macs_of(kernel: Kernel) -> int | None:
    """Return those of a kernel by the shapes that it ran on."""
    return macs(kernel.op_type, kernel.inputs, kernel.outputs)


def _live(
    kernels: Sequence[Kernel],
    named: Mapping[str, NodeProto],
    nodes: Sequence[ProfiledNode],
    outputs: Iterable[str],
) -> tuple[list[Held], int]:
    """Say of each node how many bytes are in memory while it runs; return the tensors at the peak, and where."""
    order = [named[node.name] if node.name in named else NodeProto() for node in nodes]
    last = {name: place for place, node in enumerate(order) for name in (*node.output, *node.input)}
    last |= dict.fromkeys(outputs, len(order))
    made = {kernel.name: kernel for kernel in kernels}
    live: dict[str, int] = {}
    most, held, peak = -1, list[Held](), 0
    for place, (node, proto) in enumerate(zip(nodes, order, strict=True)):
        live |= _sizes(made[node.name], proto)
        node.live_bytes = sum(live.values())
        if node.live_bytes > most:
            most, peak = node.live_bytes, place
            held = [Held(name, size) for name, size in live.items()]
        live = {name: size for name, size in live.items() if last[name] > place}
    return sorted(held, key=lambda each: -each.bytes), peak


def _sizes(kernel: Kernel, node: NodeProto) -> dict[str, int]:
    """Return the bytes of each output; the trace tells their sum, and their shapes."""
    names = [name for name in node.output if name]
    elements = [max(1, prod(shape)) for shape in kernel.outputs]
    if len(names) != len(elements):
        return {names[0]: kernel.output_bytes} if names else {}
    whole = sum(elements)
    return {
        n: kernel.output_bytes * count // whole for n, count in zip(names, elements, strict=True)
    }
