"""float16: what a conversion loses, what must stay in float32, and what the runtime computes wider."""

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import onnxsurgeon_lite as osl
from kit.bisecting import parsed, random
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.matching.values.mapping import renamed
from onnxsurgeon_lite.matching.values.pair_table import Pair
from onnxsurgeon_lite.model.loading import loaded
from onnxsurgeon_lite.tensors.references import ReferenceSet

NORM = """net (float[4,16] x) => (float[4,16] y) {
    [project] a = MatMul (x, w)
    [square] squares = Mul (a, a)
    [mean] m = ReduceMean <keepdims = 1> (squares, axes)
    [eps] e = Add (m, small)
    [root] s = Sqrt (e)
    [divide] n = Div (a, s)
    [out] y = MatMul (n, v)
}"""
ATTENTION = """net (float[4,16] x) => (float[4,16] y) {
    [q] q = MatMul (x, w)
    [t] t = Transpose <perm = [1, 0]> (q)
    [scores] scores = MatMul (q, t)
    [scaled] scaled = Mul (scores, tiny)
    [soft] p = Softmax (scaled)
    [out] y = MatMul (p, q)
}"""


def model(text: str, scale: float) -> ModelProto:
    constants = {"axes": np.int64([1]), "small": np.float32(1e-6), "tiny": np.float32(1e-5)}
    constants = {name: value for name, value in constants.items() if f"{name})" in text}
    return parsed(text, w=random(16, 16, seed=1) * scale, v=random(16, 16, seed=2), **constants)


def converted(source: ModelProto, kept: list[str]) -> ModelProto:
    """The model in float16, but for the nodes that are kept; casts stand where a dtype ends."""
    result = ModelProto()
    result.CopyFrom(source)
    graph, half = result.graph, TensorProto.FLOAT16
    kinds = {value.name: TensorProto.FLOAT for value in graph.input}
    constants = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    nodes = list(graph.node)
    del graph.node[:], graph.value_info[:]
    for node in nodes:
        own = TensorProto.FLOAT if node.name in kept else half
        for slot, name in enumerate(node.input):
            if name in constants and constants[name].dtype == np.float32 and own == half:
                node.input[slot] = f"{name} half"
                cast = constants[name].astype(np.float16)
                graph.initializer.append(numpy_helper.from_array(cast, f"{name} half"))
            elif kinds.get(name, own) != own:
                node.input[slot] = f"{name} for {node.name}"
                graph.node.append(helper.make_node("Cast", [name], [node.input[slot]], to=own))
        kinds[node.output[0]] = own
        graph.node.append(node)
    if kinds["y"] == half:
        graph.node[-1].output[0] = "y half"
        graph.node.append(helper.make_node("Cast", ["y half"], ["y"], to=TensorProto.FLOAT))
    return result


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize(("text", "scale"), [(NORM, 200.0), (ATTENTION, 60.0), (NORM, 1.0)])
def test_the_nodes_to_keep_in_float32_are_sufficient(text, scale, tmp_path):
    wide = model(text, scale)
    onnx.save(wide, tmp_path / "m.onnx")
    feeds = {"x": random(4, 16, seed=5)}

    risks = osl.rank(tmp_path / "m.onnx", fp16_risk=True, feeds=feeds)

    expected = ReferenceEvaluator(wide).run(None, feeds)[0]
    half, kept = (
        ReferenceEvaluator(converted(wide, names)).run(None, feeds)[0]
        for names in ([], risks.exclude)
    )
    tolerance = osl.Tolerance(1e-2, 1e-2, scaled=True)
    assert osl.compare(kept, expected, tolerance).match
    assert bool(risks.exclude) is not osl.compare(half, expected, tolerance).match
    assert len(risks.exclude) < len(wide.graph.node)
    assert "the outputs are finite" in str(risks)


