"""Trace sizes from the inputs through every node.

Each dimension takes several sizes, and ONNX's inference computes each node's result for each. If a node holds a
constant that is right only for the model's own size, `rules` derives the new constant from the node's inputs. A
constant that equals the size by chance does not change.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from onnx import (
    FunctionProto,
    GraphProto,
    NodeProto,
    TensorProto,
    TensorShapeProto,
    TypeProto,
    ValueInfoProto,
)

from onnxsurgeon_lite.errors import ShapeError
from onnxsurgeon_lite.graph import (
    FUNCTION,
    GraphIndex,
    NodeRow,
    NodeTable,
    bound_nodes,
    constant_of,
    dims_of,
    opset_versions,
)
from onnxsurgeon_lite.model import (
    Model,
    assign,
    call_key,
    check_functions,
    copied,
    function_key,
    is_external,
    scan_layout,
    walk,
)
from onnxsurgeon_lite.surgery.resizing.inference import (
    MOST_ELEMENTS,
    SizeInference,
    State,
    tensor_state,
)
from onnxsurgeon_lite.surgery.resizing.plan import ResizePlan, Scope, Symbol
from onnxsurgeon_lite.surgery.resizing.rules import RULES
from onnxsurgeon_lite.surgery.resizing.sizes import Axis, Size, constant, product, varies
from onnxsurgeon_lite.surgery.resizing.visit import Demands, Hints, TraceContext, Visit
from onnxsurgeon_lite.tensors import dtypes

_MOST_ROUNDS = 1000
_SCAN = 9  # the first opset in which a Scan reads along any axis and has no batch axis


class Called(Exception):
    """A function contains something that must change; inline it and trace the model again."""

    def __init__(self, function: FunctionProto) -> None:
        super().__init__(function.name)
        self.function = function


def trace(model: Model, symbols: Sequence[Symbol], hints: Hints | None) -> ResizePlan:
    """Trace the symbols through the main graph, the bodies of its nodes, and the functions that they call.

    Args:
        hints: known elements of operands of the main graph at each trial (see `exports`).
    """
    check_functions(model.proto)
    demands: Demands = {}
    inference = SizeInference(model.proto, len(symbols[0].sizes))
    # A round ends early where a node needs another size of an earlier one; the next round knows that demand.
    for _ in range(_MOST_ROUNDS):
        tracer = _Tracer(model, list(symbols), demands, hints, inference)
        tracer.main()
        if not tracer.context.outdated:
            return tracer.context.plan
    raise ShapeError("the sizes that nodes need from each other do not converge")


class _Tracer:
    def __init__(
        self,
        model: Model,
        symbols: list[Symbol],
        demands: Demands,
        hints: Hints | None,
        inference: SizeInference,
    ) -> None:
        self.index = GraphIndex.of(model)
        self.trials = inference.trials
        versions = opset_versions(model.proto.opset_import).items()
        self.functions = {  # functions with the same operators; others are inferred as a whole
            function_key(function): function
            for function in model.proto.functions
            if opset_versions(function.opset_import).items() <= versions
        }
        self.with_bodies = {"If": self._if, "Loop": self._loop}
        if self.index.opset >= _SCAN:
            self.with_bodies["Scan"] = self._scan
        # Nodes without attributes that read the same states make the same states. The key has the identities of these,
        # so they are kept, beside what the node makes.
        self.made = dict[Hashable, tuple[list[State], list[State | None]]]()
        self.context = TraceContext(
            model, self.trials, ResizePlan(symbols), demands, hints, inference
        )

    def main(self) -> None:
        """Trace the main graph and its bodies."""
        index = self.index
        scope = Scope(index.graph, "")
        # (input, axis) -> its size at each trial
        places = {place: s.sizes for s in self.context.plan.symbols for place in s.places}
        for info in index.graph.input:
            scope.states[info.name] = self._input(info, places)
        self._visit(scope, index.rows, index.order)

    def _input(self, info: ValueInfoProto, places: Mapping[tuple[str, int], Size]) -> State:
        kind = info.type.tensor_type
        if not kind.HasField("shape"):
            return State((info.type,) * self.trials)
        sizes = [
            places.get((info.name, axis), constant(dim.dim_value, self.trials))
            for axis, dim in enumerate(kind.shape.dim)
        ]
        return tensor_state(kind.elem_type, sizes, self.trials)

    def _visit(self, scope: Scope, rows: Sequence[NodeRow], order: Sequence[int]) -> None:
        self.context.plan.scopes.append(scope)
        for tensor in scope.graph.initializer:
            scope.states[tensor.name] = self._constant(tensor)
        for sparse in scope.graph.sparse_initializer:
            sizes = [constant(dim, self.trials) for dim in sparse.dims]
            scope.states[sparse.values.name] = tensor_state(
                sparse.values.data_type, sizes, self.trials
            )
        nodes = list(scope.graph.node)
        for position in order:  # position of the node that makes each value
            for name in rows[position].outputs:
                scope.producers[name] = position
        for position in order:
            if self.context.outdated:  # the rest of this round is of no use
                return
            row = rows[position]
            made = self._node(scope, position, nodes[position], row)
            scope.states.update(zip(row.outputs, made, strict=False))

    def _constant(self, tensor: TensorProto) -> State:
        sizes = [constant(dim, self.trials) for dim in tensor.dims]
        elements = math.prod(tensor.dims)
        data = None
        # what inference and rules can read as numbers
        if elements <= MOST_ELEMENTS and not is_external(tensor):
            array = dtypes.to_array(tensor)
            data = (array,) * self.trials if array.dtype.kind in "iufb" else None
        return tensor_state(tensor.data_type, sizes, self.trials, data)

    def _node(self, scope: Scope, position: int, node: NodeProto, row: NodeRow) -> list[State]:
        operator = "" if row.domain else row.op_type
        names = row.needs
        found = [scope.find(name) if name else None for name in names]
        # By identity of what it reads: most nodes of a large model read the few states that others read, too.
        alike = operator, *map(id, found), *map(bool, names), len(row.outputs)
        if alike in self.made and not node.attribute:
            return self.made[alike][0]
        reads = {n: state for n, state in zip(names, found, strict=True) if state is not None}
        visit = Visit(scope, position, self.context, node, reads)
        follows = any(state.follows for state in reads.values())
        # a function that nothing changing enters can stay as it is
        if follows and self.functions and call_key(node) in self.functions:
            return self._call(visit)
        if operator in self.with_bodies:
            states = self.with_bodies[operator](visit)
            return [replace(state, follows=follows or state.follows) for state in states]
        held = constant_of(node)
        if held is not None:
            return [self._constant(held)]
        if operator in RULES:  # rules repair the operands before inference
            RULES[operator](visit)
        if self.context.outdated:
            return []
        visit.take_hints()
        states = visit.states()
        if self._is_usual(visit, operator, states):
            self.made[alike] = states, found
        return [
            self._declared(scope, name, state, reads)
            for name, state in zip(node.output, states, strict=True)
        ]

    def _is_usual(self, visit: Visit, operator: str, states: Sequence[State]) -> bool:
        """Return whether nodes without attributes that read what this one does make the same, and stay as they are."""
        own = visit.node.attribute or visit.overrides or self.functions or self.context.hints
        known = all(state.shape is not None for state in states)
        return known and not own and operator not in RULES and all(visit.node.output)

    def _declared(self, scope: Scope, name: str, state: State, reads: Mapping[str, State]) -> State:
        """Complete an unknown state from its declaration: custom operators are assumed to keep the axes."""
        if state.shape is not None or scope.path:
            return state
        declared = self.index.declarations.get(name)
        if declared is None or not declared.type.tensor_type.HasField("shape"):
            return state
        first = next((read for read in reads.values() if read.follows), None)
        known = (first and first.sizes()) or []
        # Each axis that has the own size of the same axis of the first changing input is taken to be that axis.
        sizes = list[Size]()
        for axis, dim in enumerate(declared.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value"):
                return state
            size = known[axis] if axis < len(known) else None
            same = size is not None and size[0] == dim.dim_value
            sizes.append(size if size and same else constant(dim.dim_value, self.trials))
        return tensor_state(declared.type.tensor_type.elem_type, sizes, self.trials)

    def _if(self, visit: Visit) -> list[State]:
        bodies = [self._body(visit, name, graph, {}) for name, graph in walk.bodies(visit.node)]
        return [either(states) for states in zip(*map(self._results, bodies), strict=True)]

    def _loop(self, visit: Visit) -> list[State]:
        name, graph = walk.bodies(visit.node)[0]
        # the first two inputs are the number and the condition
        states = {info.name: slot for slot, info in enumerate(graph.input) if slot > 1}
        given = self._carried(visit, name, states)
        results = self._results(self._body(visit, name, graph, given))[1:]  # without the condition
        kept = self._kept(visit, name, given, results)
        return kept + [stacked(state, 0, None) for state in results[len(kept) :]]

    def _scan(self, visit: Visit) -> list[State]:
        name, graph = walk.bodies(visit.node)[0]
        count = len(visit.node.input) - visit.attribute("num_scan_inputs", 0)
        names = {info.name: slot for slot, info in enumerate(graph.input)}
        # states first, then what is read along an axis
        given = self._carried(visit, name, dict(islice(names.items(), count)))
        axes, _ = scan_layout(visit.node, "input", len(names) - count)
        whole = [visit.read(slot) or self._unknown() for slot in range(count, len(names))]
        slices = dict(zip(islice(names, count, None), map(sliced, whole, axes), strict=True))
        results = self._results(self._body(visit, name, graph, given | slices))
        kept = self._kept(visit, name, given, results)
        places, _ = scan_layout(visit.node, "output", len(results) - count)
        # the number of iterations
        trips = whole[0].axes[axes[0]] if whole and whole[0].axes is not None else None
        return kept + [
            stacked(state, axis, trips) for state, axis in zip(results[count:], places, strict=True)
        ]

    def _carried(self, visit: Visit, body: str, slots: Mapping[str, int]) -> dict[str, State]:
        """Return the initial loop states, expanded to the sizes that the body needs."""
        path = f"{visit.place}/{body}"
        given = {}
        for name, slot in slots.items():
            # a later round: the body made a state larger than it came in
            for axis, size in self.context.demands.get((path, name), {}).items():
                if (visit.sizes(slot) or [])[axis : axis + 1] != [size]:
                    visit.demand(slot, axis, size)
            # a state has other numbers in each iteration
            given[name] = replace(visit.read(slot) or self._unknown(), data=None)
        return given

    def _kept(
        self, visit: Visit, body: str, given: Mapping[str, State], results: Sequence[State]
    ) -> list[State]:
        """Return the states after the last iteration; demand initial sizes that fit a size that the body changes."""
        for (name, before), after in zip(given.items(), results, strict=False):
            for axis, size in enumerate(grown(before, after)):
                if size is not None:
                    visit.demand_next(f"{visit.place}/{body}", name, axis, size)
        return [either(pair) for pair in zip(given.values(), results, strict=False)]

    def _unknown(self) -> State:
        return State((TypeProto(),) * self.trials)

    def _call(self, visit: Visit) -> list[State]:
        """Trace the nodes of a function; they cannot change, because other calls share them."""
        function = self.functions[call_key(visit.node)]
        graph = GraphProto(name=function.name, node=bound_nodes(function, visit.node))
        body = Scope(graph, f"{visit.place}/{FUNCTION}")
        for slot, name in enumerate(function.input):
            body.states[name] = visit.read(slot) or self._unknown()
        plan = self.context.plan
        before = len(plan.refills), len(plan.stretches)  # were there changes within the function?
        try:
            self._visit(body, NodeTable(graph.node).rows, range(len(graph.node)))
        except ShapeError as error:
            raise Called(function) from error
        if not self.context.outdated and before != (len(plan.refills), len(plan.stretches)):
            raise Called(function)
        return [body.find(name) or self._unknown() for name in function.output]

    def _body(
        self, visit: Visit, name: str, graph: GraphProto, given: Mapping[str, State]
    ) -> Scope:
        scope = Scope(graph, f"{visit.place}/{name}", visit.scope, carried=frozenset(given))
        for info in graph.input:
            scope.states[info.name] = given.get(info.name, State((info.type,) * self.trials))
        self._visit(scope, NodeTable(graph.node).rows, range(len(graph.node)))
        return scope

    def _results(self, scope: Scope) -> list[State]:
        return [
            scope.find(info.name) or State((info.type,) * self.trials)
            for info in scope.graph.output
        ]


def either(states: Sequence[State]) -> State:
    """Return the state that holds for any branch, and for any number of iterations of a body that keeps its sizes."""
    first = states[0]
    follows = any(state.follows for state in states)
    if all(state.types == first.types for state in states):  # all branches agree
        return State(first.types, first.axes, None, follows)
    return replace(_unshaped(first), follows=follows)


def grown(before: State, after: State) -> list[Size | None]:
    """Return the new size of each axis whose fixed size becomes one that depends on a changed dimension, else None."""
    sizes, results = before.sizes(), after.sizes()
    if sizes is None or results is None or len(sizes) != len(results):
        return []
    return [
        there if here and there and varies(there) and here == (there[0],) * len(there) else None
        for here, there in zip(sizes, results, strict=True)
    ]


def sliced(state: State, axis: int) -> State:
    """Return the state of one element that a Scan reads along an axis."""
    if not state.axes:  # unknown rank, or none
        return _unshaped(state)
    axes = list(state.axes)
    place = axis % len(axes)
    del axes[place]
    types = []
    for whole in state.types:
        kind = copied(whole)
        del kind.tensor_type.shape.dim[place]
        types.append(kind)
    return State(tuple(types), tuple(axes), None, state.follows)


def stacked(state: State, axis: int, count: Axis | None) -> State:
    """Return the state of a body's results stacked along a new axis.

    Args:
        count: the number of iterations at each trial, if known.
    """
    if state.axes is None:
        return _unshaped(state)
    axes = list(state.axes)
    place = axis % (len(axes) + 1)
    axes.insert(place, count)
    numbers = [None] * len(state.types) if count is None else list(product(count))
    types = []
    for one, number in zip(state.types, numbers, strict=True):
        kind = copied(one)
        dims = list(dims_of(one))
        dims.insert(place, TensorShapeProto.Dimension(dim_value=number))
        assign(kind.tensor_type.shape.dim, dims)
        types.append(kind)
    return State(tuple(types), tuple(axes), None, state.follows)


def _unshaped(state: State) -> State:
    """Return the state of a value of the same dtype and of unknown rank."""
    types = tuple(map(copied, state.types))
    for kind in types:
        if kind.HasField("tensor_type"):
            kind.tensor_type.ClearField("shape")
    return State(types, follows=state.follows)
