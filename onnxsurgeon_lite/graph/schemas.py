"""Check a node against ONNX's own schemas: operator, inputs, attributes and the types of its outputs."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import SupportsInt, cast

from onnx import (
    AttributeProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    defs,
    helper,
)

from onnxsurgeon_lite.errors import EditError, UnknownNameError
from onnxsurgeon_lite.graph import native
from onnxsurgeon_lite.graph.dangling import dangling
from onnxsurgeon_lite.graph.index import (
    GraphIndex,
    described,
    function_path,
    opset_versions,
)
from onnxsurgeon_lite.graph.native import RejectedError
from onnxsurgeon_lite.graph.operators import RUNTIME_DOMAIN, find_schema
from onnxsurgeon_lite.graph.settling import TRIED, UNSETTLED
from onnxsurgeon_lite.graph.table import NodeTable
from onnxsurgeon_lite.model import (
    Model,
    by_name,
    call_key,
    function_key,
    integer,
    is_external,
    is_standard,
    plain_domain,
    walk,
)
from onnxsurgeon_lite.tensors import dtypes

Schema = defs.OpSchema

COMMUTATIVE = frozenset((
    "Add", "Mul", "And", "Or", "Xor", "Equal", "Max", "Min", "Sum", "Mean", "BitwiseAnd", "BitwiseOr", "BitwiseXor",
))  # fmt: skip
MOVING = frozenset((
    "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Reshape", "Slice",
    "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
))  # fmt: skip
"""Operators that move the elements of their first input, and change none."""
RANDOM = frozenset({
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli",
})  # fmt: skip
"""Operators that draw random numbers."""

TRAINING_IS_ATTRIBUTE = 14
"""From this opset on an attribute says whether a BatchNormalization trains, before it the number of outputs."""


def schema_of(index: GraphIndex, node: NodeProto) -> Schema | None:
    """Return the schema of a node's operator in the model's opset; None for unknown functions and domains.

    Raises:
        UnknownNameError: ONNX's own domain has no such operator at that version.
        EditError: the model imports no opset of the operator's domain.
    """
    proto = index.model.proto
    key = call_key(node)
    # a function of the model: it has no schema
    if any(function_key(function) == key for function in proto.functions):
        return None
    domain = plain_domain(node.domain)
    version = opset_versions(proto.opset_import).get(domain)
    if version is None:
        raise EditError(
            f"the model imports no opset of domain {node.domain!r}",
            "import what the nodes need: onnxdbg edit fix MODEL",
        )
    schema = find_schema(node.op_type, version, domain)
    if schema is not None:
        return schema
    known = {s.name for s in defs.get_all_schemas() if s.domain == domain}
    if not known or domain == RUNTIME_DOMAIN:  # another onnxruntime may have it
        return None
    place = f"opset {version} of {domain or 'ai.onnx'}"
    unknown = UnknownNameError(node.op_type, place, sorted(known), kind="operator")
    since = [  # versions that have the operator: older or newer than the model's
        schema.since_version
        for schema in defs.get_all_schemas_with_history()
        if (schema.name, schema.domain) == (node.op_type, domain)
    ]
    if since:
        step = f"convert the model first: onnxdbg edit opset MODEL {min(since)}"
        if version < 1:  # the converter knows no way from it
            step = f"no opset is {version}: export the model again"
        unknown.hint = f"{node.op_type}: opset {min(since)}; {step}"
    raise unknown


@cache
def first_version(operator: str) -> int:
    """Return the first opset version that has an operator of ONNX's own domain; 0 if none has it."""
    history = defs.get_all_schemas_with_history()
    return min((s.since_version for s in history if s.name == operator and not s.domain), default=0)


def fitting_version(nodes: Iterable[NodeProto], domain: str, ir_version: int) -> int | None:
    """Return the version of a domain in which all nodes are valid: the latest of the IR version's time, or the next.

    An unknown domain has version 1; None if no version fits.
    """
    known = [schema for schema in defs.get_all_schemas_with_history() if schema.domain == domain]
    if not known:
        return 1
    newest = int(max(schema.since_version for schema in known))
    # rows of this table: release, IR version, version of each domain
    rows = [row for row in helper.VERSION_TABLE if row[1] <= ir_version]
    usual = newest if domain else max((int(row[2]) for row in rows), default=newest)
    # each kind of node is asked once
    kinds = {(n.op_type, len(n.input), tuple(sorted(a.name for a in n.attribute))) for n in nodes}
    # the usual version first, then older ones, then newer ones
    versions = (*range(usual, 0, -1), *range(usual + 1, newest + 1))
    return next((v for v in versions if all(_takes(domain, v, *kind) for kind in kinds)), None)


