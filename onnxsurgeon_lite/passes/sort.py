"""Sort nodes topologically."""

from dataclasses import dataclass
from typing import ClassVar

from onnx import ModelProto

from onnxsurgeon_lite.errors import GraphError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.model import Model, walk
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.surgery.edits import Nodes, reorder


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
        order = _order(model, nodes, place)
        if order != list(range(len(order))):
            reorder(nodes, order)
            changes.append(f"sorted the {len(order)} nodes of {place}")
    return changes


def _scopes(proto: ModelProto) -> list[tuple[str, Nodes]]:
    """Return (description, nodes) of every graph and function."""
    scopes = [(f"graph {graph.name!r}", graph.node) for graph in walk.graphs(proto)]
    return scopes + [(f"function {f.name!r}", f.node) for f in proto.functions]


def _order(model: Model, nodes: Nodes, place: str) -> list[int]:
    # a body or function: a graph of its nodes alone
    if nodes is not model.proto.graph.node:
        model = Model(ModelProto())
        model.proto.graph.node.extend(nodes)
    try:
        return GraphIndex.of(model).order
    except GraphError as error:
        error.add_note(f"in {place}")
        raise
