"""Remove nodes that return their input."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import ClassVar

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TypeProto

from onnxsurgeon_lite.graph import (
    GraphIndex,
    NodeRow,
    bodies_below,
    checked,
    constant,
    function_path,
    put_back,
    standing,
)
from onnxsurgeon_lite.model import Model, attributes_of, drop_at, is_external, operand, walk
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.surgery import drop_declarations, rename_uses, rename_values
from onnxsurgeon_lite.surgery.symbolic.shapes import infer_types
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array


@dataclass(frozen=True)
class SkipNoops:
    """Remove nodes that return their input as it is: a Cast to its own type, a Reshape to its own shape; in bodies
    and functions too.

    A node stays when an annotation speaks of its result, or when it joins an input of the graph to an output.

    Example:
        >>> osl.skip_noops("whole_model.onnx").changed
        False
    """

    name: ClassVar[str] = "skip-noops"

    def apply(self, model: Model) -> PassResult:
        """Remove them.

        Raises:
            GraphError: the graph has a cycle, or a function calls itself.
            EditError: a node lacks what its operator takes.
        """
        return self.edit(checked(model))

    def edit(self, index: GraphIndex) -> PassResult:
        """Remove the no-ops of an indexed model."""
        model = index.model
        result = index.model.copy()
        removed = _skip(index, result.proto, result.graph)
        for function in result.proto.functions:
            own = standing(result, function)
            found = _skip(own, own.model.proto, own.graph)
            if found:
                put_back(own.graph, function)
            removed += [f"{change}, in '{function_path(function)}'" for change in found]
        return PassResult.of(model, result, removed, is_told=True)


def _skip(index: GraphIndex, proto: ModelProto, graph: GraphProto) -> list[str]:
    """Remove the no-ops of a graph that an index describes, and of its bodies."""
    index.require_sound()
    changes = []
    for path, body, inner in bodies_below(index, graph):
        changes += [f"{change}, in '{path}'" for change in _skip(inner, proto, body)]
    skips = _Noops(index).skips()
    if not skips:
        return changes
    # output of a no-op -> its input; input -> the graph output whose name it gets
    names = {index.nodes[position].output[0]: source for position, source in skips.items()}
    outputs = {source: name for name, source in names.items() if name in index.outputs}
    rename_uses((graph.node[position] for position in index.reading(names)), names)
    drop_at(graph.node, skips)
    drop_declarations(graph, names.keys() - index.outputs.keys() | outputs.keys())
    # an output keeps its name: the value that is left gets it
    rename_values(proto, graph, outputs)
    return [f"removed {len(skips)} nodes that return their input"] + changes


class _Noops:
    """Finds the nodes of a graph that return their input."""

    def __init__(self, index: GraphIndex) -> None:
        self.index = index
        self.neutral = dict[tuple[str, int], bool]()

    def skips(self) -> dict[int, str]:
        """Return node -> the value that it returns."""
        found = dict[int, str]()
        # value -> what it is, through no-ops before it
        values = dict[str, str]()
        annotations = self.index.graph.quantization_annotation
        # names that must stay
        fixed = {a.tensor_name for a in annotations} | self.index.outputs.keys()
        candidates = map(self._candidates, _HANDLED)
        every = sorted(chain.from_iterable(candidates))
        for position in self.index.in_order(every):
            row = self.index.rows[position]
            if row.domain or self._uses_more(row.outputs):
                continue
            # an attribute that a call decides
            if walk.has_references(self.index.nodes[position]):
                continue
            returned = self._returned(position, row)
            if returned is None:
                continue
            name = row.outputs[0]
            source = values.get(returned, returned)
            # an output can only be replaced by an inner value that is free to take its name
            if name in fixed and (
                name not in self.index.outputs
                or source not in self.index.producer
                or source in fixed
            ):
                continue
            found[position] = values[name] = source
            # that value has the output's name now, so it cannot take a second one
            fixed |= {source} if name in fixed else set()
        return found

    def _candidates(self, operator: str) -> Sequence[int]:
        """Return the nodes of an operator that may be no-ops."""
        places = self.index.operators.get(operator, [])
        if operator == "Transpose":
            return [p for p in places if self.keeps_order(self.index.nodes[p])]
        if not places or operator not in _NEUTRAL:
            return places
        # only readers of such a constant: few of the many Add and Mul
        number, _ = _NEUTRAL[operator]
        neutral = {name for name in self.constants if self._is_all(name, number)}
        readers = chain.from_iterable(self.index.readers(neutral).values()) if neutral else ()
        return sorted(set(places).intersection(readers))

    def _uses_more(self, outputs: Sequence[str]) -> bool:
        """Return whether anything needs more than the first output."""
        if not outputs or not outputs[0]:
            return True
        more = outputs[1:]
        return bool(more) and any(
            n in self.index.consumers or n in self.index.outputs for n in more
        )

    def _returned(self, position: int, row: NodeRow) -> str | None:
        """Return the input that a node returns."""
        if row.op_type in _NEUTRAL:
            # one of two operands, where the other is 0, or 1
            number, places = _NEUTRAL[row.op_type]
            for place in places if len(row.needs) > 1 else ():
                other, value = row.needs[place], row.needs[1 - place]
                if self._is_all(other, number) and self.same_type(value, row.outputs[0]):
                    return value
            return None
        node = self.index.nodes[position]
        first = str(node.input[0]) if node.input else ""
        if row.op_type in _ONE_INPUT:
            return first if len(node.input) == 1 else None
        return first if first and _TESTS[row.op_type](self, node) else None

    def _is_all(self, name: str, number: int) -> bool:
        """Return whether a value is a constant in memory that holds nothing but a number."""
        key = name, number
        if name not in self.constants:
            return False
        if key not in self.neutral:
            array = self.array(name)
            # one element first: most constants differ there already
            same = array is not None and array.size and array.flat[0] == number
            self.neutral[key] = bool(same and np.all(array == number))
        return self.neutral[key]

    @cached_property
    def constants(self) -> set[str]:
        """The values that may be constant."""
        makers = self.index.operators.get("Constant", ())
        return self.index.made_by(makers) | self.index.initializers.keys()

    def array(self, name: str) -> Array | None:
        """Return the numbers of a constant in memory: small ones, and what was folded."""
        tensor = constant(self.index, name)
        if tensor is None or is_external(tensor):
            return None
        return dtypes.to_array(tensor)

    def same_type(self, one: str, other: str) -> bool:
        """Return whether two values have the same dtype, and the same size on every axis."""
        kinds = [self.type_of(name) for name in (one, other)]
        first, second = (kind.tensor_type if kind is not None else None for kind in kinds)
        if first is None or second is None or first.elem_type != second.elem_type:
            return False
        if not (first.HasField("shape") and second.HasField("shape")):
            return False  # no shape and a scalar's empty one are equal messages
        # "is" first: values share messages
        if first is not second and first.shape != second.shape:
            return False
        return all(dim.WhichOneof("value") for dim in first.shape.dim)

    def type_of(self, name: str) -> TypeProto | None:
        return self._inferred.get(name) or self.index.types.get(name)

    @cached_property
    def _inferred(self) -> Mapping[str, TypeProto]:
        return infer_types(self.index)[0]

    def keeps_type(self, node: NodeProto) -> bool:
        return self.same_type(node.input[0], node.output[0])

    def keeps_dtype(self, node: NodeProto) -> bool:
        one, other = self.type_of(node.input[0]), self.type_of(node.output[0])
        if one is None or other is None:
            return False
        return bool(one.tensor_type.elem_type == other.tensor_type.elem_type != 0)

    def keeps_order(self, node: NodeProto) -> bool:
        perm = attributes_of(node).get("perm")
        return perm is not None and perm == sorted(perm)

    def takes_all(self, node: NodeProto) -> bool:
        """Return whether a Slice goes forward, and takes everything."""
        # steps are the fifth input
        steps = self.array(node.input[4]) if len(node.input) > 4 else np.ones(1)
        return steps is not None and bool((steps == 1).all()) and self.keeps_type(node)

    def adds_nothing(self, node: NodeProto) -> bool:
        """Return whether all pads of a Pad are 0."""
        # since opset 11 an input, before that an attribute
        pads = self.array(node.input[1]) if node.input[1:] else attributes_of(node).get("pads")
        return pads is not None and not np.any(pads)

    def drops_nothing(self, node: NodeProto) -> bool:
        """Return whether a Dropout is not in training mode."""
        # the third input is training_mode
        training = operand(node, 2)
        array = self.array(training) if training else np.zeros(1)
        return array is not None and not array.any()


_ONE_INPUT = frozenset(("Identity", "Concat", "Sum", "Max", "Min", "Mean"))
"""Operators that return their input if there is one alone."""
_NEUTRAL = {
    "Add": (0, (0, 1)),
    "Sub": (0, (1,)),
    "Mul": (1, (0, 1)),
    "Div": (1, (1,)),
    "Pow": (1, (1,)),
    "And": (1, (0, 1)),
    "Or": (0, (0, 1)),
    "Xor": (0, (0, 1)),
}
"""Operator -> the number that changes nothing, and where it can stand."""
_TESTS: dict[str, Callable[[_Noops, NodeProto], bool]] = {
    "Cast": _Noops.keeps_dtype,
    "CastLike": _Noops.keeps_dtype,
    "Dropout": _Noops.drops_nothing,
    "Pad": _Noops.adds_nothing,
    "Slice": _Noops.takes_all,
    "Transpose": _Noops.keeps_order,
    **dict.fromkeys(
        ("Expand", "Flatten", "Reshape", "Split", "Squeeze", "Tile", "Unsqueeze"), _Noops.keeps_type
    ),
}
"""Operator -> the test that a node returns its first input."""
_HANDLED = (*_ONE_INPUT, *_NEUTRAL, *_TESTS)
