"""Operators with one input as formulas, precise enough to say which of them are worth a run."""

from collections.abc import Callable, Mapping

import numpy as np

from onnxsurgeon_lite.debug.causes.place import Wide


def _erf(x: Wide) -> Wide:
    """Approximate the error function (Abramowitz and Stegun, 7.1.26)."""
    t = 1 / (1 + 0.3275911 * np.abs(x))
    terms = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
    return np.asarray(np.sign(x) * (1 - np.polyval(terms, t) * t * np.exp(-x * x)))


def _sigmoid(x: Wide) -> Wide:
    return np.asarray(1 / (1 + np.exp(-x)))


def _tanh_of_gelu(x: Wide) -> Wide:
    return np.asarray(np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


FORMULAS: Mapping[str, Callable[[Wide], Wide]] = {
    "Relu": lambda x: np.maximum(x, 0),
    "Gelu": lambda x: x * 0.5 * (1 + _erf(x / np.sqrt(2))),
    "Gelu (tanh)": lambda x: 0.5 * x * (1 + _tanh_of_gelu(x)),
    "Gelu (sigmoid)": lambda x: x * _sigmoid(1.702 * x),
    "Silu": lambda x: x * _sigmoid(x),
    "Sigmoid": _sigmoid,
    "Tanh": np.tanh,
    "Neg": np.negative,
    "Exp": np.exp,
    "Sqrt": np.sqrt,
    "Reciprocal": np.reciprocal,
    "Abs": np.abs,
    "Erf": _erf,
    "Softplus": lambda x: np.logaddexp(x, 0),
    "LeakyRelu": lambda x: np.where(x > 0, x, 0.01 * x),
    "Elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "Mish": lambda x: x * np.tanh(np.logaddexp(x, 0)),
    "Floor": np.floor,
    "Round": np.round,
    "Log": np.log,
    "Identity": lambda x: x,
}

PARTS: Mapping[str, Callable[[Wide], Wide]] = {
    "Erf of Gelu": lambda x: _erf(x / np.sqrt(2)),
    "1 + Erf of Gelu": lambda x: 1 + _erf(x / np.sqrt(2)),
    "Tanh of Gelu": _tanh_of_gelu,
    "1 + Tanh of Gelu": lambda x: 1 + _tanh_of_gelu(x),
}
"""Steps of a GELU that two exports of it have at one place."""

UNDEFINED: Mapping[str, Callable[..., Wide]] = {
    "Div": np.divide,
    "Log": np.log,
    "Sqrt": np.sqrt,
    "Reciprocal": np.reciprocal,
}
"""Operators that are not defined for all numbers."""


def is_undefined(op_type: str, *given: Wide) -> bool:
    """Return whether an operator makes NaN or infinity of finite numbers: what fits behind it fits by accident."""
    made = UNDEFINED.get(op_type)
    if made is None or not all(np.isfinite(array).all() for array in given):
        return False
    with np.errstate(all="ignore"):
        return not np.isfinite(made(*given)).all()
