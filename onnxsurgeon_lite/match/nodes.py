"""Nodes of two models that are the same by the values that they make."""

from collections.abc import Iterable

from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.match.board import Pair


def same_nodes(a: GraphIndex, b: GraphIndex, pairs: Iterable[Pair]) -> list[tuple[int, int]]:
    """Positions of the nodes that make paired values, each in one pair at most.

    Raises:
        UnknownNameError: a pair names what a model has not.
    """
    found: dict[int, int] = {}
    for pair in pairs:
        a.require(pair.a)
        b.require(pair.b)
        one, other = a.producer.get(pair.a), b.producer.get(pair.b)
        if one is None or other is None or pair.blocked:
            continue
        slots = (
            [*i.nodes[p].output].index(n) for i, p, n in ((a, one, pair.a), (b, other, pair.b))
        )
        if len({*slots}) == 1 and one not in found and other not in found.values():
            found[one] = other
    return list(found.items())
