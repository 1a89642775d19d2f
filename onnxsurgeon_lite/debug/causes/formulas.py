"""Operators with one input as formulas, which say which of them are worth a run: their ONNX text, computed by ONNX."""

from collections.abc import Callable, Mapping
from functools import cache, partial
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from onnx import parser

from onnxsurgeon_lite.debug.causes.hypothesis import MISTAKES
from onnxsurgeon_lite.tensors.dtypes import Wide, from_array

if TYPE_CHECKING:
    from onnx.reference import ReferenceEvaluator

_HEADER = '<ir_version: 10, opset_import: ["" : 21]> formula (double[n] x) => (double[n] y)'

ACTIVATIONS: Mapping[str, tuple[str, str, int]] = MISTAKES["activations"]
_OF_ROWS = ("Softmax", "LogSoftmax")  # no functions of single elements

UNDEFINED: Mapping[str, Callable[..., Wide]] = {
    "Div": np.divide,
    "Log": np.log,
    "Sqrt": np.sqrt,
    "Reciprocal": np.reciprocal,
}
"""Operators that are not defined for all numbers."""


def computed(name: str, x: Wide) -> Wide:
    """Return what an activation of the tables, or an operator with one input, makes of numbers."""
    (made,) = _evaluator(name).run(None, {"x": x.reshape(-1)})
    return np.asarray(made, np.float64).reshape(x.shape)


@cache
def _evaluator(name: str) -> "ReferenceEvaluator":
    from onnx.reference import ReferenceEvaluator  # takes long to import

    nodes = ACTIVATIONS[name][1] if name in ACTIVATIONS else f"y = {name}(x)"
    model = parser.parse_model(f"{_HEADER} {{ {nodes} }}")
    numbers = MISTAKES["numbers"].items()
    model.graph.initializer.extend(from_array(np.array(number), key) for key, number in numbers)
    return ReferenceEvaluator(model)


_NAMES = dict.fromkeys(chain(MISTAKES["operators"]["missing"].split(), ACTIVATIONS))
FORMULAS: Mapping[str, Callable[[Wide], Wide]] = {
    name: partial(computed, name)
    for name in _NAMES
    if name not in _OF_ROWS and " of " not in name and "(0" not in name
}
"""Operators and activations as functions of numbers; steps of one, and other slopes, are none that is missing."""


def is_undefined(op_type: str, *given: Wide) -> bool:
    """Return whether an operator makes NaN or infinity of finite numbers: what fits behind it fits by accident."""
    made = UNDEFINED.get(op_type)
    if made is None or not all(np.isfinite(array).all() for array in given):
        return False
    return not np.isfinite(made(*given)).all()
