"""Models that onnxruntime quantized, against the values of their float models."""

import json
import logging
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnxruntime.quantization import (
    QuantFormat,
    QuantType,
    qdq_loss_debug,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

import onnxsurgeon_lite as osl
from kit.bisecting import altered, parsed, random
from kit.quantized import Quantized, Samples, attention
from onnxsurgeon_lite.debug.bisection.quantized.examine import Examination
from onnxsurgeon_lite.debug.bisection.quantized.shaking import Errors
from onnxsurgeon_lite.errors import ReferenceSetError
from onnxsurgeon_lite.graph import quantizers

LAYERS = 6


def convolutions(relu: bool) -> ModelProto:
    """Six convolutions with biases, a mean and a Gemm; on demand each with a Relu."""
    lines, constants, stream = [], {}, "x"
    for i in range(LAYERS):
        channels = 8 if i else 3
        constants[f"w{i}"] = random(8, channels, 3, 3, seed=i) / np.float32(2.1 * channels**0.5)
        constants[f"b{i}"] = random(8, seed=20 + i) / 10
        lines.append(f"[conv{i}] c{i} = Conv <pads = [1, 1, 1, 1]> ({stream}, w{i}, b{i})")
        lines += [f"[relu{i}] r{i} = Relu (c{i})"] if relu else []
        stream = f"r{i}" if relu else f"c{i}"
    constants |= {"wf": random(8, 5, seed=40), "bf": random(5, seed=41)}
    lines += [f"m = ReduceMean <keepdims = 0> ({stream}, axes)", "[fc] y = Gemm (m, wf, bf)"]
    text = f"net (float[1,3,10,10] x) => (float[1,5] y) {{ {chr(10).join(lines)} }}"
    return parsed(text, **constants, axes=np.int64([2, 3]))


def reshaped() -> ModelProto:
    """Products of quantized values, which take their shapes from the input."""
    text = """net (float[64,64] x) => (float[64,64] y) {
        q = MatMul (x, w1)
        v = MatMul (x, w2)
        s = Shape (x)
        p = Softmax (q)
        r = Reshape (v, s)
        m = MatMul (p, r)
        n = Reshape (m, s)
        o = MatMul (n, w3)
        y = Add (o, x)
    }"""
    return parsed(text, **{f"w{i}": random(64, 64, seed=i) / 4 for i in (1, 2, 3)})


def embedded() -> ModelProto:
    """Rows of a table, a probability and a product, each of which a quantizer takes."""
    text = """net (float[6,16] x) => (float[6,16] y) {
        e = Gather (table, ids)
        h = Add (e, x)
        q = MatMul (h, w1)
        p = Softmax (q)
        y = MatMul (p, w2)
    }"""
    tables = {"table": random(20, 16, seed=3), "ids": np.int64([3, 1, 4, 1, 5, 9])}
    return parsed(text, **tables, **{f"w{i}": random(16, 16, seed=i) / 4 for i in (1, 2)})


def turned() -> ModelProto:
    """A value that one reader takes as it is, and another one transposed: both take it quantized."""
    text = """net (float[8,16] x) => (float[8,16] y) {
        n = LayerNormalization (x, g, b)
        q = MatMul (n, w)
        t = Transpose <perm = [1, 0]> (n)
        u = Tanh (t)
        r = Transpose <perm = [1, 0]> (u)
        y = Add (q, r)
    }"""
    constants = {"g": 1 + random(16, seed=1) / 9, "b": random(16, seed=2)}
    return parsed(text, w=random(16, 16, seed=3) / 4, **constants)


def branches() -> ModelProto:
    """Two convolutions that are joined, gated and added, with operators that have a quantized form."""
    constants = {f"w{i}": random(8, 3, 3, 3, seed=i) / 3 for i in range(2)}
    constants |= {f"b{i}": random(8, seed=5 + i) / 5 for i in range(2)}
    text = """net (float[1,3,8,8] x) => (float[1,5] y) {
        [ca] a = Conv <pads = [1, 1, 1, 1]> (x, w0, b0)
        [cb] b = Conv <pads = [1, 1, 1, 1]> (x, w1, b1)
        [gate] s = Sigmoid (b)
        [m] m = Mul (a, s)
        [cat] k = Concat <axis = 1> (m, b)
        [act] l = LeakyRelu <alpha = 0.1> (k)
        s1, s2 = Split <axis = 1, num_outputs = 2> (l)
        [add] d = Add (s1, s2)
        p = GlobalAveragePool (d)
        f = Flatten (p)
        [fc] y = Gemm (f, wf, bf)
    }"""
    return parsed(text, **constants, wf=random(8, 5, seed=8), bf=random(5, seed=9))


def enlarged(mode: str) -> ModelProto:
    """Pixels that are made larger, to a size that is computed of another value, as SegFormer does."""
    text = f"""net (float[1,3,8,8] x) => (float[1,8,8,8] y) {{
        [ca] a = Conv <pads = [1, 1, 1, 1]> (x, w0, b0)
        [cb] b = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (a, w1, b1)
        r = Reshape (b, sizes)
        s = Shape (r)
        zero = Constant <value = int64[1] {{0}}> ()
        two = Constant <value = int64[1] {{2}}> ()
        wide = Constant <value = int64[2] {{8, 8}}> ()
        c = Slice (s, zero, two, zero)
        t = Concat <axis = 0> (c, wide)
        u = Resize <mode = "{mode}"> (r, , , t)
        [cat] k = Add (a, u)
        [cc] y = Conv (k, w2, b2)
    }}"""
    constants = {"w0": random(8, 3, 3, 3) / 3, "w1": random(8, 8, 3, 3, seed=1) / 5}
    constants |= {"w2": random(8, 8, 1, 1, seed=2) / 3, "sizes": np.int64([1, 8, 4, 4])}
    constants |= {f"b{i}": random(8, seed=5 + i) / 5 for i in range(3)}
    return parsed(text, **constants)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Callable[[str], Quantized]:
    logging.disable()  # the quantizer warns of models that were not optimized before
    models = {
        "relu": convolutions(relu=True),
        "plain": convolutions(relu=False),
        "attention": attention(),
        "reshaped": reshaped(),
        "embedded": embedded(),
        "turned": turned(),
        "branches": branches(),
        "enlarged": enlarged("linear"),
        "repeated": enlarged("nearest"),
    }
    folder = tmp_path_factory.mktemp("quantized")
    found: dict[str, Quantized] = {}

    def get(name: str) -> Quantized:
        if name not in found:
            (folder / name).mkdir()
            found[name] = Quantized(folder / name, models[name])
        return found[name]

    yield get
    logging.disable(logging.NOTSET)


HOW = {
    "u8": {},
    "channels": {"per_channel": True},
    "operators": {"quant_format": QuantFormat.QOperator},
}


def data_of(page: Path) -> dict:
    """The JSON inside a page."""
    return json.loads(re.search(r'id="data">(.*?)</script>', page.read_text())[1])


def changed(path: Path, name: str, change: Callable[[np.ndarray], np.ndarray]) -> ModelProto:
    """A quantized model with another initializer."""
    model = onnx.load(path)
    tensor = next(t for t in model.graph.initializer if t.name == name)
    numbers = numpy_helper.to_array(tensor)
    return altered(model, **{name: np.asarray(change(numbers)).astype(numbers.dtype)})


def node_of(model: ModelProto, name: str) -> NodeProto:
    return next(node for node in model.graph.node if node.name == name)


def own(model: ModelProto, node: str, slot: int, change: Callable[[np.ndarray], np.ndarray]):
    """The same model with another scale or zero point of one quantizer alone."""
    user = next(n for n in model.graph.node if n.name == node)
    tensor = next(t for t in model.graph.initializer if t.name == user.input[slot])
    numbers = numpy_helper.to_array(tensor)
    user.input[slot] = f"own {tensor.name}"
    new = np.asarray(change(numbers)).astype(numbers.dtype)
    model.graph.initializer.append(numpy_helper.from_array(new, user.input[slot]))
    return model


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("relu", "u8"),
        ("plain", "channels"),
        ("attention", "u8"),
        ("relu", "operators"),
        ("branches", "operators"),
        ("repeated", "operators"),
    ],
)
def test_a_healthy_quantized_model_has_no_culprit(name, how, made):
    case = made(name)

    result = case.bisect(case.quantize(how, **HOW[how]), against=how == "u8")

    assert (result.verdict, result.culprits) == ("agrees", [])
    assert result.outputs["y"].match


