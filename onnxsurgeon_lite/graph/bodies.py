"""View the body of a node as a graph, and name the values in it.

`@12/body/q` is value `q` in the body of node `@12`, `@4/function/q` a value in the function that `@4` calls, and so
on inwards. `@12/body/q[3]` is its value at iteration 3; nested loops have one number each, the outermost loop first.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    helper,
)

from onnxsurgeon_lite.errors import UnknownNameError
from onnxsurgeon_lite.graph.index import (
    FUNCTION_PATH,
    MAIN,
    GraphIndex,
    function_path,
    opset_versions,
    reached_functions,
)
from onnxsurgeon_lite.graph.table import captured_by
from onnxsurgeon_lite.model import (
    Enclosing,
    Model,
    by_name,
    call_key,
    check_functions,
    copied,
    function_key,
    plain_domain,
    walk,
)

FUNCTION = "function"
"""The body of a function call has this name, as `then_branch` is the name of a body of If."""

_INSIDE = re.compile(r"@(?P<position>\d{1,9})/(?P<body>[^/]+)/(?P<rest>.+)", re.DOTALL)
# A value that no index precedes, then all indices: `q[3][0]`.
_ITERATIONS = re.compile(r"(?P<value>.+?)(?P<at>(?<!\d\])(?:\[\d{1,9}\])+)", re.DOTALL)


@dataclass(frozen=True)
class BodyName:
    """A name split at its first body: `@12/body/@3/then_branch/q` -> 12, `body`, `@3/then_branch/q`."""

    position: int
    body: str
    rest: str

    @classmethod
    def of(cls, name: str) -> "BodyName | None":
        """Split a name; return None if it names no body."""
        found = _INSIDE.fullmatch(name)
        return cls(int(found["position"]), found["body"], found["rest"]) if found else None

    @property
    def path(self) -> str:
        """The body's own path: `@12/body`."""
        return f"@{self.position}/{self.body}"


def place_of(index: GraphIndex, name: str, called: bool = False) -> tuple[str, str]:
    """Split a name into the path of the innermost body in it, and the rest.

    `@3/body/@1/then_branch/q` -> (`@3/body/@1/then_branch`, `q`), `@4/function/q` -> (`fn:local::f`, `q`).

    Args:
        called: a function is meant as the call has it, not as it is for all calls: `@4/function` is a path then.

    Raises:
        UnknownNameError: there is no such body.
    """
    path = MAIN
    holder = index.graph
    if name in index:  # a name of the main graph may look like a path
        return path, name
    # `fn:domain::name/q`: begin in that function
    if (function := _function_around(index.model.proto, name)) is not None:
        path = function_path(function)
        holder = function
        name = name.removeprefix(f"{path}/")
    # One body further inside in each round.
    while inside := BodyName.of(name):
        node = holder.node[inside.position] if inside.position < len(holder.node) else NodeProto()
        body = dict(walk.bodies(node)).get(inside.body)
        function = function_of(index, node) if inside.body == FUNCTION else None
        held = body or function
        if held is None:
            raise unknown_body(index, inside.position, inside.body)
        if function is not None and not called:
            # all calls share the function, so its path is the function's own
            path = function_path(function)
        else:
            path = f"{path}/{inside.path}" if path else inside.path
        name = inside.rest
        holder = held
    return path, name


def enter(index: GraphIndex, name: str) -> tuple[GraphIndex, str]:
    """Return the graph of the innermost body in a name, and the rest of the name.

    Raises:
        UnknownNameError: there is no such body, or nothing calls the function.
    """
    path, rest = place_of(index, as_called(index, name), called=True)
    for position, body in _steps(path):
        inner = InnerGraph.of(index, position, body)
        # what the body calls itself, and the outer names that its own must avoid
        around = f"{index.model.enclosing.path}@{position}/{body}/"
        index = inner.index
        index.model.enclosing = Enclosing(around, inner.captured)
    return index, rest


