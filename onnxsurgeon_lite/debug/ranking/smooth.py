"""A model without its roundings: quantizers only clip, and half precision is float32."""

from collections.abc import Iterable
from itertools import chain

import numpy as np
from onnx import AttributeProto, NodeProto, TensorProto, ValueInfoProto, helper

from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.quantizers import Quantizers
from onnxsurgeon_lite.model import Model, walk
from onnxsurgeon_lite.model.messages import assign
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.tensors.dtypes import from_array, is_array, numpy_dtype, to_array

_HALF = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
_DTYPES = ("to", "dtype")  # attributes that hold one


def smoothed(index: GraphIndex, quantizers: Quantizers) -> Model | None:
    """Return the model without the roundings of its values, which keep their names; None if it has none.

    Weights stay as they are rounded.
    """
    # half precision shows in weights or inputs
    half = [t for t in walk.initializers(index.model.proto) if t.data_type in _HALF]
    halves = half or any(v.type.tensor_type.elem_type in _HALF for v in index.inputs.values())
    if not quantizers.sources and not halves:
        return None
    model = index.model.copy()
    _clip(model, index, quantizers)
    if halves:
        _widen(model)
    return model


def widened(feeds: Feeds) -> Feeds:
    """Return feeds for a model without half precision."""
    half = list(map(numpy_dtype, _HALF))
    wide = {n: v for n, v in feeds.items() if is_array(v) and v.dtype in half}
    return feeds | {name: value.astype(np.float32) for name, value in wide.items()}


def _clip(model: Model, index: GraphIndex, quantizers: Quantizers) -> None:
    """Put a Clip in the place of each pair of quantizers, or nothing where it differs by channel."""
    index.learn_types(quantizers.sources.values())
    for behind, source in quantizers.sources.items():
        node, grid = model.proto.graph.node[index.producer[behind]], quantizers.grids[behind]
        element, limits = index.element_of(source), list[str]()
        # a range for each channel is no Clip: nothing is cut off then
        for limit in () if grid.scale.ndim or not element else grid.range(()):
            limits.append(f"{behind}\x01{len(limits)}")
            number = np.asarray(limit, numpy_dtype(element))
            model.proto.graph.initializer.append(from_array(number, limits[-1]))
        operator = "Clip" if limits else "Identity"
        node.CopyFrom(helper.make_node(operator, [source] + limits, [behind], node.name))


def _widen(model: Model) -> None:
    """Make all half precision float32; weights are cast when the model runs."""
    proto = model.proto
    # weights stay as stored, under another name; a Cast at the start of the graph makes them float32
    for graph in walk.graphs(proto):
        casts = [_cast_behind(t) for t in graph.initializer if t.data_type in _HALF]
        nodes = casts + list(map(_copy, graph.node))
        assign(graph.node, nodes)
        _declare(chain(graph.input, graph.output, graph.value_info))
        _widen_attributes(graph.node)
    for function in proto.functions:
        _declare(function.value_info)
        _widen_attributes(walk.with_inner(function.node))


def _copy(node: NodeProto) -> NodeProto:
    made = NodeProto()
    made.CopyFrom(node)
    return made


def _cast_behind(tensor: TensorProto) -> NodeProto:
    name, tensor.name = tensor.name, f"{tensor.name}\x01half"
    return helper.make_node("Cast", [tensor.name], [name], to=TensorProto.FLOAT)


def _declare(values: Iterable[ValueInfoProto]) -> None:
    for value in values:
        if value.type.tensor_type.elem_type in _HALF:
            value.type.tensor_type.elem_type = TensorProto.FLOAT


def _widen_attributes(nodes: Iterable[NodeProto]) -> None:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.name in _DTYPES and attribute.i in _HALF:
                attribute.i = TensorProto.FLOAT
            if attribute.type == AttributeProto.TENSOR and attribute.t.data_type in _HALF:
                wide = to_array(attribute.t).astype(np.float32)
                attribute.t.CopyFrom(from_array(wide, attribute.t.name))
