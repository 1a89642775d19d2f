"""What real models do: legal oddities on which the verbs must not trip."""

import numpy as np
import onnx
import pytest
from onnx import parser

import onnxsurgeon_lite as osl
from kit.graphs import run
from onnxsurgeon_lite import Extract, Model
from onnxsurgeon_lite.errors import UnknownNameError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.selecting.browse import Graph

HEADER = '<ir_version: 10, opset_import: ["" : 21]>'
X = {"x": np.array([1, -2], np.float32)}


def parsed(text: str, header: str = HEADER) -> Model:
    return Model(parser.parse_model(header + text))


def test_an_input_that_is_an_output_too_is_extracted_with_the_rest(runtime):
    model = parsed(
        "g (float[2] x, float[2] z) => (float[2] y, float[2] z) { h = Neg(x) y = Add(h, z) }"
    )
    feeds = {**X, "z": X["x"]}

    whole = Extract().apply(model)
    part = Extract(("h", "z"), ("y", "z")).apply(model).model

    assert not whole.changed
    assert run(runtime, part, {"h": -X["x"], "z": X["x"]})["z"].tolist() == [1, -2]
    assert run(runtime, whole.model, feeds)["y"].tolist() == [0, 0]


@pytest.mark.parametrize("declared", ["", "elem_type"])
def test_an_incomplete_declared_type_gives_way_to_inference(declared):
    model = parsed("g (float[2] x) => (float[2] y) { h = Relu(x) k = Abs(h) y = Neg(k) }")
    for name in "hk":
        kind = model.proto.graph.value_info.add(name=name).type.tensor_type
        kind.elem_type = 1 if declared else 0

    part = osl.extract(model, inputs="h", outputs="k").model.proto

    onnx.checker.check_model(part, full_check=True)
    for info in (*part.graph.input, *part.graph.output):
        assert [d.dim_value for d in info.type.tensor_type.shape.dim] == [2]


def test_a_type_that_inference_cannot_complete_keeps_what_it_declares():
    model = parsed("""
        <ir_version: 10, opset_import: ["" : 21, "custom" : 1]>
        g (float[2] x) => (float[2] y) { h = custom.Op(x) y = Neg(h) }
    """, "")  # fmt: skip
    model.proto.graph.value_info.add(name="h").type.tensor_type.elem_type = 1

    assert GraphIndex.of(model).value_info("h").type.tensor_type.elem_type == 1


def test_rebatch_follows_a_constant_of_integers():
    model = parsed(
        "g (float[1,4] x) => (float[1,2,2] y) { s = Constant<value_ints = [1,2,2]>() y = Reshape(x, s) }"
    )

    result = osl.rebatch(model)

    assert result.proof == ("agrees with the original at N = 1; N = 2; N = 3; N = 7",)


def test_a_node_inserted_at_an_output_makes_the_output(runtime):
    model = parsed("g (float[2] x) => (float[2] logits) { h = Relu(x) logits = Abs(h) }")

    result = osl.insert(model, "logits", "Softmax").model

    assert [value.name for value in result.proto.graph.output] == ["logits"]
    assert run(runtime, result, X)["logits"].sum() == pytest.approx(1)


def test_the_inputs_of_parts_keep_the_order_of_the_model():
    model = parsed("""
        g (float[2] a, float[2] b, float[2] c) => (float[2] y) {
            h = Add(c, a) s = Sub(c, b) k = Mul(h, s) y = Neg(k)
        }
    """)

    assert [part.inputs for part in osl.split(model, ["k"]).parts] == [("a", "b", "c"), ("k",)]


def test_the_nodes_around_a_node_are_its_neighbors():
    model = parsed(
        "g (float[2] x) => (float[2] y) { [a] h = Neg(x) [b] k = Abs(h) [c] l = Exp(k) [d] y = Sin(l) }"
    )
    graph = Graph(GraphIndex.of(model))

    assert [node.name for node in graph.around("b", 1)] == ["a", "b", "c"]
    assert [node.name for node in graph.around("b", 2)] == ["a", "b", "c", "d"]
    assert [node.name for node in graph.around("k", 1)] == ["b", "c"]


def test_a_doc_string_that_a_script_sets_survives_and_graphsurgeon_is_silent(capfd):
    model = parsed("g (float[2] x) => (float[2] y) { h = Neg(x) y = Abs(h) }")

    def documented(graph) -> None:
        graph.doc_string = "what it is for"
        graph.nodes[0].outputs[0].name = graph.nodes[1].outputs[0].name = "h"
        graph.nodes[1].outputs[0].name = "y"

    result = osl.script(model, documented).model

    assert result.proto.graph.doc_string == "what it is for"
    assert capfd.readouterr() == ("", "")


def test_an_operator_of_a_later_opset_is_told_with_that_opset():
    model = parsed("g (float[2] x) => (float[2] y) { y = Neg(x) }", HEADER.replace("21", "17"))

    with pytest.raises(UnknownNameError) as caught:
        osl.set_op(model, "op:Neg", "Gelu")

    assert (
        caught.value.hint == "Gelu: opset 20; convert the model first: onnxdbg edit opset MODEL 20"
    )


def test_a_model_with_an_operator_of_a_later_opset_is_told_what_to_import():
    text = "g (float[2] x) => (float[2] y) { h = Neg(x) y = Gelu(h) }"
    model = parsed(text, HEADER.replace("21", "17"))

    problem = osl.check(model).problem

    assert problem == (
        "Gelu @1 is an operator of opset 20; the model imports 17: "
        "onnxdbg edit set MODEL opset_import.ai.onnx=20"
    )
    assert osl.check(osl.set(model, {"opset_import.ai.onnx": "20"}).model).valid


@pytest.mark.parametrize("size", [-1, 7])
def test_bisect_takes_references_that_a_wrong_declaration_of_an_output_contradicts(size, tmp_path):
    model = parsed("g (float[2] x) => (float[2] y) { h = Neg(x) y = Abs(h) }")
    model.proto.graph.output[0].type.tensor_type.shape.dim[0].dim_value = size
    onnx.save(model.proto, tmp_path / "model.onnx")
    osl.record(tmp_path / "model.onnx", tmp_path / "refs", feeds=X)

    assert osl.bisect(tmp_path / "model.onnx", reference=tmp_path / "refs").verdict == "agrees"
