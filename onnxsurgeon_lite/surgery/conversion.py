"""Convert nodes to another version of the ONNX domain, with the official converter."""

from collections.abc import Iterable

from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    defs,
    helper,
)

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.native import RejectedError, convert
from onnxsurgeon_lite.graph.table import plain_domain
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.model.messages import copied


def redefined(domain: str, operator: str, one: int, two: int) -> bool:
    """Return whether two versions of a domain define an operator differently, as far as is known."""
    try:
        schemas = [defs.get_schema(operator, v, plain_domain(domain)) for v in (one, two)]
    except defs.SchemaError:
        return True
    return bool(schemas[0].since_version != schemas[1].since_version)


def convert_graph(model: Model, result: Model, old: int, version: int) -> int:
    """Convert the main graph of `result`, a copy of `model`, in place; return how many nodes changed.

    Nodes that the converter does not change keep their bytes; changed nodes keep documentation and metadata.

    Raises:
        EditError: the converter cannot.
    """
    return _take_over(result.proto.graph, _converted(model, old, version).graph)


def _converted(model: Model, old: int, version: int) -> ModelProto:
    part = copied(model.structure())
    del part.functions[:]
    if part.graph.sparse_initializer:  # the converter does not support them
        index = GraphIndex.of(model)
        names = (sparse.values.name for sparse in part.graph.sparse_initializer)
        part.graph.input.extend(map(index.value_info, names))
        del part.graph.sparse_initializer[:]
    try:
        return convert(part, version)
    except RejectedError as error:
        reason = str(error).strip().splitlines()[0]
        raise EditError(
            f"the converter cannot convert the graph from opset {old} to {version}: {reason}",
            "convert in smaller steps to find the failing version: onnxdbg edit opset MODEL VERSION",
        ) from error


def _take_over(graph: GraphProto, converted: GraphProto) -> int:
    """Replace a graph's nodes by converted ones, keep equal ones, and return how many changed."""
    others, left = _unlike(graph.node, converted.node)
    originals = {name: node for node in left for name in node.output if name}
    changed = 0
    for node in others:
        original = next((originals[name] for name in node.output if name in originals), None)
        changed += original is None or _restore(node, original)
    known = {tensor.name for tensor in graph.initializer}
    if others or left:
        del graph.node[:]
        graph.node.extend(converted.node)
    graph.initializer.extend(t for t in converted.initializer if t.name not in known)
    return changed


def _unlike(
    nodes: Iterable[NodeProto], converted: Iterable[NodeProto]
) -> tuple[list[NodeProto], list[NodeProto]]:
    """Return the converted nodes without an equal original, and the originals without an equal converted node."""
    others, left = [], []
    rest = iter(nodes)
    original = next(rest, None)
    for node in converted:
        if node == original:
            original = next(rest, None)
            continue
        others.append(node)
        if original is not None and not set(original.output).isdisjoint(node.output):
            left.append(original)
            original = next(rest, None)
    left += [] if original is None else [original, *rest]
    return others, left


def _restore(node: NodeProto, original: NodeProto) -> bool:
    """Restore fields that the converter drops; return whether the node differs from the original."""
    if node == original:
        return False
    bodies = {a.name: a for a in original.attribute if a.type == AttributeProto.GRAPH}
    inner = 0
    for attribute in node.attribute:
        body = bodies.get(attribute.name)
        if body is not None:
            kept = copied(body.g)
            inner += _take_over(kept, attribute.g)
            attribute.g.CopyFrom(kept)
    if not inner and _same(node, original):
        node.CopyFrom(original)
        return False
    for field in ("name", "doc_string", "overload"):
        if original.HasField(field):
            setattr(node, field, getattr(original, field))
    del node.metadata_props[:]
    node.metadata_props.extend(original.metadata_props)
    return True


def _same(node: NodeProto, original: NodeProto) -> bool:
    """Return whether two nodes are equal in all that affects a run."""
    if node.op_type != original.op_type or node.domain != plain_domain(original.domain):
        return False
    if _trimmed(node.input) != _trimmed(original.input):
        return False
    one, two = ({a.name: a for a in n.attribute} for n in (node, original))
    return one.keys() == two.keys() and all(
        one[name].type == two[name].type and _payload(one[name]) == _payload(two[name])
        for name in one
    )


def _trimmed(names: "list[str]") -> list[str]:
    """Return names without trailing omitted ones."""
    kept = list(names)
    while kept and not kept[-1]:
        kept.pop()
    return kept


def _payload(attribute: AttributeProto) -> object:
    if attribute.type == AttributeProto.GRAPH:
        return None  # bodies are compared node by node
    return helper.get_attribute_value(attribute)
