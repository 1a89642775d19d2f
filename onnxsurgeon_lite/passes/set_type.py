"""Give inputs and outputs another dtype."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from onnx import NodeProto, ValueInfoProto, helper

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.schemas import Schema, constant, schema_of
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.model.messages import copied, drop_at
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.surgery.border import border, convert, converter, take_away
from onnxsurgeon_lite.surgery.constants import data_type_named
from onnxsurgeon_lite.surgery.edits import drop_declarations, fresh, reorder, value_names
from onnxsurgeon_lite.tensors import dtypes

_MOVING = frozenset((
    "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Reshape", "Slice",
    "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
))  # fmt: skip
"""Operators that move the elements of their first input, and change none."""


@dataclass(frozen=True)
class SetType:
    """Give inputs and outputs another dtype: a Cast at the border converts them.

    Where an earlier `set-type` put a Cast to the inside that leads back, that is taken away.

    With `inward` the Cast moves over nodes that only move elements, and goes where a node takes the new dtype itself
    (int32 indices), as far as the operators' schemas allow. What the model computes stays the same.

    Attributes:
        types: input or output -> dtype.
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
        for name, dtype in self.types.items():
            data_type = data_type_named(dtype)
            declared = border(index, name)
            old = declared.type.tensor_type.elem_type
            if not old:
                raise EditError(f"{name!r} is not a tensor: it has no dtype")
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
        kind = None if known is None else index.type_of(known[1])
        if known is not None and kind is not None and kind.tensor_type.elem_type == new:
            take_away(result, declared.name, outside, *known)
            return
        node = helper.make_node("Cast", [], [], to=old if is_input else new)
        inside = convert(result, declared.name, outside, node)
        if self.inward and is_input:
            _Moving(result, new, old).inward(declared.name, inside)
        elif self.inward:
            _Moving(result, new, old).outward(inside, declared.name)


class _Moving:
    """Moves Casts over their neighbors, in place.

    Attributes:
        new: the dtype outside. old: the dtype inside.
    """

    def __init__(self, result: Model, new: int, old: int) -> None:
        self.result = result
        self.graph = result.proto.graph
        self.new = new
        self.old = old
        self.taken = value_names(GraphIndex.of(result))

    def inward(self, source: str, value: str) -> None:
        """Move the Cast from an input (`source`) to `value` down, as far as it goes."""
        pending = [(source, value)]
        while pending:
            source, value = pending.pop()
            index = GraphIndex.of(self.result)
            for position in index.consumers.get(value, []):
                pending += self._past(index, index.nodes[position], source, value)
            after = GraphIndex.of(self.result)
            if value not in after.consumers and value not in after.outputs:
                drop_at(self.graph.node, [after.producer[value]])
                drop_declarations(self.graph, {value})
        reorder(self.graph.node, GraphIndex.of(self.result).order)

    def _past(
        self, index: GraphIndex, node: NodeProto, source: str, value: str
    ) -> list[tuple[str, str]]:
        """Make a reader of a Cast read its input, if it can; return the Casts that its results need instead."""
        slots = [slot for slot, name in enumerate(node.input) if name == value]
        if slots and all(self._takes(index, node, slot) for slot in slots):
            for slot in slots:
                node.input[slot] = source
            return []
        if slots != [0] or not self._moves(index, node):
            return []
        node.input[0] = source
        return [
            self._cast_result(index, node, slot) for slot, name in enumerate(node.output) if name
        ]

    def _cast_result(self, index: GraphIndex, node: NodeProto, slot: int) -> tuple[str, str]:
        name = node.output[slot]
        node.output[slot] = self._declared(index, name)
        self.graph.node.append(helper.make_node("Cast", [node.output[slot]], [name], to=self.old))
        return node.output[slot], name

    def outward(self, value: str, output: str) -> None:
        """Move the Cast from `value` to an output up, as long as nothing else reads what it passes."""
        while (position := self._passable(value)) is not None:
            index = GraphIndex.of(self.result)
            node = index.nodes[position]
            source = node.input[0]
            node.input[0] = self._declared(index, source)
            node.output[0] = output
            cast = helper.make_node("Cast", [source], [node.input[0]], to=self.new)
            drop_at(self.graph.node, [index.producer[output]])
            drop_declarations(self.graph, {value})
            self.graph.node.append(cast)
            value, output = source, node.input[0]
        reorder(self.graph.node, GraphIndex.of(self.result).order)

    def _passable(self, value: str) -> int | None:
        """Return the node before a Cast if the Cast can stand before it."""
        index = GraphIndex.of(self.result)
        position = index.producer.get(value)
        if position is None or len(index.consumers[value]) > 1 or value in index.outputs:
            return None
        node = index.nodes[position]
        passes = self._moves(index, node) and len(node.output) == 1
        return position if passes and constant(index, node.input[0]) is None else None

    def _declared(self, index: GraphIndex, name: str) -> str:
        """Declare a value like another one in the new dtype; return its name."""
        made = fresh(f"{name}_{dtypes.dtype_name(self.new)}", self.taken)
        kind = index.type_of(name)
        if kind is not None:
            retyped = copied(kind)
            retyped.tensor_type.elem_type = self.new
            self.graph.value_info.add(name=made, type=retyped)
        return made

    def _moves(self, index: GraphIndex, node: NodeProto) -> bool:
        """Return whether a node only moves elements, in the new dtype too."""
        schema = schema_of(index, node) if node.domain in ("", "ai.onnx") else None
        if schema is None or node.op_type not in _MOVING:
            return False
        return _allows(schema, schema.inputs[0].type_str, self.new)

    def _takes(self, index: GraphIndex, node: NodeProto, slot: int) -> bool:
        """Return whether a node takes the new dtype itself, and makes the same of it."""
        schema = schema_of(index, node) if node.domain in ("", "ai.onnx") else None
        if schema is None or not _is_lossless(self.new, self.old):
            return False
        variable = schema.inputs[min(slot, len(schema.inputs) - 1)].type_str
        others = [p.type_str for p in (*schema.inputs, *schema.outputs)]
        return others.count(variable) == 1 and _allows(schema, variable, self.new)


def _allows(schema: Schema, variable: str, data_type: int) -> bool:
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    return f"tensor({dtypes.dtype_name(data_type)})" in allowed.get(variable, [variable])


def _is_lossless(data_type: int, other: int) -> bool:
    one, two = (dtypes.numpy_dtype(kind) for kind in (data_type, other))
    return bool(np.can_cast(one, two, "safe"))
