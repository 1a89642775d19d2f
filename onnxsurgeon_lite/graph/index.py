"""Index who produces and who consumes each value of a graph: captures, bodies and functions included.

A value that a node's subgraphs capture counts as an input of that node. `''` is an omitted input or output, never a
name. Nodes have printable ids that no file contains: `@12` in the main graph, `@12/then_branch/@3` in a body,
`fn:domain::name/@3` in a function.
"""

import heapq
import operator
from collections import UserDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

from onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    SparseTensorProto,
    TensorProto,
    TensorShapeProto,
    TypeProto,
    ValueInfoProto,
    helper,
)

from onnxsurgeon_lite.errors import GraphError, RuntimeFailure, UnknownNameError
from onnxsurgeon_lite.graph.native import (
    RejectedError,
    begin_infer,
    infer,
    infer_encoded,
    open_sizes,
)
from onnxsurgeon_lite.graph.scopes import Provenances
from onnxsurgeon_lite.graph.settling import TRIED
from onnxsurgeon_lite.graph.table import FEW, NodeRow, NodeTable, every_read
from onnxsurgeon_lite.model import (
    FunctionKey,
    Model,
    by_name,
    call_key,
    check_functions,
    copied,
    drop,
    function_key,
    is_standard,
    plain_domain,
    walk,
)
from onnxsurgeon_lite.model.wire import LARGE
from onnxsurgeon_lite.search.grouping import groups

MAIN = ""
FUNCTION_PATH = "fn:"

_FEW_QUESTIONS = 8  # after so many, an index of everything costs less than single look-ups


def node_id(path: str, position: int) -> str:
    """Return the printable id of the node at a position of a scope: `@12/body/@3`; the main graph has no path."""
    return f"{path}/@{position}".lstrip("/")


@dataclass(frozen=True)
class Body:
    """The nodes of one scope: the main graph (path ''), a subgraph, or a function."""

    path: str
    nodes: Iterable[NodeProto]

    def node_id(self, position: int) -> str:
        """Return the printable id of the node at a position."""
        return node_id(self.path, position)


