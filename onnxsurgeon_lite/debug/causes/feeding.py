"""Mistakes in feeds: the model's input is prepared otherwise than the reference's."""

from collections.abc import Iterator
from itertools import permutations

import numpy as np

from onnxsurgeon_lite.debug.causes.hypothesis import Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.place import Place
from onnxsurgeon_lite.passes import Insert, Pass
from onnxsurgeon_lite.tensors.dtypes import is_array

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's, of RGB
_COLORS = 3


def feeding(place: Place) -> Hypotheses:
    """Yield other preparations of the model's inputs that enter the region."""
    for name, value in place.inputs.items():
        if name not in place.whole.inputs or not is_array(value):
            continue
        if value.dtype.kind != "f" or value.ndim < 2:
            continue
        for what, edits in _prepared(name, value):
            yield Hypothesis("feeds", f"input {name!r} {what}", edits, ("feeds", what))


def _prepared(name: str, value: np.ndarray) -> Iterator[tuple[str, tuple[Pass, ...]]]:
    for axis, size in enumerate(value.shape):
        if size == _COLORS and value.ndim == 4:
            for order in permutations(range(_COLORS)):
                if order != (0, 1, 2):
                    edit = Insert(
                        name,
                        "Gather",
                        attributes=(("axis", axis),),
                        constants=(("order", np.array(order)),),
                    )
                    what = (
                        "is fed in the order BGR"
                        if order == (2, 1, 0)
                        else "has its channels in another order"
                    )
                    yield f"{what}; with its channels taken as {list(order)}", (edit,)
            shape = [_COLORS] + [1] * (value.ndim - axis - 1)
            mean, std = (np.array(n, value.dtype).reshape(shape) for n in (_MEAN, _STD))
            shifted = Insert(name, "Sub", constants=(("mean", mean),), output=f"{name}_shifted")
            scaled = Insert(f"{name}_shifted", "Div", constants=(("std", std),))
            yield "is fed without mean and deviation; normalized", (shifted, scaled)
    for what, factor in (
        ("0 .. 255 instead of 0 .. 1; divided by 255", 1 / 255),
        ("0 .. 1 instead of 0 .. 255; multiplied by 255", 255.0),
    ):
        yield f"is fed as {what}", (Insert(name, "Mul", constants=(("factor", factor),)),)
    twice = Insert(name, "Mul", constants=(("factor", 2.0),), output=f"{name}_twice")
    yield (
        "is fed as 0 .. 1 instead of -1 .. 1; stretched",
        (twice, Insert(f"{name}_twice", "Sub", constants=(("one", 1.0),))),
    )
    for axes in permutations(range(value.ndim)):
        if [*axes] != [*range(value.ndim)] and tuple(value.shape[a] for a in axes) == value.shape:
            edit = Insert(name, "Transpose", attributes=(("perm", list(axes)),))
            yield f"has its axes in another order; transposed by {list(axes)}", (edit,)
    for axis in range(2, value.ndim):
        if value.ndim == 4:
            back = np.arange(value.shape[axis])[::-1]
            edit = Insert(
                name, "Gather", attributes=(("axis", axis),), constants=(("order", back),)
            )
            yield f"is fed mirrored along axis {axis}; mirrored back", (edit,)
