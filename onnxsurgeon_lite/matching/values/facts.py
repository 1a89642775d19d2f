"""Collect the facts that matching uses about each value of a model or a reference set."""

import math
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import numpy as np
from onnx import TensorProto, helper

from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.scopes import texts
from onnxsurgeon_lite.model import entries
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.runtime.session import SIGNED, Runtime
from onnxsurgeon_lite.shown import Progress, quiet
from onnxsurgeon_lite.tensors.dtypes import Array, RunValue, Shape, is_array
from onnxsurgeon_lite.tensors.in_file import digest
from onnxsurgeon_lite.tensors.references import Entry, ReferenceSet
from onnxsurgeon_lite.tensors.signature import Signature, signature_of

INPUT = "(input)"
BATCH_NORM = "BatchNorm"
_FOLDED_FROM = (
    "pkg.onnxscript.optimizer.folded_from"  # of the exporter: the names of what it folded
)
_LEAST = 8  # numbers of a channel that a correlation needs
_LINEAR = 1 - 1e-9  # a correlation: floats are rounded
_SMALL_BYTES = 1 << 12  # of a value that is kept as it is
_PART = re.compile(r"(#\d+)?(\[.*\])?")
"""Behind the path of a module: which of its calls, and which part of what it returned."""
_MEASURES = ("Shape", "Size")
_KEEP = ("Identity", "Transpose")
"""They keep the numbers of a weight."""
_DOMAIN = "com.microsoft.nchwc"


@dataclass
class Fact:
    """Facts about one value.

    Attributes:
        rank: its position in execution order.
        scope, class_name: the module that it comes from.
        known, stated: True when the module is certain, and when the exporter recorded it.
        op: the operator that produces it, `(input)` for inputs, '' when unknown.
        slot: its output slot.
        inputs: the values that it is computed from, without constants, and without sizes if there are others.
        users: the values that are computed from it.
        weights: digests of the constants that it is computed from, the largest first.
        small: the value itself when it is too small for a signature.
        measures: True for sizes, which are computed from the shapes of values.
        blocked: True when the runtime stores it in blocked layout.
        leaves: paths of the modules that output the value. is_output: True for an output of the whole model.
        returned: True for a reference that a whole module returned, not one of its operators.
    """

    name: str
    rank: int
    scope: str = ""
    class_name: str = ""
    known: bool = False
    stated: bool = False
    op: str = ""
    slot: int = 0
    inputs: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    leaves: tuple[str, ...] = ()
    is_output: bool = False
    returned: bool = False
    shape: tuple[int, ...] | None = None
    signature: Signature | None = None
    small: Array | None = None
    measures: bool = False
    blocked: bool = False
    users: set[str] = field(default_factory=set)

    def see(self, value: RunValue) -> None:
        """Store shape and signature, or a small value itself."""
        if is_array(value):
            self.shape, self.signature = value.shape, signature_of(value)
            if self.signature is None and value.nbytes <= _SMALL_BYTES:
                self.small = value


@dataclass
class Side:
    """All values of a model or a reference set, in execution order; its outputs in their own.

    Attributes:
        weights: names of initializers, and of those that the exporter computed initializers of.
    """

    place: str
    facts: dict[str, Fact] = field(default_factory=dict)
    structured: bool = False
    outputs: list[str] = field(default_factory=list)
    weights: list[str] = field(default_factory=list)

    @property
    def shapes(self) -> dict[str, Shape]:
        """The shapes of the values, as far as they are known."""
        found = self.facts.items()
        return {name: fact.shape for name, fact in found if fact.shape is not None}


def side_of_references(references: ReferenceSet, outputs: Iterable[str]) -> Side:
    """Collect the facts of a reference set, reading one tensor at a time.

    Args:
        outputs: what the model returns, in order; without any, what the whole module returned.
    """
    side = Side(references.place, outputs=[name for name in outputs if name in references])
    # the reference before this one, which it may normalize
    before: RunValue = None
    for rank, (name, entry) in enumerate(references.entries.items()):
        fact = Fact(name, rank, entry.scope, entry.class_name.rpartition(".")[2])
        fact.known = fact.stated = bool(entry.scope or entry.class_name)
        fact.op = INPUT if entry.is_input else ""
        fact.returned = _is_returned(name, entry)
        # the whole module has no path
        fact.is_output = name in side.outputs or (not entry.scope and fact.returned)
        value = references.read(name)
        fact.see(value)
        if not fact.class_name and _is_normalized(before, value):
            fact.class_name = BATCH_NORM  # a user's own hook records no class
        side.facts[name], before = fact, value
    side.outputs = side.outputs or [fact.name for fact in side.facts.values() if fact.is_output]
    return side


