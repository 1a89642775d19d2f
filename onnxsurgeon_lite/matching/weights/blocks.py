"""Compare block-quantized weights with a checkpoint.

Such a weight has integers, with a scale and a zero point for each block (MatMulNBits). `find_blocks` finds the
parameters that were rounded to it; `block_finding` says which blocks are not what rounding gives, and why.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from onnx import NodeProto

from onnxsurgeon_lite.graph.block_quantized import NAMES, Blocks
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.matching.weights.belonging import Belonging
from onnxsurgeon_lite.matching.weights.pieces import in_a_row
from onnxsurgeon_lite.model.messages import operand
from onnxsurgeon_lite.names import first
from onnxsurgeon_lite.tensors.comparison import Comparison, Tolerance, compare
from onnxsurgeon_lite.tensors.dtypes import Array, Wide
from onnxsurgeon_lite.tensors.in_file import Rows, parts

_ALIKE = 0.5  # the least cosine similarity of a rounded parameter
_ROUNDED = 0.52  # the largest error of rounding, in quanta: a half, and what a narrow scale rounds
_CUT = 1.02  # the same at the ends of the range, where the largest number may be cut off
_USUAL = 0.05  # the share of blocks that may exceed this where each number is rounded by itself
_OUTLIER = 4.0  # times the usual error of a block
_SHOWN = 3  # blocks that are described
_NEAR = Tolerance(allow=1.0)  # words say what a block has wrong
_MATRIX = 2  # axes


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
    def of(cls, parameter: Rows) -> "Head":
        """Return the largest row of a parameter."""
        # read twice: all rows for their sizes, then the largest
        squares = np.concatenate([_squares(part) for part in parts(parameter)])
        place = int(squares.argmax())
        rows, width = parameter.shape
        return cls((rows, width), place, parameter[place : place + 1][0].astype(np.float64))


def _squares(rows: Array) -> Array:
    # einsum adds up without another array of squares
    wide = rows.astype(np.float32)
    return np.asarray(np.einsum("ij,ij->i", wide, wide))


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
    return [operand(node, slot) for slot in NAMES[node.op_type][1:]]


def find_blocks(
    name: str, blocks: Blocks, heads: Mapping[str, Head], belonging: Belonging
) -> list[str]:
    """Return the parameters whose numbers are nearest to the rows of a weight; none if there are none.

    Several parameters may be joined by rows, such as q, k and v. The search goes from the first row to the last: at
    each place it tries the parameters that are alike there, and goes back where the remaining rows fit none.

    Args:
        name: the weight.
        heads: candidates.
        belonging: decides by names among parameters that are equally near.
    """
    if len(blocks.shape) != _MATRIX:
        return []
    nearest = partial(_nearest, name, blocks, heads, belonging)
    return in_a_row(blocks.shape[0], nearest, lambda each: heads[each].shape[0]) or []


def _nearest(
    name: str, blocks: Blocks, heads: Mapping[str, Head], belonging: Belonging, start: int
) -> list[str]:
    """Return the parameters that may be in a weight from some row on, the most alike first.

    Among equals, one that belongs there by its name is the first. Only the row of each head is compared, a cheap and
    sure sign.
    """
    near = []
    count, width = blocks.shape
    for parameter, head in heads.items():
        # the parameter is wider or narrower, or longer than the rest of the weight
        if head.shape[1] != width or start + head.shape[0] > count:
            continue
        at = start + head.place
        row = blocks.part(slice(at, at + 1)).numbers()[0].astype(np.float64)
        size = np.linalg.norm(row) * np.linalg.norm(head.row)
        alike = round(float(row @ head.row / size), 3) if size else 0.0
        if alike > _ALIKE:
            rivals = bool(belonging.rival(name, parameter))
            near.append((-alike, rivals, parameter))
    return [parameter for *_, parameter in sorted(near)]


def examined(blocks: Blocks, stored: Sequence[Rows]) -> tuple[str, Comparison]:
    """Say which blocks are not rounded from the parameters, and what is wrong with them; '' if none.

    Args:
        stored: the parameters, which follow one another by rows.

    Returns:
        also the comparison of the rows that differ most: rounding makes all differ.
    """
    # (whether each block is bad, its error, the largest distance) of some rows at a time: numbers take much memory
    places = list(blocks.parts())
    judged = [_Parted.of(blocks, stored, rows).judged() for rows in places]
    bad, size = (np.concatenate([each[at] for each in judged]) for at in (0, 1))
    # only the rows that are farthest off are compared in full
    farthest = places[int(np.argmax([each[2] for each in judged]))]
    numbers = _joined(stored, farthest).astype(blocks.dtype)
    comparison = compare(blocks.part(farthest).numbers(), numbers, _NEAR)
    usual = float(np.median(size))
    # too many are bad: the numbers were not rounded one by one (as GPTQ), so only outliers are wrong
    if bad.mean() > _USUAL:
        bad = size > max(_OUTLIER * usual, 1.0)
        if usual > 1.0:
            return f"half of its blocks are more than {usual:.3g} quanta off", comparison
    found = np.argwhere(bad).tolist()
    described = []
    for row, block in found[: _SHOWN + 1]:
        # of all rows only those around it are read
        near = next(rows for rows in places if row < rows.stop)
        part = _Parted.of(blocks, stored, near)
        described.append(part.described(row - near.start, block, row))
    # empty texts count what is not described
    return first(described + [""] * (len(found) - len(described)), _SHOWN), comparison


def _joined(stored: Sequence[Rows], rows: slice) -> Array:
    """Return some rows of parameters that follow one another."""
    start, found = 0, []
    for each in stored:
        own = slice(max(rows.start - start, 0), max(rows.stop - start, 0))
        found.append(each[own])
        start += each.shape[0]
    return np.concatenate(found)


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
    def of(cls, blocks: Blocks, stored: Sequence[Rows], rows: slice) -> "_Parted":
        blocks, parameter = blocks.part(rows), _joined(stored, rows)
        grid = blocks.grid
        integers = blocks.integers.astype(np.float64)
        is_end = (integers <= grid.low) | (integers >= grid.high)
        moved = integers - grid.origin(blocks.shape)
        right = parameter.astype(np.float64)
        allowed = np.where(is_end, _CUT, _ROUNDED)
        # blocks along the last axis; the other layout is transposed
        whole = [a if grid.axis else a.T for a in (moved, right, allowed, grid.scale, grid.zero)]
        # rows are padded to whole blocks: what is filled up is 0 on both sides, whatever the zero point
        filled = list(zip(whole[:3], (0, 0, np.inf), strict=True))
        pad = (0, 0), (0, -whole[0].shape[1] % grid.block)
        if any(pad[1]):
            filled = [(np.pad(each, pad, constant_values=value), value) for each, value in filled]
        made = [each.reshape(len(each), -1, grid.block) for each, _ in filled]
        # a block of zeros has scale 0
        wide = np.where(whole[3] == 0, 1.0, whole[3])
        return cls(made[0], made[1], wide, whole[4], made[2])

    def judged(self) -> tuple[Array, Wide, float]:
        """Return for each block whether rounding does not explain it, and its error (RMS) in quanta.

        Returns:
            also the largest distance of two numbers.
        """
        # the distance to the parameter, in quanta
        error = np.abs(self.integers - self.stored / self.scale[..., None])
        size = np.sqrt(np.square(error).mean(-1))
        farthest = float((error.max(-1) * self.scale).max())
        return np.asarray((error > self.allowed).any(-1)), np.asarray(size, np.float64), farthest

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
