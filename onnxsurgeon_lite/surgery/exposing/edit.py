"""Edit a model so that inner values become values of the main graph, one construct at a time."""

from collections.abc import Collection, Iterable, Iterator, Mapping, MutableSequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain

from onnx import FunctionProto, NodeProto, TypeProto

from onnxsurgeon_lite.errors import EditError, UnknownNameError
from onnxsurgeon_lite.graph import (
    FUNCTION,
    BodyName,
    GraphIndex,
    InnerGraph,
    bound_nodes,
    function_of,
    iterations_of,
    opset_versions,
)
from onnxsurgeon_lite.graph.bodies import inner_values
from onnxsurgeon_lite.model import Model, check_functions, copied, walk
from onnxsurgeon_lite.surgery.edits import fresh, names_in
from onnxsurgeon_lite.surgery.exposing.reading import Exposed
from onnxsurgeon_lite.surgery.exposing.scans import Stacked, to_loop
from onnxsurgeon_lite.surgery.exposing.wires import NewNodes, Wire, element_type, is_sequence

BODIES = {"If": ("then_branch", "else_branch"), "Loop": ("body",), "Scan": ("body",)}
"""The operators whose inner values can be exposed."""
_OPSET = 13  # the first in which If and Loop pass sequences; Identity does so one later


@dataclass
class Demand:
    """The values that are requested of one graph and of the bodies in it.

    Attributes:
        path: `@12/body`; '' for the main graph.
        kinds: the operators whose bodies lead here, or bodies that these have not, calls excluded.
        values: requested values of the graph itself.
        inside: position of a node -> name of a body -> its demand.
    """

    index: GraphIndex
    path: str = ""
    kinds: tuple[str, ...] = ()
    values: list[str] = field(default_factory=list)
    inside: dict[int, dict[str, "Demand"]] = field(default_factory=dict)

    def add(self, name: str) -> str:
        """Request another value; return its name without iteration indices."""
        # `@12/body/q` is asked of the body of node 12, as `q`; any other name is a value of this graph.
        inside = None if name in self.index else BodyName.of(name)
        if inside is None:
            # `q[3]`: which iterations are wanted is decided when results are read
            value = name if name in self.index or not self.path else iterations_of(name)[0]
            self.index.require(value)
            if value not in self.values:
                self.values.append(value)
            return value
        found = self.inside.setdefault(inside.position, {})
        if inside.body not in found:
            found[inside.body] = self._body(inside)
        return f"{inside.path}/{found[inside.body].add(inside.rest)}"

    def _body(self, inside: BodyName) -> "Demand":
        inner = InnerGraph.of(self.index, inside.position, inside.body)
        op_type = self.index.nodes[inside.position].op_type
        # A body that If, Loop or Scan do not have gets a kind that is no operator, so that `_obstacle` refuses it.
        if inside.body not in BODIES.get(op_type, (inside.body,)):
            op_type = f"the body {inside.body!r} of {op_type}"
        kinds = self.kinds if inside.body == FUNCTION else self.kinds + (op_type,)
        return Demand(inner.index, f"{self.path}/{inside.path}".lstrip("/"), kinds)

    @property
    def loops(self) -> int:
        """The number of loops around this graph."""
        return sum(kind != "If" for kind in self.kinds)

    @property
    def needs_table(self) -> bool:
        """True if the order of the tensors does not tell their iterations."""
        # In one loop, the n-th tensor is iteration n. Inside more than one construct, some iterations give no tensor.
        return any(kind != "If" for kind in self.kinds[:-1])


def expose_inner(index: GraphIndex, names: Collection[str]) -> Exposed:
    """Make values inside bodies (`@12/body/q`, `@12/body/q[3]`) values of the main graph."""
    if not names:
        return Exposed(index.model.copy())
    root = Demand(index)
    # requested name -> name without iterations: `@12/body/q[3]` -> `@12/body/q`
    places = {name: root.add(name) for name in names}
    for _, why in _obstacles(root):
        if why is not None:
            raise why
    exposer = _Exposer(index.model.copy())
    wires = exposer.graph(root, exposer.model.graph.node)
    # tables first: `read` needs them before the tensors
    wires.sort(key=lambda wire: wire.columns is None)
    by_place = {wire.place: wire for wire in wires}
    return Exposed(exposer.model, {name: by_place[place] for name, place in places.items()}, wires)


def exposable(
    index: GraphIndex, positions: Iterable[int] | None = None
) -> tuple[list[str], list[str]]:
    """Return (every inner value that can be exposed, a sentence for each that cannot); by default of all nodes.

    Only values that nodes produce count: the inputs of a body are values elsewhere.

    Raises:
        GraphError: a function calls itself.
    """
    check_functions(index.model.proto)
    root = Demand(index)
    for name in inner_values(index, positions):
        root.add(name)
    found = dict(_obstacles(root))
    names = [name for name, why in found.items() if why is None]
    return names, [why.message for why in found.values() if why is not None]


