"""Compare block-quantized weights with a checkpoint.

Such a weight has integers, with a scale and a zero point for each block (MatMulNBits). `find_blocks` finds the
parameters that were rounded to it; `block_finding` says which blocks are not what rounding gives, and why.
"""

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
from onnxsurgeon_lite.tensors.dtypes import Array, Wide

_ALIKE = 0.5  # the least cosine similarity of a rounded parameter
_ROUNDED = 0.52  # the largest error of rounding, in quanta: a half, and what a narrow scale rounds
_CUT = 1.02  # the same at the ends of the range, where the largest number may be cut off
_USUAL = 0.05  # the share of blocks that may exceed this where each number is rounded by itself
_OUTLIER = 4.0  # times the usual error of a block
_SHOWN = 3  # blocks that are described
_MATRIX = 2  # axes
_JOINED = 16  # parameters in one weight, such as q, k and v


@dataclass(frozen=True)
class Head:
    """The row of a parameter by which it is recognized: the largest one, as others may be 0 (a padding token's).

    Attributes:
        shape: of the parameter.
        place: the number of the row.
    """

    shape: tuple[int, int]
    place: int
    row: Wide

    @classmethod
    def of(cls, array: Array) -> "Head":
        """Return the largest row of a parameter."""
        # without a copy of all numbers
        squares = np.einsum("ij,ij->i", array, array, dtype=np.float32, casting="unsafe")
        place = int(squares.argmax())
        rows, width = array.shape
        return cls((rows, width), place, array[place].astype(np.float64))


@dataclass(frozen=True)
class BlockWeight:
    """A block-quantized weight, and the parameters that were rounded to it.

    Attributes:
        stored: the numbers of the parameters, joined by rows.
    """

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
    """Return the parameters whose numbers are nearest to the rows of a weight; None if there are none.

    Several parameters may be joined by rows, such as q, k and v. The search goes from the first row to the last: at
    each place it tries the parameters that are alike there, and goes back where the remaining rows fit none.

    Args:
        name: the weight.
        heads: candidates.
        read: reads the numbers of a parameter.
        belonging: decides by names among parameters that are equally near.
    """
    if len(blocks.shape) != _MATRIX:
        return None
    nearest = _Nearest(name, blocks, heads, belonging).at

    # the parameters that the rows from `start` on consist of
    @cache
    def joined(start: int, most: int = _JOINED) -> list[str] | None:
        if start == blocks.shape[0]:
            return []
        for each in nearest(start) if most else ():
            rest = joined(start + heads[each].shape[0], most - 1)
            if rest is not None:
                return [each] + rest
        return None

    parameters = joined(0)
    if not parameters:
        return None
    parts = [read(each) for each in parameters]
    # one alone is not copied
    stored = np.concatenate(parts) if parts[1:] else parts[0]
    return BlockWeight(blocks, tuple(parameters), stored)


@dataclass(frozen=True)
class _Nearest:
    """Finds the parameters that may be in a weight from some row on."""

    name: str
    blocks: Blocks
    heads: Mapping[str, Head]
    belonging: Belonging

    def at(self, start: int) -> list[str]:
        """Return them, the most alike first; among equals, one that belongs there by its name is the first.

        Only the row of each head is compared, a cheap and sure sign.
        """
        near = []
        count, width = self.blocks.shape
        for parameter, head in self.heads.items():
            # the parameter is wider or narrower, or longer than the rest of the weight
            if head.shape[1] != width or start + head.shape[0] > count:
                continue
            at = start + head.place
            row = self.blocks.part(slice(at, at + 1)).numbers()[0].astype(np.float64)
            size = np.linalg.norm(row) * np.linalg.norm(head.row)
            alike = round(float(row @ head.row / size), 3) if size else 0.0
            if alike > _ALIKE:
                rivals = bool(self.belonging.rival(self.name, parameter))
                near.append((-alike, rivals, parameter))
        return [parameter for *_, parameter in sorted(near)]


def block_finding(weight: BlockWeight) -> str:
    """Say which blocks are not rounded from the parameter, and what is wrong with them; '' if none."""
    # (whether each block is bad, its error) of some rows at a time: the numbers take much memory
    judged = [_Parted.of(weight.part(rows)).judged() for rows in weight.blocks.parts()]
    bad, size = (np.concatenate(each) for each in zip(*judged, strict=True))
    usual = float(np.median(size))
    # too many are bad: the numbers were not rounded one by one (as GPTQ), so only outliers are wrong
    if bad.mean() > _USUAL:
        bad = size > max(_OUTLIER * usual, 1.0)
        if usual > 1.0:
            return f"half of its blocks are more than {usual:.3g} quanta off"
    places = np.argwhere(bad).tolist()
    described = [_described(weight, row, block) for row, block in places[: _SHOWN + 1]]
    # empty texts count what is not described
    return first(described + [""] * (len(places) - len(described)), _SHOWN)


def _described(weight: BlockWeight, row: int, block: int) -> str:
    # blocks along rows: a row can be read alone
    if weight.blocks.grid.axis % 2:
        return _Parted.of(weight.part(slice(row, row + 1))).described(0, block, row)
    return _Parted.of(weight).described(row, block, row)


@dataclass(frozen=True)
class _Parted:
    """A weight as arrays of (row, block, element).

    Attributes:
        integers: less their zero points.
        stored: the numbers that they should be rounded from.
        scale, zero: of each block.
        allowed: the largest distance to them that rounding explains, in quanta.
    """

    integers: Wide
    stored: Wide
    scale: Wide
    zero: Wide
    allowed: Wide

    @classmethod
    def of(cls, weight: BlockWeight) -> "_Parted":
        blocks = weight.blocks
        grid = blocks.grid
        integers = blocks.integers.astype(np.float64)
        is_end = (integers <= grid.low) | (integers >= grid.high)
        moved = integers - grid.origin(blocks.shape)
        stored = weight.stored.astype(np.float64)
        allowed = np.where(is_end, _CUT, _ROUNDED)
        # blocks along the last axis; the other layout is transposed
        whole = [a if grid.axis else a.T for a in (moved, stored, allowed, grid.scale, grid.zero)]
        # rows are padded to whole blocks: what is filled up is 0 on both sides, whatever the zero point
        rows, columns = whole[0].shape
        pad = ((0, 0), (0, -columns % grid.block))
        shape = (rows, -1, grid.block)
        filled = [
            np.pad(array, pad, constant_values=value).reshape(shape)
            for array, value in zip(whole, (0, 0, np.inf), strict=False)
        ]
        # a block of zeros has scale 0
        wide = np.where(whole[3] == 0, 1.0, whole[3])
        return cls(filled[0], filled[1], wide, whole[4], filled[2])

    def judged(self) -> tuple[Array, Wide]:
        """Return for each block whether rounding does not explain it, and its error (RMS) in quanta."""
        # the distance to the parameter, in quanta
        error = np.abs(self.integers - self.stored / self.scale[..., None])
        size = np.sqrt(np.square(error).mean(-1))
        return np.asarray((error > self.allowed).any(-1)), np.asarray(size, np.float64)

    def described(self, row: int, block: int, title: int) -> str:
        """Say what is wrong with a block: its zero point, its scale, or its integers.

        Args:
            title: the number of the row in the whole weight.
        """
        integers = self.integers[row, block]
        stored = self.stored[row, block]
        scale = self.scale[row, block]
        allowed = self.allowed[row, block]
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
