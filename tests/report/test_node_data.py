"""Node data for model-explorer: its ids, and what it colors."""

import json

import onnx_ir
import pytest
from onnx import parser
from onnx_ir.passes.common import NameFixPass

import onnxsurgeon_lite as osl
from kit import FIXTURES
from onnxsurgeon_lite import load
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.report.page.node_data import node_ids

UNNAMED = """<ir_version: 10, opset_import: ["" : 21]>
g (float[2] x, bool c) => (float[2] y) {
    [node] a = Neg(x)
    b = Neg(a)
    d = If(c) <then_branch = t () => (float[2] p) { o = Neg(b) p = Neg(o) },
               else_branch = e () => (float[2] q) { [node] q = Abs(b) }>
    [twice] e = Neg(d)
    [twice] f = Neg(e)
    y = Neg(f)
}"""


@pytest.mark.parametrize("source", [UNNAMED, "control_flow.onnx", "transformer_block.onnx"])
def test_nodes_are_called_as_model_explorer_calls_them(source):
    """Its ONNX adapter gives nodes the names that onnx_ir's pass makes unique."""
    proto = parser.parse_model(source) if "\n" in source else load(FIXTURES / source).proto
    model = onnx_ir.from_proto(proto)
    NameFixPass()(model)

    assert node_ids(proto.graph) == [node.name for node in model.graph]


def test_errors_are_written_for_model_explorer(tmp_path):
    place = tmp_path / "errors.json"
    osl.bisect(
        FIXTURES / "faulty_constant.onnx", FIXTURES / "references/whole_model.npz", node_data=place
    )

    found = json.loads(place.read_text())["whole_model"]

    assert found["name"] == "Error along the model (max abs)"
    assert list(found["results"]) == [
        n.name for n in load(FIXTURES / "whole_model.onnx").proto.graph.node
    ]
    colored = {name for name, result in found["results"].items() if "bgColor" in result}
    assert "Conv_4" in colored
    assert not colored & {"Conv_0", "Conv_3", "Conv_5"}


def test_times_and_losses_are_written_for_model_explorer(tmp_path):
    whole = FIXTURES / "whole_model.onnx"
    osl.profile(whole, runs=1, opt="none", node_data=tmp_path / "times.json")
    osl.rank(FIXTURES / "faulty_constant.onnx", against=whole, node_data=tmp_path / "lost.json")

    times, losses = (
        json.loads((tmp_path / name).read_text())["whole_model"]["results"]
        for name in ("times.json", "lost.json")
    )
    assert len(times) == 11
    assert all(result["value"] > 0 for result in times.values())
    assert losses["Conv_4"]["value"] == pytest.approx(40.04, abs=0.01)
    assert "Conv_0" not in losses  # it loses nothing
    with pytest.raises(UsageError, match="numbers of one profile"):
        osl.profile(whole, b="threads=1", node_data=tmp_path / "no.json")
