"""A tensor's content in a few numbers, to recognize the tensor elsewhere.

This file imports nothing from the package: the runtime's process loads it, so that tensors stay in that process.
"""

from __future__ import annotations  # an older Python may run it

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from onnxsurgeon_lite.tensors.dtypes import wide

MIN_ELEMENTS = 8
"""Tensors with fewer elements match by chance."""
_SUMS, _SAMPLE = 4, 512
_MIN_DISTINCT = 8  # of the first elements: constants and masks are not recognized
_MAX_AXES = 6

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Signature:
    """A tensor's content in a few numbers.

    Attributes:
        sums: sum, L2 norm, maximum and minimum of all elements.
        sample: elements at fixed positions of the flattened tensor.
        means: for each axis, the mean over the other axes.
        half: the dtype has half precision or less.
    """

    shape: tuple[int, ...]
    sums: Floats
    sample: Floats
    means: tuple[Floats, ...]
    half: bool

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def norm(self) -> float:
        """The L2 norm."""
        return float(self.sums[1])

    def packed(self) -> Floats:
        """Return all numbers as one array."""
        return np.concatenate([self.sums, self.sample, *self.means])


def unpacked(shape: Sequence[int], half: bool, numbers: Floats) -> Signature:
    """Return the signature that `packed` turned into these numbers."""
    sample = min(math.prod(shape), _SAMPLE)
    ends = np.cumsum([_SUMS, sample] + list(shape if len(shape) <= _MAX_AXES else ()))
    sums, elements, *means = np.split(numbers, ends[:-1])
    return Signature(tuple(shape), sums, elements, tuple(means), half)


def signature_of(array: NDArray[np.generic]) -> Signature | None:
    """Return a tensor's signature; None if it cannot be recognized: integers, too few or too equal elements."""
    if array.size < MIN_ELEMENTS:
        return None
    half = array.dtype.itemsize == 2 if array.dtype.kind == "f" else array.dtype.name == "bfloat16"
    if not half and array.dtype.kind != "f":
        return None
    numbers = array.astype(np.float32) if half else array
    flat = numbers.ravel()
    sample = wide(flat[_places(flat.size)])
    # sparse tensors by their elements that are not zero
    if not np.isfinite(sample).all() or not (_differ(sample) or _differ(flat[flat != 0])):
        return None
    with np.errstate(all="ignore"):
        means = _means(numbers)
        total = means[0].sum() * flat.size / len(means[0]) if means else flat.sum(dtype=np.float64)
        sums = np.array([total, float(np.dot(flat, flat)) ** 0.5, flat.max(), flat.min()])
    if not np.isfinite(sums).all():
        return None
    return Signature(array.shape, sums, sample, means, half)


def _differ(elements: NDArray[np.generic]) -> bool:
    return len(set(elements[:64].tolist())) >= _MIN_DISTINCT


@lru_cache(maxsize=64)
def _places(size: int) -> NDArray[np.int64]:
    return np.linspace(0, size - 1, min(size, _SAMPLE)).astype(np.int64)


def _means(numbers: NDArray[np.generic]) -> tuple[Floats, ...]:
    """Return for each axis the mean over the others; the axes before it are summed once for all that follow.

    Sums are products with ones: several times as fast, and precise enough.
    """
    if numbers.ndim > _MAX_AXES:
        return ()
    sums = {}
    rest = numbers.ravel()
    # axes of size 1 have the mean of all
    *axes, last = (axis for axis, size in enumerate(numbers.shape) if size > 1)
    for axis in axes:  # peel one axis off at a time
        table = rest.reshape(numbers.shape[axis], -1)
        sums[axis] = table @ np.ones(table.shape[1], table.dtype)
        rest = table.T @ np.ones(table.shape[0], table.dtype)  # what is left, summed over that axis
    sums[last] = rest
    total = rest.sum(keepdims=True)
    return tuple(
        wide(sums.get(axis, total)) * (size / numbers.size)
        for axis, size in enumerate(numbers.shape)
    )