@dataclass(eq=False)
class GraphIndex:
    """The main graph of a model, indexed once in O(nodes + edges).

    Attributes:
        nodes: the graph's nodes; a position below is an index into them.
        reads: per node, the values it needs: its inputs, then the captures of its subgraphs.
        producer: value -> the position of its node.
        inputs, outputs: the graph's declarations, by name.
        initializers: by name, sparse ones included.

    Example:
        >>> index = osl.GraphIndex.of(osl.load("whole_model.onnx"))
        >>> index.producer["28"], index.consumers["23"]
        (7, [3, 5])
    """

    model: Model
    nodes: list[NodeProto]
    reads: "_Reads"
    inputs: dict[str, ValueInfoProto] = field(default_factory=dict)
    outputs: dict[str, ValueInfoProto] = field(default_factory=dict)
    initializers: dict[str, TensorProto | SparseTensorProto] = field(default_factory=dict)
    # values of whose types inference finds no more than is known: not tried again
    settled: set[str] = field(default_factory=set)
    _questions: int = 0  # how many look-ups there were

    @classmethod
    def of(cls, model: Model) -> "GraphIndex":
        """Index a model's main graph.

        Raises:
            GraphError: two nodes produce one value.
        """
        if isinstance(model, Indexed):
            return model.index
        graph = model.graph
        nodes = list(graph.node)
        index = cls(model, nodes, _Reads(nodes))
        index.inputs = by_name(graph.input)
        index.outputs = by_name(graph.output)
        index.initializers = by_name(graph.initializer)
        index.initializers.update(
            (sparse.values.name, sparse) for sparse in graph.sparse_initializer
        )
        _ = index.producer  # a value that is made twice: raise the error now
        return index

    @cached_property
    def table(self) -> NodeTable:
        """The nodes in lists."""
        return NodeTable.of(self.graph)

    @cached_property
    def producer(self) -> dict[str, int]:
        """Value -> the position of its node."""
        found, again = self.table.made
        for name, position in again:
            first, second = self.describe(found[name]), self.describe(position)
            raise GraphError(
                f"value {name!r} has two producers: {first} and {second}",
                "repair it: onnxdbg edit fix MODEL",
            )
        return found

    @cached_property
    def bodied(self) -> list[int]:
        """The nodes that hold bodies."""
        return self.table.bodied

    def node_of(self, name: str) -> NodeProto | None:
        """Return the node that makes a value; None for none."""
        position = self.producer.get(name)
        return None if position is None else self.nodes[position]

    def operator_of(self, name: str) -> str:
        """Return the operator of the node that makes a value; '' for none."""
        node = self.node_of(name)
        return "" if node is None else node.op_type

    @property
    def graph(self) -> GraphProto:
        """The main graph."""
        return self.model.graph

    @property
    def opset(self) -> int:
        """The version of ONNX's own operators."""
        return onnx_opset(self.model.proto)

    @property
    def required_inputs(self) -> list[str]:
        """The inputs without a default, which a run must be given."""
        return [name for name in self.inputs if name not in self.initializers]

    @cached_property
    def named(self) -> dict[str, list[int]]:
        """Name -> the nodes with this name."""
        called = ((node.name, position) for position, node in enumerate(self.nodes))
        return dict(groups(pair for pair in called if pair[0]))

    @cached_property
    def node_names(self) -> list[str]:
        """Every node's name, sorted."""
        return sorted(self.named)

    @cached_property
    def rows(self) -> list[NodeRow]:
        """Every node as plain data."""
        return self.table.rows

    @cached_property
    def needs(self) -> list[list[str]]:
        """Per node, its inputs, with repeats and '', then what its bodies capture."""
        return self.table.needs

    @cached_property
    def consumers(self) -> dict[str, list[int]]:
        """Value -> the nodes that need it, in order."""
        found = defaultdict[str, list[int]](list)
        for position, names in enumerate(self.needs):
            # a node that needs a value twice is one consumer
            for name in dict.fromkeys(names):
                found[name].append(position)
        found.pop("", None)
        return dict(found)

    def users(self, name: str) -> list[int]:
        """Return the nodes that need a value, in order."""
        return self.consumers.get(name, [])

    def readers(self, values: Collection[str]) -> dict[str, list[int]]:
        """Return like `consumers`, for a few values: value -> the nodes that need it, without indexing all others."""
        self._questions += 1
        # asked more often, an index of everything takes less
        if "consumers" in vars(self) or self._questions > _FEW_QUESTIONS:
            return {value: self.users(value) for value in values}
        found = {value: list[int]() for value in values}
        for position in self.reading(found):
            for name in found.keys() & self.needs[position]:
                found[name].append(position)
        return found

    def reading(self, values: Collection[str]) -> list[int]:
        """Return the nodes that need one of many values."""
        wanted = set(values) - {""}
        return [p for p, needs in enumerate(self.needs) if not wanted.isdisjoint(needs)]

    def outputs_of(self, positions: Iterable[int]) -> Iterator[str]:
        """Yield the values that some nodes make, in their order."""
        return filter(None, chain.from_iterable(map(self.table.makes.__getitem__, positions)))

    def inputs_of(self, positions: Iterable[int]) -> Iterator[str]:
        """Yield the values that some nodes need, in their order; repeated as they are."""
        return chain.from_iterable(map(self.reads.__getitem__, positions))

    def next_to(self, names: Iterable[str]) -> Iterator[int]:
        """Yield the nodes that need some values; repeated as they are."""
        return chain.from_iterable(map(self.users, names))

    def read_by(self, positions: Collection[int]) -> set[str]:
        """Return the values that some nodes need."""
        return set(chain.from_iterable(map(self.needs.__getitem__, positions))) - {""}

    def made_by(self, positions: Collection[int]) -> set[str]:
        """Return the values that some nodes make."""
        return set(self.outputs_of(positions))

    def reading_only(self, values: Set[str]) -> list[int]:
        """Return the nodes that read something, and nothing but some values."""
        known = {""}.union(values)
        return [p for p, needs in enumerate(self.needs) if any(needs) and known.issuperset(needs)]

    def unread(self, values: Iterable[str]) -> set[str]:
        """Return those of a few values that no node needs."""
        # most values are read early: stop at the last one
        left = set(values)
        for names in self.needs if left else ():
            left.difference_update(names)
            if not left:
                break
        return left

    @cached_property
    def order(self) -> list[int]:
        """The nodes in topological order: the order of the file where that is sorted.

        Raises:
            GraphError: the graph has a cycle.
        """
        everything = range(len(self.nodes))
        return list(everything) if self.table.is_sorted else topological_order(self, everything)

    @cached_property
    def places(self) -> dict[int, int]:
        """Node -> its place in the topological order."""
        return {position: place for place, position in enumerate(self.order)}

    def in_order(self, positions: Iterable[int]) -> list[int]:
        """Return nodes in the topological order."""
        return sorted(positions, key=self.places.__getitem__)

    @cached_property
    def rank(self) -> dict[str, int]:
        """Produced value -> the place of its node in the topological order."""
        return {name: self.places[position] for name, position in self.producer.items()}

    @cached_property
    def last_use(self) -> dict[str, int]:
        """Value -> the place of its last consumer in the topological order."""
        return {
            name: max(map(self.places.__getitem__, users)) for name, users in self.consumers.items()
        }

    @cached_property
    def origins(self) -> Provenances:
        """The place in the source program of each node."""
        return Provenances(self.nodes, self.initializers)

    @cached_property
    def operators(self) -> dict[str, list[int]]:
        """Operator type -> its nodes, in any domain."""
        kinds = enumerate(self.table.kinds)
        return dict(groups((op_type, position) for position, (op_type, _) in kinds))

    @cached_property
    def types(self) -> "_Types":
        """The known types: from declarations and initializers, and those inferred so far."""
        return _Types(self.graph, self.initializers)

    def type_of(self, name: str) -> TypeProto | None:
        """Return a value's type: declared, otherwise inferred, otherwise None."""
        self.learn_types([name])
        return self.types.get(name)

    def element_of(self, name: str) -> int:
        """Return the dtype of a value's elements, 0 if it is not known."""
        kind = self.type_of(name)
        return 0 if kind is None else int(kind.tensor_type.elem_type)

    def learn_types(self, names: Iterable[str]) -> None:
        """Infer the types of undeclared values, on the part of the structure that computes them.

        Raises:
            GraphError: a function calls itself.
            RuntimeCrash, RuntimeTimeout, RuntimeFailure: inference crashes, or reaches a limit.
        """
        unknown = self._untyped(names)
        if not unknown:
            return
        check_functions(self.model.proto)
        # infer with more effort until all are known
        states = dict[str, TypeProto]()
        # First a prefix of the file, then only what the values depend on, at last with propagation of data.
        for positions, data_prop in self._inference_attempts(set(unknown)):
            try:
                inferred = self._inferred(positions, data_prop, states)
            except RuntimeFailure:
                self.settled |= unknown  # the next look goes on without them
                raise
            found = dict[str, TypeProto]()
            for info in reversed(inferred):  # the last values of a prefix are wanted
                name, kind = info.name, info.type
                if name in unknown and info.HasField("type") and name not in found:
                    found[name] = kind
                    if len(found) == len(unknown):
                        break
            # never replace what is declared by something vaguer
            found = {n: k for n, k in found.items() if not _says_less(k, self.types.get(n))}
            self.types.update(found)
            # a tensor without a shape may get one with more effort
            unknown -= {name for name, kind in found.items() if has_shape(kind)}
            if not unknown:
                return
            # the next attempt knows the states of loops whose shape stays
            kinds = {info.name: info.type for info in inferred if info.HasField("type")}
            states = self._loop_states(positions, kinds)
        self.settled |= unknown

    def foresee(self, names: Iterable[str]) -> None:
        """Start to infer the types that `learn_types` will be asked for next, all at once."""
        large = len(self.nodes) > FEW and not self.model.proto.functions  # which may never end
        unknown = self._untyped(names) if large else set()
        if unknown:
            prefix = range(1 + max(self.makers(unknown), default=-1))
            begin_infer(self._part(prefix, {}))

    def _untyped(self, names: Iterable[str]) -> set[str]:
        """Return the values whose types can be inferred, for all that is known."""
        found = {
            name
            for name in names
            if name not in self.types
            or (not is_complete(self.types[name]) and self.producer.get(name) is not None)
        } - self.settled
        # an edit that is tried does not ask for what is known
        known = TRIED.get() or {}
        self.types.update({name: known[name] for name in found & known.keys()})
        return found - known.keys()

    def inferred_outputs(self) -> dict[str, TypeProto]:
        """Infer the types of the graph's outputs from the inputs and weights alone, without reading declarations.

        Raises:
            RuntimeCrash, RuntimeTimeout, RuntimeFailure: inference crashes, or reaches a limit.
        """
        part = copied(self.model.structure())
        # what is declared must not be what inference returns
        del part.graph.output[:], part.graph.value_info[:]
        try:
            inferred = infer(part, data_prop=True)
        except RejectedError:
            return {}
        return {info.name: info.type for info in inferred.value_info if info.name in self.outputs}

    def _inference_attempts(self, values: set[str]) -> Iterator[tuple[Sequence[int], bool]]:
        """Yield (nodes, data propagation), the cheapest first: it is nearly always enough."""
        prefix = range(1 + max(self.makers(values), default=-1))
        yield prefix, False
        ordered = topological_order(self, sorted(self.ancestors(values)))
        if any(map(operator.gt, ordered, ordered[1:])):  # the file is not sorted
            yield ordered, False
        yield ordered, True

    def _inferred(
        self, positions: Sequence[int], data_prop: bool, known: Mapping[str, TypeProto]
    ) -> Sequence[ValueInfoProto]:
        try:
            inferred = infer_encoded(self._part(positions, known), data_prop=data_prop)
        except RejectedError:
            return []
        found: Sequence[ValueInfoProto] = GraphProto.FromString(inferred).value_info
        return found

    def _part(self, positions: Sequence[int], known: Mapping[str, TypeProto]) -> bytes:
        """Serialize a model of some nodes alone, without outputs; `known` are types that it declares."""

        def declare(rest: GraphProto) -> None:
            del rest.output[:]
            for name, kind in known.items():
                rest.value_info.add(name=name, type=kind)

        return serialized_part(self.model, positions, declare)

    def _loop_states(
        self, positions: Sequence[int], inferred: Mapping[str, TypeProto]
    ) -> dict[str, TypeProto]:
        """Return the types of loop states that the body declares with the shape of their initial value.

        ONNX's inference gives a state no shape, because a body can change it at each iteration.
        """
        states = {}
        for node in (self.nodes[position] for position in positions):
            if node.op_type != "Loop" or not is_standard(node):
                continue
            declared = [result for body in walk.inner([node]) for result in body.output[1:]]
            for name, initial, result in zip(node.output, node.input[2:], declared, strict=False):
                kind = self.types.get(initial, inferred.get(initial))
                # the body declares the shape of the initial value: it keeps it
                if name and kind is not None and kind == result.type and has_shape(kind):
                    states[name] = kind
        return states

    @property
    def declarations(self) -> dict[str, ValueInfoProto]:
        """Value -> its declaration: value_info, then outputs, then inputs; later ones override."""
        return self.types.declarations

    def value_info(self, name: str) -> ValueInfoProto:
        """Return a declaration of the value, as complete as possible: at least its name."""
        info = ValueInfoProto(name=name)
        declared = self.declarations.get(name)
        if declared is not None:
            info.CopyFrom(declared)
        type_proto = None if is_complete(info.type) else self.type_of(name)
        if type_proto is not None:
            info.type.CopyFrom(type_proto)
        return info

    def values(self) -> Iterator[str]:
        """Yield every value of the graph itself: inputs, initializers, outputs of nodes."""
        # names of the scopes around
        around = self.model.enclosing.names
        # a body that was opened as a model has outer values as inputs: they are not its own
        for name in dict.fromkeys(chain(self.inputs, self.initializers, self.producer)):
            if name not in around:
                yield name

    def require_sound(self, positions: Iterable[int] | None = None) -> None:
        """Raise `GraphError` if the graph, or these nodes of it, have a cycle, or if a function calls itself."""
        check_functions(self.model.proto)
        try:
            _ = self.order if positions is None else topological_order(self, positions)
        except GraphError:
            self.require_one_source()
            raise

    def require_one_source(self) -> None:
        """Raise `GraphError` if a node makes an input or an initializer."""
        # the reason why an order was not found
        for name in (self.inputs.keys() | self.initializers.keys()) & self.producer.keys():
            kind = "an input" if name in self.inputs else "an initializer"
            raise GraphError(
                f"value {name!r} is {kind}, and {self.describe(self.producer[name])} makes it",
                "repair it: onnxdbg edit fix MODEL",
            )

    def makers(self, names: Iterable[str]) -> list[int]:
        """Return the positions of the nodes that produce a few values."""
        return [place for place in map(self.producer.get, names) if place is not None]

    def __contains__(self, name: object) -> bool:
        return (
            name in self.inputs
            or name in self.initializers
            or self.producer.get(str(name)) is not None
        )

    def dense(self, name: str) -> TensorProto | None:
        """Return an initializer of the main graph; None for sparse ones, and for other names."""
        tensor = self.initializers.get(name)
        return tensor if isinstance(tensor, TensorProto) else None

    def is_default(self, name: str) -> bool:
        """Return whether feeds can replace an initializer: it is an input, too. Older files have all as inputs."""
        shared = name in self.inputs and name in self.initializers
        return shared and self.model.proto.ir_version >= 4

    def require(self, name: str) -> None:
        """Raise `UnknownNameError` unless the main graph has this value."""
        if name not in self:
            raise self.unknown(name, self.values(), "value")

    def unknown(self, name: str, known: Iterable[str], kind: str) -> UnknownNameError:
        """Return the error for a name that is none here; it says if it is a module, or a value in a body."""
        error = UnknownNameError(name, f"graph {self.graph.name!r}", known, kind)
        error.hint = self._where_inside(name) or error.hint
        if self.origins.in_scope(name):
            error.hint = f"it is a module: give scope:{name}; {error.hint}"
        return error

    def _where_inside(self, name: str) -> str | None:
        """Return a hint that says where a value is, if a body contains it."""
        makers = ((b.path, node) for b in self.inner_bodies for node in b.nodes)
        found = next((path for path, node in makers if name in node.output), None)
        if found is None or not found.startswith(FUNCTION_PATH):
            return found and f"it is inside a body: {f'{found}/{name}'!r}"
        return f"it is inside function {found.removeprefix(FUNCTION_PATH)!r}: in one call it is '@NODE/function/{name}'"

    @cached_property
    def inner_bodies(self) -> list[Body]:
        """The bodies of subgraphs, at any depth, and of functions."""
        pending = [Body(MAIN, self.nodes)]
        pending += [Body(function_path(f), f.node) for f in self.model.proto.functions]
        found = []
        while pending:
            body = pending.pop()
            found.append(body)
            nodes = (
                # in the main graph, only nodes that hold bodies matter
                enumerate(body.nodes) if body.path else ((p, self.nodes[p]) for p in self.bodied)
            )
            for position, node in nodes:
                for name, graph in walk.bodies(node) if node.attribute else ():
                    pending.append(Body(f"{body.node_id(position)}/{name}", graph.node))
        return [body for body in found if body.path]

    @property
    def every_body(self) -> list[Body]:
        """The main graph, then the bodies of subgraphs and of functions."""
        return [Body(MAIN, self.nodes)] + self.inner_bodies

    def node_id(self, position: int) -> str:
        """Return a node's id; in a body that stands as a model of its own, the id outside."""
        return f"{self.model.enclosing.path}@{position}"

    def describe(self, position: int, path: str = "") -> str:
        """Return a node's text for messages: its operator, name and id; `path` (`@12/body/`) goes before the id."""
        return described(self.nodes[position], path + self.node_id(position))

    def ancestors(self, values: Iterable[str], stop: Iterable[str] = ()) -> set[int]:
        """Return the nodes that the values depend on; the search stops at the values in `stop`."""
        stop = stop if isinstance(stop, (dict, set)) else set(stop)
        # from values to the nodes that make them, and on to what these read
        seen = set[str]()
        nodes = set[int]()
        # two sets: a node may make several of the values
        pending = list(values)
        while pending:
            name = pending.pop()
            position = self.producer.get(name)
            if name in seen or name in stop or position is None:
                continue
            seen.add(name)
            if position not in nodes:
                nodes.add(position)
                pending += self.reads[position]
        return nodes

    def shortest(self, starts: Iterable[int], goals: Set[int]) -> list[int]:
        """Return the nodes of a shortest path between some nodes, along the edges; [] without one."""
        # node -> the node before it, None at the start
        came_from: dict[int, int | None] = dict.fromkeys(starts)
        pending = deque(came_from)
        while pending:
            position: int | None = pending.popleft()
            if position in goals:
                path = list[int]()  # back from the goal
                while position is not None:
                    path.append(position)
                    position = came_from[position]
                return path[::-1]
            for user in self.next_to(self.outputs_of([position or 0])):
                if user not in came_from:
                    came_from[user] = position
                    pending.append(user)
        return []

    def descendants(self, positions: Iterable[int]) -> set[int]:
        """Return some nodes, and all that depend on them."""
        # each node is looked at once
        found = set(positions)
        pending = list(found)
        while pending:
            for consumer in self.next_to(self.outputs_of([pending.pop()])):
                if consumer not in found:
                    found.add(consumer)
                    pending.append(consumer)
        return found


