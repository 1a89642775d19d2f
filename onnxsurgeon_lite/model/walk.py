"""Visit every tensor, graph and function body of a model, in one order, without recursion."""

from collections.abc import Iterable, Iterator
from itertools import chain

from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
)

from onnxsurgeon_lite.errors import GraphError

GRAPH_TYPES = b"\xa0\x01\x05", b"\xa0\x01\x0a"
"""The type of an attribute that holds graphs, serialized."""
_MANY = 256  # nodes


def tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Yield every tensor: initializers, attributes, sparse parts; in bodies, functions and training graphs too."""
    yield from _of_functions(model)
    for graph in graphs(model):
        yield from graph.initializer
        yield from _of_sparse(graph.sparse_initializer)
        yield from _of_nodes(graph.node)


def initializers(model: ModelProto) -> Iterator[TensorProto]:
    """Yield the dense initializers of every graph."""
    for graph in graphs(model):
        yield from graph.initializer


def attribute_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Yield the tensors that are not initializers: those in attributes, and the parts of sparse tensors."""
    for graph in graphs(model):
        yield from _of_sparse(graph.sparse_initializer)
        yield from _of_nodes(graph.node)
    yield from _of_functions(model)


def _of_functions(model: ModelProto) -> Iterator[TensorProto]:
    for function in model.functions:
        yield from _of_attributes(function.attribute_proto)
        yield from _of_nodes(function.node)


def graphs(model: ModelProto) -> Iterator[GraphProto]:
    """Yield the main graph, the training graphs, and every graph nested in them or in a function."""
    # those that are not nested in a node of a graph
    pending = list(chain([model.graph], training(model), inner(nodes(model.functions))))
    while pending:
        graph = pending.pop()
        yield graph
        pending += inner(with_bodies(graph))


def holders(model: ModelProto) -> Iterator[GraphProto | FunctionProto]:
    """Yield every graph, nested ones too, then the functions."""
    return chain(graphs(model), model.functions)


def nodes(several: Iterable[GraphProto | FunctionProto]) -> Iterator[NodeProto]:
    """Yield the nodes of graphs and functions, in order, without those in their bodies."""
    for holder in several:
        yield from holder.node


def outputs(nodes: Iterable[NodeProto]) -> Iterator[str]:
    """Yield the names of the values that nodes make, in order; an omitted output has none."""
    for node in nodes:
        yield from filter(None, node.output[:])


def inputs(nodes: Iterable[NodeProto]) -> Iterator[str]:
    """Yield the names of the values that nodes read, in order, without what their bodies capture."""
    for node in nodes:
        yield from filter(None, node.input[:])


def names(nodes: Iterable[NodeProto]) -> Iterator[str]:
    """Yield the names of the values that nodes read and make; '' for an omitted one."""
    for node in nodes:
        yield from node.input
        yield from node.output


def annotating(graph: GraphProto) -> set[str]:
    """Return the scales and zero points that annotations of quantized values name."""
    annotations = (a.quant_parameter_tensor_names for a in graph.quantization_annotation)
    return {entry.value for entry in chain.from_iterable(annotations)}


def with_bodies(graph: GraphProto) -> list[NodeProto]:
    """Return the nodes of a graph that hold graphs."""
    # a large graph: the type of such attributes is looked for in the bytes
    if len(graph.node) > _MANY:
        encoded = graph.SerializeToString()
        if not any(kind in encoded for kind in GRAPH_TYPES):
            return []
    return [node for node in graph.node if node.attribute and bodies(node)]


def training(model: ModelProto) -> Iterator[GraphProto]:
    """Yield the graphs of trainings."""
    for info in model.training_info:
        for part in ("initialization", "algorithm"):
            if info.HasField(part):
                yield getattr(info, part)


def sources(graph: GraphProto) -> Iterator[str]:
    """Yield the names that a graph defines without a node: inputs, initializers."""
    yield from (value.name for value in graph.input)
    yield from (tensor.name for tensor in graph.initializer)
    yield from (sparse.values.name for sparse in graph.sparse_initializer)


def output_names(graph: GraphProto | FunctionProto) -> list[str]:
    """Return the names of the outputs of a graph or a function."""
    if isinstance(graph, FunctionProto):
        return list(graph.output)
    return [value.name for value in graph.output]


def bodies(node: NodeProto) -> list[tuple[str, GraphProto]]:
    """Return (attribute name, subgraph) for each subgraph of the node.

    Raises:
        GraphError: a name has a slash, which separates the names in the path of a body.
    """
    found = []
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            found.append((attribute.name, attribute.g))
        elif attribute.type == AttributeProto.GRAPHS:
            found.extend((f"{attribute.name}.{i}", g) for i, g in enumerate(attribute.graphs))
    for name, _ in found:
        if "/" in name:
            raise GraphError(f"attribute {name!r} holds a graph, but its name is no identifier")
    return found


def inner(nodes: Iterable[NodeProto]) -> Iterator[GraphProto]:
    """Yield the subgraphs of nodes, in order, without those nested in them."""
    for node in nodes:
        for _, graph in bodies(node) if node.attribute else ():
            yield graph


def has_references(node: NodeProto) -> bool:
    """Return whether a function's node takes an attribute from the call."""
    return any(attribute.ref_attr_name for attribute in node.attribute)


def with_inner(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yield these nodes and the nodes of their subgraphs, at any depth."""
    pending = list(nodes)
    while pending:
        node = pending.pop()
        yield node
        for _, graph in bodies(node) if node.attribute else ():
            pending += graph.node


def _of_nodes(nodes: Iterable[NodeProto]) -> Iterator[TensorProto]:
    for node in nodes:
        if node.attribute:
            yield from _of_attributes(node.attribute)


def _of_attributes(attributes: Iterable[AttributeProto]) -> Iterator[TensorProto]:
    for attribute in attributes:
        match attribute.type:
            case AttributeProto.TENSOR:
                yield attribute.t
            case AttributeProto.TENSORS:
                yield from attribute.tensors
            case AttributeProto.SPARSE_TENSOR:
                yield from _of_sparse([attribute.sparse_tensor])
            case AttributeProto.SPARSE_TENSORS:
                yield from _of_sparse(attribute.sparse_tensors)


def _of_sparse(tensors: Iterable[SparseTensorProto]) -> Iterator[TensorProto]:
    for tensor in tensors:
        yield tensor.values
        yield tensor.indices
