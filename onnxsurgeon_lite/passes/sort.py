"""Sort nodes topologically."""

from dataclasses import dataclass
from typing import ClassVar

from onnx import ModelProto

from onnxsurgeon_lite.errors import GraphError
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.model import Model, walk
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.surgery import Nodes, reorder


@dataclass(frozen=True)
class Sort:
    """Sort the nodes of every graph, body and function topologically; sorted nodes do not move.

    Example:
        >>> osl.sort("whole_model.onnx").changed
        False
    """

    name: ClassVar[str] = "sort"

    def apply(self, model: Model) -> PassResult:
        """Sort them.

        Raises:
            GraphError: there is a cycle, or a value has two producers.
        """
        result = model.copy()
        changes = sort_nodes(result)
        return PassResult(result if changes else model, bool(changes), changes=tuple(changes))


def sort_nodes(model: Model) -> list[str]:
    """Sort a model in place; return a line for each graph or function that changed."""
    changes = []
    for place, nodes in _scopes(model.proto):
        if _sort(nodes, model, place):
            changes.append(f"sorted the {len(nodes)} nodes of {place}")
    return changes


def sort_alone(nodes: Nodes) -> bool:
    """Sort the nodes of a body or function, in place; return whether one moved."""
    # a graph of the nodes alone, to find an order
    part = Model(ModelProto())
    part.graph.node.extend(nodes)
    return _put_in_order(nodes, part)


def _put_in_order(nodes: Nodes, model: Model) -> bool:
    order = GraphIndex.of(model).order
    moves = order != list(range(len(order)))
    if moves:
        reorder(nodes, order)
    return moves


def _scopes(proto: ModelProto) -> list[tuple[str, Nodes]]:
    """Return (description, nodes) of every graph and function."""
    scopes = [(f"graph {graph.name!r}", graph.node) for graph in walk.graphs(proto)]
    return scopes + [(f"function {f.name!r}", f.node) for f in proto.functions]


def _sort(nodes: Nodes, model: Model, place: str) -> bool:
    try:
        is_main = nodes is model.graph.node
        return _put_in_order(nodes, model) if is_main else sort_alone(nodes)
    except GraphError as error:
        error.add_note(f"in {place}")
        raise
