"""Find weights of norms that multiply with 1 + weight, as Gemma's: an exporter stores the sum."""

import re
from collections.abc import Iterator

import numpy as np

from onnxsurgeon_lite.tensors.dtypes import Array, DType

RAISED = "folded as 1 + it"


def may_be_raised(parameter: str, array: Array) -> bool:
    """Return whether a parameter may be the weight of such a norm."""
    return array.ndim == 1 and array.size > 1 and not parameter.endswith("bias")


def sums(stored: Array, dtype: DType) -> Iterator[tuple[DType, Array]]:
    """Yield (dtype that 1 is added in, the sum as the model holds it): float32 or wider, and the parameter's own."""
    for added in dict.fromkeys((np.promote_types(np.float32, stored.dtype), stored.dtype)):
        yield added, raised(stored, added).astype(dtype)


def raised(stored: Array, added: DType) -> Array:
    """Return 1 + the parameter, added in a dtype."""
    return np.asarray(stored.astype(added) + np.ones((), added))


def kind(parameter: str) -> str:
    """Return what norms at the same place of several layers share: the name without numbers."""
    return re.sub(r"\d+", "", parameter)
