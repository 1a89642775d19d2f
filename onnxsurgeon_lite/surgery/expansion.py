"""Replace nodes by the functions that their schemas define: Gelu by Erf and what is around it, and so on."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol, cast

from onnx import FunctionProto, NodeProto, TypeProto, defs, parser

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph import (
    GraphIndex,
    captured,
    dims_of,
    graph_at,
    graphs_below,
    onnx_opset,
    schema_at,
)
from onnxsurgeon_lite.model import (
    FunctionKey,
    Model,
    assign,
    attributes_of,
    by_name,
    copied,
    function_key,
    integer,
    is_standard,
)
from onnxsurgeon_lite.surgery.conversion import ALONG_AXIS
from onnxsurgeon_lite.surgery.inlining import inline

_DOMAIN = "onnxsurgeon_lite.expanded"  # of functions that exist only until they are inlined
_LAST = (1 << 63) - 1  # as the end of a slice: all that is left


class Schema(Protocol):
    """What `OpSchema` has and its types do not say."""

    has_function: bool
    has_context_dependent_function: bool
    function_opset_versions: Sequence[int]
    context_dependent_function_opset_versions: Sequence[int]

    def get_function_with_opset_version(self, version: int, /) -> bytes: ...
    def get_context_dependent_function_with_opset_version(
        self, version: int, node: bytes, types: Sequence[bytes], /
    ) -> bytes: ...


def is_expandable(op_type: str) -> bool:
    """Return whether an operator of ONNX's own domain is a function of others."""
    if not defs.has(op_type):
        return False
    schema = cast("Schema", defs.get_schema(op_type))
    return schema.has_function or schema.has_context_dependent_function


def expand(
    model: Model,
    wanted: Callable[[str], bool],
    function_of: "Callable[[GraphIndex, NodeProto, int], FunctionProto | None] | None" = None,
) -> tuple[Model, Counter[str]]:
    """Replace the wanted operators that have a function, in the graph and its bodies.

    Args:
        function_of: returns that of a node; by default what ONNX's own schemas define.

    Returns:
        The model, and how many nodes of each operator were replaced.

    Raises:
        EditError: a function depends on a type that is unknown.
    """
    index = GraphIndex.of(model)
    version = onnx_opset(model.proto)
    result = model.copy()
    keys = list[FunctionKey]()
    count: Counter[str] = Counter()
    for path, part in graphs_below(index):
        target = graph_at(result.proto, path)
        for position, node in enumerate(part.nodes):
            if not wanted(node.op_type):
                continue
            function = (function_of or _function)(part, node, version)
            if function is None:
                continue
            # Each node gets a function of its own: its nodes depend on the node's types and attributes.
            function.domain, function.name = _DOMAIN, f"{node.op_type}_{len(keys)}"
            _call(target.node[position], function, version)
            result.proto.functions.append(function)
            keys.append(function_key(function))
            count[node.op_type] += 1
    return (inline(result, keys) if keys else model), count


def _call(node: NodeProto, function: FunctionProto, version: int) -> None:
    """Make a node call its function: with the defaults of its attributes, its name and metadata inside."""
    # Attributes that the node does not set have their defaults, which the function's nodes refer to.
    if is_standard(node) and defs.has(node.op_type):
        add_defaults(node, version)
    # Outputs that the node omits go, and the nodes that only they need.
    pairs = zip(function.output, node.output, strict=False)
    results = {name: value for name, value in pairs if value}
    function.output[:], node.output[:] = list(results), list(results.values())
    assign(function.node, needed(function.node, results))
    # What is left of the node: name, documentation, metadata. The nodes that make its outputs get all of it.
    rest = copied(node)
    for field in ("op_type", "domain", "input", "output", "attribute"):
        rest.ClearField(field)
    for inner in function.node:
        if results.keys().isdisjoint(inner.output):
            inner.metadata_props.extend(node.metadata_props)
        else:
            inner.MergeFrom(rest)
    node.op_type, node.domain = function.name, function.domain
    node.ClearField("name")  # so that the inner node can have it


def add_defaults(node: NodeProto, version: int) -> None:
    """Give a node, in place, the attributes that its operator has by default."""
    given = by_name(node.attribute)
    attributes = schema_at(node.op_type, version).attributes.items()
    defaults = (a.default_value for name, a in attributes if name not in given)
    node.attribute.extend(default for default in defaults if default.name)