class Indexed(Model):
    """A model that does not change any more, with its index: an edit of it need not make that again."""

    def __init__(self, index: GraphIndex) -> None:
        super().__init__(**vars(index.model))
        index.model = self
        self.index = index


class _Types(UserDict[str, TypeProto]):
    """Value -> its known type, looked up on demand: an edit needs few values of many."""

    def __init__(
        self, graph: GraphProto, initializers: Mapping[str, TensorProto | SparseTensorProto]
    ) -> None:
        super().__init__()
        self._graph = graph
        self._initializers = initializers

    @cached_property
    def declarations(self) -> dict[str, ValueInfoProto]:
        """Value -> its declaration; see `GraphIndex.declarations`."""
        graph = self._graph
        return by_name(chain(graph.value_info, graph.output, graph.input))

    def __contains__(self, name: object) -> bool:
        return name in self.data or self._declared(str(name)) is not None

    def __missing__(self, name: str) -> TypeProto:
        kind = self._declared(name)
        if kind is None:
            raise KeyError(name)
        self.data[name] = kind
        return kind

    def _declared(self, name: str) -> TypeProto | None:
        # a declaration comes before what is stored
        info = self.declarations.get(name)
        if info is not None and info.HasField("type"):
            if not any(dim.dim_value < 0 for dim in dims_of(info.type)):
                return info.type
            kind = copied(info.type)  # negative sizes say nothing
            open_sizes(kind)
            return kind
        tensor = self._initializers.get(name)
        return None if tensor is None else tensor_type(tensor)


