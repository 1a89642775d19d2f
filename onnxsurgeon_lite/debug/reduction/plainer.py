"""Plainer numbers in constants and feeds, and smaller dimensions of weights and inputs."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import chain

import numpy as np
from onnx import TensorProto

from onnxsurgeon_lite.debug.reduction.failing import Failing
from onnxsurgeon_lite.errors import EditError, ShapeError
from onnxsurgeon_lite.passes import Freeze, Pipeline, Promote, SetConstant, SetShape
from onnxsurgeon_lite.tensors.dtypes import Array, arrays_in

_NOISY = 64  # elements, from which on numbers say more than their values: weights leave


def _noise(array: Array) -> Array:
    if array.dtype.kind != "f" or array.size < _NOISY:
        return array
    return np.random.default_rng(0).normal(size=array.shape).round(1).astype(array.dtype)


FILLS: dict[str, Callable[[Array], Array]] = {
    "zeros": np.zeros_like,
    "ones": np.ones_like,
    "noise": _noise,
    "digits": lambda array: array.round(1) if array.dtype.kind == "f" else array,
}
"""How numbers become plainer, the plainest first."""


def not_plain(failing: Failing) -> Iterator[str]:
    """Yield the constants and feeds that are neither all 0 nor all 1.

    An integer alone is as plain as another, but for the iterations of a Loop.
    """
    loops = {n.input[0] for n in failing.index.nodes if n.op_type == "Loop" and n.input}
    # constants and feeds alike: (name, value)
    held = [(name, failing.model.array(each)) for name, each in failing.constants.items()]
    for name, value in chain(held, failing.feeds.items()):
        arrays = arrays_in(value)
        short = name not in loops and all(a.size < 2 and a.dtype.kind in "iub" for a in arrays)
        if not short and not all((a == 0).all() or (a == 1).all() for a in arrays):
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


def widths(failing: Failing) -> Iterator[tuple[str, str]]:
    """Yield the sizes that dimensions of weights have, the largest first."""
    dims = {size for each in failing.constants.values() if len(each.dims) > 1 for size in each.dims}
    yield from (("", str(size)) for size in sorted(dims, reverse=True) if size > 1)


def narrowed(failing: Failing, size: int) -> Failing:
    """Return the model with 1 in the place of one size, in weights and inputs at once; other values follow."""

    def cut(array: Array) -> Array:
        # the first element of each axis of that size
        return array[tuple(slice(1 if length == size else None) for length in array.shape)]

    weights = {
        name: cut(failing.model.array(each))
        for name, each in failing.constants.items()
        # a vector of int64 is likely a shape or a list of axes: its length is no width
        if size in each.dims and (len(each.dims) > 1 or each.data_type != TensorProto.INT64)
    }
    fed = {
        name: cut(value)
        for name, value in failing.feeds.items()
        if isinstance(value, np.ndarray) and size in value.shape
    }
    shapes = {name: each.shape for name, each in (weights | fed).items()}
    # weights become inputs for a moment, so that all sizes change at once and are followed through the model
    steps = Promote(tuple(weights)), SetShape(shapes), Freeze(tuple(weights.items()))
    return failing.edited(Pipeline(steps), fed)


def axes(failing: Failing) -> Iterator[tuple[str, str]]:
    """Yield the dimensions of inputs that can become smaller; of constants in a model without inputs."""
    held = {name: list(each.dims) for name, each in failing.constants.items()}
    fed = {n: v.shape for n, v in failing.feeds.items() if isinstance(v, np.ndarray)}
    for name, shape in (fed if failing.feeds else held).items():
        yield from ((name, str(axis)) for axis, size in enumerate(shape) if size > 1)


def shortened(failing: Failing, name: str, axis: int) -> Failing:
    """Return the model with a dimension of an input that is 1, which is followed through the model.

    A dimension of a constant is not followed: operators broadcast it, or the model fails in another way.
    """
    if name in failing.constants:
        numbers = failing.model.array(failing.constants[name])
        return failing.edited(SetConstant(name, numbers.take([0], axis)))
    fed = {n: v for n, v in failing.feeds.items() if isinstance(v, np.ndarray)}
    smaller = {name: fed[name].take([0], axis)}
    # every dimension is symbolic: another feed is enough
    if all(dim.dim_param for dim in failing.index.inputs[name].type.tensor_type.shape.dim):
        return failing.fed(name, smaller[name])
    # inputs of one shape may have to agree
    alike = {n: v.take([0], axis) for n, v in fed.items() if v.shape == fed[name].shape}
    with suppress(ShapeError):
        return _resized(failing, smaller)
    return _resized(failing, alike)


def _resized(failing: Failing, feeds: Mapping[str, Array]) -> Failing:
    return failing.edited(SetShape({name: each.shape for name, each in feeds.items()}), feeds)