def _function(index: GraphIndex, node: NodeProto, version: int) -> FunctionProto | None:
    """Return the function that a node's schema defines for its types; None if it defines none."""
    if not is_standard(node):
        return None
    if node.op_type == "Shape":
        return _part_of_shape(node, version)
    if node.op_type == "Split":
        return _split_of_sizes(index, node, version)
    # on the last axis all opsets agree: such a node can stay
    if node.op_type in ALONG_AXIS and _is_last(index, node):
        return None
    return definition(node, version, partial(_types, index, node), later=True)


def definition(
    node: NodeProto,
    version: int,
    types: Callable[[], Sequence[TypeProto | None]],
    later: bool = False,
) -> FunctionProto | None:
    """Return the function by which ONNX defines a node's operator, of the latest opset up to a version.

    Args:
        types: returns those of the inputs, on which some functions depend.
        later: without such an opset, take the next later one.
    """

    def latest(versions: Sequence[int]) -> int:
        known = [v for v in versions if v <= version]
        return max(known, default=min(versions, default=0) if later else 0)

    schema, body = cast("Schema", schema_at(node.op_type, version)), b""
    # A function that is the same for all types; else one that depends on the types of the inputs.
    if opset := latest(schema.function_opset_versions):
        body = schema.get_function_with_opset_version(opset)
    elif opset := latest(schema.context_dependent_function_opset_versions):
        encoded = [b"" if kind is None else kind.SerializeToString() for kind in types()]
        body = schema.get_context_dependent_function_with_opset_version(
            opset, node.SerializeToString(), encoded
        )
    function: FunctionProto | None = FunctionProto.FromString(body) if body else None
    return function


def _is_last(index: GraphIndex, node: NodeProto) -> bool:
    """Return whether the axis of a Softmax is the last one, on which all opsets agree."""
    axis = integer(node, "axis", -1)
    return axis in (-1, len(dims_of(index.type_of(node.input[0]))) - 1)


def _types(index: GraphIndex, node: NodeProto) -> list[TypeProto | None]:
    kinds = [index.type_of(name) if name else None for name in node.input]
    for name, kind in zip(node.input, kinds, strict=True):
        if name and kind is None:
            raise EditError(
                f"{node.op_type} {node.name!r} is a function of the type of {name!r}, which is unknown",
                "declare it: onnxdbg edit set-shape MODEL, or export with types",
            )
    return kinds


def _part_of_shape(node: NodeProto, version: int) -> FunctionProto | None:
    """Return a Slice of the whole shape, as before opset 15; None if the node asks for no part."""
    given = attributes_of(node)
    if not given:
        return None
    start, end = given.get("start", 0), given.get("end", _LAST)
    return parser.parse_function(f"""<domain: "{_DOMAIN}", opset_import: ["" : {version}]>
        Shape (data) => (shape) {{
            whole = Shape (data)
            start = Constant <value = int64[1] {{{start}}}> ()
            end = Constant <value = int64[1] {{{end}}}> ()
            shape = Slice (whole, start, end)
        }}""")


def _split_of_sizes(index: GraphIndex, node: NodeProto, version: int) -> FunctionProto | None:
    """Return a Split without `num_outputs`, as before opset 18; None if the node has none.

    Where the size is not known, the parts are equal: a runtime refuses what cannot be split so.
    """
    given = attributes_of(node)
    if "num_outputs" not in given:
        return None
    count = len(node.output)
    axis = given.get("axis", 0)
    shape = index.type_of(node.input[0])
    dims = list(dims_of(shape))
    size = dims[axis].dim_value if -len(dims) <= axis < len(dims) else 0
    parts = ", ".join(f"part{n}" for n in range(count))
    most = -(-size // given["num_outputs"])  # rounded up: all parts but the last have this size
    sizes = ([most] * (count - 1)) + [size - most * (count - 1)]
    known = f"sizes = Constant <value = int64[{count}] {{{', '.join(map(str, sizes))}}}> ()"
    return parser.parse_function(f"""<domain: "{_DOMAIN}", opset_import: ["" : {version}]>
        Split (data) => ({parts}) {{
            {known if size and min(sizes) >= 0 else ""}
            {parts} = Split <axis: int = {axis}> (data{", sizes" if size and min(sizes) >= 0 else ""})
        }}""")


def needed(nodes: Sequence[NodeProto], outputs: Iterable[str]) -> list[NodeProto]:
    """Return the nodes that outputs depend on, in order."""
    # From the last node to the first: a node is needed if it makes something that is.
    wanted = set(outputs)
    kept = []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.output):
            kept.append(node)
            wanted.update(node.input, captured(node))
    return kept[::-1]
