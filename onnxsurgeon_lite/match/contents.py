"""Pairs of values that hold the same numbers, in one order or transposed."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from onnxsurgeon_lite.match.sides import Fact, Side
from onnxsurgeon_lite.match.signatures import (
    Floats,
    Signature,
    distance,
    loosest,
    tolerance,
    transposition,
)

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
    found = []
    for fact in a.facts.values():
        if fact.signature is not None:
            shelf = shelves.get(fact.signature.elements)
            for other in shelf.near(fact.signature) if shelf is not None else ():
                how = _agreement(fact, other)
                if how is not None:
                    found.append((how[0], Candidate(fact, other, how[1])))
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
        return _agreement(a, b) is not None
    if a.small is None or b.small is None:
        return None
    if a.small.size != b.small.size:
        return False
    one, other = (np.asarray(side.small).reshape(-1) for side in (a, b))
    if one.dtype.kind in "OUS" or other.dtype.kind in "OUS":
        return bool((one == other).all())
    return bool(np.allclose(one.astype(float), other.astype(float), 1e-3, 1e-5, equal_nan=True))


@dataclass(frozen=True)
class _Shelf:
    """The values of one size, by their norms."""

    facts: list[Fact]
    norms: list[float]
    sums: Floats

    def near(self, wanted: Signature) -> Iterator[Fact]:
        """Those whose norm, sum, largest and smallest element may be this one's."""
        slack = _SLACK * wanted.norm + 1e-30
        start = bisect_left(self.norms, wanted.norm - slack)
        stop = bisect_right(self.norms, wanted.norm + slack)
        close = loosest(wanted, self.sums[start:stop])
        yield from (self.facts[start + int(i)] for i in np.flatnonzero(close))


def _shelves(side: Side) -> dict[int, _Shelf]:
    by_size: dict[int, list[tuple[float, int, Fact, Floats]]] = defaultdict(list)
    for fact in side.facts.values():
        if fact.signature is not None:
            entry = fact.signature.norm, fact.rank, fact, fact.signature.sums
            by_size[fact.signature.elements].append(entry)
    return {
        size: _Shelf(
            [fact for _, _, fact, _ in entries],
            [norm for norm, *_ in entries],
            np.array([sums for *_, sums in entries]),
        )
        for size, entries in ((size, sorted(e, key=lambda x: x[:2])) for size, e in by_size.items())
    }


def _agreement(a: Fact, b: Fact) -> tuple[float, tuple[int, ...] | None] | None:
    """(distance, order of axes) of two values that hold the same numbers."""
    assert a.signature is not None
    assert b.signature is not None
    apart = distance(a.signature, b.signature)
    if apart <= tolerance(a.signature, b.signature):
        return apart, None
    axes = transposition(a.signature, b.signature)
    return None if axes is None else (_ROUNDING, axes)
