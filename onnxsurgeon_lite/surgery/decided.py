"""Replace operands that the types of values decide: the shape of a Reshape, the dtype of a CastLike."""

from collections.abc import Mapping

import numpy as np
from onnx import GraphProto, NodeProto, TypeProto, helper

from onnxsurgeon_lite.graph import GraphIndex, constant, dims_of, held
from onnxsurgeon_lite.model import drop, is_external, is_standard
from onnxsurgeon_lite.surgery.edits import fresh
from onnxsurgeon_lite.tensors import dtypes

DECIDED = ("Reshape", "CastLike")
"""Operators with such operands."""


def decide(
    index: GraphIndex, graph: GraphProto, types: Mapping[str, TypeProto], taken: set[str]
) -> int:
    """Replace, in place, the operands that types decide in a graph that an index describes.

    Args:
        types: inferred ones: the sizes in them are exact.
        taken: the names of values; new ones are added.

    Returns:
        How many nodes changed.
    """
    changed = 0
    # Inferred types are more exact than those that the inputs declare.
    known = ((name, index.types.get(name)) for name in index.inputs)
    types = {name: kind for name, kind in known if kind is not None} | dict(types)
    for node in graph.node:
        if not is_standard(node):
            continue
        if node.op_type == "CastLike":
            changed += _decide_dtype(node, types)
        # a shape that the model computes
        elif node.op_type == "Reshape" and held(index, node.input[1]) is None:
            shape = _shape(node, types, _rest(index, node.input[1], types))
            if shape is not None:
                drop(node.attribute, lambda attribute: attribute.name == "allowzero")
                name = fresh(f"{node.output[0]}_shape", taken)
                graph.initializer.append(dtypes.from_array(np.array(shape, np.int64), name))
                node.input[1] = name
                changed += 1
    return changed


def _decide_dtype(node: NodeProto, types: Mapping[str, TypeProto]) -> bool:
    kind = types.get(node.output[0])
    if kind is None or not kind.tensor_type.elem_type:
        return False
    node.op_type = "Cast"
    del node.input[1:]
    node.attribute.append(helper.make_attribute("to", kind.tensor_type.elem_type))
    return True


def _shape(node: NodeProto, types: Mapping[str, TypeProto], rest: int | None) -> list[int] | None:
    """Return a Reshape's shape: numbers, and either 0 for sizes that it keeps or one -1; None if that is not enough.

    Both together would refuse an empty tensor, which the computed shape does not unless it has that -1 itself.

    Args:
        rest: the place of the computed shape's own -1.
    """
    # A size with the same symbol before and after is kept: 0 says so. At most one other size may be -1.
    before, after = (dims_of(types.get(name)) for name in (node.input[0], node.output[0]))
    kept = [
        place
        for place, dim in enumerate(after)
        if place < len(before) and dim.dim_param and dim.dim_param == before[place].dim_param
    ]
    unknown = [place for place, dim in enumerate(after) if not dim.HasField("dim_value")]
    # an empty tensor: 0 would not mean to keep the size
    if not after or 0 in (dim.dim_value for dim in after if dim.HasField("dim_value")):
        return None
    if set(unknown) <= set(kept):
        return [0 if place in unknown else dim.dim_value for place, dim in enumerate(after)]
    if len(unknown) == 1:
        return [-1 if place in unknown else dim.dim_value for place, dim in enumerate(after)]
    # The computed shape has a -1 itself: then it refuses empty tensors already, and both may be used.
    if rest in unknown and set(unknown) <= {*kept, rest}:
        own = dict.fromkeys(unknown, 0) | {rest: -1}
        return [own.get(place, dim.dim_value) for place, dim in enumerate(after)]
    return None


def _rest(index: GraphIndex, name: str, types: Mapping[str, TypeProto]) -> int | None:
    """Return the place of the only -1 that is joined with computed sizes to a shape."""
    node = index.node_of(name)
    if node is None or node.op_type != "Concat":
        return None
    # Add up the lengths of the parts, to know the position of each -1 in the whole shape.
    places = []
    length = 0
    for part in node.input:
        tensor = constant(index, part)
        dims = dims_of(types.get(part))
        if tensor is not None and is_external(tensor):
            return None
        if tensor is not None:
            numbers = dtypes.to_array(tensor).ravel()
            places += [length + place for place in np.flatnonzero(numbers == -1)]
            length += numbers.size
        elif len(dims) == 1 and dims[0].HasField("dim_value"):
            length += dims[0].dim_value
        else:
            return None
    return int(places[0]) if len(places) == 1 else None
