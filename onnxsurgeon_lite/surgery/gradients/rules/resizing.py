"""Resize: linear in its input, so the gradient is the transposed map, an axis at a time."""

import numpy as np

from onnxsurgeon_lite.surgery.gradients.step import GradientStep, Rule
from onnxsurgeon_lite.surgery.gradients.tape import Term

_KEPT = (
    "antialias", "coordinate_transformation_mode", "cubic_coeff_a", "exclude_outside", "mode", "nearest_mode",
    "extrapolation_value",
)  # fmt: skip


def _resize(s: GradientStep) -> Term:
    if s.text("coordinate_transformation_mode") == "tf_crop_and_resize":
        raise s.refused("it crops")
    # one product for each axis whose size changes
    made = s.dy
    for axis in range(s.rank):
        if not _same(s, axis):
            made = _along(s, made, axis)
    return made


def _same(s: GradientStep, axis: int) -> bool:
    """Return whether the axis surely keeps its size and its numbers."""
    scale = _scale(s, axis)
    shapes = [s.tape.shape(term.name) for term in (s.a, s.y)]
    if isinstance(scale, float):
        return scale == 1
    before, after = [None if shape is None else shape[axis] for shape in shapes]
    return before is not None and before == after


def _scale(s: GradientStep, axis: int) -> float | Term | None:
    """Return the scale of an axis: a number, a term, None where sizes are given."""
    if not s.has(2) or s.tape.shape(s.node.input[2]) == [0]:
        return None
    axes = list(map(s.at, s.integers("axes") or range(s.rank)))
    if axis not in axes:
        return 1.0
    # scales are listed in the order of `axes`
    known = s.numbers(2)
    place = axes.index(axis)
    if known is not None:
        return float(np.ravel(known)[place])
    return s.tape.op("Gather", s.input(2), [place])


def _along(s: GradientStep, term: Term, axis: int) -> Term:
    """Return the product with the matrix that resizes one axis: a resized identity."""
    # A resized identity matrix has in row i the weights of the input's elements for element i of the output.
    t = s.tape
    # the axis comes last for the product, and goes back
    last = [i for i in range(s.rank) if i != axis] + [axis]
    before, after = t.dim(s.a, axis), t.dim(s.y, axis)
    square = t.zeros(t.concat(before, before), s.dy.dtype)
    image = t.op("Unsqueeze", t.op("EyeLike", square), [0, 1])
    scale = _scale(s, axis)
    if scale is None:  # by sizes
        end = [None, t.concat([1, 1], before, after)]
    else:
        number = t.array(np.array([scale], np.float32)) if isinstance(scale, float) else scale
        end = [t.concat(t.array(np.ones(3, np.float32)), number)]
    matrix = t.op("Squeeze", s.again(1, image, None, *end, attributes=_KEPT)[0], [0, 1])
    product = t.transposed(term, last) @ t.swapped(matrix, 2)
    return t.transposed(product, [int(place) for place in np.argsort(last)])


RULES: dict[str, Rule] = {"Resize": (_resize,)}
