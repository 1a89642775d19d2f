"""What belongs together: items with one key."""

from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import TypeVar

H = TypeVar("H", bound=Hashable)
T = TypeVar("T")


def groups(keyed: Iterable[tuple[H, T]]) -> defaultdict[H, list[T]]:
    """Map each key to everything that has it, in order; any other key to nothing."""
    found = defaultdict[H, list[T]](list)
    for key, item in keyed:
        found[key].append(item)
    return found
