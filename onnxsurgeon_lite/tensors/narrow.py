"""Round float32 to a narrower float dtype, as converted models hold their constants."""

import ml_dtypes
import numpy as np

from onnxsurgeon_lite.tensors.dtypes import Array, DType


def largest(dtype: DType) -> float:
    """Return the largest finite number of a float dtype."""
    return float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]


def eps(dtype: DType) -> float:
    """Return how far the next number after 1 is in a float dtype."""
    return float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]


def narrowed(array: Array, dtype: DType) -> Array:
    """Return float32 numbers in another dtype: to nearest, ties to even, subnormals kept.

    A finite number beyond the largest becomes the largest, of its sign; Inf and NaN stay.
    """
    limit = np.float32(largest(dtype))
    if array.size and not -limit <= array.min() <= array.max() <= limit:  # NaN, too
        array = np.where(np.isfinite(array), np.clip(array, -limit, limit), array)
    return array.astype(dtype)
