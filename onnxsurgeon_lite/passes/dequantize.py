"""Turn a quantized model back into a float model."""

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import ClassVar

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph import DEQUANTIZE, GraphIndex, bodies_below, constant, node_title
from onnxsurgeon_lite.graph.block_quantized import NAMES, ROWS, blocks_of
from onnxsurgeon_lite.graph.quantizers import (
    DYNAMIC,
    FORMS,
    PRODUCTS,
    QUANTIZE,
    QUANTIZERS,
    Form,
    computes_quantized,
    constant_of,
    grid_from,
    grid_of,
    weight_axis,
)
from onnxsurgeon_lite.graph.schemas import MOVING
from onnxsurgeon_lite.model import (
    Model,
    assign,
    copied,
    drop,
    function_key,
    integer,
    is_external,
    operand,
    walk,
)
from onnxsurgeon_lite.model.narrowed import computed
from onnxsurgeon_lite.names import first
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.surgery import fresh, inline, name_apart, node_names, rename_uses, value_names
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array
from onnxsurgeon_lite.tensors.grid import Grid

_NEVER_NEGATIVE = frozenset(
    ("Relu", "Sigmoid", "Softmax", "Abs", "Sqrt", "Exp", "Clip", "HardSigmoid")
)
_MOVING = MOVING | {"Concat", "MaxPool"}
# their axes are an input since opset 18, and an attribute of the quantized operator
_PLAIN = (FORMS.keys() | PRODUCTS.keys()) - {"QLinearReduceMean"}
"""Operators on integers."""
_QUANTIZED = {*QUANTIZERS, *_PLAIN}
_NAMED = 3  # nodes that a message names
_INTERNAL = ("channels_last", "opset")
_Key = tuple[object, object]
"""Scale and zero point: the names of computed ones, the bytes of constants."""


@dataclass(frozen=True)
class Dequantize:
    """Compute in float again: weights become floats, quantizers go; in bodies, in functions.

    QDQ models, of float8 and float4 too, QOperator models, dynamically quantized ones and onnxruntime's weights in
    blocks (MatMulNBits, GatherBlockQuantized) are understood; a node that stays quantized is named. A range that ends
    at 0 cuts what a removed activation cut: it stays as a Clip where the node before can leave it. An integer that
    something else needs is still computed. What the weights lost by rounding stays lost.

    Example:
        >>> osl.dequantize("low_precision.onnx").changed
        True
    """

    name: ClassVar[str] = "dequantize"

    def apply(self, model: Model) -> PassResult:
        """Dequantize it."""
        source, left = _without_functions(model), set[str]()
        # a round takes every scale of a DynamicQuantizeLinear for 1; those whose integers are still read stay
        # in the next round
        while True:
            result = source.copy()
            found = _graph(GraphIndex.of(result), result, result.graph, left)
            # a scale may be 1 only where nothing reads the integers any more
            read = {
                node.output[0]
                for node in walk.nodes(walk.graphs(result.proto))
                if node.op_type == DYNAMIC
            }
            if left.issuperset(read):
                break
            # `left` only grows, so the loop ends
            left |= read
        changed = bool(found.changes) and result.proto != source.proto
        quantized = [
            node
            for node in walk.with_inner(walk.nodes(walk.graphs(result.proto)))
            if node.output and (node.op_type in QUANTIZERS or computes_quantized(node))
        ]
        notes = [
            f"{node_title(n)} stays: {found.reasons.get(n.output[0], 'its integers are read')}"
            for n in quantized
        ]
        if not changed:
            if any(n.op_type == DEQUANTIZE or computes_quantized(n) for n in quantized):
                raise EditError(
                    f"nothing can be in float: {first(notes, _NAMED)}",
                    "give the float model that it was made of",
                )
            return PassResult(model, False, ("nothing is quantized with constant scales",))
        name_apart(walk.graphs(result.proto), node_names(model.proto))
        return PassResult.of(model, result, found.lines(), notes)


def _without_functions(model: Model) -> Model:
    """Return the model with functions that quantize inlined: their scales may be the call's."""
    functions = model.proto.functions
    operators = {node.op_type for node in walk.with_inner(walk.nodes(functions))}
    if operators.isdisjoint(_QUANTIZED):
        return model
    return inline(model, [function_key(function) for function in functions])


