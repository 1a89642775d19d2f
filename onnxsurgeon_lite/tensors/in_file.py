"""Tensors whose elements lie in a file as they do in memory, so that some rows can be read alone."""

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from onnxsurgeon_lite.errors import SourceChangedError, SurgeonError
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array, DType, Shape, Stored

_TOGETHER = 1 << 17  # elements that are read at a time: 1 MB in float64 stays in the cache


@dataclass(frozen=True)
class InFile:
    """Reads a tensor; a slice of it is an array of these rows.

    Attributes:
        read: reads and checks the tensor.
        offset: of its first byte.
    """

    read: Callable[[], Stored]
    path: Path
    offset: int
    shape: Shape
    dtype: DType

    def __call__(self) -> Stored:
        return self.read()

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def reshape(self, shape: int | Shape) -> "InFile":
        """Return the same elements in another shape; one size may be -1."""
        sizes = (shape,) if isinstance(shape, int) else shape
        # -1 turns the sign of the product
        left = -self.size // math.prod(sizes)
        return replace(self, shape=tuple(left if size < 0 else size for size in sizes))

    def __getitem__(self, rows: slice) -> Array:
        # rows follow one another: one read gets them all
        start, stop, _ = rows.indices(self.shape[0])
        made = np.empty((max(stop - start, 0), *self.shape[1:]), self.dtype)
        if made.size:
            try:
                self.fill(start * made[0].nbytes, made.reshape(-1).view(np.uint8).data)
            except OSError as error:
                raise SourceChangedError(
                    f"{str(self.path)!r} became shorter during the read"
                ) from error
        return made

    def fill(self, start: int, target: memoryview) -> None:
        """Read the bytes from `start` on, unchecked; raise `OSError` where there are too few."""
        with self.path.open("rb", buffering=0) as file:
            file.seek(self.offset + start)
            if file.readinto(target) != target.nbytes:
                raise OSError(f"{str(self.path)!r} ends too early")


Rows = Array | InFile
"""A tensor whose rows are read when it is sliced, or are in memory."""


def parts(tensor: Rows) -> Iterator[Array]:
    """Yield the rows that are read together."""
    yield from (tensor[rows] for rows in rows_at_a_time(tensor.shape))


def whole(rows: Rows) -> Array:
    """Return all of a tensor."""
    return np.asarray(rows.read()).reshape(rows.shape) if isinstance(rows, InFile) else rows


def digest(tensor: Rows, dtype: DType | None = None) -> str:
    """Return a digest of the elements, cast to a dtype, which their order does not change."""
    dtype = dtype or tensor.dtype
    total = np.uint64(0)
    with np.errstate(over="ignore"):
        # each element is mixed alone, so its place does not matter
        for part in parts(tensor.reshape(-1)):
            numbers = part.astype(dtype, copy=False)
            held = np.frombuffer(dtypes.encode(numbers), np.uint8) if dtype.hasobject else numbers
            # a sum of mixed bits
            bits = held.view(f"u{min(held.itemsize, 8)}").astype(np.uint64)
            for factor in (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93):
                bits *= np.uint64(factor)
                bits ^= bits >> np.uint64(31)
            total += bits.sum(dtype=np.uint64)
    return f"{dtype}:{tensor.size}:{int(total):x}"


def in_file(
    read: Callable[[], Stored], path: Path, offset: int, length: int, dtype: str, shape: Shape
) -> Callable[[], Stored]:
    """Return what reads a tensor, with the place of its elements if they lie there as in memory."""
    try:
        data_type = dtypes.data_type_of(dtype)
        element = dtypes.numpy_dtype(data_type)
    except (ValueError, SurgeonError):
        return read  # which says so
    # neither packed nor cut
    plain = length == math.prod(shape) * element.itemsize == dtypes.byte_count(data_type, shape)
    if not (plain and shape) or element.hasobject or sys.byteorder != "little":
        return read
    return InFile(read, path, offset, shape, element)


def rows_at_a_time(shape: Shape) -> Iterator[slice]:
    """Yield rows that are read together: what is computed of them takes many times their memory."""
    # at least one row, however long it is
    step = max(1, _TOGETHER // max(1, math.prod(shape[1:])))
    yield from (slice(at, at + step) for at in range(0, shape[0], step))
