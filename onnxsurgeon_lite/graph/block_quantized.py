"""Weights of onnxruntime's operators that hold integers of a few bits, with a scale for each block of them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from onnx import NodeProto

from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.quantizers import constant_of, limits_of
from onnxsurgeon_lite.tensors.dtypes import Array
from onnxsurgeon_lite.tensors.grid import Grid

PRODUCT, ROWS = "MatMulNBits", "GatherBlockQuantized"
_MATRIX = 2  # axes
_TOGETHER = 1 << 21  # numbers that are computed at a time
BITS = (2, 4, 8)
"""Bits that an integer may have."""

NAMES = {PRODUCT: (1, 2, 3), ROWS: (0, 2, 3)}
"""Operator -> the inputs with its integers, its scales and its zero points."""


@dataclass(frozen=True)
class Blocks:
    """A weight of integers with a scale and a zero point for each block of one axis.

    Attributes:
        integers: in the shape of the weight: (columns, rows) of a MatMulNBits.
        dtype: of the numbers that they mean.
        bits: of each integer.
    """

    integers: Array
    grid: Grid
    dtype: "np.dtype[np.generic]"
    bits: int

    def numbers(self) -> Array:
        """Return the numbers that the integers mean."""
        made = np.empty(self.integers.shape, self.dtype)
        for rows in self.parts():
            part = self.part(rows)
            made[rows] = part.grid.numbers(part.integers)
        return made

    @property
    def is_by_rows(self) -> bool:
        """Whether blocks lie within rows: then rows can be taken apart."""
        return self.integers.ndim == _MATRIX and self.grid.axis % 2 > 0

    def parts(self) -> Iterator[slice]:
        """Yield rows that are computed together: float64 takes 16 times the memory of 4 bits."""
        count = len(self.integers)
        step = max(1, _TOGETHER // max(1, self.integers.shape[1]) if self.is_by_rows else count)
        yield from (slice(at, at + step) for at in range(0, count, step))

    def part(self, rows: slice) -> "Blocks":
        """Return some rows, where that can be done."""
        if not self.is_by_rows:
            return self
        grid = replace(self.grid, scale=self.grid.scale[rows], zero=self.grid.zero[rows])
        return replace(self, integers=self.integers[rows], grid=grid)


def blocks_of(index: GraphIndex, node: NodeProto) -> Blocks | str:
    """Return the weight of a node that has one in blocks, or why it is not known."""
    slots, names = NAMES.get(node.op_type), list(node.input) + ([""] * 6)
    if slots is None:
        return "its weight has no blocks"
    given = [constant_of(index, names[slot]) if names[slot] else None for slot in slots]
    integers, scales, zeros = given
    # an input is omitted only if its name is
    if integers is None or scales is None or (zeros is None) != (not names[slots[2]]):
        return "its weight, its scales or its zero points are computed"
    attributes = {a.name: a.i for a in node.attribute}
    if attributes.get("bits", 4) not in BITS:
        return f"bits = {attributes['bits']} is not known"
    if node.op_type == ROWS:
        return _rows(integers, scales, zeros, attributes)
    if names[4]:  # a permutation of the rows, as GPTQ writes it
        return f"its rows are permuted by g_idx {names[4]!r}"
    if attributes.get("weight_prepacked"):
        return "its weight is packed for one kind of device"
    return _product(integers, scales, zeros, attributes)


def _product(
    packed: Array, scales: Array, zeros: Array | None, sizes: Mapping[str, int]
) -> Blocks | str:
    columns, rows, block = (sizes.get(name, 0) for name in ("N", "K", "block_size"))
    bits = sizes.get("bits", 4)
    count = -(-rows // max(block, 1))  # blocks of a column, rounded up
    if min(columns, rows, block) < 1 or 8 * packed.size != columns * count * block * bits:
        return "its weight does not have the size that N, K and block_size give"
    # packed like the weight; zero points of other dtypes are one number each
    if zeros is not None and zeros.dtype == np.uint8:
        bytes_of_row = -(-count * bits // 8)
        if zeros.size != columns * bytes_of_row:
            return "its zero points are not one for each block"
        # the last byte of a column may hold more
        zeros = unpacked(zeros.reshape(columns, -1), bits)[:, :count]
    integers = unpacked(packed.reshape(columns, -1), bits)[:, :rows]
    return _made(integers, scales, zeros, (columns, count), 1, block, bits)


def _rows(
    data: Array, scales: Array, zeros: Array | None, sizes: Mapping[str, int]
) -> Blocks | str:
    bits, block = sizes.get("bits", 4), sizes.get("block_size", 128)
    if data.dtype == np.uint8:
        data = unpacked(data, bits)
        zeros = zeros if zeros is None else unpacked(zeros, bits)
    elif limits_of(data.dtype) is None:
        return f"its weight is {data.dtype}"
    axis = sizes.get("quantize_axis", 1)
    if not -data.ndim <= axis < data.ndim or block < 1:
        return "its blocks have no axis"
    axis %= data.ndim
    shape = [-(-size // block) if at == axis else size for at, size in enumerate(data.shape)]
    if zeros is not None and zeros.ndim == len(shape):
        zeros = zeros[..., : shape[-1]]  # the last byte may hold more than there are
    # signed integers are centered at 0 already; bytes at their middle
    if data.dtype != np.uint8 and zeros is None:
        zeros = np.zeros(shape)
    return _made(data, scales, zeros, shape, axis, block, bits)


def _made(
    integers: Array,
    scales: Array,
    zeros: Array | None,
    shape: Sequence[int],
    axis: int,
    block: int,
    bits: int,
) -> Blocks | str:
    sizes = {scales.size, scales.size if zeros is None else zeros.size}
    if sizes != {math.prod(shape)}:
        return "its scales or its zero points are not one for each block"
    middle = 1 << bits - 1  # 8 for 4 bits: the zero point where none is given
    shift = np.full(shape, middle) if zeros is None else zeros.reshape(shape)
    low, high = limits_of(integers.dtype) or (0, 0)
    if integers.dtype == np.uint8:  # bytes that hold numbers of a few bits
        low, high = 0, 2 * middle - 1
    grid = Grid(
        scales.reshape(shape).astype(np.float64), shift.astype(np.float64), low, high, axis, block
    )
    return Blocks(integers, grid, scales.dtype, bits)


def unpacked(packed: Array, bits: int) -> Array:
    """Return the numbers of a few bits each that bytes hold along the last axis, the lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)  # 4 bits: [0, 4]
    numbers = (packed.astype(np.uint8)[..., None] >> shifts) & np.uint8(2**bits - 1)
    return np.asarray(numbers.reshape(*packed.shape[:-1], -1))
