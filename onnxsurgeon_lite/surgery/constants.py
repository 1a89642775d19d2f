"""Convert numbers that users write to tensors of the dtype and form that the graph uses."""

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

import numpy as np
from onnx import TensorProto, helper

from onnxsurgeon_lite.errors import EditError, SurgeonError, UnknownNameError
from onnxsurgeon_lite.model import is_external, take_fields, unknown_fields
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array

_MOST_FILLED = (1 << 31) - 1  # bytes: a protobuf message cannot be larger

Numbers = int | float | str | list["Numbers"] | Array
"""A number, a string, nested lists of them, or an array."""


def make_tensor(
    name: str, value: Numbers, data_type: int, like: TensorProto | None = None
) -> TensorProto:
    """Return a tensor with the value's numbers in a dtype.

    Args:
        like: the tensor to replace: a single number fills its shape, and the payload keeps its form.
    """
    array = _converted(name, value, data_type)
    # `set-constant w 0` fills the whole shape of the tensor that it replaces.
    if like is not None and not array.ndim:
        array = _filled(name, array, like.dims)
    # typed fields: float_data, int64_data, ...
    if like is not None and not is_raw(like) and array.size:
        tensor = helper.make_tensor(name, data_type, array.shape, array.ravel().tolist())
    else:
        tensor = dtypes.from_array(array, name)
    if like is not None:
        describe_like(tensor, like)
    return tensor


def _filled(name: str, number: Array, dims: Sequence[int]) -> Array:
    if math.prod(dims) * number.itemsize > _MOST_FILLED:
        raise EditError(
            f"{name!r} has too many elements to be filled: its shape is {list(dims)[:70]}"
        )
    try:
        return np.full(tuple(dims), number)
    except (ValueError, MemoryError) as error:  # negative sizes, more axes than an array has
        raise EditError(f"{name!r} cannot have shape {list(dims)[:70]}: {error}") from error


def parse(text: str) -> Numbers:
    """Parse what a user typed: `3`, `0.5`, `[1, 2]`, `true`, or text."""
    try:
        value: Numbers = json.loads(text)
    except (ValueError, RecursionError):
        return text
    # A JSON object or null is no number: the user meant the text itself.
    return text if isinstance(value, dict) or value is None else value


def read_numbers(text: str) -> Numbers:
    """Parse what a user typed, or read the numbers of the file with that name."""
    path = Path(text)
    if path.suffix not in (".npy", ".npz", ".safetensors", ".pb"):
        return parse(text)
    from onnxsurgeon_lite.tensors.references import open_references  # numbers are seldom in files

    stored = open_references(path)
    if len(stored) != 1:
        raise EditError(f"{text!r} holds {len(stored)} tensors", "give a file that holds one")
    return cast("Array", stored.read(next(iter(stored))))


def data_type_named(name: str) -> int:
    """Return the data type that ONNX or numpy calls by this name: `float`, `float32`.

    Raises:
        UnknownNameError: neither has one.
    """
    # ONNX's name first (`float`), then numpy's (`float32`).
    with suppress(ValueError):
        return dtypes.data_type_of(name)
    try:
        return dtypes.data_type_of_numpy(np.dtype(name))
    except (TypeError, ValueError, SyntaxError, SurgeonError) as error:
        known = list(map(str.lower, TensorProto.DataType.keys()))
        raise UnknownNameError(name, "ONNX", known, kind="dtype") from error


def data_type_for(name: str, value: Numbers) -> int:
    """Return the data type of numbers without one: an array's own; float, int64, bool or string for others."""
    if dtypes.is_array(value):
        return dtypes.data_type_of_numpy(value.dtype)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise EditError(f"the value of {name!r} has lists of different lengths") from error
    # numpy kind -> data type; every other kind (text, objects) is a string.
    kinds = {"f": TensorProto.FLOAT, "i": TensorProto.INT64, "b": TensorProto.BOOL}
    return int(kinds.get(array.dtype.kind, TensorProto.STRING))


def describe_like(tensor: TensorProto, other: TensorProto) -> None:
    """Copy another tensor's doc string, metadata and fields that this version of ONNX does not know."""
    take_fields(tensor, other, ("doc_string", "metadata_props"))
    tensor.MergeFromString(unknown_fields(other))


def _converted(name: str, value: Numbers, data_type: int) -> Array:
    kind = dtypes.dtype_name(data_type)
    try:
        array = np.asarray(value, dtype=object if data_type == TensorProto.STRING else None)
    except ValueError as error:
        raise EditError(f"the value of {name!r} has lists of different lengths") from error
    if data_type == TensorProto.STRING:
        return array
    if array.dtype.kind in "OUS":  # objects, str, bytes
        raise EditError(f"{name!r} is {kind}, {value!r} is not a number", "write 3, 0.5 or [1, 2]")
    target = dtypes.numpy_dtype(data_type)
    # Floats may be rounded. Integers and bools must come back unchanged: int8 cannot hold 300, int64 not 0.5.
    with np.errstate(all="ignore"):
        converted: Array = array.astype(target)
        back = converted.astype(array.dtype)
    if "float" not in target.name and not np.array_equal(back, array):
        shown = repr(array.tolist()) if array.size <= 8 else "the numbers given"
        raise EditError(f"{name!r} is {kind}, which cannot hold {shown}", f"give {kind} numbers")
    return converted


def is_raw(tensor: TensorProto) -> bool:
    """Return whether the payload is raw bytes; strings, and small floats without a typed field, count as raw."""
    # The typed fields; strings are read as raw because no typed numbers are there.
    typed = tensor.float_data or tensor.int32_data or tensor.int64_data or tensor.double_data
    return is_external(tensor) or not (typed or tensor.uint64_data)
