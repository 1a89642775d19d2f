"""Compare tensors by their signatures, also transposed."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from onnxsurgeon_lite.tensors.dtypes import Shape
from onnxsurgeon_lite.tensors.signature import Floats, Signature

_TOLERANCE, _HALF_TOLERANCE = 1e-3, 2e-2

Places = NDArray[np.intp]


class SignatureStack:
    """Stacked signatures of tensors with one number of elements, for vectorized comparison."""

    def __init__(self, signatures: Sequence[Signature]) -> None:
        self.sums = np.array([each.sums for each in signatures])
        self.samples = np.array([each.sample for each in signatures])
        self.sizes = np.linalg.norm(self.samples, axis=1)
        self.tolerances = np.array([_tolerance(each.half) for each in signatures])
        self.elements = signatures[0].elements

    @property
    def norms(self) -> Floats:
        """The L2 norms of the tensors."""
        return np.asarray(self.sums[:, 1])


@dataclass(frozen=True)
class Pairs:
    """Pairs of rows of two stacks."""

    ones: SignatureStack
    others: SignatureStack
    rows: Places
    columns: Places

    def among(self, chosen: NDArray[np.bool_]) -> "Pairs":
        return Pairs(self.ones, self.others, self.rows[chosen], self.columns[chosen])

    def tolerances(self) -> Floats:
        """Return the distances up to which tensors are equal."""
        wider = np.maximum(self.ones.tolerances[self.rows], self.others.tolerances[self.columns])
        return np.asarray(wider)

    def sums_distances(self) -> Floats:
        """Return distances of the sums, relative to their rounding error: norm times root of the element count."""
        one, other = self.ones.sums[self.rows], self.others.sums[self.columns]
        apart, scale = np.abs(one - other), np.maximum(np.abs(one), 1e-30)
        norm = np.maximum(scale[:, 1], other[:, 1])
        total = apart[:, 0] / (norm * self.ones.elements**0.5)
        ends = apart[:, 2:].max(axis=1) / scale[:, 2:].max(axis=1)
        return np.asarray(np.maximum(np.maximum(total, apart[:, 1] / norm), ends))

    def sample_distances(self) -> Floats:
        """Return relative distances of the elements at fixed positions."""
        apart = self.ones.samples[self.rows] - self.others.samples[self.columns]
        sizes = np.maximum(self.ones.sizes[self.rows], self.others.sizes[self.columns])
        return np.asarray(np.linalg.norm(apart, axis=1) / np.maximum(sizes, 1e-30))


def transposition(one: Signature, other: Signature) -> Shape | None:
    """Return the permutation of one's axes that gives the other, None unless exactly one fits.

    The caller has compared their sums.
    """
    if not one.means or not other.means:
        return None
    allowed = _tolerance(one.half or other.half)
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
def _orders(one: Shape, other: Shape) -> list[Shape]:
    """Return the permutations of axes that give the other shape; none if only the identity does."""
    if sorted(one) != sorted(other):
        return []
    orders = permutations(range(len(one)))
    found = [order for order in orders if tuple(one[axis] for axis in order) == other]
    return [] if found == [tuple(range(len(one)))] else found


def _relative(one: Floats, other: Floats) -> float:
    size = max(float(np.linalg.norm(one)), float(np.linalg.norm(other)), 1e-30)
    return float(np.linalg.norm(one - other)) / size


def _tolerance(half: bool) -> float:
    return _HALF_TOLERANCE if half else _TOLERANCE
