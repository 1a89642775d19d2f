"""Round float32 to a narrower float dtype, as converted models hold their constants."""

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike

from onnxsurgeon_lite.tensors.dtypes import Array, DType, Wide, is_float


def largest(dtype: DType) -> float:
    """Return the largest finite number of a float dtype."""
    return float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]


def eps(dtype: DType) -> float:
    """Return how far the next number after 1 is in a float dtype."""
    return float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]


def spacing(array: ArrayLike, dtype: DType) -> Wide:
    """Return how far neighbors are in a dtype, at each of some numbers: 1 for integers."""
    if not is_float(dtype):
        return np.ones(())
    info = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    exponents = np.maximum(np.frexp(array)[1] - 1, info.minexp)
    return np.asarray(np.ldexp(1.0, exponents - info.nmant))


def narrowed(array: Array, dtype: DType) -> Array:
    """Return float32 numbers in another dtype: to nearest, ties to even, subnormals kept.

    A finite number beyond the largest becomes the largest, of its sign; Inf and NaN stay.
    """
    limit = np.float32(largest(dtype))
    if array.size and not -limit <= array.min() <= array.max() <= limit:  # NaN, too
        array = np.where(np.isfinite(array), np.clip(array, -limit, limit), array)
    return array.astype(dtype)
