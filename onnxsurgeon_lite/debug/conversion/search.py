"""Find the few of many roundings that spoil a result. The search knows no model: it asks for the error of a choice."""

import heapq
from collections.abc import Callable, Collection, Iterable
from math import hypot, inf
from typing import TypeVar

T = TypeVar("T")
Excess = Callable[[frozenset[int]], float]
"""The roundings that happen -> the error, as a multiple of the limit."""

_MOST = 60  # questions; from then on parts are taken whole


class Asked:
    """An `Excess` that counts its questions."""

    def __init__(self, excess: Excess, most: int = _MOST) -> None:
        self._excess = excess
        self._known: dict[frozenset[int], float] = {}
        self.left = most

    def __call__(self, rounded: frozenset[int]) -> float:
        if rounded not in self._known:
            self.left -= 1
            self._known[rounded] = self._excess(rounded)
        return self._known[rounded]


def spoilers(count: int, excess: Asked, suspects: Collection[int] = ()) -> list[list[int]]:
    """Return groups of roundings, few, without which the error is within the limit.

    The effect of a part is measured with the part alone rounded; the worst part is split first, until it is one
    rounding or the questions are used up. Effects add up as the square root of their squares' sum, so the whole is
    asked only when it can be good.

    Args:
        suspects: roundings that overflow: left out together first, then taken back where they do no harm.
    """
    everything = frozenset(range(count))
    left: list[list[int]] = []
    if suspects and excess(everything - {*suspects}) < inf:
        left = [[number] for number in suspects]
    parts = [(-inf, 0, count)]
    while parts and not _can_be_good(parts, left, everything, excess):
        _, low, high = heapq.heappop(parts)
        if high - low == 1 or excess.left <= 0:
            left.append([*range(low, high)])
            continue
        middle = (low + high) // 2
        for part in ((low, middle), (middle, high)):
            effect = excess(frozenset(range(*part)) - _joined(left))
            heapq.heappush(parts, (-effect, *part))
    return left


def _can_be_good(
    parts: list[tuple[float, int, int]],
    left: list[list[int]],
    everything: frozenset[int],
    excess: Asked,
) -> bool:
    expected = hypot(*(effect for effect, *_ in parts))
    return expected <= 1.5 and excess(everything - _joined(left)) <= 1


def _joined(groups: Iterable[Iterable[int]]) -> frozenset[int]:
    return frozenset(number for group in groups for number in group)


def pruned(items: Iterable[T], suffices: Callable[[list[T]], bool], most: int = _MOST) -> list[T]:
    """Return those items that cannot be left out, tried in groups, then in halves of them."""
    kept = list(items)
    pending = [list(kept)]
    while pending and (most := most - 1) >= 0:
        group = pending.pop()
        rest = [item for item in kept if item not in group]
        if group and suffices(rest):
            kept = rest
        elif len(group) > 1:
            middle = len(group) // 2
            pending += [group[middle:], group[:middle]]
    return kept