def _takes(
    domain: str, version: int, op_type: str, inputs: int, attributes: tuple[str, ...]
) -> bool:
    """Return whether a version of a domain has the operator with so many inputs and these attributes."""
    schema = find_schema(op_type, version, domain)
    if schema is None:
        return False
    required = {name for name, attribute in schema.attributes.items() if attribute.required}
    fits = schema.min_input <= inputs <= schema.max_input and not schema.deprecated
    return fits and required <= set(attributes) <= schema.attributes.keys()


CONSTANTS = {
    "value_float": (TensorProto.FLOAT, "f", "float_data"),
    "value_floats": (TensorProto.FLOAT, "floats", "float_data"),
    "value_int": (TensorProto.INT64, "i", "int64_data"),
    "value_ints": (TensorProto.INT64, "ints", "int64_data"),
    "value_string": (TensorProto.STRING, "s", "string_data"),
    "value_strings": (TensorProto.STRING, "strings", "string_data"),
}
"""Attribute of a Constant -> the dtype of its tensor, and the fields of both that hold the numbers."""


def check_node(index: GraphIndex, node: NodeProto, what: str) -> dict[str, TypeProto]:
    """Check a node, which can be new to the graph, and return the known types of its outputs.

    The outputs of a node whose types do not fit go to `UNSETTLED`, where that is a set.

    Raises:
        UnknownNameError, EditError: its operator, inputs, attributes or types do not fit; `what` names the node.
    """
    schema = schema_of(index, node)
    if schema is None:
        return {}
    _check_counts(schema, node, what)
    _check_attributes(schema, node, what)
    if TRIED.get() is not None:
        return {}
    index.learn_types(name for name in node.input if name and name in index)
    types = {name: index.types[name] for name in node.input if name in index.types}
    try:
        _check_types(schema, node, types, what)
        # without all types, and in bodies, nothing more can be said
        if any(name and name not in types for name in node.input) or walk.bodies(node):
            return {}
        return _inferred(index, schema, node, types, what)
    except EditError:
        unsettled = UNSETTLED.get()  # within a pipeline: the next step may repair it
        if unsettled is None:
            raise
        unsettled.update(filter(None, node.output))
        return {}


def _check_counts(schema: Schema, node: NodeProto, what: str) -> None:
    for kind, count, low, high in (
        ("inputs", len(node.input), schema.min_input, schema.max_input),
        ("outputs", len(node.output), schema.min_output, schema.max_output),
    ):
        if not low <= count <= high:
            most = "or more" if high > 99 else f"to {high}"  # 2147483647 in the schema: no limit
            expected = str(low) if low == high else f"{low} {most}"
            raise EditError(
                f"{what}: {schema.name} takes {expected} {kind}, the node has {count}",
                "choose an operator with the same inputs and outputs",
            )


def _check_attributes(schema: Schema, node: NodeProto, what: str) -> None:
    unknown = [a.name for a in node.attribute if a.name not in schema.attributes]
    if unknown:
        raise EditError(
            f"{what}: {schema.name} has no attribute {', '.join(map(repr, unknown))}",
            f"it has {', '.join(map(repr, sorted(schema.attributes)))}"
            if schema.attributes
            else "it has none: remove them first, with edit set-attr --remove",
        )
    _check_known_attributes(schema, node, what)


def _check_known_attributes(schema: Schema, node: NodeProto, what: str) -> None:
    types, required = _attributes_of(schema.name, schema.since_version, schema.domain)
    given = by_name(node.attribute)
    missing = [name for name in required if name not in given]
    if missing:
        raise EditError(
            f"{what}: {schema.name} needs attribute {', '.join(map(repr, missing))}",
            f"add it: {missing[0]}=VALUE",
        )
    for name in given.keys() & types.keys():
        attribute, expected = given[name], types[name]
        # a reference is filled in by a call, and old files have no types
        if attribute.type not in (expected, 0) and not attribute.ref_attr_name:
            kind, has = type_text(expected), type_text(attribute.type)
            raise EditError(
                f"{what}: attribute {name!r} of {schema.name} has type {kind}, not {has}",
                f"give it as {kind}",
            )


@cache
def _attributes_of(operator: str, version: int, domain: str) -> tuple[dict[str, int], list[str]]:
    """Return the types of an operator's attributes, and which it requires: ONNX answers slowly."""
    schema = defs.get_schema(operator, version, domain)
    types = {name: attribute_type(schema, name) for name in schema.attributes}
    return types, [name for name, attribute in schema.attributes.items() if attribute.required]


def checked(model: Model) -> GraphIndex:
    """Return a model's index; raise as `require_schemas`."""
    index = GraphIndex.of(model)
    require_schemas(index)
    return index


