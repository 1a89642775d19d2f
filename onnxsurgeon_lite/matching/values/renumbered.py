"""Find renumbered items of module lists, after items before them were added or removed.

Weights identify items: `layer.2` of one side is `layer.3` of the other when their weights are equal and unique in the
list. An item without weights moves with its neighbors if these move by the same number.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import chain

from onnxsurgeon_lite.graph.scopes import Provenance
from onnxsurgeon_lite.matching.values.facts import Fact
from onnxsurgeon_lite.names import is_count

_Items = Mapping[int, set[str]]
"""Item number -> digests of its weights."""


def renumbered(
    a: Iterable[Fact], b: Iterable[Fact], scope_of_a: Callable[[Fact], str]
) -> dict[str, str]:
    """Map module paths of renumbered items, side a -> side b.

    Args:
        scope_of_a: returns the module path of a value of side a as side b writes paths.
    """
    ones, others = _lists(a, scope_of_a), _lists(b, lambda fact: fact.scope)
    found: dict[str, str] = {}
    for parent in sorted(ones, key=lambda path: path.count(".")):
        there = moved(parent, found)
        for number, place in _moves(ones[parent], others.get(there, {})).items():
            # an item without a counterpart gets a path that no module has
            found[_item(parent, number)] = _item(there, "?" if place is None else place)
    return found


def moved(path: str, moves: Mapping[str, str]) -> str:
    """Apply the move of the innermost moved module around a path."""
    for around in reversed(Provenance(path).around() if moves else []):
        if around in moves:
            return moves[around] + path[len(around) :]
    return path


def _lists(
    facts: Iterable[Fact], scope_of: Callable[[Fact], str]
) -> dict[str, dict[int, set[str]]]:
    """Map each list to its items."""
    found: dict[str, dict[int, set[str]]] = defaultdict(dict)
    for fact in facts:
        for path in Provenance(scope_of(fact)).around() if fact.known else ():
            parent, _, number = path.rpartition(".")
            if is_count(number):
                found[parent].setdefault(int(number), set()).update(fact.weights)
    return found


def _moves(ones: _Items, others: _Items) -> dict[int, int | None]:
    """Map the items of a list whose number differs on side b; None if an item is missing there."""
    mine, theirs = _owners(ones), _owners(others)
    voted: dict[int, int] = {}
    for number, digests in ones.items():
        votes = Counter(theirs[d] for d in digests if d in theirs and d in mine)
        if votes:
            voted[number] = votes.most_common(1)[0][0]
    chosen = Counter(voted.values())
    placed = {number: place for number, place in voted.items() if chosen[place] == 1}
    moves: dict[int, int | None] = {}
    for number in ones.keys() - placed.keys():
        shifts = {placed[near] - near for near in _neighbors(number, sorted(placed))}
        place = number + shifts.pop() if len(shifts) == 1 else number
        moves[number] = None if place in chosen else place
    return {number: place for number, place in (placed | moves).items() if place != number}


def _neighbors(number: int, numbers: list[int]) -> list[int]:
    """Return the numbers before and after it."""
    place = bisect_left(numbers, number)
    return numbers[max(place - 1, 0) : place + 1]


def _owners(items: _Items) -> dict[str, int]:
    """Map digests that occur in one item only to that item."""
    uses = Counter(chain.from_iterable(items.values()))
    return {d: number for number, digests in items.items() for d in digests if uses[d] == 1}


def _item(parent: str, number: int | str) -> str:
    return f"{parent}.{number}" if parent else str(number)
