"""Another opset version: what the converter changes, and that the rest is as it was."""

import numpy as np
import pytest

from onnxsurgeon_lite import Opset
from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.runtime.session import run_model

X = np.array([[3, -1, 2]], np.float32)
REDUCING = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[1,3] x, bool c) => (float[1,3] y) {
        [first] a = Add (x, x)
        [reduced] b = ReduceMax <axes = [0]> (a)
        [middle] d = Neg (b)
        e = If (c) <
            then_branch = then () => (float[1,3] t) { [inner] t = ReduceMin <axes = [0]> (d) },
            else_branch = else () => (float[1,3] f) { [other] f = Abs (d) }
        >
        [last] y = Mul (e, x)
    }"""


def test_nodes_that_are_converted_keep_their_names_and_metadata_and_the_others_all(model_of):
    model = model_of(REDUCING)
    for node in model.proto.graph.node:
        node.doc_string = f"about {node.name}"
        node.metadata_props.add(key="scope", value=node.name)
    feeds = {"x": X, "c": np.array(True)}

    result = Opset(18).apply(model)

    assert result.changes == (
        "opset 17 -> 18: 3 nodes changed",
    )  # a Constant, what reads it, the If
    nodes = {node.name: node for node in result.model.proto.graph.node if node.name}
    before = {node.name: node for node in model.proto.graph.node if node.name}
    assert all(nodes[name] == before[name] for name in ("first", "middle", "last"))
    assert nodes["reduced"].doc_string == "about reduced"
    assert nodes["reduced"].metadata_props == before["reduced"].metadata_props
    assert np.array_equal(run_model(result.model, feeds)["y"], run_model(model, feeds)["y"])


def test_where_no_operator_is_defined_anew_the_version_alone_changes(model_of):
    header = '<ir_version: 10, opset_import: ["" : 21, "own" : 1]>'
    model = model_of(f"{header} g (float[2] x) => (float[2] y) {{ h = Relu (x) y = own.f (h) }}")

    result = Opset(22).apply(model)

    expected = model.copy().proto
    expected.opset_import[0].version = 22
    assert result.model.proto == expected
    assert result.changes == ("opset 21 -> 22: 0 nodes changed",)


def test_an_operator_that_is_not_in_the_version_is_refused(model_of):
    model = model_of("g (float[1,4] x) => (float[1,4] y) { y = Gelu (x) }")

    with pytest.raises(EditError, match="cannot convert the graph from opset 21 to 19"):
        Opset(19).apply(model)