def require_schemas(index: GraphIndex) -> None:
    """Raise `EditError` unless each node has the inputs, outputs and attributes that its operator takes.

    Nodes of bodies and functions count, too; operators that neither ONNX nor onnxruntime defines do
    not. What gives operators a meaning can rely on it; and on every value having a producer.
    """
    proto = index.model.proto
    # the table, which has no functions, is fast; the search says where the reader is
    lost = next(dangling(proto), None) if proto.functions or has_dangling(index) else None
    if lost is not None:
        raise EditError(
            str(lost), "see all: onnxdbg check MODEL; repair what can be: onnxdbg edit fix MODEL"
        )
    versions = {function_path(f): opset_versions(f.opset_import) for f in proto.functions}
    own = opset_versions(proto.opset_import)
    called = {function_key(function) for function in proto.functions}
    for body in index.every_body:
        # a function imports versions of its own
        imported = versions.get(body.path.partition("/@")[0], own)
        nodes = list(body.nodes)
        table = NodeTable(nodes) if body.path else index.table
        for position, node, schema in _unlike(table, nodes, imported):
            # a call has no schema
            if call_key(node) not in called:
                what = described(node, body.node_id(position))
                try:
                    _check_counts(schema, node, what)
                    _check_known_attributes(schema, node, what)
                    if not _bodies_fit(node):
                        raise EditError(
                            f"{what}: a body takes or makes another number of values than the node"
                        )
                except EditError as error:
                    error.hint = "see what else is wrong: onnxdbg check MODEL"
                    raise


def _bodies_fit(node: NodeProto) -> bool:
    """Return whether the bodies of an If, Loop or Scan take and make as many values as the node."""
    # a Loop's body returns the condition, too
    given = len(node.input)
    first = int(node.op_type == "Loop")
    # a Scan of opset 8 has an input more
    takes = {"If": (0,), "Loop": (given,), "Scan": (given, given - 1)}.get(node.op_type)
    if takes is None or not is_standard(node):
        return True
    bodies = [body for _, body in walk.bodies(node)]
    made = [len(body.output) - first for body in bodies] or [len(node.output)]
    # branches make the same number of values, at least as many as the node names
    alike = min(made) == max(made) >= len(node.output)
    return alike and all(len(body.input) in takes for body in bodies)


def has_dangling(index: GraphIndex) -> bool:
    """Return whether the main graph, bodies included, reads a value that nothing produces."""
    known = {""}.union(index.producer, index.inputs, index.initializers)
    return not known.issuperset(index.outputs) or not all(map(known.issuperset, index.needs))


def _unlike(
    table: NodeTable, nodes: Sequence[NodeProto], imported: Mapping[str, int]
) -> Iterator[tuple[int, NodeProto, Schema]]:
    """Yield (position, node, schema), the first of each known operator, number of values and attributes."""
    schemas = dict[tuple[str, str], Schema]()
    for operator, named in set(table.kinds):
        domain = plain_domain(named)
        schema = find_schema(operator, imported.get(domain, 0), domain)
        if schema is not None:
            schemas[operator, named] = schema
    # others have none that count
    with_attributes = {kind for kind, schema in schemas.items() if schema.attributes}
    known = set[Hashable]()
    every = zip(nodes, table.kinds, table.reads, table.makes, strict=True)
    for position, (node, kind, reads, makes) in enumerate(every):
        takes = kind in with_attributes and node.attribute
        held = tuple([a.SerializeToString() for a in node.attribute]) if takes else ()
        alike = kind, len(reads), len(makes), held
        if kind in schemas and alike not in known:
            known.add(alike)
            yield position, node, schemas[kind]


def schema_at(operator: str, version: int) -> Schema:
    """Return the schema of an operator of ONNX's own domain; of one that is newer, which runtimes take, its first."""
    return defs.get_schema(operator, max(version, first_version(operator)))


def attribute_type(schema: Schema, name: str) -> int:
    """Return the `AttributeProto.AttributeType` of an operator's attribute."""
    return int(cast(SupportsInt, schema.attributes[name].type))


def type_text(attribute_type: int) -> str:
    """Return the name of an `AttributeProto.AttributeType`, lower case."""
    return str(AttributeProto.AttributeType.Name(attribute_type)).lower()


