"""Plainer numbers in constants and feeds, and smaller dimensions of inputs."""

from collections.abc import Callable, Iterator

import numpy as np

from onnxsurgeon_lite.debug.reduction.failing import Failing
from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.passes import SetConstant, SetShape
from onnxsurgeon_lite.tensors.dtypes import Array, arrays_in

FILLS: dict[str, Callable[[Array], Array]] = {
    "zeros": np.zeros_like,
    "ones": np.ones_like,
    "digits": lambda array: array.round(1) if array.dtype.kind == "f" else array,
}
"""How numbers become plainer, the plainest first."""


def not_plain(failing: Failing) -> Iterator[str]:
    """Yield the constants and feeds that are neither all 0 nor all 1."""
    held = [(name, failing.model.array(each)) for name, each in failing.constants.items()]
    for name, value in (*held, *failing.feeds.items()):
        if not all((array == 0).all() or (array == 1).all() for array in arrays_in(value)):
            yield name


def plainer(failing: Failing, name: str, how: str) -> Failing:
    """Return the model with plainer numbers in a constant or a feed.

    Raises:
        EditError: these are no plainer.
    """
    is_fed = name in failing.feeds
    value = failing.feeds[name] if is_fed else failing.model.array(failing.constants[name])
    if not isinstance(value, np.ndarray):
        raise EditError(f"{name!r} has no {how}")
    filled = FILLS[how](value)
    return failing.fed(name, filled) if is_fed else failing.edited(SetConstant(name, filled))


def axes(failing: Failing) -> Iterator[tuple[str, str]]:
    """Yield the dimensions of inputs that can become smaller."""
    for name, value in failing.feeds.items():
        for axis, size in enumerate(value.shape if isinstance(value, np.ndarray) else ()):
            if size > 1:
                yield name, str(axis)


def shortened(failing: Failing, name: str, axis: int) -> Failing:
    """Return the model with a dimension of an input that is 1, which is followed through the model."""
    smaller = np.asarray(failing.feeds[name]).take([0], axis)
    if all(dim.dim_param for dim in failing.index.inputs[name].type.tensor_type.shape.dim):
        return failing.fed(name, smaller)
    return failing.edited(SetShape({name: smaller.shape}), {name: smaller})
