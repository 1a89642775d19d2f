"""Replace calls of model-local functions by their nodes."""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError
from onnx import (
    IR_VERSION,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    ValueInfoProto,
    helper,
)

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph import FUNCTION_PATH, bound_nodes, function_path, opset_versions
from onnxsurgeon_lite.model import (
    FunctionKey,
    Model,
    assign,
    by_name,
    call_key,
    drop,
    entries,
    function_key,
    plain_domain,
    walk,
)
from onnxsurgeon_lite.surgery.conversion import convert_graph, redefined
from onnxsurgeon_lite.surgery.edits import (
    clear_bodies,
    defined,
    defined_inside,
    fresh,
    names_in,
    rename_values,
)

_KEPT = "onnxsurgeon_lite.kept"
"""The metadata of a call that has the names and metadata of its own module, where several modules call a function."""


def keep_names(call: NodeProto, own: FunctionProto) -> None:
    """Let a call know what the nodes and values of its own module are called, and what they have besides."""
    known = by_name(own.value_info)
    values = [known.get(name, ValueInfoProto(name=name)) for name in walk.outputs(own.node)]
    # What the module of this call calls its nodes and values: a graph with names and types, without operands.
    kept = GraphProto(node=own.node, value_info=values)
    _strip(kept.node)
    call.metadata_props.add(key=_KEPT, value=kept.SerializeToString().hex())


def _kept(nodes: Sequence[NodeProto], call: NodeProto) -> list[ValueInfoProto]:
    """Give nodes, in place, the names and metadata that a call keeps for them; return the values that they make."""
    try:
        kept = GraphProto.FromString(bytes.fromhex(entries(call.metadata_props)[_KEPT]))
    except (KeyError, ValueError, DecodeError):
        return []
    # written for another function: it does not fit
    if list(map(call_key, kept.node)) != list(map(call_key, nodes)):
        return []
    _strip(kept.node)  # whoever wrote it
    for node, own in zip(nodes, kept.node, strict=True):
        for field in ("name", "doc_string", "metadata_props"):
            node.ClearField(field)
        node.MergeFrom(own)
    return list(kept.value_info)


def _strip(nodes: Iterable[NodeProto]) -> None:
    """Remove what nodes compute, but for the operator."""
    for node in nodes:
        for field in ("input", "output", "attribute"):
            node.ClearField(field)


def inline(model: Model, keys: Collection[FunctionKey]) -> Model:
    """Return the model with each call of these functions replaced by the function's nodes, in bodies too.

    Values keep their names where those are free. Nodes of another version of the ONNX domain are converted.

    Raises:
        EditError: a function imports another version of a domain, and its nodes cannot be converted.
    """
    result = model.copy()
    proto = result.proto
    # by key, as the calls name them
    chosen = {function_key(f): f for f in model.proto.functions if function_key(f) in keys}
    drop(proto.functions, lambda function: function_key(function) in chosen)
    # Training graphs share the names of the main graph, so one set of taken names serves all.
    graphs = [proto.graph] + list(walk.training(proto))
    main = _Caller(proto, chosen, names_in(graphs), _node_names(graphs))
    for graph in graphs:
        main.flatten(graph)
    # Functions call functions: a function has names of its own.
    for function in proto.functions:
        taken = names_in([GraphProto(node=function.node)]).union(function.input, function.output)
        _Caller(function, chosen, taken, _node_names([function])).flatten(function)
    _drop_imports(proto, {domain for domain, *_ in chosen})
    return result


