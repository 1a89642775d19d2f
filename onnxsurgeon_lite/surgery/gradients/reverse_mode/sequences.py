"""Sequences of a known number of tensors: what they do to tensors, in operators on tensors."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx import NodeProto, helper

from onnxsurgeon_lite.model import walk
from onnxsurgeon_lite.surgery.gradients.expansion import written
from onnxsurgeon_lite.surgery.gradients.step import GradientStep
from onnxsurgeon_lite.surgery.gradients.tape import Tape


def without_sequences(tape: Tape, nodes: Sequence[NodeProto]) -> Sequence[NodeProto]:
    """Return nodes that make the same tensors, without the sequences whose tensors are known."""
    # most graphs have no sequences
    if not any(node.op_type in _MAKERS or node.op_type in _READERS for node in nodes):
        return nodes
    work = _WithoutSequences(tape)
    for node in nodes:
        work.take(node)
    return work.nodes


@dataclass
class _WithoutSequences:
    """Nodes on the way to others.

    Attributes:
        known: sequence -> its tensors. nodes: what is made of the nodes so far.
    """

    tape: Tape
    known: dict[str, list[str]] = field(default_factory=dict)
    nodes: list[NodeProto] = field(default_factory=list)

    def take(self, node: NodeProto) -> None:
        """Add a node, or what it does to tensors."""
        step = GradientStep(self.tape, node, [])
        if node.op_type in _MAKERS:
            made = _MAKERS[node.op_type](self, step)
            if made is not None:  # it becomes no node: its readers take the tensors
                self.known[node.output[0]] = made
                return
        read = _READERS[node.op_type](self, step) if node.op_type in _READERS else None
        # as it is, where the sequence is not known: then a rule is missing
        self.nodes.append(read or node)

    def constructed(self, s: GradientStep) -> list[str] | None:
        """Return the tensors of a SequenceConstruct, or of a SequenceEmpty."""
        return list(s.node.input)

    def inserted(self, s: GradientStep) -> list[str] | None:
        """Return the tensors of a SequenceInsert."""
        before = self.known.get(s.node.input[0])
        place = _place(s, 2, len(before or ()))  # the end, if no place is given
        if before is None or place is None:
            return None
        place += len(before) * (place < 0)  # negative places count from the end
        return before[:place] + [s.node.input[1]] + before[place:]

    def erased(self, s: GradientStep) -> list[str] | None:
        """Return the tensors of a SequenceErase."""
        before = self.known.get(s.node.input[0])
        place = _place(s, 1, -1)
        if not before or place is None:
            return None
        place %= len(before)
        return before[:place] + before[place + 1 :]

    def split(self, s: GradientStep) -> list[str] | None:
        """Write a Split, and Squeezes where the axis goes."""
        # the sizes of the parts must be known
        axis = s.axis(0)
        given = s.numbers(1)
        size = (s.tape.shape(s.node.input[0]) or [])[axis]
        if not isinstance(size, int) or (s.has(1) and given is None):
            return None
        sizes = _sizes(size, given)
        names = [f"part{number}" for number in range(len(sizes))]
        whole = [s.node.input[0], s.tape.integers(sizes).name]
        parts = self.write([helper.make_node("Split", whole, names, axis=axis)])
        # with sizes given, the axis always stays
        return parts if s.has(1) or s.integer("keepdims", 1) else self.each("Squeeze", parts, axis)

    def element(self, s: GradientStep) -> NodeProto | None:
        """Return a SequenceAt as the tensor that it takes."""
        elements = self.known.get(s.node.input[0])
        place = _place(s, 1, 0)
        if elements is None or place is None:
            return None
        return helper.make_node("Identity", [elements[place]], s.node.output, s.node.name)

    def joined(self, s: GradientStep) -> NodeProto | None:
        """Return a ConcatFromSequence as a Concat."""
        elements = self.known.get(s.node.input[0])
        axis = s.integer("axis")
        if elements is None:
            return None
        if s.integer("new_axis"):
            elements = self.each("Unsqueeze", elements, axis)
        return helper.make_node("Concat", elements, s.node.output, s.node.name, axis=axis)

    def each(self, op_type: str, names: Sequence[str], axis: int) -> list[str]:
        """Write a node with an axis for each tensor."""
        at = self.tape.integers([axis]).name
        return self.write([
            helper.make_node(op_type, [name, at], [f"made{number}"])
            for number, name in enumerate(names)
        ])  # fmt: skip

    def write(self, nodes: Sequence[NodeProto]) -> list[str]:
        """Write nodes, and return what they make."""
        names = list(walk.outputs(nodes))
        new = dict[str, str]()
        self.nodes += written(self.tape, nodes, new)
        return [new[name] for name in names]


def _place(s: GradientStep, slot: int, default: int) -> int | None:
    """Return a place in a sequence; None if it is computed when the model runs."""
    if not s.has(slot):
        return default
    number = s.numbers(slot)
    return None if number is None else int(np.ravel(number)[0])


def _sizes(size: int, given: np.ndarray | None) -> list[int]:
    """Return the sizes of the parts of an axis: as given, or all equal but the last."""
    # as given; all equal but the last where one number is given, 1 each where none is
    if given is not None and given.ndim:
        return [int(part) for part in given]
    step = 1 if given is None else int(given)
    return [min(step, size - first) for first in range(0, size, step)]


_MAKERS = {
    "SequenceEmpty": _WithoutSequences.constructed,
    "SequenceConstruct": _WithoutSequences.constructed,
    "SequenceInsert": _WithoutSequences.inserted,
    "SequenceErase": _WithoutSequences.erased,
    "SplitToSequence": _WithoutSequences.split,
}
_READERS = {"SequenceAt": _WithoutSequences.element, "ConcatFromSequence": _WithoutSequences.joined}