def _graph(index: GraphIndex, result: Model, graph: GraphProto, left: Set[str]) -> "_Floats":
    found = _Floats(index, value_names(index), left)
    # bodies first: their index knows the outer values as they were
    for _, body, below in bodies_below(index, graph):
        inner = _graph(below, result, body, left)
        found.changes += inner.changes
        found.reasons |= inner.reasons
    nodes = []
    for position in index.order:
        node = graph.node[position]
        # made nodes come before the original, which goes unread, or take its place
        made = list(found.replaced(copied(node)))
        # the same output: no need for the original
        if made and made[-1].output[0] == node.output[0]:
            nodes += made
        else:
            nodes += made + [node]
    assign(graph.node, nodes)
    graph.initializer.extend(dtypes.from_array(a, n) for n, a in found.weights.items())
    for name, node in found.blocks.items():
        graph.initializer.append(_in_float(index, result, name, node))
    # nodes of these values, and the constants that they alone read, are no longer needed
    rename_uses(graph.node, found.renamed)
    known = chain(
        found.real, found.real.values(), found.renamed, found.weights, found.blocks, *found.joined
    )
    _drop_unread(graph, set(known))
    return found


def _of_blocks(floats: "_Floats", node: NodeProto) -> Iterator[NodeProto]:
    """Yield the operator on the numbers that a weight in blocks means."""
    found = blocks_of(floats.index, node)
    made = node.output[0]
    # a text is the reason why the weight cannot be read
    if isinstance(found, str):
        floats.reasons[made] = found
        return
    floats.changes.append(node.op_type)
    # the integers come first
    own = tuple(filter(None, (operand(node, slot) for slot in NAMES[node.op_type])))
    # one weight may be read by several nodes
    if own not in floats.joined:
        floats.joined[own] = fresh(f"{own[0]}_float", floats.taken)
        floats.blocks[floats.joined[own]] = node
    if node.op_type == ROWS:
        axis = integer(node, "gather_axis")
        yield _make(node, "Gather", [floats.joined[own], node.input[1]], made, axis=axis)
        return
    # input 5 of MatMulNBits is a bias
    bias = operand(node, 5)
    product = fresh(f"{made}_product", floats.taken) if bias else made
    yield _make(node, "MatMul", [node.input[0], floats.joined[own]], product)
    if bias:
        yield _make(node, "Add", [product, bias], made)


def _in_float(index: GraphIndex, result: Model, name: str, node: NodeProto) -> TensorProto:
    """Return the numbers that a weight in blocks means; those of a file are computed when they are saved."""

    def numbers() -> Array:
        # read again each time: the scales of all weights take much memory
        blocks = blocks_of(index, node)
        assert not isinstance(blocks, str)
        # Gather looks rows up; a product has the columns of the stored matrix as its outputs
        return blocks.numbers() if node.op_type == ROWS else blocks.numbers().T

    source = constant(index, node.input[NAMES[node.op_type][0]])
    blocks = blocks_of(index, node)
    if source is None or isinstance(blocks, str) or not is_external(source):
        return dtypes.from_array(numbers(), name)
    shape = blocks.shape if node.op_type == ROWS else blocks.shape[::-1]
    tensor = TensorProto(name=name, data_type=dtypes.data_type_of_numpy(blocks.dtype), dims=shape)
    computed(result, source, tensor, lambda: [dtypes.encode(numbers())])
    return tensor


def _make(
    node: NodeProto, operator: str, inputs: list[str], output: str, axis: int | None = None
) -> NodeProto:
    """Return a standard node in the place of another: its name and its metadata."""
    made = helper.make_node(operator, inputs, [output], name=node.name, axis=axis)
    made.metadata_props.extend(node.metadata_props)
    return made


def _drop_unread(graph: GraphProto, replaced: Set[str]) -> None:
    """Remove nodes whose results were replaced and are not read any more, and the constants that they alone read."""
    # names whose producers may go: each removal may free what it alone read
    freed, read, kept = set(replaced), {info.name for info in graph.output}, list[NodeProto]()
    for node in reversed(graph.node):
        if read.isdisjoint(node.output) and freed.issuperset(node.output):
            freed.update(node.input, node.output)
        else:
            kept.append(node)
            read.update(walk.inputs(walk.with_inner([node])))
    assign(graph.node, kept[::-1])
    drop(graph.initializer, lambda tensor: tensor.name in freed and tensor.name not in read)
    made = set(walk.outputs(graph.node))
    drop(graph.value_info, lambda info: info.name in freed and info.name not in made)