def as_called(index: GraphIndex, name: str) -> str:
    """Return a name in a function (`fn:local::f/q`) as the first call of the function has it (`@4/function/q`)."""
    function = _function_around(index.model.proto, name)
    if function is None or name in index:
        return name
    rest = name.removeprefix(function_path(function))
    return f"{_a_call(index, function)}{rest}"


def _function_around(proto: ModelProto, name: str) -> FunctionProto | None:
    """Return the function in which a name is, by its path: `fn:domain::name/q`."""
    functions = proto.functions if name.startswith(FUNCTION_PATH) else ()
    # names of functions may have slashes: the longest path that fits
    around = (f for f in functions if name.startswith(f"{function_path(f)}/"))
    return max(around, key=lambda f: len(function_path(f)), default=None)


def _a_call(index: GraphIndex, function: FunctionProto) -> str:
    """Return the path of a function as the first node that calls it has it.

    Raises:
        UnknownNameError: no node calls it.
    """
    check_functions(index.model.proto)
    key = function_key(function)
    # the main graph, then bodies and functions
    for body in index.every_body:
        for position, node in enumerate(body.nodes):
            if call_key(node) == key:
                # the call may be in another function: name that one's first call, too
                return f"{as_called(index, body.node_id(position))}/{FUNCTION}"
    raise UnknownNameError(
        function_path(function), f"graph {index.graph.name!r}", (), kind="call of"
    )


def iterations_of(name: str) -> tuple[str, tuple[int, ...]]:
    """Split off iteration indices: `q[3][0]` -> `q`, (3, 0)."""
    found = _ITERATIONS.fullmatch(name)
    if found is None:
        return name, ()
    return found["value"], tuple(map(int, re.findall(r"\d+", found["at"])))


def at(name: str, iterations: Iterable[int]) -> str:
    """Append iteration indices; the inverse of `iterations_of`."""
    return name + "".join(f"[{number}]" for number in iterations)


def function_of(index: GraphIndex, node: NodeProto) -> FunctionProto | None:
    """Return the model-local function that a node calls."""
    key = call_key(node)
    functions = index.model.proto.functions
    return next((function for function in functions if function_key(function) == key), None)


def bodies(index: GraphIndex, position: int) -> list[str]:
    """Return the names of a node's bodies."""
    node = index.nodes[position]
    named = [name for name, _ in walk.bodies(node)] if node.attribute else []
    # a call has one body
    return named or ([FUNCTION] if function_of(index, node) is not None else [])


def unknown_body(index: GraphIndex, position: int, body: str) -> UnknownNameError:
    """Return the error for a node that lacks this body, or that does not exist."""
    # the names that come nearest are bodies of this node, else all bodies
    found = bodies(index, position) if position < len(index.nodes) else []
    known = [f"@{position}/{name}" for name in found] or list(all_bodies(index))
    place = f"graph {index.graph.name!r}"
    return UnknownNameError(f"@{position}/{body}", place, known, kind="body")


def iterations_in(index: GraphIndex, selector: str) -> tuple[str, tuple[int, ...]]:
    """Like `iterations_of`, for a value name or a selector: `q[3]`, `@1[3]`; but `op:Conv[3]` has no iterations."""
    if selector in index or selector.startswith("op:"):
        return selector, ()
    return iterations_of(selector)


@dataclass(frozen=True)
class InnerGraph:
    """A body as a model of its own: a captured value is an input, or an initializer if it is one outside.

    Attributes:
        index: of the body; the attributes of a function are those of the call.
        captured: the values from outside.
    """

    index: GraphIndex
    captured: frozenset[str]

    @classmethod
    def of(cls, index: GraphIndex, position: int, body: str) -> "InnerGraph":
        """Return a body of one of the graph's nodes.

        Raises:
            UnknownNameError: there is no such node or body.
        """
        if position >= len(index.nodes) or body not in bodies(index, position):
            raise unknown_body(index, position, body)
        node = index.nodes[position]
        function = function_of(index, node) if body == FUNCTION else None
        captured = frozenset[str]()
        if function is not None:
            made = _of_call(index, node, function)
        else:
            graph = dict(walk.bodies(node))[body]
            captured = frozenset(captured_by(graph))
            made = body_model(index, node, graph, captured)
        made.graph.name = f"{index.graph.name}/@{position}/{body}"
        # only functions that the body can call
        made.functions.extend(reached_functions(index.model.proto, made.graph.node))
        return cls(GraphIndex.of(index.model.with_proto(made)), captured)

    @property
    def values(self) -> list[str]:
        """Return the body's own values."""
        return [name for name in self.index.values() if name not in self.captured]


