"""Give inputs and outputs another dtype."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import ClassVar

import numpy as np
from onnx import NodeProto, ValueInfoProto, helper

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph import GraphIndex, allows, captured, constant, schema_of, variable_at
from onnxsurgeon_lite.graph.schemas import MOVING
from onnxsurgeon_lite.model import Model, copied, is_standard
from onnxsurgeon_lite.names import listed
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.passes.targets import ends
from onnxsurgeon_lite.surgery import Taken, data_type_named, drop_declarations, fresh
from onnxsurgeon_lite.surgery.border import border, convert, converter, take_away
from onnxsurgeon_lite.tensors import dtypes


@dataclass(frozen=True)
class SetType:
    """Give inputs and outputs another dtype: a Cast at the border converts them.

    Where an earlier `set-type` put a Cast to the inside that leads back, that is taken away.

    With `inward` the Cast moves over nodes that only move elements, and goes where a node takes the new dtype itself
    (int32 indices), as far as the operators' schemas allow. What the model computes stays the same.

    Attributes:
        types: input or output, or a glob (`present.*`) -> dtype.
        inward: move the Casts as far inside as possible.

    Example:
        >>> osl.set_type("whole_model.onnx", {"input.1": "uint8"}).changes
        ("input 'input.1': float -> uint8",)
    """

    types: Mapping[str, str] = field(default_factory=dict)
    inward: bool = False
    name: ClassVar[str] = "set-type"

    def apply(self, model: Model) -> PassResult:
        """Set the dtypes.

        Raises:
            UnknownNameError: no such input, output or dtype.
            EditError: it is not a tensor, or an input with a default.
        """
        index = GraphIndex.of(model)
        result = model.copy()
        changes = []
        known = list(index.inputs) + list(index.outputs)
        # names and globs -> each input or output alone
        wanted = {
            name: data_type_named(dtype)
            for given, dtype in self.types.items()
            for name in ends(index, [listed([given])], known, "input or output")
        }
        for name, data_type in wanted.items():
            declared = border(index, name)
            old = declared.type.tensor_type.elem_type
            if not old:
                raise EditError(f"{name!r} is not a tensor: it has no dtype")
            # nothing to convert
            if old == data_type:
                continue
            self._convert(result, declared, data_type, name in index.inputs)
            kind = "input" if name in index.inputs else "output"
            changes.append(
                f"{kind} {name!r}: {dtypes.dtype_name(old)} -> {dtypes.dtype_name(data_type)}"
            )
        return PassResult.of(model, result, changes)

    def _convert(self, result: Model, declared: ValueInfoProto, new: int, is_input: bool) -> None:
        outside = copied(declared.type)
        old = outside.tensor_type.elem_type
        outside.tensor_type.elem_type = new
        index = GraphIndex.of(result)
        known = converter(index, declared.name, "Cast")
        # an earlier Cast that leads back to this dtype
        kind = None if known is None else index.type_of(known[1])
        if known is not None and kind is not None and kind.tensor_type.elem_type == new:
            take_away(index, declared.name, outside, *known)
            return
        node = helper.make_node("Cast", [], [], to=old if is_input else new)
        inside = convert(index, declared.name, outside, node)
        if self.inward and is_input:
            _Moving(result, new, old).inward(declared.name, inside)
        elif self.inward:
            _Moving(result, new, old).outward(inside, declared.name)


class _Moving:
    """Moves a Cast between the new dtype (outside) and the old one (inside) over its neighbors, in place.

    Attributes:
        index: of the graph before the first move.
        graph: the graph that changes.
    """

    def __init__(self, result: Model, new: int, old: int) -> None:
        self.index = GraphIndex.of(result)
        self.graph = result.graph
        self.new = new
        self.old = old
        self._taken = Taken(self.index)
        # sorted at the end, so positions stay valid until then
        self._places = list[
            tuple[int, NodeProto | None]
        ]()  # (position, new node; None removes one)
        self._gone = set[str]()  # values that nothing makes any more

    def inward(self, source: str, value: str) -> None:
        """Move the Cast from an input (`source`) to `value` down, as far as it goes."""
        border = value
        # (value in the new dtype, the same in the old one, place where a Cast from one to the other goes)
        pending = [(source, value, 0)]
        while pending:
            source, value, place = pending.pop()
            # something still needs the old dtype
            is_read = value in self.index.outputs
            for position in self.index.readers([value])[value]:
                node = self.index.nodes[position]
                moved = self._past(node, source, value)
                is_read |= moved is None or value in captured(node)
                # the Cast is after this node now
                pending += ((new, old, position + 1) for new, old in moved or ())
            if not is_read:
                self._gone.add(value)
            elif value != border:
                cast = helper.make_node("Cast", [source], [value], to=self.old)
                self._places.append((place, cast))
        # the border's own Cast goes if nothing needs it
        self._settle([border] if border in self._gone else [])

    def _past(self, node: NodeProto, source: str, value: str) -> list[tuple[str, str]] | None:
        """Move a Cast to behind one of its readers, which then reads the Cast's input.

        Returns:
            (new name, old name) of the outputs of the reader, which need a Cast now; None if the Cast must stay.
        """
        slots = [slot for slot, name in enumerate(node.input) if name == value]
        # a node that takes the new dtype itself needs no Cast at all
        if slots and all(self._takes(node, slot) for slot in slots):
            for slot in slots:
                node.input[slot] = source
            return []
        # only through the data input: indices and shapes stay as they are
        if slots != [0] or not self._moves(node):
            return None
        node.input[0] = source
        made = [(self._declared(name), name) if name else ("", "") for name in node.output]
        node.output[:] = [new for new, _ in made]
        return [pair for pair in made if all(pair)]

    def outward(self, value: str, output: str) -> None:
        """Move the Cast from `value` to an output up, as long as nothing else reads what it passes."""
        border = output
        # the node that makes the value, as long as a Cast can stand before it
        while (position := self._passable(value)) is not None:
            node = self.index.nodes[position]
            source = node.input[0]
            node.input[0] = self._declared(source)
            node.output[0] = output
            cast = helper.make_node("Cast", [source], [node.input[0]], to=self.new)
            self._places = [(position, cast)]
            self._gone.add(value)
            value = source
            output = node.input[0]
        self._settle([border] if self._gone else [])

    def _settle(self, unneeded: list[str]) -> None:
        """Insert and remove the Casts that were planned.

        Args:
            unneeded: values whose Casts are removed, too.
        """
        nodes = self.graph.node
        self._places += ((place, None) for place in self.index.makers(unneeded))
        # from the end, so that places stay; at one place insertions before removals
        for place, cast in sorted(self._places, key=lambda p: (p[0], p[1] is None), reverse=True):
            if cast is None:
                del nodes[place]
            else:
                nodes.insert(place, cast)
        drop_declarations(self.graph, self._gone)

    def _passable(self, value: str) -> int | None:
        """Return the position of the node that makes the input of a Cast if the Cast can move before that node."""
        position = self.index.producer.get(value)
        readers = self.index.readers([value])[value]
        # another reader needs the value as it is
        if position is None or len(readers) > 1 or value in self.index.outputs:
            return None
        node = self.index.nodes[position]
        if not self._moves(node) or len(node.output) != 1:
            return None
        source, *others = node.input
        # another input that is the same value needs its old dtype; moving the Cast of a constant gains nothing
        stays = source in others or constant(self.index, source) is not None
        return None if stays else position

    def _declared(self, name: str) -> str:
        """Declare a copy of a value in the new dtype; return its name."""
        made = fresh(f"{name}_{dtypes.dtype_name(self.new)}", self._taken)
        kind = self.index.types.get(name)
        if kind is not None:
            retyped = copied(kind)
            retyped.tensor_type.elem_type = self.new
            self.graph.value_info.add(name=made, type=retyped)
        return made

    def _moves(self, node: NodeProto) -> bool:
        """Return whether a node only moves elements, in the new dtype too."""
        schema = schema_of(self.index, node) if is_standard(node) else None
        if schema is None or node.op_type not in MOVING:
            return False
        return allows(schema, schema.inputs[0].type_str, self.new)

    def _takes(self, node: NodeProto, slot: int) -> bool:
        """Return whether a node takes the new dtype without a Cast, and computes the same."""
        schema = schema_of(self.index, node) if is_standard(node) else None
        one, two = map(dtypes.numpy_dtype, (self.new, self.old))
        if schema is None or not np.can_cast(one, two, "safe"):
            return False
        variable = variable_at(schema.inputs, slot)
        others = [p.type_str for p in chain(schema.inputs, schema.outputs)]
        # no other input or output has this type variable, so nothing else changes with it
        return others.count(variable) == 1 and allows(schema, variable, self.new)
