"""Find pairs of values with equal numbers, also transposed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from onnxsurgeon_lite.matching.values.facts import Fact, Side
from onnxsurgeon_lite.search.grouping import groups
from onnxsurgeon_lite.tensors.dtypes import Shape
from onnxsurgeon_lite.tensors.signature import Floats, Signature

_MUCH_FARTHER = 20.0  # times the nearest distance; farther candidates are rejected
_ROUNDING = 2e-6  # distances below this are equal
_AT_ONCE = 1 << 11  # pairs
_SLACK = 1.1  # a tolerance is relative to the larger norm of a pair


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
        # columns of `sums`: the sum, the norm, the maximum, the minimum
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
    # axes of size 1 may be anywhere: orders that differ only in these are one
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


@dataclass(frozen=True)
class Candidate:
    """A possible pair with equal contents.

    Attributes:
        apart: the relative distance of the numbers.
        axes: the permutation of a's axes that gives b, None if none is needed.
    """

    a: Fact
    b: Fact
    apart: float
    axes: tuple[int, ...] | None = None


def candidates(a: Side, b: Side) -> list[Candidate]:
    """Return pairs whose contents agree, without those that have a much nearer partner."""
    found = list[Candidate]()
    others = _by_size(b)
    for size, ones in _by_size(a).items():
        found += _agreeing(ones, others.get(size, []))
    found.sort(key=lambda each: each.a.rank)
    # (name, side) -> the distance of its nearest partner
    nearest = dict[tuple[str, int], float]()
    for c in found:
        for key in ((c.a.name, 0), (c.b.name, 1)):
            nearest[key] = min(c.apart, nearest.get(key, c.apart))
    return [
        c
        for c in found
        # keeps a pair unless one of its values has a partner that is 20 times nearer
        if c.apart
        <= max(_ROUNDING, _MUCH_FARTHER * min(nearest[c.a.name, 0], nearest[c.b.name, 1]))
    ]


def in_two_orders(side: Side) -> set[str]:
    """Return the values whose numbers a side has in another order of axes, too, as a value of the same shape."""
    found = candidates(side, side)
    return {c.a.name for c in found if c.axes is not None and c.a.shape == c.b.shape}


def agreeing(a: Fact, b: Fact, transposed: bool = True) -> bool | None:
    """Return whether two values hold equal numbers, None when they carry too little information.

    Args:
        transposed: they may be transposed.
    """
    if a.signature is not None and b.signature is not None:
        if a.signature.elements != b.signature.elements:
            return False
        found = _agreeing([(a, a.signature)], [(b, b.signature)])
        return any(transposed or candidate.axes is None for candidate in found)
    if a.small is None or b.small is None:
        return None
    if a.small.size != b.small.size:
        return False
    # too small for a signature: the numbers themselves
    one, other = (np.asarray(side.small).ravel() for side in (a, b))
    if one.dtype.kind in "OUS" or other.dtype.kind in "OUS":
        return bool((one == other).all())
    return bool(np.allclose(one.astype(float), other.astype(float), 1e-3, 1e-5, equal_nan=True))


_Signed = list[tuple[Fact, Signature]]
"""Values with one number of elements, and their signatures."""


def _agreeing(ones: _Signed, others: _Signed) -> Iterator[Candidate]:
    """Yield pairs with equal numbers."""
    if not others:
        return
    # norms first, then sums, then elements: each step leaves fewer pairs
    others = sorted(others, key=lambda pair: (pair[1].norm, pair[0].rank))
    for pairs in _near(
        SignatureStack([s for _, s in ones]), SignatureStack([s for _, s in others])
    ):
        sums = pairs.sums_distances()
        close = sums <= pairs.tolerances()
        pairs, sums = pairs.among(close), sums[close]
        samples = pairs.sample_distances()
        agree = samples <= pairs.tolerances()
        apart = np.maximum(samples, sums)
        for row, column, same, distance in zip(
            *(each.tolist() for each in (pairs.rows, pairs.columns, agree, apart)), strict=True
        ):
            (a, one), (b, other) = ones[row], others[column]
            if same:
                yield Candidate(a, b, distance)
            # sums agree, elements at fixed positions do not: the same numbers in another order
            elif (axes := transposition(one, other)) is not None:
                yield Candidate(a, b, _ROUNDING, axes)


def _near(ones: SignatureStack, others: SignatureStack) -> Iterator[Pairs]:
    """Yield blocks of pairs with near norms; `others` is sorted by norm."""
    # for each value, the range of the others whose norm is near: two binary searches, as norms are sorted
    slack = _SLACK * np.maximum(ones.tolerances, others.tolerances.max()) * ones.norms + 1e-30
    starts = np.searchsorted(others.norms, ones.norms - slack, "left")
    counts = np.searchsorted(others.norms, ones.norms + slack, "right") - starts
    # blocks of about `_AT_ONCE` pairs, cut where their running number passes a multiple of it
    cuts = np.diff(counts.cumsum() // _AT_ONCE).nonzero()[0] + 1
    for block in np.split(np.arange(len(counts)), cuts):
        here = counts[block]
        # a row for each of its partners; the columns of each row count up from its start
        rows = np.repeat(block, here)
        first = np.repeat(starts[block] - here.cumsum() + here, here)
        yield Pairs(ones, others, rows, first + np.arange(len(rows)))


def _by_size(side: Side) -> dict[int, _Signed]:
    signed = ((fact, fact.signature) for fact in side.facts.values() if fact.signature is not None)
    return groups((signature.elements, (fact, signature)) for fact, signature in signed)
