"""The weights of language model packages: packed, in blocks, and each in the place that names say."""

import gc
import time
import tracemalloc
import weakref

import numpy as np
import pytest
from onnx import numpy_helper

import onnxsurgeon_lite as osl
from kit import causes, packages
from onnxsurgeon_lite.errors import ReferenceSetError
from onnxsurgeon_lite.graph.block_quantized import Blocks
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.quantizers import limits_of
from onnxsurgeon_lite.matching.weights.belonging import Belonging
from onnxsurgeon_lite.matching.weights.blocks import Head, find_blocks
from onnxsurgeon_lite.matching.weights.pieces import PieceTable
from onnxsurgeon_lite.names import stems_of
from onnxsurgeon_lite.passes.build import parse_text
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.grid import Grid

QKV = "model.layers.{}.attn.qkv_proj.MatMul.weight"
BIAS = "model.layers.{}.attn.qkv_proj.Add.bias"
SELF = "model.layers.{}.self_attn.{}_proj.{}"
Q, K, V = (slice(0, 64), slice(64, 96), slice(96, 128))


def found(model, tmp_path, **changed):
    """The result against the checkpoint that the package is made of, and the findings of its weights."""
    osl.save_tensors(tmp_path / "checkpoint.npz", packages.checkpoint() | changed)
    result = osl.weights(model, tmp_path / "checkpoint.npz")
    return result, {w.name: w.finding for w in result.weights if w.finding}


def decoder(bits=0):
    model = packages.decoder(packages.checkpoint())
    return packages.quantized(source=model, bits=bits) if bits else model


@pytest.mark.parametrize("kind", ["INT4", "UINT4", "INT8", "UINT8"])
@pytest.mark.parametrize("axis", [0, 1])
def test_weights_behind_a_dequantizer_in_blocks_are_compared(kind, axis, tmp_path):
    """Integers [in, out] in blocks of 16 along the inputs, or [out, in] and a Transpose."""
    dtype = dtypes.numpy_dtype(dtypes.data_type_of(kind))
    weight = packages.checkpoint()["lm_head.weight"]
    parts = weight.reshape(len(weight), -1, 16)
    low, high = limits_of(dtype)
    scale = np.ptp(parts, -1).astype(np.float32) / (high - low)
    zero = np.rint(low - parts.min(-1) / scale)
    codes = np.clip(np.rint(parts / scale[..., None]) + zero[..., None], low, high)
    arrays = {"q": codes.reshape(weight.shape).astype(dtype), "s": scale, "z": zero.astype(dtype)}
    turn = "v = Identity (w)" if axis == 0 else "v = Transpose <perm = [1, 0]> (w)"
    model = parse_text(f"""<ir_version: 11, opset_import: ["" : 23]>
        g (float[1, 64] x) => (float[1, 48] y) {{
            w = DequantizeLinear <axis = {axis}, block_size = 16> (q, s, z) {turn} y = MatMul (x, v) }}""")

    def against(**changed):
        del model.proto.graph.initializer[:]
        for name, array in (arrays | changed).items():
            held = np.ascontiguousarray(array.T if axis == 0 else array)
            model.proto.graph.initializer.append(dtypes.from_array(held, name))
        osl.save_tensors(tmp_path / "checkpoint.npz", {"lm_head.weight": weight})
        return osl.weights(model, tmp_path / "checkpoint.npz")

    assert str(against()) == "1 of 1 weights found: 0 differ; 1 rounded"
    wrong = scale.copy()
    wrong[5, 2] *= 3
    (found,) = against(s=wrong).weights
    assert found.finding.startswith(f"the scale of block 2 of row 5 is {wrong[5, 2]:.6g}, ")


@pytest.mark.parametrize("kind", ["float8e4m3fn", "float8e5m2", "float4e2m1"])
def test_narrow_floats_in_blocks_are_compared(kind, tmp_path):
    weight = packages.checkpoint()["lm_head.weight"]
    model = parse_text("""<ir_version: 11, opset_import: ["" : 23]>
        g (float[1, 64] x) => (float[1, 48] y) { y = MatMul (x, w) }""")
    model.proto.graph.initializer.append(numpy_helper.from_array(weight.T.copy(), "w"))
    narrow = osl.convert(model, to=kind).model
    osl.save_tensors(tmp_path / "checkpoint.npz", {"lm_head.weight": weight})

    assert str(osl.weights(narrow, tmp_path / "checkpoint.npz")) == (
        "1 of 1 weights found: 0 differ; 1 rounded"
    )
    tensors = {tensor.name.removeprefix("w_"): tensor for tensor in narrow.proto.graph.initializer}
    scales, numbers = (narrow.array(tensors[name]) for name in ("scale", "quantized"))
    for row in range(48):
        wrong = scales.copy()
        wrong[1, row] *= 1.5
        tensors["scale"].CopyFrom(dtypes.from_array(wrong, "w_scale"))
        (found,) = osl.weights(narrow, tmp_path / "checkpoint.npz").weights
        assert found.finding.startswith(
            f"the scale of block 1 of row {row} is {wrong[1, row]:.6g},"
        )
    tensors["scale"].CopyFrom(dtypes.from_array(scales, "w_scale"))
    wrong = numbers.copy()
    wrong[40, 3] = 0.5 if wrong[40, 3] < 0 else -0.5
    tensors["quantized"].CopyFrom(dtypes.from_array(wrong, "w_quantized"))
    (found,) = osl.weights(narrow, tmp_path / "checkpoint.npz").weights
    assert found.finding == "block 1 of row 3 holds other numbers"


