"""Mistakes in feeds: the model's input is prepared otherwise than the reference's."""

from collections.abc import Iterator
from itertools import permutations

import numpy as np

from onnxsurgeon_lite.debug.causes.arrangement import taken
from onnxsurgeon_lite.debug.causes.hypothesis import Edits, Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.place import Place
from onnxsurgeon_lite.passes import Insert
from onnxsurgeon_lite.tensors.dtypes import Array, is_array

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's, of RGB
_COLORS = 3
_IMAGE = 4  # axes


def feeding(place: Place) -> Hypotheses:
    """Yield other preparations of the model's inputs that enter the region."""
    for name, value in place.inputs.items():
        if name in place.whole.inputs and is_array(value) and value.dtype.kind == "f":
            for what, edits in _prepared(name, value) if value.ndim > 1 else ():
                yield Hypothesis("feeds", f"input {name!r} {what}", edits, ("feeds", what))


def _prepared(name: str, value: Array) -> Iterator[tuple[str, Edits]]:
    """Yield (what is wrong and what is done about it, the edits)."""
    shape, is_image = value.shape, value.ndim == _IMAGE
    for axis in (axis for axis, size in enumerate(shape) if size == _COLORS and is_image):
        for order in permutations(range(_COLORS)):
            what = "has its channels in another order"
            if order == (2, 1, 0):
                what = "is fed in the order BGR"
            if order != (0, 1, 2):
                edit = taken(name, axis, np.array(order))
                yield f"{what}; with its channels taken as {[*order]}", (edit,)
        along = [_COLORS] + [1] * (value.ndim - axis - 1)
        mean, std = (np.array(numbers, value.dtype).reshape(along) for numbers in (_MEAN, _STD))
        what = "is fed without mean and deviation; normalized"
        yield what, _steps(name, ("Sub", mean), ("Div", std))
    ranges = "is fed as 0 .. 255 instead of 0 .. 1; divided by 255"
    yield ranges, _steps(name, ("Mul", 1 / 255))
    ranges = "is fed as 0 .. 1 instead of 0 .. 255; multiplied by 255"
    yield ranges, _steps(name, ("Mul", 255.0))
    ranges = "is fed as 0 .. 1 instead of -1 .. 1; stretched"
    yield ranges, _steps(name, ("Mul", 2.0), ("Sub", 1.0))
    for axes in permutations(range(value.ndim)):
        if [*axes] != sorted(axes) and tuple(shape[axis] for axis in axes) == shape:
            edit = Insert(name, "Transpose", attributes=(("perm", [*axes]),))
            yield f"has its axes in another order; transposed by {[*axes]}", (edit,)
    for axis in range(2, _IMAGE) if is_image else ():
        edit = taken(name, axis, np.arange(shape[axis])[::-1])
        yield f"is fed mirrored along axis {axis}; mirrored back", (edit,)


def _steps(name: str, *steps: tuple[str, float | Array]) -> Edits:
    """Return the edits that insert operators with a number one after the other."""
    edits: list[Insert] = []
    for number, (op_type, operand) in enumerate(steps, 1):
        new = f"{name}_{number}" if number < len(steps) else None
        edits.append(Insert(name, op_type, constants=(("by", operand),), output=new))
        name = new or name
    return tuple(edits)
