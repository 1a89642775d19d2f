"""`inspect --optimized`: what onnxruntime fused, and what keeps it from fusing more; each case is held against it."""

import json

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit import FIXTURES
from onnxsurgeon_lite.cli.app import app

CONSTANTS = {
    "root": 1.4142135, "one": 1.0, "half": 0.5, "two": 2.0, "tiny": 1e-5, "factor": 0.125,
    "b": np.arange(8), "g": np.arange(8), "W": np.eye(8), "K": np.full((4, 4, 3, 3), 0.1),
    "s": np.arange(4), "m": np.arange(4).reshape(4, 1, 1), "low": 0.0, "high": 6.0,
}  # fmt: skip
GELU = "a = Div(x, root) e = Erf(a) p = Add(e, one) q = Mul(x, p) y = Mul(q, half)"
LAYER_NORM = """
    u = ReduceMean<axes = [-1]>(x) d = Sub(x, u) p = Pow(d, two) v = ReduceMean<axes = [-1]>(p)
    w = Add(v, tiny) q = Sqrt(w) n = Div(d, q) h = Mul(n, g) y = Add(h, b)
"""
RMS_NORM = """
    p = Pow(x, two) v = ReduceMean<axes = [-1]>(p) w = Add(v, tiny) q = Sqrt(w) n = Div(x, q) y = Mul(n, g)
"""
ROWS, IMAGE = "float[2, 3, 8] x", "float[1, 4, 6, 6] x"
BESIDE = "float[2, 3, 8] x, float[2, 3, 8] k"
CASES = [
    # the fused operator, inputs, nodes; an output more, or an input in the place of a constant; why not
    ("Gelu", ROWS, GELU, ">e", "value 'e' inside is used elsewhere: an output of the graph"),
    ("Gelu", ROWS, GELU, "float root", "'root == 1.4142135623730951' is not known: 'root' is not a constant"),
    ("Gelu", ROWS, GELU, "root=1.5", "'root == 1.4142135623730951' does not hold"),
    ("BiasGelu", ROWS, "a = Add(x, b) y = Gelu(a)", ">a", "value 'a' inside is used elsewhere"),
    ("LayerNormalization", ROWS, LAYER_NORM, ">d", "value 'd' inside is used elsewhere"),
    ("LayerNormalization", ROWS, LAYER_NORM, "float tiny", "'constant(epsilon)' does not hold"),
    ("SimplifiedLayerNormalization", ROWS, RMS_NORM, ">n", "value 'n' inside is used elsewhere"),
    ("SimplifiedLayerNormalization", ROWS, RMS_NORM, "float tiny", "'constant(epsilon)' does not hold"),
    ("SkipLayerNormalization", BESIDE, "a = Add(x, k) y = LayerNormalization(a, g, b)", ">a", "value 'a' inside"),
    ("SkipLayerNormalization", BESIDE, "a = Add(x, k) y = LayerNormalization(a, g, b)", "float[3, 8] k",
     "'shape(x) == shape(skip)' does not hold"),
    ("SkipLayerNormalization", BESIDE, "a = Add(x, k) y = LayerNormalization(a, g, b)", "float[N, M, 8] k",
     "'shape(x) == shape(skip)' is not known: 2 and N may be equal"),
    ("Gemm", ROWS, "a = MatMul(x, W) y = Add(a, b)", ">a", "value 'a' inside is used elsewhere"),
    ("Gemm", ROWS, "a = MatMul(x, W) y = Add(a, b)", "float[N, 3, 8] x", "N and 0 may be equal"),
    ("Gemm", ROWS, "a = MatMul(x, W) y = Add(a, b)", "float[2, 8, 8] W", "'rank(w) == 2' does not hold"),
    ("Gemm", "float[3, 8] x", "a = MatMul(x, W) y = Add(a, b)", "float b", "'rank(bias) == 1' does not hold"),
    ("FusedMatMul", ROWS, "a = MatMul(x, W) y = Mul(a, factor)", "float factor", "'constant(factor)' does not hold"),
    ("FusedMatMul", ROWS, "a = MatMul(x, W) y = Div(a, factor)", ">a", "value 'a' inside is used elsewhere"),
    ("FusedMatMul", BESIDE, "t = Transpose<perm = [0, 2, 1]>(k) y = MatMul(x, t)", ">t", "value 't' inside"),
    ("FusedConv", IMAGE, "a = Conv(x, K) y = Relu(a)", ">a", "value 'a' inside is used elsewhere"),
    ("FusedConv", IMAGE, "a = Conv(x, K) y = Clip(a, low, high)", "float high", "'constant(high)' does not hold"),
    ("FusedGemm", "float[3, 8] x", "a = Gemm(x, W, b) y = Tanh(a)", ">a", "value 'a' inside is used elsewhere"),
    ("Conv", IMAGE, "a = Conv(x, K) y = BatchNormalization(a, s, s, s, s)", "float[4, 4, 3, 3] K",
     "'constant(w)' does not hold"),
    ("Conv", IMAGE, "a = Conv(x, K) y = Mul(a, m)", "float[4, 1, 1] m", "'constant(channel)' does not hold"),
    ("Conv", IMAGE, "a = Conv(x, K) y = Add(a, m)", ">a", "value 'a' inside is used elsewhere"),
    ("QuickGelu", ROWS, "a = Mul(x, factor) h = Sigmoid(a) y = Mul(x, h)", "float factor", "'constant(factor)'"),
    ("QuickGelu", ROWS, "h = Sigmoid(x) y = Mul(x, h)", ">h", "value 'h' inside is used elsewhere"),
]  # fmt: skip


