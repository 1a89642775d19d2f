"""A value on its way out of the bodies it is in, and the nodes that carry it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, helper

from onnxsurgeon_lite.surgery.edits import fresh
from onnxsurgeon_lite.tensors import dtypes

_Attribute = int | list[int] | TensorProto | GraphProto

_WIDER: dict[int, int] = {
    TensorProto.BFLOAT16: TensorProto.FLOAT,
    TensorProto.FLOAT8E4M3FN: TensorProto.FLOAT,
    TensorProto.FLOAT8E4M3FNUZ: TensorProto.FLOAT,
    TensorProto.FLOAT8E5M2: TensorProto.FLOAT,
    TensorProto.FLOAT8E5M2FNUZ: TensorProto.FLOAT,
    TensorProto.INT4: TensorProto.INT8,
    TensorProto.UINT4: TensorProto.UINT8,
}
"""Of dtypes that the runtime has no sequences of, the one that holds their numbers."""


@dataclass(frozen=True)
class Wire:
    """A value on its way out.

    Attributes:
        key: what it will be called in the main graph.
        name: what it is called in the graph that it has come to.
        place: what people call it: `@12/body/q`, or `@12/body` for the table of a body.
        type: of the value where it was; None where that is unknown.
        many: whether it is a sequence by now, with a tensor for each time that the body ran.
        columns: of a table, which has a row for each time that the body ran, its numbers: one for each loop so far.
        loops: how many loops the value is in. table: the key of the table that its body has, '' where it needs none.
        elements: of a value that is a sequence itself, the key of a table that has a row for each tensor.
    """

    key: str
    name: str
    place: str
    type: TypeProto | None = None
    many: bool = False
    columns: int | None = None
    loops: int = 0
    table: str = ""
    elements: str = ""

    @property
    def dtype(self) -> int:
        """The element type of a sequence of it."""
        elem_type: int = element_type(self.type).elem_type
        return _WIDER.get(elem_type, elem_type)

    def narrowed(self, value: dtypes.Array) -> dtypes.Array:
        """A tensor of the sequence as it was in the body."""
        return value.astype(dtypes.numpy_dtype(element_type(self.type).elem_type), copy=False)

    def of_elements(self, name: str, elements: str) -> "Wire":
        """What a value that is a sequence is, as its tensors."""
        return replace(self, name=name, many=True, elements=elements)

    def carried(self, name: str) -> "Wire":
        """What it is outside of a body that runs more or less often than once."""
        return replace(self, name=name, many=self.columns is None)

    def numbered(self, name: str) -> "Wire":
        """What it is outside of a loop."""
        columns = None if self.columns is None else self.columns + 1
        return replace(self.carried(name), columns=columns)

    def declared(self, name: str) -> ValueInfoProto:
        """It, declared under a name."""
        info = ValueInfoProto(name=name)
        if self.columns is not None:
            kind = helper.make_tensor_type_proto(TensorProto.INT64, [None, self.columns])
            info.type.CopyFrom(kind)
        elif self.many:
            element = helper.make_tensor_type_proto(self.dtype, None)
            info.type.CopyFrom(helper.make_sequence_type_proto(element))
        elif self.type is not None:
            info.type.CopyFrom(self.type)
        return info


class NewNodes:
    """New nodes of one graph, in the order they were made; their values have names that nothing else has."""

    def __init__(self, taken: set[str]) -> None:
        self.taken = taken
        self.made: list[NodeProto] = []

    def add(self, op_type: str, inputs: Sequence[str], base: str, **attributes: _Attribute) -> str:
        """A node with one output, called like `base`; returns its name."""
        return self.named(op_type, inputs, fresh(base, self.taken), **attributes)

    def named(
        self, op_type: str, inputs: Sequence[str], output: str, **attributes: _Attribute
    ) -> str:
        """A node with one output of this name."""
        self.made.append(helper.make_node(op_type, inputs, [output], output))
        for key, value in attributes.items():
            self.made[-1].attribute.append(helper.make_attribute(key, value))
        return output

    def constant(self, numbers: object, base: str = "integers") -> str:
        """A constant of integers, of any shape."""
        value = dtypes.from_array(np.array(numbers, np.int64))
        return self.add("Constant", [], base, value=value)

    def places(self, sequence: str, base: str) -> str:
        """A table with a row for each tensor of a sequence: its place."""
        count = self.add("SequenceLength", [sequence], f"{base}.count")
        places = [self.constant(0), count, self.constant(1)]
        numbers = self.add("Range", places, f"{base}.numbers")
        return self.add("Reshape", [numbers, self.constant([-1, 1])], f"{base}.rows")

    def nothing(self, wire: Wire) -> str:
        """What the wire is outside where the body never runs."""
        base = f"{wire.key}.none"
        if wire.columns is None:
            return self.add("SequenceEmpty", [], base, dtype=wire.dtype)
        return self.constant(np.zeros((0, wire.columns)), base)

    def once(self, wire: Wire) -> str:
        """What the wire is outside where the body runs, once."""
        if wire.many or wire.columns is not None:
            return wire.name
        return self.add("SequenceConstruct", [self._widened(wire)], f"{wire.key}.one")

    def appended(self, wire: Wire, before: str, iteration: str) -> str:
        """What the wire is outside after this iteration, from what it was before."""
        base = f"{wire.key}.now"
        if wire.columns is not None:
            return self.add("Concat", [before, self._numbered(wire, iteration)], base, axis=0)
        if not wire.many:
            return self.add("SequenceInsert", [before, self._widened(wire)], base)
        count = self.add("SequenceLength", [wire.name], f"{wire.key}.count")
        return self.add("Loop", [count, "", before], base, body=self._append_all(wire))

    def _widened(self, wire: Wire) -> str:
        """The tensor, in a dtype that sequences have."""
        if wire.dtype == element_type(wire.type).elem_type:
            return wire.name
        return self.add("Cast", [wire.name], f"{wire.key}.wide", to=wire.dtype)

    def _numbered(self, wire: Wire, iteration: str) -> str:
        """A table with the number of this iteration before each of its rows."""
        shape = self.add("Shape", [wire.name], f"{wire.key}.shape")
        bounds = [self.constant([0]), self.constant([1])]
        rows = self.add("Slice", [shape, *bounds], f"{wire.key}.rows")
        size = self.add("Concat", [rows, bounds[1]], f"{wire.key}.size", axis=0)
        number = self.add("Reshape", [iteration, self.constant([1, 1])], f"{wire.key}.number")
        column = self.add("Expand", [number, size], f"{wire.key}.column")
        return self.add("Concat", [column, wire.name], f"{wire.key}.numbered", axis=1)

    def _append_all(self, wire: Wire) -> GraphProto:
        """The body of a Loop over a sequence, which appends its tensors to a state."""
        inner = NewNodes(self.taken)
        names = (fresh(f"{wire.key}.{what}", self.taken) for what in ("place", "going", "state"))
        place, going, state = names
        on = inner.add("Identity", [going], f"{wire.key}.on")
        element = inner.add("SequenceAt", [wire.name, place], f"{wire.key}.element")
        longer = inner.add("SequenceInsert", [state, element], f"{wire.key}.longer")
        inputs = [*loop_inputs(place, going), wire.declared(state)]
        outputs = [condition(on), wire.declared(longer)]
        return helper.make_graph(inner.made, f"{wire.key}.append", inputs, outputs)


def is_sequence(kind: TypeProto | None) -> bool:
    """Whether a value of the type is a sequence."""
    return kind is not None and kind.HasField("sequence_type")


def element_type(kind: TypeProto | None) -> TypeProto.Tensor:
    """The type of a tensor, or of those of a sequence; an empty one where that is unknown."""
    if kind is None:
        return TypeProto.Tensor()
    return (kind.sequence_type.elem_type if is_sequence(kind) else kind).tensor_type


def loop_inputs(iteration: str, going: str) -> list[ValueInfoProto]:
    """The inputs that every Loop's body has."""
    return [helper.make_tensor_value_info(iteration, TensorProto.INT64, []), condition(going)]


def condition(name: str) -> ValueInfoProto:
    """A Loop's condition."""
    return helper.make_tensor_value_info(name, TensorProto.BOOL, [])
