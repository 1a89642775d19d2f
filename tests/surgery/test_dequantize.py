"""Quantized models as float models again: what they compute, without rounding."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, parser
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.errors import EditError

NET = """<ir_version: 8, opset_import: ["": 17]>
net (float[2, 3, 8, 8] x) => (float[2, 4] y) <float[4, 3, 3, 3] k, float[4] kb, float[4, 4] w, float[4] b> {
    c = Conv(x, k, kb) r = Relu(c) g = GlobalAveragePool(r) f = Flatten(g) h = Gemm(f, w, b) y = Sigmoid(h) }"""


class Once(CalibrationDataReader):
    def __init__(self, feeds):
        self.feeds = iter([feeds])

    def get_next(self):
        return next(self.feeds, None)


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    """(file, feeds) of a float model."""
    random = np.random.default_rng(0)
    model = parser.parse_model(NET)
    for value in model.graph.value_info:
        dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        numbers = random.normal(size=dims).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(numbers, value.name))
    del model.graph.value_info[:]
    path = tmp_path_factory.mktemp("net") / "net.onnx"
    onnx.save(model, path)
    return path, {"x": random.normal(size=(2, 3, 8, 8)).astype(np.float32)}


def quantized(kind, net, path):
    source, feeds = net
    if kind == "dynamic":
        quantize_dynamic(source, path)
    else:
        how = QuantFormat.QOperator if kind == "QOperator" else QuantFormat.QDQ
        quantize_static(
            source, path, Once(feeds), how, per_channel=kind == "channels",
            activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
        )  # fmt: skip


@pytest.mark.parametrize("kind", ["QDQ", "channels", "QOperator", "dynamic"])
def test_a_quantized_model_computes_in_float_again(kind, net, tmp_path):
    quantized(kind, net, tmp_path / "q.onnx")

    result = osl.dequantize(tmp_path / "q.onnx")

    kinds = {node.op_type for node in result.model.proto.graph.node}
    assert not [k for k in kinds if "Linear" in k or "Integer" in k or k.startswith("Q")]
    assert {t.data_type for t in result.model.proto.graph.initializer} <= {
        TensorProto.FLOAT,
        TensorProto.INT64,
    }
    onnx.checker.check_model(result.model.materialize(), full_check=True)
    expected = osl.run(net[0], net[1])["y"]
    assert np.abs(osl.run(result.model, net[1])["y"] - expected).max() < 0.02
    assert "Relu" in kinds or "Clip" in kinds


def test_an_activation_that_quantization_swallowed_comes_back_as_clip():
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[3] x) => (float[3] y) <float s = {0.5}, uint8 z = {0}, int8 m = {0}> {
            a = Neg(x) q = QuantizeLinear(a, s, z) b = DequantizeLinear(q, s, z)
            t = Sub(b, x) p = QuantizeLinear(t, s, m) y = DequantizeLinear(p, s, m) }""")

    result = osl.dequantize(model)

    ops = [node.op_type for node in result.model.proto.graph.node]
    assert ops == ["Neg", "Clip", "Sub", "Identity"]
    feeds = {"x": np.array([1, -1.2, -200], np.float32)}
    assert osl.run(result.model, feeds)["y"].tolist() == pytest.approx([-1, 2.4, 327.5])


