"""Find the parameters that weights in blocks were rounded from, and the blocks that were not."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from onnx import NodeProto

from onnxsurgeon_lite.graph.block_quantized import NAMES, Blocks
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.matching.weights.belonging import Belonging
from onnxsurgeon_lite.model.messages import operand
from onnxsurgeon_lite.names import first
from onnxsurgeon_lite.tensors.dtypes import Array, Shape, Wide

_ALIKE = 0.5  # the least cosine similarity of a rounded parameter
_ROUNDED = 0.52  # quanta: half a quantum, and what a narrow scale rounds
_CUT = 1.02  # quanta: at the ends of the range, where the largest number may be cut off
_USUAL = 0.05  # the share of blocks that may be worse, where each is rounded by itself
_OUTLIER = 4.0  # times the usual error of a block
_SHOWN = 3
_MATRIX = 2  # axes
_JOINED = 16  # parameters in one weight, such as q, k and v


@dataclass(frozen=True)
class Head:
    """A row of a parameter by which it is recognized."""

    shape: tuple[int, int]
    place: int
    row: Wide

    @classmethod
    def of(cls, array: Array) -> "Head":
        """Return the largest row: that of a padding token may be 0."""
        wide = array.astype(np.float32)
        place = int(np.argmax(np.square(wide).sum(1)))
        return cls((wide.shape[0], wide.shape[1]), place, wide[place].astype(np.float64))


@dataclass(frozen=True)
class BlockWeight:
    """A weight in blocks, and the parameters that it was rounded from, joined by rows."""

    blocks: Blocks
    parameters: tuple[str, ...]
    stored: Array

    def part(self, rows: slice) -> "BlockWeight":
        return replace(self, blocks=self.blocks.part(rows), stored=self.stored[rows])


def block_nodes(index: GraphIndex) -> dict[str, NodeProto]:
    """Return the first node that reads each weight in blocks, by the name of its integers."""
    found = dict[str, NodeProto]()
    for operator, slots in NAMES.items():
        for at in index.operators.get(operator, ()):
            name = operand(index.nodes[at], slots[0])
            if name in index.initializers:
                found.setdefault(name, index.nodes[at])
    return found


def scales_and_zeros(node: NodeProto) -> list[str]:
    """Return the names of the scales and zero points of a weight in blocks."""
    return [node.input[slot] for slot in NAMES[node.op_type][1:] if slot < len(node.input)]


def find_blocks(
    name: str,
    blocks: Blocks,
    heads: Mapping[str, Head],
    read: Callable[[str], Array],
    belonging: Belonging,
) -> BlockWeight | None:
    """Return the parameters whose numbers are nearest to the rows of a weight; None if there are none."""
    # parameters joined by rows, each recognized by its largest row, the nearest first
    if blocks.integers.ndim != _MATRIX:
        return None
    count, width = blocks.integers.shape
    row = _rows_of(blocks)

    # the parameters that the rows from `start` on consist of; the search goes back where the rest does not fit
    @cache
    def joined(start: int, most: int = _JOINED) -> list[str] | None:
        if start == count:
            return []
        near = []
        for each, head in heads.items() if most else ():
            # only the largest row of each candidate is compared: a cheap and sure sign
            end = start + head.shape[0]
            if head.shape[1] == width and end <= count:
                alike = _cosine(row(start + head.place), head.row)
                # nearest first; among equals, one that belongs there by its name
                near += [(-round(alike, 3), bool(belonging.rival(name, each)), each)]
        for alike, _, each in sorted(near):
            rest = joined(start + heads[each].shape[0], most - 1) if -alike > _ALIKE else None
            if rest is not None:
                return [each] + rest
        return None

    parameters = joined(0)
    if not parameters:
        return None
    stored = np.concatenate([read(each) for each in parameters])
    return BlockWeight(blocks, tuple(parameters), stored)


def _rows_of(blocks: Blocks) -> Callable[[int], Wide]:
    """Return what gives a row of the numbers."""
    # blocks run along the rows, so a row can be unpacked alone
    if blocks.grid.axis % 2:
        return lambda at: np.asarray(blocks.part(slice(at, at + 1)).numbers()[0], np.float64)
    whole = blocks.numbers()
    return lambda at: np.asarray(whole[at], np.float64)


def block_finding(weight: BlockWeight) -> str:
    """Return which blocks are not rounded from the parameter, and what of them is wrong; '' if none."""
    # rounded one by one, no number is off by more than half a quantum
    every = [_Parted.of(weight.part(rows)).judged for rows in weight.blocks.parts()]
    # per block: whether it is worse than rounding, and its mean error in quanta
    bad, size = (np.concatenate([part[n] for part in every]) for n in (0, 1))
    if bad.mean() > _USUAL:  # not rounded one by one: a block is bad by what is usual here
        bad = size > max(_OUTLIER * float(np.median(size)), 1.0)
        if np.median(size) > 1.0:
            return f"half of its blocks are more than {np.median(size):.3g} quanta off"
    places = np.argwhere(bad).tolist()
    said = [_named(weight, row, block) for row, block in places[: _SHOWN + 1]]
    # empty texts count what is not described
    return first(said + [""] * (len(places) - len(said)), _SHOWN)


def _named(weight: BlockWeight, row: int, block: int) -> str:
    if weight.blocks.grid.axis % 2:
        return _Parted.of(weight.part(slice(row, row + 1))).named(0, block, row)
    return _Parted.of(weight).named(row, block, row)


@dataclass(frozen=True)
class _Parted:
    """A weight as (row, block, element): integers without their zero points, and what they are rounded from."""

    integers: Wide
    stored: Wide
    scale: Wide
    zero: Wide
    is_end: "np.ndarray[Shape, np.dtype[np.bool_]]"

    @classmethod
    def of(cls, weight: BlockWeight) -> "_Parted":
        grid, transpose = weight.blocks.grid, weight.blocks.grid.axis % 2 == 0
        arrays = (weight.blocks.integers, weight.stored, grid.scale, grid.zero)
        # blocks along the last axis; the other layout is transposed
        integers, stored, scale, zero = (
            np.asarray(array.T if transpose else array, np.float64) for array in arrays
        )
        # rows are padded to whole blocks; what is filled up counts as exact
        rows, columns = integers.shape
        pad = ((0, 0), (0, -columns % grid.block))
        parted = [np.pad(each, pad).reshape(rows, -1, grid.block) for each in (integers, stored)]
        filled = np.pad(np.ones((rows, columns)), pad).reshape(parted[0].shape) > 0
        # a block of zeros has scale 0
        wide = np.where(scale == 0, 1.0, scale)
        is_end = (parted[0] <= grid.low) | (parted[0] >= grid.high)
        # padding has the integer 0 and the number 0
        moved = np.where(filled, parted[0] - zero[..., None], 0.0)
        return cls(moved, parted[1], wide, zero, is_end)

    @property
    def error(self) -> Wide:
        """The distance to the parameter, in quanta."""
        return np.asarray(self.integers - self.stored / self.scale[..., None])

    @property
    def judged(self) -> tuple[Array, Wide]:
        """Return which blocks are worse than rounding, and the usual error of each, in quanta."""
        error = np.abs(self.error)
        size = np.sqrt(np.square(error).mean(-1))
        return np.asarray((error > self.allowed).any(-1)), np.asarray(size, np.float64)

    @property
    def allowed(self) -> Wide:
        return np.where(self.is_end, _CUT, _ROUNDED)

    def named(self, row: int, block: int, title: int) -> str:
        """Say what of a block is wrong: its zero point, its scale, or its integers."""
        integers, stored = self.integers[row, block], self.stored[row, block]
        scale, allowed = self.scale[row, block], self.allowed[row, block]
        where = f"block {block} of row {title}"
        # a whole shift is another zero point, a factor another scale
        shift = float(np.rint(np.median(integers - stored / scale)))
        if shift and (np.abs(integers - shift - stored / scale) <= allowed).all():
            zero = self.zero[row, block]
            return f"the zero point of {where} is {zero:g}, {zero + shift:g} fits"
        # the scale by least squares
        square = float(integers @ integers)
        fits = float(integers @ stored) / square if square else 0.0
        # a scale in half precision is rounded, too: a tenth of a quantum more
        if fits and (np.abs(integers - stored / fits) <= allowed + 0.1).all():
            return f"the scale of {where} is {scale:.6g}, {fits:.6g} fits"
        return f"{where} holds other numbers"


def _cosine(one: Wide, other: Wide) -> float:
    size = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / size if size else 0.0
