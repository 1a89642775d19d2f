"""Samples of images between their elements, written as weighted sums of neighbors: GridSample, DeformConv, RoiAlign."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from onnx import TensorProto

from onnxsurgeon_lite.surgery.gradients.step import GradientStep
from onnxsurgeon_lite.surgery.gradients.tape import Term

_CUBIC = -0.75  # the coefficient of Keys' cubic that GridSample uses


@dataclass(frozen=True)
class _Tap:
    """A neighbor along one axis: its index, and its weight; None for 1."""

    index: Term
    weight: Term | None


@dataclass(frozen=True)
class _Images:
    """Images to take samples of.

    Attributes:
        flat: [batch, channels, elements]. sizes: a scalar for each spatial axis, int64.
        padding: what is outside: zeros, border, reflection. aligned: reflection is at the center of the last elements.
    """

    flat: Term
    sizes: Sequence[Term]
    padding: str = "zeros"
    aligned: bool = False

    def sampled(self, taps: Sequence[Sequence[_Tap]]) -> Term:
        """Return [batch, channels, places], given the taps of each axis at [batch, places]."""
        # The neighbors of a place are all combinations of its neighbors along each axis: 4 in an image.
        return self.flat.tape.total([self._corner(corner) for corner in product(*taps)])

    def _corner(self, corner: Sequence[_Tap]) -> Term:
        t = self.flat.tape
        flat, weight = None, None
        for tap, size in zip(corner, self.sizes, strict=True):
            # the index of the element in the flat image, and the product of its weights
            index, inside = self._padded(tap.index, size)
            flat = index if flat is None else flat * size + index
            for factor in filter(None, (tap.weight, inside)):
                weight = factor if weight is None else weight * factor
        assert flat is not None
        channels = t.shape_of(self.flat, 1, 2)
        places = t.op("Unsqueeze", flat, [1])
        shape = t.concat([1], channels, [1])  # the index is the same for all channels
        taken = t.op("GatherElements", self.flat, t.op("Expand", places, shape), axis=2)
        return taken if weight is None else taken * t.op("Unsqueeze", weight, [1])

    def _padded(self, index: Term, size: Term) -> tuple[Term, Term | None]:
        """Return an index inside, and a weight of 0 for what is outside."""
        t = index.tape
        if self.padding == "reflection":
            # a reflection has a period of two images
            double = (size - 1) * 2 if self.aligned else size * 2
            wrapped = t.op("Mod", index, t.op("Max", double, 1))
            other = double - wrapped if self.aligned else double - 1 - wrapped
            return (wrapped < size).where(wrapped, other), None
        clipped = t.op("Max", t.op("Min", index, size - 1), 0)
        if self.padding == "border":
            return clipped, None
        # what is outside counts with a weight of 0
        return clipped, clipped.equals(index).cast(self.flat.dtype)


def _below(at: Term) -> tuple[Term, Term]:
    """Return how far a place is behind its lower neighbor, and the index of that."""
    below = at.function("Floor")
    return at - below, below.cast(TensorProto.INT64)


def _linear(at: Term) -> list[_Tap]:
    part, index = _below(at)  # two neighbors, weighted by how near they are
    return [_Tap(index, 1 - part), _Tap(index + 1, part)]


def _cubic(at: Term) -> list[_Tap]:
    part, index = _below(at)
    taps = []
    for place in range(-1, 3):
        # Keys' cubic: one polynomial for the two nearest neighbors, another for the others
        far = part - place if place < 1 else place - part  # the distance
        if place in (0, 1):
            weight = ((_CUBIC + 2) * far - (_CUBIC + 3)) * far * far + 1
        else:
            weight = ((far * _CUBIC - 5 * _CUBIC) * far + 8 * _CUBIC) * far - 4 * _CUBIC
        taps.append(_Tap(index + place, weight))
    return taps


_TAPS = {
    "linear": _linear,
    "bilinear": _linear,
    "nearest": lambda at: [_Tap(at.function("Round").cast(TensorProto.INT64), None)],
    "cubic": _cubic,
    "bicubic": _cubic,
}


def grid_sample(s: GradientStep) -> list[Term]:
    """Write GridSample; the last axis of the grid has the places, the last spatial axis first."""
    t = s.tape
    count = s.rank - 2
    aligned = bool(s.integer("align_corners"))
    # -1 .. 1 are the ends of the image, or the centers of its last elements
    sizes = [t.length(s.a, axis) for axis in range(2, s.rank)]
    flat = t.op("Reshape", s.a, [0, 0, -1])
    images = _Images(flat, sizes, s.text("padding_mode", "zeros"), aligned)
    points = t.op("Reshape", s.b, t.concat(t.dim(s.b, 0), [-1, count]))
    taps = []
    for axis, size in enumerate(sizes):
        # the grid names the last axis first: x before y
        place = t.op("Gather", points, t.number(count - 1 - axis, TensorProto.INT64), axis=2)
        wide = size.cast(place.dtype)
        at = (place + 1) * (wide - 1) / 2 if aligned else ((place + 1) * wide - 1) / 2
        taps.append(_TAPS[s.text("mode", "linear")](at))
    made = images.sampled(taps)
    shape = t.concat(t.shape_of(s.a, 0, 2), t.shape_of(s.b, 1, s.rank - 1))
    return [t.op("Reshape", made, shape)]


def deformed(s: GradientStep) -> list[Term]:
    """Write DeformConv: a product with the kernel of what stands at the places that the offsets tell."""
    t = s.tape
    kernel = s.tape.shape(s.b.name)
    sizes = [dim for dim in (kernel or [])[2:] if isinstance(dim, int)]
    if s.rank != 4 or len(sizes) != 2:
        raise s.refused("the kernel does not have two axes of known size")
    pads, strides = s.integers("pads") or [0] * 4, s.integers("strides") or [1, 1]
    dilations = s.integers("dilations") or [1, 1]
    groups = s.integer("offset_group", 1)
    count, number, offset = sizes[0] * sizes[1], t.integers([sizes[0] * sizes[1]]), s.input(2)
    out = [t.dim(offset, 2), t.dim(offset, 3)]
    # [batch, groups, elements of the kernel, two axes, height, width]
    by_group = t.concat([0, groups], number, [2], *out)
    offsets = t.op("Reshape", offset, by_group)
    taps = []
    for axis in range(2):
        # where an element of the kernel would be, moved by its offset
        inner = t.array(np.indices(sizes)[axis].reshape(-1, 1, 1) * dilations[axis])
        size = t.op("Squeeze", out[axis])
        outer = size.up_to() * strides[axis] - pads[axis]
        line = t.op("Unsqueeze", outer, [1]) if axis == 0 else outer
        moved = t.op("Gather", offsets, t.number(axis, TensorProto.INT64), axis=3)
        at = moved + (line + inner).cast(moved.dtype)
        taps.append(_linear(t.op("Reshape", at, t.concat([-1], number * out[0] * out[1]))))
    spatial = [t.length(s.a, axis) for axis in (2, 3)]
    batch = t.dim(s.a, 0)
    split = t.concat(batch * groups, [-1], t.dim(s.a, 2) * t.dim(s.a, 3))
    made = _Images(t.op("Reshape", s.a, split), spatial).sampled(taps)
    shape = t.concat(batch, [groups, -1], number, out[0] * out[1])
    made = t.op("Reshape", made, shape)
    if s.has(4):
        mask = t.op("Reshape", s.input(4), t.concat(batch, [groups, 1], number, out[0] * out[1]))
        made = made * mask
    # a product of matrices: the kernel, and what it meets at each place
    parts = s.integer("group", 1)
    columns = t.op("Reshape", made, t.concat(batch, [parts, -1], out[0] * out[1]))
    rows = t.op("Reshape", s.b, t.concat([parts, -1], t.dim(s.b, 1) * count))
    result = t.op("Reshape", rows @ columns, t.concat(batch, [-1], *out))
    return [result + t.op("Reshape", s.input(3), [1, -1, 1, 1]) if s.has(3) else result]


def aligned_regions(s: GradientStep) -> list[Term]:
    """Write RoiAlign: the mean of samples in each part of a region."""
    t = s.tape
    ratio = s.integer("sampling_ratio")
    if ratio < 1 or s.text("mode", "avg") != "avg":
        raise s.refused("sampling_ratio is 0" if ratio < 1 else "mode is 'max'")
    # `ratio` places in each part of a region, along both axes
    # `half_pixel`: the center of an element is its place plus one half
    half = s.text("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    corners = s.b * s.number("spatial_scale", 1.0) - (0.5 if half else 0.0)
    counts = [s.integer("output_height", 1), s.integer("output_width", 1)]
    sizes = [t.length(s.a, axis) for axis in (2, 3)]
    lines, inside = [], []
    for axis, (count, size) in enumerate(zip(counts, sizes, strict=True)):
        # regions are x1, y1, x2, y2
        first, last = (t.op("Gather", corners, [place], axis=1) for place in (1 - axis, 3 - axis))
        length = last - first if half else t.op("Max", last - first, 1)
        fractions = (np.arange(count * ratio) + 0.5) / (count * ratio)  # the centers of equal parts
        line = first + length * t.array(fractions.astype(np.float32)).cast(s.b.dtype)
        wide = size.cast(line.dtype)
        # places far outside count as 0
        reached = t.op("And", t.op("Not", line < -1), t.op("Not", line > wide))
        inside.append(reached.cast(s.a.dtype))
        lines.append(t.op("Min", t.op("Max", line, 0), wide - 1))
    places = [_crossed(lines[0], lines[1] * 0), _crossed(lines[0] * 0, lines[1])]
    chosen = t.op("Gather", s.a, s.input(2), axis=0)
    images = _Images(t.op("Reshape", chosen, [0, 0, -1]), sizes, "border")
    up, left = (t.op("Unsqueeze", mask, [axis]) for mask, axis in zip(inside, (2, 1), strict=True))
    mask = t.op("Reshape", up * left, [0, 1, -1])
    made = images.sampled([_linear(at) for at in places]) * mask
    # the mean of each part
    shape = [0, 0, counts[0], ratio, counts[1], ratio]
    return [t.sum(t.op("Reshape", made, shape), [3, 5]) / (ratio * ratio)]


def _crossed(rows: Term, columns: Term) -> Term:
    """Return the sums of each row and column, as a list for each sample."""
    t = rows.tape
    crossed = t.op("Unsqueeze", rows, [2]) + t.op("Unsqueeze", columns, [1])
    return t.op("Reshape", crossed, [0, -1])
