"""`profile --against trt.json`: what `trtexec` wrote is given back to the nodes of the model."""

import json

import pytest
from onnx import parser
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit import FIXTURES
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.debug.profiling.tensorrt import read_profile
from onnxsurgeon_lite.errors import SurgeonError, UsageError

MODEL = FIXTURES / "whole_model.onnx"
CHAIN = """<ir_version: 9, opset_import: ["" : 17]>
g (float[3] x) => (float[3] y) {
    [abs] a = Abs(x)
    [exp] b = Exp(a)
    c = Neg(b)
    [relu] y = Relu(c)
}"""


def layer(name, milliseconds):
    return {"name": name, "timeMs": 10 * milliseconds, "averageMs": milliseconds, "percentage": 1}


def written(folder, *layers, name="trt.json"):
    path = folder / name
    path.write_text(json.dumps([{"count": 10}, *layers]))
    return path


@pytest.fixture
def chain(model_of):
    return osl.GraphIndex.of(model_of(CHAIN))


@pytest.mark.parametrize(
    ("name", "covers"),
    [
        ("abs + exp", ["@0", "@1"]),
        ("PWN(PWN(abs), relu)", ["@0", "@3"]),
        ("exp || abs", ["@0", "@1"]),
        ("{ForeignNode[abs...relu]}", ["@0", "@3"]),
        ("node_of_c", ["@2"]),
        ("Reformatting CopyNode for Input Tensor 0 to abs + exp", []),
        ("onnx::Mul_7 + (Unnamed Layer* 3) [Shuffle] + exp", ["@1"]),
    ],
)
def test_a_layers_name_says_which_nodes_it_stands_for(tmp_path, chain, name, covers):
    path = written(tmp_path, layer(name, 1.5), layer("relu", 1))

    found = read_profile(path, chain)

    assert found.nodes[0].covers == covers
    assert (found.runs, found.seconds) == (10, pytest.approx(0.0025))


def test_metadata_say_more_than_a_name(tmp_path, chain):
    path = written(tmp_path, layer("__myl_AbsExp_0", 1))
    layers = tmp_path / "layers.json"
    told = "\x1e".join(f"[ONNX Layer: {name}]" for name in ("abs", "exp", "node_of_c"))
    info = {"Name": "__myl_AbsExp_0", "LayerType": "kgen", "Metadata": told}
    layers.write_text(json.dumps({"Layers": [info], "Bindings": ["x"]}))

    found = read_profile(path, chain, layers)

    assert found.nodes[0].covers == ["@0", "@1", "@2"]
    assert found.nodes[0].op_type == "Abs"


def test_a_node_may_have_the_name_of_two(tmp_path, model_of):
    proto = parser.parse_model(CHAIN)
    proto.graph.node[2].name = "abs + exp"

    found = read_profile(
        written(tmp_path, layer("abs + exp", 1)), osl.GraphIndex.of(model_of(proto))
    )

    assert found.nodes[0].covers == ["@2"]


def test_a_name_that_several_nodes_have_stands_for_none(tmp_path, model_of):
    index = osl.GraphIndex.of(model_of(CHAIN.replace("[exp]", "[abs]")))

    found = read_profile(written(tmp_path, layer("abs", 1), layer("relu", 1)), index)

    assert [node.covers for node in found.nodes] == [[], ["@3"]]


def test_both_runtimes_are_side_by_side(tmp_path):
    layers = [layer(f"Conv_{i}", 0.5) for i in range(7)]
    trt = written(tmp_path, *layers, layer("Conv_8 + Conv_9", 0.25), layer("copy", 0.125))

    found = osl.profile(MODEL, against=trt, runs=1)

    assert found.before.provider == "TensorRT"
    conv = next(change for change in found.operators if change.name == "Conv")
    assert conv.before == pytest.approx(0.00375)
    assert conv.after > 0
    assert "2 of 11 nodes are in no layer's name" in found.told
    assert "layers without a node of the model take 0.125 ms" in found.told
    result = CliRunner().invoke(app, ["profile", str(MODEL), "--against", str(trt), "--runs", "1"])
    assert result.exit_code == 0, result.output
    assert "3.88 ms a run before" in result.output


@pytest.mark.parametrize(
    "text",
    ["[", "[1]", '[{"name": "abs"}]', '[{"name": "abs", "averageMs": "x"}]', "[" * 100_000]
    + ['[{"name": "abs", "averageMs": -1}]', '[{"name": "abs", "averageMs": NaN}]', "[]"]
    + ['[{"name": "../../etc/passwd", "averageMs": 1}]', '[{"name": ["abs"], "averageMs": 1}]'],
)
def test_a_damaged_profile_is_one_error(tmp_path, chain, text):
    path = tmp_path / "trt.json"
    path.write_text(text)

    with pytest.raises(UsageError):
        read_profile(path, chain)


def test_a_name_of_brackets_alone_ends(tmp_path, chain):
    path = written(tmp_path, layer("(" * 10**6 + ")" * 10**6 + "x", 1), layer("(abs)", 1))

    assert [node.covers for node in read_profile(path, chain).nodes] == [[], ["@0"]]


@pytest.mark.parametrize("text", ["{}", "[]", '{"Layers": ["abs"]}', '{"Layers": 3}', "{"])
def test_layers_without_details_are_an_error(tmp_path, chain, text):
    layers = tmp_path / "layers.json"
    layers.write_text(text)

    with pytest.raises(UsageError, match="no details of TensorRT's layers"):
        read_profile(written(tmp_path, layer("abs", 1)), chain, layers)


def test_a_model_as_json_is_still_a_model(tmp_path):
    model = tmp_path / "model.json"
    osl.save(osl.load(MODEL), model)

    found = osl.profile(MODEL, against=model, runs=1)

    assert found.before.provider == "CPUExecutionProvider"
    with pytest.raises(SurgeonError, match="layers are those of a profile"):
        osl.profile(MODEL, against=model, layers=model, runs=1)