@pytest.mark.parametrize(("name", "against"), [("relu", True), ("plain", False)])
def test_a_corrupted_scale_of_the_fourth_of_six_convolutions_is_the_one_culprit(
    name, against, made
):
    case = made(name)
    wrong = changed(case.quantize("u8"), "w3_scale", lambda scale: scale * 1.3)

    result = case.bisect(wrong, against)

    assert [culprit.name for culprit in result.culprits] == ["conv3"]
    finding = result.culprits[0].findings[0]
    assert finding.verdict == "wrong scale"
    assert "'w3_scale'" in finding.because
    assert "(x0.7692)" in finding.because


FAULTS = {
    "a weight's scale off by 0.5 %": (
        lambda case: changed(case.quantize("u8"), "w3_scale", lambda scale: scale * 1.005),
        "conv3",
        "wrong scale",
    ),
    "the scale of one channel off by 40 %": (
        lambda case: changed(
            case.quantize("channels", per_channel=True),
            "w3_scale",
            lambda scale: scale * np.where(np.arange(8) == 5, 1.4, 1),
        ),
        "conv3",
        "wrong scale",
    ),
    "a weight's zero point off by one": (
        lambda case: changed(case.quantize("u8"), "w3_zero_point", lambda zero: zero + 1),
        "conv3",
        "wrong zero point",
    ),
    "a value's scale, of both its quantizers": (
        lambda case: changed(case.quantize("u8"), "r3_scale", lambda scale: scale * 1.3),
        "conv3",
        "wrong scale",
    ),
    "a scale of what dequantizes": (
        lambda case: own(
            onnx.load(case.quantize("u8")), "r3_DequantizeLinear", 1, lambda s: s * 1.3
        ),
        "r3_DequantizeLinear",
        "wrong scale",
    ),
    "a scale of a quantized operator": (
        lambda case: changed(
            case.quantize("operators", quant_format=QuantFormat.QOperator),
            "w3_scale",
            lambda scale: scale * 1.3,
        ),
        "conv3_quant",
        "wrong scale",
    ),
    "every element shifted by one quantum": (
        lambda case: own(
            onnx.load(case.quantize("u8")), "r3_DequantizeLinear", 2, lambda zero: zero + 1
        ),
        "r3_DequantizeLinear",
        "wrong zero point",
    ),
}


