"""Convert `TensorProto` and raw bytes to numpy and back, for every ONNX dtype.

bfloat16, float8, float4, int4 and int2 are numpy arrays of the ml_dtypes types. Raw bytes are as in `raw_data`:
little-endian, sub-byte elements packed from the low bits up. float32 is rounded to a narrower float dtype as converted
models hold their constants.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import ArrayLike, NDArray
from onnx import TensorProto, TypeProto, helper, numpy_helper

from onnxsurgeon_lite.errors import SurgeonError, UsageError

Array = NDArray[np.generic]
Wide = NDArray[np.float64]
Arrays = Mapping[str, Array]
DType = np.dtype[np.generic]
Shape = tuple[int, ...]
Stored = Array | list[Array]
RunValue = Stored | None
RunValues = Mapping[str, RunValue]
"""What a run needs or makes, by name."""


_NARROW: dict[int, tuple[DType, int]] = {
    number: (np.dtype(getattr(ml_dtypes, name)), bits)
    for number, name, bits in (
        (16, "bfloat16", 16),
        (17, "float8_e4m3fn", 8),
        (18, "float8_e4m3fnuz", 8),
        (19, "float8_e5m2", 8),
        (20, "float8_e5m2fnuz", 8),
        (21, "uint4", 4),
        (22, "int4", 4),
        (23, "float4_e2m1fn", 4),
        (24, "float8_e8m0fnu", 8),
        (25, "uint2", 2),
        (26, "int2", 2),
    )
}
"""Dtype -> that of ml_dtypes, and its bits; by number, because older versions of onnx lack the last ones."""
_NUMBERS = {dtype: number for number, (dtype, _) in _NARROW.items()}
_NAMES = {"float4e2m1": 23, "float8e8m0": 24, "uint2": 25, "int2": 26}
"""The dtypes that came after onnx 1.17."""


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
        newer = (name for name, number in _NAMES.items() if number == data_type)
        return next(newer, f"unknown dtype {data_type}")


def data_type_of(name: str) -> int:
    """Return the `TensorProto.DataType` with this name; the inverse of `dtype_name`."""
    # names that an old onnx does not know, first
    return _NAMES.get(name.lower()) or int(TensorProto.DataType.Value(name.upper()))


@functools.cache
def numpy_dtype(data_type: int) -> DType:
    """Return the numpy dtype of one element; strings are objects."""
    if data_type in _NARROW:
        return _NARROW[data_type][0]
    try:
        return np.dtype(helper.tensor_dtype_to_np_dtype(data_type))
    except KeyError as error:
        raise SurgeonError(
            f"onnx {onnx.__version__} does not know dtype {data_type}", "pip install -U onnx"
        ) from error


@functools.cache
def data_type_of_numpy(dtype: DType) -> int:
    """Return the `TensorProto.DataType` of a numpy dtype."""
    if dtype.kind in "OUS":  # objects, str, bytes
        return int(TensorProto.STRING)
    if dtype in _NUMBERS:
        return _NUMBERS[dtype]
    try:
        return int(helper.np_dtype_to_tensor_dtype(dtype))
    except ValueError as error:
        raise SurgeonError(f"numpy's {dtype} is not an ONNX dtype") from error


def wide(array: NDArray[Any]) -> Wide:
    """Return numbers in float64."""
    return array.astype(np.float64)


def peak(array: Array) -> float:
    """Return the largest magnitude; 0 where there is no number."""
    return float(np.abs(array).max(initial=0.0))


def rms(numbers: NDArray[Any]) -> float:
    """Return the root of the mean square; 0.0 of nothing."""
    return float(np.sqrt(np.mean(np.square(numbers)))) if numbers.size else 0.0


def by_channel(array: NDArray[Any], axis: int | None) -> NDArray[Any]:
    """Return an array with a row for each place of an axis, [size of the axis, all else]; one row without an axis."""
    if axis is None:
        return array.reshape(1, -1)
    return np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)


def is_array(value: object) -> TypeGuard[Array]:
    """Return whether a value is one tensor: no sequence, and not absent."""
    return isinstance(value, np.ndarray)


def is_float(dtype: DType) -> bool:
    """Return whether a dtype is real floating-point, those of ml_dtypes included."""
    return dtype.kind == "f" or "float" in dtype.name


def arrays_in(value: RunValue) -> list[Array]:
    """Return the tensors that a value holds: one, those of a sequence, or none."""
    return value if isinstance(value, list) else [] if value is None else [value]


def has_floats(value: object) -> TypeGuard[Array]:
    """Return whether a value is a tensor of floats."""
    return isinstance(value, np.ndarray) and is_float(value.dtype)


def type_of(value: Stored) -> TypeProto:
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


def fits(kind: TypeProto | None, value: Stored) -> bool:
    """Return whether a type permits the shape of a value; sequences and unknown types permit every one."""
    if isinstance(value, list) or kind is None or not kind.tensor_type.HasField("shape"):
        return True
    dims = [dim.dim_value for dim in kind.tensor_type.shape.dim]  # 0 where a size is not known
    return len(dims) == value.ndim and all(
        d <= 0 or d == size for d, size in zip(dims, value.shape, strict=True)
    )


def byte_count(data_type: int, dims: Sequence[int]) -> int:
    """Return the number of `raw_data` bytes for a tensor of this dtype and shape."""
    return -(-math.prod(dims) * bits_of(numpy_dtype(data_type)) // 8)  # rounded up to whole bytes


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
    dtype = numpy_dtype(data_type)
    try:
        return _unpacked(raw, dtype, math.prod(dims)).reshape(dims)
    except ValueError as error:  # negative sizes, more axes than an array has
        raise SurgeonError(f"a tensor cannot have shape {list(dims)[:70]}: {error}") from error


def _unpacked(raw: bytes | bytearray | memoryview, dtype: DType, count: int) -> Array:
    """Return the `count` elements in raw bytes, flat."""
    parts = 8 * dtype.itemsize // bits_of(dtype)  # elements in a byte: 2 for int4
    if parts == 1:
        return np.frombuffer(raw, dtype)
    # one column for each element of a byte, the low bits first
    fields = np.empty((len(raw), parts), np.uint8)
    for part in range(parts):
        np.right_shift(np.frombuffer(raw, np.uint8), part * 8 // parts, out=fields[:, part])
    fields &= 0xFF >> 8 - 8 // parts  # the bits of one element: 0x0F for int4
    return fields.ravel()[:count].view(dtype)


def payload(array: Array) -> bytes | memoryview:
    """Return the bytes of `encode`, as a view of the array where it holds them already."""
    # packed dtypes: in memory, each element takes a byte
    if byte_count(data_type_of_numpy(array.dtype), array.shape) != array.nbytes:
        return encode(array)
    return np.ascontiguousarray(array).ravel().view(np.uint8).data


def encode(array: Array) -> bytes:
    """Return the raw bytes of an array; the inverse of `decode`, except for strings."""
    parts = 8 * array.dtype.itemsize // bits_of(array.dtype)
    if parts == 1:
        return array.tobytes()
    fields = np.zeros((-(-array.size // parts), parts), np.uint8)
    fields.ravel()[: array.size] = np.ascontiguousarray(array).ravel().view(np.uint8)
    fields &= 0xFF >> 8 - 8 // parts
    fields <<= np.arange(0, 8, 8 // parts, dtype=np.uint8)
    return bytes(np.bitwise_or.reduce(fields, axis=1))


def bits_of(dtype: DType) -> int:
    """Return the bits of an element in raw bytes."""
    return _NARROW[_NUMBERS[dtype]][1] if dtype in _NUMBERS else 8 * dtype.itemsize


def to_array(tensor: TensorProto) -> Array:
    """Return the numbers of a tensor whose payload is in memory."""
    if tensor.data_location == TensorProto.EXTERNAL:  # onnx would read it from the working folder
        raise SurgeonError(f"tensor {tensor.name!r} refers to data in another file: refused")
    try:
        if tensor.data_type not in _NARROW:
            return np.asarray(numpy_helper.to_array(tensor))  # all other dtypes: onnx's own reader
        typed = np.array(tensor.int32_data, np.int32)  # an integer for each number, or packed byte
        raw = tensor.raw_data or typed.astype("u2" if tensor.data_type == 16 else "u1").tobytes()
        return decode(tensor.data_type, tensor.dims, raw)
    except (ValueError, KeyError, TypeError) as error:
        raise SurgeonError(f"tensor {tensor.name!r} is malformed: {error}") from error


def from_array(array: Array, name: str = "") -> TensorProto:
    """Return a tensor with the array's numbers."""
    if array.dtype.kind in "OUS":
        encoded = [item if isinstance(item, bytes) else str(item).encode() for item in array.flat]
        return TensorProto(
            name=name, data_type=TensorProto.STRING, dims=array.shape, string_data=encoded
        )
    if array.dtype not in _NUMBERS:
        return numpy_helper.from_array(np.asarray(array), name)
    return TensorProto(
        name=name, data_type=_NUMBERS[array.dtype], dims=array.shape, raw_data=encode(array)
    )


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