def test_rows_of_a_table_in_blocks_are_compared(tmp_path):
    table = packages.checkpoint()["model.embed_tokens.weight"]
    codes, scales = packages._blocks(table, 4, 16)
    model = parse_text("""<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
        g (int64[1, N] ids) => (float[1, N, 64] y) {
            y = com.microsoft.GatherBlockQuantized <block_size = 16, bits = 4, quantize_axis = 1> (q, ids, s) }""")
    arrays = {"q": codes.reshape(len(table), -1), "s": scales}
    model.proto.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in arrays.items()
    )
    osl.save_tensors(tmp_path / "checkpoint.npz", {"model.embed_tokens.weight": table})

    assert str(osl.weights(model, tmp_path / "checkpoint.npz")) == (
        "1 of 1 weights found: 0 differ; 1 rounded"
    )

    edit(model, "s", lambda scales: scales * np.where(np.arange(4) == 2, 3, 1))
    (found,) = osl.weights(model, tmp_path / "checkpoint.npz").weights
    assert "the scale of block 2 of row 0 is" in found.finding


def edit(model, name, change):
    """Change the numbers of an initializer in place."""
    tensor = next(t for t in model.proto.graph.initializer if t.name == name)
    array = numpy_helper.to_array(tensor).copy()
    changed = change(array)
    tensor.CopyFrom(numpy_helper.from_array(array if changed is None else changed, name))


def exchange_parts(array):
    array[..., K], array[..., V] = array[..., V].copy(), array[..., K].copy()


@pytest.mark.parametrize("bits", [0, 2, 4, 8])
def test_all_weights_of_a_healthy_package_are_found(bits, tmp_path):
    result, findings = found(decoder(bits), tmp_path)

    assert result.match
    assert not findings
    assert len(result.weights) == 19
    assert result.only_model == ["cos_cache", "sin_cache"]  # no parameter holds them
    assert result.only_checkpoint == []


@pytest.mark.parametrize(("kind", "what"), [(QKV, "weight"), (BIAS, "bias")])
def test_exchanged_keys_and_values_are_named(kind, what, tmp_path):
    model = decoder()
    edit(model, kind.format(1), exchange_parts)

    result, findings = found(model, tmp_path)

    key, value = (SELF.format(1, part, what) for part in "kv")
    assert not result.match
    assert findings == {
        kind.format(
            1
        ): f"holds {value!r} where {key!r} belongs, holds {key!r} where {value!r} belongs"
    }


@pytest.mark.parametrize("kind", [QKV, BIAS])
def test_packed_projections_of_two_layers_in_each_other_s_place_are_named(kind, tmp_path):
    model = decoder()
    tensors = {tensor.name: tensor for tensor in model.proto.graph.initializer}
    one, other = tensors[kind.format(0)], tensors[kind.format(1)]
    one.name, other.name = other.name, one.name

    result, findings = found(model, tmp_path)

    assert not result.match
    assert set(findings) == {kind.format(0), kind.format(1)}
    assert "holds 'model.layers.1.self_attn.q_proj" in findings[kind.format(0)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("model.layers.0.mlp.gate_proj", "model.layers.0.mlp.up_proj"),
        ("model.layers.0.attn.o_proj", "model.layers.1.attn.o_proj"),
    ],
)
@pytest.mark.parametrize("bits", [0, 4])
def test_whole_weights_in_each_other_s_place_are_named(bits, one, other, tmp_path):
    ends = ["MatMul.weight"] if not bits else ["MatMul.weight_Q4", "MatMul.weight_scales"]
    model = decoder(bits)
    tensors = {tensor.name: tensor for tensor in model.proto.graph.initializer}
    for end in ends:
        a, b = tensors[f"{one}.{end}"], tensors[f"{other}.{end}"]
        a.name, b.name = b.name, a.name

    result, findings = found(model, tmp_path)

    assert not result.match
    a, b = (f"{name.replace('.attn', '.self_attn')}.weight" for name in (one, other))
    assert findings[f"{one}.{ends[0]}"].startswith(f"holds {b!r} where {a!r} belongs")
    assert findings[f"{other}.{ends[0]}"].startswith(f"holds {a!r} where {b!r} belongs")


