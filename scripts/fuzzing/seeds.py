"""Models to mutate: small, and together with everything that a model can hold."""

from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser

_HEADER = '<ir_version: 10, opset_import: ["" : 21, "local" : 1]>'
_TEXTS = {
    "plain": """g (float[N,4] x) => (float[N,4] y) <float[4] w = {1,2,3,4}>
        { h = Add(x, w) s = Relu(h) y = Mul(s, w) }""",
    "shapes": """g (float[2,6] x) => (float[N,M] y)
        <int64[2] to = {3, -1}, int64 start = {0}, int64 end = {4}, int64 step = {1}>
        { h = Reshape(x, to) n = Shape(h) r = Range(start, end, step)
          c = ConstantOfShape(n) e = Expand(c, n) y = Add(h, e) }""",
    "functions": """g (float[4] x) => (float[4] y) { h = local.twice(x) y = local.twice(h) }
        <domain: "local", opset_import: ["" : 21, "local" : 1]> twice (a) => (b) { c = local.once(a) b = local.once(c) }
        <domain: "local", opset_import: ["" : 21]> once (a) => (b) { b = Add(a, a) }""",
    "branches": """g (float[4] x, bool c) => (float[4] y) {
        h = Relu(x)
        y = If (c) <then_branch = t () => (float[4] a) { a = Neg(h) },
                    else_branch = e () => (float[4] b) { b = Abs(h) }> }""",
    "loop": """g (float[4] x, int64 n) => (float[4] y, float[n, 4] all) <bool go = {1}> {
        y, all = Loop (n, go, x) <body = b (int64 i, bool c, float[4] s) => (bool d, float[4] t, float[4] u)
            { d = Identity(c) t = Add(s, s) u = Neg(t) }> }""",
    "sequence": """g (float[4] x) => (float[8] y)
        { s = SequenceConstruct(x, x) a = ConcatFromSequence<axis = 0>(s) y = Relu(a) }""",
}  # fmt: skip


def seeds(fixtures: Path | None = None) -> dict[str, bytes]:
    """Return name -> serialized model."""
    models = {name: parser.parse_model(f"{_HEADER}\n{text}") for name, text in _TEXTS.items()}
    models |= {"weights": _weights(), "rich": _rich()}
    found = {name: model.SerializeToString() for name, model in models.items()}
    for path in sorted(fixtures.glob("*.onnx")) if fixtures else ():
        found[path.stem] = path.read_bytes()
    return found


def _weights() -> ModelProto:
    """Tensors of several dtypes, one above the size from which they stay in the file."""
    model = parser.parse_model(
        f"{_HEADER} g (float[2,20] x) => (float[2,20] y) {{ h = MatMul(x, w) y = Add(h, b) }}"
    )
    numbers = np.random.default_rng(0).normal(size=(20, 20)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(numbers, "w"))
    model.graph.initializer.append(helper.make_tensor("b", TensorProto.FLOAT, [20], [0.5] * 20))
    model.graph.initializer.append(helper.make_tensor("i4", TensorProto.INT4, [3], [1, 2, 3]))
    model.graph.initializer.append(
        helper.make_tensor("text", TensorProto.STRING, [2], [b"a", b"b"])
    )
    model.graph.initializer.append(
        helper.make_tensor("half", TensorProto.BFLOAT16, [2], [1.0, 2.0])
    )
    model.graph.initializer.append(
        helper.make_tensor("packed", TensorProto.DOUBLE, [200], [1.5] * 200)
    )
    return model


def _rich() -> ModelProto:
    """Everything that tools lose."""
    model = parser.parse_model(f"{_HEADER}\n{_TEXTS['functions']}")
    graph = model.graph
    values = helper.make_tensor("s", TensorProto.FLOAT, [1], [5.0])
    indices = helper.make_tensor("at", TensorProto.INT64, [1], [2])
    graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4]))
    graph.node.add(op_type="Add", input=["h", "s"], output=["sparse"], name="/part/sparse")
    annotation = graph.quantization_annotation.add(tensor_name="h")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="s")
    training = model.training_info.add()
    training.algorithm.name = training.initialization.name = "step"
    training.algorithm.node.add(op_type="Neg", input=["h"], output=["new"])
    training.update_binding.add(key="h", value="new")
    model.metadata_props.add(key="key", value="value")
    graph.node[0].metadata_props.add(
        key="pkg.torch.onnx.name_scopes", value="['', 'layer', 'layer.0']"
    )
    graph.node[0].doc_string = "doc"
    graph.MergeFromString(b"\xba\x3e\x03abc")  # field 999
    return model
