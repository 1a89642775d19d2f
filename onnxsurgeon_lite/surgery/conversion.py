"""Convert nodes to another version of the ONNX domain, with the official converter."""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, defs, helper

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph import (
    GraphIndex,
    RejectedError,
    constant,
    constant_of,
    dims_of,
    first_version,
    function_path,
    graph_at,
    graphs_below,
)
from onnxsurgeon_lite.graph.native import convert
from onnxsurgeon_lite.graph.operators import find_schema
from onnxsurgeon_lite.model import (
    Model,
    assign,
    attributes_of,
    copied,
    drop,
    drop_at,
    is_standard,
    plain_domain,
    walk,
)
from onnxsurgeon_lite.names import few
from onnxsurgeon_lite.search.grouping import groups
from onnxsurgeon_lite.surgery.edits import trimmed

_REPLACE = "replace these nodes first: onnxdbg edit rewrite, set-op or remove"
_HIDDEN = "onnxsurgeon_lite.kept"  # the domain of nodes that the converter must not see
_LISTS = 12  # the opset from which on a Constant takes numbers that are not a tensor
_NO_VERSION = re.compile(r"No Previous Version of (\w+) exists")
_NO_ADAPTER = re.compile(r"No Adapter (From|To) Version \$(\d+) for (\w+)")

ALONG_AXIS = {"Softmax": 13, "LogSoftmax": 13}
"""Operator -> the first opset in which it takes one axis, not all axes from `axis` on as one."""


class NoAdapterError(EditError):
    """The converter knows no way for an operator, to or from a version."""

    operator: str
    version: int


def redefined(domain: str, operator: str, one: int, two: int) -> bool:
    """Return whether two versions of a domain define an operator differently, as far as is known."""
    # A schema of both versions with one `since_version` is one definition.
    old, new = (find_schema(operator, v, plain_domain(domain)) for v in (one, two))
    return old is None or new is None or bool(old.since_version != new.since_version)


def means_the_same(model: Model, operator: str, one: int, two: int) -> bool:
    """Return whether the nodes of an operator, and those in their bodies, fit what another opset version defines.

    What both versions have must have the same names and defaults. An attribute that one of them has not may only have
    its default, which is what the operator did before there was the attribute.
    """
    nodes = (node for node in own_nodes(model.proto) if node.op_type == operator)
    return all(_all_fit(same, one, two) for same in _redefined(nodes, one, two).values())


def move_functions(proto: ModelProto, old: int, version: int) -> list[str]:
    """Let functions with nodes that another opset version redefines import that one, in place; return their paths.

    Raises:
        EditError: these nodes do not mean the same in it.
    """
    # paths of the functions that import another version now
    moved = []
    for function in proto.functions:
        for imported in function.opset_import:
            if plain_domain(imported.domain) or imported.version != old:
                continue
            changed = _redefined(function.node, old, version)
            others = [op for op, same in changed.items() if not _all_fit(same, old, version)]
            if others:
                raise EditError(
                    f"{function_path(function)} has nodes that opset {version} defines differently: "
                    f"{few(sorted(others))}",
                    "put them in the place of its calls first: onnxdbg edit inline",
                )
            if changed:
                imported.version = version
                moved.append(function_path(function))
    return moved


def _redefined(nodes: Iterable[NodeProto], one: int, two: int) -> dict[str, list[NodeProto]]:
    """Return the nodes, and those in their bodies, whose operators two opset versions define differently."""
    return groups(
        (node.op_type, node)
        for node in walk.with_inner(nodes)
        if is_standard(node) and redefined("", node.op_type, one, two)
    )


def _all_fit(nodes: Sequence[NodeProto], one: int, two: int) -> bool:
    try:
        schema, other = (defs.get_schema(nodes[0].op_type, version) for version in (one, two))
    except defs.SchemaError:
        return False
    if other.deprecated:  # as GroupNormalization 18 is: a later version defines it differently
        return False
    before, after = sorted((one, two))
    turned = before < ALONG_AXIS.get(nodes[0].op_type, before) <= after
    return all(_fits(n, schema, other) and not (turned and n.attribute[0].i != -1) for n in nodes)


def own_nodes(proto: ModelProto) -> Iterator[NodeProto]:
    """Return the nodes of ONNX's own operators in the main graph and its bodies."""
    return filter(is_standard, walk.nodes(walk.graphs(proto)))


def _fits(node: NodeProto, schema: defs.OpSchema, other: defs.OpSchema) -> bool:
    # The attributes with a number of their own; defaults are compared between the two schemas.
    given = {a.name for a in node.attribute if not _is_default(a, schema)}
    both = schema.attributes.keys() & other.attributes.keys() - given
    # The names of the inputs that the node has, in both versions: another name is another operand.
    names = [
        [formal.name.removeprefix("input_") for formal in s.inputs][: len(node.input)]
        for s in (schema, other)
    ]
    # The other version knows all that is given, requires nothing more, and has the same inputs and defaults.
    return (
        given <= other.attributes.keys()
        and not any(a.required for n, a in other.attributes.items() if n not in given)
        and names[0] == names[1]
        and all(
            schema.attributes[name].default_value == other.attributes[name].default_value
            for name in both
        )
    )


