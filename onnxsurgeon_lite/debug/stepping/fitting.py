"""Convert what a user writes for a value into an array that fits."""

from collections.abc import Sequence
from typing import cast

import numpy as np
from onnx import TypeProto

from onnxsurgeon_lite.debug.stepping.frames import Frame
from onnxsurgeon_lite.errors import FeedsError
from onnxsurgeon_lite.graph.index import fixed_shape
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import DType, Stored


def fitting(frame: Frame, name: str, value: object) -> Stored:
    """A value as the graph has it there; a single number fills its shape.

    Raises:
        FeedsError: another dtype or shape.
    """
    kind = frame.index.type_of(name) or TypeProto()
    if kind.HasField("sequence_type"):
        if not isinstance(value, list):
            raise FeedsError(f"value {name!r} is a sequence", "give a list of arrays")
        return [np.asarray(item) for item in value]
    dtype, shape = _expected(frame, name, kind)
    try:
        if isinstance(value, (bool, int, float, str)):
            return np.full(shape, value, dtype)
        array = np.asarray(value, dtype) if isinstance(value, list) else np.asarray(value)
        if array.dtype.hasobject and not dtype.hasobject:
            raise TypeError("it holds no numbers")
    except (ValueError, TypeError, OverflowError) as error:
        raise FeedsError(
            f"value {name!r} is {dtype} {list(shape)}, which {value!r} cannot be: {error}",
            "give a number for all of it, or an array",
        ) from error
    if array.dtype == dtype and array.shape == tuple(shape):
        return array
    wrong = f"{array.dtype} {list(array.shape)}"
    raise FeedsError(
        f"value {name!r} is {dtype} {list(shape)}, the array is {wrong}",
        "give it in that shape"
        if array.shape != tuple(shape)
        else f"convert it: .astype({dtype.name!r})",
    )


def _expected(frame: Frame, name: str, kind: TypeProto) -> tuple[DType, Sequence[int]]:
    """(dtype, shape): as declared where that is fixed, else as computed."""
    shape = fixed_shape(kind)
    if shape is not None:
        return dtypes.numpy_dtype(kind.tensor_type.elem_type), shape
    current = cast(dtypes.Array, frame.value(name))
    return current.dtype, current.shape
