"""Weights in blocks, as the packages of language models have them, are float weights again."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onnxsurgeon_lite as osl
from kit import packages
from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.model import is_external
from onnxsurgeon_lite.passes.build import parse_text
from onnxsurgeon_lite.tensors import dtypes


def product(bits, zeros, rows=40, columns=6, block=16, bias=False, dtype=np.float32, **more):
    """A MatMulNBits of random integers, and feeds for it."""
    rng = np.random.default_rng(0)
    count = -(-rows // block)
    arrays = {
        "b": rng.integers(0, 256, (columns, count, block * bits // 8)).astype(np.uint8),
        "s": rng.uniform(0.01, 0.1, (columns, count)).astype(dtype),
    }
    if zeros == "packed":
        arrays["z"] = rng.integers(0, 256, (columns, -(-count * bits // 8))).astype(np.uint8)
    elif zeros == "float":
        arrays["z"] = rng.uniform(0, 2**bits, (columns, count)).astype(dtype)
    if bias:
        arrays["bias"] = rng.normal(size=columns).astype(dtype)
    names = ["x", "b", "s", "z" if zeros else "", "", "bias" if bias else ""]
    kind = {np.float32: 1, np.float16: 10}[dtype]
    node = helper.make_node(
        "MatMulNBits", names, ["y"], domain="com.microsoft", K=rows, N=columns, bits=bits,
        block_size=block, **more,
    )  # fmt: skip
    model = model_of(node, arrays, (kind, [2, 3, rows]), (kind, [2, 3, columns]))
    return model, {"x": rng.normal(size=(2, 3, rows)).astype(dtype)}


def model_of(node, arrays, given, made):
    weights = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    infos = [helper.make_tensor_value_info(n, *kind) for n, kind in (("x", given), ("y", made))]
    graph = helper.make_graph([node], "g", infos[:1], infos[1:], weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return osl.Model(helper.make_model(graph, opset_imports=opsets, ir_version=10))


def operators(model):
    return [node.op_type for node in model.proto.graph.node]


WAYS = [(bits, zeros) for bits in (2, 4, 8) for zeros in ("", "packed", "float")]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("bits", "zeros"), WAYS[:-1])  # no kernel has float zeros of 8 bits
def test_a_product_with_a_weight_in_blocks_computes_in_float_what_the_kernel_does(
    bits, zeros, bias
):
    model, feeds = product(bits, zeros, bias=bias)

    result = osl.dequantize(model)

    assert operators(result.model) == ["MatMul", "Add"][: 1 + bias]
    assert {tensor.data_type for tensor in result.model.proto.graph.initializer} == {1}
    expected = osl.run(model, feeds)["y"]
    np.testing.assert_allclose(osl.run(result.model, feeds)["y"], expected, rtol=1e-4, atol=1e-4)


def test_a_half_precision_product_stays_in_half_precision():
    model, feeds = product(4, "packed", dtype=np.float16)

    result = osl.dequantize(model)

    found, expected = (osl.run(each, feeds)["y"] for each in (result.model, model))
    assert found.dtype == np.float16
    np.testing.assert_allclose(found.astype(float), expected.astype(float), rtol=0.01, atol=0.02)


ROWS = {
    "uint8 of 4 bits": (np.uint8, 4, {}),
    "uint8 of 2 bits": (np.uint8, 2, {}),
    "uint8 of 8 bits": (np.uint8, 8, {}),
    "int4": ("int4", 4, {}),
    "uint4 along the rows": ("uint4", 4, {"quantize_axis": 0}),
}


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("kind", ROWS)
def test_rows_of_an_embedding_in_blocks_are_float_rows(kind, zeros):
    dtype, bits, more = ROWS[kind]
    more = {"quantize_axis": 1, "gather_axis": 0} | more
    rng = np.random.default_rng(1)
    rows = more["quantize_axis"] == 0
    blocks = (2, 48) if rows else (32, 3)
    if dtype is np.uint8:
        data = rng.integers(0, 256, (32, 48 * bits // 8)).astype(np.uint8)
        shift = rng.integers(0, 256, (32, -(-3 * bits // 8))).astype(np.uint8)
    else:
        import ml_dtypes

        low = -8 if dtype == "int4" else 0
        data, shift = (
            rng.integers(low, low + 16, size).astype(getattr(ml_dtypes, dtype))
            for size in ((32, 48), blocks)
        )
    arrays = {"data": data, "s": rng.uniform(0.1, 1, blocks).astype(np.float32)}
    arrays |= {"z": shift} if zeros else {}
    node = helper.make_node(
        "GatherBlockQuantized", ["data", "x", "s", *arrays.keys() & {"z"}], ["y"],
        domain="com.microsoft", bits=bits, block_size=16, **more,
    )  # fmt: skip
    model = model_of(node, arrays, (7, [2, 2]), (1, [2, 2, 48]))
    feeds = {"x": np.array([[0, 31], [7, 16]])}

    result = osl.dequantize(model)

    assert operators(result.model) == ["Gather"]
    expected = osl.run(model, feeds)["y"]
    np.testing.assert_allclose(osl.run(result.model, feeds)["y"], expected, rtol=1e-6)


def test_an_int4_package_is_a_float_package_again():
    model = packages.quantized()

    result = osl.dequantize(model)

    assert "MatMulNBits" not in operators(result.model)
    assert not any(
        "_Q4" in t.name and t.data_type == 2 for t in result.model.proto.graph.initializer
    )
    feeds = packages.feeds()
    found, expected = (osl.run(each, feeds)["logits"] for each in (result.model, model))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def test_a_weight_that_two_products_read_is_made_once():
    model, _ = product(4, "")
    graph = model.proto.graph
    graph.node.add().CopyFrom(graph.node[0])
    graph.node[1].output[0] = "w"
    graph.output.add().CopyFrom(graph.output[0])
    graph.output[1].name = "w"

    result = osl.dequantize(model)

    assert operators(result.model) == ["MatMul", "MatMul"]
    assert len(result.model.proto.graph.initializer) == 1


REFUSED = {
    "its rows are permuted by g_idx 'g'": lambda node: node.input.__setitem__(4, "g"),
    "bits = 3 is not known": lambda node: set_number(node, "bits", 3),
    "its weight does not have the size that N, K and block_size give": lambda node: set_number(
        node, "N", 7
    ),
    "its weight is packed for one kind of device": lambda node: set_number(
        node, "weight_prepacked", 1
    ),
    "its weight, its scales or its zero points are computed": lambda node: node.input.__setitem__(
        2, "x"
    ),
}


def set_number(node, name, number):
    kept = [a for a in node.attribute if a.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, number)])


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_in_float_is_refused_in_a_sentence(why):
    model, _ = product(4, "")
    REFUSED[why](model.proto.graph.node[0])

    with pytest.raises(EditError, match=f"MatMulNBits stays: {why}"):
        osl.dequantize(model)


def test_a_node_that_stays_quantized_beside_others_is_named():
    model = packages.quantized()
    node = next(n for n in model.proto.graph.node if n.op_type == "MatMulNBits")
    node.name = "first"
    set_number(node, "bits", 3)

    result = osl.dequantize(model)

    assert result.changed
    assert result.notes == ("MatMulNBits 'first' stays: bits = 3 is not known",)


def test_an_operator_that_no_verb_knows_in_float_is_no_silent_success():
    model = parse_text("""<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
        g (float[2, 16] x, uint8[32] b, float[2] s) => (float[2, 4] y) {
            y = com.microsoft.MatMulBnb4<K = 16, N = 4, block_size = 32, quant_type = 1>(x, b, s) }""")

    with pytest.raises(EditError, match="MatMulBnb4 stays"):
        osl.dequantize(model)
    assert isinstance(model.proto, onnx.ModelProto)


@pytest.mark.parametrize("kind", ["FLOAT8E4M3FN", "FLOAT8E5M2", "FLOAT4E2M1"])
def test_narrow_floats_in_blocks_become_floats(kind):
    model = parse_text("""<ir_version: 11, opset_import: ["" : 23]>
        g (float[1, 4] x) => (float[1, 2] y) <float[2, 2] s = {0.5, 2, 1, 4}> {
            w = DequantizeLinear <axis = 0, block_size = 2> (q, s) y = MatMul (x, w) }""")
    numbers = np.array([[1, 2], [-1, 0.5], [4, 6], [0, -3]])
    held = dtypes.numpy_dtype(dtypes.data_type_of(kind))
    model.proto.graph.initializer.append(dtypes.from_array(numbers.astype(held), "q"))

    result = osl.dequantize(model).model

    assert [node.op_type for node in result.proto.graph.node] == ["MatMul"]
    y = osl.run(result, {"x": np.ones((1, 4), np.float32)})["y"]
    assert y.tolist() == [[4, 17]]


@pytest.mark.parametrize("bits", [4, 8])
def test_a_weight_of_a_file_is_computed_when_the_model_is_saved(tmp_path, bits):
    model, feeds = product(bits, "packed", rows=1024, columns=64)
    right = osl.run(model, feeds=feeds)["y"]
    onnx.save(model.proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data")

    result = osl.dequantize(tmp_path / "m.onnx").model

    # nothing holds the numbers until then
    (weight,) = (tensor for tensor in result.graph.initializer if list(tensor.dims) == [1024, 64])
    assert is_external(weight)
    osl.save(result, tmp_path / "float.onnx")
    made = osl.run(tmp_path / "float.onnx", feeds=feeds)["y"]
    np.testing.assert_allclose(made, right, rtol=1e-4, atol=1e-3)