@pytest.mark.parametrize("what", FAULTS)
def test_a_wrong_scale_or_zero_point_is_named_with_the_value_that_fits(what, made):
    case = made("relu")
    plant, node, verdict = FAULTS[what]

    result = case.bisect(plant(case))

    assert [culprit.name for culprit in result.culprits] == [node]
    assert result.culprits[0].findings[0].verdict == verdict
    assert "fits" in result.culprits[0].findings[0].because
    if "quantized operator" not in what:
        assert "fits" in result.culprits[0].causes[0].sentence


@pytest.mark.parametrize("half", ["QuantizeLinear", "DequantizeLinear"])
def test_which_half_of_a_pair_is_wrong_is_not_known_without_a_reference(half, made):
    case = made("relu")
    model = own(onnx.load(case.quantize("u8")), f"r3_{half}", 1, lambda scale: scale * 1.3)
    onnx.save(model, case.folder / "pair.onnx")
    stored = osl.open_references(case.folder / "refs")
    some = {name: stored.read(name) for name in ("x", "r1", "r5", "y")}

    result = osl.bisect(case.folder / "pair.onnx", some, cause=False)

    (culprit,) = result.culprits
    names = {model.graph.node[int(node[1:])].name for node in culprit.region}
    assert names == {"r3_QuantizeLinear", "r3_DequantizeLinear"}
    assert "is not known" in culprit.findings[0].because


def test_a_weight_that_no_scale_fits_is_a_wrong_constant(made):
    case = made("attention")
    path = case.quantize("u8")
    rolled = changed(path, "wo_quantized", lambda weight: np.roll(weight, 1, axis=0))

    (culprit,) = case.bisect(rolled, against=True).culprits

    assert culprit.findings[0].verdict == "wrong constant"
    assert "'wo_quantized' is not the float model's weight" in culprit.findings[0].because


@pytest.mark.parametrize(
    ("model", "scale", "factor", "node"),
    [
        ("branches", "w1_scale", 1.3, "cb_quant"),
        ("branches", "x_scale", 1.3, "ca_quant"),  # both biases are quantized with it
        ("attention", "up_scale", 0.7, "u_quant"),  # a float operator follows
    ],
)
def test_a_wrong_scale_of_quantized_operators_is_one_culprit(model, scale, factor, node, made):
    case = made(model)
    path = case.quantize("operators", quant_format=QuantFormat.QOperator)

    (culprit,) = case.bisect(changed(path, scale, lambda numbers: numbers * factor)).culprits

    assert (culprit.name, culprit.findings[0].verdict) == (node, "wrong scale")
    assert f"scale '{scale}' is" in culprit.findings[0].because
    assert f"(x{1 / factor:.3g}"[:5] in culprit.findings[0].because


@pytest.mark.parametrize(("value", "node"), [("l", "act_quant"), ("x", "x_QuantizeLinear")])
def test_a_range_of_a_quantized_operator_that_is_too_narrow_is_one_culprit(value, node, made):
    case = made("branches")
    path = case.quantize("operators", quant_format=QuantFormat.QOperator)
    wrong = changed(path, f"{value}_scale", lambda scale: scale * 0.6)

    (culprit,) = case.bisect(wrong).culprits

    assert culprit.name == node
    assert "saturated" in {finding.verdict for finding in culprit.findings}


def test_what_an_unknown_quantized_operator_makes_is_not_said_to_agree_or_to_be_wrong(
    made, monkeypatch
):
    case = made("embedded")
    monkeypatch.delitem(quantizers.FORMS, "QLinearSoftmax")

    result = case.bisect(case.quantize("operators", quant_format=QuantFormat.QOperator))

    assert (result.verdict, result.culprits) == ("inconclusive", [])
    assert "as what QLinearSoftmax rounds is not known: 'p'" in result.notes[-1]


def test_pixels_that_are_enlarged_as_integers_are_not_said_to_agree_or_to_be_wrong(made):
    case = made("enlarged")
    quantized = case.quantize("operators", quant_format=QuantFormat.QOperator)

    result = case.bisect(quantized)
    wrong = case.bisect(changed(quantized, "w2_scale", lambda scale: scale * 2))

    node = next(node for node in onnx.load(quantized).graph.node if node.op_type == "Resize")
    assert "quantized" in node.input[0]
    assert (result.verdict, result.culprits) == ("inconclusive", [])
    assert "not compared, as what Resize rounds is not known: 'u'" in result.notes
    assert not any("\\x01" in note for note in result.notes)
    assert [culprit.name for culprit in wrong.culprits] == ["cc_quant"]


