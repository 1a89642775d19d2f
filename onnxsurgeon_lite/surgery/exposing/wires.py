"""A value on its way out of its bodies, and the nodes that carry it."""

from collections.abc import MutableSequence, Sequence
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
"""The dtype that holds the numbers of a dtype that runtime sequences do not support."""


@dataclass(frozen=True)
class Wire:
    """A value on its way out of its bodies.

    Attributes:
        key: its final name in the main graph.
        name: its name in the graph that it has reached.
        place: its name for users: `@12/body/q`, or `@12/body` for the table of a body.
        type: of the original value; None if unknown.
        many: it is a sequence, with one tensor per run of the body.
        columns: of a table, which has one row per run of the body: one number per loop so far.
        loops: the number of loops around the value. table: the key of its body's table; '' if it needs none.
        elements: of a value that is a sequence itself: the key of a table with a row for each tensor.
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
        """The element type of a sequence of such values."""
        elem_type: int = element_type(self.type).elem_type
        return _WIDER.get(elem_type, elem_type)

    def narrowed(self, value: dtypes.Array) -> dtypes.Array:
        """Convert a tensor of the sequence back to the dtype that it has in the body."""
        return value.astype(dtypes.numpy_dtype(element_type(self.type).elem_type), copy=False)

    def carried(self, name: str) -> "Wire":
        """Return the wire outside of a body that does not run exactly once."""
        return replace(self, name=name, many=self.columns is None)  # a table stays a table

    def numbered(self, name: str) -> "Wire":
        """Return the wire outside of a loop."""
        columns = None if self.columns is None else self.columns + 1  # this loop's column
        return replace(self.carried(name), columns=columns)

    def declared(self, name: str) -> ValueInfoProto:
        """Return a declaration of the value under this name."""
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
    """The nodes that are added to one graph, in order of creation, with unique value names."""

    def __init__(self, taken: set[str], made: MutableSequence[NodeProto] | None = None) -> None:
        self.taken = taken
        self.made: MutableSequence[NodeProto] = [] if made is None else made

    def add(self, op_type: str, inputs: Sequence[str], base: str, **attributes: _Attribute) -> str:
        """Add a node with one output, named after `base`; return the output's name."""
        return self.named(op_type, inputs, fresh(base, self.taken), **attributes)

    def named(
        self, op_type: str, inputs: Sequence[str], output: str, **attributes: _Attribute
    ) -> str:
        """Add a node with one output of this name."""
        self.made.append(helper.make_node(op_type, inputs, [output], output))
        for key, value in attributes.items():
            self.made[-1].attribute.append(helper.make_attribute(key, value))
        return output

    def constant(self, numbers: object, base: str = "integers") -> str:
        """Add an integer constant of any shape."""
        value = dtypes.from_array(np.array(numbers, np.int64))
        return self.add("Constant", [], base, value=value)

    def always(self) -> str:
        """Add a true condition for a Loop; some evaluators take an omitted one for false."""
        return self.add("Constant", [], "always", value=dtypes.from_array(np.array(True)))

    def places(self, sequence: str, base: str) -> str:
        """Return a table with a row for each tensor of a sequence: its index."""
        count = self.add("SequenceLength", [sequence], f"{base}.count")
        places = [self.constant(0), count, self.constant(1)]
        numbers = self.add("Range", places, f"{base}.numbers")
        return self.add("Reshape", [numbers, self.constant([-1, 1])], f"{base}.rows")

    def nothing(self, wire: Wire) -> str:
        """Return the wire's value outside of a body that did not run: an empty sequence, or a table without rows."""
        base = f"{wire.key}.none"
        if wire.columns is None:
            return self.add("SequenceEmpty", [], base, dtype=wire.dtype)
        return self.constant(np.zeros((0, wire.columns)), base)

    def once(self, wire: Wire) -> str:
        """Return the wire's value outside of a body that runs once."""
        if wire.many or wire.columns is not None:  # a sequence or a table needs no wrapping
            return wire.name
        return self.add("SequenceConstruct", [self._widened(wire)], f"{wire.key}.one")

    def appended(self, wire: Wire, before: str, iteration: str) -> str:
        """Return the wire's value after this iteration, from its value before."""
        base = f"{wire.key}.now"
        if wire.columns is not None:
            return self.add("Concat", [before, self._numbered(wire, iteration)], base, axis=0)
        if not wire.many:  # one tensor of this iteration
            return self.add("SequenceInsert", [before, self._widened(wire)], base)
        # Inside, there is a sequence already: an inner Loop appends its tensors, because no operator joins sequences.
        count = self.add("SequenceLength", [wire.name], f"{wire.key}.count")
        return self.add("Loop", [count, self.always(), before], base, body=self._append_all(wire))

    def _widened(self, wire: Wire) -> str:
        """Cast the tensor to a dtype that sequences support."""
        if wire.dtype == element_type(wire.type).elem_type:
            return wire.name
        return self.add("Cast", [wire.name], f"{wire.key}.wide", to=wire.dtype)

    def _numbered(self, wire: Wire, iteration: str) -> str:
        """Return a table with this iteration's number before each of its rows."""
        # [rows, columns] -> [rows, 1 + columns]: the number of rows is known when the model runs.
        shape = self.add("Shape", [wire.name], f"{wire.key}.shape")
        bounds = [self.constant([0]), self.constant([1])]
        rows = self.add("Slice", [shape] + bounds, f"{wire.key}.rows")
        size = self.add("Concat", [rows, bounds[1]], f"{wire.key}.size", axis=0)
        number = self.add("Reshape", [iteration, self.constant([1, 1])], f"{wire.key}.number")
        column = self.add("Expand", [number, size], f"{wire.key}.column")
        return self.add("Concat", [column, wire.name], f"{wire.key}.numbered", axis=1)

    def _append_all(self, wire: Wire) -> GraphProto:
        """Return the body of a Loop over a sequence that appends its tensors to a state."""
        inner = NewNodes(self.taken)
        names = (fresh(f"{wire.key}.{what}", self.taken) for what in ("place", "going", "state"))
        place, going, state = names
        on = inner.add("Identity", [going], f"{wire.key}.on")
        element = inner.add("SequenceAt", [wire.name, place], f"{wire.key}.element")
        longer = inner.add("SequenceInsert", [state, element], f"{wire.key}.longer")
        inputs = loop_inputs(place, going) + [wire.declared(state)]
        outputs = [condition(on), wire.declared(longer)]
        return helper.make_graph(inner.made, f"{wire.key}.append", inputs, outputs)


def is_sequence(kind: TypeProto | None) -> bool:
    """Return whether a value of the type is a sequence."""
    return kind is not None and kind.HasField("sequence_type")


def element_type(kind: TypeProto | None) -> TypeProto.Tensor:
    """Return the type of a tensor, or of the tensors of a sequence; empty if unknown."""
    if kind is None:
        return TypeProto.Tensor()
    # that of the element, for a sequence
    return (kind.sequence_type.elem_type if is_sequence(kind) else kind).tensor_type


def loop_inputs(iteration: str, going: str) -> list[ValueInfoProto]:
    return [helper.make_tensor_value_info(iteration, TensorProto.INT64, []), condition(going)]


def condition(name: str) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.BOOL, [])
