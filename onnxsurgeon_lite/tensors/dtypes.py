"""Convert `TensorProto` and raw bytes to numpy and back, for every ONNX dtype.

bfloat16, float8, float4, int4 and int2 are numpy arrays of the ml_dtypes types. Raw bytes are as in `raw_data`:
little-endian, sub-byte elements packed from the low bits up.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, TypeProto, helper, numpy_helper

from onnxsurgeon_lite.errors import SurgeonError, UsageError

Array = NDArray[np.generic]
Stored = Array | list[Array]
RunValue = Array | list[Array] | None

_BLOCK = 1 << 20  # elements

_SUB_BYTE_BITS: dict[int, int] = {
    TensorProto.INT4: 4,
    TensorProto.UINT4: 4,
    TensorProto.FLOAT4E2M1: 4,
    TensorProto.INT2: 2,
    TensorProto.UINT2: 2,
}


def as_array(value: object, what: str) -> Array:
    """Return an array as it is, and one of what numpy can take for an array: a list, a PyTorch tensor.

    Raises:
        UsageError: numpy cannot.
    """
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged; a tensor with a gradient
        raise UsageError(f"{what} cannot be an array: {error}", "give a numpy array") from error


def dtype_name(data_type: int) -> str:
    """Return the ONNX name of a `TensorProto.DataType`, lower case: `float`, `bfloat16`, `float8e4m3fn`."""
    try:
        return str(TensorProto.DataType.Name(data_type)).lower()
    except ValueError:
        return f"unknown dtype {data_type}"


def data_type_of(name: str) -> int:
    """Return the `TensorProto.DataType` with this name; the inverse of `dtype_name`."""
    return int(TensorProto.DataType.Value(name.upper()))


@functools.cache
def numpy_dtype(data_type: int) -> np.dtype[np.generic]:
    """Return the numpy dtype of one element; strings are objects."""
    try:
        return np.dtype(helper.tensor_dtype_to_np_dtype(data_type))
    except KeyError as error:
        raise SurgeonError(f"{data_type} is not an ONNX dtype that this version knows") from error


@functools.cache
def data_type_of_numpy(dtype: np.dtype[np.generic]) -> int:
    """Return the `TensorProto.DataType` of a numpy dtype."""
    if dtype.kind in "OUS":
        return int(TensorProto.STRING)
    try:
        return int(helper.np_dtype_to_tensor_dtype(dtype))
    except ValueError as error:
        raise SurgeonError(f"numpy's {dtype} is not an ONNX dtype") from error


def is_array(value: object) -> TypeGuard[Array]:
    """Return whether a value is one tensor: no sequence, and not absent."""
    return isinstance(value, np.ndarray)


def is_float(dtype: np.dtype[np.generic]) -> bool:
    """Return whether a dtype is real floating-point, those of ml_dtypes included."""
    return dtype.kind == "f" or "float" in dtype.name


def arrays_in(value: RunValue) -> list[Array]:
    """Return the tensors that a value holds: one, those of a sequence, or none."""
    return value if isinstance(value, list) else [] if value is None else [value]


def has_floats(value: object) -> TypeGuard[Array]:
    """Return whether a value is a tensor of floats."""
    return isinstance(value, np.ndarray) and is_float(value.dtype)


def type_of(value: Array | list[Array]) -> TypeProto:
    """Return the type of a tensor without its shape, or of a sequence of such tensors."""
    if not isinstance(value, list):
        return helper.make_tensor_type_proto(data_type_of_numpy(value.dtype), None)
    element = value[0] if value else np.empty(0, np.float32)
    return helper.make_sequence_type_proto(type_of(element))


def types_of(values: Mapping[str, RunValue]) -> dict[str, TypeProto]:
    """Return the types of values, as `type_of` has them; without those that are absent."""
    return {name: type_of(value) for name, value in present(values).items()}


def present(values: Mapping[str, RunValue]) -> dict[str, Stored]:
    """Return the values that are not absent."""
    return {name: value for name, value in values.items() if value is not None}


def fits(kind: TypeProto | None, value: Array | list[Array]) -> bool:
    """Return whether a type permits the shape of a value; sequences and unknown types permit every one."""
    if isinstance(value, list) or kind is None or not kind.tensor_type.HasField("shape"):
        return True
    dims = [dim.dim_value for dim in kind.tensor_type.shape.dim]
    return len(dims) == value.ndim and all(
        d <= 0 or d == size for d, size in zip(dims, value.shape, strict=True)
    )


def byte_count(data_type: int, dims: Sequence[int]) -> int:
    """Return the number of `raw_data` bytes for a tensor of this dtype and shape."""
    elements = math.prod(dims)
    bits = _SUB_BYTE_BITS.get(data_type)
    if bits is not None:
        return -(-elements * bits // 8)
    return int(elements * numpy_dtype(data_type).itemsize)


def require_length(data_type: int, dims: Sequence[int], length: int) -> None:
    """Raise `SurgeonError` unless a tensor of this dtype and shape has so many bytes."""
    needed = byte_count(data_type, dims)
    if length != needed:
        raise SurgeonError(
            f"{dtype_name(data_type)} {list(dims)} needs {needed} bytes, but has {length}"
        )


def decode(data_type: int, dims: Sequence[int], raw: bytes | bytearray | memoryview) -> Array:
    """Return the array that raw bytes hold."""
    require_length(data_type, dims, len(raw))
    bits = _SUB_BYTE_BITS.get(data_type)
    if bits is None:
        try:
            return np.frombuffer(raw, numpy_dtype(data_type)).reshape(dims)
        except ValueError as error:  # negative sizes, more axes than an array has
            raise SurgeonError(f"a tensor cannot have shape {list(dims)[:70]}: {error}") from error
    return to_array(TensorProto(data_type=data_type, dims=dims, raw_data=bytes(raw)))


def payload(array: Array) -> bytes | memoryview:
    """Return the bytes of `encode`, as a view of the array where it holds them already."""
    if byte_count(data_type_of_numpy(array.dtype), array.shape) != array.nbytes:
        return encode(array)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def encode(array: Array) -> bytes:
    """Return the raw bytes of an array; the inverse of `decode`, except for strings."""
    return from_array(array).raw_data


def to_array(tensor: TensorProto) -> Array:
    """Return the numbers of a tensor whose payload is in memory."""
    if tensor.data_location == TensorProto.EXTERNAL:  # onnx would read it from the working folder
        raise SurgeonError(f"tensor {tensor.name!r} refers to data in another file: refused")
    try:
        return np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, KeyError, TypeError) as error:
        raise SurgeonError(f"tensor {tensor.name!r} is malformed: {error}") from error


def from_array(array: Array, name: str = "") -> TensorProto:
    """Return a tensor with the array's numbers."""
    if array.dtype.kind in "OUS":
        encoded = [item if isinstance(item, bytes) else str(item).encode() for item in array.flat]
        return TensorProto(
            name=name, data_type=TensorProto.STRING, dims=array.shape, string_data=encoded
        )
    return numpy_helper.from_array(np.asarray(array), name)


def unordered_digest(raw: bytes, data_type: int) -> str:
    """Return a digest of a tensor's elements that a transpose does not change."""
    size = byte_count(data_type, [1]) if data_type != TensorProto.STRING else 1
    elements = np.frombuffer(raw, np.dtype(f"u{size}") if len(raw) % size == 0 else np.uint8)
    total = np.uint64(0)
    with np.errstate(over="ignore"):
        for start in range(0, elements.size, _BLOCK):
            bits = elements[start : start + _BLOCK].astype(np.uint64)
            for factor in (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93):
                bits *= np.uint64(factor)
                bits ^= bits >> np.uint64(31)
            total += bits.sum(dtype=np.uint64)
    return f"{data_type}:{elements.size}:{int(total):x}"