def test_a_range_that_is_too_narrow_is_called_saturated_with_the_range_that_is_needed(made):
    case = made("attention")

    result = case.bisect(changed(case.quantize("u8"), "u_scale", lambda scale: scale / 2))

    assert [culprit.value for culprit in result.culprits] == ["u_DequantizeLinear_Output"]
    assert result.culprits[0].findings[0].verdict == "saturated"
    assert "the reference needs" in result.culprits[0].findings[0].because
    fixed = osl.repair(case.folder / "wrong.onnx", result)
    assert not case.bisect(fixed.model.proto).culprits


def test_a_narrow_range_that_another_value_without_a_reference_shares_is_one_culprit(made):
    case = made("turned")
    narrow = changed(case.quantize("u8"), "n_scale", lambda scale: scale / 2)
    onnx.save(narrow, case.folder / "narrow.onnx")
    stored = osl.open_references(case.folder / "refs")
    some = {name: stored.read(name) for name in ("x", "n", "q", "u", "r", "y")}

    result = osl.bisect(case.folder / "narrow.onnx", some, cause=False)

    transposed = next(n for n in narrow.graph.node if n.output[0] == "t_QuantizeLinear_Output")
    assert transposed.input[1] == "n_scale"
    assert [culprit.value for culprit in result.culprits] == ["n_DequantizeLinear_Output"]
    assert result.culprits[0].findings[0].verdict == "saturated"


def test_no_table_calls_what_a_narrow_range_cuts_off_a_match(made):
    case = made("attention")
    page = case.folder / "page.html"
    narrow = changed(case.quantize("u8"), "u_scale", lambda scale: scale / 2)

    result = case.bisect(narrow, cause=False, html=page)

    table = data_of(page)["tables"][0]
    name, verdict = map(table["columns"].index, ("name", "verdict"))
    said = {row[name]: row[verdict] for row in table["rows"]}
    (row,) = (line for line in str(result).splitlines() if line.startswith("output"))
    assert said["u_DequantizeLinear_Output"] == "saturated"
    assert row.split()[1:3] == ["saturated", "u_DequantizeLinear_Output"]


def test_a_page_shows_how_many_quanta_a_value_is_off(made, tmp_path):
    case = made("attention")
    narrow = changed(case.quantize("u8"), "u_scale", lambda scale: scale / 2)

    osl.compare_sets(
        narrow, case.folder / "refs", feeds=case.feeds, every=True, html=tmp_path / "page.html"
    )

    said = {part["name"]: part["says"] for part in data_of(tmp_path / "page.html")["tensors"]}
    assert "after the quantizer: off by at most" in said["u"]


def test_a_wrong_attribute_of_a_quantized_model_is_found_through_its_rounding(made):
    case = made("relu")
    wrong = onnx.load(case.quantize("u8"))
    node = next(n for n in wrong.graph.node if n.name == "conv2")
    node.attribute.append(onnx.helper.make_attribute("dilations", [2, 2]))
    pads = next(a for a in node.attribute if a.name == "pads")
    pads.ints[:] = [2, 2, 2, 2]

    result = case.bisect(wrong)

    assert [culprit.name for culprit in result.culprits] == ["conv2"]
    assert result.culprits[0].findings[0].verdict == "wrong node"


def test_a_value_that_is_quantized_twice_is_no_fault(made):
    model = onnx.load(made("attention").quantize("u8"))
    twice = node_of(model, "scores")
    scale = helper.make_tensor("coarse", onnx.TensorProto.FLOAT, [], [0.05])
    model.graph.initializer.append(scale)
    given = twice.input[0]
    around = [
        helper.make_node("QuantizeLinear", [given, "coarse"], ["again"], name="again"),
        helper.make_node("DequantizeLinear", ["again", "coarse"], ["twice"], name="twice"),
    ]
    twice.input[0] = "twice"
    position = list(model.graph.node).index(twice)
    for node in reversed(around):
        model.graph.node.insert(position, node)

    result = made("attention").bisect(model)

    assert not result.culprits


def test_an_operation_that_is_missing_between_two_quantizers_is_found(made):
    model = onnx.load(made("attention").quantize("u8"))
    softmax = node_of(model, "p")
    reader = next(n for n in model.graph.node if softmax.output[0] in n.input)
    reader.input[0] = softmax.input[0]
    model.graph.node.remove(softmax)

    result = made("attention").bisect(model)

    (culprit,) = result.culprits
    names = {model.graph.node[int(node[1:])].name for node in culprit.region}
    assert reader.name in names


