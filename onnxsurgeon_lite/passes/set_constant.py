"""Change the numbers of a constant."""

from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

from onnx import AttributeProto, NodeProto, TensorProto

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph import GraphIndex, check_node, held
from onnxsurgeon_lite.graph.schemas import CONSTANTS
from onnxsurgeon_lite.model import Model, is_external
from onnxsurgeon_lite.passes.in_bodies import in_bodies
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.passes.targets import initializer_place, one_value, readers
from onnxsurgeon_lite.surgery import (
    Numbers,
    Taken,
    downstream,
    fresh,
    infer,
    make_tensor,
    rename_uses,
    retype,
)
from onnxsurgeon_lite.surgery.relax import decides_shapes
from onnxsurgeon_lite.tensors import dtypes


@dataclass(frozen=True)
class SetConstant:
    """Set a constant (initializer, input default, output of a Constant node) to other numbers of its dtype.

    A single number fills the constant's shape; an array sets a new shape. With `to`, only these nodes read the new
    numbers, from a copy; so do the nodes of a body, for a constant from outside.

    Attributes:
        value: an initializer, or the output of a Constant node.
        numbers: a number, a list, an array or a file that holds them.

    Example:
        >>> osl.set_constant("whole_model.onnx", "convs1.0.bias", 0).changed
        True
    """

    value: str
    numbers: Numbers
    to: tuple[str, ...] = ()
    name: ClassVar[str] = "set-constant"
    retypes: ClassVar[bool] = True

    @in_bodies(values=("value",), nodes=("to",))
    def apply(self, model: Model) -> PassResult:
        """Set the numbers.

        Raises:
            UnknownNameError: no such value or node.
            EditError: the value is not a constant, its dtype cannot represent the numbers, a node of `to` does not
                read it, or the new shape does not fit a node downstream.
        """
        index = GraphIndex.of(model)
        notes = list[str]()
        value = one_value(index, self.value, notes)
        # the new numbers have the dtype of the old ones
        old = constant_tensor(index, value)
        if not is_external(old):
            dtypes.to_array(old)  # it has as many elements as it declares, or this says so
        new = make_tensor(value, self.numbers, old.data_type, old)
        if new == old:
            return PassResult(model, changed=False, notes=tuple(notes))
        result = model.copy()
        # all readers, then those that are asked for
        users = readers(index, value, ())
        chosen = readers(index, value, self.to)
        what = f"constant {value!r}"
        # what others read as well, or a graph outside owns, stays: chosen nodes read a copy
        around = value in model.enclosing.names
        if around or len(chosen) < len(users):
            new.name = fresh(value, Taken(index))
            result.graph.initializer.append(new)
            rename_uses([result.graph.node[place] for place in chosen], {value: new.name})
            why = "comes from outside" if around else "is shared"
            notes.append(
                f"{value!r} {why}: {len(chosen)} of {len(users)} nodes read the copy {new.name!r}"
            )
            what = f"constant {new.name!r}, a copy of {value!r}"
        else:
            _put(result, index, value, new)
            if len(users) > 1:
                notes.append(
                    f"{value!r} is shared: {len(users)} nodes read the new numbers (--to selects some)"
                )
        # another shape changes the types of readers; other integers may change sizes further on
        if new.dims != old.dims:
            after = GraphIndex.of(result)
            for place in chosen:
                check_node(after, after.nodes[place], index.describe(place))
            notes += retype(model, after, list(index.outputs_of(chosen)))
        elif decides_shapes(index, {value: old}):
            notes += _follow(index, GraphIndex.of(result), chosen)
        change = f"{what}: set to {_shown(new)}, from {_shown(old)}"
        return PassResult.of(model, result, [change], notes)


def constant_tensor(index: GraphIndex, value: str) -> TensorProto:
    """Return the tensor of a constant or an input's default."""
    tensor = held(index, value)
    position = index.producer.get(value)
    if tensor is None:
        # say what it is instead
        kind = (
            "a sparse initializer"
            if value in index.initializers
            else "an input"
            if position is None
            else f"produced by {index.describe(position)}"
        )
        called = position is not None and index.nodes[position].op_type == "Constant"
        raise EditError(
            f"value {value!r} is not a constant: it is {kind}",
            "each call decides its numbers: onnxdbg edit set-attr gives them to all"
            if called
            else "name an initializer or the output of a Constant node",
        )
    return tensor


def _follow(before: GraphIndex, after: GraphIndex, readers: list[int]) -> list[str]:
    """Update declared shapes that depend on the constant's numbers."""
    changed = _depending(before, after, readers)
    return retype(before.model, after, changed) if changed else []


def _depending(before: GraphIndex, after: GraphIndex, readers: list[int]) -> list[str]:
    """Return the values whose types depend on the numbers that nodes read."""
    results = list(before.outputs_of(readers))
    # what is after the readers may depend on the numbers
    stale = downstream(before, results)
    # first the readers alone, over as few nodes as possible
    changed = _changed(before, after, stale, set(results), 1 + max(readers))
    if len(changed) == len(results):
        return changed
    return _changed(before, after, stale, stale)  # they may decide shapes further downstream


def _changed(
    before: GraphIndex,
    after: GraphIndex,
    stale: set[str],
    asked: set[str],
    count: int | None = None,
) -> list[str]:
    """Return the values whose inferred types differ."""
    one, two = (infer(index.model, stale, asked, count) for index in (before, after))
    return [name for name in one | two if one.get(name) != two.get(name)]


def _put(result: Model, index: GraphIndex, value: str, new: TensorProto) -> None:
    graph = result.graph
    if value in index.initializers:
        graph.initializer[initializer_place(graph, value)].CopyFrom(new)
    else:
        fill(graph.node[index.producer[value]], new)
    # a declared shape follows the new numbers
    for info in chain(graph.input, graph.value_info):
        if info.name == value and info.type.tensor_type.HasField("shape"):
            shape = info.type.tensor_type.shape
            if [dim.dim_value for dim in shape.dim] != list(new.dims):
                del shape.dim[:]
                for size in new.dims:
                    shape.dim.add(dim_value=size)


def fill(node: NodeProto, new: TensorProto) -> None:
    """Put a tensor into a Constant node, in its present attribute if that can hold it."""
    attribute = next(a for a in node.attribute if a.name.startswith("value"))
    data_type, field, stored = CONSTANTS.get(attribute.name, (0, "", ""))
    many = attribute.name.endswith("s")
    if attribute.name == "value":
        # the tensor keeps the name that it had, or none
        named = attribute.t.HasField("name")
        new.name = attribute.t.name
        attribute.t.CopyFrom(new)
        if not named:
            attribute.t.ClearField("name")
    elif new.data_type == data_type and len(new.dims) == many:
        numbers = getattr(new, stored)
        if many:
            getattr(attribute, field)[:] = numbers
        else:
            setattr(attribute, field, numbers[0])
    # the attribute cannot hold them: a tensor in its place
    else:
        attribute.Clear()
        attribute.name, attribute.type = "value", AttributeProto.TENSOR
        attribute.t.CopyFrom(new)
        attribute.t.name = ""


def _shown(tensor: TensorProto) -> str:
    kind = f"{dtypes.dtype_name(tensor.data_type)} {list(tensor.dims)}"
    if is_external(tensor):
        return kind
    array = dtypes.to_array(tensor)
    return f"{kind} {array.tolist()!r}" if array.size <= 8 else kind
