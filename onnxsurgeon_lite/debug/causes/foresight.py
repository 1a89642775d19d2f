"""Foresee what the runtime refuses of edited copies of a place: one that it refuses ends the session of all."""

from collections.abc import Container

from onnx import helper

from onnxsurgeon_lite.debug.causes.place import Place
from onnxsurgeon_lite.errors import RuntimeFailure
from onnxsurgeon_lite.graph import native
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.tensors.dtypes import data_type_of_numpy, is_array


def refused(place: Place, copy: Model, same: Container[bytes]) -> bool:
    """Return whether type inference refuses what an edited copy computes otherwise than the place does.

    Args:
        same: the nodes that the place has, too.
    """
    index, stay = GraphIndex.of(copy), place.index.initializers
    differs = {n for n, t in index.initializers.items() if n not in stay or stay[n] != t}
    positions = list[int]()
    for position, node in enumerate(index.nodes):
        changed = node.SerializeToString() not in same or differs & {*index.reads[position]}
        if changed:
            differs.update(node.output)
        if changed or node.op_type == "Constant":  # its numbers may be sizes
            positions.append(position)
    made, values = index.made_by(positions), {**place.values, **place.nearby}
    types = {
        name: helper.make_tensor_type_proto(data_type_of_numpy(value.dtype), value.shape)
        for name, value in values.items()
        if is_array(value) and name not in made
    }
    part = Observer(index, place.runtime).part(positions, types, list(made))
    try:
        native.infer(part, strict=True, data_prop=True)
    except (native.RejectedError, RuntimeFailure):
        return True
    return False
