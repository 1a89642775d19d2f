"""Connect readers of one value to another."""

from dataclasses import dataclass
from typing import ClassVar

from onnx import TypeProto

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph import GraphIndex, check_node
from onnxsurgeon_lite.model import Model, is_standard
from onnxsurgeon_lite.passes.in_bodies import in_bodies
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.passes.targets import literal, one_value, readers
from onnxsurgeon_lite.surgery import (
    Numbers,
    Taken,
    data_type_for,
    follow,
    fresh,
    make_tensor,
    rename_uses,
    settle,
)


@dataclass(frozen=True)
class Rewire:
    """Make readers of one value read another, in their bodies too.

    Attributes:
        old: the value that is read now.
        new: the value to read instead; or numbers, which become a constant of the dtype of the old value.
        to: the nodes to rewire; by default all readers of `old`. Graph outputs do not change.
        slot: the input to rewire, for a node that reads `old` more than once.

    Example:
        >>> osl.rewire("whole_model.onnx", "25", "27").changes
        ("Add 'Add_7' (@7) reads '27' instead of '25'",)
    """

    old: str
    new: str
    to: tuple[str, ...] = ()
    slot: int | None = None
    name: ClassVar[str] = "rewire"
    retypes: ClassVar[bool] = True

    @in_bodies(values=("old", "new"), nodes=("to",))
    def apply(self, model: Model) -> PassResult:
        """Rewire the nodes.

        Raises:
            UnknownNameError: no such value or node.
            EditError: a node does not read the old value or cannot take the new one, or the edit makes a cycle.
        """
        index = GraphIndex.of(model)
        notes = list[str]()
        old = one_value(index, self.old, notes)
        # a number in the place of the new value becomes a constant
        result = model.copy()
        numbers = literal(index, self.new)
        new = (
            one_value(index, self.new, notes)
            if numbers is None
            else _constant(index, result, old, numbers)
        )
        # rewire each reader, at one input or at all that have the old value
        chosen = readers(index, old, self.to)
        if new == old:
            return PassResult(model, changed=False, notes=tuple(notes))
        for position in chosen:
            node = result.graph.node[position]
            if self.slot is None:
                rename_uses([node], {old: new})
            elif self.slot < len(node.input) and node.input[self.slot] == old:
                node.input[self.slot] = new
            else:
                raise EditError(
                    f"input {self.slot} of {index.describe(position)} is not {old!r}",
                    f"its inputs are {', '.join(map(repr, node.input))}, counted from 0",
                )
        # the types of what they make are needed: inference can begin
        index.foresee(index.made_by(chosen))
        if old in index.outputs and not self.to:
            notes.append(f"graph output {old!r} did not change: rewire changes only nodes")
        # order the nodes again, check each rewired one, and let types follow
        after = settle(index, result)
        # what the rewired nodes make now
        types = dict[str, TypeProto]()
        for position in chosen:
            made = next(index.outputs_of([position]), None)
            if made is None:  # whatever it computes is not used
                continue
            node = after.nodes[after.producer[made]]
            types.update(check_node(after, node, index.describe(position)))
        # a copy of the same value has the same type, so nothing follows
        if _copied(after, new) != _copied(after, old):
            notes += follow(index, after, types)
        changes = [
            f"{index.describe(position)} reads {new!r} instead of {old!r}" for position in chosen
        ]
        return PassResult.of(model, result, changes, notes)


def _copied(index: GraphIndex, name: str) -> str:
    """Return what a value is a copy of, through every Identity; the value itself if it is none."""
    while (position := index.producer.get(name)) is not None:
        node = index.nodes[position]
        if node.op_type != "Identity" or not is_standard(node) or not node.input:
            break
        name = node.input[0]
    return name


def _constant(index: GraphIndex, result: Model, old: str, numbers: Numbers) -> str:
    """Add a constant of a value's dtype; return its name."""
    name = fresh(f"{old}_constant", Taken(index))
    tensor = make_tensor(name, numbers, index.element_of(old) or data_type_for(name, numbers))
    result.graph.initializer.append(tensor)
    return name