def test_one_scale_of_both_quantizers_of_a_value_is_one_culprit_against_own_references(made):
    quantized = made("plain").quantize("u8")
    osl.record(quantized, made("plain").folder / "own.npz", feeds=made("plain").feeds)
    onnx.save(changed(quantized, "c3_scale", lambda s: s * 0.5), made("plain").folder / "half.onnx")

    result = osl.bisect(made("plain").folder / "half.onnx", made("plain").folder / "own.npz")

    assert [culprit.op_type for culprit in result.culprits] == ["QuantizeLinear"]


def test_a_healthy_quantized_model_has_no_culprit_against_some_of_its_own_values(made):
    quantized, folder = made("attention").quantize("u8"), made("attention").folder
    osl.record(quantized, folder / "own.npz", feeds=made("attention").feeds)
    own = dict(np.load(folder / "own.npz"))
    some = {name: own[name] for name in dict.fromkeys([*list(own)[::7], "x", "y"])}

    result = osl.bisect(quantized, some)

    assert (result.verdict, result.culprits) == ("agrees", [])


def test_rounding_is_measured_where_the_value_is_cut_off_and_the_reference_is_not(
    monkeypatch, tmp_path
):
    text = "net (float[1,48] x) => (float[1,2] y) { h = Tanh (x) y = Gemm (h, w, b) }"
    weights = {"w": random(48, 2, seed=6) / 4, "b": random(2, seed=106) / 4}
    case, floors, faults = Quantized(tmp_path, parsed(text, **weights)), {}, Examination.faults
    case.samples = case.samples[:1]  # the range ends at its values
    monkeypatch.setattr(
        Examination, "faults", lambda self: (faults(self), floors.update(self.floors.of))[0]
    )

    result = case.bisect(case.quantize("u8"), cause=False)

    assert (result.verdict, result.culprits) == ("agrees", [])
    noise = floors["y_QuantizeLinear_Input"].noise
    assert all(measured.rms.any() for measured in noise)


def test_branches_that_have_only_their_quantizers_in_common_are_seen_to_be_one_fault(made):
    quantized, folder = made("attention").quantize("u8"), made("attention").folder
    osl.record(quantized, folder / "own.npz", feeds=made("attention").feeds)
    values = dict(np.load(folder / "own.npz"))
    kept = ("x", "h_QuantizeLinear_Output", *(f"{n}_DequantizeLinear_Output" for n in "gy"), "y")
    wrong = own(onnx.load(quantized), "h_DequantizeLinear", 1, lambda scale: scale * 1.3)
    onnx.save(wrong, folder / "fork.onnx")

    result = osl.bisect(folder / "fork.onnx", {n: values[n] for n in kept if n in values})

    assert [culprit.name for culprit in result.culprits] == ["h_DequantizeLinear"]


def test_what_the_optimizer_rounds_otherwise_is_no_fault_where_shapes_come_of_the_input(made):
    quantized, folder = made("reshaped").quantize("u8"), made("reshaped").folder
    osl.record(quantized, folder / "own.npz", feeds=made("reshaped").feeds)

    result = osl.bisect(quantized, folder / "own.npz")

    assert (result.verdict, result.culprits) == ("agrees", [])


def test_a_channel_that_is_cut_off_but_for_one_number_is_no_fault():
    rng = np.random.default_rng(0)
    quiet = [np.where(np.arange(64) < 16, rng.uniform(-1, 1, (8, 64)), 0) for _ in range(9)]
    *noise, error = (Errors.of(drawn, np.ones((8, 64)), axis=1) for drawn in quiet)
    border = quiet[-1].copy()
    border[0, 40] = 0.8

    at_border = Errors.of(border, np.ones((8, 64)), axis=1)

    assert error.excess(noise, 0.05, 1.0, error.rms.size) <= 1
    assert at_border.excess(noise, 0.05, 1.0, error.rms.size) <= 1


def test_a_relu_that_the_quantizer_does_anyway_changes_nothing(made):
    model = onnx.load(made("relu").quantize("u8"))
    cut = node_of(model, "conv2").output[0]
    reader = next(node for node in model.graph.node if cut in node.input)
    reader.input[0] = "once more"
    number = list(model.graph.node).index(reader)
    model.graph.node.insert(number, helper.make_node("Relu", [cut], ["once more"]))

    result = made("relu").bisect(model)

    assert (result.verdict, result.culprits) == ("agrees", [])


@pytest.mark.parametrize(
    ("name", "weight", "value"), [("attention", "wv", "v"), ("plain", "w3", "c3")]
)
def test_a_wrong_scale_of_a_dynamically_quantized_model_is_named(name, weight, value, made):
    case = made(name)
    path = case.folder / "dynamic.onnx"
    quantize_dynamic(case.float, path, weight_type=QuantType.QUInt8)

    (culprit,) = case.bisect(changed(path, f"{weight}_scale", lambda scale: scale * 1.3)).culprits

    assert (culprit.value, culprit.findings[0].verdict) == (value, "wrong scale")
    assert f"another scale of '{weight}_quantized' (x0.7" in culprit.findings[0].because


