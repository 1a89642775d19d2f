"""Open a body or a function as a model of its own, which every pass can edit, and put the edited one back.

Values from outside are inputs or initializers of that model, as they are outside; they leave it as they came.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    ValueInfoProto,
)

from onnxsurgeon_lite.errors import EditError, UsageError
from onnxsurgeon_lite.graph import (
    FUNCTION_PATH,
    GraphIndex,
    captured_by,
    function_model,
    graph_at,
    opset_versions,
    put_back,
    reached_functions,
)
from onnxsurgeon_lite.graph.bodies import body_model
from onnxsurgeon_lite.graph.settling import UNSETTLED
from onnxsurgeon_lite.model import (
    Enclosing,
    Model,
    assign,
    call_key,
    copied,
    drop,
    function_key,
    plain_domain,
    walk,
)
from onnxsurgeon_lite.names import few
from onnxsurgeon_lite.surgery.edits import defined, settle
from onnxsurgeon_lite.surgery.types import downstream, retype

_Source = ValueInfoProto | TensorProto | SparseTensorProto


@dataclass(frozen=True)
class OpenBody:
    """A body of a node, or a function, as a model.

    Attributes:
        index: the graph that holds it.
        path: `@3/then_branch`, or `fn:domain::name` for a function.
        model: the body.
        brought: the values in it that come from outside.
    """

    index: GraphIndex
    path: str
    model: Model
    brought: frozenset[str]

    @classmethod
    def of(cls, index: GraphIndex, path: str, also: Iterable[str] = ()) -> "OpenBody":
        """Open a body that exists.

        Args:
            also: further values from outside that an edit needs.

        Raises:
            UsageError: the body cannot read them.
        """
        source = graph_at(index.model.proto, path)
        also = set(also)
        # A function sees its inputs only. A body sees the values around it, unless it defines the name itself.
        if isinstance(source, FunctionProto):
            if also:
                raise UsageError(
                    f"{min(also)!r} is outside of function {path!r}, which reads its own inputs only",
                    f"name a value of the function: '{path}/NAME'",
                )
            made = function_model(index.model.proto, source)
            names = set[str]()
        else:
            # `own` is defined inside; `names`: the outer names, which the body's values must not hide.
            own, names = (
                set(defined(source)),
                set(index.values()).union(index.model.enclosing.names),
            )
            if hidden := also & own:
                raise UsageError(
                    f"{path!r} has a value {min(hidden)!r} of its own, which hides the outer one",
                    f"rename it first: onnxdbg edit rename MODEL {path}/{min(hidden)}=NAME",
                )
            also.update(captured_by(source))
            names = (names | also) - own
            made = body_model(index, index.nodes[_position(path)], source, also)
        made.functions.extend(index.model.proto.functions)
        made.graph.name = f"{index.graph.name}/{path}"
        model = index.model.with_proto(made)
        # how the opened model names itself in messages, and the names that are taken outside
        model.enclosing = Enclosing(f"{index.model.enclosing.path}{path}/", frozenset(names))
        return cls(index, path, model, frozenset(also))

    def put_back(self, edited: Model, unsettled: Iterable[str]) -> tuple[Model, list[str]]:
        """Return the model with the edited body, and notes; types follow outside.

        Args:
            unsettled: the values in the body whose types do not fit yet.

        Raises:
            EditError: the edit changes a value from outside, or what the body takes and gives.
        """
        body = self._own_part(edited)
        notes = list[str]()
        # types that do not fit yet are not declared
        stale = downstream(GraphIndex.of(edited), unsettled) if unsettled else set[str]()
        drop(body.value_info, lambda info: info.name in stale)
        # put the body in its place, with what it imports and the files of its tensors
        result = self.index.model.copy()
        result.files.update(edited.files)
        self._bring_imports(edited.proto, result.proto)
        target = graph_at(result.proto, self.path)
        if isinstance(target, FunctionProto):
            notes += _fill_function(target, body)
        else:
            target.CopyFrom(body)
        # outside, types follow what the body gives
        after = settle(self.index, result)
        results = list(walk.outputs(self._users(result.proto)))
        # An edit of several steps settles types at its end (`UNSETTLED`): until then these results wait.
        waiting = UNSETTLED.get()
        if stale and waiting is not None:
            waiting.update(results)
        elif isinstance(target, FunctionProto) or self._output_types(body) != self._output_types():
            notes += retype(self.index.model, after, results)
        return result, notes

    def _own_part(self, edited: Model) -> GraphProto:
        """Return the edited body without the values from outside."""
        # Outer values are inputs or initializers of the model: they must have come back as they were.
        body, source = copied(edited.graph), self.model.graph
        left = dict(_sources(body))
        for name, message in _sources(source):
            if name in self.brought and left.get(name) != message:
                raise EditError(
                    f"{name!r} comes from outside of {self.path!r} and cannot be changed there",
                    f"name it where it is: {name!r}",
                )
        for declared in (body.input, body.initializer):
            drop(declared, lambda info: info.name in self.brought)
        drop(body.sparse_initializer, lambda sparse: sparse.values.name in self.brought)
        shadowing = self.model.enclosing.names.intersection(defined(body))  # new names of the edit
        if shadowing:
            raise EditError(
                f"{min(shadowing)!r} would hide the value of that name outside of {self.path!r}",
                "choose another name",
            )
        self._require_same_interface(body)
        held = graph_at(self.index.model.proto, self.path)
        # A body's inputs need no types: ones that were opened with the types from outside lose them again.
        for before, after in zip(held.input, body.input, strict=True):
            if isinstance(before, ValueInfoProto) and not before.HasField("type"):
                after.ClearField("type")
        body.name = held.name
        return body

    def _require_same_interface(self, body: GraphProto) -> None:
        """Raise `EditError` if the node that has the body cannot use it any more."""
        before = graph_at(self.index.model.proto, self.path)
        names = [
            [value if isinstance(value, str) else value.name for value in values]
            for values in (before.input, before.output)
        ]
        now = [[value.name for value in values] for values in (body.input, body.output)]
        if list(map(len, names)) != list(map(len, now)):
            raise EditError(
                f"{self.path!r} would take {len(now[0])} inputs and give {len(now[1])} outputs, "
                f"not {len(names[0])} and {len(names[1])}",
                "edit what it reads and makes, not what it takes and gives",
            )
        # ONNX's own operators take bodies by position
        domain = "" if self._is_function else self._users(self.index.model.proto)[0].domain
        if plain_domain(domain) and names != now:
            raise EditError(
                f"{self.path!r} is a body of an operator of {domain!r}: it finds inputs and outputs by name",
                "keep their names",
            )

    def _bring_imports(self, edited: ModelProto, result: ModelProto) -> None:
        """Import the domains and functions that the edited body needs."""
        known, needed = (opset_versions(proto.opset_import) for proto in (self.model.proto, edited))
        for domain, version in needed.items():
            if known.get(domain, version) != version:
                raise EditError(
                    f"{self.path!r} has version {known[domain]} of domain {domain or 'ai.onnx'!r}, not {version}",
                    f"convert the model first: onnxdbg edit opset MODEL {version}",
                )
        assign(result.functions, edited.functions)
        target = graph_at(result, self.path)
        holders: list[ModelProto | FunctionProto] = [result]
        if isinstance(target, FunctionProto):
            holders.append(target)
        # The model, and the function itself, where it has new domains.
        for holder in holders:
            for domain in needed.keys() - known.keys() - opset_versions(holder.opset_import).keys():
                holder.opset_import.add(domain=domain, version=needed[domain])

    @property
    def _is_function(self) -> bool:
        return self.path.startswith(FUNCTION_PATH)

    def _users(self, proto: ModelProto) -> list[NodeProto]:
        """Return the nodes of the graph that have the body: one node, or all that call the function."""
        if not self._is_function:
            return [proto.graph.node[_position(self.path)]]
        own = graph_at(proto, self.path)
        assert isinstance(own, FunctionProto)  # its path says so
        return callers(proto, own)

    def _output_types(self, graph: GraphProto | None = None) -> list[bytes]:
        outputs = (self.model.graph if graph is None else graph).output
        return [value.type.SerializeToString(deterministic=True) for value in outputs]


def callers(proto: ModelProto, own: FunctionProto) -> list[NodeProto]:
    """Return the nodes of the main graph that call a function, in their bodies or through other functions too."""
    # Calls can be indirect: other functions that call this one count, too.
    keys = {
        function_key(function)
        for function in proto.functions
        if function == own or own in reached_functions(proto, function.node)
    }
    return [
        node
        for node in proto.graph.node
        if any(call_key(inner) in keys for inner in walk.with_inner([node]))
    ]


def _position(path: str) -> int:
    return int(path[1 : path.index("/")])


def _sources(graph: GraphProto) -> Iterator[tuple[str, _Source]]:
    """Yield what a graph declares that no node makes, by name."""
    yield from ((value.name, value) for value in chain(graph.input, graph.initializer))
    yield from ((sparse.values.name, sparse) for sparse in graph.sparse_initializer)


def _fill_function(function: FunctionProto, body: GraphProto) -> list[str]:
    """Replace a function's nodes and names; return a note on what has another form there."""
    function.input[:] = [value.name for value in body.input]
    function.output[:] = [value.name for value in body.output]
    put_back(body, function)
    new = few([tensor.name for tensor in body.initializer])
    what = "a function has no initializers: Constant nodes before it make"
    return [f"{what} {new}"] if new else []
