"""Find square weights that are transposed, or not, although their nodes need the opposite."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Literal

from onnxsurgeon_lite.graph.index import GraphIndex

Sense = Literal["out x in", "in x out"]
"""What a multiplied parameter holds: rows of weights for each output, as a Linear, or for each input."""

_PASSING = ("Identity", "Cast", "DequantizeLinear")
_ROWS = ("Gather", "Conv", "ConvTranspose", "LSTM", "GRU", "RNN")
"""They use a weight as the checkpoint stores it."""
_FEW = 0.25  # share of the other weights that say nothing of all


def usual_senses(index: GraphIndex, weights: Collection[tuple[str, Sequence[int]]]) -> set[Sense]:
    """Return what most weights that are not square say of their parameters, both where these differ.

    Args:
        weights: initializers and the order of their parameter's axes.
    """
    counts = Counter(
        s for name, order in weights for s in _senses(index, name, list(order) == [1, 0])
    )
    return {s for s, count in counts.items() if count > _FEW * counts.total()}


def turned(index: GraphIndex, name: str, order: Sequence[int], usual: set[Sense]) -> str:
    """Return what is wrong with the layout of a square weight, '' if nothing is known to be.

    Without other weights, a transposed one is that of a Linear.
    """
    is_turned = list(order) != sorted(order)
    users = [index.nodes[position].op_type for position in index.consumers.get(name, ())]
    if is_turned and users and all(op in _ROWS for op in users):
        return f"is transposed, and {users[0]} does not transpose it back"
    known = usual or ({"out x in"} if is_turned else set())
    if (
        not known
        or not known.isdisjoint(senses := set(_senses(index, name, is_turned)))
        or not senses
    ):
        return ""
    return f"is {'transposed' if is_turned else 'not transposed'}, unlike what its {users[0]} needs"


def _senses(index: GraphIndex, name: str, is_turned: bool) -> Iterator[Sense]:
    """Yield what each matrix product takes a parameter for."""
    for position in index.consumers.get(name, ()):
        node = index.nodes[position]
        if node.op_type in _PASSING or (node.op_type == "Transpose" and name == node.input[0]):
            yield from _senses(index, node.output[0], is_turned != (node.op_type == "Transpose"))
        elif node.op_type in ("MatMul", "Gemm") and name in node.input[:2]:
            slot = list(node.input).index(name)
            transposes = any(a.name == ("transA", "transB")[slot] and a.i for a in node.attribute)
            turns = is_turned + transposes + slot  # on the left it is as transposed on the right
            yield "in x out" if turns % 2 else "out x in"
