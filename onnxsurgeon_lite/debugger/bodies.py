"""A body as a model of its own: what it captures, or a function is called with, are its inputs."""

from collections.abc import Iterable, Mapping, Sequence

from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
)

from onnxsurgeon_lite import walk
from onnxsurgeon_lite.graph import GraphIndex, call_key, captured_by, function_key

Constant = TensorProto | SparseTensorProto


def function_of(index: GraphIndex, node: NodeProto) -> FunctionProto | None:
    """The model-local function that a node calls."""
    key = call_key(node)
    return next((f for f in index.model.proto.functions if function_key(f) == key), None)


def graph_body(index: GraphIndex, graph: GraphProto) -> tuple[GraphIndex, list[str]]:
    """(a subgraph as a model, the values that it captures); captured constants are its own."""
    source = index.model.proto
    proto = ModelProto(ir_version=source.ir_version, opset_import=source.opset_import)
    proto.functions.extend(source.functions)
    proto.graph.CopyFrom(graph)
    captured = list(dict.fromkeys(captured_by(graph)))
    values = [name for name in captured if name not in index.initializers]
    for name in captured:
        if name in index.initializers:
            _add_constant(proto.graph, index.initializers[name], name)
    for name in values:
        proto.graph.input.add(name=name)
    return GraphIndex.of(index.model.with_proto(proto)), values


def function_body(
    index: GraphIndex, function: FunctionProto, call: NodeProto
) -> tuple[GraphIndex, dict[str, str]]:
    """(a function as a model, its input -> the caller's value); constants it is called with are its own."""
    source = index.model.proto
    proto = ModelProto(ir_version=source.ir_version, opset_import=function.opset_import)
    domains = {opset.domain for opset in function.opset_import}
    proto.opset_import.extend(o for o in source.opset_import if o.domain not in domains)
    proto.functions.extend(source.functions)
    proto.graph.name = function.name
    proto.graph.node.extend(function.node)
    proto.graph.value_info.extend(function.value_info)
    given = dict(zip(function.input, call.input, strict=False))
    omitted = {name for name in function.input if not given.get(name)}
    attributes = {a.name: a for a in (*function.attribute_proto, *call.attribute)}
    _fill_in(proto.graph.node, omitted, attributes)
    values = {}
    for name in function.input:
        if name in omitted:
            continue
        if given[name] in index.initializers:
            _add_constant(proto.graph, index.initializers[given[name]], name)
        else:
            proto.graph.input.add(name=name)
            values[name] = given[name]
    for name in function.output:
        proto.graph.output.add(name=name)
    return GraphIndex.of(index.model.with_proto(proto)), values


def _add_constant(graph: GraphProto, constant: Constant, name: str) -> None:
    if isinstance(constant, TensorProto):
        graph.initializer.append(constant)
        graph.initializer[-1].name = name
    else:
        graph.sparse_initializer.append(constant)
        graph.sparse_initializer[-1].values.name = name


def _fill_in(
    nodes: Iterable[NodeProto], omitted: set[str], attributes: Mapping[str, AttributeProto]
) -> None:
    """Give a function's nodes the attributes of its call, and no input where it was given none; in bodies too."""
    pending = list(nodes)
    while pending:
        node = pending.pop()
        for slot, name in enumerate(node.input):
            if name in omitted:
                node.input[slot] = ""
        kept = [_resolved(attribute, attributes) for attribute in node.attribute]
        del node.attribute[:]
        node.attribute.extend(attribute for attribute in kept if attribute is not None)
        for _, graph in walk.bodies(node):
            pending += graph.node


def _resolved(
    attribute: AttributeProto, given: Mapping[str, AttributeProto]
) -> AttributeProto | None:
    if not attribute.ref_attr_name:
        return attribute
    value = given.get(attribute.ref_attr_name)
    if value is None:
        return None
    result = AttributeProto()
    result.CopyFrom(value)
    result.name = attribute.name
    return result


def ints(node: NodeProto, name: str, count: int) -> Sequence[int]:
    """A list attribute with a number for each of `count` things, 0 by default."""
    found = next((list(a.ints) for a in node.attribute if a.name == name), [])
    return found or [0] * count