@pytest.mark.parametrize("name", ["attention", "plain", "embedded", "turned"])
@pytest.mark.parametrize("against", [False, True], ids=["values", "model"])
def test_a_healthy_dynamically_quantized_model_agrees_with_the_float_model(name, against, made):
    case = made(name)
    path = case.folder / "dynamic.onnx"
    quantize_dynamic(case.float, path, weight_type=QuantType.QUInt8)

    found = case.bisect(path, against)

    assert (found.verdict, found.culprits) == ("agrees", [])


@pytest.mark.parametrize(("shape", "axis"), [((5,), 1), ((0, 3), 1), ((2, 0), -1), ((), -1)])
def test_errors_of_values_without_channels_or_elements_are_measured(shape, axis):
    measured = Errors.of(np.zeros(shape), np.ones(shape), axis)

    assert measured.excess([measured], 0.0, 1.0, int(np.prod(shape))) == 0


@pytest.mark.parametrize(("name", "weight"), [("attention", "wo"), ("embedded", "table")])
def test_a_zero_point_off_by_one_in_a_dynamically_quantized_model_is_no_noise(name, weight, made):
    case = made(name)
    path = case.folder / "dynamic.onnx"
    quantize_dynamic(case.float, path, weight_type=QuantType.QUInt8)
    zero = f"{weight}_zero_point"

    (culprit,) = case.bisect(changed(path, zero, lambda number: number + 1)).culprits

    assert culprit.findings[0].verdict == "wrong zero point"
    assert f"{zero!r} is 118, 117 fits the reference" in culprit.findings[0].because


def test_a_quantized_table_and_a_quantized_softmax_are_compared_in_float(made):
    case = made("embedded")
    path = case.folder / "dynamic.onnx"
    quantize_dynamic(case.float, path)
    operators = case.quantize("operators", quant_format=QuantFormat.QOperator)

    results = [case.bisect(path), case.bisect(operators)]

    assert "QLinearSoftmax" in {node.op_type for node in onnx.load(operators).graph.node}
    assert "Gather" in {
        node.op_type for node in onnx.load(path).graph.node if "quant" in node.output[0]
    }
    assert [(r.verdict, r.culprits) for r in results] == [("agrees", [])] * 2


def test_own_values_on_both_sides_of_a_quantizer_are_not_those_of_a_float_model(made):
    quantized, folder = made("reshaped").quantize("u8"), made("reshaped").folder
    osl.record(quantized, folder / "own.npz", feeds=made("reshaped").feeds)
    own = dict(np.load(folder / "own.npz"))

    result = osl.bisect(quantized, {name: own[name] for name in "xoy"})

    assert (result.verdict, result.culprits) == ("agrees", [])


def test_lost_digits_are_no_rounding_against_some_of_its_own_values(made):
    quantized, folder = made("plain").quantize("u8"), made("plain").folder
    osl.record(quantized, folder / "own.npz", feeds=made("plain").feeds)
    model, own = onnx.load(quantized), dict(np.load(folder / "own.npz"))
    names = [node_of(model, f"conv{i}").output[0] for i in (2, 3, 4)]
    reader = next(node for node in model.graph.node if names[1] in node.input)
    casts = [
        helper.make_node("Cast", [names[1]], ["narrow"], to=TensorProto.BFLOAT16),
        helper.make_node("Cast", ["narrow"], ["wide"], to=TensorProto.FLOAT),
    ]
    reader.input[0] = "wide"
    for cast in reversed(casts):
        model.graph.node.insert(list(model.graph.node).index(node_of(model, "conv3")) + 1, cast)
    onnx.save(model, folder / "narrow.onnx")

    some = {n: own[n] for n in ("x", names[0], names[2], "c4_QuantizeLinear_Output", "y")}
    result = osl.bisect(folder / "narrow.onnx", some)

    (culprit,) = result.culprits
    makers = {name: number for number, node in enumerate(model.graph.node) for name in node.output}
    assert f"@{makers['narrow']}" in culprit.region


def test_which_scale_is_wrong_is_not_known_where_rounding_hides_it(made):
    model = onnx.load(made("plain").quantize("u8"))
    bias = node_of(model, "conv3").input[2]
    maker = next(n for n in model.graph.node if bias in n.output)

    result = made("plain").bisect(own(model, maker.name, 1, lambda s: s * 1.005))

    (culprit,) = result.culprits
    assert culprit.name == "conv3"
    assert "is not known, as its effect is below the rounding" in culprit.findings[0].because


def test_settings_that_differ_by_one_quantum_are_rounding(made):
    case = made("relu")

    result = osl.bisect(case.quantize("u8"), a="opt=none", b="opt=all", feeds=case.feeds)

    assert (result.verdict, result.culprits) == ("agrees", [])


