"""Search for the first bad items of a dependency graph with probes, independent of ONNX.

A *probe* tests several items at once and answers item by item. The search does not assume how errors spread: an item
below a bad one may be good again (masked), and several items may be bad independently.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

Near = Callable[[int], Iterable[int]]
Probe = Callable[[list[int]], dict[int, bool]]
"""Items -> item: True when good. Items without an answer could not be tested."""


@dataclass
class SearchResult:
    """A smallest region with good inputs and a bad result.

    Attributes:
        bad: the bad item.
        region: the untested items between the good frontier and `bad`.
        good, bads: all items that a probe found good or bad.
        waves: the probes.
    """

    bad: int
    good: set[int]
    bads: set[int]
    region: set[int] = field(default_factory=set)
    waves: list[list[int]] = field(default_factory=list)


def first_bad(
    bad: int,
    parents: Near,
    comparable: Collection[int],
    probe: Probe,
    good: Iterable[int] = (),
    width: int = 16,
    fits: Callable[[Sequence[int]], bool] = lambda _: True,
) -> SearchResult:
    """Walk back from a bad item to one whose parents are all good or cannot be tested.

    Each wave probes the region between the bad item and the good frontier at up to `width` places; the earliest bad
    item becomes the new bad one, good ones join the frontier. The search ends when the region has no item to probe.
    The result is sound without monotonicity: probes found its inputs good and its output bad.

    Args:
        bad: an item known to be bad. Items are numbered in a topological order.
        parents: the items that an item depends on directly.
        comparable: the items that a probe can test.
        good: items known to be good.
        width: the approximate number of items per wave.
        fits: returns whether items can be probed together; waves shrink until they fit.
    """
    # items known to be good need no probe
    found = SearchResult(bad, good=set(good), bads={bad})
    asked = set(found.good)
    while True:
        # untested items that the bad one depends on, up to good ones
        found.region = _between(found.bad, parents, found.good)
        region = sorted(found.region)
        open_items = [item for item in region if item in comparable and item not in asked]
        # nothing is left to ask: all inputs of the region are good, or cannot be tested
        if not open_items:
            return found
        # choose a wave that can be probed at once
        askable, places = set(open_items), width
        wave = spread(region, parents, askable, places)
        while places > 1 and not fits(wave):
            places //= 2
            wave = spread(region, parents, askable, places)

        # probe it, and go on from the earliest bad item
        found.waves.append(wave)
        asked.update(wave)
        for item, is_good in probe(wave).items():
            (found.good if is_good else found.bads).add(item)
        found.bad = min((item for item in wave if item in found.bads), default=found.bad)


@dataclass
class Origin:
    """A bad item whose parents are all good, healed, or cannot be tested.

    Attributes:
        bad: the item.
        region: the untested items between good ones and `bad`.
    """

    bad: int
    region: set[int]


def origins(
    comparable: Iterable[int],
    parents: Near,
    probe: Probe,
    heal: Callable[[list[int]], Collection[int]],
    wave: Callable[[list[int]], int],
) -> Iterator[list[Origin]]:
    """Yield all origins of errors, wave by wave, in one walk from the first item to the last.

    An origin is a bad item with good parents. The walk heals it (later items are computed from the correct item),
    probes the items below it again and goes on. It also finds origins after others, and origins whose effect is
    masked downstream. Each item is probed once, and again only below an origin.

    Args:
        heal: replaces items by correct ones and forgets what was computed from them. It returns the items that it
            cannot replace; bad items below these are no origins, since they may be bad for that reason alone.
        wave: returns how many of the open items, in order, to probe together; at least one.
    """
    pending = sorted(comparable)
    settled = set[int]()
    lost = set[int]()
    while pending:
        asked = pending[: max(1, wave(pending))]  # probe the next items in order
        last = asked[-1]
        answers = probe(asked)
        bad = {item for item, is_good in answers.items() if not is_good}
        settled.update(item for item, is_good in answers.items() if is_good)

        # an item below one that could not be healed may be bad for that reason alone
        # what is bad although nothing bad comes before it is an origin
        roots = _roots(bad - _below(lost, last, parents, settled), last, parents)
        settled.update(roots)
        if roots:
            yield [Origin(item, _between(item, parents, settled)) for item in roots]
            lost.update(heal(roots))

        # below a healed origin, everything is computed anew, and is asked about again
        below = _below([item for item in roots if item not in lost], last, parents)
        settled -= below
        pending = [item for item in pending if item > last or (item in below and item in answers)]


def _roots(bad: Collection[int], last: int, parents: Near) -> list[int]:
    """Return the bad items that no other bad item reaches."""
    tainted = set[int]()
    roots = []
    # items before the first bad one cannot be tainted
    for item in range(min(bad, default=last + 1), last + 1):
        if any(parent in tainted for parent in parents(item)):
            tainted.add(item)
        elif item in bad:
            tainted.add(item)
            roots.append(item)
    return roots


def _below(
    roots: Collection[int],
    last: int,
    parents: Near,
    good: Collection[int] = (),
) -> set[int]:
    """Return the items up to `last` that depend on a root, except through good ones, without the roots."""
    found = set[int]()
    for item in range(min(roots), last + 1) if roots else ():
        if item in roots or item in good:
            continue
        if any(p in found or p in roots for p in parents(item)):
            found.add(item)
    return found


def _between(bad: int, parents: Near, good: Collection[int]) -> set[int]:
    """Return the ancestors of `bad` down to the good items."""
    region = set[int]()
    # upwards, but not through good items
    pending = list(parents(bad))
    while pending:
        item = pending.pop()
        if item not in good and item not in region:
            region.add(item)
            pending.extend(parents(item))
    return region


def spread(
    region: Sequence[int],
    parents: Near,
    askable: Collection[int],
    width: int,
) -> list[int]:
    """Choose items to probe: evenly spaced narrow cuts of the region, each with all items that cross it.

    When all items that cross a cut are good, the search continues after it; a part of them would prove nothing.
    """
    if len(askable) <= width:
        return sorted(askable)

    # find the last place at which each item is used
    place = {item: i for i, item in enumerate(region)}
    last_use = list(range(len(region)))
    for item in region:
        for parent in parents(item):
            # a parent outside of the region is good already
            if parent in place:
                last_use[place[parent]] = max(last_use[place[parent]], place[item])
    for i in range(len(region)):
        if last_use[i] == i:
            last_use[i] = len(region)  # an item unused in the region feeds the bad item

    # cut at the narrowest place of each window; take fewer windows until the wave is small enough
    crossing = _crossing(last_use)
    places = width
    while True:
        chosen = set[int]()
        # all items that cross the cut: together they decide everything after it
        for start, stop in pairwise(_marks(len(region), places)):
            narrowest = min(range(start, stop), key=crossing.__getitem__)
            across = (i for i in range(narrowest + 1) if last_use[i] > narrowest)
            chosen.update(region[i] for i in across if region[i] in askable)
        if len(chosen) <= 2 * width or places == 1:
            items = sorted(askable)
            evenly = (items[len(items) * (2 * i + 1) // (2 * width)] for i in range(width))
            return sorted(chosen) or list(evenly)
        places //= 2


def _marks(length: int, places: int) -> range:
    """Return the borders of equal windows, half a window from both ends."""
    step = max(1, length // (places + 1))
    return range(step // 2, length + 1, step)


def _crossing(last_use: list[int]) -> list[int]:
    """Return the number of items still needed after each place."""
    change = [0] * (len(last_use) + 2)
    for i, last in enumerate(last_use):
        change[i] += 1
        change[last] -= 1
    total, counts = 0, []
    for i in range(len(last_use)):
        total += change[i]
        counts.append(total)
    return counts
