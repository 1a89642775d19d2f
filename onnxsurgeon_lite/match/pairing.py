"""Which value of one side is which of the other: by content first, then by place, weights and structure.

A pair is made on evidence alone, and each value is in one pair at most. Values of equal content (a tensor and what only
passes it on) are told apart by module, shape, operator and what they are computed from; what stays undecided is left
out.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field

from onnxsurgeon_lite.match.sides import INPUT, Fact, Side
from onnxsurgeon_lite.match.signatures import distance, tolerance, transposition

_MUCH_FARTHER = 20.0  # a candidate this many times as far as the nearest is another value
_ROUNDING = 2e-6  # nearer than this, candidates are equally near
_ROUNDS = 4
_INSERTED = 8  # nodes in a row that are taken for an insertion
_FOLD_INTO = (
    "Conv",
    "ConvTranspose",
)  # a BatchNorm after it may be part of it, and name its module


@dataclass
class Pair:
    """Two values that are the same.

    Attributes:
        a, b: their names. evidence: `values`, `scope`, `weights`, `structure`, `name`, strongest first.
        confidence: between 0 and 1.
        agrees: whether the contents agree on these feeds, None where they say nothing.
        axes: the order of a's axes in which it is b, where it must be transposed; b's shape is taken in any case.
    """

    a: str
    b: str
    evidence: tuple[str, ...]
    confidence: float
    agrees: bool | None = None
    axes: tuple[int, ...] | None = None


@dataclass
class Matching:
    """Two sides aligned.

    Attributes:
        pairs: in the order of side a. only_a, only_b: values that are in no pair.
        aliases: values of side a that hold the same tensor as one that is in a pair, by its name.
    """

    pairs: list[Pair] = field(default_factory=list)
    only_a: list[str] = field(default_factory=list)
    only_b: list[str] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)


def match(a: Side, b: Side) -> Matching:
    """Align the values of two sides that were computed from the same feeds."""
    return _Matcher(a, b).run()


@dataclass(frozen=True)
class _Candidate:
    """A possible pair whose contents agree."""

    a: Fact
    b: Fact
    axes: tuple[int, ...] | None = None


class _Matcher:
    def __init__(self, a: Side, b: Side) -> None:
        self.a, self.b = a, b
        self.pairs: dict[str, Pair] = {}
        self.taken: dict[str, str] = {}
        self.prefix = _common_prefix(a, b)

    def run(self) -> Matching:
        self._in_order(lambda fact: fact.op == INPUT, 0.9)
        candidates = self._by_content()
        for _ in range(_ROUNDS):
            before = len(self.pairs)
            self._choose(candidates)
            self._by_weights()
            self._by_structure()
            self._by_scope()
            if len(self.pairs) == before:
                break
        self._in_order(lambda fact: fact.is_output, 0.6)
        return self._result(candidates)

    def _add(
        self, a: Fact, b: Fact, evidence: Sequence[str], confidence: float, **more: object
    ) -> None:
        agrees = more.pop("agrees", None)
        axes = more.pop("axes", None)
        said = list(evidence)
        if a.name == b.name and "name" not in said:
            said.append("name")
        if self._relation(a, b) == 3 and a.scope and "scope" not in said:
            said.append("scope")
        if a.op and a.op == b.op and self._inputs_agree(a, b) and "structure" not in said:
            said.append("structure")
        pair = Pair(a.name, b.name, tuple(said), confidence)
        pair.agrees = agrees if isinstance(agrees, bool) else None
        pair.axes = axes if isinstance(axes, tuple) else None
        self.pairs[a.name] = pair
        self.taken[b.name] = a.name

    def _free(self, a: Fact, b: Fact) -> bool:
        return a.name not in self.pairs and b.name not in self.taken

    # --- the modules of both sides ---

    def _scope_of_a(self, fact: Fact) -> str:
        return _reprefixed(fact.scope, self.prefix)

    def _relation(self, a: Fact, b: Fact) -> int:
        """How the modules fit: 3 the same, 2 one in the other or one unknown, 1 siblings, 0 not at all."""
        one, other = self._scope_of_a(a), b.scope
        if not (a.known and b.known):
            return 2
        if one == other:
            return 3
        if (
            not one
            or not other
            or f"{one}.".startswith(f"{other}.")
            or f"{other}.".startswith(f"{one}.")
        ):
            return 2
        return 1 if one.rpartition(".")[0] == other.rpartition(".")[0] else 0

    # --- evidence ---

    def _in_order(self, counts: Callable[[Fact], bool], confidence: float) -> None:
        """What is given to both, or returned by both: by name, else in order where the shapes fit."""
        ones = {f.name: f for f in self.a.facts.values() if counts(f)}
        others = {f.name: f for f in self.b.facts.values() if counts(f)}
        for name in ones.keys() & others.keys():
            if self._free(ones[name], others[name]) and _shapes_fit(ones[name], others[name]):
                self._add(ones[name], others[name], ["name"], confidence)
        rest_a = [f for f in ones.values() if f.name not in self.pairs]
        rest_b = [f for f in others.values() if f.name not in self.taken]
        if len(rest_a) == len(rest_b):
            for one, other in zip(rest_a, rest_b, strict=True):
                if _shapes_fit(one, other):
                    self._add(one, other, ["order"], confidence, agrees=_verdict(one, other))

    def _by_content(self) -> list[_Candidate]:
        """Pairs whose contents agree, and where neither has a partner that agrees much better."""
        by_size: dict[int, list[Fact]] = defaultdict(list)
        for fact in self.b.facts.values():
            if fact.signature is not None:
                by_size[fact.signature.elements].append(fact)
        for facts in by_size.values():
            facts.sort(key=_norm)
        norms = {size: [_norm(fact) for fact in facts] for size, facts in by_size.items()}
        found: list[tuple[float, _Candidate]] = []
        for fact in self.a.facts.values():
            if fact.signature is None:
                continue
            size, norm = fact.signature.elements, fact.signature.norm
            slack = 2e-2 * norm + 1e-30
            start = bisect_left(norms.get(size, []), norm - slack)
            stop = bisect_right(norms.get(size, []), norm + slack)
            for other in by_size[size][start:stop]:
                how = _agreement(fact, other)
                if how is not None:
                    found.append((how[0], _Candidate(fact, other, how[1])))
        nearest_a, nearest_b = dict[str, float](), dict[str, float]()
        for apart, c in found:
            nearest_a[c.a.name] = min(apart, nearest_a.get(c.a.name, 1.0))
            nearest_b[c.b.name] = min(apart, nearest_b.get(c.b.name, 1.0))
        return [
            c
            for apart, c in found
            if apart <= max(_ROUNDING, _MUCH_FARTHER * nearest_a[c.a.name])
            and apart <= max(_ROUNDING, _MUCH_FARTHER * nearest_b[c.b.name])
        ]

    def _choose(self, candidates: Iterable[_Candidate]) -> None:
        """Take candidates from the best fitting on; among equally fitting ones take those that compete with none."""
        levels: dict[tuple[int, ...], list[_Candidate]] = defaultdict(list)
        partners: dict[str, list[str]] = defaultdict(list)
        for c in candidates:
            partners[c.a.name].append(c.b.name)
            if self._free(c.a, c.b) and self._relation(c.a, c.b) > 0:
                levels[self._fit(c)].append(c)
        for level in sorted(levels, reverse=True):
            free = [c for c in levels[level] if self._free(c.a, c.b)]
            if not (self.a.structured or level[0]):
                # what a module passes on from one inside it is that one's
                free = [c for c in free if self.taken.keys().isdisjoint(partners[c.a.name])]
            for c in _unrivalled(free):
                confidence = 1.0 if self._relation(c.a, c.b) == 3 else 0.95
                self._add(c.a, c.b, ["values"], confidence, agrees=True, axes=c.axes)

    def _fit(self, c: _Candidate) -> tuple[int, ...]:
        a, b = c.a, c.b
        same_op = int(a.op == b.op) if a.op and b.op else 1
        return (
            int(self._relation(a, b) == 3),
            2 if a.shape == b.shape else 1 if c.axes is None else 0,
            self._relation(a, b),
            same_op,
            int(self._inputs_agree(a, b)),
            int(self._class_fits(a, b)),
            int(a.name == b.name),
        )

    def _class_fits(self, a: Fact, b: Fact) -> bool:
        """A module's own output is what leaves it."""
        return not self.a.structured and self._scope_of_a(a) in b.leaves

    def _inputs_agree(
        self,
        a: Fact,
        b: Fact,
        source_a: Callable[[str], str] = str,
        source_b: Callable[[str], str] = str,
    ) -> bool:
        """Whether what they are computed from is paired, in the same order."""
        if not a.inputs or len(a.inputs) != len(b.inputs) or a.slot != b.slot:
            return False
        sources = zip(map(source_a, a.inputs), map(source_b, b.inputs), strict=True)
        return all(one in self.pairs and self.pairs[one].b == other for one, other in sources)

    def _by_weights(self) -> None:
        """Nodes of one operator that use the same constants, which no other node of that operator does."""

        def key(fact: Fact) -> tuple[object, ...]:
            return (fact.op, fact.slot, *sorted(fact.weights))

        self._unique(key, lambda fact: bool(fact.weights and fact.inputs), ["weights"], 0.9)

    def _by_structure(self) -> None:
        """The same operator on inputs that are paired, where there is only one on each side."""
        makes: dict[str, list[Fact]] = defaultdict(list)
        for fact in self.b.facts.values():
            if fact.inputs:
                makes[self._source_b(fact.inputs[0])].append(fact)
        for fact in self.a.facts.values():
            if fact.name in self.pairs or not fact.inputs or fact.op == INPUT:
                continue
            first = self.pairs.get(self._source_a(fact.inputs[0]))
            fitting = [f for f in makes[first.b] if self._alike(fact, f)] if first else []
            if len(fitting) == 1 and self._is_only(fact, fitting[0]):
                self._add(fact, fitting[0], ["structure"], 0.8, agrees=_verdict(fact, fitting[0]))

    def _alike(self, a: Fact, b: Fact) -> bool:
        """Whether b may be a: the operator, what it is computed from, the module and the shape fit."""
        if b.name in self.taken or a.op != b.op or a.slot != b.slot or not _shapes_fit(a, b):
            return False
        relation = self._relation(a, b)
        if a.op in _FOLD_INTO and relation == 1:
            relation = 3
        if self._inputs_agree(a, b):
            return relation >= 2
        return relation == 3 and self._inputs_agree(a, b, self._source_a, self._source_b)

    def _source_a(self, name: str) -> str:
        return _source(self.a, name, self.pairs)

    def _source_b(self, name: str) -> str:
        return _source(self.b, name, self.taken)

    def _is_only(self, a: Fact, b: Fact) -> bool:
        """Whether no other free value of side a is as like b."""
        siblings = (f for f in self.a.facts.values() if f.inputs == a.inputs and f is not a)
        return not any(f.name not in self.pairs and self._alike(f, b) for f in siblings)

    def _by_scope(self) -> None:
        """What a module returned is the one value that leaves it; two nodes of one operator in the same module."""
        if self.a.structured:

            def key(fact: Fact) -> tuple[object, ...]:
                scope = self._scope_of_a(fact) if fact.name in self.a.facts else fact.scope
                return (scope, fact.op, fact.slot)

            self._unique(key, lambda f: bool(f.known and f.scope and f.inputs), ["scope"], 0.8)
            return
        leaving: dict[str, list[Fact]] = defaultdict(list)
        for fact in self.b.facts.values():
            for module in fact.leaves:
                leaving[module].append(fact)
        returned: dict[str, list[Fact]] = defaultdict(list)
        for fact in self.a.facts.values():
            if fact.known and fact.scope:
                returned[self._scope_of_a(fact)].append(fact)
        folded = self._folded(leaving)
        deepest_first = sorted(returned.items(), key=lambda item: -item[0].count("."))
        for module, (one, *more) in deepest_first:
            others = leaving.get(folded.get(module, module), [])
            if more or len(others) != 1 or module in folded.values():
                continue
            if self._free(one, others[0]) and others[0].known and _shapes_fit(one, others[0]):
                self._add(one, others[0], ["scope"], 0.7, agrees=_verdict(one, others[0]))

    def _folded(self, leaving: dict[str, list[Fact]]) -> dict[str, str]:
        """BatchNorm module -> the module before it, where no node is left of the BatchNorm: that one computes both."""
        folded = {}
        facts = list(self.a.facts.values())
        for before, fact in zip(facts, facts[1:], strict=False):
            if fact.class_name.startswith("BatchNorm") and self._scope_of_a(fact) not in leaving:
                folded[self._scope_of_a(fact)] = self._scope_of_a(before)
        return folded

    def _unique(
        self,
        key: Callable[[Fact], tuple[object, ...]],
        counts: Callable[[Fact], bool],
        evidence: Sequence[str],
        confidence: float,
    ) -> None:
        """Pair values whose key no other value on their side has."""
        sides = []
        for side in (self.a, self.b):
            groups: dict[tuple[object, ...], list[Fact]] = defaultdict(list)
            for fact in side.facts.values():
                if counts(fact):
                    groups[key(fact)].append(fact)
            sides.append({k: facts[0] for k, facts in groups.items() if len(facts) == 1})
        for k, a in sides[0].items():
            b = sides[1].get(k)
            if (
                b is not None
                and self._free(a, b)
                and self._relation(a, b) >= 2
                and _shapes_fit(a, b)
            ):
                self._add(a, b, evidence, confidence, agrees=_verdict(a, b))

    def _result(self, candidates: Iterable[_Candidate]) -> Matching:
        result = Matching()
        order = self.a.facts
        result.pairs = [self.pairs[name] for name in order if name in self.pairs]
        for c in candidates:
            if c.a.name not in self.pairs and c.b.name in self.taken:
                result.aliases.setdefault(c.a.name, self.taken[c.b.name])
        small = {(f.small, f.shape): f.name for f in order.values() if f.name in self.pairs}
        for fact in order.values():
            same = small.get((fact.small, fact.shape)) if fact.small else None
            if same is not None and fact.name not in self.pairs:
                result.aliases.setdefault(fact.name, same)
        result.only_a = [n for n in order if n not in self.pairs and n not in result.aliases]
        result.only_b = [n for n in self.b.facts if n not in self.taken]
        return result


