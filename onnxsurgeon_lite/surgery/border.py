"""Give an input or output of the graph another type: a new node converts between it and the value inside.

Outside is what users of the model see; inside, the nodes keep the type that they had.
"""

from onnx import GraphProto, NodeProto, TypeProto, ValueInfoProto

from onnxsurgeon_lite.errors import EditError, UnknownNameError
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.model import copied, drop_at
from onnxsurgeon_lite.surgery.edits import (
    Taken,
    drop_declarations,
    fresh,
    rename_uses,
    rename_values,
)


def border(index: GraphIndex, name: str) -> ValueInfoProto:
    """Return the declaration of an input or output.

    Raises:
        UnknownNameError: it is neither.
        EditError: it is both, or has a default.
    """
    declared = index.inputs.get(name, index.outputs.get(name))
    if declared is None:
        raise UnknownNameError(
            name, "the model", [*index.inputs, *index.outputs], kind="input or output"
        )
    # With a default or as both ends at once, the name would need two types.
    if name in index.inputs and (name in index.outputs or name in index.initializers):
        what = "an output too" if name in index.outputs else "an input with a default"
        raise EditError(
            f"{name!r} is {what}: it cannot get another type",
            f"separate them first: onnxdbg edit insert MODEL {name} Identity",
        )
    return declared


def converter(index: GraphIndex, name: str, op_type: str) -> tuple[int, str] | None:
    """Return the node that `convert` put between an input or output and the inside, and the value inside."""
    is_input = name in index.inputs
    # The one node at the border: the only reader of an input, or the producer of an output.
    places = index.readers([name])[name] if is_input else index.makers([name])
    if len(places) != 1 or name in index.inputs.keys() & index.outputs.keys():
        return None
    node = index.nodes[places[0]]
    ends = node.output if is_input else node.input
    inside = ends[0] if len(ends) == 1 else ""
    # a value that is an input or output itself is no inner one
    if node.op_type != op_type or inside in index.inputs.keys() | index.outputs.keys():
        return None
    # The name shows that `convert` made it: a Cast that the model brought itself is not taken away.
    return (places[0], inside) if inside.startswith(_inside(name, op_type)) else None


def take_away(index: GraphIndex, name: str, outside: TypeProto, place: int, inside: str) -> None:
    """Take the node between an input or output and the inside away, in place."""
    graph = index.graph
    readers = index.readers([inside])[inside]
    # Without the node, the outer value takes the place of the inner one.
    drop_at(graph.node, [place])
    drop_declarations(graph, {inside})
    if name in index.inputs:  # its readers read the input again
        rename_uses([index.nodes[position] for position in readers], {inside: name})
    else:  # its producer makes the output again
        rename_values(index.model.proto, graph, {inside: name})
    _declaration(graph, name).type.CopyFrom(outside)


def _inside(name: str, op_type: str) -> str:
    return f"{name}_{op_type.lower()}"


def convert(index: GraphIndex, name: str, outside: TypeProto, node: NodeProto) -> str:
    """Give an input or output of a graph another type, in place; `node` converts it.

    Args:
        index: of the graph as it is; no longer of use then.
        node: without inputs and outputs; it gets the border's value, or makes it.

    Returns:
        The name of the value inside, which keeps the type.
    """
    graph = index.graph
    declared = border(index, name)
    # the inside keeps the type under a new name
    inside = fresh(_inside(name, node.op_type), Taken(index))
    graph.value_info.add(name=inside, type=copied(declared.type))
    if name in index.inputs:
        # at an input the node comes first, at an output last
        readers = index.readers([name])[name]
        rename_uses([index.nodes[position] for position in readers], {name: inside})
        node.input[:], node.output[:] = [name], [inside]
        graph.node.insert(0, node)
    else:
        rename_values(index.model.proto, graph, {name: inside})
        _declaration(graph, inside).name = name
        node.input[:], node.output[:] = [inside], [name]
        graph.node.append(node)
    _declaration(graph, name).type.CopyFrom(outside)
    return inside


def _declaration(graph: GraphProto, name: str) -> ValueInfoProto:
    infos: list[ValueInfoProto] = graph.output[:] + graph.input[:]
    return next(info for info in infos if info.name == name)