def known(index: GraphIndex, names: Iterable[str]) -> dict[str, str]:
    """Return the names that are inner values of the graph -> the same without iteration indices."""
    root = Demand(index)
    found = {}
    for name in names:
        if name not in index and BodyName.of(name):
            with suppress(UnknownNameError):
                found[name] = root.add(name)
    return found


def _obstacles(root: Demand) -> Iterator[tuple[str, EditError | None]]:
    """Yield every requested inner value, and the error if it cannot be exposed."""
    pending = [root]
    while pending:
        demand = pending.pop(0)
        pending += chain.from_iterable(bodies.values() for bodies in demand.inside.values())
        for value in demand.values:
            yield f"{demand.path}/{value}", _obstacle(demand, value)


def _obstacle(demand: Demand, value: str) -> EditError | None:
    """Return the error if a value of a body cannot be exposed."""
    name = f"{demand.path}/{value}"
    # a kind that is not If, Loop or Scan
    other = next((kind for kind in demand.kinds if kind not in BODIES), None)
    if other is not None:
        hint = f"only {', '.join(BODIES)} and functions expose their inner values"
        return EditError(f"{name!r} cannot be exposed from {other}", hint)
    kind = demand.index.type_of(value)
    least = _OPSET + 1 if is_sequence(kind) else _OPSET  # Identity passes sequences since then
    if demand.kinds and demand.index.opset < least:
        hint = f"convert the model first: onnxdbg edit opset MODEL {least}"
        what = f"at opset {demand.index.opset}, where If and Loop cannot pass sequences"
        return EditError(f"{name!r} cannot be exposed {what}", hint)
    if demand.kinds and not element_type(kind).elem_type:
        what = "its type is unknown" if kind is None else "it is not a tensor"
        hint = "expose a value that is computed from it"
        return EditError(f"{name!r} cannot be exposed from {demand.kinds[-1]}: {what}", hint)
    return None


