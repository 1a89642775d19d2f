"""Pairs of values that hold the same numbers, in one order or transposed."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from onnxsurgeon_lite.match.sides import Fact, Side
from onnxsurgeon_lite.match.signatures import Stack, transposition
from onnxsurgeon_lite.signature import Signature

_MUCH_FARTHER = 20.0  # a candidate this many times as far as the nearest is another value
_ROUNDING = 2e-6  # nearer than this, candidates are equally near
_SLACK = 2e-2  # of the norm; no tolerance is wider


@dataclass(frozen=True)
class Candidate:
    """A possible pair whose contents agree. axes: the order of a's axes in which it is b, where that is another."""

    a: Fact
    b: Fact
    axes: tuple[int, ...] | None = None


def candidates(a: Side, b: Side) -> list[Candidate]:
    """Pairs whose contents agree, and where neither has a partner that agrees much better."""
    shelves = _shelves(b)
    found: list[tuple[float, Candidate]] = []
    for fact in a.facts.values():
        if fact.signature is not None and fact.signature.elements in shelves:
            found += shelves[fact.signature.elements].agreeing(fact, fact.signature)
    nearest: dict[tuple[str, int], float] = {}
    for apart, c in found:
        for key in ((c.a.name, 0), (c.b.name, 1)):
            nearest[key] = min(apart, nearest.get(key, apart))
    return [
        c
        for apart, c in found
        if apart <= max(_ROUNDING, _MUCH_FARTHER * min(nearest[c.a.name, 0], nearest[c.b.name, 1]))
    ]


def agreeing(a: Fact, b: Fact) -> bool | None:
    """Whether two values hold the same numbers; None where they say too little."""
    if a.signature is not None and b.signature is not None:
        if a.signature.elements != b.signature.elements:
            return False
        return any(_Shelf([(b.signature, b)]).agreeing(a, a.signature))
    if a.small is None or b.small is None:
        return None
    if a.small.size != b.small.size:
        return False
    one, other = (np.asarray(side.small).reshape(-1) for side in (a, b))
    if one.dtype.kind in "OUS" or other.dtype.kind in "OUS":
        return bool((one == other).all())
    return bool(np.allclose(one.astype(float), other.astype(float), 1e-3, 1e-5, equal_nan=True))


class _Shelf:
    """The values of one size, by their norms."""

    def __init__(self, facts: Sequence[tuple[Signature, Fact]]) -> None:
        self._pairs = sorted(facts, key=lambda pair: (pair[0].norm, pair[1].rank))
        self._norms = [signature.norm for signature, _ in self._pairs]
        self._stack = Stack([signature for signature, _ in self._pairs])

    def agreeing(self, fact: Fact, wanted: Signature) -> Iterator[tuple[float, Candidate]]:
        """(distance, candidate) of each that holds the same numbers."""
        slack = _SLACK * wanted.norm + 1e-30
        start = bisect_left(self._norms, wanted.norm - slack)
        part = slice(start, bisect_right(self._norms, wanted.norm + slack))
        allowed = self._stack.tolerances(wanted, part)
        sums = self._stack.sums_distances(wanted, part)
        close = np.flatnonzero(sums <= allowed)
        samples = self._stack.sample_distances(wanted, start + close)
        for i, apart in zip(close.tolist(), samples.tolist(), strict=True):
            signature, other = self._pairs[start + i]
            if apart <= allowed[i]:
                yield max(apart, float(sums[i])), Candidate(fact, other)
            elif (axes := transposition(wanted, signature)) is not None:
                yield _ROUNDING, Candidate(fact, other, axes)


def _shelves(side: Side) -> dict[int, _Shelf]:
    by_size: dict[int, list[tuple[Signature, Fact]]] = defaultdict(list)
    for fact in side.facts.values():
        if fact.signature is not None:
            by_size[fact.signature.elements].append((fact.signature, fact))
    return {size: _Shelf(facts) for size, facts in by_size.items()}