def _agreement(a: Fact, b: Fact) -> tuple[float, tuple[int, ...] | None] | None:
    """(distance, order of axes) of two values that hold the same numbers, in one order or transposed."""
    if a.signature is None or b.signature is None:
        return None
    apart = distance(a.signature, b.signature)
    if apart <= tolerance(a.signature, b.signature):
        return apart, None
    axes = transposition(a.signature, b.signature)
    return None if axes is None else (_ROUNDING, axes)


def _verdict(a: Fact, b: Fact) -> bool | None:
    if a.signature is None or b.signature is None:
        return None
    return _agreement(a, b) is not None


def _source(side: Side, name: str, paired: Container[str]) -> str:
    """The first paired value on the way back through what was inserted: nodes that have one input."""
    for _ in range(_INSERTED):
        inputs = side.facts[name].inputs if name in side.facts else ()
        if name in paired or len(inputs) != 1:
            break
        name = inputs[0]
    return name


def _norm(fact: Fact) -> float:
    return fact.signature.norm if fact.signature is not None else 0.0


def _shapes_fit(a: Fact, b: Fact) -> bool:
    return a.shape is None or b.shape is None or a.shape == b.shape


def _unrivalled(candidates: Sequence[_Candidate]) -> list[_Candidate]:
    """Those that share neither side with another; groups of as many values on both sides pair in their order."""
    by_a: dict[str, set[str]] = defaultdict(set)
    by_b: dict[str, set[str]] = defaultdict(set)
    for c in candidates:
        by_a[c.a.name].add(c.b.name)
        by_b[c.b.name].add(c.a.name)
    chosen = []
    for c in candidates:
        ones, others = by_b[c.b.name], by_a[c.a.name]
        if len(ones) != len(others) or any(by_a[name] != others for name in ones):
            continue
        if sorted(ones, key=_ranks(candidates, 0)).index(c.a.name) == sorted(
            others, key=_ranks(candidates, 1)
        ).index(c.b.name):
            chosen.append(c)
    return chosen


def _ranks(candidates: Sequence[_Candidate], side: int) -> Callable[[str], int]:
    ranks = {f.name: f.rank for c in candidates for f in ((c.a, c.b)[side],)}
    return ranks.__getitem__


def _common_prefix(a: Side, b: Side) -> tuple[str, str]:
    """(what to drop from a's module paths, what to put there): the wrapper that only one side was exported in."""
    ones = {f.scope for f in a.facts.values() if f.known and f.scope}
    others = {f.scope for f in b.facts.values() if f.known and f.scope}
    heads = {"", *(f"{scope.split('.')[0]}." for scope in ones | others)}
    ways = [("", head) for head in heads] + [(head, "") for head in heads if head]

    def shared(way: tuple[str, str]) -> tuple[int, bool]:
        return len({_reprefixed(scope, way) for scope in ones} & others), way == ("", "")

    return max(ways, key=shared, default=("", ""))


def _reprefixed(scope: str, way: tuple[str, str]) -> str:
    drop, put = way
    if not scope:
        return put.rstrip(".")
    return f"{put}{scope.removeprefix(drop)}" if scope.startswith(drop) else scope
