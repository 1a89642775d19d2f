"""Follow the numbers of shapes, element by element: one size can be known where another one is open."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, TensorProto, TypeProto

from onnxsurgeon_lite.graph import sizes_in
from onnxsurgeon_lite.model import by_name

Elements = npt.NDArray[np.object_]
"""Numbers of a tensor of rank 0 or 1; None for one that is not known."""
Read = Callable[[str], Elements | None]


def shape_values(node: NodeProto, read: Read, kind: TypeProto | None) -> Elements | None:
    """Return the numbers that a node makes of those that it reads; None if it is not about shapes.

    Args:
        read: the numbers of an input of the node.
        kind: the type of the first input.
    """
    attributes = by_name(node.attribute)
    first = read(node.input[0]) if node.input else None
    if node.op_type == "Shape":
        # The attributes `start` and `end` of a Shape: None where they are not set.
        return _shape(
            kind, *(attributes[n].i if n in attributes else None for n in ("start", "end"))
        )
    if first is None:
        return None
    match node.op_type:
        case "Identity":
            return first
        # sizes are int64: any other dtype would change numbers
        case "Cast" if attributes["to"].i == TensorProto.INT64:
            return first
        case "Squeeze" if first.size == 1:
            return first.reshape(())
        case "Unsqueeze" if not first.ndim:
            axes = attributes["axes"].ints if "axes" in attributes else read(node.input[1])
            # one number becomes a list of one
            return first.reshape(1) if axes is not None and np.size(axes) == 1 else None
        case "Gather" if first.ndim == 1:
            return _gather(first, read(node.input[1]))
        case "Slice" if first.ndim == 1:
            return _slice(first, [read(name) for name in node.input[1:]])
        case "Concat":
            parts = [read(name) for name in node.input]
            # Parts whose numbers are all known, some elements possibly None.
            known = [part for part in parts if part is not None and part.ndim == 1]
            return np.concatenate(known) if len(known) == len(parts) else None
    return None


def is_known(elements: Elements | None) -> bool:
    """Return whether all numbers are known."""
    return elements is not None and not any(number is None for number in elements.flat)


def _shape(kind: TypeProto | None, start: int | None, end: int | None) -> Elements | None:
    sizes = sizes_in(kind)
    return None if sizes is None else np.array(sizes, object)[start:end]


def _gather(data: Elements, places: Elements | None) -> Elements | None:
    if places is None or not is_known(places):
        return None
    indices = places.astype(np.int64)
    # an index outside is an error of the model, which a run shows
    inside = np.all((-data.size <= indices) & (indices < data.size))
    return np.array(data[indices], object) if inside else None


def _slice(data: Elements, operands: list[Elements | None]) -> Elements | None:
    if len(operands) < 2 or not all(map(is_known, operands)):
        return None
    numbers = [int(part.ravel()[0]) for part in operands if part is not None and part.size == 1]
    if len(numbers) != len(operands):
        return None
    # Operands are starts, ends, axes, steps; the last two have defaults: axis 0, step 1.
    start, end, _, step = tuple(numbers) + (0, 1)[len(numbers) - 2 :]
    return data[start:end:step] if step > 0 else None