def _is_default(attribute: AttributeProto, schema: defs.OpSchema) -> bool:
    known = schema.attributes.get(attribute.name)
    return (
        known is not None
        and known.default_value.type == attribute.type
        and bool(_payload(known.default_value) == _payload(attribute))
    )


def without_allowzero(model: Model) -> tuple[Model, int]:
    """Remove `allowzero`, which opset 14 introduced, from Reshape nodes whose shape has no zero, as far as is known.

    Returns:
        The model, and how many of these shapes are computed: they must have no zero either.
    """
    result = model.copy()
    computed = 0
    for path, part in graphs_below(GraphIndex.of(model)):  # a Reshape of any body, too
        target = graph_at(result.proto, path)
        for position, node in enumerate(part.nodes):
            if node.op_type == "Reshape" and "allowzero" in attributes_of(node):
                shape = constant(part, node.input[1])
                made = dims_of(part.type_of(node.output[0]))  # a 0 in it is one of the shape
                known = [dim.dim_value for dim in made if dim.HasField("dim_value")]
                if all(known if shape is None else model.array(shape).flat):
                    drop(target.node[position].attribute, lambda a: a.name == "allowzero")
                    computed += shape is None
    return result, computed


def convert_graph(
    model: Model, result: Model, old: int, version: int, kept: Container[str] = ()
) -> int:
    """Convert the main graph of `result`, a copy of `model`, in place; return how many nodes changed.

    Nodes that the converter does not change keep their bytes; changed nodes keep documentation and metadata.

    Args:
        kept: operators that the converter does not see: their nodes stay as they are.

    Raises:
        NoAdapterError, EditError: the converter cannot.
    """
    return _take_over(result.graph, _converted(model, old, version, kept).graph)


def _converted(model: Model, old: int, version: int, kept: Container[str]) -> ModelProto:
    part = copied(model.structure())
    del part.functions[:]  # the converter is for ONNX's own operators of the main graph
    hidden = [node for node in own_nodes(part) if node.op_type in kept]
    if hidden:
        _hide(part, hidden, GraphIndex.of(model))
    if part.graph.sparse_initializer:  # the converter does not support them
        index = GraphIndex.of(model)
        # As inputs they keep their names and types, and no data is needed.
        names = (sparse.values.name for sparse in part.graph.sparse_initializer)
        part.graph.input.extend(map(index.value_info, names))
        del part.graph.sparse_initializer[:]
    lists = _as_tensors(part)
    try:
        converted = convert(part, version)
    except RejectedError as error:
        # the first line of the converter's error says why
        reason = str(error).strip().splitlines()[0]
        if known := _NO_ADAPTER.search(reason):
            side, at, operator = known.groups()
            refused = NoAdapterError(
                f"the converter cannot take {_named(part, operator)} from opset {old} to {version}: "
                f"it knows no way at opset {at}",
                f"stay at opset {at if side == 'From' else old}, or {_REPLACE}",
            )
            refused.operator, refused.version = operator, int(at)
            raise refused from error
        if absent := _NO_VERSION.search(reason):
            first = first_version(absent[1])
            raise EditError(
                f"opset {version} has no {_named(part, absent[1])}, which is new in opset {first}",
                f"stay at opset {first}, or {_REPLACE}",
            ) from error
        # No known kind of error: name the operators that change between these versions.
        kinds = sorted(
            {n.op_type for n in own_nodes(part) if redefined("", n.op_type, old, version)}
        )
        raise EditError(
            f"the converter cannot convert the graph from opset {old} to {version}: {reason.rpartition('failed: ')[2]}",
            f"these change: {few(kinds)}; what the older version has as an attribute must be constant: "
            "onnxdbg edit fold; or convert in smaller steps",
        ) from error
    # Undo what was done for the converter: numbers instead of tensors, attributes at their defaults.
    for node in own_nodes(converted) if lists else ():
        _restore_list(node, lists, version)
    for node in own_nodes(converted) if version < old else ():
        # the converter writes them, the older version does not know them
        _drop_defaults(node, old, version)
    for node in walk.nodes(walk.graphs(converted)) if hidden else ():
        if node.domain == _HIDDEN:
            node.ClearField("domain")
            _drop_defaults(node, old, version)
    return converted


def _as_tensors(part: ModelProto) -> dict[str, AttributeProto]:
    """Give Constants of numbers, such as `value_ints`, tensors, which alone the converter knows.

    Returns:
        The attributes that they had, by the names of these tensors.
    """
    lists = dict[str, AttributeProto]()
    for node in own_nodes(part):
        # A value that the node itself says, in another attribute than a tensor: `value_ints`, `value_float`.
        tensor = constant_of(node)
        if tensor is not None and node.attribute[0].name not in ("value", "sparse_value"):
            given = copied(tensor)
            given.name = f"{_HIDDEN}.{len(lists)}"
            lists[given.name] = copied(node.attribute[0])
            node.attribute[0].CopyFrom(helper.make_attribute("value", given))
    return lists


