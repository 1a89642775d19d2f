"""Operators of onnxruntime in the place of their parts: the inverse of `standardize`, and for exports."""

from collections import Counter

import numpy as np
import onnx
import pytest
from ml_dtypes import int4, uint4
from onnx import numpy_helper

import onnxsurgeon_lite as osl
from kit import packages
from onnxsurgeon_lite.tensors.dtypes import from_array

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


CAUSAL = """<ir_version: 10, opset_import: ["" : 23]>
g (float[1,3,32] q, float[1,3,16] k, float[1,3,16] v, float[1,2,5,8] past_key, float[1,2,5,8] past_value)
    => (float[1,3,32] y, float[1,2,8,8] key, float[1,2,8,8] value) {
    y, key, value = Attention <is_causal = 1, q_num_heads = 4, kv_num_heads = 2, scale = 0.3>
        (q, k, v, , past_key, past_value)
}"""


def by_hand(q, k, v, past_key, past_value, heads=4, groups=2, scale=0.3):
    """Attention over a cache in numpy: the token at place i sees the cache, and tokens up to i."""

    def apart(x, count):
        return x.reshape(1, x.shape[1], count, -1).transpose(0, 2, 1, 3)

    keys = np.concatenate([past_key, apart(k, groups)], 2)
    values = np.concatenate([past_value, apart(v, groups)], 2)
    scores = apart(q, heads) @ keys.repeat(heads // groups, 1).swapaxes(2, 3) * scale
    seen = np.arange(keys.shape[2]) <= np.arange(q.shape[1])[:, None] + past_key.shape[2]
    shares = np.exp(np.where(seen, scores, -np.inf))
    mixed = shares / shares.sum(-1, keepdims=True) @ values.repeat(heads // groups, 1)
    return mixed.transpose(0, 2, 1, 3).reshape(q.shape)


def test_a_causal_attention_with_its_cache_is_that_of_groups_and_standardize_undoes_it():
    model = built(CAUSAL)

    fused = osl.fuse(model).model

    assert operators(fused)["GroupQueryAttention"] == 1
    assert "Attention" not in operators(fused)
    rng = np.random.default_rng(1)
    feeds = {
        info.name: rng.normal(size=[d.dim_value for d in info.type.tensor_type.shape.dim]).astype(
            np.float32
        )
        for info in model.proto.graph.input
    }
    found = osl.run(fused, feeds)
    np.testing.assert_allclose(found["y"], by_hand(**feeds), atol=1e-5)
    assert_equal_outputs(model, fused)
    assert_equal_outputs(model, osl.standardize(fused).model)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("is_causal = 1, ", "", "'is_causal == 1' does not hold"),
        ("float[1,", "float[batch,", "shape(q)[0] == 1 or shape(q)[-2] == 1"),
        ("float[1,3,16] k", "float[1,n,16] k", "shape(k)[1] == shape(q)[1]"),
    ],
)
def test_an_attention_that_is_not_surely_one_of_groups_stays_and_the_note_says_why(
    old, new, reason
):
    assert old in CAUSAL

    result = osl.fuse(built(CAUSAL.replace(old, new)))

    assert operators(result.model) == {"Attention": 1}
    assert reason in "".join(result.notes)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A dynamo export of two layers that repeats keys and values for each head of queries, simplified."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from kit.cached import exported_step

    place = tmp_path_factory.mktemp("export") / "model.onnx"
    exported_step(place, layers=2)
    return osl.simplify(place).model


def step(new, past):
    """What the export is fed: some tokens after a cache of some, of which a mask hides the first."""
    rng = np.random.default_rng(new)
    names = (f"{part}.{layer}" for layer in (0, 1) for part in ("key", "value"))
    cache = {name: rng.normal(size=(1, 2, past, 8)).astype(np.float32) for name in names}
    mask = (np.arange(past + new) > 0).astype(np.int64)[None]
    return {"input_ids": rng.integers(0, 50, (1, new)), "attention_mask": mask, **cache}