class _Reads(dict[int, list[str]]):
    """Per node, the values it needs, looked up on demand: a cut needs few nodes of many."""

    def __init__(self, nodes: Sequence[NodeProto]) -> None:
        super().__init__()
        self._nodes = nodes

    def __missing__(self, position: int) -> list[str]:
        names = every_read(self._nodes[position])
        reads = self[position] = [name for name in dict.fromkeys(names) if name]
        return reads


def serialized_part(
    model: Model,
    positions: Sequence[int] | None,
    change: Callable[[GraphProto], None],
    declared: Callable[[str], bool] = lambda _: True,
) -> bytes:
    """Serialize the structure for inference, without defaults that a caller may replace.

    Args:
        positions: of its nodes; None for all.
        change: changes the graph, which has no nodes and no value_info then.
        declared: tells which values keep their value_info.
    """
    source = model.structure()
    graph = source.graph
    # what is around nodes and value_info, which the caller changes
    part = ModelProto(
        ir_version=source.ir_version, opset_import=source.opset_import, functions=source.functions
    )
    rest = part.graph
    for kind in ("input", "output", "initializer", "sparse_initializer"):
        getattr(rest, kind).extend(getattr(graph, kind))
    change(rest)
    _drop_defaults(rest, source)
    # declarations that inference may believe, then the nodes
    rest.value_info.extend(info for info in graph.value_info if declared(info.name))
    nodes = graph.node
    rest.node.extend(nodes if positions is None else map(nodes.__getitem__, positions))
    return bytes(part.SerializeToString())


