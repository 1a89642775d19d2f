"""Choose pairs among values with equal contents.

A tensor and its copies downstream hold the same numbers. Module, shape, operator, inputs and users distinguish them.
When one side has fewer of them, its first is paired with the other's first, where the numbers arise. Ambiguous values
stay unpaired.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from onnxsurgeon_lite.matching.values.board import SAME, Board
from onnxsurgeon_lite.matching.values.contents import Candidate
from onnxsurgeon_lite.matching.values.facts import Fact, Side


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


def choose(board: Board, candidates: Sequence[Candidate]) -> None:
    """Pair candidates, best fit first; among equal fits, only those without competitors."""
    for group, ones, others in _competing(board, candidates):
        if len(ones) == len(others) and len(group) == len(ones) * len(others):
            for one, other in zip(ones, others, strict=True):
                _take(board, next(c for c in group if c.a is one and c.b is other))


def choose_first(board: Board, candidates: Sequence[Candidate]) -> None:
    """Pair the first values of chains that only pass a tensor on."""
    for group, ones, others in _competing(board, candidates):
        first = next((c for c in group if c.a is ones[0] and c.b is others[0]), None)
        if first and _passes_on(board.a, ones) and _passes_on(board.b, others):
            _take(board, first)


def _competing(
    board: Board, candidates: Sequence[Candidate]
) -> Iterator[tuple[list[Candidate], list[Fact], list[Fact]]]:
    """Yield the candidates that compete, best fit first, with their values on both sides in execution order."""
    for level in _levels(board, candidates):
        for group in _groups(level):
            ones, others = {c.a.name: c.a for c in group}, {c.b.name: c.b for c in group}
            first, second = (
                sorted(side.values(), key=lambda fact: fact.rank) for side in (ones, others)
            )
            yield group, first, second


def _levels(board: Board, candidates: Sequence[Candidate]) -> Iterator[list[Candidate]]:
    """Yield the unpaired candidates by fit, best first."""
    levels: dict[_Fit, list[Candidate]] = defaultdict(list)
    partners: dict[str, set[str]] = defaultdict(set)
    for c in candidates:
        partners[c.a.name].add(c.b.name)
        is_told = c.a.name not in board.unclear or _tells_order(board, c.a, c.b)
        if is_told and board.free(c.a, c.b) and board.may_be_one(c.a, c.b):
            levels[_fit(board, c)].append(c)
    # what a model computed says its modules; what a module returned has its name
    of_nodes = board.a.structured or any(fact.known for fact in board.a.facts.values())
    for level in sorted(levels, reverse=True):
        free = [c for c in levels[level] if board.free(c.a, c.b)]
        if not level.same_scope:
            # a value that an outer module passes on belongs to the inner module
            free = [
                c
                for c in free
                if (of_nodes and not c.a.returned)
                or board.taken.keys().isdisjoint(partners[c.a.name])
            ]
        if free:
            yield free


def _fit(board: Board, c: Candidate) -> _Fit:
    a, b = c.a, c.b
    relation = board.relation(a, b)
    same_weights = a.weights == b.weights != ()
    return _Fit(
        same_node=same_weights and a.op == b.op,
        same_name=a.name == b.name,
        same_scope=relation == SAME,
        shapes=2 if a.shape == b.shape else 1 if c.axes is None else 0,
        relation=relation,
        same_operator=a.op == b.op or not (a.op and b.op),
        same_weights=same_weights or a.weights[:1] == b.weights[:1] != (),
        neighbors=int(board.inputs_agree(a, b)) + int(board.users_agree(a, b)),
        returned=_is_returned(board, a, b),
    )


def _is_returned(board: Board, a: Fact, b: Fact) -> bool:
    """Return whether a reference is what a module returns, and a value what leaves this module."""
    return a.returned and board.scope_of_a(a) in b.leaves


def _tells_order(board: Board, a: Fact, b: Fact) -> bool:
    """Return whether more than the numbers of two values tells that their axes are in one order."""
    if _is_returned(board, a, b) or (a.is_output and b.is_output):
        return True
    return a.op == b.op != "Transpose" and board.inputs_agree(a, b)


def _take(board: Board, c: Candidate) -> None:
    """Pair two values; what a module or model returns keeps its axes, unless its shape says otherwise."""
    if c.axes is not None and c.a.shape == c.b.shape:
        if _is_returned(board, c.a, c.b):
            board.add(c.a, c.b, "scope", 0.7)
            return
        if c.b.is_output and board.b.structured:
            return
    confidence = 1.0 if board.relation(c.a, c.b) == SAME else 0.95
    board.add(c.a, c.b, "values", confidence, c.axes)


def _groups(candidates: Iterable[Candidate]) -> list[list[Candidate]]:
    """Group candidates that compete for a value on either side."""
    group_of: dict[tuple[int, str], list[Candidate]] = {}
    for c in candidates:
        keys = (0, c.a.name), (1, c.b.name)
        joined = [c]
        for group in {id(g): g for g in map(group_of.get, keys) if g is not None}.values():
            joined += group
        for member in joined:
            group_of[0, member.a.name] = group_of[1, member.b.name] = joined
    return list({id(group): group for group in group_of.values()}.values())


def _passes_on(side: Side, facts: Sequence[Fact]) -> bool:
    """Return whether each value is computed from an earlier one; module outputs always are."""
    before: set[str] = set()
    for fact in facts:
        if side.structured and before and before.isdisjoint(fact.inputs):
            return False
        before.add(fact.name)
    return True
