"""`inspect --placement`: which provider runs each node, in which part, and what passes between providers."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit import FIXTURES, ROOT
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.debug.profiling.placement import placement
from onnxsurgeon_lite.errors import UsageError

CPU = "CPUExecutionProvider"
FUSED = """<ir_version: 9, opset_import: ["" : 17, "l" : 1]>
g (float[2,3] x) => (float[2,2] y) <float[3,2] w = {1, 2, 3, 4, 5, 6}, float[2] b = {1, 2}, float[2] c = {1, 2}> {
    p = MatMul(x, w)
    q = Add(p, b)
    n = Neg(c)
    r = Mul(q, n)
    y = l.f(r)
}
<domain: "l", opset_import: ["" : 17]>
f (a) => (s) { t = Relu(a)  s = Sigmoid(t) }"""
BRANCH = """<ir_version: 9, opset_import: ["" : 17]>
g (float[3] x, bool k) => (float[3] y) {
    y = If(k) <then_branch = t () => (float[3] u) { u = Abs(x) }, else_branch = e () => (float[3] v) { v = Exp(x) }>
}"""
CHAIN = """<ir_version: 9, opset_import: ["" : 17]>
g (float[3] x) => (float[3] y) {
    a = Abs(x)
    b = Exp(a)
    c = Neg(b)
    y = Relu(c)
}"""


def providers(found):
    return {node.id: node.provider for node in found.nodes}


def test_fused_nodes_run_where_the_fused_one_does_and_folded_ones_nowhere(model_of):
    found = osl.inspect(model_of(FUSED), placement=True)

    assert providers(found) == {"@0": CPU, "@1": CPU, "@2": "", "@3": CPU, "@4": CPU}
    assert [node.rpartition("/")[2] for node in found.made[CPU]] == ["MatMulAddFusion"]
    assert (found.crossings, found.parts, found.watched) == ([], {}, False)


def test_nodes_in_branches_are_placed_under_their_ids(model_of):
    found = osl.inspect(model_of(BRANCH), placement=True)

    assert providers(found) == {
        "@0": CPU,
        "@0/then_branch/@0": CPU,
        "@0/else_branch/@0": CPU,
    }


def test_a_provider_without_any_of_the_nodes_is_told():
    model = str(FIXTURES / "whole_model.onnx")

    result = CliRunner().invoke(
        app, ["inspect", model, "--placement", "--provider", "AzureExecutionProvider"]
    )

    assert result.exit_code == 0
    assert "not on AzureExecutionProvider" in result.output
    rows = [line.split() for line in result.output.splitlines()]
    assert ["CPUExecutionProvider", "11", "Conv", "10,", "Add", "1"] in [row[:6] for row in rows]


class Told:
    """A runtime that places nodes as it is told."""

    def __init__(self, placed, provider="openvino"):
        self.options, self.placed = osl.RuntimeOptions(opt="none", provider=provider), placed

    def open(self, model):
        self.names = [node.name for node in model.proto.graph.node]


def test_parts_of_a_provider_are_numbered_and_what_passes_between_providers_is_listed(model_of):
    index = osl.GraphIndex.of(model_of(CHAIN))
    openvino = "OpenVINOExecutionProvider"
    parts = [
        (openvino, [("Abs", "@0")]),
        (openvino, [("Neg", "@2"), ("Relu", "@3"), ("Cast", "Added_1")]),
        (CPU, [("Exp", "@1")]),
    ]

    found = placement(index, Told(parts))

    assert [(n.provider, n.part) for n in found.nodes] == [
        (openvino, 0),
        (CPU, None),
        (openvino, 1),
        (openvino, 1),
    ]
    assert found.parts == {openvino: 2}
    assert found.crossings == ["a", "b"]
    assert found.made == {openvino: ["Cast Added_1"]}
    assert [node.id for node in found.fell_back] == ["@1"]
    text = str(found)
    assert "values that pass between providers: 2" in text
    assert "not on OpenVINOExecutionProvider" in text


def test_a_call_whose_functions_nodes_run_on_two_providers_has_both(model_of):
    index = osl.GraphIndex.of(model_of(FUSED))
    names = ["@0", "@1", "@2", "@3", "_inlfunc_f_fn:l::f/@0"]
    parts = [("OpenVINOExecutionProvider", [("X", name) for name in names])]

    found = placement(index, Told([*parts, (CPU, [("Sigmoid", "_inlfunc_f_fn:l::f/@1")])]))

    assert providers(found)["@4"] == f"OpenVINOExecutionProvider, {CPU}"
    assert found.made == {}


def test_a_run_shows_the_placement_where_the_runtime_does_not_say(model_of, monkeypatch):
    opened = osl.Runtime.open

    def silent(self, *given, **more):
        opened(self, *given, **more)
        self.placed = None

    monkeypatch.setattr(osl.Runtime, "open", silent)

    found = osl.inspect(model_of(FUSED), placement=True)

    assert found.watched
    assert providers(found) == {"@0": CPU, "@1": CPU, "@2": "", "@3": CPU, "@4": CPU}


def test_a_page_colors_nodes_by_provider(model_of, tmp_path):
    pytest.importorskip("plotly")
    page = tmp_path / "page.html"

    osl.inspect(model_of(CHAIN), placement=True, html=page, provider="AzureExecutionProvider")

    told = page.read_text().partition('id="data">')[2].partition("</script>")[0]
    data = json.loads(told.replace("<\\/", "</"))
    measure = data["measures"][0]
    assert measure["numbers"] == [1, 1, 1, 1]
    assert measure["unit"] == "0 AzureExecutionProvider, 1 CPUExecutionProvider"
    assert {mark["text"] for mark in data["marks"]} == {"runs on CPUExecutionProvider"}


@pytest.fixture(scope="module")
def with_openvino():
    """Return the Python of an environment with OpenVINO's build of onnxruntime, made once."""
    folder = ROOT / ".venv-versions" / "openvino"
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q"]
        subprocess.run([*pip, "onnxruntime-openvino"], check=True)
    return python


def test_what_openvino_does_not_take_runs_on_the_cpu(with_openvino):
    model = FIXTURES / "low_precision.onnx"

    found = osl.inspect(
        model, placement=True, provider="openvino", runtime=f"ort:python={with_openvino}"
    )

    assert [node.id for node in found.fell_back] == ["@1"]  # of float8
    assert found.parts == {"OpenVINOExecutionProvider": 1}
    assert [node.provider for node in found.nodes][:1] == [""]  # folded


def test_other_runtimes_have_no_providers_to_show(model_of):
    with pytest.raises(UsageError, match="works with onnxruntime alone"):
        osl.inspect(model_of(CHAIN), placement=True, runtime="reference")


def test_a_provider_that_this_onnxruntime_lacks_is_an_error(model_of):
    with pytest.raises(osl.SurgeonError, match="has no 'CUDAExecutionProvider'"):
        osl.inspect(model_of(CHAIN), placement=True, provider="cuda")


def test_another_interpreters_onnxruntime_is_profiled(model_of):
    found = osl.profile(model_of(CHAIN), runs=1, runtime=f"ort:python={sys.executable}")

    assert [covered for node in found.nodes for covered in node.covers] == ["@0", "@1", "@2", "@3"]