def _drop_defaults(graph: GraphProto, model: ModelProto) -> None:
    # in an older file every initializer is an input, and runtimes take it for constant
    if model.ir_version >= 4:
        # of what is large and in memory, inference needs the types alone
        inputs = by_name(graph.input)
        for tensor in graph.initializer:
            name = tensor.name
            if len(tensor.raw_data) > LARGE and name not in inputs:
                inputs[name] = graph.input.add(name=name, type=tensor_type(tensor))
        drop(graph.initializer, lambda tensor: tensor.name in inputs)


def topological_order(index: GraphIndex, positions: Iterable[int]) -> list[int]:
    """Sort nodes topologically among themselves (Kahn's algorithm); sorted nodes keep their order.

    Raises:
        GraphError: they have a cycle; the message shows it.
    """
    positions = list(positions)
    among = set(positions)
    producer = index.producer
    # what is sorted stays as it is
    needs = {p: among.intersection(map(producer.get, index.reads[p])) for p in positions}
    # sorted already
    if all(not needed or max(needed) < position for position, needed in needs.items()):
        return positions
    # count for each node what it waits for
    users: dict[int, list[int]] = {position: [] for position in positions}
    for position, needed in needs.items():
        for other in needed:
            users[other].append(position)
    missing = {position: len(needed) for position, needed in needs.items()}
    ready = sorted(position for position, count in missing.items() if not count)
    order = []
    while ready:
        # the first that is ready: as near to the file's order as possible
        position = heapq.heappop(ready)
        order.append(position)
        for user in users[position]:
            missing[user] -= 1
            if not missing[user]:
                heapq.heappush(ready, user)
    if len(order) < len(positions):
        raise GraphError(_cycle(needs, among - set(order), index.describe))
    return order


