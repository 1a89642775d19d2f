"""Remove what no output depends on."""

from collections.abc import Container, MutableSequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

from onnx import (
    GraphProto,
    ModelProto,
    SparseTensorProto,
    TensorAnnotation,
    TensorProto,
    ValueInfoProto,
)

from onnxsurgeon_lite.graph import GraphIndex, NodeTable, captured, reached_functions
from onnxsurgeon_lite.model import Model, drop, drop_at, function_key, walk
from onnxsurgeon_lite.passes.protocol import OPTIONAL_INPUTS, PassResult
from onnxsurgeon_lite.surgery import Nodes, defined, trained

Named = TensorProto | SparseTensorProto | ValueInfoProto | TensorAnnotation


@dataclass(frozen=True)
class Clean:
    """Remove nodes, initializers, declarations and functions that no output depends on; in bodies and functions too.

    Inputs, outputs, parameters of kept quantization annotations, and values that training uses stay.

    Example:
        >>> osl.clean("whole_model.onnx").changed
        False
    """

    name: ClassVar[str] = "clean"

    def apply(self, model: Model) -> PassResult:
        """Remove them."""
        return _cleaned(model)

    def edit(self, index: GraphIndex) -> PassResult:
        """Remove them from an indexed model."""
        return _cleaned(index.model, index)


def _cleaned(model: Model, index: GraphIndex | None = None) -> PassResult:
    result = model.copy()
    proto = result.proto
    changes = _clean_graph(proto.graph, index, _training_needs(proto) | _given(proto))
    # what a function returns is needed
    for function in proto.functions:
        table = NodeTable(function.node)
        place = f"function {function.name!r}"
        removed = _clean_nodes(function.node, table, set(function.output), place)
        if removed:
            _drop_unknown(function.value_info, set(walk.outputs(function.node)))
        changes += removed
    # functions that no node calls, directly or by way of others
    nodes = walk.nodes(chain([proto.graph], walk.training(proto)))
    reached = {function_key(function) for function in reached_functions(proto, nodes)}
    idle = [p for p, f in enumerate(proto.functions) if function_key(f) not in reached]
    changes += (f"removed function {proto.functions[p].name!r}" for p in reversed(idle))
    drop_at(proto.functions, idle)
    return PassResult.of(model, result, changes, is_told=True)


def _training_needs(proto: ModelProto) -> set[str]:
    """Return the values of the main graph that training graphs read or update."""
    needed = trained(proto)
    for node in walk.nodes(walk.training(proto)):
        needed.update(node.input, captured(node))
    return needed


def _given(proto: ModelProto) -> set[str]:
    """Return the inputs of the main graph: one without its default becomes required. In older files weights are."""
    weights = proto.graph.initializer if proto.ir_version < OPTIONAL_INPUTS else ()
    return {value.name for value in proto.graph.input}.difference(tensor.name for tensor in weights)


def _clean_graph(graph: GraphProto, index: GraphIndex | None, also: set[str]) -> list[str]:
    """Clean a graph, which an index may describe, then the bodies of the remaining nodes."""
    changes = []
    # (graph, its index if there is one, names that are needed besides its outputs)
    pending = [(graph, index, also)]
    while pending:
        graph, index, also = pending.pop()
        place = f"graph {graph.name!r}"
        needed = {value.name for value in graph.output} | also
        table = NodeTable.of(graph) if index is None else index.table
        changes += _clean_nodes(graph.node, table, needed, place, graph)
        changes += _clean_declarations(graph, needed, place)
        inner = list(walk.inner(walk.with_bodies(graph)))
        # an input of a body keeps its default
        pending += [(body, None, {value.name for value in body.input}) for body in inner]
    return changes


def _clean_nodes(
    nodes: Nodes,
    table: NodeTable,
    needed: set[str],
    place: str,
    graph: GraphProto | None = None,
) -> list[str]:
    """Remove the nodes that `needed` does not depend on; add to it what the others read."""
    parameters = {
        a.tensor_name: [entry.value for entry in a.quant_parameter_tensor_names]
        for a in (graph.quantization_annotation if graph is not None else ())
    }
    if not parameters and _is_used(table, needed):
        return []
    # upwards from what is needed
    producer, _ = table.made
    alive = set[int]()
    pending = list(needed)
    while pending:
        name = pending.pop()
        # an annotated value needs the scale and zero point that its annotation names
        pending += (n for n in parameters.get(name, ()) if n not in needed)
        needed.add(name)
        position = producer.get(name, -1)
        if position >= 0 and position not in alive:
            alive.add(position)
            reads = table.needs[position]
            pending += [read for read in reads if read not in needed]
            needed.update(reads)
            for output in table.makes[position] if parameters else ():
                pending += (n for n in parameters.get(output, ()) if n not in needed)
    # a node without outputs is kept: it may be there for its effect
    dead = [p for p, names in enumerate(table.makes) if p not in alive and names]
    drop_at(nodes, dead)
    return [f"removed {len(dead)} unreachable nodes of {place}"] if dead else []


def _is_used(table: NodeTable, needed: set[str]) -> bool:
    """Return whether each node is seen to be needed, in one pass; add what all read to `needed` then."""
    # from the end on: in a sorted graph a node is before those that need it
    used = needed.copy()
    for names, made in zip(reversed(table.needs), reversed(table.makes), strict=True):
        if made and used.isdisjoint(made):
            return False
        used.update(names)
        used.discard("")
    needed |= used
    return True


def _clean_declarations(graph: GraphProto, needed: set[str], place: str) -> list[str]:
    present = {value.name for value in graph.output}
    if graph.value_info or graph.quantization_annotation:
        present.update(defined(graph))
    counts = {
        "unused initializers": _drop_unknown(graph.initializer, needed),
        "unused sparse initializers": _drop_unknown(graph.sparse_initializer, needed),
        # declarations of what neither nodes nor tensors define any more
        "declarations of missing values": _drop_unknown(graph.value_info, present)
        + _drop_unknown(graph.quantization_annotation, present),
    }
    return [f"removed {count} {what} of {place}" for what, count in counts.items() if count]


def _drop_unknown(messages: MutableSequence[Named], known: Container[str]) -> int:
    """Delete the messages about unknown names and return their number."""
    return drop(messages, lambda message: _name_of(message) not in known)


def _name_of(message: Named) -> str:
    match message:
        case SparseTensorProto():
            return message.values.name
        case TensorAnnotation():
            return message.tensor_name
    return message.name
