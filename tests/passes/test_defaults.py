"""Inputs with defaults, which a caller may replace: no edit takes the default for the value."""

import numpy as np
import onnx
import onnxruntime
import pytest

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph import index


@pytest.mark.parametrize("verb", ["infer", "fold", "skip_noops", "cse", "rewrite", "simplify"])
@pytest.mark.parametrize("ir", [4, 10])
def test_what_a_caller_may_replace_decides_nothing(verb, ir):
    source = osl.build(
        f"""<ir_version: {ir}, opset_import: ["" : 21]>
        g (float[2, 6] x, int64[2] to, int64[1] times) => (float[N, M] y, float[K] z)
        <int64[2] to = {{3, -1}}, int64[1] times = {{1}}>
        {{ h = Reshape(x, to) y = Abs(h) one = Constant<value_floats = [2.0]>() z = Tile(one, times) }}"""
    )
    given = {"x": np.arange(12, dtype=np.float32).reshape(2, 6), "to": np.array([4, 3])}
    given["times"] = np.array([5])

    edited = getattr(osl, verb)(source, *(["silu"] if verb == "rewrite" else []))

    session = onnxruntime.InferenceSession(edited.model.proto.SerializeToString())
    y, z = session.run(["y", "z"], given)
    assert (y.shape, z.shape) == ((4, 3), (5,))
    declared = {
        info.name: info.type.tensor_type.shape.dim for info in edited.model.proto.graph.value_info
    }
    assert not any(dim.HasField("dim_value") for dim in declared.get("h", ()))


def test_a_proof_replaces_the_integers_that_are_defaults(monkeypatch):
    source = osl.build(
        """<ir_version: 10, opset_import: ["" : 21]> g (float[3] x, int64[1] times) => (float[K] z)
        <int64[1] times = {1}> { y = Tile(x, times) z = Abs(y) }"""
    )
    monkeypatch.setattr(index, "_drop_defaults", lambda *_: None)

    edited = osl.simplify(source)

    assert any("left out 'skip-noops', which is not proved" in note for note in edited.notes)


def test_a_scale_that_a_caller_may_replace_stays():
    source = osl.build(
        """<ir_version: 10, opset_import: ["" : 21]> g (float[4] x, float s, uint8 zero) => (float[4] y)
        <float s = {1.0}, uint8 zero = {0}> { q = QuantizeLinear(x, s, zero) y = DequantizeLinear(q, s, zero) }"""
    )

    with pytest.raises(
        EditError, match="QuantizeLinear stays: its scale or zero point is not constant"
    ):
        osl.dequantize(source)


def test_a_default_may_be_frozen():
    source = osl.build(
        """<ir_version: 10, opset_import: ["" : 21]> g (float[2, 6] x, int64[2] to) => (float[N, M] y)
        <int64[2] to = {3, 4}> { h = Reshape(x, to) y = Abs(h) }"""
    )

    assert osl.freeze(source, {"to": None}, verify=True).match


def test_a_shape_that_is_a_default_does_not_keep_simplify_going():
    source = osl.build(
        """<ir_version: 3, opset_import: ["" : 8]> g (float[2, 6] x, int64[2] to) => (float[N, M] y)
        <int64[2] to = {3, -1}> { h = Reshape(x, to) y = Abs(h) }"""
    )

    assert osl.simplify(source).match


OLD = """<ir_version: 3, opset_import: ["" : 9]>
g (float[1, 1, 4, 4] x, float[1, 1, 3, 3] w, float[1] b, float[1] s, float[1] m, float[1] v) => (float[1, 1, 2, 2] y)
<float[1, 1, 3, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}, float[1] b = {1}, float[1] s = {3}, float[1] m = {2},
 float[1] v = {4}>
{ c = Conv<kernel_shape = [3, 3]>(x, w, b) y = BatchNormalization(c, s, b, m, v) }"""


@pytest.mark.parametrize("verb", ["rewrite", "simplify"])
def test_weights_that_an_older_file_has_as_inputs_are_fused_and_leave_with_their_inputs(verb):
    edited = getattr(osl, verb)(osl.build(OLD), *(["conv-batch-norm"] if verb == "rewrite" else []))

    graph = edited.model.proto.graph
    onnx.checker.check_model(edited.model.proto)
    assert [node.op_type for node in graph.node] == ["Conv"]
    assert [info.name for info in graph.input[1:]] == [tensor.name for tensor in graph.initializer]
    assert len(graph.input) == 3
    feeds = {"x": np.ones((1, 1, 4, 4), np.float32)}
    assert np.allclose(osl.run(edited.model, feeds)["y"], osl.run(osl.build(OLD), feeds)["y"])


@pytest.mark.parametrize(("ir", "left"), [(3, ["x"]), (4, ["x", "idle"])])
def test_clean_takes_an_idle_weight_from_the_inputs_of_an_older_file_alone(ir, left):
    source = osl.build(
        f"""<ir_version: {ir}, opset_import: ["" : 9]> g (float[2] x, float[2] idle) => (float[2] y)
        <float[2] idle = {{1, 2}}> {{ y = Abs(x) }}"""
    )

    cleaned = osl.clean(source).model.proto.graph

    assert [info.name for info in cleaned.input] == left


def test_an_input_of_an_older_file_may_be_frozen():
    assert osl.freeze(osl.build(OLD), {"x": np.ones((1, 1, 4, 4), np.float32)}, verify=True).match
