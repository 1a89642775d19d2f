"""Node data for model-explorer: its ids, and what it colors."""

import onnx_ir
import pytest
from conftest import FIXTURES
from onnx import parser
from onnx_ir.passes.common import NameFixPass

from onnxsurgeon_lite import load
from onnxsurgeon_lite.report.node_data import node_ids

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
