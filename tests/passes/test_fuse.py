"""Operators of onnxruntime in the place of their parts: the inverse of `standardize`, and for exports."""

from collections import Counter

import numpy as np
import onnx
from onnx import numpy_helper

import onnxsurgeon_lite as osl
from kit import packages

ATTENTION = """<ir_version: 10, opset_import: ["" : 18]>
block (float[2,5,8] x, float[2,1,5,5] mask) => (float[2,5,8] y)
<int64[4] heads = {0, 0, 2, 4}, int64[3] flat = {0, 0, 8}, float root = {2}> {
    q0 = MatMul (x, wq) q1 = Reshape (q0, heads) q = Transpose <perm = [0,2,1,3]> (q1)
    k0 = MatMul (x, wk) k1 = Reshape (k0, heads) k = Transpose <perm = [0,2,3,1]> (k1)
    v0 = MatMul (x, wv) v1 = Reshape (v0, heads) v = Transpose <perm = [0,2,1,3]> (v1)
    products = MatMul (q, k) scaled = Div (products, root) masked = Add (scaled, mask)
    shares = Softmax <axis = -1> (masked) mixed = MatMul (shares, v)
    rows = Transpose <perm = [0,2,1,3]> (mixed) y = Reshape (rows, flat)
}"""
GELU = """<ir_version: 10, opset_import: ["" : 18]>
gelu (float[2,8] x) => (float[2,8] y) <float root = {1.4142135}, float one = {1}, float half = {0.5}> {
    h = Add (x, b) s = Div (h, root) e = Erf (s) t = Add (e, one) p = Mul (h, t) y = Mul (p, half)
}"""


def built(text, **shapes):
    """A model with weights of these shapes."""
    proto, rng = onnx.parser.parse_model(text), np.random.default_rng(0)
    arrays = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    proto.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in arrays.items())
    return osl.Model(proto)


def operators(model):
    return Counter(node.op_type for node in model.proto.graph.node)


def assert_equal_outputs(model, other):
    rng = np.random.default_rng(1)
    feeds = {
        info.name: rng.normal(size=[d.dim_value for d in info.type.tensor_type.shape.dim]).astype(
            np.float32
        )
        for info in model.proto.graph.input
    }
    expected, found = (osl.run(each, feeds) for each in (model, other))
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-5)


def test_an_attention_that_an_export_has_in_parts_is_one_of_onnxruntime():
    model = osl.infer(built(ATTENTION, wq=(8, 8), wk=(8, 8), wv=(8, 8))).model

    result = osl.simplify(osl.fuse(model).model).model

    counts = {"MatMul": 3, "Reshape": 8, "MultiHeadAttention": 1, "Constant": 2}
    assert operators(result) == counts
    assert_equal_outputs(model, result)
    assert_equal_outputs(model, osl.standardize(result).model)


def test_the_rotation_of_an_export_is_one_of_onnxruntime_and_standardize_undoes_it():
    model = built("""<ir_version: 10, opset_import: ["" : 18]>
    turn (float[2,3,5,8] x, float[1,5,4] angles) => (float[2,3,5,8] y)
    <int64[1] one = {1}, int64[1] axes = {3}, int64[1] start = {0}, int64[1] middle = {4}, int64[1] end = {8}> {
        both = Concat <axis = -1> (angles, angles)
        c = Cos (both) cos = Unsqueeze (c, one) s = Sin (both) sin = Unsqueeze (s, one)
        turned = Mul (x, cos) first = Slice (x, start, middle, axes) second = Slice (x, middle, end, axes)
        minus = Neg (second) swapped = Concat <axis = -1> (minus, first)
        moved = Mul (swapped, sin) y = Add (turned, moved)
    }""")

    fused = osl.clean(osl.fuse(model).model).model

    assert operators(fused) == {
        "Squeeze": 1,
        "Cos": 1,
        "Sin": 1,
        "RotaryEmbedding": 1,
        "Constant": 1,
    }
    assert_equal_outputs(model, fused)
    assert_equal_outputs(model, osl.standardize(fused).model)


def test_a_bias_goes_into_the_activation_behind_it():
    model = built(GELU, b=(8,))

    result = osl.fuse(model).model

    assert operators(result) == {"BiasGelu": 1}
    assert_equal_outputs(model, result)


def test_normalizations_of_a_package_come_back_after_standardize():
    package = packages.decoder(packages.checkpoint())
    standard = osl.simplify(osl.standardize(package).model).model
    assert operators(standard)["ReduceMean"] == 5

    fused = osl.fuse(standard).model

    norms = ("SkipSimplifiedLayerNormalization", "SimplifiedLayerNormalization", "ReduceMean")
    assert [operators(fused)[op] for op in norms] == [4, 1, 0]
    feeds = {"input_ids": np.array([[3, 1, 4, 1]]), "attention_mask": np.ones((1, 4), np.int64)}
    feeds |= {
        info.name: np.zeros((1, 2, 0, 16), np.float32)
        for info in package.proto.graph.input
        if info.name.startswith("past")
    }
    expected, found = (osl.run(each, feeds) for each in (package, fused))
    np.testing.assert_allclose(found["logits"], expected["logits"], rtol=1e-4, atol=1e-4)


def test_what_another_opset_calls_so_is_fused_too_and_standardize_undoes_it():
    text = """<ir_version: 10, opset_import: ["" : 23]>
    g (float[2,3,8] x, float[2,3,8] r) => (float[2,3,8] y, float[2,3,8] s) {
        s = Add (x, r) n = RMSNormalization <axis = -1, epsilon = 0.001> (s, w) y = Gelu <approximate = "tanh"> (n)
    }"""
    model = built(text, w=(8,))

    fused = osl.fuse(model).model

    assert operators(fused) == {"SkipSimplifiedLayerNormalization": 1, "FastGelu": 1}
    assert_equal_outputs(model, fused)
    again = osl.standardize(fused).model
    assert not {node.domain for node in again.proto.graph.node} - {""}
    assert_equal_outputs(model, again)