def test_an_integer_that_something_else_needs_is_still_computed():
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[3] x) => (float[3] y, uint8[3] q) <float s = {0.5}, uint8 z = {128}> {
            q = QuantizeLinear(x, s, z) b = DequantizeLinear(q, s, z) y = Neg(b) }""")

    result = osl.dequantize(model)

    found = osl.run(result.model, {"x": np.array([0.3, 1, 2], np.float32)})
    assert found["q"].tolist() == [129, 130, 132]
    assert found["y"].tolist() == pytest.approx([-0.3, -1, -2])


def test_a_float_model_stays_as_it_is(net):
    result = osl.dequantize(net[0])

    assert not result.changed
    assert result.notes == ("nothing is quantized with constant scales",)


def test_functions_that_quantize_are_dequantized():
    model = osl.Model(
        parser.parse_model("""<ir_version: 8, opset_import: ["": 17, "f": 1]>
        g (float[2] x) => (float[2] y) <float s = {0.5}> { q = f.rounded(x, s) y = Neg(q) }
        <domain: "f", opset_import: ["": 17]> rounded (i, s) => (o) {
            k = QuantizeLinear(i, s) o = DequantizeLinear(k, s) }""")
    )

    result = osl.dequantize(model)

    assert not {"QuantizeLinear", "rounded"} & {n.op_type for n in result.model.proto.graph.node}
    assert osl.run(result.model, {"x": np.float32([0.1, 0.2])})["y"] == pytest.approx(
        np.float32([-0.1, -0.2])
    )


def test_values_quantized_by_channel_and_by_a_scale_of_one_element_are_floats_again():
    model = parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (float[1, 2] x) => (float[1, 2] y) <float[2] s = {0.5, 0.25}, uint8[2] z = {0, 0}, float[1] one = {0.5}> {
        q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)
        p = QuantizeLinear<axis = 0>(d, one) y = DequantizeLinear<axis = 0>(p, one)
    }""")

    found = osl.run(osl.dequantize(model).model, {"x": np.float32([[-3, 7.1]])})["y"]

    np.testing.assert_allclose(found, [[0, 7.1]])  # what one scale alone cuts off stays cut off


DYNAMIC = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2,4] x) => (OUTPUTS) <int8[4,3] w = {-6,-5,-4,-3,-2,-1,0,1,2,3,4,5}, int8[3] wz = {1,2,3}, float s = {0.02}> {
    q, qs, qz = DynamicQuantizeLinear(x)
    [product] m = MatMulInteger(q, w, qz, wz)
    NODES
}"""


@pytest.mark.parametrize(
    ("outputs", "nodes", "changed"),
    [
        ("float[2,3] y", "c = Cast<to = 1>(m) t = Mul(qs, s) y = Mul(c, t)", True),
        ("int32[2,3] m", "", False),  # the product itself is wanted
        ("float[2,3] y", "y = Cast<to = 1>(m)", False),  # nothing scales it
        ("float[2,3] y, float qs", "c = Cast<to = 1>(m) y = Mul(c, qs)", False),
        ("float[2,3] y, float z", "c = Cast<to = 1>(m) y = Mul(c, qs) z = Neg(qs)", False),
        ("float[2,3] y, int32[2,3] n", "c = Cast<to = 1>(m) y = Mul(c, qs) n = MatMulInteger(q, w, qz)", False),
    ],
)  # fmt: skip
def test_a_dynamic_quantizer_goes_only_where_nothing_else_needs_its_integers_or_its_scale(
    outputs, nodes, changed
):
    source = DYNAMIC.replace("OUTPUTS", outputs).replace("NODES", nodes)
    feeds = {"x": np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)}

    if not changed:
        with pytest.raises(EditError, match="DynamicQuantizeLinear stays: something needs its"):
            osl.dequantize(parser.parse_model(source))
        return
    result = osl.dequantize(parser.parse_model(source))

    assert result.changed
    expected, actual = (osl.run(m, feeds) for m in (parser.parse_model(source), result.model))
    for name, value in expected.items():
        assert np.abs(actual[name] - value).max() <= 0.03 * np.abs(value).max()


def test_integers_that_are_read_with_another_zero_point_stay_integers():
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[2,4] x) => (float[2,4] y) <float s = {0.01}, uint8 z = {0}, uint8 other = {9}> {
            q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, other) }""")

    with pytest.raises(EditError, match="DequantizeLinear stays: its integers are read"):
        osl.dequantize(model)


def test_float16_data_is_clipped_by_float16_numbers_and_no_two_nodes_have_one_name():
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float16[2,4] x) => (float16[4,2] y, uint8[4,2] t) <float16 s = {8479}, uint8 z = {0}> {
            q = QuantizeLinear(x, s, z) [turn] t = Transpose<perm = [1, 0]>(q) y = DequantizeLinear(t, s, z) }""")

    result = osl.dequantize(model)

    onnx.checker.check_model(result.model.proto, full_check=True)
    names = [node.name for node in result.model.proto.graph.node if node.name]
    assert len(names) == len(set(names)) == 2
