"""Turn a quantized model back into a float model."""

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from onnx import GraphProto, NodeProto, helper

from onnxsurgeon_lite.graph.bodies import InnerGraph
from onnxsurgeon_lite.graph.index import GraphIndex, function_key, opset_versions
from onnxsurgeon_lite.graph.quantizers import (
    DEQUANTIZE,
    QUANTIZE,
    QUANTIZERS,
    constant_of,
    grid_of,
    limits_of,
)
from onnxsurgeon_lite.model import Model, walk
from onnxsurgeon_lite.model.messages import copied, drop, drop_at
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.surgery.edits import fresh, rename_uses, value_names
from onnxsurgeon_lite.surgery.inlining import inline
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array
from onnxsurgeon_lite.tensors.grid import Grid

_NEVER_NEGATIVE = frozenset(
    ("Relu", "Sigmoid", "Softmax", "Abs", "Sqrt", "Exp", "Clip", "HardSigmoid")
)
_MOVING = frozenset((
    "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Reshape", "Slice", "SpaceToDepth",
    "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
))  # fmt: skip
_LINEAR = (
    "Add", "Mul", "Sigmoid", "LeakyRelu", "GlobalAveragePool", "AveragePool", "MatMul", "Conv", "Concat", "Softmax",
)  # fmt: skip
_PLAIN = {f"QLinear{operator}": operator for operator in _LINEAR}
_PLAIN |= {"QGemm": "Gemm", "MatMulInteger": "MatMul", "ConvInteger": "Conv"}
"""Operator on integers -> the one on the numbers that they stand for."""
_QUANTIZED = {*QUANTIZERS, *_PLAIN}
_INTERNAL = ("channels_last", "opset")


@dataclass(frozen=True)
class Dequantize:
    """Compute in float again: weights become the numbers that they stand for, quantizers go; in bodies, in functions.

    QDQ models, QOperator models and dynamically quantized ones are understood. A range that ends at 0 cuts what a
    removed activation cut: it stays as a Clip where the node before can leave it. An integer that something else needs
    is still computed. What the weights lost by rounding stays lost.

    Example:
        >>> osl.dequantize("low_precision.onnx").changed
        True
    """

    name: ClassVar[str] = "dequantize"

    def apply(self, model: Model) -> PassResult:
        """Dequantize it."""
        result = _without_functions(model)
        found = _graph(GraphIndex.of(result), result, result.proto.graph)
        if not found.changes:
            return PassResult(
                model, False, (*found.notes, "nothing is quantized with constant scales")
            )
        return PassResult.of(model, result, found.lines(), found.notes)


def _without_functions(model: Model) -> Model:
    """Return a copy in which functions that quantize are inlined: their scales may be the call's."""
    functions = model.proto.functions
    nodes = walk.with_inner(node for function in functions for node in function.node)
    if not any(node.op_type in _QUANTIZED for node in nodes):
        return model.copy()
    return inline(model, [function_key(function) for function in functions])


def _graph(index: GraphIndex, result: Model, graph: GraphProto) -> "_Floats":
    found = _Floats(index, value_names(index))
    for position, node in enumerate(graph.node):
        for name, body in walk.bodies(node) if node.attribute else ():
            inner = _graph(InnerGraph.of(index, position, name).index, result, body)
            found.changes += inner.changes
            found.notes += inner.notes
    nodes = []
    for position in index.order:
        node = graph.node[position]
        made = list(found.replaced(copied(node)))
        if made and made[-1].output[0] == node.output[0]:
            nodes += made
        else:
            nodes += [*made, node]
    del graph.node[:]
    graph.node.extend(nodes)
    graph.initializer.extend(dtypes.from_array(a, n) for n, a in found.weights.items())
    rename_uses(graph.node, found.renamed)
    _drop_unread(graph, found.real.keys() | found.renamed.keys() | found.weights.keys())
    return found


def _drop_unread(graph: GraphProto, replaced: Set[str]) -> None:
    """Remove nodes whose results were replaced and are not read any more, and the constants that they alone read."""
    freed, read = set(replaced), set[str]()
    while True:
        read = {name for node in walk.with_inner(graph.node) for name in node.input}
        read.update(info.name for info in graph.output)
        gone = [
            place
            for place, node in enumerate(graph.node)
            if not read.intersection(node.output) and freed.issuperset(node.output)
        ]
        if not gone:
            break
        for place in gone:
            freed.update((*graph.node[place].input, *graph.node[place].output))
        drop_at(graph.node, gone)
    drop(graph.initializer, lambda tensor: tensor.name in freed and tensor.name not in read)
    made = {name for node in graph.node for name in node.output}
    drop(graph.value_info, lambda info: info.name in freed and info.name not in made)