def test_a_finite_value_behind_an_overflow_is_explained(tmp_path):
    text = """net (float16[4] x) => (float16[4] y) {
        xx = Mul (x, x)
        m = Add (xx, one)
        y = Sqrt (m)
    }"""
    onnx.save(parsed(text, one=np.float16(1)), tmp_path / "m.onnx")

    def told(*numbers: float) -> tuple[str, ...]:
        feeds = {"x": np.float16(numbers)}
        return osl.run(tmp_path / "m.onnx", fetch=["xx", "y"], feeds=feeds).told

    assert any("computes float16 in float32" in note for note in told(1, 2, 300, 400))
    assert not any("float16" in note for note in told(1, 2, 3, 4))


def test_an_overflow_is_no_good_number():
    found = osl.compare(np.float32([1, 2, np.inf]), np.float32([1, 2, 3]))

    assert np.isnan(found.metric("cosine"))
    assert found.metric("sqnr") == -np.inf
    masked = osl.compare(np.float32([1, -np.inf]), np.float32([1, -np.inf]))
    assert (masked.match, masked.metric("sqnr")) == (True, np.inf)


def test_more_than_64_named_values_are_recorded(tmp_path):
    lines = [f"v{i + 1} = {'Relu' if i % 2 else 'Tanh'} (v{i})" for i in range(200)]
    text = f"net (float[4] v0) => (float[4] v200) {{ {chr(10).join(lines)} }}"
    onnx.save(parsed(text), tmp_path / "m.onnx")
    named = [f"v{i}" for i in range(1, 200, 2)]

    recorded = osl.record(tmp_path / "m.onnx", tmp_path / "refs", value=named)

    assert len(osl.open_references(tmp_path / "refs")) == len(named) + 1, recorded


def test_the_fill_of_a_mask_that_half_precision_cannot_hold_is_no_fault(tmp_path):
    text = """net (float[4,8] x) => (float[4,8] y) {
        m = Add (x, mask)
        y = Softmax (m)
    }"""
    mask = np.triu(np.full((4, 8), np.finfo(np.float32).min), 1)
    clipped = parsed(text, mask=np.clip(mask, -65504, 65504))
    onnx.save(parsed(text, mask=mask), tmp_path / "wide.onnx")
    onnx.save(converted(clipped, []), tmp_path / "half.onnx")

    osl.record(tmp_path / "wide.onnx", tmp_path / "refs.npz", seed=1)

    result = osl.bisect(tmp_path / "half.onnx", tmp_path / "refs.npz")

    assert (result.verdict, result.culprits) == ("agrees", [])


def test_an_error_below_the_tolerance_that_grows_is_found_where_it_is_made():
    text = """<ir_version: 10, opset_import: ["" : 21]> net (float16[8,16] x) => (float16[8,16] y) {
        [first] a = Add(x, w)
        [second] b = Tanh(a)
        [third] c = Sub(b, v)
        [last] y = Mul(c, c)
    }"""
    right, wrong = onnx.parser.parse_model(text), onnx.parser.parse_model(text)
    bias, x = random(16, seed=1).astype(np.float16), random(8, 16).astype(np.float16)
    near = np.tanh(x + bias) - np.float16(0.02)
    for net, shift in ((right, 0), (wrong, 0.008)):
        given = {"w": bias + np.float16(shift), "v": near}
        net.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in given.items())
    references = osl.run(right, {"x": x}, fetch=["a", "b", "c", "y"])

    result = osl.bisect(wrong, {"x": x, **references}, feeds={"x": x})

    (culprit,) = result.culprits
    assert culprit.name == "first"
    assert culprit.findings[0].verdict == "wrong constant"
    assert any("below half precision's tolerance" in note for note in result.notes)


def test_what_an_output_is_cast_from_has_its_reference():
    half = parsed("""net (float[4] x) => (float[4] y, int64[4] z) {
        h = Cast <to = 10> (x) r = Relu (h) y = Cast <to = 1> (r) z = Cast <to = 7> (r)
    }""")
    names = ["r", "y", "z"]

    found = renamed(
        ReferenceSet.of({"relu": np.ones(4, np.float32)}),
        [Pair("relu", "r", ("values",), 1.0)],
        GraphIndex.of(loaded(half)),
        dict.fromkeys(names, (4,)),
    )

    assert [name for name in names if name in found] == ["r", "y"]