def _cycle(needs: Mapping[int, set[int]], left: set[int], describe: Callable[[int], str]) -> str:
    """Describe a cycle: walking back among the nodes that could not be sorted must come around."""
    position = min(left)
    path = list[int]()
    seen = dict[int, int]()
    while position not in seen:
        seen[position] = len(path)
        path.append(position)
        # every node that is left waits for another one that is left
        position = min(needs[position] & left)
    loop = path[seen[position] :][::-1]
    names = [describe(p) for p in loop[:6]]
    return f"the graph has a cycle of {len(loop)} nodes: {' -> '.join(names + [names[0]])}"


def described(node: NodeProto, node_id: str) -> str:
    """Return a node's text for messages: its operator, its name if it has one, its id."""
    return f"{node.op_type} {node.name!r} ({node_id})" if node.name else f"{node.op_type} {node_id}"


def opset_versions(imports: Iterable[OperatorSetIdProto]) -> dict[str, int]:
    """Return domain -> imported version."""
    return {plain_domain(opset.domain): opset.version for opset in imports}


def onnx_opset(holder: ModelProto | FunctionProto) -> int:
    """Return the version of ONNX's own operators that a model or a function imports, under either name."""
    return opset_versions(holder.opset_import).get("", 1)


def function_path(function: FunctionProto) -> str:
    """Return the path of a function's body outside of any call: `fn:domain::name`."""
    return f"{FUNCTION_PATH}{'::'.join(filter(None, function_key(function)))}"