def all_bodies(index: GraphIndex) -> Iterator[str]:
    """Yield the bodies of the graph's nodes, as `@12/body`."""
    for position in range(len(index.nodes)):
        yield from (f"@{position}/{name}" for name in bodies(index, position))


def inner_values(index: GraphIndex, positions: Iterable[int] | None = None) -> Iterator[str]:
    """Yield each value that is produced inside bodies, at any depth, as `@12/body/q`; by default of all nodes."""
    for position in range(len(index.nodes)) if positions is None else positions:
        for body in bodies(index, position):
            inner = InnerGraph.of(index, position, body).index
            for name in chain(inner.producer, inner_values(inner)):
                yield f"@{position}/{body}/{name}"


def bodies_below(
    index: GraphIndex, graph: GraphProto
) -> Iterator[tuple[str, GraphProto, GraphIndex]]:
    """Yield (path, body, its index) of each body right below a graph that an index describes; of a copy of it, too."""
    for position in index.bodied:
        for name, body in walk.bodies(graph.node[position]):
            yield f"@{position}/{name}", body, InnerGraph.of(index, position, name).index


def graphs_below(index: GraphIndex, path: str = "") -> Iterator[tuple[str, GraphIndex]]:
    """Yield (path, index) of every body at any depth, inner ones first, then the graph itself."""
    for below, _, inner in bodies_below(index, index.graph):
        yield from graphs_below(inner, f"{path}/{below}" if path else below)
    yield path, index


def graph_at(proto: ModelProto, path: str) -> GraphProto | FunctionProto:
    """Return the graph, body or function of a path."""
    target: GraphProto | FunctionProto = proto.graph
    # `fn:domain::name/@3/body`: begin in the function
    if (function := _function_around(proto, f"{path}/")) is not None:
        target = function
        path = path[len(function_path(function)) + 1 :]
    for position, body in _steps(path):
        target = dict(walk.bodies(target.node[position]))[body]
    return target


def _steps(path: str) -> Iterator[tuple[int, str]]:
    """Yield (node, body) of each step of a path: `@3/body/@1/then_branch` -> (3, body), (1, then_branch)."""
    steps = iter(path.split("/") if path else ())
    return ((int(place[1:]), body) for place, body in zip(steps, steps, strict=True))


def body_model(
    index: GraphIndex, node: NodeProto, graph: GraphProto, captured: Iterable[str]
) -> ModelProto:
    """Return a body of a node as a model, values from outside included."""
    source = index.model.proto
    made = ModelProto(ir_version=source.ir_version, opset_import=source.opset_import, graph=graph)
    # types of the formal inputs, where the body leaves them out
    for value, kind in zip(made.graph.input, _given(index, node), strict=False):
        if not value.HasField("type") and kind is not None:
            value.type.CopyFrom(kind)
    for name in sorted(captured):
        _bring(index, name, name, made.graph)
    return made


def function_model(model: ModelProto, function: FunctionProto) -> ModelProto:
    """Return a function as a model of its own, with what the model imports for bodies and calls below it."""
    made = ModelProto(ir_version=model.ir_version, opset_import=function.opset_import)
    imported = opset_versions(function.opset_import)
    # bodies and calls in it may use domains that it does not import
    others = (o for o in model.opset_import if plain_domain(o.domain) not in imported)
    made.opset_import.extend(others)
    made.graph.name = function.name
    made.graph.node.extend(function.node)
    made.graph.value_info.extend(function.value_info)
    made.graph.input.extend(ValueInfoProto(name=name) for name in function.input)
    made.graph.output.extend(ValueInfoProto(name=name) for name in function.output)
    return made


