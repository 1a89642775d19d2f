"""Trace one node: read its operands at every trial, repair them, and infer its outputs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from onnx import NodeProto, TensorProto, TypeProto

from onnxsurgeon_lite.errors import ShapeError
from onnxsurgeon_lite.graph import constant_of, every_read
from onnxsurgeon_lite.model import Model, copied, integer, operand
from onnxsurgeon_lite.surgery.resizing.inference import (
    InferenceFailed,
    SizeInference,
    State,
    tensor_state,
)
from onnxsurgeon_lite.surgery.resizing.plan import Entry, Ramp, Refill, ResizePlan, Spot, Stretch
from onnxsurgeon_lite.surgery.resizing.sizes import Axis, Size, constant, varies
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array

Demands = dict[tuple[str, str], dict[int, Size]]
"""(path of the graph, value) -> axis -> the size that a consumer needs."""

Hints = dict[tuple[int, int], list[Size] | ShapeError]
"""(node of the main graph, slot) -> the elements of the operand, or the error if they are unknown."""

_CARRIED = ("Identity", "Cast")  # what follows the size of their input
_SUMS: dict[str, Callable[..., Array]] = {
    "Add": np.add, "Mul": np.multiply, "Identity": np.asarray,
}  # fmt: skip
_SOURCES = ("Expand", "ConstantOfShape", "Tile")  # what gets its size from an operand


@dataclass
class TraceContext:
    """The state that all nodes of one trace share.

    Attributes:
        hints: from a second export; None without one.
        outdated: an earlier node must produce another size, now in `demands`; the rest of this trace is ignored.
    """

    model: Model
    trials: int
    plan: ResizePlan
    demands: Demands
    hints: Hints | None
    inference: SizeInference
    outdated: bool = False


@dataclass
class Visit(Spot):
    """One node and its inputs; rules for operators that hold sizes repair the inputs before inference."""

    context: TraceContext
    node: NodeProto
    reads: dict[str, State]
    overrides: dict[int, State] = field(default_factory=dict)
    axes: list[Axis] | None = None  # of the first output, if a rule knows more than inference

    @property
    def trials(self) -> int:
        return self.context.trials

    @property
    def plan(self) -> ResizePlan:
        return self.context.plan

    @property
    def one(self) -> Size:
        return constant(1, self.trials)

    def shown(self, sizes: Sequence[Size]) -> str:
        """Return the text of sizes for messages."""
        return f"[{', '.join(map(self.plan.text, sizes))}]"

    def states(self) -> list[State]:
        """Return the states of the node's outputs, after repairing operands that no longer fit."""
        node = self.node
        patched, reads = self._named_apart()
        try:
            states = self.context.inference.states(patched, reads)
        except InferenceFailed as failure:
            if failure.trial == 0 or not any(state.follows for state in self.reads.values()):
                # inference fails on the original model too
                self.plan.unfit += failure.trial == 0
                return [self._unknown() for _ in node.output]
            if failure.weight:
                raise self.blocked(failure.weight) from failure
            # let operands grow that have the own size, and try once more; the matrices of a MatMul stay
            level_aligned(self, from_right=True, last=2 if node.op_type == "MatMul" else 0)
            if self.context.outdated:
                return [self._unknown() for _ in node.output]
            patched, reads = self._named_apart()
            try:
                states = self.context.inference.states(patched, reads)
            except InferenceFailed:
                raise self.blocked("its inputs no longer fit together", str(failure)) from failure
        if self.axes is not None and states[0].axes is not None:  # factors that a rule knows better
            states[0] = replace(states[0], axes=tuple(self.axes))
        return states

    def _named_apart(self) -> tuple[NodeProto, dict[str, State]]:
        """Return the node with distinct names for repaired operands, and the states of its inputs."""
        if not self.overrides:
            return self.node, self.reads
        node = copied(self.node)
        reads = dict(self.reads)
        # A value that the node reads twice may be repaired at one slot only.
        for slot, state in self.overrides.items():
            node.input[slot] = f"{node.input[slot]}\x01{slot}"
            reads[node.input[slot]] = state
        # names that the repaired node does not read any more
        unused = set(self.reads).difference(every_read(node))
        return node, {name: state for name, state in reads.items() if name not in unused}

    def _unknown(self) -> State:
        follows = any(state.follows for state in self.reads.values())
        return State((TypeProto(),) * self.trials, None, None, follows)

    def blocked(self, what: str, detail: str = "", hint: str = "") -> ShapeError:
        """Return the error for a node that blocks the change."""
        error = ShapeError(
            f"{self} blocks the change: {what}",
            hint
            or f"look at it: onnxdbg inspect MODEL --node {self.place}; it may need its size by design",
        )
        if detail:
            error.add_note(detail.splitlines()[0].partition("[ShapeInferenceError] ")[2] or detail)
        return error

    def read(self, slot: int) -> State | None:
        if slot in self.overrides:
            return self.overrides[slot]
        return self.reads.get(operand(self.node, slot))

    def sizes(self, slot: int) -> list[Size] | None:
        """Return the sizes of an operand's axes, if all are known."""
        state = self.read(slot)
        sizes = state.sizes() if state is not None else None
        if sizes is None or None in sizes:
            return None
        return [size for size in sizes if size is not None]

    def elements(self, slot: int) -> list[Size] | None:
        """Return the elements of a small operand at each trial."""
        state = self.read(slot)
        if state is None or state.data is None:
            return None
        columns = [array.ravel().tolist() for array in state.data]
        return list(zip(*columns, strict=True)) if len(set(map(len, columns))) == 1 else None

    def attribute(self, name: str, default: int) -> int:
        return integer(self.node, name, default)

    def demanded(self) -> dict[int, Size]:
        """Return the sizes that consumers need of the first output's axes."""
        return self.context.demands.get((self.scope.path, self.node.output[0]), {})

    def refill(
        self,
        slot: int,
        effect: Sequence[Size],
        reason: str,
        entries: Iterable[Entry] | None = None,
    ) -> None:
        """Replace a shape operand by these sizes, written as `entries`."""
        state = self.read(slot)
        if state is None or state.data is None:
            return
        before = tuple(map(int, state.data[0].ravel()))  # for the message
        written = tuple(map(self.plan.fixed, effect) if entries is None else entries)
        self.plan.refills.append(Refill(self.scope, self.position, slot, before, written, reason))
        # From now on, this node reads the new elements.
        dtype = state.data[0].dtype
        data = tuple(
            np.array([size[trial] for size in effect], dtype) for trial in range(self.trials)
        )
        sizes = [constant(len(effect), self.trials)]
        kind = dtypes.data_type_of_numpy(dtype)
        self.overrides[slot] = replace(tensor_state(kind, sizes, self.trials, data), follows=True)

    def count(
        self, slot: int, axis: int, base: Array, step: Array, size: Size, onto: bool = False
    ) -> None:
        """Replace a constant by one that counts in steps along an axis of this size, or add that to an operand."""
        entry = self.plan.fixed(size)
        ramp = Ramp(self.scope, self.position, slot, axis, base, step, entry, onto)
        self.plan.stretches.append(ramp)
        given = self.sizes(slot) if onto else None
        sizes = given or [constant(n, self.trials) for n in base.shape]
        sizes[axis] = size
        self.overrides[slot] = tensor_state(TensorProto.INT64, sizes, self.trials)

    def note_kept(self, slot: int, own: Sequence[int], effect: Sequence[Size]) -> None:
        """Note the elements that equal a changing size but do not depend on it."""
        changing = {
            s.own: s.name or "the change" for s in self.plan.symbols if s.changes and s.own != 1
        }
        for place, (number, size) in enumerate(zip(own, effect, strict=True)):
            if number in changing and not varies(size):
                self.plan.kept.append(
                    f"kept {number} at {self.node.input[slot]!r}[{place}] of "
                    f"{self}: it does not depend on {changing[number]}"
                )

    def take_hints(self) -> None:
        """Apply hints to shape operands that no rule has changed."""
        hints = {} if self.scope.path else self.context.hints or {}
        for slot in range(len(self.node.input)) if hints else ():  # hints are for the main graph
            effect = hints.get((self.position, slot))
            if effect is None or slot in self.overrides:
                continue
            if isinstance(effect, ShapeError):
                raise effect
            state = self.read(slot)
            if state is not None and len(state.sizes() or ()) != 1:
                raise self.blocked(f"operand {slot} differs between the exports and is not a shape")
            self.refill(slot, effect, "it differs between the exports")

    def demand(self, slot: int, axis: int, size: Size, broadcasts: bool = False) -> None:
        """Require a size along an axis of a fixed operand: at its source, or by an Expand here.

        Args:
            broadcasts: the node itself expands an operand of size 1.
        """
        if self.context.outdated:
            return
        # First choice: let the node that makes the operand make it larger. Then: count on, if the operand counts.
        # Else repeat it here.
        name = self.node.input[slot]
        source = self._source(name, axis)
        if source is not None:
            self.demand_next(self.scope.path, source, axis, size)
            return
        sizes = self.sizes(slot)
        repeats = size[0] > 1  # an operand of size 1 can be expanded whatever it holds
        needed = self.one if repeats and broadcasts else size  # the node itself expands one slice
        array = self.array(name) if repeats else None
        if array is not None and array.dtype == np.int64:
            base = array.take([0], axis).astype(np.int64)
            step = array.take([1], axis).astype(np.int64) - base
            # base, base + step, base + 2 * step, ... along the axis
            counted = np.arange(size[0]).reshape([-1] + [1] * (array.ndim - axis - 1))
            if step.any() and np.array_equal(array, base + step * counted):
                self.count(slot, axis, base, step, size)
                return
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
                self.plan.fixed(needed),
                repeats,
            )
        )
        sizes[axis] = needed
        state = self.read(slot)
        kind = state.types[0].tensor_type.elem_type if state is not None else 0
        self.overrides[slot] = tensor_state(kind, sizes, self.trials)

    def demand_next(self, path: str, name: str, axis: int, size: Size) -> None:
        """Demand this size of a value of a graph, in the next trace."""
        if not self.context.outdated:
            self.context.demands.setdefault((path, name), {})[axis] = size
            self.context.outdated = True

    def _source(self, name: str, axis: int) -> str | None:
        """Return the value that determines the operand's size: from a shape operand, or from outside the body."""
        # Back through nodes that keep the size, to one that can make another size, or to a state of the loop.
        while (position := self.scope.producers.get(name)) is not None:
            node = self.scope.graph.node[position]
            if node.op_type in _CARRIED:
                name = node.input[0]
                continue
            return name if node.op_type in _SOURCES and self._is_new(name, axis) else None
        return name if name in self.scope.carried and self._is_new(name, axis) else None

    def _is_new(self, name: str, axis: int) -> bool:
        return axis not in self.context.demands.get((self.scope.path, name), {})

    def _require_repeating(self, name: str, axis: int) -> None:
        """Refuse an operand that depends on an input, and a constant with different slices along the axis."""
        state = self.reads.get(name)
        # it was computed from what changes, and lost the size on the way
        if state is not None and state.follows:
            hint = "an export at another size can show how: --two-exports"
            raise self.blocked(
                f"{name!r} must change, but its size is fixed on the way",
                hint=hint if self.context.hints is None else "",
            )
        given = self._inputs_of(name)  # an input of the model is not repeated
        if given:
            raise self.blocked(f"{name!r} must change too, but it comes from input {given[0]!r}")
        array = self.array(name)
        if array is not None and (array != np.take(array, [0], axis)).any():
            raise self.blocked(
                f"constant {name!r} has different values along axis {axis}",
                hint="it was computed for one size (a mask, positions): keep that size, "
                "or export the model with this dimension dynamic",
            )

    def array(self, name: str) -> Array | None:
        """Return numbers that are the same at every trial; None for large ones that more than sums compute."""
        state = self.scope.find(name)
        if state is not None and state.data is not None:  # small and known
            first = state.data[0]
            return first if all(np.array_equal(first, other) for other in state.data) else None
        position = self.scope.producers.get(name)
        if position is None:  # a large one from the file
            tensor = next((t for t in self.scope.graph.initializer if t.name == name), None)
            return None if tensor is None else self.context.model.array(tensor)
        node = self.scope.graph.node[position]
        held = constant_of(node)
        if held:
            return self.context.model.array(held)
        if node.op_type not in _SUMS:
            return None
        operands = [array for array in map(self.array, node.input) if array is not None]
        known = len(operands) == len(node.input)
        return _SUMS[node.op_type](*operands) if known else None

    def _inputs_of(self, name: str) -> list[str]:
        """Return the inputs without a default, of the graph or body, that a value depends on."""
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
                pending += every_read(node)
            elif any(info.name == name for info in graph.input):
                found.append(name)
        held = {tensor.name for tensor in graph.initializer}
        return [name for name in found if name not in held]


def level_aligned(visit: Visit, from_right: bool, skip: int | None = None, last: int = 0) -> None:
    """Expand operands whose axes are aligned, from the right or the left.

    Args:
        skip: an axis at which the sizes may differ. last: the number of axes at the end that are not aligned.
    """
    slots = range(len(visit.node.input))
    shapes = {slot: sizes for slot in slots if (sizes := visit.sizes(slot))}
    longest = max(map(len, shapes.values()), default=0)
    for place in range(longest - last):
        if skip is not None and place == skip % longest:
            continue

        # the axis of each operand at this place, and a size there that changes
        there = {
            slot: place - (longest - len(sizes) if from_right else 0)
            for slot, sizes in shapes.items()
        }
        at = {slot: axis for slot, axis in there.items() if 0 <= axis < len(shapes[slot])}
        leader = next((shapes[s][a] for s, a in at.items() if varies(shapes[s][a])), None)

        # the others must change with it, if they have the same number now
        for slot, axis in at.items():
            size = shapes[slot][axis]
            strict = not from_right or size[0] != 1
            if leader and not varies(size) and size[0] == leader[0] and strict:
                visit.demand(slot, axis, leader, broadcasts=from_right)
