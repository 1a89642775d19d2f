"""What belongs together: items with one key."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from typing import TypeVar

H = TypeVar("H", bound=Hashable)
T = TypeVar("T")
U = TypeVar("U")


def groups(keyed: Iterable[tuple[H, T]]) -> defaultdict[H, list[T]]:
    """Map each key to everything that has it, in order; any other key to nothing."""
    found = defaultdict[H, list[T]](list)
    for key, item in keyed:
        found[key].append(item)
    return found


def unique_pairs(
    mine: Iterable[tuple[H, T]], theirs: Iterable[tuple[H, U]]
) -> Iterator[tuple[T, U]]:
    """Yield the items of two sides whose key only they have on their side; None is never a key."""
    ones, others = groups(mine), groups(theirs)
    for key, items in ones.items():
        if key is not None and len(items) == len(others[key]) == 1:
            yield items[0], others[key][0]