def _is_normalized(before: RunValue, after: RunValue) -> bool:
    """Return whether each channel of a value is that of the one before, scaled and shifted."""
    if not is_array(before) or not is_array(after) or before.shape != after.shape:
        return False
    # a Dropout that does nothing returns what it gets
    if after.ndim < 3 or after[:, 0].size < _LEAST or np.array_equal(before, after):
        return False
    channels = zip(np.moveaxis(before, 1, 0), np.moveaxis(after, 1, 0), strict=True)
    with np.errstate(all="ignore"):
        # a correlation of 1: scale and shift alone separate the two
        return all(abs(np.corrcoef(x.flat, y.flat)[0, 1]) > _LINEAR for x, y in channels)


def outputs_of(references: ReferenceSet, model: Iterable[str]) -> Iterable[str]:
    """Return the outputs in a set: those that it names, if it has all; else those of a model, by name."""
    # a set that knows its outputs, as a recording does
    if references.outputs and all(name in references for name in references.outputs):
        return references.outputs
    return () if is_of_modules(references) else model


def is_of_modules(references: ReferenceSet) -> bool:
    """Return whether PyTorch modules returned all references: their paths may be names of a model by chance alone."""
    computed = [(n, entry) for n, entry in references.entries.items() if not entry.is_input]
    return bool(computed) and all(e.class_name and _is_returned(n, e) for n, e in computed)


def _is_returned(name: str, entry: Entry) -> bool:
    """Return whether a reference has the name that a module's output gets: its path, or the class of the whole one."""
    start = entry.scope or entry.class_name.rpartition(".")[2]
    return name.startswith(start) and _PART.fullmatch(name, len(start)) is not None


def side_of_model(
    index: GraphIndex,
    feeds: Feeds,
    runtime: Runtime,
    progress: Progress = quiet,
    *,
    with_weights: bool = True,
) -> Side:
    """Collect the facts of a model; values are computed part by part and dropped, weights are read on request."""
    # inputs first, then nodes in their order: each value with its module, inputs and weights
    place = str(index.model.path or index.graph.name)
    side = Side(place, structured=True, outputs=[n for n in index.outputs if n in index.producer])
    weights = _digests(index) if with_weights else {}
    for rank, name in enumerate(feeds):
        side.facts[name] = Fact(name, rank, op=INPUT)
    sources, sizes = _sources(index, feeds)
    for position in index.order:
        node, origin = index.nodes[position], index.origins[position]
        reads = index.reads[position]
        constants = sorted((weights[name] for name in reads if name in weights), reverse=True)
        # a transposed weight is the same weight
        if node.op_type in _KEEP and constants:
            weights[node.output[0]] = constants[0]
        for slot, name in enumerate(node.output):
            if not name:
                continue
            side.facts[name] = Fact(
                name,
                len(side.facts),
                origin.scope,
                origin.class_name,
                origin.known,
                origin.stated,
                f"{node.domain}::{node.op_type}" if node.domain else node.op_type,
                slot,
                sources[position],
                tuple(digest for _, digest in constants),
                _left(index, name, origin.around()),
                name in index.outputs,
                measures=name in sizes,
            )
        for name in reads:
            if name in side.facts:  # else a weight
                side.facts[name].users.update(filter(None, node.output))
    side.weights = list(index.initializers)
    for info in index.graph.value_info:
        side.weights += texts(entries(info.metadata_props).get(_FOLDED_FROM, ""))
    _see_values(side, index, feeds, runtime, progress)
    return side


