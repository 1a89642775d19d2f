"""Which values are computed from half precision, and so have only its precision, whatever their dtype."""

import numpy as np
from onnx import NodeProto, TensorProto

from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.model import integer, walk
from onnxsurgeon_lite.tensors.dtypes import numpy_dtype

HALF = (TensorProto.FLOAT16, TensorProto.BFLOAT16)


def coarse_values(index: GraphIndex) -> dict[str, np.dtype[np.generic]]:
    """Map the values that half precision goes into to its dtype, also behind a cast to float32.

    None of a model that computes nothing in half precision: there, a cast to it and back only loses digits.
    """
    found = {
        name: numpy_dtype(tensor.data_type)
        for name, tensor in index.initializers.items()
        if isinstance(tensor, TensorProto) and tensor.data_type in HALF
    }
    for name, declared in index.inputs.items():
        if declared.type.tensor_type.elem_type in HALF:
            found[name] = numpy_dtype(declared.type.tensor_type.elem_type)
    # what a Cast makes half precision, and what is so from the start
    halved = found.keys() | walk.outputs(filter(_casts_to_half, index.nodes))
    # half precision is only stored, and cast back before anything computes
    if all(node.op_type == "Cast" or halved.isdisjoint(node.input) for node in index.nodes):
        return {}
    for position in index.order:
        node = index.nodes[position]
        to = _casts_to_half(node)
        read = [found[name] for name in index.reads[position] if name in found]
        # a Cast to half decides; else the first half-precision input
        for dtype in [*map(numpy_dtype, to), *read][:1]:
            found.update(dict.fromkeys(node.output, dtype))
    return found


def _casts_to_half(node: NodeProto) -> list[int]:
    """Return the half-precision dtype that a node casts to, [] if it does not."""
    to = integer(node, "to")
    return [to] if node.op_type == "Cast" and to in HALF else []
