"""A tensor's content in a few numbers, by which it is recognised.

This file imports nothing of the package: the runtime's process loads it, so that tensors need not leave that process.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

MIN_ELEMENTS = 17
"""Tensors with fewer elements are alike by chance."""
_SUMS, _SAMPLE = 4, 512
_MIN_DISTINCT = 8
_MAX_AXES = 6

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Signature:
    """A tensor's content in a few numbers.

    Attributes:
        sums: sum, root of the sum of squares, largest and smallest, over all elements.
        sample: elements at fixed places of the flattened tensor.
        means: for each axis, the mean over the others.
        half: whether it has half precision or less.
    """

    shape: tuple[int, ...]
    sums: Floats
    sample: Floats
    means: tuple[Floats, ...]
    half: bool

    @property
    def elements(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def norm(self) -> float:
        """The root of the sum of squares."""
        return float(self.sums[1])

    def packed(self) -> Floats:
        """Its numbers in a row."""
        return np.concatenate([self.sums, self.sample, *self.means])


def unpacked(shape: Sequence[int], half: bool, numbers: Floats) -> Signature:
    """The signature of a tensor of that shape, from its numbers in a row."""
    sample = min(math.prod(shape), _SAMPLE)
    ends = np.cumsum([_SUMS, sample, *(shape if len(shape) <= _MAX_AXES else ())])
    sums, elements, *means = np.split(numbers, ends[:-1])
    return Signature(tuple(shape), sums, elements, tuple(means), half)


def signature_of(array: NDArray[np.generic]) -> Signature | None:
    """A tensor's signature; None for what carries too little to be recognised: integers, few or equal elements."""
    if array.size < MIN_ELEMENTS:
        return None
    half = array.dtype.itemsize == 2 if array.dtype.kind == "f" else array.dtype.name == "bfloat16"
    if not half and array.dtype.kind != "f":
        return None
    numbers = array.astype(np.float32) if half else array
    flat = numbers.reshape(-1)
    sample = flat[_places(flat.size)].astype(np.float64)
    if not np.isfinite(sample).all() or len({*sample[:64].tolist()}) < _MIN_DISTINCT:
        return None
    with np.errstate(all="ignore"):
        means = _means(numbers)
        total = means[0].sum() * flat.size / len(means[0]) if means else flat.sum(dtype=np.float64)
        sums = np.array([total, float(np.dot(flat, flat)) ** 0.5, flat.max(), flat.min()])
    if not np.isfinite(sums).all():
        return None
    return Signature(array.shape, sums, sample, means, half)


@lru_cache(maxsize=64)
def _places(size: int) -> NDArray[np.int64]:
    return np.linspace(0, size - 1, min(size, _SAMPLE)).astype(np.int64)


def _means(numbers: NDArray[np.generic]) -> tuple[Floats, ...]:
    """For each axis the mean over the others; the axes before it are summed once for all that follow.

    Sums are products with ones: several times as fast, and near enough.
    """
    if numbers.ndim > _MAX_AXES:
        return ()
    sums = {}
    rest = numbers.reshape(-1)
    *axes, last = (axis for axis, size in enumerate(numbers.shape) if size > 1)
    for axis in axes:
        table = rest.reshape(numbers.shape[axis], -1)
        sums[axis] = table @ np.ones(table.shape[1], table.dtype)
        rest = table.T @ np.ones(table.shape[0], table.dtype)
    sums[last] = rest
    total = rest.sum(keepdims=True)
    return tuple(
        sums.get(axis, total).astype(np.float64) * (size / numbers.size)
        for axis, size in enumerate(numbers.shape)
    )
