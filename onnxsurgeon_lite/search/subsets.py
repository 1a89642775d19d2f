"""Find a few of many items, by questions about subsets or by the error of a choice."""

import heapq
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from math import exp, hypot, inf, log
from typing import TypeVar

from onnxsurgeon_lite.search.grouping import groups

Item = TypeVar("Item")
H = TypeVar("H", bound=Hashable)

_MOST_QUESTIONS = 60


def smallest(
    items: Iterable[Item],
    holds: Callable[[list[Item]], bool],
    most: float = inf,
    soon: Callable[[Iterator[list[Item]]], None] = lambda _: None,
    kind: Callable[[Item], Hashable] = lambda _: None,
) -> list[Item]:
    """Return a subset for which `holds`, from which no single item can be left out; empty if all items do not hold.

    What could not be left out is tried again after others were.

    Args:
        items: in the order that the subsets keep; equal items count separately.
        holds: asked about all items first, then about ever smaller subsets, never about the empty one.
        most: questions; after them, the smallest subset so far is returned.
        soon: receives before each question those that follow while none holds, the question itself first.
        kind: those of a kind are left out together first, kind by kind.

    Source: Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002 (ddmin), complements alone.
    """
    # position -> item: equal items are different ones
    kept = dict(enumerate(items))
    if not kept or not holds(list(kept.values())):
        return []
    asked = 1

    # groups to leave out, the next one last: halved wherever they cannot be left out
    kinds = groups((kind(item), place) for place, item in kept.items())
    # the first kind is on top of the stack
    pending = list(kinds.values())[::-1]
    needed = set[int]()
    while pending and asked < most:
        soon(_without_each(kept, pending))
        group = pending.pop()
        left_out = set(group)
        rest = {place: item for place, item in kept.items() if place not in left_out}
        # the empty subset is never asked about
        asked += bool(rest)
        if rest and holds(list(rest.values())):
            kept = rest
            needed.clear()
        elif len(group) == 1:
            needed.add(group[0])
        else:
            pending += _halves(group)

        # what was needed before another item was left out may not be needed any more
        if not pending:
            pending = [[place] for place in kept if place not in needed]
    return list(kept.values())


def _halves(group: list[int]) -> list[list[int]]:
    middle = len(group) // 2
    return [group[middle:], group[:middle]]


def _without_each(kept: Mapping[int, Item], pending: Iterable[list[int]]) -> Iterator[list[Item]]:
    """Yield what is left without each group, as if each could not be left out."""
    pending = list(pending)
    while pending:
        group = pending.pop()
        if rest := [item for place, item in kept.items() if place not in set(group)]:
            yield rest
        if len(group) > 1:
            pending += _halves(group)


def shortest_run(items: Sequence[Item], holds: Callable[[list[Item]], bool]) -> list[Item]:
    """Return items that follow one another for which `holds`: the last start with an end, then the first such end.

    It asks few questions where that is short. All items must hold.
    """
    # halve: what is from `start` on holds, what is from `beyond` on does not
    start, beyond = 0, len(items)
    while beyond - start > 1:
        middle = (start + beyond) // 2
        start, beyond = (middle, beyond) if holds(list(items[middle:])) else (start, middle)

    # double the length until it holds, then halve: `short` items never hold
    short, count = 0, 1
    while start + count < len(items) and not holds(list(items[start : start + count])):
        short, count = count, 2 * count
    count = min(count, len(items) - start)
    while count - short > 1:
        middle = (short + count) // 2
        short, count = (
            (short, middle) if holds(list(items[start : start + middle])) else (middle, count)
        )
    return list(items[start : start + count])


# What a group is worth: the errors that keeping it avoids.
def by_worth(
    effects: Sequence[float], needs: Sequence[frozenset[H]]
) -> tuple[list[frozenset[H]], list[float]]:
    """Return (groups of items to keep, the most worth first; the error with none of them kept, with one, two, ...).

    Errors of several roundings add up as the square root of their squares' sum.

    Args:
        effects: the error of each rounding. needs: the items that must all be kept to be without it.
    """
    users = defaultdict[H, list[int]](list)  # item -> the roundings that need it
    for number, items in enumerate(needs):
        for item in items:
            users[item].append(number)
    # a group is what one rounding still needs; the heap has the group that is worth the most first
    missing = [set(items) for items in needs]
    heap = [(-_worth(effects[n], items), n) for n, items in enumerate(missing) if items]
    heapq.heapify(heap)
    groups = list[frozenset[H]]()
    gone = list[list[float]]()
    while heap:
        worth, number = heapq.heappop(heap)
        group = frozenset(missing[number])
        # an entry is stale once another group has taken some of its items
        if not group or worth != -_worth(effects[number], missing[number]):
            continue
        # keep the group: all roundings that need items of it are worth more now
        groups.append(group)
        touched = {user for item in group for user in users[item]}
        for user in touched:
            missing[user] -= group
            if missing[user]:
                heapq.heappush(heap, (-_worth(effects[user], missing[user]), user))
        gone.append([effects[user] for user in touched if not missing[user]])

    # from the errors that nothing avoids, back from the last group to the first: add what each one avoids
    left = [hypot(*(effects[n] for n, items in enumerate(needs) if not items))]
    for freed in reversed(gone):
        left.append(hypot(left[-1], *freed))
    return groups, left[::-1]


def _worth(effect: float, items: Collection[object]) -> float:
    return effect**2 / len(items)


def shortest(
    left: Sequence[float], excess: Callable[[int], float], most: int = _MOST_QUESTIONS
) -> int:
    """Return the fewest groups that bring the error within the limit; all of them if no fewer are found.

    Args:
        left: the predicted error with none, one, two, ... groups kept, in any unit.
        excess: the error with so many groups kept, as a multiple of the limit; that with none is above it.
        most: questions.
    """
    # halve the interval, at the count that the prediction names
    low, high = 0, len(left) - 1
    found = {low: excess(low)}
    # the model names the count at which the error should meet the limit
    while high - low > 1 and (most := most - 1) >= 0:
        wanted = _wanted(left, found)
        guess = next((n for n, error in enumerate(left) if error <= wanted), high)
        # always strictly inside, so that each question narrows the interval
        middle = min(max(guess, low + 1), high - 1)
        found[middle] = excess(middle)
        if found[middle] <= 1:
            high = middle
        else:
            low = middle
    return high


def _wanted(left: Sequence[float], found: Mapping[int, float]) -> float:
    """Return the predicted error at which the real one is the limit, by the two that are nearest to it."""
    # in logarithms, a power law is a line
    points = [(log(left[n]), log(error)) for n, error in found.items() if 0 < left[n] * error < inf]
    if not points:
        return max((error for error in left if error < inf), default=0.0)
    (x, y), *others = sorted(points, key=lambda point: abs(point[1]))[:2]
    # through two measured points; with one, the predicted error times a constant
    slope = (y - others[0][1]) / (x - others[0][0]) if others and x != others[0][0] else 1.0
    return exp(x - y / slope) if slope > 0 else exp(x - y)
