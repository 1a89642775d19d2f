"""One node on the way: its operands at every trial, their repair, and what the node makes of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx import NodeProto, TypeProto

from onnxsurgeon_lite.errors import ShapeError
from onnxsurgeon_lite.graph.index import captured
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.model.messages import copied
from onnxsurgeon_lite.surgery.resizing.inference import (
    Inference,
    InferenceFailed,
    State,
    tensor_state,
)
from onnxsurgeon_lite.surgery.resizing.plan import Entry, Plan, Refill, Scope, Stretch
from onnxsurgeon_lite.surgery.resizing.sizes import Axis, Size, constant, varies
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array

Demands = dict[tuple[str, str], dict[int, Size]]
"""(path of the graph, value) -> axis -> the size that a consumer needs."""

Hints = dict[tuple[int, int], list[Size] | ShapeError]
"""(node of the main graph, slot) -> the elements of the operand, or why they are not known."""

_CARRIED = ("Identity", "Cast")
_SOURCES = ("Expand", "ConstantOfShape", "Tile")


@dataclass
class TraceContext:
    """What all nodes of one trace share.

    Attributes:
        outdated: whether a node that was passed must produce another size, which `wanted` holds now; nothing that this
            trace finds after that counts.
    """

    model: Model
    trials: int
    plan: Plan
    wanted: Demands
    told: Hints
    inference: Inference
    outdated: bool = False


@dataclass
class Visit:
    """One node, with what it reads; rules of operators that hold sizes repair it before its outputs are inferred."""

    context: TraceContext
    scope: Scope
    position: int
    node: NodeProto
    reads: dict[str, State]
    overrides: dict[int, State] = field(default_factory=dict)
    axes: list[Axis] | None = None  # the first output's, where a rule knows more than inference

    @property
    def trials(self) -> int:
        """The number of trials."""
        return self.context.trials

    @property
    def plan(self) -> Plan:
        """What was found so far."""
        return self.context.plan

    @property
    def place(self) -> str:
        """The node's id."""
        return self.scope.place(self.position)

    def shown(self, sizes: Sequence[Size]) -> str:
        """Sizes as a message shows them."""
        return f"[{', '.join(map(self.plan.text, sizes))}]"

    def states(self) -> list[State]:
        """What the node makes of its operands, those that no longer fit repaired.

        Raises:
            ShapeError: the node is in the way.
        """
        node = self.node
        patched, reads = self._named_apart()
        try:
            states = self.context.inference.states(patched, reads)
        except InferenceFailed as failure:
            if failure.trial == 0 or not any(state.follows for state in self.reads.values()):
                return [self._unknown() for _ in node.output]  # nor would it be known without us
            self._level()
            if self.context.outdated:
                return [self._unknown() for _ in node.output]
            patched, reads = self._named_apart()
            try:
                states = self.context.inference.states(patched, reads)
            except InferenceFailed:
                raise self.blocked("its inputs no longer fit together", str(failure)) from failure
        if self.axes is not None and states[0].axes is not None:
            states[0] = State(states[0].types, tuple(self.axes), states[0].data, states[0].follows)
        return states

    def _named_apart(self) -> tuple[NodeProto, dict[str, State]]:
        """The node with repaired operands under names of their own, and what it reads."""
        if not self.overrides:
            return self.node, self.reads
        node = copied(self.node)
        reads = dict(self.reads)
        for slot, state in self.overrides.items():
            node.input[slot] = f"{node.input[slot]}\x01{slot}"
            reads[node.input[slot]] = state
        unused = set(self.reads) - {*node.input, *captured(node)}
        return node, {name: state for name, state in reads.items() if name not in unused}

    def _unknown(self) -> State:
        follows = any(state.follows for state in self.reads.values())
        return State((TypeProto(),) * self.trials, None, None, follows)

    def blocked(self, what: str, detail: str = "", hint: str = "") -> ShapeError:
        """The node is in the way."""
        error = ShapeError(
            f"{self.scope.describe(self.position)} is in the way: {what}",
            hint or "look at it with onnxdbg inspect --node; it may need its size by design",
        )
        if detail:
            error.add_note(detail.splitlines()[0].partition("[ShapeInferenceError] ")[2] or detail)
        return error

    def read(self, slot: int) -> State | None:
        """The state of an operand."""
        if slot in self.overrides:
            return self.overrides[slot]
        name = self.node.input[slot] if slot < len(self.node.input) else ""
        return self.reads.get(name)

    def sizes(self, slot: int) -> list[Size] | None:
        """The sizes of an operand's axes, where all are known."""
        state = self.read(slot)
        sizes = state.sizes() if state is not None else None
        if sizes is None or None in sizes:
            return None
        return [size for size in sizes if size is not None]

    def elements(self, slot: int) -> list[Size] | None:
        """The elements of a small operand at each trial."""
        state = self.read(slot)
        if state is None or state.data is None:
            return None
        columns = [array.reshape(-1).tolist() for array in state.data]
        return list(zip(*columns, strict=True)) if len({*map(len, columns)}) == 1 else None

    def attribute(self, name: str, default: int) -> int:
        """An integer attribute."""
        return next((a.i for a in self.node.attribute if a.name == name), default)

    def wanted(self) -> dict[int, Size]:
        """The sizes that consumers need of the first output's axes."""
        return self.context.wanted.get((self.scope.path, self.node.output[0]), {})

    def refill(
        self, slot: int, entries: Sequence[Entry], effect: Sequence[Size], reason: str
    ) -> None:
        """Have a shape operand hold `entries`, which mean the sizes `effect`."""
        state = self.read(slot)
        if state is None or state.data is None:
            return
        before = tuple(int(n) for n in state.data[0].reshape(-1))
        self.plan.refills.append(
            Refill(self.scope, self.position, slot, before, tuple(entries), reason)
        )
        dtype = state.data[0].dtype
        data = tuple(
            np.array([size[trial] for size in effect], dtype) for trial in range(self.trials)
        )
        sizes = [constant(len(effect), self.trials)]
        kind = dtypes.data_type_of_numpy(dtype)
        filled = tensor_state(kind, sizes, self.trials, data)
        self.overrides[slot] = State(filled.types, filled.axes, filled.data, True)

    def note_kept(self, slot: int, own: Sequence[int], effect: Sequence[Size]) -> None:
        """Say which elements equal a size that changes, and are something else."""
        changing = {
            s.own: s.name or "what changes" for s in self.plan.symbols if s.changes and s.own != 1
        }
        for place, (number, size) in enumerate(zip(own, effect, strict=True)):
            if number in changing and not varies(size):
                self.plan.kept.append(
                    f"the {number} at [{place}] of {self.node.input[slot]!r} stays at "
                    f"{self.scope.describe(self.position)}: it is not {changing[number]}"
                )

    def be_told(self) -> None:
        """Have shape operands hold what is known from elsewhere, where no rule knew."""
        told = self.context.told if not self.scope.path else {}
        for slot in range(len(self.node.input)) if told else ():
            effect = told.get((self.position, slot))
            if effect is None or slot in self.overrides:
                continue
            if isinstance(effect, ShapeError):
                raise effect
            state = self.read(slot)
            if state is not None and len(state.sizes() or ()) != 1:
                raise self.blocked(f"operand {slot} differs between the exports and is no shape")
            entries = [self.plan.settled(size) for size in effect]
            self.refill(slot, entries, effect, "it differs between the exports")

    def demand(self, slot: int, axis: int, size: Size, broadcasts: bool = False) -> None:
        """Have an operand that does not follow get a size along an axis: at its source, or by an Expand here.

        Args:
            broadcasts: the node expands an operand of size 1 by itself.

        Raises:
            ShapeError: the operand cannot follow.
        """
        if self.context.outdated:
            return
        name = self.node.input[slot]
        source = self._source(name, axis)
        if source is not None:
            self.want(self.scope.path, source, axis, size)
            return
        sizes = self.sizes(slot)
        repeats = size[0] > 1
        if repeats:
            self._require_repeating(name, axis)
        if sizes is None:
            raise self.blocked(f"the size of {name!r} is unknown")
        self.plan.stretches.append(
            Stretch(
                self.scope,
                self.position,
                slot,
                axis,
                len(sizes),
                1 if repeats and broadcasts else self.plan.settled(size),
                repeats,
                f"{name!r} does not follow, and here it must be as long as what does",
            )
        )
        sizes[axis] = constant(1, self.trials) if repeats and broadcasts else size
        state = self.read(slot)
        kind = state.types[0].tensor_type.elem_type if state is not None else 0
        self.overrides[slot] = tensor_state(kind, sizes, self.trials)

    def want(self, path: str, name: str, axis: int, size: Size) -> None:
        """Have a value of a graph get this size, in the trace after this one."""
        if not self.context.outdated:
            self.context.wanted.setdefault((path, name), {})[axis] = size
            self.context.outdated = True

    def _source(self, name: str, axis: int) -> str | None:
        """What has its size from a shape operand, or from outside the body, when the operand comes from it."""
        while (position := self.scope.producers.get(name)) is not None:
            node = self.scope.graph.node[position]
            if node.op_type in _CARRIED:
                name = node.input[0]
                continue
            return name if node.op_type in _SOURCES and self._is_new(name, axis) else None
        return name if name in self.scope.carried and self._is_new(name, axis) else None

    def _is_new(self, name: str, axis: int) -> bool:
        return axis not in self.context.wanted.get((self.scope.path, name), {})

    def _require_repeating(self, name: str, axis: int) -> None:
        """Refuse an operand that an input determines, or a constant that holds more than one slice again and again."""
        state = self.reads.get(name)
        if state is not None and state.follows:
            raise self.blocked(
                f"{name!r} must follow, and its size is fixed on the way; an export at another size "
                "may tell how (--two-exports)"
            )
        given = self._inputs_of(name)
        if given:
            raise self.blocked(f"{name!r} must follow too: it comes from input {given[0]!r}")
        array = self._array(name)
        if array is not None and (array != np.take(array, [0], axis)).any():
            raise self.blocked(
                f"constant {name!r} holds something else at each place of axis {axis}",
                hint="it was computed for one size (a mask, positions): keep that size, "
                "or export the model with this dimension dynamic",
            )

    def _array(self, name: str) -> Array | None:
        """A constant's numbers; None for what is computed and not small: running shows what it holds."""
        state = self.reads.get(name)
        if state is not None and state.data is not None:
            return state.data[0]
        tensor = next((t for t in self.scope.graph.initializer if t.name == name), None)
        return None if tensor is None else self.context.model.array(tensor)

    def _inputs_of(self, name: str) -> list[str]:
        """The inputs without a default, of the graph or of a body, that a value of this graph depends on."""
        graph = self.scope.graph
        seen, pending, found = set[str](), [name], []
        while pending:
            name = pending.pop()
            position = self.scope.producers.get(name)
            if name in seen:
                continue
            seen.add(name)
            if position is not None:
                node = graph.node[position]
                pending += [*node.input, *captured(node)]
            elif any(info.name == name for info in graph.input):
                found.append(name)
        held = {tensor.name for tensor in graph.initializer}
        return [name for name in found if name not in held]

    def _level(self) -> None:
        """Have operands that are as long as the model's own size follow, where others do."""
        if self.node.op_type == "Concat":
            self._level_aligned(from_right=False, skip=self.attribute("axis", 0))
        elif self.node.op_type == "MatMul":
            self._level_aligned(from_right=True, last=2)
        else:
            self._level_aligned(from_right=True)

    def _level_aligned(self, from_right: bool, skip: int | None = None, last: int = 0) -> None:
        known = {slot: self.sizes(slot) for slot in range(len(self.node.input))}
        shapes = {slot: sizes for slot, sizes in known.items() if sizes}
        longest = max(map(len, shapes.values()), default=0)
        for place in range(longest - last):
            if skip is not None and place == skip % longest:
                continue
            there = {
                slot: place - (longest - len(sizes) if from_right else 0)
                for slot, sizes in shapes.items()
            }
            at = {slot: axis for slot, axis in there.items() if 0 <= axis < len(shapes[slot])}
            leader = next((shapes[s][a] for s, a in at.items() if varies(shapes[s][a])), None)
            for slot, axis in at.items():
                size = shapes[slot][axis]
                strict = not from_right or size[0] != 1
                if leader and not varies(size) and size[0] == leader[0] and strict:
                    self.demand(slot, axis, leader, broadcasts=from_right)
