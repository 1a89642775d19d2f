"""Put a node between an input or output of the graph and the nodes inside: outside it has another type."""

from onnx import GraphProto, NodeProto, TypeProto, ValueInfoProto

from onnxsurgeon_lite.errors import EditError, UnknownNameError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.model.messages import copied
from onnxsurgeon_lite.surgery.edits import fresh, rename_uses, rename_values, value_names


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
    if name in index.inputs and (name in index.outputs or name in index.initializers):
        what = "an output too" if name in index.outputs else "an input with a default"
        raise EditError(
            f"{name!r} is {what}: it cannot get another type",
            f"separate them first: onnxdbg edit insert MODEL {name} Identity",
        )
    return declared


def convert(result: Model, name: str, outside: TypeProto, node: NodeProto) -> str:
    """Give an input or output of a graph another type, in place; `node` converts it.

    Args:
        node: without inputs and outputs; it gets the border's value, or makes it.

    Returns:
        The name of the value inside, which keeps the type.
    """
    index = GraphIndex.of(result)
    graph = result.proto.graph
    declared = border(index, name)
    inside = fresh(f"{name}_{node.op_type.lower()}", value_names(index))
    graph.value_info.add(name=inside, type=copied(declared.type))
    if name in index.inputs:
        rename_uses(graph.node, {name: inside})
        node.input[:], node.output[:] = [name], [inside]
        graph.node.insert(0, node)
        _declaration(graph, name).type.CopyFrom(outside)
    else:
        rename_values(result.proto, graph, {name: inside})
        _declaration(graph, inside).name = name
        node.input[:], node.output[:] = [inside], [name]
        graph.node.append(node)
        _declaration(graph, name).type.CopyFrom(outside)
    return inside


def _declaration(graph: GraphProto, name: str) -> ValueInfoProto:
    infos: list[ValueInfoProto] = [*graph.output, *graph.input]
    return next(info for info in infos if info.name == name)
