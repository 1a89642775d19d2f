"""`profile`: kernels are given back to the nodes that they stand for; arithmetic, memory and time are theirs."""

import json
import warnings

import numpy as np
import onnx
import pytest
import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit import FIXTURES
from kit.faults import Output
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.debug.profiling.macs import macs
from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.report.results import show
from onnxsurgeon_lite.runtime.protocol import Abilities

MODEL = FIXTURES / "whole_model.onnx"


@pytest.fixture(scope="module")
def whole():
    return osl.profile(MODEL, runs=2)


def test_every_node_is_covered_once_by_the_kernel_that_computes_it(whole):
    covered = [each for node in whole.nodes for each in node.covers]

    assert sorted(covered) == sorted(f"@{i}" for i in range(len(osl.load(MODEL).proto.graph.node)))
    fused = [node for node in whole.nodes if len(node.covers) > 1]
    assert all(node.op_type == "Conv" for node in fused)
    assert [n.covers for n in whole.nodes if n.op_type == "ReorderOutput"].count([]) > 0


def test_the_times_of_nodes_are_parts_of_a_run(whole):
    assert 0 < whole.total.seconds < 2 * whole.seconds
    assert all(node.cost.seconds > 0 for node in whole.nodes)
    parts = [cost.seconds for cost in whole.by_operator().values()]
    assert sum(parts) == pytest.approx(whole.total.seconds)
    assert whole.by_module()[""].seconds == pytest.approx(whole.total.seconds)


def test_a_module_holds_what_is_inside_it(whole):
    modules = whole.by_module()

    inside = [cost.macs for path, cost in modules.items() if path.startswith("convs1.")]
    assert len(inside) == 3
    assert modules["convs1"].macs == sum(inside) > 0


def test_weights_and_arithmetic_are_those_of_the_model(whole):
    proto = osl.load(MODEL).proto
    weights = sum(4 * int(np.prod(tensor.dims)) for tensor in proto.graph.initializer)

    assert whole.total.parameter_bytes == weights
    assert whole.total.macs == 10 * 3 * 400 * 27
    assert whole.total.unknown == 0


def of_bert():
    config = transformers.BertConfig(
        num_hidden_layers=1,
        hidden_size=32,
        num_attention_heads=2,
        intermediate_size=64,
        vocab_size=50,
        attn_implementation="eager",
    )
    return transformers.BertModel(config, add_pooling_layer=False), torch.ones(
        2, 8, dtype=torch.int64
    )


def of_vit():
    config = transformers.ViTConfig(
        num_hidden_layers=1,
        hidden_size=32,
        num_attention_heads=2,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
        attn_implementation="eager",
    )
    return transformers.ViTModel(config, add_pooling_layer=False), torch.randn(2, 3, 32, 32)


def of_resnet():
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"
    )
    return transformers.ResNetModel(config), torch.randn(1, 3, 32, 32)


@pytest.mark.parametrize("make", [of_bert, of_vit, of_resnet])
def test_arithmetic_is_what_torch_counts(make, tmp_path):
    module, given = make()
    module = module.eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = (given,)
        module = Output(module, "last_hidden_state")
        torch.onnx.export(module, given, tmp_path / "m.onnx", dynamo=False, opset_version=17)

    profile = osl.profile(tmp_path / "m.onnx", runs=1)

    assert 2 * profile.total.macs == pytest.approx(counter.get_total_flops(), rel=0.01)


@pytest.mark.parametrize(
    ("op_type", "inputs", "outputs", "count"),
    [
        ("Conv", [(2, 6, 9, 9), (4, 3, 3, 3)], [(2, 4, 7, 7)], 2 * 4 * 49 * 27),
        ("ConvTranspose", [(1, 4, 5, 5), (4, 2, 3, 3)], [(1, 2, 7, 7)], 4 * 25 * 18),
        ("MatMul", [(2, 3, 4), (4, 5)], [(2, 3, 5)], 2 * 3 * 5 * 4),
        ("Gemm", [(4, 3), (4, 5)], [(3, 5)], 3 * 4 * 5),
        ("QLinearConv", [(1, 3, 4, 4), (), (), (8, 3, 1, 1)], [(1, 8, 4, 4)], 8 * 16 * 3),
        ("LSTM", [(7, 2, 3), (1, 16, 3), (1, 16, 4)], [(7, 1, 2, 4)], 7 * 2 * 16 * 7),
        ("Attention", [(1, 2, 5, 4)] * 3, [(1, 2, 5, 4)], 2 * 2 * 5 * 5 * 4),
        ("Relu", [(9,)], [(9,)], 0),
        ("MatMul", [None, (4, 5)], [(2, 3, 5)], None),
        ("Conv", [(2, 6, 9, 9), None], [(2, 4, 7, 7)], None),
    ],
)
def test_macs_follow_from_shapes(op_type, inputs, outputs, count):
    assert macs(op_type, inputs, outputs) == count


@pytest.mark.parametrize(
    ("equation", "count"), [("bij,bjk->bik", 2 * 3 * 4 * 5), ("b...j,bjk", None)]
)
def test_macs_of_einsum_follow_from_its_equation(equation, count):
    assert macs("Einsum", [(2, 3, 4), (2, 4, 5)], [], equation) == count


