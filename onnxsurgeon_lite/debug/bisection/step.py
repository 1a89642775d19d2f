"""Name the operation that makes one tensor of another."""

from collections.abc import Callable, Iterable, Mapping
from itertools import chain

import numpy as np

from onnxsurgeon_lite.debug.causes.formulas import FORMULAS
from onnxsurgeon_lite.debug.causes.linear import fitted
from onnxsurgeon_lite.debug.causes.norms import normalized
from onnxsurgeon_lite.debug.causes.place import small
from onnxsurgeon_lite.tensors.dtypes import Array
from onnxsurgeon_lite.tensors.grid import Wide


def step_between(before: Array, after: Array, others: Iterable[tuple[str, Array]]) -> str:
    """Return the name of the operation: `Relu`, `Add of 'x'`, `Add of a bias`; `an operation` if none is known.

    Args:
        others: tensors that may have been added, by name.
    """
    x, y = before.astype(np.float64), after.astype(np.float64)
    # Generators: each formula is computed only if none before it fits. The order is the preference: a plain function,
    # a fitted one, a sum. A vector has too few numbers to distinguish functions.
    known = ((name, made(x)) for name, made in FORMULAS.items() if name != "Identity")
    fitted = ((name, made(x, y)) for name, made in _FITTED.items())
    added = ((f"Add of {name!r}", x + other.astype(np.float64)) for name, other in others)
    tried = chain(known, fitted, added) if x.ndim > 1 else added
    with np.errstate(all="ignore"):
        return next((name for name, made in tried if small(made - y, y)), "an operation")


def _softmax(x: Wide, _: Wide) -> Wide:
    made = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(made / made.sum(-1, keepdims=True))


def _normalized(x: Wide, y: Wide) -> Wide:
    # scale and bias are fitted for each element of the last axis
    normal = normalized(x, "LayerNormalization")
    scale, bias = fitted(normal, y, tuple(range(x.ndim - 1)), shifts=True)
    return np.asarray(normal * scale + bias)


_FITTED: Mapping[str, Callable[[Wide, Wide], Wide]] = {
    "Softmax": _softmax,
    "Mul by a constant": lambda x, y: x * fitted(x, y, None)[0],
    "Add of a bias": lambda x, y: x + (y - x).mean(tuple(range(x.ndim - 1))),
    "LayerNormalization": _normalized,
}
