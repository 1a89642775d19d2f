"""Find pairs of values with equal numbers, also transposed."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from onnxsurgeon_lite.matching.values.facts import Fact, Side
from onnxsurgeon_lite.matching.values.signatures import Pairs, SignatureStack, transposition
from onnxsurgeon_lite.tensors.signature import Signature

_MUCH_FARTHER = 20.0  # times the nearest distance; farther candidates are rejected
_ROUNDING = 2e-6  # distances below this are equal
_AT_ONCE = 1 << 11  # pairs
_SLACK = 1.1  # a tolerance is relative to the larger norm of a pair


@dataclass(frozen=True)
class Candidate:
    """A possible pair with equal contents. axes: the permutation of a's axes that gives b, None if none is needed."""

    a: Fact
    b: Fact
    axes: tuple[int, ...] | None = None


def candidates(a: Side, b: Side) -> list[Candidate]:
    """Return pairs whose contents agree, without those that have a much nearer partner."""
    found: list[tuple[float, Candidate]] = []
    others = _by_size(b)
    for size, ones in _by_size(a).items():
        found += _agreeing(ones, others.get(size, []))
    found.sort(key=lambda each: each[1].a.rank)
    nearest: dict[tuple[str, int], float] = {}
    for apart, c in found:
        for key in ((c.a.name, 0), (c.b.name, 1)):
            nearest[key] = min(apart, nearest.get(key, apart))
    return [
        c
        for apart, c in found
        if apart <= max(_ROUNDING, _MUCH_FARTHER * min(nearest[c.a.name, 0], nearest[c.b.name, 1]))
    ]


def in_two_orders(side: Side) -> set[str]:
    """Return the values whose numbers a side has in another order of axes, too, as a value of the same shape."""
    found = candidates(side, side)
    return {c.a.name for c in found if c.axes is not None and c.a.shape == c.b.shape}


def agreeing(a: Fact, b: Fact, turned: bool = True) -> bool | None:
    """Return whether two values hold equal numbers, None when they carry too little information.

    Args:
        turned: they may be transposed.
    """
    if a.signature is not None and b.signature is not None:
        if a.signature.elements != b.signature.elements:
            return False
        found = _agreeing([(a, a.signature)], [(b, b.signature)])
        return any(turned or candidate.axes is None for _, candidate in found)
    if a.small is None or b.small is None:
        return None
    if a.small.size != b.small.size:
        return False
    one, other = (np.asarray(side.small).reshape(-1) for side in (a, b))
    if one.dtype.kind in "OUS" or other.dtype.kind in "OUS":
        return bool((one == other).all())
    return bool(np.allclose(one.astype(float), other.astype(float), 1e-3, 1e-5, equal_nan=True))


_Signed = list[tuple[Fact, Signature]]
"""Values with one number of elements, and their signatures."""


def _agreeing(ones: _Signed, others: _Signed) -> Iterator[tuple[float, Candidate]]:
    """Yield (distance, candidate) of pairs with equal numbers."""
    if not others:
        return
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
                yield distance, Candidate(a, b)
            elif (axes := transposition(one, other)) is not None:
                yield _ROUNDING, Candidate(a, b, axes)


def _near(ones: SignatureStack, others: SignatureStack) -> Iterator[Pairs]:
    """Yield blocks of pairs with near norms; `others` is sorted by norm."""
    slack = _SLACK * np.maximum(ones.tolerances, others.tolerances.max()) * ones.norms + 1e-30
    starts = np.searchsorted(others.norms, ones.norms - slack, "left")
    counts = np.searchsorted(others.norms, ones.norms + slack, "right") - starts
    cuts = np.diff(counts.cumsum() // _AT_ONCE).nonzero()[0] + 1
    for block in np.split(np.arange(len(counts)), cuts):
        here = counts[block]
        rows = np.repeat(block, here)
        first = np.repeat(starts[block] - here.cumsum() + here, here)
        yield Pairs(ones, others, rows, first + np.arange(len(rows)))


def _by_size(side: Side) -> dict[int, _Signed]:
    found: dict[int, _Signed] = defaultdict(list)
    for fact in side.facts.values():
        if fact.signature is not None:
            found[fact.signature.elements].append((fact, fact.signature))
    return found
