"""Name the operation that makes one tensor of another."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxsurgeon_lite.tensors.dtypes import Array

_Wide = NDArray[Any]
_NEAR = 1e-3  # of the largest magnitude: enough for a name


def step_between(before: Array, after: Array, others: Iterable[tuple[str, Array]] = ()) -> str:
    """Return the name of the operation: `Relu`, `Add of 'x'`, `Add of a bias`; `an operation` if none is known.

    Args:
        others: tensors that may have been added, by name.
    """
    x, y = before.astype(np.float64), after.astype(np.float64)
    with np.errstate(all="ignore"):
        for name, makes in _STEPS.items():
            if x.ndim > 1 and _near(makes(x, y), y):
                return name
        return next(
            (f"Add of {n!r}" for n, other in others if _near(x + other.astype(np.float64), y)),
            "an operation",
        )


def _near(a: _Wide, b: _Wide) -> bool:
    return bool(np.abs(a - b).max(initial=0) <= _NEAR * np.abs(b).max(initial=0))


def _gelu(x: _Wide, _: _Wide) -> _Wide:
    return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))


def _softmax(x: _Wide, _: _Wide) -> _Wide:
    made = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(made / made.sum(-1, keepdims=True))


def _scaled(x: _Wide, y: _Wide) -> _Wide:
    return np.asarray(x * ((x * y).sum() / (x * x).sum()))


def _shifted(x: _Wide, y: _Wide) -> _Wide:
    return np.asarray(x + (y - x).mean(tuple(range(x.ndim - 1))))


def _normalized(x: _Wide, y: _Wide) -> _Wide:
    axes = tuple(range(x.ndim - 1))
    z = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    centered = z - z.mean(axes)
    scale = (centered * y).sum(axes) / (centered**2).sum(axes)
    return np.asarray(centered * scale + y.mean(axes))


_STEPS: Mapping[str, Callable[[_Wide, _Wide], _Wide]] = {
    "Relu": lambda x, _: np.maximum(x, 0),
    "Tanh": lambda x, _: np.tanh(x),
    "Sigmoid": lambda x, _: 1 / (1 + np.exp(-x)),
    "Gelu": _gelu,
    "Sqrt": lambda x, _: np.sqrt(x),
    "Neg": lambda x, _: -x,
    "Softmax": _softmax,
    "Mul by a constant": _scaled,
    "Add of a bias": _shifted,
    "LayerNormalization": _normalized,
}
