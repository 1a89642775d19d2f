"""Pair nodes of two models with equal operators and paired outputs."""

from collections.abc import Iterable

from onnxsurgeon_lite.graph.index import GraphIndex, call_key
from onnxsurgeon_lite.matching.values.board import Pair


def same_nodes(a: GraphIndex, b: GraphIndex, pairs: Iterable[Pair]) -> list[tuple[int, int]]:
    """Pair positions of nodes with equal operators and paired outputs, each at most once."""
    found: dict[int, int] = {}
    taken: set[int] = set()
    for pair in pairs:
        a.require(pair.a)
        b.require(pair.b)
        one, other = a.producer.get(pair.a), b.producer.get(pair.b)
        if one is None or other is None or pair.blocked:
            continue
        slots = _slot(a, one, pair.a), _slot(b, other, pair.b)
        fits = slots[0] == slots[1] and call_key(a.nodes[one]) == call_key(b.nodes[other])
        if fits and one not in found and other not in taken:
            found[one] = other
            taken.add(other)
    return list(found.items())


def _slot(index: GraphIndex, position: int, name: str) -> int:
    return [*index.nodes[position].output].index(name)