@dataclass
class _Floats:
    """The float values of a graph that is quantized.

    Attributes:
        left: outputs of the DynamicQuantizeLinear nodes that stay.
        real: integer value -> its float value. grids: integer value -> its scale and zero point.
        factors: integer value of a computed scale -> the products of this scale.
        weights: new constants. blocks: new constant -> the node that has this weight in blocks.
        renamed: value -> the value that it equals now.
        before: nodes that the next ones read.
    """

    index: GraphIndex
    taken: set[str]
    left: Set[str]
    grids: dict[str, _Key] = field(default_factory=dict)
    factors: dict[str, set[str]] = field(default_factory=dict)
    real: dict[str, str] = field(default_factory=dict)
    weights: dict[str, Array] = field(default_factory=dict)
    blocks: dict[str, NodeProto] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    before: list[NodeProto] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    joined: dict[tuple[str, ...], str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Return what was changed, a line for each operator."""
        return [f"{self.changes.count(op)} {op} in float" for op in dict.fromkeys(self.changes)]

    def replaced(self, node: NodeProto) -> Iterator[NodeProto]:
        """Yield the nodes that compute the float values of a node's results, before the node itself goes unread."""
        rename_uses([node], self.renamed)
        handlers: dict[str, Callable[[NodeProto], Iterator[NodeProto]]] = {
            # weights in blocks
            **dict.fromkeys(NAMES, partial(_of_blocks, self)),
            QUANTIZE: self._quantize,
            DEQUANTIZE: self._dequantize,
            DYNAMIC: self._dynamic,
        }
        handler = self._linear if node.op_type in _PLAIN else handlers.get(node.op_type)
        if handler is None and node.op_type in _MOVING and self._moves(node):
            handler = self._moved
        if handler is not None:
            made = list(handler(node))
            # constants that the handler needed come first
            yield from self.before + made
            self.before = []

    def _named(self, name: str) -> str:
        self.real[name] = fresh(f"{name}_float", self.taken)
        return self.real[name]

    def _key(self, scale: str, zero: str = "") -> _Key:
        grid = self._grid(scale, zero)
        # computed scales are known by their names only
        return (scale, zero) if grid is None else (grid.scale.tobytes(), grid.zero.tobytes())

    def _quantize(self, node: NodeProto) -> Iterator[NodeProto]:
        integer = node.output[0]
        grid = grid_of(self.index, node)
        if grid is None:
            self.reasons[integer] = "its scale or zero point is not constant"
            return
        self.changes.append(node.op_type)
        self.real[integer] = node.input[0]
        self.grids[integer] = self._key(*node.input[1:])
        yield from self._clipped(node.input[0], grid, integer, node.input[1])

    def _clipped(self, name: str, grid: Grid, integer: str, scale: str) -> Iterator[NodeProto]:
        """Yield a Clip to the range of a grid that ends at 0, unless what is clipped is inside in any case."""
        if (
            grid.scale.size != 1
            or grid.zero.size != 1
            or self.index.operator_of(name) in _NEVER_NEGATIVE
        ):
            return
        # the ends of the range: one is 0 where the quantizer also cuts what a Relu cuts
        ends = [(end - grid.zero.item()) * grid.scale.item() for end in (grid.low, grid.high)]
        if all(ends):
            return
        result = self._named(integer)
        # since opset 11 the limits are inputs
        if self.index.opset < 11:
            yield helper.make_node("Clip", [name], [result], min=ends[0], max=ends[1])
            return
        names = [
            self.constant(f"{result}_{end}", np.asarray(v, self._dtype(scale)))
            for end, v in zip(("min", "max"), ends, strict=True)
        ]
        yield helper.make_node("Clip", [name] + names, [result])

    def _dtype(self, scale: str) -> "np.dtype[np.generic]":
        """Return the dtype of the numbers that have a scale."""
        array = constant_of(self.index, scale) if scale else None
        return np.dtype(np.float32) if array is None else array.dtype

    def constant(self, name: str, array: Array) -> str:
        """Add a constant; return the name that it got."""
        name = fresh(name, self.taken)
        self.weights[name] = array
        return name

    def _dequantize(self, node: NodeProto) -> Iterator[NodeProto]:
        result = node.output[0]
        # the same scale and zero point: quantizing and back is a rounding, which goes
        if known := self._known(*node.input):
            yield from self._equals(result, known)
            self.changes.append(node.op_type)
            return
        # a constant: its numbers; an integer that a Gather or the like takes from a constant: that of the
        # numbers
        grid = grid_of(self.index, node, floats=True)
        own = self._weight(result, grid, node.input[0], node.input[1])
        if found := own or self._moved_constant(node.input[0], *node.input[1:]):
            self.renamed[result] = found
            self.changes.append(node.op_type)

    def _equals(self, name: str, source: str) -> Iterator[NodeProto]:
        """Let readers of a value read another; an output of the graph keeps its name."""
        if name in self.index.outputs:
            yield helper.make_node("Identity", [source], [name])
        else:
            self.renamed[name] = source

    def _dynamic(self, node: NodeProto) -> Iterator[NodeProto]:
        """Take the integers for the numbers themselves: their scale is 1."""
        integers, scale, zero = node.output
        # all that reads the scale must be products, as they can do without it
        factors = (
            _factors(self.index, scale) if scale and zero and integers not in self.left else None
        )
        if factors is None:
            self.reasons[integers] = "something needs its integers"
            return
        self.changes.append(node.op_type)
        self.real[integers], self.factors[integers] = node.input[0], factors
        # scale 1: what multiplies by the scale later changes nothing
        self.renamed[scale] = self.constant(f"{scale}_float", np.ones((), np.float32))
        self.grids[integers] = self._key(self.renamed[scale], zero)
        yield from ()

    def _is_scaled(self, name: str, scales: Sequence[set[str]]) -> bool:
        """Return whether all that reads a product makes it a float, and multiplies it by its scales."""
        readers = [self.index.nodes[place] for place in self.index.users(name)]
        return name not in self.index.outputs and all(
            self._is_scaled(n.output[0], scales)
            if n.op_type == "Cast"
            else n.op_type == "Mul" and all(s.intersection(n.input) for s in scales)
            for n in readers
        )

    def _moves(self, node: NodeProto) -> bool:
        """Return whether all that a node moves are integers of one scale."""
        # only Concat moves all of its inputs; others have shapes and indices after the first
        moved = node.input if node.op_type == "Concat" else node.input[:1]
        return set(moved) <= self.real.keys() and len({self.grids.get(name) for name in moved}) == 1

    def _moved(self, node: NodeProto) -> Iterator[NodeProto]:
        inputs = [self.real.get(name, name) for name in node.input]
        self.grids.update((name, self.grids[node.input[0]]) for name in node.output)
        yield self._like(node, node.op_type, inputs, node.domain)

    def _like(
        self, node: NodeProto, operator: str, inputs: list[str], domain: str = ""
    ) -> NodeProto:
        made = copied(node)
        made.op_type, made.domain = operator, domain
        # attributes that only the quantized operator has
        drop(made.attribute, lambda attribute: attribute.name in _INTERNAL)
        del made.input[:], made.output[:]
        made.input.extend(inputs)
        made.output.extend(self._named(name) for name in node.output if name)
        return made

    # operators on integers

    def _linear(self, node: NodeProto) -> Iterator[NodeProto]:
        integer = node.output[0]
        names, form = [*node.input, "", ""], Form.of(node)
        inputs: list[str | None] = [None]
        operator, result = PRODUCTS.get(node.op_type, ""), [""]
        if operator:
            # the axis of a zero point for each row or column: A by rows, B by columns
            axes = (-2, -1) if operator == "MatMul" else (0, 0)
            # operands that were quantized dynamically
            factors = [self.factors[name] for name in names[:2] if name in self.factors]
            if self._is_scaled(integer, factors):
                inputs = [self._integer(names[i], names[2 + i], axes[i]) for i in (0, 1)]
        elif form is not None:
            operator = form.op_type
            inputs = [names[slot] for slot in form.plain]
            for slot in form.operands:
                name, scale, zero = names[slot : slot + 3]
                inputs.append(self._float(name, scale, zero, weight_axis(node) if slot else 0))
            if any(names[form.bias : form.bias + 1]) and form.bias >= 0:
                inputs.append(self._bias(names[form.bias], names[1], names[4]))
            # a Gemm without a scale of its result makes floats
            result = names[form.result : form.result + 2]
        grid = self._grid(result[0], result[1]) if result[0] else None
        known = [name for name in inputs if name is not None]
        # an unknown operand leaves the node as it is
        if len(known) < len(inputs) or (result[0] and grid is None):
            self.reasons[integer] = "its scales are not constant"
            return
        self.changes.append(node.op_type)
        made = self._like(node, operator, known)
        yield made
        if grid is not None:
            self.grids[integer] = self._key(result[0], result[1])
            yield from self._clipped(made.output[0], grid, integer, result[0])
        else:
            yield from self._equals(integer, made.output[0])

    def _integer(self, name: str, zero: str, axis: int) -> str | None:
        """Return an operand of a product that is scaled later: floats whose scale is 1."""
        if name not in self.real:
            # its own zero point: another one would shift it
            return self._float(name, "", zero, axis)
        known = name in self.factors and self.grids[name][1] == zero
        return self.real[name] if known else None

    def _float(self, name: str, scale: str, zero: str, axis: int = 0) -> str | None:
        """Return the float value of an integer one."""
        # a constant, or perhaps moved from one
        grid = self._grid(scale, zero, axis)
        own = self._known(name, scale, zero) or self._weight(name, grid, name, scale)
        return own or self._moved_constant(name, scale, zero)

    def _known(self, name: str, scale: str, zero: str = "") -> str | None:
        """Return the float value of an integer one, if it has that scale and zero point."""
        return self.real.get(name) if self.grids.get(name) == self._key(scale, zero) else None

    def _weight(self, name: str, grid: Grid | None, stored: str, scale: str) -> str | None:
        """Return a new constant with the numbers that stored integers mean; None where these are computed."""
        integers = constant_of(self.index, stored)
        if grid is None or integers is None or not grid.fits(integers.shape):
            return None
        return self.constant(f"{name}_float", grid.numbers(integers).astype(self._dtype(scale)))

    def _moved_constant(self, name: str, scale: str, zero: str = "") -> str | None:
        """Return what a node moves from a constant of integers, as floats: the rows of an embedding."""
        node, grid = self.index.node_of(name), self._grid(scale, zero)
        if node is None or node.op_type not in _MOVING or grid is None or grid.scale.ndim:
            return None
        # a Concat has several
        stored = "" if node.op_type == "Concat" else node.input[0]
        source = self._weight(stored, grid, stored, scale)
        if source is None:
            return None
        self.before.append(self._like(node, node.op_type, [source, *node.input[1:]], node.domain))
        return self.real[name]

    def _grid(self, scale: str, zero: str, axis: int = 0) -> Grid | None:
        width = constant_of(self.index, scale) if scale else np.ones((), np.float32)
        shift = constant_of(self.index, zero) if zero else np.zeros((), np.uint8)
        return None if width is None or shift is None else grid_from(width, shift, axis)

    def _bias(self, name: str, scale: str, other: str) -> str | None:
        """Return the float bias: its scale is the product of those of input and weights."""
        arrays = [constant_of(self.index, part) for part in (name, scale, other)]
        if any(array is None for array in arrays):
            return None
        bias, one, two = (np.asarray(array, np.float64) for array in arrays)
        return self.constant(f"{name}_float", (bias * one * two).astype(self._dtype(scale)))


# A scale is followed through its products: scale, scale * other scale, ...
def _factors(index: GraphIndex, scale: str) -> set[str] | None:
    """Return the values that are products of a scale; None if something else than a product reads one."""
    found, pending = set[str](), [scale]
    while pending:
        name = pending.pop()
        found.add(name)
        readers = [index.nodes[place] for place in index.users(name)]
        if name in index.outputs or any(n.op_type not in ("Mul", DEQUANTIZE) for n in readers):
            return None
        # scale * scale of two operands is a scale, too; scale * product is the result
        # what is dequantized with the scale goes on as floats: nothing to follow there
        pending += (
            n.output[0]
            for n in readers
            if n.op_type == "Mul" and not any(_is_product(index, i) for i in n.input)
        )
    return found


def _is_product(index: GraphIndex, name: str) -> bool:
    """Return whether a value is the result of an operator on integers, as floats."""
    operator = index.operator_of(name)
    # integers are cast before they are scaled
    if operator == "Cast":
        return _is_product(index, index.nodes[index.producer[name]].input[0])
    return operator in PRODUCTS