def test_the_peak_is_where_the_most_bytes_are_live():
    big, small = 4 * 1000, 4 * 10
    text = """g (float[10] x, int64[1] size) => (float[10] y) {
        ten = Constant<value_ints: ints = [10]>() zero = Constant<value_ints: ints = [0]>()
        shape = Concat<axis = 0>(size, ten) wide = Expand(x, shape) twice = Sin(wide)
        sum = ReduceSum<keepdims = 0>(twice, zero) y = Cos(sum) }"""

    profile = osl.profile(
        osl.build(text), {"x": np.ones(10, np.float32), "size": np.int64([100])}, runs=1
    )

    peak = profile.nodes[profile.peak]
    assert peak.op_type == "Sin"
    assert {held.value: held.bytes for held in profile.held} == {"wide": big, "twice": big}
    assert profile.nodes[-1].live_bytes == 2 * small


def test_what_a_body_captures_is_live_until_the_node_has_run():
    text = """g (float[10] x, bool c) => (float[10] y) {
        early = Sin(x) late = Cos(x) d = If(c) <then_branch = a () => (float[10] p) { p = Sinh(early) },
        else_branch = b () => (float[10] p) { p = Cosh(late) }> y = Tan(d) }"""

    profile = osl.profile(
        osl.build(text), {"x": np.ones(10, np.float32), "c": np.array(True)}, runs=1
    )

    assert profile.nodes[profile.peak].op_type == "If"
    assert {held.value: held.bytes for held in profile.held} == dict.fromkeys(
        ["early", "late", "d"], 40
    )


def test_the_nodes_of_a_function_stand_for_its_call():
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["": 18, "local": 1]>
        g (float[10] x) => (float[10] y) { a = Sin(x) b = local.f(a) y = Cos(b) }
        <domain: "local", opset_import: ["": 18]> f (a) => (b) { h = Tan(a) b = Sinh(h) }""")

    profile = osl.profile(model, {"x": np.ones(10, np.float32)}, runs=1)

    covers = {node.op_type: node.covers for node in profile.nodes}
    assert covers == {"Sin": ["@0"], "Tan": ["@1"], "Sinh": ["@1"], "Cos": ["@2"]}


def test_the_weights_of_a_sparse_initializer_are_those_that_the_runtime_holds():
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[4] x) => (float[4] y) { y = Add(x, s) }""")
    values = onnx.numpy_helper.from_array(np.ones(2, np.float32), "s")
    places = onnx.numpy_helper.from_array(np.array([1, 3]), "")
    proto.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, places, [4]))

    assert osl.profile(proto, runs=1).total.parameter_bytes == 4 * 4


def test_a_loop_has_the_arithmetic_of_all_its_iterations():
    text = """g (float[4, 4] x, int64 n) => (float[4, 4] y) {
        yes = Constant<value = bool {1}>()
        y = Loop(n, yes, x) <body = b (int64 i, bool c, float[4, 4] s) => (bool k, float[4, 4] t) {
            k = Identity(c) t = MatMul(s, x) }> }"""

    profile = osl.profile(
        osl.build(text), {"x": np.ones((4, 4), np.float32), "n": np.int64(3)}, runs=1
    )

    assert [n.cost.macs for n in profile.nodes if n.op_type == "Loop"] == [3 * 4**3]


def test_two_models_stand_side_by_side():
    found = osl.profile(FIXTURES / "faulty_attribute.onnx", against=MODEL, runs=1)

    assert {change.name for change in found.operators} == {"Conv", "ReorderOutput"}
    by_size = [abs(change.difference) for change in found.modules]
    assert by_size == sorted(by_size, reverse=True)


def test_the_command_shows_tables_and_writes_the_trace(tmp_path):
    for by in ("node", "operator", "module"):
        done = CliRunner().invoke(app, ["profile", str(MODEL), "--by", by, "--runs", "1"])
        assert done.exit_code == 0, done.output
        assert "324k MACs" in done.output
    trace = tmp_path / "trace.json"
    done = CliRunner().invoke(app, ["profile", str(MODEL), "--trace", str(trace)])
    assert {event["ph"] for event in json.loads(trace.read_text())} >= {"X"}
    again = CliRunner().invoke(app, ["profile", str(MODEL), "--trace", str(trace)])
    assert again.exit_code == 2
    assert "--force" in again.output


def test_two_settings_of_a_model_are_put_side_by_side():
    found = osl.profile(MODEL, a="opt=none", b={"threads": 1}, runs=1)

    assert "Add" in found.before.by_operator()
    assert [change.after for change in found.operators if change.name == "Add"] == [None]
    assert len(found.told) == len(osl.profile(MODEL, runs=1).told)  # feeds are made once
    with pytest.raises(SurgeonError, match="disabled=Nothing"):
        osl.profile(MODEL, b="disabled=Nothing", runs=1)


def test_a_provider_that_compiles_parts_is_profiled_without_its_graph(monkeypatch):
    monkeypatch.setattr(osl.Runtime, "abilities", Abilities(float64=True, optimized_graph=False))

    profile = osl.profile(MODEL, opt="none", runs=1)

    assert len(profile.nodes) == 11
    assert all(node.covers for node in profile.nodes)


def test_nodes_that_fell_back_are_named(capsys):
    profile = osl.profile(MODEL, provider="AzureExecutionProvider", runs=1)

    assert profile.fell_back == profile.nodes
    assert {node.provider for node in profile.nodes} == {"CPUExecutionProvider"}
    show(profile)
    assert "nodes did not run on AzureExecutionProvider" in capsys.readouterr().err
