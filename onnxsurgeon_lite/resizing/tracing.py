"""From the inputs on, every node asked what it makes of the sizes.

A dimension is given several sizes, and ONNX's inference says what a node makes of each. Where a node holds a constant
that was right for the model's own size alone, what it must be is derived from what the node reads (`rules`). A
constant that merely equals the size is never looked for, so it is never found.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, TypeProto, ValueInfoProto

from onnxsurgeon_lite import tensors, walk
from onnxsurgeon_lite.errors import ShapeError
from onnxsurgeon_lite.graph import GraphIndex, captured, check_functions
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.model.model import is_external
from onnxsurgeon_lite.resizing.inference import (
    MOST_ELEMENTS,
    Inference,
    State,
    sizes_of,
    tensor_state,
)
from onnxsurgeon_lite.resizing.plan import Plan, Scope, Symbol
from onnxsurgeon_lite.resizing.rules import RULES
from onnxsurgeon_lite.resizing.sizes import Size, constant
from onnxsurgeon_lite.resizing.visit import Again, Context, Told, Visit, Wanted

_MOST_ROUNDS = 1000


def trace(model: Model, symbols: Sequence[Symbol], told: Told | None = None) -> Plan:
    """Follow the symbols through the main graph and the bodies of If and Loop.

    Args:
        told: what operands of the main graph are known to hold at each trial (see `exports`).

    Raises:
        ShapeError: a node is in the way.
        GraphError: the graph has a cycle, or a function calls itself.
    """
    check_functions(model.proto)
    wanted: Wanted = {}
    for _ in range(_MOST_ROUNDS):
        tracer = _Tracer(model, list(symbols), wanted, told or {})
        try:
            tracer.main()
        except Again:
            continue
        return tracer.context.plan
    raise ShapeError("the sizes that nodes need of each other do not settle")


class _Tracer:
    def __init__(self, model: Model, symbols: list[Symbol], wanted: Wanted, told: Told) -> None:
        self.model = model
        self.trials = len(symbols[0].sizes)
        inference = Inference(model.proto, self.trials)
        self.declared: dict[str, ValueInfoProto] = {}
        self.context = Context(model, self.trials, Plan(symbols), wanted, told, inference)

    def main(self) -> None:
        """Trace the main graph, and the bodies that it holds."""
        index = GraphIndex.of(self.model)
        self.declared = index.declarations
        scope = Scope(index.graph, "")
        places = {place: s.sizes for s in self.context.plan.symbols for place in s.places}
        for info in index.graph.input:
            scope.states[info.name] = self._input(info, places)
        self._visit(scope, index.order)

    def _input(self, info: ValueInfoProto, places: Mapping[tuple[str, int], Size]) -> State:
        kind = info.type.tensor_type
        if not kind.HasField("shape"):
            return State((info.type,) * self.trials)
        sizes = [
            places.get((info.name, axis), constant(dim.dim_value, self.trials))
            for axis, dim in enumerate(kind.shape.dim)
        ]
        return tensor_state(kind.elem_type, sizes, self.trials)

    def _visit(self, scope: Scope, order: Sequence[int]) -> None:
        self.context.plan.scopes.append(scope)
        for tensor in scope.graph.initializer:
            scope.states[tensor.name] = self._constant(tensor)
        for sparse in scope.graph.sparse_initializer:
            sizes = [constant(dim, self.trials) for dim in sparse.dims]
            scope.states[sparse.values.name] = tensor_state(
                sparse.values.data_type, sizes, self.trials
            )
        nodes = list(scope.graph.node)
        for position in order:
            for name in nodes[position].output:
                scope.producers[name] = position
        for position in order:
            for name, state in zip(
                nodes[position].output,
                self._node(scope, position, nodes[position]),
                strict=False,
            ):
                scope.states[name] = state

    def _constant(self, tensor: TensorProto) -> State:
        sizes = [constant(dim, self.trials) for dim in tensor.dims]
        elements = int(np.prod(tensor.dims, dtype=np.int64))
        data = None
        if elements <= MOST_ELEMENTS and not is_external(tensor):
            array = tensors.to_array(tensor)
            data = (array,) * self.trials if array.dtype.kind in "iufb" else None
        return tensor_state(tensor.data_type, sizes, self.trials, data)

    def _node(self, scope: Scope, position: int, node: NodeProto) -> list[State]:
        standard = node.domain in ("", "ai.onnx")
        if standard and node.op_type == "If":
            return self._if(scope, position, node)
        if standard and node.op_type == "Loop":
            self._loop(scope, position, node)
        reads = {}
        for name in dict.fromkeys((*node.input, *captured(node))):
            state = scope.find(name) if name else None
            if state is not None:
                reads[name] = state
        if standard and node.op_type == "Constant":
            value = next((a for a in node.attribute if a.name == "value"), None)
            if value is not None:
                return [self._constant(value.t)]
        visit = Visit(self.context, scope, position, node, reads)
        if standard and node.op_type in RULES:
            RULES[node.op_type](visit)
        visit.be_told()
        states = visit.states()
        return [
            self._declared(scope, name, state, reads)
            for name, state in zip(node.output, states, strict=True)
        ]

    def _declared(self, scope: Scope, name: str, state: State, reads: Mapping[str, State]) -> State:
        """A state that inference does not know, from its declaration: axes keep their place in custom operators."""
        if sizes_of(state.types) is not None or scope.path:
            return state
        declared = self.declared.get(name)
        if declared is None or not declared.type.tensor_type.HasField("shape"):
            return state
        first = next((read for read in reads.values() if read.follows), None)
        known = (first and first.sizes()) or []
        sizes: list[Size] = []
        for axis, dim in enumerate(declared.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value"):
                return state
            size = known[axis] if axis < len(known) else None
            same = size is not None and size[0] == dim.dim_value
            sizes.append(size if size and same else constant(dim.dim_value, self.trials))
        return tensor_state(declared.type.tensor_type.elem_type, sizes, self.trials)

    def _if(self, scope: Scope, position: int, node: NodeProto) -> list[State]:
        branches = [self._body(scope, position, name, body, {}) for name, body in walk.bodies(node)]
        results = [[self._result(body, info) for info in body.graph.output] for body in branches]
        return [_either(states) for states in zip(*results, strict=True)]

    def _loop(self, scope: Scope, position: int, node: NodeProto) -> None:
        """Look for constants in the body, whose states have the sizes of their initial values."""
        name, body = walk.bodies(node)[0]
        given = {}
        for info, initial in zip(body.input[2:], node.input[2:], strict=True):
            state = scope.find(initial)
            if state is not None:
                given[info.name] = State(state.types, state.axes, None, state.follows)
        self._body(scope, position, name, body, given)

    def _body(
        self, outer: Scope, position: int, name: str, body: GraphProto, given: Mapping[str, State]
    ) -> Scope:
        path = f"{outer.path}/@{position}/{name}" if outer.path else f"@{position}/{name}"
        scope = Scope(body, path, outer)
        for info in body.input:
            scope.states[info.name] = given.get(info.name, State((info.type,) * self.trials))
        self._visit(scope, range(len(body.node)))
        return scope

    def _result(self, scope: Scope, info: ValueInfoProto) -> State:
        state = scope.find(info.name)
        return state if state is not None else State((info.type,) * self.trials)


def _either(states: Sequence[State]) -> State:
    """What holds whichever branch is taken."""
    first = states[0]
    if all(state.types == first.types for state in states):
        return State(first.types, first.axes, None, any(state.follows for state in states))
    types = []
    for kinds in zip(*(state.types for state in states), strict=True):
        kind = TypeProto()
        kind.CopyFrom(kinds[0])
        if kind.HasField("tensor_type"):
            kind.tensor_type.ClearField("shape")
        types.append(kind)
    return State(tuple(types), None, None, any(state.follows for state in states))