class _Exposer:
    """Edits a model in place, inner bodies before the graph around them, so that positions stay valid."""

    def __init__(self, model: Model) -> None:
        self.model = model
        proto = model.proto
        self.taken = names_in(walk.graphs(proto))
        for function in proto.functions:
            self.taken.update(function.input, function.output, walk.outputs(function.node))
        self.operators = {(function.domain, function.name) for function in proto.functions}

    def graph(self, demand: Demand, nodes: MutableSequence[NodeProto]) -> list[Wire]:
        """Expose the requested inner values of a graph in that graph."""
        found = list[Wire]()
        # position -> new nodes before and after that node; inserted at the end, because positions must stay valid
        around = dict[int, tuple[NewNodes, NewNodes]]()
        for position, bodies in demand.inside.items():
            node = nodes[position]
            around[position] = NewNodes(self.taken), NewNodes(self.taken)
            if FUNCTION in bodies:
                wires = self._out_of_call(demand, node, bodies[FUNCTION])
            elif node.op_type == "If":
                wires = self._out_of_if(demand, node, bodies)
            else:
                wires = self._out_of_loop(demand, node, bodies["body"], *around[position])
            found += wires
        for position in sorted(around, reverse=True):  # from the last one
            before, after = around[position]
            for place, new in ((position + 1, after), (position, before)):
                for made in reversed(new.made):
                    nodes.insert(place, made)
        return found

    def _body(self, demand: Demand, nodes: MutableSequence[NodeProto], own: NewNodes) -> list[Wire]:
        """Return wires for the requested values of a body and of the bodies in it."""
        found = self.graph(demand, nodes)
        kinds = {value: demand.index.type_of(value) for value in demand.values}
        lists = {v for v, kind in kinds.items() if demand.kinds and is_sequence(kind)}
        table = ""
        if demand.values and (demand.needs_table or lists):
            table = fresh(demand.path, self.taken)
            # One row for each run of the body, without columns yet: each loop on the way out puts a column in front.
            row = own.constant([[]], f"{table}.row")
            found.append(Wire(table, row, place=demand.path, columns=0))
        # one wire for each value; values that are sequences get two
        for value, kind in kinds.items():
            place = f"{demand.path}/{value}"
            key = fresh(place, self.taken)
            wire = Wire(key, value, place, kind, loops=demand.loops, table=table)
            # A sequence goes out as its tensors; a second table says the place of each tensor in its sequence.
            if value in lists:
                elements = fresh(f"{place}.elements", self.taken)
                numbers = own.places(value, elements)
                found.append(Wire(elements, numbers, place=elements, columns=1))
                # the sequence may be an input of the body, and an output needs a name of its own
                whole = own.add("Identity", [value], f"{key}.all")
                wire = replace(wire, name=whole, many=True, elements=elements)
            found.append(wire)
        return found

    def _outside(self, demand: Demand, wire: Wire) -> str:
        """Return a wire's name in the graph around a body."""
        return fresh(f"{wire.key}.out", self.taken) if demand.path else wire.key

    def _out_of_if(
        self, demand: Demand, node: NodeProto, bodies: Mapping[str, Demand]
    ) -> list[Wire]:
        """A branch gives its values, the other branch gives nothing."""
        branches = dict(walk.bodies(node))
        found = []
        for body, inner in bodies.items():
            own = NewNodes(self.taken)
            for wire in self._body(inner, branches[body].node, own):
                # Both branches must have the same outputs: the other one gives an empty sequence, or a table without
                # rows.
                outside = wire.carried(self._outside(demand, wire))
                for name, branch in branches.items():
                    new = own if name == body else NewNodes(self.taken)
                    given = new.once(wire) if name == body else new.nothing(wire)
                    branch.output.append(outside.declared(given))
                    if new is not own:
                        branch.node.extend(new.made)
                node.output.append(outside.name)
                found.append(outside)
            branches[body].node.extend(own.made)
        return found

    def _out_of_loop(
        self, demand: Demand, node: NodeProto, inner: Demand, before: NewNodes, after: NewNodes
    ) -> list[Wire]:
        """Add a state that each iteration appends to; states stand before the Loop's stacked outputs."""
        graph = dict(walk.bodies(node))["body"]
        own = NewNodes(self.taken)
        wires = self._body(inner, graph.node, own)
        stacked = list[Stacked]()
        # A Scan cannot carry sequences, a Loop can.
        if node.op_type == "Scan":
            names, stacked = to_loop(node, graph, before, after)
            wires = [replace(wire, name=names.get(wire.name, wire.name)) for wire in wires]
            # its elements have new names now, under which the body's types do not know them
            old = {new: name for name, new in names.items()}
            for output in stacked:
                kind = inner.index.type_of(old.get(output.value, output.value))
                wires.append(self._collected(output, kind))
        node.input.extend([""] * (2 - len(node.input)))  # count and condition, possibly omitted
        states = len(node.input) - 2
        self._complete(node, len(graph.output) - 1)  # all outputs but the condition
        found = []
        # new states follow those that the Loop has; the condition is before them in the body
        for number, wire in enumerate(wires, states):
            outside = wire.numbered(self._outside(demand, wire))
            state = fresh(f"{wire.key}.before", self.taken)
            node.input.append(before.nothing(outside))
            graph.input.append(outside.declared(state))
            longer = own.appended(wire, state, graph.input[0].name)
            graph.output.insert(number + 1, outside.declared(longer))
            node.output.insert(number, outside.name)
            found.append(outside)
        # The last wires are the outputs that a Loop cannot stack: nodes after the Loop stack their tensors.
        for output in reversed(stacked):
            output.add(after, found.pop().name)
        graph.node.extend(own.made)
        return found

    def _collected(self, output: Stacked, kind: TypeProto | None) -> Wire:
        """Return the wire of an output that a Scan stacks along another dimension than the first."""
        wire = Wire(fresh(f"{output.name}.collected", self.taken), output.value, "", kind)
        if kind is None or wire.dtype != kind.tensor_type.elem_type:
            raise EditError(
                f"the Scan that stacks {output.name!r} along dimension {output.axis} cannot expose its inner values: "
                "the runtime has no sequences of this dtype",
                "use values of the main graph",
            )
        return wire

    def _out_of_call(self, demand: Demand, node: NodeProto, inner: Demand) -> list[Wire]:
        """Give this call its own copy of the function, with additional outputs."""
        original = function_of(demand.index, node)
        assert original is not None
        function = copied(original)
        function.overload = ""
        function.name = self._unused_operator(original)
        # the copy has no parameters: the attributes of the call are put in their places
        for declared in (function.node, function.attribute, function.attribute_proto):
            del declared[:]
        function.node.extend(bound_nodes(original, node))
        if "" not in opset_versions(function.opset_import):
            # the new nodes are ONNX's own
            function.opset_import.add(version=max(inner.index.opset, _OPSET))
        own = NewNodes(self.taken)
        wires = self._body(inner, function.node, own)
        self._complete(node, len(function.output))
        found = []
        for wire in wires:
            once = not wire.many and wire.columns is None  # it can already be an input or output
            given = own.add("Identity", [wire.name], f"{wire.key}.in") if once else wire.name
            function.output.append(given)
            outside = replace(wire, name=self._outside(demand, wire))
            node.output.append(outside.name)
            found.append(outside)
        function.node.extend(own.made)
        self.model.proto.functions.append(function)
        node.op_type, node.overload = function.name, ""
        del node.attribute[:]
        return found

    def _unused_operator(self, function: FunctionProto) -> str:
        names = {name for domain, name in self.operators if domain == function.domain}
        name = fresh(f"{function.name}_inner", names)
        self.operators.add((function.domain, name))
        return name

    def _complete(self, node: NodeProto, count: int) -> None:
        """Name the omitted outputs at the end of a node, so that others can follow."""
        # An output at the end can be left out, one in the middle cannot.
        while len(node.output) < count:
            node.output.append(fresh("unused", self.taken))