def test_compare_says_how_many_quanta_a_quantized_value_is_off_its_float_reference(made):
    case = made("attention")
    narrow = changed(case.quantize("u8"), "u_scale", lambda scale: scale / 2)
    onnx.save(narrow, case.folder / "narrow.onnx")
    refs = case.folder / "refs"

    healthy = osl.compare_sets(case.quantize("u8"), refs, every=True).compared
    cut = osl.compare_sets(case.folder / "narrow.onnx", refs, every=True).compared["u"]
    (strict,) = osl.compare_sets(
        case.quantize("u8"),
        {"n": osl.open_references(refs).read("n")},
        feeds=case.feeds,
        atol=1e-6,
    ).compared.values()

    assert (healthy["n"].match, strict.match) == (True, False)  # rounded once
    assert "off by at most 1 of its quanta" in strict.notes[0]
    assert not cut.match
    assert "saturated (" in cut.notes[0]
    assert "; 0 saturated" not in cut.notes[0]


@pytest.mark.parametrize("name", ["relu", "attention"])
def test_rank_agrees_with_the_loss_debugger_of_onnxruntime(name, made, tmp_path):
    case = made(name)
    found = []
    for path in (case.float, case.quantize("u8")):
        watched = tmp_path / "watched.onnx"
        qdq_loss_debug.modify_model_output_intermediate_tensors(str(path), str(watched))
        found.append(qdq_loss_debug.collect_activations(str(watched), Samples([case.feeds])))
    pairs = qdq_loss_debug.create_activation_matching(found[1], found[0])
    theirs = qdq_loss_debug.compute_activation_error(pairs)

    ranking = osl.rank(case.quantize("u8"), reference=case.folder / "refs")

    ours = {node.value: node.total_db for node in ranking.nodes}
    compared = theirs.keys() & ours.keys()
    assert len(compared) >= len(theirs) - 1  # they have the input, too
    for value in compared:
        assert abs(ours[value] - theirs[value]["xmodel_err"]) < 0.2, value
    assert ranking.exclude == []


def test_the_exclude_list_reaches_the_wanted_sqnr_when_the_model_is_quantized_so(made):
    case = made("attention")

    def output_db(model: Path) -> float:
        outputs = [osl.run(path, feeds=case.feeds, opt="none")["y"] for path in (model, case.float)]
        return osl.compare(*outputs).metric("sqnr")

    before = output_db(case.quantize("u8"))
    found = osl.rank(
        case.quantize("u8"),
        against=case.float,
        leave_one_out=True,
        reach=before + 4,
        feeds=case.feeds,
    )

    assert abs(found.output_db - before) < 0.2
    assert 0 < len(found.exclude) < len(found.nodes)
    first = found.nodes[0]
    alone = case.quantize("alone", nodes_to_exclude=[first.name])
    assert abs(output_db(alone) - first.output_db) < 0.2
    together = case.quantize("together", nodes_to_exclude=found.exclude)
    assert output_db(together) >= before + 4


@pytest.fixture(scope="module")
def few_bits(made) -> Path:
    """A copy of the attention block whose weights are blocks of four bits."""
    case = made("attention")
    quantizer = MatMulNBitsQuantizer(onnx.load(case.float), block_size=32, is_symmetric=True)
    quantizer.process()
    onnx.save(quantizer.model.model, case.folder / "few_bits.onnx")
    return case.folder / "few_bits.onnx"


def test_weights_of_four_bits_have_no_culprit_and_a_wrong_scale_of_them_is_one(made, few_bits):
    case = made("attention")

    healthy = case.bisect(few_bits)
    (culprit,) = case.bisect(changed(few_bits, "up_scales", lambda scale: scale * 1.3)).culprits

    assert (healthy.verdict, healthy.culprits) == ("agrees", [])
    assert (culprit.op_type, culprit.value) == ("MatMulNBits", "u")
    assert culprit.nodes == {culprit.id: "MatMulNBits 'u_Q4'"}


def test_weights_of_four_bits_against_own_values_are_held_to_these(made, few_bits):
    case = made("attention")
    own_values = osl.run(few_bits, case.feeds, ["q", "u", "y"]) | case.feeds

    results = [
        osl.bisect(model, own_values, cause=False)
        for model in (few_bits, changed(few_bits, "up_scales", lambda scale: scale * 1.01))
    ]

    assert [result.verdict for result in results] == ["agrees", "mismatch"]
    assert [c.name for c in results[1].culprits] == ["u_Q4"]


