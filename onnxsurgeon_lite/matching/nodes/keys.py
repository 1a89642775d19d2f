"""What nodes must have in common to be paired, and which nodes have it."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from onnxsurgeon_lite.matching.nodes.labels import Labels

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)
Key = Callable[[int, int], Hashable]
"""(side, node) -> what two nodes must have in common to be paired."""


def keys(colours: tuple[Labels, Labels]) -> tuple[Key, Key, Key, Key]:
    """Alike in both directions, upwards, downwards, and the node itself."""
    both = [list(zip(side.up, side.down, strict=True)) for side in colours]
    return (
        lambda side, node: both[side][node],
        lambda side, node: colours[side].up[node],
        lambda side, node: colours[side].down[node],
        lambda side, node: colours[side].local[node],
    )


def common(
    names: Sequence[str], others: Sequence[str], *, by_place: bool
) -> Iterable[tuple[str, str]]:
    """Names that both have, and the one that is left on each side; or, by place, the first with the first."""
    if by_place:
        return zip(names, others, strict=False)
    mine, theirs = dict.fromkeys(names), dict.fromkeys(others)
    pairs = [(name, name) for name in mine if name in theirs]
    left = [n for n in mine if n not in theirs], [n for n in theirs if n not in mine]
    return [*pairs, (left[0][0], left[1][0])] if len(left[0]) == len(left[1]) == 1 else pairs


def unique(keyed: Iterable[tuple[H, int]]) -> dict[H, int | None]:
    """Key -> the only node that has it, None where several do."""
    found: dict[H, int | None] = {}
    for key, node in keyed:
        found[key] = None if key in found else node
    return found


def groups(keyed: Iterable[tuple[Hashable, T]]) -> dict[Hashable, list[T]]:
    """Key -> everything that has it."""
    found = defaultdict[Hashable, list[T]](list)
    for key, node in keyed:
        found[key].append(node)
    return found
