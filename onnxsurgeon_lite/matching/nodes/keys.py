"""Keys that two nodes must share to be paired, and lookups by key."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from onnxsurgeon_lite.matching.nodes.labels import Labels

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)
Key = Callable[[int, int], Hashable]
"""(side, node) -> the key that two nodes must share to be paired."""


def keys(labels: tuple[Labels, Labels]) -> tuple[Key, Key, Key, Key]:
    """Return four keys: both labels, the `up` label, the `down` label, the `local` label."""
    both = [list(zip(side.up, side.down, strict=True)) for side in labels]
    return (
        lambda side, node: both[side][node],
        lambda side, node: labels[side].up[node],
        lambda side, node: labels[side].down[node],
        lambda side, node: labels[side].local[node],
    )


def common(
    names: Sequence[str], others: Sequence[str], *, by_place: bool
) -> Iterable[tuple[str, str]]:
    """Pair equal names, and the last name left on each side; or, with `by_place`, names by position."""
    if by_place:
        return zip(names, others, strict=False)
    mine, theirs = dict.fromkeys(names), dict.fromkeys(others)
    pairs = [(name, name) for name in mine if name in theirs]
    left = [n for n in mine if n not in theirs], [n for n in theirs if n not in mine]
    return [*pairs, (left[0][0], left[1][0])] if len(left[0]) == len(left[1]) == 1 else pairs


def unique(keyed: Iterable[tuple[H, int]]) -> dict[H, int | None]:
    """Map each key to its only node, or to None where several nodes have it."""
    found: dict[H, int | None] = {}
    for key, node in keyed:
        found[key] = None if key in found else node
    return found


def groups(keyed: Iterable[tuple[Hashable, T]]) -> dict[Hashable, list[T]]:
    """Map each key to everything that has it."""
    found = defaultdict[Hashable, list[T]](list)
    for key, node in keyed:
        found[key].append(node)
    return found
