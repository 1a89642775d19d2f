"""QuantizeLinear and DequantizeLinear nodes: what they quantize, and how."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import ml_dtypes
import numpy as np
from onnx import NodeProto, TensorProto

from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.schemas import constant
from onnxsurgeon_lite.model import attributes_of, integer
from onnxsurgeon_lite.tensors.dtypes import Array, Shape, Wide, is_float, numpy_dtype
from onnxsurgeon_lite.tensors.grid import Grid

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
DYNAMIC = "DynamicQuantizeLinear"
QUANTIZERS = (QUANTIZE, DEQUANTIZE, DYNAMIC)
PRODUCTS = {"MatMulInteger": "MatMul", "ConvInteger": "Conv"}
"""Operators on integers, whose products are scaled later -> the float operators."""
INTEGERS = "_quantized"
_SUFFIXES = ("_DequantizeLinear_Output", "_QuantizeLinear_Input", INTEGERS)
"""What quantization tools append to the name of a value of the float model."""


@dataclass(frozen=True)
class Form:
    """Where an operator of quantized values has its operands, result and bias: the input slot of each; -1 for none.

    Attributes:
        op_type: the float operator. plain: the slots that it reads first, as they are.
    """

    op_type: str
    operands: Shape
    result: int
    bias: int = -1
    plain: Shape = ()

    @classmethod
    def of(cls, node: NodeProto) -> "Form | None":
        form = FORMS.get(node.op_type)
        if form is None or integer(node, "channels_last"):
            return None
        return (
            form if form.operands else replace(form, operands=tuple(range(2, len(node.input), 3)))
        )


# QLinear operators read triples (value, scale, zero point): (0, 3) are the slots of two such operands, then the scale
# and the zero point of the result follow.
_OF_TWO = "MatMul Add Mul"
_OF_ONE = "Sigmoid Softmax LeakyRelu GlobalAveragePool AveragePool ReduceMean"
FORMS = {
    "QLinearConv": Form("Conv", (0, 3), 6, 8),
    "QGemm": Form("Gemm", (0, 3), 7, 6),
    **{f"QLinear{name}": Form(name, (0, 3), 6) for name in _OF_TWO.split()},
    **{f"QLinear{name}": Form(name, (0,), 3) for name in _OF_ONE.split()},
    "QLinearWhere": Form("Where", (1, 4), 7, plain=(0,)),
    "QLinearConcat": Form("Concat", (), 0),  # all that follow are operands
}


def weight_axis(node: NodeProto) -> int:
    """Return the axis of the output channels of a quantized operator's weight."""
    return 0 if node.op_type == "QLinearConv" or integer(node, "transB") else -1


@dataclass(frozen=True)
class Quantizers:
    """The quantizers of a graph whose scales and zero points are constants.

    Attributes:
        grids: the output of a DequantizeLinear -> the numbers that it can have; the input of a QuantizeLinear, or
            of a Relu before it -> the numbers that it is rounded to.
        sources: the output of a DequantizeLinear -> the input of the QuantizeLinear before it.
        before: the output of a DequantizeLinear -> the numbers that this QuantizeLinear rounds to.
        weights: outputs of DequantizeLinear nodes that read constants.
    """

    index: GraphIndex
    grids: dict[str, Grid] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    before: dict[str, Grid] = field(default_factory=dict)
    weights: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, index: GraphIndex) -> "Quantizers":
        found = cls(index)
        for node in index.nodes:
            if node.op_type not in (QUANTIZE, DEQUANTIZE):
                continue
            grid = grid_of(index, node)
            if grid is None:
                continue
            if node.op_type == QUANTIZE:
                # a Relu in between belongs to the same rounding
                for name in _cut_alike(index, node.input[0]):
                    found.grids.setdefault(name, grid)
                continue
            made = node.output[0]
            found.grids[made] = grid
            before = index.node_of(node.input[0])  # the QuantizeLinear of a pair
            if before is None:  # a constant: a quantized weight
                found.weights.add(made)
                continue
            own = grid_of(index, before) if before.op_type == QUANTIZE else None
            if own is not None:
                found.sources[made] = before.input[0]
                found.before[made] = own
        return found

    @cached_property
    def behind(self) -> Mapping[str, str]:
        """The input of a QuantizeLinear -> the output of the first DequantizeLinear behind it."""
        # reversed: the first one wins
        return {source: name for name, source in reversed(self.sources.items())}

    def origin(self, name: str) -> list[str]:
        """Return the names that a value around a pair of quantizers may have in the float model, the best first."""
        source = self.sources.get(name, name)
        # best first: the same value behind its quantizers, the name itself, the value before them
        sides = [self.behind.get(source, name), name, source] + self._read(name)
        return list(dict.fromkeys(itertools.chain(*((side, plain_name(side)) for side in sides))))

    def _read(self, name: str) -> list[str]:
        """Return what a DequantizeLinear reads, unless its scale is computed elsewhere."""
        index = self.index
        node = index.node_of(name)
        # its integers are computed with a scale that is computed, too
        if (
            node is None
            or node.op_type != DEQUANTIZE
            or index.operator_of(node.input[0]) == DYNAMIC
        ):
            return []
        return [node.input[0]]


