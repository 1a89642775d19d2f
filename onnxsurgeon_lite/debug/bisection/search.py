"""Search by probing: which is the first bad item of a graph of dependent items? Knows nothing of ONNX.

A *probe* asks about several items at once and is answered item by item. Nothing is assumed about how badness spreads:
an item below a bad one may be good again (masked), and several may be bad on their own.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

Item = TypeVar("Item")

Probe = Callable[[list[int]], dict[int, bool]]
"""Items -> whether each is good. An item may be left out of the answer: it could not be told."""


@dataclass
class SearchResult:
    """A smallest region whose inputs are good and whose result is bad.

    Attributes:
        bad: the item that is bad.
        region: the items between the good frontier and `bad` about which nothing could be told.
        good, bads: every item that a probe called good or bad.
        waves: the probes that were made.
    """

    bad: int
    region: set[int] = field(default_factory=set)
    good: set[int] = field(default_factory=set)
    bads: set[int] = field(default_factory=set)
    waves: list[list[int]] = field(default_factory=list)


def first_bad(
    bad: int,
    parents: Callable[[int], Iterable[int]],
    comparable: Collection[int],
    probe: Probe,
    good: Iterable[int] = (),
    width: int = 16,
    fits: Callable[[Sequence[int]], bool] = lambda _: True,
) -> SearchResult:
    """Walk back from a bad item to one whose parents are all good, or cannot be told.

    Each wave probes the region between the bad item and the good frontier at up to `width` places; the earliest bad
    item found becomes the bad one, good ones join the frontier. It ends when nothing in the region is left to ask.
    What it returns is sound without monotonicity: its inputs were seen good and its output bad.

    Args:
        bad: an item known to be bad. Items are numbered in a topological order.
        parents: the items that an item depends on directly.
        comparable: the items that a probe can tell.
        good: items known to be good.
        width: about how many items a wave may ask about.
        fits: whether there is room to ask about these together; a wave is made smaller until it fits.
    """
    found = SearchResult(bad, good=set(good), bads={bad})
    asked = set(found.good)
    while True:
        found.region = _between(found.bad, parents, found.good)
        open_items = [
            item for item in sorted(found.region) if item in comparable and item not in asked
        ]
        if not open_items:
            return found
        region, askable, places = sorted(found.region), set(open_items), width
        wave = spread(region, parents, askable, places)
        while places > 1 and not fits(wave):
            places //= 2
            wave = spread(region, parents, askable, places)
        found.waves.append(wave)
        asked.update(wave)
        for item, is_good in probe(wave).items():
            (found.good if is_good else found.bads).add(item)
        found.bad = min((item for item in wave if item in found.bads), default=found.bad)


@dataclass
class Origin:
    """A bad item whose parents are all good, healed, or cannot be told.

    Attributes:
        bad: the item.
        region: the items between what is good and `bad` about which nothing could be told.
    """

    bad: int
    region: set[int] = field(default_factory=set)


def origins(
    comparable: Iterable[int],
    parents: Callable[[int], Iterable[int]],
    probe: Probe,
    heal: Callable[[list[int]], Collection[int]],
    wave: Callable[[list[int]], int],
) -> Iterator[list[Origin]]:
    """Every origin of badness, in one walk from the first item to the last: those of one wave together.

    What is bad although its parents are good is an origin. It is healed (what depends on it is computed from the right
    item from then on), what lies below it is asked again, and the walk goes on: so an origin behind another, or
    one whose effect is masked further down, is found as well. Each item is asked once, and again only below an origin.

    Args:
        heal: replace these items by the right ones, and forget what was computed from them. It returns those that
            could not be replaced: nothing below them is asked about, since it may be bad for that alone.
        wave: how many of the open items, in order, to ask about together; at least one.
    """
    pending = sorted(comparable)
    settled: set[int] = set()
    while pending:
        asked = pending[: max(1, wave(pending))]
        last = asked[-1]
        answers = probe(asked)
        bad = {item for item, is_good in answers.items() if not is_good}
        settled.update(item for item, is_good in answers.items() if is_good)
        roots = _roots(bad, last, parents)
        settled.update(roots)
        if roots:
            yield [Origin(item, _between(item, parents, settled)) for item in roots]
            lost = _below(heal(roots), pending[-1], parents)
            pending = [item for item in pending if item not in lost]
        below = _below(roots, last, parents)
        settled -= below
        pending = [item for item in pending if item > last or (item in below and item in answers)]


def _roots(bad: Collection[int], last: int, parents: Callable[[int], Iterable[int]]) -> list[int]:
    """The bad items that no other bad item reaches: one that is reached may be bad for that alone."""
    tainted: set[int] = set()
    roots = []
    for item in range(min(bad, default=last + 1), last + 1):
        if any(parent in tainted for parent in parents(item)):
            tainted.add(item)
        elif item in bad:
            tainted.add(item)
            roots.append(item)
    return roots


def _below(roots: Collection[int], last: int, parents: Callable[[int], Iterable[int]]) -> set[int]:
    """The items up to `last` that depend on one of the roots, the roots themselves left out."""
    found: set[int] = set()
    for item in range(min(roots), last + 1) if roots else ():
        if item not in roots and any(p in found or p in roots for p in parents(item)):
            found.add(item)
    return found


def _between(bad: int, parents: Callable[[int], Iterable[int]], good: Collection[int]) -> set[int]:
    """The ancestors of `bad` on this side of the good items."""
    region: set[int] = set()
    pending = list(parents(bad))
    while pending:
        item = pending.pop()
        if item not in good and item not in region:
            region.add(item)
            pending.extend(parents(item))
    return region


def spread(
    region: Sequence[int],
    parents: Callable[[int], Iterable[int]],
    askable: Collection[int],
    width: int,
) -> list[int]:
    """Items to ask about: the narrowest places of the region, evenly apart, each with all that crosses it.

    If everything that crosses a place is good, the search goes on behind it; asking about a part of it would say
    nothing about the rest.
    """
    if len(askable) <= width:
        return sorted(askable)
    place = {item: i for i, item in enumerate(region)}
    last_use = list(range(len(region)))
    for item in region:
        for parent in parents(item):
            if parent in place:
                last_use[place[parent]] = max(last_use[place[parent]], place[item])
    for i in range(len(region)):
        if last_use[i] == i:
            last_use[i] = len(region)  # what nothing in the region uses goes to the bad item itself
    crossing = _crossing(last_use)
    places = width
    while True:
        chosen: set[int] = set()
        for start, stop in pairwise(_marks(len(region), places)):
            narrowest = min(range(start, stop), key=crossing.__getitem__)
            across = (i for i in range(narrowest + 1) if last_use[i] > narrowest)
            chosen.update(region[i] for i in across if region[i] in askable)
        if len(chosen) <= 2 * width or places == 1:
            return sorted(chosen) or _evenly(sorted(askable), width)
        places //= 2


def _marks(length: int, places: int) -> range:
    """The borders of as many equal windows, half a window away from both ends."""
    step = max(1, length // (places + 1))
    return range(step // 2, length + 1, step)


def _crossing(last_use: list[int]) -> list[int]:
    """How many items are still needed after each place."""
    change = [0] * (len(last_use) + 2)
    for i, last in enumerate(last_use):
        change[i] += 1
        change[last] -= 1
    total, counts = 0, []
    for i in range(len(last_use)):
        total += change[i]
        counts.append(total)
    return counts


def _evenly(items: Sequence[int], width: int) -> list[int]:
    return [items[len(items) * (2 * i + 1) // (2 * width)] for i in range(width)]


def smallest(items: Sequence[Item], holds: Callable[[Sequence[Item]], bool]) -> list[Item]:
    """A subset for which `holds`, of which nothing can be left out; empty where it does not hold for all.

    Source: Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002 (ddmin).
    """
    left = list(items)
    if not left or not holds(left):
        return []
    parts = 2
    while len(left) > 1:
        size = -(-len(left) // parts)
        pieces = [left[i : i + size] for i in range(0, len(left), size)]
        rests = [[item for item in left if item not in piece] for piece in pieces]
        for candidate in (*pieces, *(rests if parts > 2 else ())):
            if candidate and holds(candidate):
                left = candidate
                parts = 2 if candidate in pieces else max(parts - 1, 2)
                break
        else:
            if parts >= len(left):
                break
            parts = min(len(left), 2 * parts)
    return left