def reached_functions(model: ModelProto, nodes: Iterable[NodeProto]) -> list[FunctionProto]:
    """Return the functions that the nodes call, directly or indirectly, in the model's order."""
    by_key = {function_key(function): function for function in model.functions}
    reached = set[FunctionKey]()
    pending = list(nodes) if by_key else []
    while pending:
        node = pending.pop()
        for _, graph in walk.bodies(node):  # calls in bodies count, too
            pending += graph.node
        key = call_key(node)
        if key in by_key and key not in reached:
            reached.add(key)
            pending += by_key[key].node
    return [function for function in model.functions if function_key(function) in reached]


def has_shape(kind: TypeProto) -> bool:
    """Return whether a type is complete enough for a declaration: a tensor needs its rank."""
    return not kind.HasField("tensor_type") or kind.tensor_type.HasField("shape")


def dims_of(kind: TypeProto | None) -> Sequence[TensorShapeProto.Dimension]:
    """Return the dimensions of a tensor type; none where it has no shape."""
    found: Sequence[TensorShapeProto.Dimension] = () if kind is None else kind.tensor_type.shape.dim
    return found


def known_size(dim: TensorShapeProto.Dimension) -> int | None:
    """Return the declared size; None if it is symbolic, or -1, which some exporters write instead."""
    return dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None