def _restore_list(node: NodeProto, lists: Mapping[str, AttributeProto], version: int) -> None:
    # The tensor's name marks it, through the conversion.
    held = next((a for a in node.attribute if a.t.name in lists), None)
    if held is not None and version >= _LISTS:
        held.CopyFrom(lists[held.t.name])
    elif held is not None:
        held.t.ClearField("name")


def _named(part: ModelProto, operator: str) -> str:
    nodes = [node for node in own_nodes(part) if node.op_type == operator]
    return f"{operator} ({few([node.name or ''.join(node.output[:1]) for node in nodes])})"


def _drop_defaults(node: NodeProto, old: int, version: int) -> None:
    """Remove the attributes that a version has not, where they have the defaults of the old one."""
    with suppress(defs.SchemaError):
        known = defs.get_schema(node.op_type, version).attributes
        others = [number for number, a in enumerate(node.attribute) if a.name not in known]
        if others:
            schema = defs.get_schema(node.op_type, old)
            drop_at(node.attribute, [n for n in others if _is_default(node.attribute[n], schema)])


def _hide(part: ModelProto, nodes: Sequence[NodeProto], index: GraphIndex) -> None:
    """Move nodes to a domain that the converter passes over, and declare the types that it cannot infer any more."""
    declared = {value.name for value in chain(part.graph.value_info, part.graph.output)}
    names = [name for name in walk.outputs(nodes) if name in index]
    index.learn_types(names)
    part.graph.value_info.extend(
        index.value_info(name) for name in names if name in index.types and name not in declared
    )
    for node in nodes:
        node.domain = _HIDDEN
    part.opset_import.add(domain=_HIDDEN, version=1)


def _take_over(graph: GraphProto, converted: GraphProto) -> int:
    """Replace a graph's nodes by converted ones, keep equal ones, and return how many changed."""
    # Nodes that the converter left as they are keep their bytes. Changed ones get back what it drops.
    others, left = _unlike(graph.node, converted.node)
    originals = {name: node for node in left for name in node.output if name}
    changed = 0
    for node in others:
        original = next((originals[name] for name in node.output if name in originals), None)
        changed += original is None or _restore(node, original)
    known = {tensor.name for tensor in graph.initializer}
    if others or left:  # otherwise the graph stays as it is, byte for byte
        assign(graph.node, converted.node)
    # some adapters turn attributes into initializers
    graph.initializer.extend(t for t in converted.initializer if t.name not in known)
    return changed


def _unlike(
    nodes: Iterable[NodeProto], converted: Iterable[NodeProto]
) -> tuple[list[NodeProto], list[NodeProto]]:
    """Return the converted nodes without an equal original, and the originals without an equal converted node."""
    # Both lists are in the same order, so that one walk along both is enough.
    others, left = [], []
    rest = iter(nodes)
    original = next(rest, None)
    for node in converted:
        if node == original:
            original = next(rest, None)
            continue
        others.append(node)
        # `node` replaces `original`, which is passed too
        if original is not None and not set(original.output).isdisjoint(node.output):
            left.append(original)
            original = next(rest, None)
    left += [] if original is None else [original, *rest]
    return others, left


def _restore(node: NodeProto, original: NodeProto) -> bool:
    """Restore fields that the converter drops; return whether the node differs from the original."""
    if node == original:
        return False
    # Bodies are compared one by one, with the same care: equal nodes in them keep their bytes.
    bodies = dict(walk.bodies(original))
    inner = 0
    for name, body in walk.bodies(node):
        if name in bodies:
            kept = copied(bodies[name])
            inner += _take_over(kept, body)
            body.CopyFrom(kept)
    if not inner and _same(node, original):  # only the body was written anew
        node.CopyFrom(original)
        return False
    # Everything of the original stays but the operator, what it reads and makes, and its attributes.
    converted = copied(node)
    for field in ("name", "doc_string", "overload", "metadata_props"):
        converted.ClearField(field)
    node.CopyFrom(original)
    for field in ("op_type", "domain", "input", "output", "attribute"):
        node.ClearField(field)
    node.MergeFrom(converted)
    return True


def _same(node: NodeProto, original: NodeProto) -> bool:
    """Return whether two nodes are equal in all that affects a run."""
    if node.op_type != original.op_type or node.domain != plain_domain(original.domain):
        return False
    if trimmed(node.input) != trimmed(original.input):
        return False
    one, two = ({a.name: (a.type, _payload(a)) for a in n.attribute} for n in (node, original))
    return one == two


def _payload(attribute: AttributeProto) -> object:
    if attribute.type == AttributeProto.GRAPH:
        return None  # bodies are compared node by node
    if attribute.ref_attr_name:
        return attribute.ref_attr_name  # of a function, whose calls say what it is
    return helper.get_attribute_value(attribute)
