"""Match the values of two sides by contents first, then by module, weights and structure.

Every pair has evidence, and each value is in at most one pair.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import NamedTuple

from onnxsurgeon_lite.matching.values import structure
from onnxsurgeon_lite.matching.values.contents import Candidate, agreeing, candidates
from onnxsurgeon_lite.matching.values.facts import INPUT, Fact, Side
from onnxsurgeon_lite.matching.values.pair_table import SAME, Pair, PairTable, shapes_fit
from onnxsurgeon_lite.names import first

_ROUNDS = 8  # of all methods, at most
_SHOWN = 3  # modules that a note names
_CACHED = re.compile(r"(\d+)\W+(key|value)")  # `[layers][1][keys]`, `present.1.key`
_EQUAL = 1e-5  # the relative distance of what two runtimes compute alike


@dataclass
class Matching:
    """The matched values of two sides.

    Attributes:
        pairs: in the order of side a. only_a, only_b: unpaired values.
        aliases: unpaired value of side a -> paired value with the same tensor.
        lost: modules of unmatched references that the model lacks -> the closest module names.
        lost_names: these references.
    """

    pairs: list[Pair]
    only_a: list[str] = field(default_factory=list)
    only_b: list[str] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)
    lost: dict[str, list[str]] = field(default_factory=dict)
    lost_names: list[str] = field(default_factory=list)

    def after_last(self, names: Iterable[str]) -> list[str]:
        """Return the unpaired values of side a after the last paired one.

        Args:
            names: all values of side a, in order.
        """
        place = {name: number for number, name in enumerate(names)}
        last = max((place[pair.a] for pair in self.pairs), default=-1)
        return [name for name in self.only_a if place[name] > last]


def match(a: Side, b: Side) -> Matching:
    """Match the values of two sides that were computed from the same feeds."""
    # each round uses the pairs of the last one, the surest evidence first
    table, found = PairTable(a, b), candidates(a, b)
    # a transposed pair of two operators may be chance: only later
    of_one_kind = [c for c in found if c.axes is None or c.a.op == c.b.op]
    _in_order(table, _inputs(a), _inputs(b), 0.9)
    # each method only pairs what is free, and enables others in the next round
    for _ in range(_ROUNDS):
        before = len(table.pairs)
        choose(table, of_one_kind)
        _returned(table)
        structure.by_weights(table)
        structure.by_inputs(table)
        structure.by_scope(table)
        structure.by_name(table)
        # weaker evidence only where the round found nothing
        if len(table.pairs) == before:
            choose(table, found)  # last: after an error, a value may look like its transposed copy
        if len(table.pairs) == before:
            choose_first(table, found)
        if len(table.pairs) == before:
            break
    _free_outputs(table)
    _returned(table)
    _small_outputs(table)
    _in_order(table, _outputs(a), _outputs(b), 0.6)
    _by_place(table)
    return _result(table, found)


def lost_note(matching: Matching) -> str:
    """Describe the modules of unmatched references that the model lacks; '' if there are none."""
    if not matching.lost:
        return ""
    named = [
        repr(path) + (f" (closest names: {', '.join(map(repr, closest))})" if closest else "")
        for path, closest in matching.lost.items()
    ]
    return f"unmatched references belong to modules that the model does not have: {first(named, _SHOWN)}"


def _in_order(
    table: PairTable, ones: Mapping[str, Fact], others: Mapping[str, Fact], confidence: float
) -> None:
    """Pair inputs, or outputs, by name, else in order if the shapes fit."""
    for name, one in ones.items():
        if name in others and table.free(one, others[name]) and shapes_fit(one, others[name]):
            table.add(one, others[name], "name", confidence)
    # what is left is paired in order, without copies of what has a partner
    held = _held(table, others)
    left = [f for f in ones.values() if f.name not in table.pairs]
    rest_a = [f for f in left if _content(f) is None or _content(f) not in held]
    rest_b = [f for f in others.values() if f.name not in table.taken]
    if len(rest_a) == len(rest_b):
        for one, other in zip(rest_a, rest_b, strict=True):
            if shapes_fit(one, other):
                table.add(one, other, "order", confidence)


def _returned(table: PairTable) -> None:
    """Pair what the whole module returned under a name with the output of that name."""
    for one, other in _of_one_name(table):
        if table.free(one, other) and shapes_fit(one, other):
            table.add(one, other, "name", 0.9)


def _of_one_name(table: PairTable) -> list[tuple[Fact, Fact]]:
    """Return what the whole module returned under names, `Net[logits]`, with the outputs of these names."""
    ones, others = (
        {key_of(name): fact for name, fact in _outputs(side).items()} for side in (table.a, table.b)
    )
    return [(ones[key], other) for key, other in others.items() if key in ones]


def key_of(name: str) -> object:
    """Return the name under which a module returned an output, or its layer and part of a cache."""
    return tuple(_CACHED.findall(name)) or name.rpartition("[")[2].removesuffix("]")


def _inputs(side: Side) -> dict[str, Fact]:
    return {fact.name: fact for fact in side.facts.values() if fact.op == INPUT}


def _outputs(side: Side) -> dict[str, Fact]:
    return {name: side.facts[name] for name in side.outputs}


def _held(table: PairTable, names: Iterable[str]) -> list[object]:
    """Return the contents of the partners of some values of side b."""
    return [_content(table.a.facts[table.taken[name]]) for name in names if name in table.taken]


def _free_outputs(table: PairTable) -> None:
    """Free outputs that inner references equal, where those of outputs are others: what follows there is missing."""
    ones, others = _outputs(table.a).values(), _outputs(table.b).values()
    # contents that already have a partner
    held = _held(table, table.b.outputs)
    is_even = len(ones) == len(others)
    # outputs in order, else by the names under which the module returned them
    for one, other in zip(ones, others, strict=True) if is_even else _of_one_name(table):
        # the inner reference that took this output's place
        inner = table.a.facts.get(table.taken.get(other.name, ""), one)
        # the reference of the output, which has no partner of its own
        is_left = one.name not in table.pairs and _content(one) not in held
        if is_left and not inner.is_output and shapes_fit(one, other):
            table.drop(inner, other)


def _small_outputs(table: PairTable) -> None:
    """Pair outputs of few numbers with the last reference that holds them, where none is known as an output."""
    outputs = [table.b.facts[name] for name in table.b.outputs if name not in table.taken]
    for other in outputs if not table.a.outputs else ():
        fitting = [
            fact
            for fact in table.a.facts.values()
            if fact.name not in table.pairs and _is_number(fact) and fact.shape == other.shape
        ]
        found = [fact for fact in fitting if agreeing(fact, other)]
        if found:
            table.add(found[-1], other, "values", 0.9)


def _is_number(fact: Fact) -> bool:
    return fact.small is not None and fact.small.dtype.kind == "f" and fact.small.size > 1


def _by_place(table: PairTable) -> None:
    """Pair the first reference after the last match with the last value that its place and shape permit.

    What is wrong is before that value, if the model has all references that are left, in their order. References with
    modules are paired by these, and what the model is fed with has no place.
    """
    # feeds are known, and copies of them have no place
    fed = list(map(_content, _inputs(table.b).values()))
    ones = [
        fact for fact in table.a.facts.values() if fact.op != INPUT and _content(fact) not in fed
    ]
    if table.a.structured or any(fact.known for fact in ones):
        return
    # the last reference that matched, and the last value
    last = max((n for n, fact in enumerate(ones) if fact.name in table.pairs), default=-1)
    left = {_content(fact): fact for fact in reversed(ones[last + 1 :])}  # without copies
    last_value = max((table.b.facts[name].rank for name in table.taken), default=-1)
    free = [fact for fact in table.b.facts.values() if fact.inputs and fact.rank > last_value]
    pair: tuple[Fact, Fact] | None = None
    # from the end: for each reference the last value that fits, so that all that are left find a place
    for one in left.values():
        known = one.signature is None
        while free and (free[-1].shape, free[-1].signature is None) != (one.shape, known):
            free.pop()
        if not free:
            return
        # overwritten until the first reference of those that are left: the loop ends with it
        pair = one, free.pop()
    if pair:
        table.add(*pair, "order", 0.5)


def _result(table: PairTable, found: Iterable[Candidate]) -> Matching:
    # a value that equals a paired one is its copy, not a value without a partner
    facts, pairs = table.a.facts, table.pairs
    result = Matching([pairs[name] for name in facts if name in pairs])
    for c in found:
        # equal to what a paired value has: not missing
        if c.a.name not in pairs and c.b.name in table.taken:
            result.aliases.setdefault(c.a.name, table.taken[c.b.name])
    paired = {key: f.name for f in facts.values() if f.name in pairs and (key := _content(f))}
    for fact in facts.values():
        same = paired.get(_content(fact))
        if same is not None and fact.name not in pairs:
            result.aliases.setdefault(fact.name, same)
    result.only_a = [n for n in facts if n not in pairs and n not in result.aliases]
    result.only_b = [n for n in table.b.facts if n not in table.taken]
    if not table.a.structured:
        result.lost_names = [name for name in result.only_a if table.lost(facts[name])]
        # module that is missing -> the modules with the closest names
        lost = dict.fromkeys(table.lost(facts[name]) for name in result.lost_names)
        # an exporter leaves no node where a BatchNormalization was folded, or a table was looked up
        gone = (p for p in lost if not any(w.startswith(f"{p}.") for w in table.b.weights))
        result.lost = {path: get_close_matches(path, table.modules) for path in gone}
    return result


def _content(fact: Fact) -> object:
    """Return a key that is equal for unchanged copies of a tensor."""
    if fact.signature is not None:
        return fact.shape, fact.signature.packed().tobytes()
    return (fact.shape, fact.small.dtype, fact.small.tobytes()) if fact.small is not None else None


class _Fit(NamedTuple):
    """The fit of a candidate; earlier fields decide first."""

    same_node: bool
    same_name: bool
    same_scope: bool
    shapes: int
    relation: int
    same_operator: bool
    same_weights: bool
    neighbors: int
    returned: bool


def choose(table: PairTable, candidates: Sequence[Candidate]) -> None:
    """Pair candidates, best fit first; among equal fits, only those without competitors.

    A tensor and its copies downstream hold the same numbers. Module, shape, operator, inputs and users distinguish
    them. When one side has fewer of them, its first is paired with the other's first, where the numbers arise.
    Ambiguous values stay unpaired.
    """
    for group, ones, others in _competing(table, candidates):
        # as many on both sides, and each fits each: then their order decides
        if len(ones) == len(others) and len(group) == len(ones) * len(others):
            for one, other in zip(ones, others, strict=True):
                _take(table, next(c for c in group if c.a is one and c.b is other))


def choose_first(table: PairTable, candidates: Sequence[Candidate]) -> None:
    """Pair the first values of chains that only pass a tensor on."""
    for group, ones, others in _competing(table, candidates):
        first = next((c for c in group if c.a is ones[0] and c.b is others[0]), None)
        if first and _passes_on(table.a, ones) and _passes_on(table.b, others):
            _take(table, first)


def _competing(
    table: PairTable, candidates: Sequence[Candidate]
) -> Iterator[tuple[list[Candidate], list[Fact], list[Fact]]]:
    """Yield the candidates that compete, best fit first, with their values on both sides in execution order."""
    for level in _levels(table, candidates):
        for group in _groups(level):
            ones, others = {c.a.name: c.a for c in group}, {c.b.name: c.b for c in group}
            first, second = (
                sorted(side.values(), key=lambda fact: fact.rank) for side in (ones, others)
            )
            yield group, first, second


def _levels(table: PairTable, candidates: Sequence[Candidate]) -> Iterator[list[Candidate]]:
    """Yield the unpaired candidates by fit, best first."""
    levels: dict[_Fit, list[Candidate]] = defaultdict(list)
    partners: dict[str, set[str]] = defaultdict(set)
    for c in candidates:
        # all that could be a partner, whether it is free or not
        partners[c.a.name].add(c.b.name)
        is_told = c.a.name not in table.unclear or _tells_order(table, c.a, c.b)
        is_free = table.free(c.a, c.b) and not _is_chance(table, c)
        if is_told and is_free and table.may_be_one(c.a, c.b):
            # candidates of one fit compete; those of a better one come first
            levels[_fit(table, c)].append(c)
    # what a model computed says its modules; what a module returned has its name
    of_nodes = table.a.structured or any(fact.known for fact in table.a.facts.values())
    for level in sorted(levels, reverse=True):
        free = [c for c in levels[level] if table.free(c.a, c.b)]
        if not level.same_scope:
            # a value that an outer module passes on belongs to the inner module
            free = [
                c
                for c in free
                if (of_nodes and not c.a.returned)
                or table.taken.keys().isdisjoint(partners[c.a.name])
            ]
        if free:
            yield free


def _fit(table: PairTable, c: Candidate) -> _Fit:
    a, b = c.a, c.b
    relation = table.relation(a, b)
    same_weights = a.weights == b.weights != ()
    return _Fit(
        same_node=same_weights and a.op == b.op,
        same_name=a.name == b.name,
        same_scope=relation == SAME,
        shapes=2 if a.shape == b.shape else 1 if c.axes is None else 0,
        relation=relation,
        same_operator=a.op == b.op or not (a.op and b.op),
        same_weights=same_weights or a.weights[:1] == b.weights[:1] != (),
        neighbors=int(table.inputs_agree(a, b)) + int(table.users_agree(a, b)),
        returned=_is_returned(table, a, b),
    )


def _is_returned(table: PairTable, a: Fact, b: Fact) -> bool:
    """Return whether a reference is what a module returns, and a value what leaves this module."""
    return a.returned and table.scope_of_a(a) in b.leaves


def _is_chance(table: PairTable, c: Candidate) -> bool:
    """Return whether a reference only resembles a value, and its own module has one: a wrong one.

    A normalization of numbers that are normal already changes little.
    """
    is_near = c.apart > _EQUAL and c.a.known and not table.a.structured
    # several values may leave a module: which of them it returns is not known
    own = table.leaving[table.scope_of_a(c.a)] if is_near else []
    return len(own) == 1 and own[0] is not c.b and table.free(c.a, own[0])


def _tells_order(table: PairTable, a: Fact, b: Fact) -> bool:
    """Return whether something else than the numbers shows that the axes of two values are in one order."""
    if _is_returned(table, a, b) or (a.is_output and b.is_output):
        return True
    return a.op == b.op != "Transpose" and table.inputs_agree(a, b)


def _take(table: PairTable, c: Candidate) -> None:
    """Pair two values; what a module or model returns keeps its axes, unless its shape says otherwise."""
    if c.axes is not None and c.a.shape == c.b.shape:
        if _is_returned(table, c.a, c.b):
            table.add(c.a, c.b, "scope", 0.7)
            return
        if c.b.is_output and table.b.structured:
            return
    confidence = 1.0 if table.relation(c.a, c.b) == SAME else 0.95
    table.add(c.a, c.b, "values", confidence, c.axes)


def _groups(candidates: Iterable[Candidate]) -> list[list[Candidate]]:
    """Group candidates that compete for a value on either side."""
    # (side, name) -> the candidates connected with it through shared values
    group_of = dict[tuple[int, str], list[Candidate]]()
    for c in candidates:
        keys = (0, c.a.name), (1, c.b.name)
        joined = [c]
        # the groups of both values; only one if both are in it
        for group in {id(g): g for g in map(group_of.get, keys) if g is not None}.values():
            joined += group
        for member in joined:
            group_of[0, member.a.name] = group_of[1, member.b.name] = joined
    return list({id(group): group for group in group_of.values()}.values())


def _passes_on(side: Side, facts: Sequence[Fact]) -> bool:
    """Return whether each value is computed from an earlier one; module outputs always are."""
    before = set[str]()
    # a value that reads no earlier one of the chain is computed in another way
    for fact in facts:
        if side.structured and before and before.isdisjoint(fact.inputs):
            return False
        before.add(fact.name)
    return True
