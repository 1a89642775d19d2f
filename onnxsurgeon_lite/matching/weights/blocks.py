"""Compare block-quantized weights with a checkpoint.

Such a weight has integers, with a scale and a zero point for each block (MatMulNBits). `find_blocks` finds the
parameters that were rounded to it; `block_finding` says which blocks are not what rounding gives, and why.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto

from onnxsurgeon_lite.graph import DEQUANTIZE, GraphIndex
from onnxsurgeon_lite.graph.block_quantized import NAMES, Blocks
from onnxsurgeon_lite.matching.weights.belonging import Belonging
from onnxsurgeon_lite.matching.weights.pieces import in_a_row
from onnxsurgeon_lite.model.messages import integer, operand
from onnxsurgeon_lite.names import first
from onnxsurgeon_lite.tensors.comparison import Comparison, Tolerance, compare
from onnxsurgeon_lite.tensors.dtypes import Array, DType, Wide, is_float, rms, spacing, wide
from onnxsurgeon_lite.tensors.grid import Grid
from onnxsurgeon_lite.tensors.in_file import Rows

Single = NDArray[np.float32]

_ALIKE = 0.5  # the least cosine similarity of a rounded parameter
_ROUNDED = 0.52  # the largest error of rounding, in quanta: a half, and what a narrow scale rounds
_CUT = 1.02  # the same at the ends of the range, where the largest number may be cut off
_USUAL = 0.05  # the share of blocks that may exceed this where each number is rounded by itself
_OUTLIER = 4.0  # times the usual error of a block
_SHOWN = 3  # blocks that are described
_NEAR = Tolerance(allow=1.0)  # words say what a block has wrong
_SEEN = 64  # rows


@dataclass(frozen=True)
class Head:
    """The row of a parameter by which it is recognized: the largest of some, as others may be 0 (a padding token's).

    Attributes:
        shape: of the parameter.
        place: the number of the row.
    """

    shape: tuple[int, int]
    place: int
    row: Wide

    @classmethod
    def of(cls, parameter: Rows) -> "Head":
        """Return the largest of rows that are evenly spaced."""
        count, width = parameter.shape
        rows = {at: wide(parameter[at : at + 1][0]) for at in range(0, count, -(-count // _SEEN))}
        place = max(rows, key=lambda at: rms(rows[at]))
        return cls((count, width), place, rows[place])


def block_nodes(index: GraphIndex) -> dict[str, NodeProto]:
    """Return the first node that reads each weight in blocks, by the name of its integers."""
    found = dict[str, NodeProto]()
    for operator, slots in NAMES.items():
        for at in index.operators.get(operator, ()):
            node = index.nodes[at]
            name = operand(node, slots[0])
            # a DequantizeLinear may have no blocks
            if name in index.initializers and integer(node, "block_size", operator != DEQUANTIZE):
                found.setdefault(name, node)
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
    if len(blocks.shape) != 2:  # only a matrix has rows of parameters
        return []
    nearest = partial(_nearest, name, blocks, heads, belonging)
    return in_a_row(blocks.shape[0], nearest, lambda each: heads[each].shape[0])


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
            near.append((-alike, bool(belonging.rival(name, parameter)), parameter))
    return [parameter for *_, parameter in sorted(near)]


def examined(blocks: Blocks, stored: Sequence[Rows]) -> tuple[str, Comparison]:
    """Say which blocks are not rounded from the parameters, and what is wrong with them; '' if none.

    Args:
        stored: the parameters, which follow one another by rows.

    Returns:
        also the comparison of the rows that differ most: rounding makes all differ.
    """
    places, of = list(blocks.parts()), partial(_Parted.of, blocks, stored)
    # Some rows at a time: numbers take much memory. numpy lets another thread work or read meanwhile; on two cores,
    # three are no faster than two, and each takes 5 MB.
    with ThreadPoolExecutor(2) as pool:
        judged = pool.map(lambda rows: of(rows).judged(), places)
        # of each: which blocks are bad, and the largest distance
        judgements, distances = zip(*judged, strict=True)
    bad = np.concatenate(judgements)
    # only the rows that are farthest off are compared in full
    farthest = places[int(np.argmax(distances))]
    right = _joined(stored, farthest).astype(blocks.dtype)
    comparison = compare(blocks.part(farthest).numbers(), right, _NEAR)
    # too many are bad: the numbers were not rounded one by one (as GPTQ), so only outliers are wrong
    if bad.mean() > _USUAL:
        size = np.concatenate([of(rows).size() for rows in places])
        usual = float(np.median(size))
        bad = size > max(_OUTLIER * usual, 1.0)
        if usual > 1.0:
            return f"half of its blocks are more than {usual:.3g} quanta off", comparison
    found = np.argwhere(bad).tolist()
    described = []
    for row, block in found[:_SHOWN]:
        # of all rows only those around it are read
        near = next(rows for rows in places if row < rows.stop)
        described.append(of(near).described(row - near.start, block, row))
    # empty texts count what is not described
    return first(described + [""] * (len(found) - len(described)), _SHOWN), comparison


def _joined(stored: Sequence[Rows], rows: slice) -> Array:
    """Return some rows of parameters that follow one another."""
    start, found = 0, []
    for each in stored:
        found.append(each[max(rows.start - start, 0) : max(rows.stop - start, 0)])
        start += each.shape[0]
    return np.concatenate(found)


@dataclass(frozen=True)
class _Parted:
    """A weight as arrays of (row, block, element), in float32.

    Attributes:
        integers: less their zero points.
        stored: the numbers that they should be rounded from.
        scale, zero: of each block; a block of zeros has the scale 1.
        grid: its range is that of the integers.
        dtype: of the integers; floats in their place are farther apart the larger they are.
    """

    integers: Single
    stored: Single
    scale: Single
    zero: Single
    grid: Grid
    dtype: DType

    @classmethod
    def of(cls, blocks: Blocks, stored: Sequence[Rows], rows: slice) -> "_Parted":
        blocks = blocks.part(rows)
        grid = blocks.grid
        # numpy 2 makes float64 of float16 in half the time that float32 takes
        sides = blocks.integers, wide(_joined(stored, rows)), grid.scale, grid.zero
        # blocks along the last axis; the other layout is transposed
        integers, right, scale, zero = (
            (each if grid.axis else each.T).astype(np.float32) for each in sides
        )
        # rows are filled up to whole blocks
        count, width = integers.shape
        if spare := -width % grid.block:
            integers, right = (np.pad(each, ((0, 0), (0, spare))) for each in (integers, right))
        moved = integers.reshape(count, -1, grid.block)
        moved -= zero[..., None]
        # what is filled up is 0 on both sides, whatever the zero point
        moved.reshape(count, -1)[:, width:] = 0
        scale[scale == 0] = 1
        return cls(moved, right.reshape(moved.shape), scale, zero, grid, blocks.packed.dtype)

    def judged(self) -> tuple[Array, float]:
        """Return which blocks rounding does not explain, and the largest distance of two numbers."""
        # in as few passes as possible: each number of a model goes through them
        distance = self.integers * self.scale[..., None]
        distance -= self.stored
        np.abs(distance, out=distance)
        least = np.abs(self.scale) * float(spacing(0, self.dtype))
        far = np.flatnonzero(distance > _ROUNDED * least[..., None])
        # of few numbers: those at the ends of the range may be farther off, and large floats
        block = far // self.grid.block
        scale, zero = self.scale.ravel()[block], self.zero.ravel()[block]
        integers = self.integers.ravel()[far]
        off = np.abs(integers - self.stored.ravel()[far] / scale) > self._allowed(integers + zero)
        bad = np.zeros_like(self.scale, np.bool_)
        bad.flat[block[off]] = True
        return bad, float(distance.max())

    def size(self) -> Single:
        """Return the error (RMS) of each block in quanta."""
        error = self.integers - self.stored / self.scale[..., None]
        error /= spacing(self.integers, self.dtype)
        return np.asarray(np.sqrt(np.square(error).mean(-1)))

    def _allowed(self, integers: Single) -> Wide:
        """Return the largest distance that rounding explains, in quanta."""
        is_end = (integers <= self.grid.low) | (integers >= self.grid.high)
        return np.where(is_end, _CUT, _ROUNDED) * spacing(integers, self.dtype)

    def described(self, row: int, block: int, title: int) -> str:
        """Say what is wrong with a block: its zero point, its scale, or its integers.

        Args:
            title: the number of the row in the whole weight.
        """
        arrays = self.integers, self.stored, self.scale, self.zero
        integers, stored, scale, zero = (each[row, block] for each in arrays)
        allowed = self._allowed(integers + zero)
        where = f"block {block} of row {title}"
        # a whole shift is another zero point, a factor another scale
        shift = float(np.rint(np.median(integers - stored / scale)))
        shift *= not is_float(self.dtype)
        if shift and (np.abs(integers - shift - stored / scale) <= allowed).all():
            return f"the zero point of {where} is {zero:g}, {zero + shift:g} fits"
        # each number says between which two ends 1 / scale is; integers that are all 0 say nothing
        with np.errstate(divide="ignore"):
            ends = np.array([integers - allowed, integers + allowed]) / stored
        lowest, highest = ends.min(0).max(), ends.max(0).min()
        if lowest <= highest and 0 < lowest * highest < np.inf:
            return f"the scale of {where} is {scale:.6g}, {2 / (lowest + highest):.6g} fits"
        return f"{where} holds other numbers"