@pytest.mark.filterwarnings("ignore")
def test_an_export_that_repeats_keys_and_values_gets_the_kernel_of_a_package(exported):
    fused = osl.fuse(exported, verify=True)

    assert operators(fused.model)["GroupQueryAttention"] == 2
    assert not {"MultiHeadAttention", "Softmax"} & operators(fused.model).keys()
    assert "made attention_mask" in "".join(fused.ran)
    standard = osl.standardize(fused.model).model
    for sizes in ((4, 3), (1, 6), (1, 1)):
        right = osl.run(exported, step(*sizes))
        for model in (fused.model, standard):
            found = osl.run(model, step(*sizes))
            for name, value in right.items():
                np.testing.assert_allclose(found[name], value, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("operator", "other"), [("LessOrEqual", "GreaterOrEqual"), ("And", "Or"), ("Range", "")]
)
def test_a_mask_that_may_show_later_tokens_keeps_repeated_keys_in_parts(operator, other, exported):
    proto = exported.materialize()
    for node in proto.graph.node:
        if node.op_type == operator and other:
            node.op_type = other
        elif node.op_type == operator:  # positions begin later
            node.input[0] = node.input[2]

    fused = osl.fuse(osl.Model(proto), unproved=True).model

    assert operators(fused)["GroupQueryAttention"] == 0


@pytest.mark.parametrize("dtype", ["float", "float16"])
@pytest.mark.parametrize("kind", [int4, uint4, np.int8, np.uint8])
@pytest.mark.parametrize("has_zero", [False, True])
def test_a_weight_in_blocks_and_its_product_are_one_operator(kind, has_zero, dtype):
    rng, wide = np.random.default_rng(0), np.float32 if dtype == "float" else np.float16
    low, high = {int4: (-8, 8), uint4: (0, 16), np.int8: (-128, 128), np.uint8: (0, 256)}[kind]
    w, zero = (rng.integers(low, high, (rows, 6)).astype(kind) for rows in (48, 3))
    scale = rng.uniform(0.1, 0.2, (3, 6)).astype(wide)
    model = built(f"""<ir_version: 10, opset_import: ["" : 21]> g ({dtype}[2,3,48] a) => ({dtype}[2,3,6] y) {{
        weight = DequantizeLinear <axis = 0, block_size = 16> (w, scale{", zero" * has_zero}) y = MatMul (a, weight)
    }}""")
    for name, array in {"w": w, "scale": scale, "zero": zero}.items():
        if has_zero or name != "zero":
            model.proto.graph.initializer.append(from_array(array, name))

    fused = osl.fuse(model).model

    assert operators(fused) == {"MatMulNBits": 1}
    a = rng.normal(size=(2, 3, 48)).astype(wide)
    zeros = zero.astype(np.float64) * has_zero
    weight = (w.astype(np.float64) - zeros.repeat(16, 0)) * scale.astype(np.float64).repeat(16, 0)
    wanted, found = a.astype(np.float64) @ weight, osl.run(fused, {"a": a})["y"]
    np.testing.assert_allclose(found, wanted, atol=np.finfo(wide).eps * np.abs(wanted).max() * 8)
    assert osl.dequantize(fused).changes == ("1 MatMulNBits in float",)


def test_a_weight_that_something_else_reads_stays_in_the_model():
    model = built(
        """<ir_version: 10, opset_import: ["" : 21]>
    g (float[3,32] a) => (float[3,4] y, float[32,4] weight) {
        weight = DequantizeLinear <axis = 0, block_size = 16> (w, scale) y = MatMul (a, weight) }""",
        scale=(2, 4),
    )
    model.proto.graph.initializer.append(from_array(np.zeros((32, 4), np.int8), "w"))

    result = osl.fuse(model)

    assert not result.changed
    assert "contrib-matmul-nbits: no match; nearest: all 2 nodes match" in "".join(result.notes)
