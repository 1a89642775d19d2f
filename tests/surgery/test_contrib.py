"""Operators of onnxruntime as ONNX's own: each computes what onnxruntime's kernel does, on random inputs."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxsurgeon_lite as osl
from kit.packages import HEAD, KV_HEADS, checkpoint, decoder, feeds, package, quantized

BATCH, NEW, HEADS = 2, 5, 4
GQA = "y, k, v = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2 MORE> (INPUTS)"


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def rotary(width=HEAD // 2, longest=32):
    angles = np.arange(longest)[:, None] / 100.0 ** (np.arange(width) / width)
    return {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}


def net(node, outputs, given, constants=()):
    """A model of one node, which is fed what it reads besides constants."""
    kinds = {
        "float32": "float",
        "float16": "float16",
        "int64": "int64",
        "int32": "int32",
        "uint8": "uint8",
    }
    inputs = ", ".join(
        f"{kinds[str(a.dtype)]}[{', '.join(map(str, a.shape))}] {name}" for name, a in given.items()
    )
    made = ", ".join(
        f"{kinds[kind]}[{', '.join('?' * rank)}] {name}" for name, kind, rank in outputs
    )
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]> g ({inputs}) => ({made}) {{ {node} }}'
    )
    proto.graph.initializer.extend(constants)
    return osl.Model(proto)


def held(model, given, rtol=2e-5):
    """Compare a model with the same in standard operators; return the latter."""
    right = osl.run(model, given)
    standard = osl.standardize(model)

    assert all(not node.domain for node in standard.model.proto.graph.node)
    made = osl.run(standard.model, given)
    assert made.keys() == right.keys()
    for name, value in right.items():
        scale = np.abs(value.astype(np.float64)).max()
        assert made[name].dtype == value.dtype
        np.testing.assert_allclose(made[name], value, atol=rtol * scale, rtol=0, err_msg=name)
    return standard.model


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    ("node", "inputs"),
    [
        ("y = com.microsoft.QuickGelu <alpha = 1.5> (x)", "x"),
        ("y = com.microsoft.Gelu (x)", "x"),
        ("y = com.microsoft.BiasGelu (x, w)", "xw"),
        ("y = com.microsoft.FastGelu (x)", "x"),
        ("y = com.microsoft.FastGelu (x, w)", "xw"),
        ("y = SimplifiedLayerNormalization <axis = -1, epsilon = 0.01> (x, w)", "xw"),
        ("y = com.microsoft.SkipLayerNormalization (x, s, w, b)", "xswb"),
        ("y = com.microsoft.SkipLayerNormalization <epsilon = 0.1> (x, s, w, , b)", "xswb"),
        ("y, , , z = com.microsoft.SkipLayerNormalization (x, s, w, b, c)", "xswbc"),
        ("y = com.microsoft.SkipSimplifiedLayerNormalization (x, s, w)", "xsw"),
        ("y, , , z = com.microsoft.SkipSimplifiedLayerNormalization <epsilon = 0.1> (x, s, w, b)", "xswb"),
    ],
    ids=lambda text: text.partition("microsoft.")[2][:60] or text,
)  # fmt: skip
def test_activations_and_normalizations(node, inputs, dtype):
    given = {
        name: random(*((2, 3, 16) if name in "xs" else (16,)), seed=seed).astype(dtype)
        for seed, name in enumerate(inputs)
    }
    outputs = [(name, dtype, 3) for name in ("yz" if " z = " in node else "y")]

    held(net(node, outputs, given), given, rtol=2e-5 if dtype == "float32" else 4e-3)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize(
    ("shape", "positions", "more", "width"),
    [
        ((BATCH, HEADS, NEW, HEAD), [[0, 1, 2, 3, 4], [7, 8, 9, 10, 11]], "", HEAD),
        ((BATCH, NEW, HEADS * HEAD), [[0, 1, 2, 3, 4], [7, 8, 9, 10, 11]], "", HEAD),
        ((BATCH, HEADS, NEW, HEAD), [3], "", HEAD),
        ((BATCH, NEW, HEADS * HEAD), [3], ", num_heads = 4, rotary_embedding_dim = 8", 8),
    ],
)
def test_rotary_embeddings(shape, positions, more, width, interleaved):
    given = {"x": random(*shape), "p": np.array(positions), **rotary(width // 2)}
    node = f"y = com.microsoft.RotaryEmbedding <interleaved = {interleaved}{more}> (x, p, cos, sin)"

    held(net(node, [("y", "float32", len(shape))], given), given)


PACKED = (HEADS + 2 * KV_HEADS) * HEAD


@pytest.mark.parametrize(
    "more",
    [
        "",
        ", scale = 0.3",
        ", softcap = 2.0",
        ", local_window_size = 3",
        ", do_rotary = 1",
        ", do_rotary = 1, rotary_interleaved = 1, softcap = 1.5, local_window_size = 2",
    ],
)
@pytest.mark.parametrize(
    ("past", "batch", "dtype"),
    [(None, 2, "float32"), (0, 2, "float16"), (4, 1, "float32"), (4, 1, "float16")],
)
def test_attention_of_groups(more, past, batch, dtype):
    given = {"q": random(batch, NEW, PACKED).astype(dtype)}
    if past is not None:
        given["pk"], given["pv"] = random(2, batch, KV_HEADS, past, HEAD, seed=1).astype(dtype)
    total = NEW + (past or 0)
    given |= {"last": np.full(batch, total - 1, np.int32), "total": np.array([total], np.int32)}
    if "do_rotary" in more:
        given |= {name: table.astype(dtype) for name, table in rotary().items()}
    inputs = f"q, , , {'pk, pv' if past is not None else ','}, last, total" + (
        ", cos, sin" if "do_rotary" in more else ""
    )
    node = GQA.replace("MORE", more).replace("INPUTS", inputs)
    outputs = [("y", dtype, 3), ("k", dtype, 4), ("v", dtype, 4)]

    held(net(node, outputs, given), given, rtol=2e-5 if dtype == "float32" else 4e-3)


def test_attention_whose_keys_and_values_are_not_packed():
    given = {
        "q": random(BATCH, NEW, HEADS * HEAD),
        "k_in": random(BATCH, NEW, KV_HEADS * HEAD, seed=1),
    }
    given |= {"v_in": random(BATCH, NEW, KV_HEADS * HEAD, seed=2)}
    given |= {"last": np.full(BATCH, NEW - 1, np.int32), "total": np.array([NEW], np.int32)}
    node = GQA.replace(" MORE", "").replace("INPUTS", "q, k_in, v_in, , , last, total")

    held(net(node, [("y", "float32", 3), ("k", "float32", 4), ("v", "float32", 4)], given), given)


@pytest.mark.parametrize("past", [0, 3])
@pytest.mark.parametrize("more", ["", ", scale = 0.3"])
@pytest.mark.parametrize("mask", ["", "mask"])
def test_attention_of_heads_side_by_side(mask, more, past):
    keys = 7  # as many as of another text
    given = {
        "q": random(BATCH, NEW, HEADS * HEAD),
        "k_in": random(BATCH, keys, HEADS * HEAD, seed=1),
    }
    given |= {"v_in": random(BATCH, keys, HEADS * HEAD, seed=2)}
    given |= {mask: random(1, HEADS, NEW, keys + past, seed=3)} if mask else {}
    outputs = [("y", "float32", 3)]
    if past:
        given["pk"], given["pv"] = random(2, BATCH, HEADS, past, HEAD, seed=4)
        outputs += [("k", "float32", 4), ("v", "float32", 4)]
    made = ", ".join(name for name, *_ in outputs)
    inputs = f"q, k_in, v_in, , , {mask}" + ", pk, pv" * bool(past)
    node = f"{made} = com.microsoft.MultiHeadAttention <num_heads = {HEADS}{more}> ({inputs})"

    held(net(node, outputs, given), given)


@pytest.mark.parametrize("more", ["", ", scale = 0.3", ", unidirectional = 1"])
@pytest.mark.parametrize("inputs", ["x, w, b", "x, w", "x, w, b, , , mask"])
def test_attention_of_packed_projections(inputs, more):
    given = {"x": random(BATCH, NEW, 24), "w": random(24, 3 * HEADS * 8, seed=1) / 4}
    given |= {"b": random(3 * HEADS * 8, seed=2)} if "b" in inputs else {}
    given |= {"mask": random(1, HEADS, NEW, NEW, seed=3)} if "mask" in inputs else {}
    node = f"y = com.microsoft.Attention <num_heads = {HEADS}{more}> ({inputs})"

    held(net(node, [("y", "float32", 3)], given), given)


@pytest.mark.parametrize(
    "more", ["", ", unidirectional = 1", ", mask_filter_value = -3.0, scale = 0.3"]
)
@pytest.mark.parametrize("rank", [0, 2, 3])
@pytest.mark.parametrize(
    ("past", "has_bias"), [(None, False), (0, False), (4, False), (None, True)]
)
def test_attention_with_a_mask_and_a_cache(has_bias, past, rank, more):
    total, rng = NEW + (past or 0), np.random.default_rng(0)
    given = {"x": random(BATCH, NEW, 24), "w": random(24, 3 * HEADS * 8, seed=1) / 4}
    given["b"] = random(3 * HEADS * 8, seed=2)
    if rank:
        mask = rng.integers(0, 2, (BATCH, total) if rank == 2 else (BATCH, NEW, total))
        given["m"] = mask.astype(np.int32)
    if past is not None:
        given["c"] = random(2, BATCH, HEADS, past, 8, seed=3)
    if has_bias:
        given["a"] = random(1, HEADS, NEW, total, seed=4)
    inputs = f"x, w, b, {'m' * bool(rank)}, {'c' * (past is not None)}, {'a' * has_bias}"
    outputs = [("y", "float32", 3), ("p", "float32", 5)][: 1 + (past is not None)]
    made = ", ".join(name for name, *_ in outputs)
    node = f"{made} = com.microsoft.Attention <num_heads = {HEADS}{more}> ({inputs})"

    held(net(node, outputs, given), given)


@pytest.mark.parametrize("size", [BATCH, 2 * BATCH])
def test_attention_whose_mask_holds_lengths_stays(size):
    given = {"x": random(BATCH, NEW, 24), "w": random(24, 96), "b": random(96)}
    given["m"] = np.full(size, NEW, np.int32)
    node = f"y = com.microsoft.Attention <num_heads = {HEADS}> (x, w, b, m)"

    with pytest.raises(osl.SurgeonError, match="mask index 2d or mask index 3d"):
        osl.standardize(net(node, [("y", "float32", 3)], given))


def test_attention_whose_parts_have_other_sizes_stays():
    given = {"x": random(BATCH, NEW, 24), "w": random(24, 80, seed=1), "b": random(80, seed=2)}
    sizes = "qkv_hidden_sizes = [32, 32, 16]"
    node = f"y = com.microsoft.Attention <num_heads = {HEADS}, {sizes}> (x, w, b)"

    with pytest.raises(osl.SurgeonError, match="its qkv hidden sizes has no standard form"):
        osl.standardize(net(node, [("y", "float32", 3)], given))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("positions", [None, 1, BATCH])
@pytest.mark.parametrize("segments", [False, True])
def test_embeddings_of_words_places_and_segments(segments, positions, dtype):
    rng = np.random.default_rng(0)
    tables = {"words": 20, "places": 9, "kinds": 2}
    given = {"ids": rng.integers(0, 20, (BATCH, NEW)).astype(np.int32)}
    given |= {"of": rng.integers(0, 2, (BATCH, NEW)).astype(np.int32)} if segments else {}
    given |= {n: random(rows, 16, seed=rows).astype(dtype) for n, rows in tables.items()}
    given |= {n: random(16, seed=at).astype(dtype) for at, n in enumerate(("scale", "shift"))}
    if not segments:
        del given["kinds"]
    if positions:
        given["at"] = rng.integers(0, 9, (positions, NEW)).astype(np.int32)
    inputs = f"ids, {'of' * segments}, words, places, {'kinds' * segments}, scale, shift"
    inputs += ", , at" * bool(positions)
    node = f"y, , sum = com.microsoft.EmbedLayerNormalization <epsilon = 0.1> ({inputs})"

    model = net(node, [("y", dtype, 3), ("sum", dtype, 3)], given)

    held(model, given, rtol=2e-5 if dtype == "float32" else 4e-3)


def test_texts_of_other_lengths_have_caches_of_their_own():
    """The shorter text's new key comes behind its own cache, where the longer one's has a token."""
    given = {"q": random(BATCH, 1, PACKED), **rotary()}
    given["pk"], given["pv"] = random(2, BATCH, KV_HEADS, 6, HEAD, seed=1)
    given |= {"last": np.array([6, 3], np.int32), "total": np.array([7], np.int32)}
    node = GQA.replace("MORE", ", do_rotary = 1")
    node = node.replace("INPUTS", "q, , , pk, pv, last, total, cos, sin")
    model = net(node, [("y", "float32", 3), ("k", "float32", 4), ("v", "float32", 4)], given)

    right, made = (osl.run(m, given) for m in (model, osl.standardize(model).model))

    np.testing.assert_allclose(made["y"], right["y"], atol=1e-5)
    np.testing.assert_allclose(made["k"][1, :, :4], right["k"][1, :, :4], atol=1e-5)


@pytest.mark.parametrize(
    ("bits", "zeros"),
    [(2, ""), (2, "packed"), (4, ""), (4, "packed"), (4, "float"), (8, ""), (8, "packed")],
)
def test_products_with_weights_in_blocks(bits, zeros):
    k, n, block = 80, 6, 32  # the last block is half full
    rng, blocks = np.random.default_rng(0), 3
    given = {
        "a": random(2, 3, k),
        "b": rng.integers(0, 256, (n, blocks, block * bits // 8), np.uint8),
        "scales": random(n, blocks, seed=1),
    }
    if zeros == "packed":
        given["zeros"] = rng.integers(0, 256, (n, -(-blocks * bits // 8)), np.uint8)
    if zeros == "float":
        given["zeros"] = rng.uniform(2, 9, (n, blocks)).astype(np.float32)
    node = (
        f"y = com.microsoft.MatMulNBits <K = {k}, N = {n}, bits = {bits}, block_size = {block}>"
        f" (a, b, scales{', zeros' if zeros else ''})"
    )

    held(net(node, [("y", "float32", 3)], given), given, rtol=1e-4)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_rows_of_a_table_in_blocks(bits, zeros):
    words, width, block = 7, 40, 16  # the last block is half full
    rng, blocks = np.random.default_rng(0), 3
    held_in = -(-blocks * bits // 8)  # bytes
    arrays = {
        "data": rng.integers(0, 256, (words, width * bits // 8), np.uint8),
        "scales": random(words, blocks, seed=1),
    }
    if zeros:
        arrays["zeros"] = rng.integers(0, 256, (words, held_in), np.uint8)
    given = {"i": np.array([[6, 0, 3], [1, 1, 5]])}
    node = (
        f"y = com.microsoft.GatherBlockQuantized <bits = {bits}, block_size = {block}>"
        f" (data, i, scales{', zeros' * zeros})"
    )
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]

    held(net(node, [("y", "float32", 3)], given, tensors), given)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4])
def test_rows_of_a_table_of_4_bit_integers(kind, zeros):
    words, width, block = 7, 32, 16
    low = -8 if kind == TensorProto.INT4 else 0
    rng, given = np.random.default_rng(0), {"i": np.array([6, 0, 3])}
    data, zero = (rng.integers(low, low + 16, (words, n)) for n in (width, 2))
    node = f"y = com.microsoft.GatherBlockQuantized <block_size = {block}> (data, i, scales{', zeros' * zeros})"
    tensors = [
        helper.make_tensor("data", kind, [words, width], data.ravel()),
        onnx.numpy_helper.from_array(random(words, 2, seed=1), "scales"),
        helper.make_tensor("zeros", kind, [words, 2], zero.ravel()),
    ]

    held(net(node, [("y", "float32", 2)], given, tensors[: 2 + zeros]), given)


def test_the_reference_evaluator_runs_a_package():
    model = quantized(source=decoder(checkpoint()))
    given = feeds()
    given |= {n.replace(".0.", ".1."): a for n, a in given.items() if ".0." in n}

    right, made = osl.run(model, given), osl.run(model, given, runtime="reference")

    np.testing.assert_allclose(made["logits"], right["logits"], atol=1e-4)


def test_a_model_with_operators_of_onnxruntime_is_recorded_in_float64(tmp_path):
    model, given = package(), feeds()
    right = osl.run(model, given, fetch=["heads", "normed_1"])

    osl.record(model, tmp_path / "refs", feeds=given, float64=True)

    exact = osl.open_references(tmp_path / "refs")
    for name, value in right.items():
        found = exact.read(name)
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, value, atol=1e-5)


SWIGLU = "swiglu_fusion = 1, activation_alpha = 1.7, activation_beta = 1.0"


@pytest.mark.parametrize("shape", [(5, 8), (2, 3, 8)])
@pytest.mark.parametrize(
    "more",
    ["k = 2", "k = 1, normalize_routing_weights = 1", "k = 3, normalize_routing_weights = 1"],
)
@pytest.mark.parametrize(
    ("activation", "settings", "bias"),
    [
        ("relu", "", True), ("silu", "", False), ("gelu", "", True), ("identity", "", True),
        ("swiglu", f", {SWIGLU}, swiglu_limit = 1.5", True), ("swiglu", f", {SWIGLU}", True),
    ],
)  # fmt: skip
def test_mixtures_of_experts(activation, settings, bias, more, shape):
    wide, experts = 32 if activation == "swiglu" else 16, 4
    given = {"x": random(*shape), "r": random(int(np.prod(shape[:-1])), experts, seed=1)}
    given |= {"w1": random(experts, wide, 8, seed=2), "b1": random(experts, wide, seed=3)}
    given |= {"w2": random(experts, 8, 16, seed=4), "b2": random(experts, 8, seed=5)}
    if not bias:
        del given["b1"], given["b2"]
    inputs = "x, r, w1, b1, w2, b2" if bias else "x, r, w1, , w2"
    node = f'y = com.microsoft.MoE <{more}, activation_type = "{activation}"{settings}> ({inputs})'

    held(net(node, [("y", "float32", len(shape))], given), given)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(
    ("block", "zeros"), [(0, False), (32, False), (32, True)], ids=["rows", "blocks", "zero points"]
)
@pytest.mark.parametrize(
    "more", ['activation_type = "silu"', f'activation_type = "swiglu", {SWIGLU}']
)
def test_quantized_mixtures_of_experts(more, block, zeros, bits):
    rng, experts, width, inner = np.random.default_rng(0), 3, 96, 96
    wide = inner * (2 if "swiglu" in more else 1)
    given = {"x": random(5, width), "r": random(5, experts, seed=1)}
    for number, (rows, columns) in enumerate([(wide, width), (width, inner)], 1):
        blocks = (columns // block,) if block else ()
        given[f"w{number}"] = rng.integers(0, 256, (experts, rows, columns * bits // 8), np.uint8)
        given[f"s{number}"] = rng.uniform(0.01, 0.02, (experts, rows, *blocks)).astype(np.float32)
        given[f"b{number}"] = random(experts, rows, seed=number)
        if zeros:
            given[f"z{number}"] = rng.integers(
                0, 256, (experts, rows, -(-blocks[0] * bits // 8)), np.uint8
            )
    inputs = "x, r, w1, s1, b1, w2, s2, b2" + ", , , , z1, z2" * zeros
    sizes = f"expert_weight_bits = {bits}" + f", block_size = {block}" * bool(block)
    node = (
        f"y = com.microsoft.QMoE <k = 2, normalize_routing_weights = 1, {sizes}, {more}> ({inputs})"
    )

    held(net(node, [("y", "float32", 2)], given), given, rtol=1e-4)


@pytest.mark.parametrize(
    ("settings", "inputs", "reason"),
    [
        ('activation_type = "swiglu", swiglu_fusion = 2', "", "swiglu fusion 1"),
        ('activation_type = "geglu"', "", "activation type relu or"),
        ('activation_type = "silu"', ", w", "its fc3 has no standard form"),
        ("use_sparse_mixer = 1", "", "its use sparse mixer has no standard form"),
    ],
)
def test_a_mixture_of_experts_that_no_kernel_here_computes_stays(settings, inputs, reason):
    given = {"x": random(5, 8), "r": random(5, 4), "w": random(4, 8, 8)}
    node = f"y = com.microsoft.MoE <k = 2, {settings}> (x, r, w, , w, {inputs})"

    with pytest.raises(osl.SurgeonError, match=reason):
        osl.standardize(net(node, [("y", "float32", 2)], given))


@pytest.mark.parametrize("make", [package, quantized, lambda: decoder(checkpoint())])
def test_a_package_decodes_the_same_in_standard_operators(make):
    model = make()
    given = feeds(tokens=3, past=2)
    for name in (each.name for each in model.proto.graph.input):
        given.setdefault(name, given[name.replace(".1.", ".0.")] * 2 if ".1." in name else None)

    held(model, given, rtol=1e-4)


def test_a_package_in_standard_operators_has_gradients():
    model = package()
    with pytest.raises(osl.SurgeonError, match="has no gradient rule") as raised:
        osl.gradient(model, of="logits", to="past_key_values.0.value")
    assert raised.value.hint.endswith("onnxdbg edit standardize")
    standard = osl.standardize(model).model

    found = osl.gradient(standard, of="logits", to="past_key_values.0.value").model

    given = feeds(tokens=3, past=2)
    (slope,) = {*osl.run(found, given)} - {*osl.run(model, given)}
    moved = {
        **given,
        "past_key_values.0.value": given["past_key_values.0.value"] + np.float32(1e-2),
    }
    gain = sum(
        float(osl.run(model, each)["logits"].sum()) * sign
        for each, sign in ((moved, 1), (given, -1))
    )
    assert gain == pytest.approx(float(osl.run(found, given)[slope].sum()) * 1e-2, rel=0.05)


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ('y = com.microsoft.QuickGelu <alpha = "1} evil"> (x)', "alpha is of another type"),
        ("y = com.microsoft.QuickGelu <alpha = [1, 2]> (x)", "alpha is of another type"),
        ("y = com.microsoft.BiasGelu (x)", "it has no B"),
        ("y = com.microsoft.MatMulNBits <K = 16, N = 2, bits = 0, block_size = 16> (x, x, x)", "known to be bits 2"),
        ("y = SimplifiedLayerNormalization <axis = 0> (x, x)", "its other axis"),
        ("y = com.microsoft.RotaryEmbedding <scale = 0.5> (x, x, x, x)", "known to be scale 1.0 or no scale"),
    ],
)  # fmt: skip
def test_a_node_that_is_not_as_its_operator_says_stays(node, said):
    text = f"""<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
    g (float[2, 16] x) => (float[2, 16] y) {{ {node} }}"""

    with pytest.raises(osl.SurgeonError, match=said):
        osl.standardize(osl.Model(onnx.parser.parse_model(text)))


def test_a_negative_slope_or_scale_is_kept():
    given = {"x": random(2, 16)}
    held(net("y = com.microsoft.QuickGelu <alpha = -1.5> (x)", [("y", "float32", 2)], given), given)


def test_a_node_without_a_standard_form_stays_and_is_named():
    text = """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
    g (float[2, 16] x, float[2, 3, 96] q, int32[2] last, int32[1] total, float[4] sink
    ) => (float[2, 16] y, float[2, 3, 64] a) {
        y = com.microsoft.QuickGelu (x)
        ["attends"] a = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 1> (
            q, , , , , last, total, , , , , sink)
    }"""

    found = osl.standardize(osl.build(text))

    assert found.changes == ("1 QuickGelu in standard operators",)
    assert found.notes == (
        "GroupQueryAttention 'attends' stays: its head sink has no standard form here",
    )
    with pytest.raises(osl.SurgeonError, match="nothing has a standard form: GroupQueryAttention"):
        osl.standardize(found.model)


def test_a_model_without_such_operators_is_told_so():
    done = osl.standardize(osl.build("g (float[2] x) => (float[2] y) { y = Abs (x) }"))

    assert done.notes == ("the model has no operator of onnxruntime",)
