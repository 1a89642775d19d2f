"""The sizes of the inputs and outputs of a body."""

from collections.abc import Sequence

from onnx import TensorShapeProto, TypeProto

from onnxsurgeon_lite.graph.index import dims_of
from onnxsurgeon_lite.model import copied
from onnxsurgeon_lite.surgery.resizing.inference import State
from onnxsurgeon_lite.surgery.resizing.sizes import Axis, Size, product, varies


def either(states: Sequence[State]) -> State:
    """Return the state that holds for any branch, and for any number of iterations of a body that keeps its sizes."""
    first = states[0]
    follows = any(state.follows for state in states)
    if all(state.types == first.types for state in states):
        return State(first.types, first.axes, None, follows)
    types = tuple(map(_without_shape, first.types))
    return State(types, None, None, follows)


def grown(before: State, after: State) -> list[Size | None]:
    """Return the new size of each axis whose fixed size becomes one that depends on a changed dimension, else None."""
    sizes, results = before.sizes(), after.sizes()
    if sizes is None or results is None or len(sizes) != len(results):
        return []
    return [
        there if here and there and varies(there) and here == (there[0],) * len(there) else None
        for here, there in zip(sizes, results, strict=True)
    ]


def sliced(state: State, axis: int) -> State:
    """Return the state of one element that a Scan reads along an axis."""
    if not state.axes:
        return State(tuple(map(_without_shape, state.types)), None, None, state.follows)
    axes = list(state.axes)
    place = axis % len(axes)
    del axes[place]
    types = []
    for whole in state.types:
        kind = copied(whole)
        del kind.tensor_type.shape.dim[place]
        types.append(kind)
    return State(tuple(types), tuple(axes), None, state.follows)


def stacked(state: State, axis: int, count: Axis | None) -> State:
    """Return the state of a body's results stacked along a new axis.

    Args:
        count: the number of iterations at each trial, if known.
    """
    if state.axes is None:
        return State(tuple(map(_without_shape, state.types)), None, None, state.follows)
    axes = list(state.axes)
    place = axis % (len(axes) + 1)
    axes.insert(place, count)
    numbers = [None] * len(state.types) if count is None else list(product(count))
    types = []
    for one, number in zip(state.types, numbers, strict=True):
        kind = copied(one)
        dims = list(dims_of(one))
        dims.insert(place, TensorShapeProto.Dimension(dim_value=number))
        del kind.tensor_type.shape.dim[:]
        kind.tensor_type.shape.dim.extend(dims)
        types.append(kind)
    return State(tuple(types), tuple(axes), None, state.follows)


def _without_shape(kind: TypeProto) -> TypeProto:
    copy = copied(kind)
    if copy.HasField("tensor_type"):
        copy.tensor_type.ClearField("shape")
    return copy