@dataclass(frozen=True)
class _Caller:
    """A model or a function whose nodes call functions.

    Attributes:
        proto: has the opset imports.
        functions: those to inline.
        values, nodes: the names that are taken.
    """

    proto: ModelProto | FunctionProto
    functions: Mapping[FunctionKey, FunctionProto]
    values: set[str]
    nodes: set[str]

    def flatten(self, graph: GraphProto | FunctionProto) -> None:
        """Replace the calls of a graph, and of the bodies below it."""
        # Without recursion: bodies can be nested deeply.
        pending = [graph]
        while pending:
            graph = pending.pop()
            if any(call_key(node) in self.functions for node in graph.node):
                self._replace_calls(graph)
            pending += walk.inner(graph.node)

    def _replace_calls(self, graph: GraphProto | FunctionProto) -> None:
        # A stack with the first node on top: nodes that take the place of a call are looked at next.
        pending = list(graph.node)[::-1]
        flat = []
        while pending:
            node = pending.pop()
            function = self.functions.get(call_key(node))
            if function is None:
                flat.append(node)
            else:
                body = self._body(function, node)
                pending += list(body.node)[::-1]
                graph.value_info.extend(body.value_info)
        assign(graph.node, flat)

    def _body(self, function: FunctionProto, call: NodeProto) -> GraphProto:
        """Return a function's nodes for one call: with the caller's names, and free ones for inner values."""
        body = GraphProto(node=bound_nodes(function, call))
        # `own`: the function's name of a value -> the name in the module of the call.
        values = _kept(body.node, call)
        own = {}
        for name, info in zip(walk.outputs(body.node), values, strict=False):
            own[name], info.name = info.name, name
        self._fit(body, function)
        # First the bodies in the function: none may define a name that the caller uses.
        clear_bodies(body.node, self.values, self.values)
        self.values.update(defined_inside(body.node))
        names = dict.fromkeys(function.input, "")  # inputs that the call omits are ''
        names.update(zip(function.input, call.input, strict=False))
        copies = []
        for name, given in zip(function.output, call.output, strict=False):
            # An output that is an input already has a name, so it is copied at the end.
            if given and name in names:
                copies.append((name, given))
            elif given:
                names[name] = given
        # Types: of the inner values only, and only where they say something.
        for info in values or function.value_info:
            if info.name not in names and info != ValueInfoProto(name=info.name):
                body.value_info.append(info)
        inner = [name for name in defined(body) if name not in names]
        names |= {name: fresh(own.get(name) or name, self.values) for name in inner}
        rename_values(ModelProto(), body, names, self.values)
        for name, given in copies:  # an output that is an input, or another output
            body.node.append(helper.make_node("Identity", [names[name]], [given]))
        for node in body.node:
            if node.name:
                node.name = fresh(node.name, self.nodes)
        return body

    def _fit(self, body: GraphProto, function: FunctionProto) -> None:
        """Import the domains of a function's nodes; convert nodes that the caller's version defines differently."""
        nodes = [n for n in walk.with_inner(body.node) if call_key(n) not in self.functions]
        imported = opset_versions(self.proto.opset_import)
        for domain, version in opset_versions(function.opset_import).items():
            # Another version of the domain is only a problem if it defines one of these operators differently.
            operators = {n.op_type for n in nodes if plain_domain(n.domain) == domain}
            here = imported.get(domain, 0)
            if operators and not here:
                self.proto.opset_import.add(domain=domain, version=version)
            elif here != version and any(redefined(domain, o, version, here) for o in operators):
                _convert(body, function, domain, version, here)


def _convert(
    body: GraphProto, function: FunctionProto, domain: str, version: int, here: int
) -> None:
    """Convert a function's nodes to another version of the ONNX domain."""
    # A model of the function's nodes alone, because the converter takes models.
    imports = [helper.make_opsetid(domain, version)]
    part = ModelProto(ir_version=IR_VERSION, opset_import=imports, graph=body)
    part.graph.input.extend(ValueInfoProto(name=name) for name in function.input)
    part.graph.output.extend(ValueInfoProto(name=name) for name in function.output)
    result = Model(part).copy()
    try:
        if domain:
            raise EditError("that is not ONNX's own")
        convert_graph(Model(part), result, version, here)
    except EditError as error:
        name = function_path(function).removeprefix(FUNCTION_PATH)
        raise EditError(
            f"function {name!r} has version {version} of domain {domain or 'ai.onnx'!r}, its caller {here}, and "
            f"cannot be converted: {error.message}",
            "leave it out, name the others: onnxdbg edit inline MODEL FUNCTIONS",
        ) from error
    del body.node[:]
    for tensor in result.graph.initializer:  # nodes: a function has no initializers
        body.node.append(helper.make_node("Constant", [], [tensor.name], value=tensor))
    body.node.extend(result.graph.node)


def _drop_imports(proto: ModelProto, domains: Container[str]) -> None:
    """Remove the imports of domains that no node needs any more."""
    nodes = walk.nodes(walk.holders(proto))
    used = {plain_domain(node.domain) for node in nodes}
    for holder in (proto, *proto.functions):
        drop(holder.opset_import, lambda o: o.domain in domains and o.domain not in used)


def _node_names(graphs: Iterable[GraphProto | FunctionProto]) -> set[str]:
    return {node.name for node in walk.nodes(graphs)}
