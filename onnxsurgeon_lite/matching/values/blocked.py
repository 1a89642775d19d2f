"""Convert feature maps from the blocked (NCHWc) layout of onnxruntime's optimizer to NCHW.

Between `ReorderInput` and `ReorderOutput` nodes a tensor of shape [N, C, H, W] is stored as
[N, C / block, H, W, block]. The block size depends on the processor.
"""

from collections.abc import Collection

import numpy as np
from onnx import TensorProto, helper

from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.tensors.dtypes import Array

_DOMAIN = "com.microsoft.nchwc"


def blocked_values(index: GraphIndex) -> Collection[str]:
    """Return the values in blocked layout: outputs of NCHWc nodes, and of elementwise nodes on them."""
    found: set[str] = set()
    for position in index.order:
        node = index.nodes[position]
        makes = node.domain == _DOMAIN and node.op_type != "ReorderOutput"
        keeps = not node.domain and not found.isdisjoint(node.input)
        if makes or keeps:
            found.update(node.output)
    return found


def block_size(index: GraphIndex, runtime: Runtime) -> int:
    """Return the channels per block: the number to which the runtime pads fewer channels."""
    small = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 4, 1, 1]), ("y", None))
    ]
    node = helper.make_node("ReorderInput", ["x"], ["y"], domain=_DOMAIN)
    graph = helper.make_graph([node], "block", small[:1], small[1:])
    model = helper.make_model(graph, opset_imports=index.model.proto.opset_import)
    model.ir_version = index.model.proto.ir_version
    runtime.put("x", np.ones((1, 4, 1, 1), np.float32))
    runtime.open(index.model.with_proto(model))
    found = runtime.run({"x": "x"}, ["y"]).values["y"]
    runtime.forget(["x"])
    return int(found.shape[1]) if isinstance(found, np.ndarray) else 1


def unblocked(array: Array, block: int) -> Array:
    """Return a feature map in NCHW layout."""
    if array.ndim != 4 or array.shape[1] % block:
        return array
    n, channels, height, width = array.shape
    blocks = array.reshape(n, channels // block, height, width, block)
    return blocks.transpose(0, 1, 4, 2, 3).reshape(array.shape)