def _see_values(
    side: Side, index: GraphIndex, feeds: Feeds, runtime: Runtime, progress: Progress
) -> None:
    """Compute the values part by part; the runtime's process reduces large ones to signatures."""
    # large floats stay in the runtime, which sends their signatures
    facts = side.facts
    blocked = blocked_values(index)
    block = block_size(index, runtime) if blocked else 1
    for name, given in feeds.items():
        facts[name].see(given)
    observer = Observer(index, runtime)
    observer.feed(feeds)
    for part, _ in observer.parts(index.producer, progress):
        observer.fetch([], keep=part)
        floats = [n for n in part if observer.kept[n].tensor_type.elem_type in SIGNED]
        large = [n for n in floats if n not in blocked and runtime.held[n] > _SMALL_BYTES]
        for name, shape, signature in runtime.signatures(large):
            facts[name].shape, facts[name].signature = shape, signature
        for name, value in runtime.get([n for n in part if n not in large]):
            if name in blocked and is_array(value):
                facts[name].blocked = True
                value = unblocked(value, block)
            facts[name].see(value)


def _sources(index: GraphIndex, feeds: Feeds) -> tuple[dict[int, tuple[str, ...]], set[str]]:
    """Map each node to its inputs without constants, and without sizes if it has others; return the sizes, too.

    Sizes that one exporter computes are constants of another.
    """
    found = {}
    depends, sizes = set(feeds), set[str]()
    for position in index.order:
        node = index.nodes[position]
        inputs = tuple(name for name in index.reads[position] if name in depends)
        values = tuple(name for name in inputs if name not in sizes)
        # the operands that are data, or all where every one is a size
        found[position] = values or inputs
        if inputs:
            depends.update(node.output)
        # computed from sizes alone, or from the shape of a value
        if inputs and (not values or node.op_type in _MEASURES):
            sizes.update(node.output)
    return found, sizes


def _left(index: GraphIndex, name: str, modules: Iterable[str]) -> tuple[str, ...]:
    """Return the modules around a value's node that the value leaves: some user or graph output is outside."""
    users = [set(index.origins[user].around()) for user in index.users(name)]
    is_output = name in index.outputs
    return tuple(m for m in modules if is_output or any(m not in around for around in users))


def _digests(index: GraphIndex) -> dict[str, tuple[int, str]]:
    """Map constants with several elements to (elements, order-independent digest), reading one at a time."""
    digests = {}
    for name, tensor in index.initializers.items():
        size = math.prod(tensor.dims)
        if isinstance(tensor, TensorProto) and size > 1:
            digests[name] = size, digest(index.model.rows(tensor))
    return digests


def blocked_values(index: GraphIndex) -> Collection[str]:
    """Return the values in blocked layout: outputs of NCHWc nodes, and of elementwise nodes on them.

    Between `ReorderInput` and `ReorderOutput` nodes of onnxruntime's optimizer, a tensor of shape [N, C, H, W] is
    stored as [N, C / block, H, W, block]. The block size depends on the processor.
    """
    found = set[str]()
    for position in index.order:
        node = index.nodes[position]
        makes = node.domain == _DOMAIN and node.op_type != "ReorderOutput"
        keeps = not node.domain and not found.isdisjoint(node.input)
        if makes or keeps:
            found.update(node.output)
    return found


def block_size(index: GraphIndex, runtime: Runtime) -> int:
    """Return the channels per block: the number to which the runtime pads fewer channels."""
    small = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 4, 1, 1]), ("y", None))
    ]
    node = helper.make_node("ReorderInput", ["x"], ["y"], domain=_DOMAIN)
    graph = helper.make_graph([node], "block", small[:1], small[1:])
    model = helper.make_model(graph, opset_imports=index.model.proto.opset_import)
    model.ir_version = index.model.proto.ir_version
    # four channels come back padded to a whole block
    runtime.put("x", np.ones((1, 4, 1, 1), np.float32))
    runtime.open(index.model.with_proto(model))
    found = runtime.run({"x": "x"}, ["y"]).values["y"]
    runtime.forget(["x"])
    return int(found.shape[1]) if is_array(found) else 1


def unblocked(array: Array, block: int) -> Array:
    """Return a feature map in NCHW layout."""
    if array.ndim != 4 or array.shape[1] % block:
        return array
    n, channels, height, width = array.shape
    blocks = array.reshape(n, channels // block, height, width, block)
    return blocks.transpose(0, 1, 4, 2, 3).reshape(array.shape)
