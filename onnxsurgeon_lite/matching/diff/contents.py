"""Compare the contents of tensors in blocks."""

import math
from collections.abc import Iterator

from onnx import TensorProto

from onnxsurgeon_lite.matching.diff.result import TensorDifference
from onnxsurgeon_lite.model import Model, is_external
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.comparison import EXACT, Tolerance, compare

_BLOCK = 1 << 20  # bytes


def compare_contents(
    models: tuple[Model, Model],
    tensor: TensorProto,
    other: TensorProto,
    tolerance: Tolerance | None,
) -> TensorDifference | None:
    """Return the difference of two tensors with one dtype and shape, None when equal."""
    if tensor.data_type == TensorProto.STRING:
        return _compare_strings(tensor, other)
    first, second = models
    if (
        is_external(tensor)
        and is_external(other)
        and _place(first, tensor) == _place(second, other)
    ):
        return None
    elements = math.prod(tensor.dims)
    seen = differing = exceeding = 0
    max_abs, equal = 0.0, True
    for mine, theirs in zip(_blocks(first, tensor), _blocks(second, other), strict=True):
        count = min(elements - seen, 8 * len(mine) // _bytes_of(tensor.data_type, 8))
        seen += count
        if mine == theirs:
            continue
        equal = False
        x, y = (dtypes.decode(tensor.data_type, [count], block) for block in (mine, theirs))
        found = compare(x, y, EXACT, ())
        differing += found.exceeding
        max_abs = max(max_abs, found.max_abs)
        if tolerance is not None:
            exceeding += compare(x, y, tolerance.of(tensor.name), ()).exceeding
    if equal or (tolerance is not None and not exceeding):
        return None
    over = None if tolerance is None else exceeding
    return TensorDifference(elements, differing, max_abs, over)


def _place(model: Model, tensor: TensorProto) -> tuple[str, int, int]:
    file, offset, length = model.span(tensor)
    return str(file.path), offset, length


def _bytes_of(data_type: int, elements: int) -> int:
    return dtypes.byte_count(data_type, [elements])


def _blocks(model: Model, tensor: TensorProto) -> Iterator[bytes]:
    if is_external(tensor):
        file, offset, _ = model.span(tensor)
        yield from file.blocks(offset, _bytes_of(tensor.data_type, math.prod(tensor.dims)), _BLOCK)
        return
    raw = model.raw(tensor)
    for start in range(0, len(raw), _BLOCK):
        yield raw[start : start + _BLOCK]


def _compare_strings(tensor: TensorProto, other: TensorProto) -> TensorDifference | None:
    pairs = zip(tensor.string_data, other.string_data, strict=False)
    differing = sum(mine != theirs for mine, theirs in pairs)
    differing += abs(len(tensor.string_data) - len(other.string_data))
    return TensorDifference(len(tensor.string_data), differing, 0.0) if differing else None