def test_a_norm_that_differs_makes_no_second_reading_of_the_matrices(tmp_path, monkeypatch):
    searched, begin = [], PieceTable.__init__

    def begins(self, parameters, rows):
        searched.append(parameters)
        begin(self, parameters, rows)

    monkeypatch.setattr(PieceTable, "__init__", begins)
    model = decoder(4)
    edit(model, "model.layers.1.input_layernorm.weight", lambda norm: norm * 2)

    result, _ = found(model, tmp_path)

    assert not result.match
    (left,) = searched
    assert left
    assert {len(shape) for shape in left.values()} == {1}


def test_exchanged_keys_and_values_in_blocks_are_named(tmp_path):
    model = decoder(4)
    for end in ("Q4", "scales"):
        edit(model, f"{QKV.format(0)}_{end}", lambda array: exchange_parts(array.T))

    result, findings = found(model, tmp_path)

    assert not result.match
    assert (
        "v_proj.weight' where 'model.layers.0.self_attn.k_proj" in findings[f"{QKV.format(0)}_Q4"]
    )


def test_weights_with_equal_numbers_are_where_they_belong(tmp_path):
    same = {
        SELF.format(layer, part, what): packages.checkpoint()[SELF.format(0, "k", what)]
        for layer in (0, 1)
        for part in "kv"
        for what in ("weight", "bias")
    }

    result, findings = found(packages.decoder(packages.checkpoint() | same), tmp_path, **same)

    assert not findings
    assert result.match