def _check_types(
    schema: Schema, node: NodeProto, types: Mapping[str, TypeProto], what: str
) -> None:
    """Check that the operator takes each input's element type, and that inputs of one type variable agree."""
    bound = dict[str, str]()  # type variable -> the type that the first of its inputs has
    for slot, name in enumerate(node.input):
        # the last formal input stands for all further ones
        formal = schema.inputs[min(slot, len(schema.inputs) - 1)]
        kind = types.get(name)
        text = _type_string(kind) if kind is not None else ""
        if not text:
            continue
        if text not in allowed_types(schema, formal.type_str):
            raise EditError(
                f"{what}: input {name!r} has type {text}, which {schema.name} does not take",
                "insert a Cast before it",
            )
        # some variadic inputs may have different types
        if formal.is_homogeneous and bound.setdefault(formal.type_str, text) != text:
            raise EditError(
                f"{what}: input {name!r} has type {text}, another input of {schema.name} has {bound[formal.type_str]}",
                "insert a Cast before it",
            )


@cache
def allowed_types(schema: Schema, variable: str) -> Sequence[str]:
    """Return the types that a type variable of an operator can be; a type instead of one is itself."""
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    return allowed.get(variable, [variable])


def allows(schema: Schema, variable: str, data_type: int) -> bool:
    """Return whether a type variable of an operator can be a tensor of a dtype."""
    return f"tensor({dtypes.dtype_name(data_type)})" in allowed_types(schema, variable)


def variable_at(formals: Sequence[Schema.FormalParameter], slot: int) -> str:
    """Return the type variable of an input or output. A variadic one, which is the last, serves all that follow."""
    return formals[min(slot, len(formals) - 1)].type_str


def _type_string(kind: TypeProto) -> str:
    """Return a type as schemas write it; '' if it is unknown."""
    if kind.HasField("tensor_type") and kind.tensor_type.elem_type:
        return f"tensor({dtypes.dtype_name(kind.tensor_type.elem_type)})"
    if kind.HasField("sequence_type"):
        inner = _type_string(kind.sequence_type.elem_type)
        return f"seq({inner})" if inner else ""
    return ""


def _inferred(
    index: GraphIndex, schema: Schema, node: NodeProto, types: dict[str, TypeProto], what: str
) -> dict[str, TypeProto]:
    part = ModelProto(
        ir_version=index.model.proto.ir_version, opset_import=index.model.proto.opset_import
    )
    part.graph.node.append(node)
    for name, kind in types.items():
        part.graph.value_info.add(name=name, type=kind)
    for name in dict.fromkeys(node.input):
        tensor = constant(index, name)  # inference reads shapes and axes from constants
        if tensor is not None and not is_external(tensor):
            part.graph.initializer.append(tensor)
            part.graph.initializer[-1].name = name
    try:
        inferred = native.infer_node(part, schema.name, schema.since_version, schema.domain)
        return {info.name: info.type for info in inferred.value_info}
    except RejectedError as error:
        reason = str(error).strip().splitlines()[0].removeprefix("[ShapeInferenceError] ")
        step = None
        # the most usual cause of this
        if node.op_type == "BatchNormalization" and len(node.output) > 1:
            step = "put it into inference mode: onnxdbg edit inference MODEL"
        elif node.input:
            step = f"see them with: onnxdbg inspect MODEL --value {node.input[0]!r}"
        raise EditError(f"{what}: the types do not fit: {reason}", step) from error


def normalizes_by_batch(node: NodeProto, opset: int) -> bool:
    """Return whether a BatchNormalization takes mean and variance from the batch, as in training."""
    if opset < TRAINING_IS_ATTRIBUTE:
        return any(node.output[1:])
    return bool(integer(node, "training_mode"))


def constant(index: GraphIndex, name: str) -> TensorProto | None:
    """Return the tensor that a value always has: a constant initializer, or the output of a Constant node."""
    return None if index.is_default(name) else held(index, name)


def held(index: GraphIndex, name: str) -> TensorProto | None:
    """Return the tensor of an initializer, an input's default included, or of a Constant node."""
    initializer = index.dense(name)
    if initializer:
        return initializer
    position = index.producer.get(name)
    return None if position is None else constant_of(index.nodes[position])


def constant_of(node: NodeProto) -> TensorProto | None:
    """Return the tensor of a Constant node that holds a tensor, number or string, unless calls decide it."""
    if node.op_type != "Constant" or not is_standard(node):
        return None
    held = (_held(attribute) for attribute in node.attribute if not attribute.ref_attr_name)
    return next((tensor for tensor in held if tensor is not None), None)


def _held(attribute: AttributeProto) -> TensorProto | None:
    if attribute.name == "value" and attribute.type == AttributeProto.TENSOR:
        tensor: TensorProto = attribute.t
        return tensor
    if attribute.name not in CONSTANTS:
        return None
    data_type, field, stored = CONSTANTS[attribute.name]
    numbers = getattr(attribute, field)
    many = attribute.name.endswith("s")
    made = TensorProto(data_type=data_type, dims=[len(numbers)] if many else [])
    getattr(made, stored).extend(numbers if many else [numbers])
    return made