def sizes_in(kind: TypeProto | None) -> list[int | None] | None:
    """Return the sizes of a tensor type, None for each that is not known; None where the rank is not."""
    if kind is None or not kind.tensor_type.HasField("shape"):
        return None
    return list(map(known_size, dims_of(kind)))


MADE_UP = "unk__"
"""How the names begin that ONNX's inference gives to sizes that it does not know."""


def symbols_of(values: Iterable[ValueInfoProto]) -> Iterator[str]:
    """Yield the names of the sizes that declarations have, in order; '' for a size without a name."""
    for value in values:
        for dim in dims_of(value.type):
            yield dim.dim_param


def fixed_shape(kind: TypeProto | None) -> tuple[int, ...] | None:
    """Return the shape of a tensor type in which every size is a number, else None."""
    if kind is None or not kind.tensor_type.HasField("shape"):
        return None
    dims = dims_of(kind)
    fixed = all(dim.HasField("dim_value") for dim in dims)
    return tuple(dim.dim_value for dim in dims) if fixed else None


def is_complete(kind: TypeProto) -> bool:
    """Return whether a declared type says all that inference can add but sizes: a tensor's dtype and rank."""
    if kind.HasField("tensor_type"):
        return bool(kind.tensor_type.elem_type) and kind.tensor_type.HasField("shape")
    return kind.WhichOneof("value") is not None


def _says_less(kind: TypeProto, known: TypeProto | None) -> bool:
    """Return whether a type lacks the dtype or shape that another has."""
    if known is None or not known.HasField("tensor_type"):
        return False
    one, other = kind.tensor_type, known.tensor_type
    return bool(other.elem_type and not one.elem_type) or other.HasField("shape") > one.HasField(
        "shape"
    )


def tensor_type(tensor: TensorProto | SparseTensorProto) -> TypeProto:
    """Return the type of a tensor."""
    values = tensor.values if isinstance(tensor, SparseTensorProto) else tensor
    return helper.make_tensor_type_proto(values.data_type, tensor.dims)
