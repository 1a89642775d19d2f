"""Items of a list of modules that have other numbers on the other side: what stands before them was added or removed.

Their weights say so: `layer.2` of one side is `layer.3` of the other when that has the weights which no other item of
its list has. An item without weights goes with those before and after it, where these go the same way.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping

from onnxsurgeon_lite.graph.scopes import Provenance
from onnxsurgeon_lite.matching.values.facts import Fact

_Items = Mapping[int, set[str]]
"""Number -> digests of the weights in the item."""


def renumbered(
    a: Iterable[Fact], b: Iterable[Fact], scope_of_a: Callable[[Fact], str]
) -> dict[str, str]:
    """Module paths of side a -> those of side b, for the items that have moved.

    Args:
        scope_of_a: the module path of a value of side a, as side b writes paths.
    """
    ones, others = _lists(a, scope_of_a), _lists(b, lambda fact: fact.scope)
    found: dict[str, str] = {}
    for parent in sorted(ones, key=lambda path: path.count(".")):
        there = moved(parent, found)
        for number, place in _moves(ones[parent], others.get(there, {})).items():
            # what is nowhere gets a path that no module has
            found[_item(parent, number)] = _item(there, "?" if place is None else place)
    return found


def moved(path: str, moves: Mapping[str, str]) -> str:
    """A module path behind the moves of the modules around it, the innermost first."""
    for around in reversed(Provenance(path).around() if moves else []):
        if around in moves:
            return moves[around] + path[len(around) :]
    return path


def _lists(
    facts: Iterable[Fact], scope_of: Callable[[Fact], str]
) -> dict[str, dict[int, set[str]]]:
    """List -> its items."""
    found: dict[str, dict[int, set[str]]] = defaultdict(dict)
    for fact in facts:
        for path in Provenance(scope_of(fact)).around() if fact.known else ():
            parent, _, number = path.rpartition(".")
            if number.isdecimal():
                found[parent].setdefault(int(number), set()).update(fact.weights)
    return found


def _moves(ones: _Items, others: _Items) -> dict[int, int | None]:
    """The items of a list of side a that have another number on side b, or none."""
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
        shifts = {placed[near] - near for near in _neighbours(number, sorted(placed))}
        place = number + shifts.pop() if len(shifts) == 1 else number
        moves[number] = None if place in chosen else place
    return {number: place for number, place in (placed | moves).items() if place != number}


def _neighbours(number: int, numbers: list[int]) -> list[int]:
    """Those before and after it."""
    place = bisect_left(numbers, number)
    return numbers[max(place - 1, 0) : place + 1]


def _owners(items: _Items) -> dict[str, int]:
    """Digest -> the item that has it, for those that only one has."""
    uses = Counter(digest for digests in items.values() for digest in digests)
    return {d: number for number, digests in items.items() for d in digests if uses[d] == 1}


def _item(parent: str, number: int | str) -> str:
    return f"{parent}.{number}" if parent else str(number)