def test_weights_of_four_bits_stay_where_they_are_against_own_values(tmp_path):
    """Apart, their integers alone would take a byte each, and their floats four."""
    rows, columns = 1024, 8192
    codes = np.random.default_rng(0).integers(0, 256, (columns, rows // 32, 16), np.uint8)
    text = f"""net (float[1,{rows}] x) => (float[1,{columns}] y) {{
        h = com.microsoft.MatMulNBits <K = {rows}, N = {columns}, bits = 4, block_size = 32> (x, codes, scales)
        y = LeakyRelu <alpha = 0.1> (h) }}"""
    model = parsed(text, codes=codes, scales=np.full((columns, rows // 32), 0.01, np.float32))
    model.opset_import.add(domain="com.microsoft", version=1)
    wrong = altered(model)
    wrong.graph.node[1].attribute[0].f = 0.2
    paths = [tmp_path / "wrong.onnx", tmp_path / "right.onnx"]
    for path, each in zip(paths, (wrong, model), strict=True):
        onnx.save(each, path, save_as_external_data=True, location=f"{path.stem}.data")

    tracemalloc.start()
    result = osl.bisect(paths[0], against=paths[1], feeds={"x": random(1, rows)}, cause=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert [culprit.op_type for culprit in result.culprits] == ["LeakyRelu"]
    assert peak < rows * columns


def test_what_the_optimizer_rounds_in_weights_of_four_bits_is_no_fault(made):
    case = made("attention")
    quantizer = MatMulNBitsQuantizer(
        onnx.load(case.float), block_size=32, is_symmetric=True, quant_format=QuantFormat.QDQ
    )
    quantizer.process()
    onnx.save(quantizer.model.model, case.folder / "blocks.onnx")

    result = osl.bisect(case.folder / "blocks.onnx", a="opt=none", b="opt=all", feeds=case.feeds)

    assert (result.verdict, result.culprits) == ("agrees", [])


def test_what_a_quantized_recurrent_operator_rounds_is_not_known(tmp_path):
    weights = {"w": random(1, 64, 8) / 3, "r": random(1, 64, 16, seed=1) / 4}
    text = """net (float[5,1,8] x) => (float[5,1,1,16] z)
        { y, h, c = LSTM <hidden_size = 16> (x, w, r) z = Tanh (y) }"""
    onnx.save(parsed(text, **weights), tmp_path / "float.onnx")
    quantize_dynamic(tmp_path / "float.onnx", tmp_path / "dynamic.onnx")
    osl.record(tmp_path / "float.onnx", tmp_path / "refs", feeds={"x": random(5, 1, 8)})

    result = osl.bisect(tmp_path / "dynamic.onnx", tmp_path / "refs")

    assert (result.verdict, result.culprits) == ("inconclusive", [])
    assert "what DynamicQuantizeLSTM rounds is not known: 'y'" in result.notes[-1]


def test_a_bias_in_weights_of_four_bits_is_added_behind_them(tmp_path):
    """The float model adds it in a node of its own."""
    text = "net (float[6,16] x) => (float[6,8] y) { u = MatMul (x, w) y = Add (u, b) }"
    constants = {"w": random(16, 8) / 4, "b": random(8, seed=1)}
    model = parsed(text, **constants)
    onnx.save(model, tmp_path / "float.onnx")
    osl.record(model, tmp_path / "refs", feeds={"x": random(6, 16)})
    quantizer = MatMulNBitsQuantizer(model, block_size=16, is_symmetric=True)
    quantizer.process()
    joined = quantizer.model.model
    product, added = joined.graph.node
    product.input.extend(["", "", "b"])
    product.output[0] = added.output[0]
    joined.graph.node.remove(added)
    onnx.save(joined, tmp_path / "bits.onnx")
    scales = next(t.name for t in joined.graph.initializer if t.name.endswith("scales"))
    wrong = changed(tmp_path / "bits.onnx", scales, lambda scale: scale * 1.5)
    lost = changed(tmp_path / "bits.onnx", "b", lambda bias: bias * 0)

    healthy, *faulty = (
        osl.bisect(model, tmp_path / "refs", cause=False)
        for model in (tmp_path / "bits.onnx", wrong, lost)
    )

    assert (healthy.verdict, healthy.culprits) == ("agrees", [])
    for result in faulty:
        assert [(c.op_type, c.value) for c in result.culprits] == [("MatMulNBits", "y")]


def test_what_permuted_blocks_of_a_weight_round_is_not_known(made, few_bits):
    case, model = made("attention"), onnx.load(few_bits)
    node = node_of(model, "u_Q4")
    node.input.extend([""] * (4 - len(node.input)) + ["rows"])
    rows = np.zeros(16, np.int32)
    model.graph.initializer.append(numpy_helper.from_array(rows, "rows"))

    result = case.bisect(model)

    assert (result.verdict, result.culprits) == ("inconclusive", [])
    assert "what MatMulNBits rounds is not known: 'u'" in result.notes[-1]


def test_a_float_model_s_values_of_another_batch_are_refused(tmp_path):
    text = "net (float[n,16] x) => (float[n,5] y) { h = MatMul (x, w1) t = Tanh (h) y = MatMul (t, w2) }"
    onnx.save(parsed(text, w1=random(16, 16) / 4, w2=random(16, 5)), tmp_path / "float.onnx")
    osl.record(tmp_path / "float.onnx", tmp_path / "refs", feeds={"x": random(4, 16)})
    quantize_static(tmp_path / "float.onnx", tmp_path / "qdq.onnx", Samples([{"x": random(4, 16)}]))
    quantize_dynamic(tmp_path / "float.onnx", tmp_path / "dynamic.onnx")

    for model in ("qdq", "dynamic"):
        with pytest.raises(ReferenceSetError, match=r"has shape \[2, 16\], \[4, 16\] was recorded"):
            osl.bisect(tmp_path / f"{model}.onnx", tmp_path / "refs", feeds={"x": random(2, 16)})
