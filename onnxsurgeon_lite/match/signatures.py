"""Whether two tensors hold the same numbers, in one order or transposed, as their signatures tell."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from onnxsurgeon_lite.signature import Floats, Signature

_TOLERANCE, _HALF_TOLERANCE = 1e-3, 2e-2


def tolerance(one: Signature, other: Signature) -> float:
    """Up to which distance two tensors are the same."""
    return _HALF_TOLERANCE if one.half or other.half else _TOLERANCE


def distance(one: Signature, other: Signature) -> float:
    """How far apart two tensors are in the same flat order, relative to their size; inf for another size."""
    if one.elements != other.elements:
        return float("inf")
    stack = Stack([other])
    return float(max(stack.sums_distances(one)[0], stack.sample_distances(one, [0])[0]))


class Stack:
    """Signatures of tensors of one size, to be held against another all at once; sorted by norm where that matters."""

    def __init__(self, signatures: Sequence[Signature]) -> None:
        self._sums = np.array([each.sums for each in signatures])
        self._samples = np.array([each.sample for each in signatures])
        self._sizes = np.linalg.norm(self._samples, axis=1)
        self._half = np.array([each.half for each in signatures])

    def tolerances(self, one: Signature, part: slice = slice(None)) -> Floats:
        """Up to which distance each is the same tensor as one."""
        return np.where(self._half[part] | one.half, _HALF_TOLERANCE, _TOLERANCE)

    def sums_distances(self, one: Signature, part: slice = slice(None)) -> Floats:
        """Of the sums, in units of what their rounding may be: the norm times the root of the number of elements."""
        sums = self._sums[part]
        scale = np.maximum(np.maximum(sums[:, 1], one.norm), 1e-30)
        total = np.abs(sums[:, 0] - one.sums[0]) / (scale * one.elements**0.5)
        ends = np.abs(sums[:, 2:] - one.sums[2:]).max(axis=1) / max(
            np.abs(one.sums[2:]).max(), 1e-30
        )
        apart = np.maximum(total, np.abs(sums[:, 1] - one.norm) / scale)
        return np.asarray(np.maximum(apart, ends))

    def sample_distances(self, one: Signature, chosen: Sequence[int] | NDArray[np.intp]) -> Floats:
        """Of the elements at fixed places."""
        size = max(float(np.linalg.norm(one.sample)), 1e-30)
        apart = np.linalg.norm(self._samples[chosen] - one.sample, axis=1)
        return np.asarray(apart / np.maximum(self._sizes[chosen], size))


def transposition(one: Signature, other: Signature) -> tuple[int, ...] | None:
    """The order of one's axes in which it is the other, None where there is no single one.

    Their sums are the same.
    """
    if not one.means or not other.means:
        return None
    allowed = tolerance(one, other)
    found = [
        order
        for order in _orders(one.shape, other.shape)
        if all(
            _relative(one.means[axis], mean) <= allowed
            for axis, mean in zip(order, other.means, strict=True)
        )
    ]
    identity = tuple(range(len(one.shape)))
    moved = {tuple(axis for axis in order if one.shape[axis] > 1): order for order in found}
    return next(iter(moved.values())) if len(moved) == 1 and identity not in found else None


@lru_cache(maxsize=256)
def _orders(one: tuple[int, ...], other: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The orders of axes that make one shape of another; none where only that in place does."""
    if sorted(one) != sorted(other):
        return []
    orders = permutations(range(len(one)))
    found = [order for order in orders if tuple(one[axis] for axis in order) == other]
    return [] if found == [tuple(range(len(one)))] else found


def _relative(one: Floats, other: Floats) -> float:
    size = max(float(np.linalg.norm(one)), float(np.linalg.norm(other)), 1e-30)
    return float(np.linalg.norm(one - other)) / size