def plain_name(name: str) -> str:
    """Return a name without what quantization tools append to it."""
    suffix = next((suffix for suffix in _SUFFIXES if name.endswith(suffix)), "")
    return name.removesuffix(suffix)


def _cut_alike(index: GraphIndex, name: str) -> Iterator[str]:
    """Yield a value, and what it is before a Relu alone reads it: tools give either one the other's name."""
    yield name
    maker = index.node_of(name)
    if maker is not None and maker.op_type == "Relu":
        before = maker.input[0]
        # the Relu is its only reader
        if len(index.consumers[before]) == 1 and before not in index.outputs:
            yield before


def grid_of(index: GraphIndex, node: NodeProto, floats: bool = False) -> Grid | None:
    """Return the grid of a QuantizeLinear or a DequantizeLinear; None if it is computed, or not of integers.

    Args:
        floats: float8 and float4 are taken, too; their numbers are no equal steps.
    """
    # the scale and, where there is one, the zero point
    given = [constant_of(index, name) for name in node.input[1:3] if name]
    attributes = attributes_of(node)
    if len(given) == 1:
        # its dtype says which integers there are
        given.append(np.zeros((), _dtype_without_zero(index, node, attributes)))
    numbers = [array for array in given if array is not None]
    # one of them is computed
    if len(numbers) != 2:
        return None
    scale, zero = numbers
    if floats and is_float(zero.dtype):
        zero = zero.astype(np.int8)
    return grid_from(scale, zero, attributes.get("axis", 1), attributes.get("block_size", 0))


def grid_from(scale: Array, zero: Array, axis: int, block: int = 0) -> Grid | None:
    """Return the grid of a scale and a zero point, one for all or as many as scales; None if they are not."""
    limits = limits_of(zero.dtype)
    # one for all is a scalar, however it is written
    wide, shift = (np.squeeze(array) if array.size == 1 else array for array in (scale, zero))
    if limits is None or (shift.ndim and wide.ndim and shift.shape != wide.shape):
        return None
    wide, shift = np.broadcast_arrays(wide, shift)
    return Grid(wide.astype(np.float64), shift.astype(np.float64), *limits, axis, block)


def quantum_of(index: GraphIndex, name: str, shape: tuple[int, ...]) -> Wide | None:
    """Return the size of a step of a quantized value, for each element (broadcast); None if it is not quantized."""
    node = index.nodes[index.producer[name]]
    # its integers are whole steps
    if node.op_type == QUANTIZE or node.op_type.startswith("QLinear"):
        return np.ones(())
    users = (index.nodes[position] for position in index.users(name))
    makers = [node] if node.op_type == DEQUANTIZE else [n for n in users if n.op_type == QUANTIZE]
    grid = grid_of(index, makers[0]) if makers else None
    return grid.quantum(shape) if grid is not None and grid.fits(shape) else None


def constant_of(index: GraphIndex, name: str) -> Array | None:
    """Return the numbers of an initializer, or of a Constant node; None for anything else."""
    tensor = constant(index, name)
    return None if tensor is None else index.model.array(tensor)


def _dtype_without_zero(
    index: GraphIndex, node: NodeProto, attributes: Mapping[str, object]
) -> np.dtype[np.generic]:
    if node.op_type == QUANTIZE:
        to = attributes.get("output_dtype", 0)
        return numpy_dtype(to if isinstance(to, int) and to else TensorProto.UINT8)
    # without a zero point, the integers say it themselves
    tensor = index.dense(node.input[0])
    return numpy_dtype(tensor.data_type if tensor else TensorProto.UINT8)


def computes_quantized(node: NodeProto) -> bool:
    """Return whether an operator computes on quantized numbers, and rounds within."""
    op = node.op_type
    started = ("QLinear", "QGemm", "QAttention", "QEmbed", "QMoE", "DynamicQuantize")
    held = ("Integer", "NBits", "Bnb4", "BlockQuantized")
    return op != DYNAMIC and (op.startswith(started) or any(part in op for part in held))


def limits_of(dtype: np.dtype[np.generic]) -> tuple[int, int] | None:
    """Return the smallest and the largest number of an integer dtype, those of ml_dtypes included, else None."""
    try:
        info = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    except ValueError:
        return None
    return int(info.min), int(info.max)
