"""A model with everything that tools lose."""

import onnx
from onnx import TensorProto, helper

from onnxsurgeon_lite import (
    Model,
)

TEXT = """
<ir_version: 10, opset_import: ["" : 18, "local" : 1], producer_name: "maker", producer_version: "1",
 domain: "some.where", model_version: 7, doc_string: "of the model", metadata_props: ["key" : "value"]>
g (float[N,4] x) => (float[N,4] y, float[N,4] z)
<float[4] w = {1,2,3,4}, float[4] same = {1,2,3,4}, float[4] twin = {1,2,3,4},
 float[N,4] a, float[N,4] b, float[N,4] c, float[N,4] d> {
    [add] a = Add(x, w)
    [scale] b = LeakyRelu<alpha = 0.5>(a)
    [call] c = local.twice(b)
    [again] e = local.twice(c)
    [dead] nothing = Add(x, twin)
    ["/part/sparse"] d = Add(e, s)
    ["/part/last"] y = Relu(d)
    [other] z = Add(b, same)
}
<domain: "local", opset_import: ["" : 18], overload: "one">
twice (p) => (q) { q = Add(p, p) }
<domain: "local", opset_import: ["" : 18], overload: "two">
twice (p) => (q) { half = Abs(p) q = Sub(p, half) }
"""


UNKNOWN = b"\xba\x3e\x03abc"  # field 999


def rich() -> Model:
    """A model with everything that tools lose."""
    proto = onnx.parser.parse_model(TEXT)
    graph = proto.graph
    graph.node[2].overload, graph.node[3].overload = "one", "two"
    values = helper.make_tensor("s", TensorProto.FLOAT, [1], [5.0])
    indices = helper.make_tensor("at", TensorProto.INT64, [1], [2])
    graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4]))
    annotation = graph.quantization_annotation.add(tensor_name="c")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="w")
    training = proto.training_info.add()
    training.algorithm.name = "step"
    training.algorithm.node.append(helper.make_node("Neg", ["w"], ["new"]))
    training.update_binding.add(key="w", value="new")
    graph.node[1].attribute[0].doc_string = "of the attribute"
    for number, message in enumerate((*graph.node, *graph.value_info, *graph.input, *graph.output,
                                      *graph.initializer, graph, *proto.functions)):  # fmt: skip
        message.doc_string = f"doc {number}"
        message.metadata_props.add(key="number", value=str(number))
        message.MergeFromString(UNKNOWN)
    twin = graph.initializer[2]
    twin.CopyFrom(graph.initializer[1])
    twin.name = "twin"
    proto.MergeFromString(UNKNOWN)
    onnx.checker.check_model(proto)
    return Model(proto)
