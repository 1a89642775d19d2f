"""Weights that hold integers of a few bits, or narrow floats, with a scale for each block of them."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto

from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.quantizers import DEQUANTIZE, constant_of, grid_of, limits_of
from onnxsurgeon_lite.graph.schemas import constant
from onnxsurgeon_lite.model import attributes_of, operand
from onnxsurgeon_lite.tensors.dtypes import Array, Shape, bits_of, is_float, largest, wide
from onnxsurgeon_lite.tensors.grid import Grid
from onnxsurgeon_lite.tensors.in_file import Rows, rows_at_a_time, whole

PRODUCT, ROWS = "MatMulNBits", "GatherBlockQuantized"
BITS = (2, 4, 8)
"""Bits that an integer may have."""

NAMES = {PRODUCT: (1, 2, 3), ROWS: (0, 2, 3), DEQUANTIZE: (0, 1, 2)}
"""Operator -> the inputs with its integers, its scales and its zero points."""


@dataclass(frozen=True)
class Blocks:
    """A weight of integers with a scale and a zero point for each block of one axis.

    Attributes:
        packed: the integers, float8 or float4 in their place, or bytes that hold several along the last axis.
        shape: of the weight: (columns, rows) of a MatMulNBits.
        dtype: of the numbers that they mean.
        bits: of each integer.
    """

    packed: Rows
    shape: Shape
    grid: Grid
    dtype: "np.dtype[np.generic]"
    bits: int

    @property
    def integers(self) -> Array:
        """The integers in the shape of the weight: made anew each time, as they may take much more than their bytes."""
        packed = whole(self.packed)
        if packed.dtype != np.uint8:
            return packed
        # the last byte of a row may hold more
        return unpacked(packed, self.bits)[..., : self.shape[-1]]

    def numbers(self) -> Array:
        """Return the numbers that the integers mean."""
        made = np.empty(self.shape, self.dtype)
        for rows in self.parts():
            part = self.part(rows)
            made[rows] = part.grid.numbers(part.integers)
        return made

    def parts(self) -> Iterable[slice]:
        """Yield rows that are computed together: float64 takes 16 times the memory of 4 bits."""
        # blocks that span several rows are not cut
        if self.grid.axis:
            return rows_at_a_time(self.shape)
        return [slice(0, self.shape[0])]

    def part(self, rows: slice) -> "Blocks":
        """Return some rows: those of whole blocks, or one."""
        # where blocks run down the rows, several rows have one scale
        span = 1 if self.grid.axis else self.grid.block
        own = slice(rows.start // span, -(-rows.stop // span))
        # float64 here alone: all scales of a large weight take much memory
        grid = self.grid
        grid = replace(grid, scale=wide(grid.scale[own]), zero=wide(grid.zero[own]))
        packed = self.packed[rows]
        return replace(self, packed=packed, shape=(len(packed), *self.shape[1:]), grid=grid)


def blocks_of(index: GraphIndex, node: NodeProto) -> Blocks | str:
    """Return the weight of a node that has one in blocks, or why it is not known."""
    slots = NAMES.get(node.op_type)
    if slots is None:
        return "its weight has no blocks"
    tensor = constant(index, operand(node, slots[0]))
    # integers are read some rows at a time
    integers = None if tensor is None else index.model.rows(tensor)
    scales, zeros = (constant_of(index, operand(node, slot)) for slot in slots[1:])
    # an input is omitted only if its name is
    if integers is None or scales is None or (zeros is None) != (not operand(node, slots[2])):
        return "its weight, its scales or its zero points are computed"
    attributes = attributes_of(node)
    if node.op_type == DEQUANTIZE:
        return _dequantized(integers, grid_of(index, node, floats=True), scales)
    if attributes.get("bits", 4) not in BITS:
        return f"bits = {attributes['bits']} is not known"
    if node.op_type == ROWS:
        return _rows(integers, scales, zeros, attributes)
    if permutation := operand(node, 4):  # of the rows, as GPTQ writes it
        return f"its rows are permuted by g_idx {permutation!r}"
    if attributes.get("weight_prepacked"):
        return "its weight is packed for one kind of device"
    return _product(integers, scales, zeros, attributes)


def _dequantized(integers: Rows, grid: Grid | None, scales: Array) -> Blocks | str:
    if grid is None or not grid.block or integers.ndim != 2:
        return "its weight has no blocks"
    if is_float(integers.dtype):
        high = int(largest(integers.dtype))
        grid = replace(grid, low=-high, high=high)
    numbers = whole(integers)
    bits = bits_of(integers.dtype)
    # a product reads columns [in, out]: the weight is [out, in], as MatMulNBits has it
    if not grid.axis % 2:  # 0 or -2
        numbers = numbers.T
        grid = replace(grid, scale=grid.scale.T, zero=grid.zero.T)
    return Blocks(numbers, numbers.shape, replace(grid, axis=1), scales.dtype, bits)


def _product(
    packed: Rows, scales: Array, zeros: Array | None, sizes: Mapping[str, int]
) -> Blocks | str:
    columns, rows, block = (sizes.get(name, 0) for name in ("N", "K", "block_size"))
    bits = sizes.get("bits", 4)
    count = -(-rows // max(block, 1))  # blocks of a column, rounded up
    if min(columns, rows, block) < 1 or 8 * packed.size != columns * count * block * bits:
        return "its weight does not have the size that N, K and block_size give"
    # packed like the weight; zero points of other dtypes are one number each
    if zeros is not None and zeros.dtype == np.uint8:
        if zeros.size != columns * -(-count * bits // 8):
            return "its zero points are not one for each block"
        zeros = unpacked(zeros.reshape(columns, -1), bits)
    return _made(packed.reshape((columns, -1)), (columns, rows), scales, zeros, 1, block, bits)


def _rows(data: Rows, scales: Array, zeros: Array | None, sizes: Mapping[str, int]) -> Blocks | str:
    bits = sizes.get("bits", 4)
    block = sizes.get("block_size", 128)
    shape = data.shape
    if data.dtype == np.uint8:
        shape = data.shape[:-1] + (data.shape[-1] * 8 // bits,)
        zeros = zeros if zeros is None else unpacked(zeros, bits)
    elif limits_of(data.dtype) is None:
        return f"its weight is {data.dtype}"
    axis = sizes.get("quantize_axis", 1)
    if not -data.ndim <= axis < data.ndim or block < 1:
        return "its blocks have no axis"
    return _made(data, shape, scales, zeros, axis % data.ndim, block, bits)


def _made(
    packed: Rows,
    shape: Shape,
    scales: NDArray[Any],
    zeros: NDArray[Any] | None,
    axis: int,
    block: int,
    bits: int,
) -> Blocks | str:
    # where nothing says it, 0 is at the middle of what bytes hold, and of what signed integers do
    low, high = limits_of(packed.dtype) or (0, 0)
    middle = 0
    if packed.dtype == np.uint8:
        low = 0
        high = 2**bits - 1
        middle = 1 << bits - 1
    # how many scales there are along each axis
    counts = [-(-size // block) if at == axis else size for at, size in enumerate(shape)]
    if zeros is None:
        zeros = np.broadcast_to(np.float64(middle), counts)
    elif zeros.dtype == np.uint8 and zeros.ndim == len(counts):
        zeros = zeros[..., : counts[-1]]  # the last byte may hold more than there are
    if {scales.size, zeros.size} != {math.prod(counts)}:
        return "its scales or its zero points are not one for each block"
    # of the dtypes that they have: `Blocks.part` makes them float64
    grid = Grid(scales.reshape(counts), zeros.reshape(counts), low, high, axis, block)
    return Blocks(packed, shape, grid, scales.dtype, bits)


def unpacked(packed: Array, bits: int) -> Array:
    """Return the numbers of a few bits each that bytes hold along the last axis, the lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)  # 4 bits: [0, 4]
    # by a table of all bytes, in a tenth of the time that shifts take
    table = np.arange(256, dtype=np.uint8)[:, None] >> shifts & np.uint8(2**bits - 1)
    return np.take(table, packed.astype(np.uint8), axis=0).reshape(*packed.shape[:-1], -1)