def test_one_wrong_scale_of_one_block_is_named(tmp_path):
    model = decoder(4)
    edit(
        model,
        "model.layers.1.mlp.up_proj.MatMul.weight_scales",
        lambda s: s.__setitem__((9, 2), 2 * s[9, 2]),
    )

    result, findings = found(model, tmp_path)

    assert not result.match
    (finding,) = findings.values()
    assert list(findings) == ["model.layers.1.mlp.up_proj.MatMul.weight_Q4"]
    assert finding.startswith("the scale of block 2 of row 9 is ")


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_one_wrong_zero_point_of_one_block_is_named(bits, tmp_path):
    model = decoder(bits)
    name = "model.layers.0.mlp.down_proj.MatMul.weight"
    rows, blocks, middle = 64, 8, 1 << bits - 1
    zeros = np.full((rows, blocks), middle, np.uint8)
    zeros[5, 3] += 1
    packed = sum(zeros[:, place :: 8 // bits] << place * bits for place in range(8 // bits))
    model.proto.graph.initializer.append(numpy_helper.from_array(packed.astype(np.uint8), "zeros"))
    node = next(n for n in model.proto.graph.node if f"{name}_Q4" in n.input)
    node.input.append("zeros")

    _, findings = found(model, tmp_path)

    assert findings == {
        f"{name}_Q4": f"the zero point of block 3 of row 5 is {middle + 1}, {middle} fits"
    }


def test_other_numbers_in_a_block_are_named(tmp_path):
    model = decoder(4)
    name = "lm_head.MatMul.weight_Q4"
    edit(model, name, lambda q: q.__setitem__((7, 1), q[7, 1][::-1].copy()))

    _, findings = found(model, tmp_path)

    assert findings == {name: "block 1 of row 7 holds other numbers"}


def test_a_model_that_counts_its_layers_in_another_way_is_healthy(tmp_path):
    def renamed(name):
        name = name.replace("model/layers.1", "blocks/2").replace("model/layers.0", "blocks/1")
        return name.replace("model.layers.1.", "blocks.2.").replace("model.layers.0.", "blocks.1.")

    model = decoder()
    for each in (*model.proto.graph.node, *model.proto.graph.initializer):
        each.name = renamed(each.name)
    for node in model.proto.graph.node:
        node.input[:] = map(renamed, node.input)

    result, findings = found(model, tmp_path)

    assert not findings
    assert result.match


def test_integers_in_blocks_are_not_updated_with_floats(tmp_path):
    checkpoint = packages.checkpoint()

    with pytest.raises(ReferenceSetError, match="holds integers in blocks"):
        osl.weights(decoder(4), checkpoint, update=packages.checkpoint(seed=1))


def test_parameters_that_could_be_joined_in_many_ways_are_tried_once():
    """Twenty equal parameters of two rows each make no weight of 31 rows, in any order."""
    stored = np.ones((2, 4), np.float32)
    heads = {f"p{number}": Head.of(stored) for number in range(20)}
    grid = Grid(np.ones((31, 1)), np.zeros((31, 1)), 0, 15, 1, 4)
    blocks = Blocks(np.full((31, 2), 0x11, np.uint8), (31, 4), grid, np.dtype(np.float32), 4)
    nothing = Belonging(GraphIndex.of(packages.decoder(packages.checkpoint())), {})
    began = time.monotonic()

    assert find_blocks("w", blocks, heads, nothing) == []
    assert time.monotonic() - began < 5


def test_a_search_for_parameters_keeps_nothing_of_a_weight():
    """A cycle would keep the scales of each weight until the collector runs: 0.8 GB in a package of 32 layers."""
    stored = np.ones((2, 4), np.float32)
    grid = Grid(np.ones((4, 1)), np.zeros((4, 1)), 0, 15, 1, 4)
    blocks = Blocks(np.full((4, 2), 0x11, np.uint8), (4, 4), grid, np.dtype(np.float32), 4)
    nothing = Belonging(GraphIndex.of(packages.decoder(packages.checkpoint())), {})
    gc.disable()

    try:
        found = find_blocks("w", blocks, {"p": Head.of(stored)}, nothing)
        held = weakref.ref(blocks)
        del blocks, found
        assert held() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("name", "order"),
    [("qkv", "q k v"), ("q_k_v", "q k v"), ("kqv_", "k q v"), ("qx", ""), ("aaa", "aa a")],
)
def test_a_name_is_split_into_the_parts_that_it_joins(name, order):
    assert stems_of(name, ["q", "k", "v", "a", "aa"]) == order.split()


def test_a_name_of_parts_that_could_be_split_in_many_ways_is_read_once():
    began = time.monotonic()

    assert stems_of("a" * 5000 + "!", ["a", "aa", "aaa"]) == []
    assert time.monotonic() - began < 5


def test_a_large_weight_in_blocks_is_compared_some_rows_at_a_time(tmp_path):
    """float64 takes 16 times the memory of 4 bits: a head of 131 million numbers took 10 GB."""
    rng = np.random.default_rng(0)
    parameter = (rng.standard_normal((4096, 2048)) / 4).astype(np.float16)
    text = "g (float[1, 2048] x) => (float[1, 4096] y) { y = MatMul (x, w) }"
    model = osl.Model(causes.model(text, w=np.ascontiguousarray(parameter.T, np.float32)))
    model.proto.opset_import.add(domain="com.microsoft", version=1)
    model = packages.quantized(source=model, block=32)
    scales = next(t for t in model.proto.graph.initializer if t.name == "w_scales")
    wrong = numpy_helper.to_array(scales).copy()
    wrong[4000, 7] *= 2
    scales.CopyFrom(numpy_helper.from_array(wrong, "w_scales"))

    osl.save_tensors(tmp_path / "checkpoint.npz", {"layer.weight": parameter})
    tracemalloc.start()
    result = osl.weights(model, tmp_path / "checkpoint.npz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    (weight,) = result.weights
    assert "the scale of block 7 of row 4000 is " in weight.finding
    assert peak < 30 * parameter.size


def test_large_weights_in_files_are_compared_some_rows_at_a_time(tmp_path):
    """An embedding in float32 and a head in blocks, beside a checkpoint in float16: none of them is read whole."""
    rng = np.random.default_rng(0)
    shape = 1 << 14, 512
    embed, head = ((rng.standard_normal(shape) / 4).astype(np.float16) for _ in range(2))
    text = f"""g (int64[1, 3] ids) => (float[1, 3, {shape[0]}] y) {{
        x = Gather (embed, ids)
        y = MatMul (x, head)
    }}"""
    floats = {"embed": embed.astype(np.float32), "head": np.ascontiguousarray(head.T, np.float32)}
    model = osl.Model(causes.model(text, **floats))
    model.proto.opset_import.add(domain="com.microsoft", version=1)
    model = packages.quantized(source=model, block=32)
    edit(model, "embed", lambda numbers: numbers.__setitem__((16000, 5), 7))
    edit(model, "head_scales", lambda scales: scales.__setitem__((16000, 7), 9))
    osl.save(model, tmp_path / "model.onnx", external=True)
    checkpoint = {"embed.weight": embed, "head.weight": head}
    osl.save_tensors(tmp_path / "checkpoint.safetensors", checkpoint)

    tracemalloc.start()
    result = osl.weights(tmp_path / "model.onnx", tmp_path / "checkpoint.safetensors")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    wrong, scaled = result.weights
    assert wrong.comparison.worst.index == (16000, 5)
    assert "the scale of block 7 of row 16000 is 9" in scaled.finding
    assert peak < 2 * embed.size  # less than either side of the embedding
