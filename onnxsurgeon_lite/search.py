"""Search by probing: which is the first bad item of a graph of dependent items? Knows nothing of ONNX.

A *probe* asks about several items at once and is answered item by item. Nothing is assumed about how badness spreads:
an item below a bad one may be good again (masked), and several may be bad on their own.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

Probe = Callable[[list[int]], dict[int, bool]]
"""Items -> whether each is good. An item may be left out of the answer: it could not be told."""


@dataclass
class Found:
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
) -> Found:
    """Walk back from a bad item to one whose parents are all good, or cannot be told.

    Each wave probes the region between the bad item and the good frontier at up to `width` places; the earliest bad
    item found becomes the bad one, good ones join the frontier. It ends when nothing in the region is left to ask.
    What it returns is sound without monotonicity: its inputs were seen good and its output bad.

    Args:
        bad: an item known to be bad. Items are numbered in a topological order.
        parents: the items that an item depends on directly.
        comparable: the items that a probe can tell.
        good: items known to be good.
    """
    found = Found(bad, good=set(good), bads={bad})
    asked = set(found.good)
    while True:
        found.region = _between(found.bad, parents, found.good)
        open_items = [
            item for item in sorted(found.region) if item in comparable and item not in asked
        ]
        if not open_items:
            return found
        wave = spread(sorted(found.region), parents, set(open_items), width)
        found.waves.append(wave)
        asked.update(wave)
        for item, is_good in probe(wave).items():
            (found.good if is_good else found.bads).add(item)
        found.bad = min((item for item in wave if item in found.bads), default=found.bad)


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