@dataclass
class _Floats:
    """The float values of a graph that is quantized.

    Attributes:
        real: integer value -> the float value that it stands for. weights: new constants.
        renamed: value -> the value that it equals now.
        before: nodes that the next ones read.
    """

    index: GraphIndex
    taken: set[str]
    real: dict[str, str] = field(default_factory=dict)
    weights: dict[str, Array] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    before: list[NodeProto] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return what was changed, a line for each operator."""
        return [f"{self.changes.count(op)} {op} in float" for op in dict.fromkeys(self.changes)]

    def replaced(self, node: NodeProto) -> Iterator[NodeProto]:
        """Yield the nodes that compute the float values of a node's results, before the node itself goes unread."""
        node = self._current(node)
        handlers: dict[str, Callable[[NodeProto], Iterator[NodeProto]]] = {
            QUANTIZE: self._quantize,
            DEQUANTIZE: self._dequantize,
            "DynamicQuantizeLinear": self._dynamic,
        }
        handler = handlers.get(node.op_type)
        if handler is None and node.op_type in _PLAIN:
            handler = self._linear
        if handler is None and node.op_type in _MOVING and any(n in self.real for n in node.input):
            handler = self._moved
        if handler is not None:
            made = list(handler(node))
            yield from self.before
            yield from made
            self.before = []

    def _current(self, node: NodeProto) -> NodeProto:
        for slot, name in enumerate(node.input):
            node.input[slot] = self.renamed.get(name, name)
        return node

    def _named(self, name: str) -> str:
        self.real[name] = fresh(f"{name}_float", self.taken)
        return self.real[name]

    def _quantize(self, node: NodeProto) -> Iterator[NodeProto]:
        grid = grid_of(self.index, node)
        if grid is None:
            return
        self.changes.append(node.op_type)
        self.real[node.output[0]] = node.input[0]
        yield from self._clipped(node.input[0], grid, node.output[0])

    def _clipped(self, name: str, grid: Grid, integer: str) -> Iterator[NodeProto]:
        """Yield a Clip to the range of a grid that ends at 0, unless what is clipped is inside in any case."""
        maker = self.index.producer.get(name)
        inside = maker is not None and self.index.nodes[maker].op_type in _NEVER_NEGATIVE
        if grid.scale.size != 1 or grid.zero.size != 1 or inside:
            return
        ends = [(end - grid.zero.item()) * grid.scale.item() for end in (grid.low, grid.high)]
        if all(ends):
            return
        result = self._named(integer)
        if opset_versions(self.index.model.proto.opset_import).get("", 0) < 11:
            yield helper.make_node("Clip", [name], [result], min=ends[0], max=ends[1])
            return
        names = [
            self._constant(f"{result}_{end}", np.asarray(v, np.float32))
            for end, v in zip(("min", "max"), ends, strict=True)
        ]
        yield helper.make_node("Clip", [name, *names], [result])

    def _constant(self, name: str, array: Array) -> str:
        name = fresh(name, self.taken)
        self.weights[name] = array
        return name

    def _dequantize(self, node: NodeProto) -> Iterator[NodeProto]:
        result = node.output[0]
        if node.input[0] in self.real:
            yield from self._equals(result, self.real[node.input[0]])
            self.changes.append(node.op_type)
            return
        numbers = self._numbers(node)
        if numbers is not None:
            self.renamed[result] = self._constant(f"{result}_float", numbers)
        elif (moved := self._moved_constant(node.input[0], grid_of(self.index, node))) is not None:
            self.renamed[result] = moved
        self.changes += [node.op_type] if result in self.renamed else []

    def _equals(self, name: str, source: str) -> Iterator[NodeProto]:
        """Let readers of a value read another; an output of the graph keeps its name."""
        if name in self.index.outputs:
            yield helper.make_node("Identity", [source], [name])
        else:
            self.renamed[name] = source

    def _numbers(self, node: NodeProto) -> Array | None:
        """Return what a DequantizeLinear makes of a constant."""
        grid, integers = grid_of(self.index, node), constant_of(self.index, node.input[0])
        scale = constant_of(self.index, node.input[1])
        if grid is None or integers is None or scale is None or not grid.fits(integers.shape):
            return None
        return grid.numbers(integers).astype(scale.dtype)

    def _dynamic(self, node: NodeProto) -> Iterator[NodeProto]:
        """Let the integers stand for the numbers themselves: their scale is 1."""
        self.changes.append(node.op_type)
        self.real[node.output[0]] = node.input[0]
        neutral: list[Array] = [np.ones((), np.float32), np.zeros((), np.uint8)]
        for name, array in zip(node.output[1:], neutral, strict=False):
            if name:
                self.renamed[name] = self._constant(f"{name}_float", array)
        yield from ()

    def _moved(self, node: NodeProto) -> Iterator[NodeProto]:
        inputs = [self.real.get(name, name) for name in node.input]
        yield self._like(node, node.op_type, inputs, node.domain)

    def _like(
        self, node: NodeProto, operator: str, inputs: list[str], domain: str = ""
    ) -> NodeProto:
        made = copied(node)
        made.op_type, made.domain = operator, domain
        drop(made.attribute, lambda attribute: attribute.name in _INTERNAL)
        del made.input[:], made.output[:]
        made.input.extend(inputs)
        made.output.extend(self._named(name) for name in node.output if name)
        return made

    # operators on integers

    def _linear(self, node: NodeProto) -> Iterator[NodeProto]:
        operands = self._operands(node)
        if operands is None:
            self.notes.append(f"{node.op_type} {node.name!r} stays: its scales are not constant")
            return
        inputs, grid = operands
        self.changes.append(node.op_type)
        made = self._like(node, _PLAIN[node.op_type], inputs)
        yield made
        if grid is not None:
            yield from self._clipped(made.output[0], grid, node.output[0])
        else:
            yield from self._equals(node.output[0], made.output[0])

    def _operands(self, node: NodeProto) -> tuple[list[str], Grid | None] | None:
        """Return (float inputs, the grid of the result); None if they are not known."""
        names = [*node.input, "", ""]
        attributes = {a.name: a.i for a in node.attribute}
        if attributes.get("channels_last"):
            return None
        match node.op_type:
            case "MatMulInteger" | "ConvInteger":
                return _whole(
                    [self._float(n, "", names[2 + i]) for i, n in enumerate(names[:2])], None
                )
            case "QLinearConcat":
                parts = [self._float(*names[at : at + 3]) for at in range(2, len(node.input), 3)]
                return _whole(parts, self._grid(names[0], names[1]))
            case "QLinearAdd" | "QLinearMul" | "QLinearMatMul" | "QLinearConv":
                axis = 0 if node.op_type == "QLinearConv" else -1
                pair = [self._float(*names[0:3]), self._float(names[3], names[4], names[5], axis)]
                bias = [self._bias(names[8], names[1], names[4])] if names[8:9] > [""] else []
                return _whole([*pair, *bias], self._grid(names[6], names[7]))
            case "QGemm":
                axis = 0 if attributes.get("transB") else 1
                pair = [self._float(*names[0:3]), self._float(names[3], names[4], names[5], axis)]
                bias = [self._bias(names[6], names[1], names[4])] if names[6] else []
                return _whole([*pair, *bias], self._grid(*names[7:9]) if names[7] else None)
            case _:
                return _whole([self._float(*names[0:3])], self._grid(names[3], names[4]))

    def _float(self, name: str, scale: str, zero: str, axis: int = 0) -> str | None:
        """Return the float value that an integer stands for."""
        if name in self.real:
            return self.real[name]
        integers = constant_of(self.index, name)
        grid = self._grid(scale, zero, axis)
        if integers is None and grid is not None:
            return self._moved_constant(name, grid)
        if integers is None or grid is None or not grid.fits(integers.shape):
            return None
        return self._constant(f"{name}_float", grid.numbers(integers).astype(np.float32))

    def _moved_constant(self, name: str, grid: Grid | None) -> str | None:
        """Return what a node moves from a constant of integers, as floats: the rows of an embedding."""
        maker = self.index.producer.get(name)
        node = None if maker is None else self.index.nodes[maker]
        if node is None or node.op_type not in _MOVING or grid is None or grid.scale.ndim:
            return None
        integers = constant_of(self.index, node.input[0])
        if integers is None:
            return None
        source = self._constant(f"{node.input[0]}_float", grid.numbers(integers).astype(np.float32))
        self.before.append(self._like(node, node.op_type, [source, *node.input[1:]], node.domain))
        return self.real[name]

    def _grid(self, scale: str, zero: str, axis: int = 0) -> Grid | None:
        width = constant_of(self.index, scale) if scale else np.ones((), np.float32)
        shift = constant_of(self.index, zero) if zero else np.zeros((), np.uint8)
        limits = None if shift is None else limits_of(shift.dtype)
        if width is None or shift is None or limits is None:
            return None
        wide = np.squeeze(width.astype(np.float64)) if width.size == 1 else width.astype(np.float64)
        zeros = np.broadcast_to(np.squeeze(shift.astype(np.float64)), wide.shape)
        return Grid(wide, zeros, *limits, axis)

    def _bias(self, name: str, scale: str, other: str) -> str | None:
        """Return the float bias: its scale is the product of those of input and weights."""
        arrays = [constant_of(self.index, part) for part in (name, scale, other)]
        if any(array is None for array in arrays):
            return None
        bias, one, two = (np.asarray(array, np.float64) for array in arrays)
        return self._constant(f"{name}_float", (bias * one * two).astype(np.float32))


def _whole(inputs: list[str | None], grid: Grid | None) -> tuple[list[str], Grid | None] | None:
    known = [name for name in inputs if name is not None]
    return (known, grid) if len(known) == len(inputs) else None
