"""The pairs of values found so far, and how well two values fit: by their modules, inputs and users."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, product, takewhile

from onnxsurgeon_lite.graph.scopes import Provenance
from onnxsurgeon_lite.matching.values.contents import agreeing, in_two_orders
from onnxsurgeon_lite.matching.values.facts import Fact, Side
from onnxsurgeon_lite.names import is_count, rewrapped, wrapper_of
from onnxsurgeon_lite.search.grouping import groups, unique_pairs
from onnxsurgeon_lite.tensors.dtypes import Shape

SAME, AROUND, BESIDE, ELSEWHERE = 3, 2, 1, 0
"""Relation of two modules: equal; nested, or one unknown; siblings; none of these."""

FOLD_INTO = ("Conv", "ConvTranspose")
"""A BatchNorm after them may be folded into them and give them its module."""
_INSERTED = 8  # longest chain of nodes that counts as an insertion
_Items = Mapping[int, set[str]]
"""Item number -> digests of its weights."""


@dataclass
class Pair:
    """Two values that correspond.

    Attributes:
        a, b: their names. evidence: `values`, `scope`, `weights`, `structure`, `name`, strongest first.
        confidence: between 0 and 1.
        agrees: True when the contents agree on these feeds, None when they carry too little information.
        axes: the permutation of a's axes that gives b, when a must be transposed; the shape is always b's.
        blocked: True when one of them is in the blocked layout of the runtime's optimizer.
    """

    a: str
    b: str
    evidence: tuple[str, ...]
    confidence: float
    agrees: bool | None = None
    axes: Shape | None = None
    blocked: bool = False


class PairTable:
    """Two sides and their pairs so far.

    Attributes:
        pairs: by name on side a. taken: name on side b -> name on side a.
        modules: module paths of side b.
        unclear: values of side a whose numbers do not show the order of their axes.
    """

    def __init__(self, a: Side, b: Side) -> None:
        self.a, self.b = a, b
        self.pairs = dict[str, Pair]()
        self.taken = dict[str, str]()
        self.unclear = in_two_orders(a)
        # module -> the values of side b that leave it
        self.leaving = groups((path, f) for f in b.facts.values() for path in f.leaves)
        # names of modules that side b has, with all that are around them
        self.modules = {path for f in b.facts.values() for path in Provenance(f.scope).around()}
        self._way = _wrapper(a, b)
        # `scope_of_a` reads it, so it is empty while it is computed
        self._moves = dict[str, str]()
        self._moves = renumbered(a.facts.values(), b.facts.values(), self.scope_of_a)
        if not a.structured:
            self._moves |= renamed_children(a.facts.values(), self.modules, self._way, self._moves)
            self._moves |= outside_of_parents(map(self.scope_of_a, a.facts.values()), self.modules)
        # how many values of a (module, operator) are still free: what may be an insertion, and what not
        self._unpaired_a = Counter(map(self._kind_of_a, a.facts.values()))
        self._unpaired_b = Counter(map(_kind, b.facts.values()))

    def free(self, a: Fact, b: Fact) -> bool:
        """Return whether both are still unpaired."""
        return a.name not in self.pairs and b.name not in self.taken

    def add(
        self,
        a: Fact,
        b: Fact,
        evidence: str,
        confidence: float,
        axes: Shape | None = None,
    ) -> None:
        """Pair two values, and add all other evidence that holds."""
        # the given evidence first, then all other that holds
        also = {
            "scope": bool(a.scope) and self.relation(a, b) == SAME,
            "structure": bool(a.op) and a.op == b.op and self.inputs_agree(a, b),
            "name": a.name == b.name,
        }
        found = dict.fromkeys((evidence,) + tuple(word for word, holds in also.items() if holds))
        agrees = True if evidence == "values" else agreeing(a, b)
        blocked = a.blocked or b.blocked
        self.pairs[a.name] = Pair(a.name, b.name, tuple(found), confidence, agrees, axes, blocked)
        self.taken[b.name] = a.name
        self._unpaired_a[self._kind_of_a(a)] -= 1
        self._unpaired_b[_kind(b)] -= 1

    def drop(self, a: Fact, b: Fact) -> None:
        """Take a pair back."""
        del self.pairs[a.name], self.taken[b.name]
        self._unpaired_a[self._kind_of_a(a)] += 1
        self._unpaired_b[_kind(b)] += 1

    def scope_of_a(self, fact: Fact) -> str:
        """Return a module path of side a as side b writes it."""
        return moved(_rewrapped(fact.scope, self._way), self._moves)

    def lost(self, fact: Fact) -> str:
        """Return the outermost module around a value of side a that side b lacks, else ''."""
        # from the outermost module inwards
        around = Provenance(self.scope_of_a(fact)).around() if self.modules else ()
        return next((path for path in around if path not in self.modules), "")

    def relation(self, a: Fact, b: Fact) -> int:
        """Return the relation of the modules of two values."""
        if not (a.known and b.known):
            return AROUND
        one, other = self.scope_of_a(a), b.scope
        if one == other:
            return SAME
        if not one or not other or _holds(one, other) or _holds(other, one):
            return AROUND
        return BESIDE if one.rpartition(".")[0] == other.rpartition(".")[0] else ELSEWHERE

    def may_be_one(self, a: Fact, b: Fact) -> bool:
        """Return whether the modules of two values with equal contents permit a pair."""
        if a.is_output and not (b.is_output or self.a.structured) and a.stated:
            return False  # what a whole module returns is what the model returns
        relation = self.relation(a, b)
        if not (a.stated and b.stated):
            return True
        if not self.a.structured:
            return relation > ELSEWHERE or bool(self.lost(a))
        near = relation > ELSEWHERE or self.inputs_agree(a, b)
        return relation == SAME or (b.op in FOLD_INTO and near)

    def inputs_agree(self, a: Fact, b: Fact, through: bool = False) -> bool:
        """Return whether their inputs are paired, in the same order.

        Args:
            through: look through nodes with one input that were inserted on either side.
        """
        if not a.inputs or len(a.inputs) != len(b.inputs) or a.slot != b.slot:
            return False
        # without `through`, a value is its own source
        source_a, source_b = (self.source_a, self.source_b) if through else (str, str)
        sources = zip(map(source_a, a.inputs), map(source_b, b.inputs), strict=True)
        return all(one in self.pairs and self.pairs[one].b == other for one, other in sources)

    def users_agree(self, a: Fact, b: Fact) -> bool:
        """Return whether a user of one is paired with a user of the other."""
        return any(user in self.pairs and self.pairs[user].b in b.users for user in a.users)

    def source_a(self, name: str) -> str:
        """Return the first paired value upstream on side a, through inserted nodes."""
        return _source(
            # a node stays in the way as long as side b has a free node of its kind, which may be its partner
            self.a,
            name,
            self.pairs,
            lambda fact: self._unpaired_b[self._kind_of_a(fact)] > 0,
        )

    def source_b(self, name: str) -> str:
        """Return the first paired value upstream on side b, through inserted nodes."""
        return _source(self.b, name, self.taken, lambda fact: self._unpaired_a[_kind(fact)] > 0)

    def _kind_of_a(self, fact: Fact) -> tuple[str, str]:
        return self.scope_of_a(fact), fact.op

    def unique(
        self, key_a: Callable[[Fact], object], key_b: Callable[[Fact], object]
    ) -> list[tuple[Fact, Fact]]:
        """Pair values whose key is unique on both sides; None is never a key."""
        mine, theirs = (
            [(key(fact), fact) for fact in side.facts.values()]
            for side, key in ((self.a, key_a), (self.b, key_b))
        )
        return list(unique_pairs(mine, theirs))


def shapes_fit(a: Fact, b: Fact) -> bool:
    """Return whether the shapes are equal or unknown."""
    return a.shape is None or b.shape is None or a.shape == b.shape


def tells_layout(shape: Shape | None) -> bool:
    """Return whether a shape has no two sizes that could change places."""
    sizes = [size for size in shape or () if size > 1]
    return len(set(sizes)) == len(sizes)


def _source(
    side: Side, name: str, paired: Container[str], may_be_paired: Callable[[Fact], bool]
) -> str:
    for _ in range(_INSERTED):
        fact = None if name in paired else side.facts.get(name)
        if fact is None or len(fact.inputs) != 1 or may_be_paired(fact):
            break
        name = fact.inputs[0]
    return name


def _kind(fact: Fact) -> tuple[str, str]:
    return fact.scope, fact.op


def _holds(outer: str, inner: str) -> bool:
    return inner.startswith(f"{outer}.")


def _wrapper(a: Side, b: Side) -> tuple[str, str]:
    """Return (prefix to drop from a's module paths, prefix to add): the wrapper module of only one side."""
    ones, others = (
        {f"{f.scope}." for f in side.facts.values() if f.known and f.scope} for side in (a, b)
    )
    return wrapper_of(ones, others)


def _rewrapped(scope: str, way: tuple[str, str]) -> str:
    return rewrapped(f"{scope}." if scope else "", way).removesuffix(".")


def renumbered(
    a: Iterable[Fact], b: Iterable[Fact], scope_of_a: Callable[[Fact], str]
) -> dict[str, str]:
    """Map module paths of renumbered items of module lists, side a -> side b.

    Weights identify items: `layer.2` of one side is `layer.3` of the other when their weights are equal and unique in
    the list. An item without weights moves with its neighbors if these move by the same number.

    Args:
        scope_of_a: returns the module path of a value of side a as side b writes paths.
    """
    ones, others = _lists(a, scope_of_a), _lists(b, lambda fact: fact.scope)
    found = dict[str, str]()
    # outer lists first, as the paths of inner ones contain their items
    for parent in sorted(ones, key=lambda path: path.count(".")):
        there = moved(parent, found)
        for number, place in _moves(ones[parent], others.get(there, {})).items():
            # an item without a counterpart gets a path that no module has
            found[_item(parent, number)] = _item(there, "?" if place is None else place)
    return found


def renamed_children(
    a: Iterable[Fact], others: Iterable[str], way: tuple[str, str], moves: Mapping[str, str]
) -> dict[str, str]:
    """Map modules of side a that side b calls otherwise, `self_attn` for `attn`.

    Each is the only one around whose name the other side lacks, and both hold a module of one name.

    Args:
        others: module paths of side b. way, moves: of the paths of side a.
    """
    paths = set[str]()
    for scope in {fact.scope for fact in a if fact.known}:
        paths.update(Provenance(_rewrapped(scope, way)).around())
    ones, theirs = _children(paths), _children(others)
    found = dict[str, str]()
    for parent, children in ones.items():
        there = moved(parent, moves)
        # the names that the other side lacks, on both sides
        here = theirs.get(there, set())
        pairs = [
            (f"{parent}.{one}", f"{there}.{other}")
            for one, other in product(children - here, here - children)
            # both hold a module of one name
            if ones.get(f"{parent}.{one}", set()) & theirs.get(f"{there}.{other}", set())
        ]
        # more than one could be it: none is
        if len(pairs) == 1:
            found.update(pairs)
    return found


def outside_of_parents(ones: Iterable[str], others: Collection[str]) -> dict[str, str]:
    """Map modules of side a that side b calls without some around them, or with more: `block.q`, `block.attn.q`.

    Another forward may call a module's children itself. Of those in a list TorchScript knows the order alone:
    `layers.0.q` and `layers.1.q` are `q` and `q_1`.

    Args:
        ones, others: module paths of both sides, those of side a in order and as side b writes them.
    """
    mine = dict.fromkeys(ones)
    lacking = groups((_name(path), path) for path in mine if path not in others)
    free = groups((_name(path), path) for path in others if path not in mine)
    found = dict[str, str]()
    # by the last part of their paths, which a name keeps
    for name, several in lacking.items():
        pairs = [
            (one, other)
            for one, other in product(several, free[name])
            if _within(one.split("."), other.split("."))
            or _within(other.split("."), one.split("."))
        ]
        # none where several could be it
        count = Counter(chain.from_iterable(pairs))
        alone = {one: other for one, other in pairs if count[one] == count[other] == 1}
        # `q`, `q_1`, `q_2`: as many as there are items, in their order
        for first in () if alone else free[name]:
            numbered = (f"{first}_{call}" for call in range(1, len(mine)))
            called = [first, *takewhile(others.__contains__, numbered)]
            if 1 < len(called) == len(several):
                alone = dict(zip(several, called, strict=True))
        found |= alone
    return found


def _name(path: str) -> str:
    return path.rpartition(".")[2]


def _within(parts: Iterable[str], others: Iterable[str]) -> bool:
    """Return whether parts of a path stand in another one, in their order."""
    left = iter(others)
    return all(part in left for part in parts)


def _children(paths: Iterable[str]) -> dict[str, set[str]]:
    """Return the last parts of module paths, by the module around them."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        parent, _, child = path.rpartition(".")
        found[parent].add(child)
    return found


def moved(path: str, moves: Mapping[str, str]) -> str:
    """Apply the move of the innermost moved module around a path."""
    # the innermost module that moved decides
    for around in reversed(Provenance(path).around() if moves else []):
        if around in moves:
            return moves[around] + path[len(around) :]
    return path


def _lists(
    facts: Iterable[Fact], scope_of: Callable[[Fact], str]
) -> dict[str, dict[int, set[str]]]:
    """Map each list to its items."""
    found = defaultdict[str, dict[int, set[str]]](dict)
    for fact in facts:
        for path in Provenance(scope_of(fact)).around() if fact.known else ():
            parent, _, number = path.rpartition(".")
            if is_count(number):
                found[parent].setdefault(int(number), set()).update(fact.weights)
    return found


def _moves(ones: _Items, others: _Items) -> dict[int, int | None]:
    """Map the items of a list whose number differs on side b; None if an item is missing there."""
    # each item moves where most of its weights are, unless two items would
    mine, theirs = _owners(ones), _owners(others)
    voted = dict[int, int]()
    # weights that occur twice within a side identify no item
    for number, digests in ones.items():
        votes = Counter(theirs[d] for d in digests if d in theirs and d in mine)
        if votes:
            voted[number] = votes.most_common(1)[0][0]
    chosen = Counter(voted.values())
    placed = {number: place for number, place in voted.items() if chosen[place] == 1}
    moves = dict[int, int | None]()
    # items without weights, or whose place is contested
    for number in ones.keys() - placed.keys():
        shifts = {placed[near] - near for near in _neighbors(number, sorted(placed))}
        # between neighbors that move by different numbers an item stays
        place = number + shifts.pop() if len(shifts) == 1 else number
        # a place that an item with weights has is not free
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