def model_with(inputs: str, nodes: str, change: str = "") -> onnx.ModelProto:
    """A model of nodes; `>a` is an output more, `a=1` another number, anything else the type of an input."""
    constants, outputs = dict(CONSTANTS), "float y"
    if change.startswith(">"):
        outputs += f", float {change[1:]}"
    elif "=" in change:
        name, _, number = change.partition("=")
        constants[name] = float(number)
    elif change:
        name = change.split()[-1]
        kept = [i for i in inputs.split(", float") if i.split()[-1] != name]
        inputs = ", float".join([*kept, change.removeprefix("float")]).removeprefix(", ")
        inputs = inputs if inputs.startswith("float") else f"float{inputs}"
        constants.pop(name, None)
    text = f'<ir_version: 9, opset_import: ["" : 17]> g ({inputs}) => ({outputs}) {{ {nodes} }}'
    model = onnx.parser.parse_model(text)
    if "Gelu(" in nodes:
        model.opset_import[0].version = 20
    for name in set(constants) & {i for node in model.graph.node for i in node.input}:
        array = np.asarray(constants[name], np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    return model


def asked(model: onnx.ModelProto):
    return osl.inspect(model, optimized=True, opt="extended")


@pytest.mark.parametrize(("operator", "inputs", "nodes", "change", "why"), CASES)
def test_why_nodes_are_not_fused(operator, inputs, nodes, change, why):
    fused = asked(model_with(inputs, nodes))
    kept = asked(model_with(inputs, nodes, change))

    assert not fused.missed
    with osl.optimized(model_with(inputs, nodes), "extended") as made:
        assert operator in {node.op_type for node in made.proto.graph.node}
    missed = next(fusion for fusion in kept.missed if fusion.operator == operator)
    assert why in missed.why
    assert len(missed.nodes) <= len(nodes.split("= ")) - 1


def test_two_things_that_are_in_the_way_are_not_nearly_a_fusion():
    nodes = "a = MatMul(x, W) y = Mul(a, gate)"
    model = model_with("float[2, 3, 8] x, float[2, 3, 8] gate", nodes)

    assert asked(model).missed == []


def test_a_residual_of_a_convolution_is_no_missing_constant():
    model = model_with("float[1, 4, 6, 6] x, float[1, 4, 4, 4] r", "a = Conv(x, K) y = Add(a, r)")

    assert asked(model).missed == []


def test_the_command_shows_what_is_fused_and_what_nearly_is():
    block = FIXTURES / "transformer_block.onnx"

    told = CliRunner().invoke(app, ["inspect", str(block), "--optimized"])
    found = CliRunner().invoke(app, ["inspect", str(block), "--optimized", "--json"])
    refused = CliRunner().invoke(
        app, ["inspect", str(block), "--optimized", "--runtime", "reference"]
    )

    assert told.exit_code == 0
    assert "BiasGelu of @24 @25" in told.output
    assert (
        "no SkipLayerNormalization of @21 @22: value 'residual' inside is used elsewhere"
        in told.output
    )
    data = json.loads(found.stdout)
    assert data["made"][1] == {"operator": "BiasGelu", "nodes": ["@24", "@25"], "why": ""}
    assert [f["operator"] for f in data["missed"]] == ["SkipLayerNormalization"] + ["Gemm"] * 5
    assert refused.exit_code == 2


def test_an_optimizer_that_is_off_is_nothing_that_nearly_matches():
    block = FIXTURES / "transformer_block.onnx"

    found = osl.inspect(block, optimized=True, opt="none")

    assert found.made == []
    assert {fusion.operator for fusion in found.missed} <= {"SkipLayerNormalization", "Gemm"}