def _of_call(index: GraphIndex, node: NodeProto, function: FunctionProto) -> ModelProto:
    made = function_model(index.model.proto, function)
    # made anew: with the attributes of the call, and inputs that are known outside
    del made.graph.node[:], made.graph.input[:]
    made.graph.node.extend(bound_nodes(function, node))
    given = dict(zip(function.input, node.input, strict=False))
    for name in function.input:
        if given.get(name):  # '' or missing: the call omits this input
            _bring(index, given[name], name, made.graph)
        else:
            _omit(made.graph.node, name)
    return made


def standing(model: Model, function: FunctionProto) -> GraphIndex:
    """Return a function as a model of its own, for all calls: nothing is known of its inputs and attributes."""
    made = function_model(model.proto, function)
    made.functions.extend(reached_functions(model.proto, function.node))
    return GraphIndex.of(model.with_proto(made))


def put_back(graph: GraphProto, function: FunctionProto) -> None:
    """Give a function what such a graph was edited to; its initializers become Constant nodes."""
    constants = [
        helper.make_node("Constant", [], [tensor.name], value=tensor)
        for tensor in graph.initializer
    ]
    del function.node[:], function.value_info[:]
    for tensor in constants:
        tensor.attribute[0].t.ClearField("name")
    function.node.extend(chain(constants, graph.node))
    function.value_info.extend(graph.value_info)


def bound_nodes(function: FunctionProto, call: NodeProto) -> list[NodeProto]:
    """Return a function's nodes, with attribute references replaced by the attributes of a call."""
    given = by_name(function.attribute_proto)  # defaults of the function, then what the call says
    given.update((attribute.name, attribute) for attribute in call.attribute)
    nodes = list(map(copied, function.node))
    for node in walk.with_inner(nodes):
        # from the last, because some are deleted
        for place in range(len(node.attribute) - 1, -1, -1):
            attribute = node.attribute[place]
            if attribute.ref_attr_name:
                name = attribute.name
                value = given.get(attribute.ref_attr_name)
                if value is None:  # the attribute is optional, and the call omits it
                    del node.attribute[place]
                else:
                    attribute.CopyFrom(value)
                    attribute.name = name
    return nodes


def _given(index: GraphIndex, node: NodeProto) -> list[TypeProto | None]:
    """Return the types of a Loop body's inputs that every iteration shares: the shape of a state can change."""
    if node.op_type != "Loop":
        return []
    types: list[TypeProto | None] = [_scalar(TensorProto.INT64), _scalar(TensorProto.BOOL)]
    for name in node.input[2:]:
        kind = copied(index.type_of(name) or TypeProto())
        if kind.HasField("tensor_type"):
            # a state may change its shape from one iteration to the next
            kind.tensor_type.ClearField("shape")
        types.append(kind)
    return types


def _scalar(elem_type: int) -> TypeProto:
    return helper.make_tensor_type_proto(elem_type, ())


def _bring(index: GraphIndex, outer: str, name: str, graph: GraphProto) -> None:
    """Declare an outer value under a name inside the body."""
    # a default is replaced by what a user feeds, so it is no constant
    constant = None if index.is_default(outer) else index.initializers.get(outer)
    if isinstance(constant, TensorProto):
        graph.initializer.append(constant)
        graph.initializer[-1].name = name
    elif constant is not None:
        graph.sparse_initializer.append(constant)
        graph.sparse_initializer[-1].values.name = name
    else:
        info = index.value_info(outer)
        info.name = name
        graph.input.append(info)


def _omit(nodes: Iterable[NodeProto], name: str) -> None:
    """Make the nodes read nothing instead of this value."""
    for node in walk.with_inner(nodes):
        for slot, read in enumerate(node.input):
            if read == name:
                node.input[slot] = ""
