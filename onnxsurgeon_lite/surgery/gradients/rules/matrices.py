"""Determinants and grids of affine maps."""

import numpy as np

from onnxsurgeon_lite.surgery.gradients.step import GradientStep, Rule
from onnxsurgeon_lite.surgery.gradients.tape import Term


def _determinant(s: GradientStep) -> Term:
    """Return the cofactors: the determinants of all matrices without one row and one column."""
    t, size = s.tape, (s.tape.shape(s.a.name) or [None])[-1]
    if not isinstance(size, int):
        raise s.refused("the size of the matrix is not known")
    dy = t.op("Unsqueeze", s.dy, [-2, -1])
    if size == 1:
        return dy
    rest = t.array(np.array([[i for i in range(size) if i != row] for row in range(size)]))
    first, last = s.rank - 2, s.rank - 1
    minors = t.op("Gather", t.op("Gather", s.a, rest, axis=last), rest, axis=first)
    order = [*range(first), first, last + 1, last, last + 2]  # row, column, the rest of each
    cofactors = t.op("Det", t.transposed(minors, order))
    signs = np.where(np.indices((size, size)).sum(axis=0) % 2, -1.0, 1.0).astype(np.float32)
    return dy * cofactors * t.array(signs).cast(s.dy.dtype)


def _affine_grid(s: GradientStep) -> Term:
    """Y = grid of the identity, with a 1 behind each place, times theta transposed."""
    t, shape = s.tape, s.tape.shape(s.a.name)
    if shape is None or not isinstance(shape[1], int):
        raise s.refused("the number of dimensions is not known")
    count = shape[1]
    identity = t.array(np.eye(count, count + 1, dtype=np.float32)).cast(s.a.dtype)
    grid = s.again(1, t.op("Expand", identity, t.dims(s.a)), s.b)[0]
    places = t.op("Reshape", grid, [0, -1, count])
    ones = t.op("Add", t.op("Slice", places, *map(t.integers, ([0], [1], [-1]))) * 0, 1)
    dy = t.op("Reshape", s.dy, [0, -1, count])
    return t.transposed(dy, [0, 2, 1]) @ t.concat(places, ones, axis=-1)


RULES: dict[str, Rule] = {"Det": (_determinant,), "AffineGrid": (_affine_grid,)}
