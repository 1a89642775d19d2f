"""Regions of a graph replaced by a node or a model, and modules made functions."""

import numpy as np
import pytest

from kit import FIXTURES
from onnxsurgeon_lite import Inline, Model, Outline, Replace, load
from onnxsurgeon_lite.errors import CutError, EditError, UnknownNameError
from onnxsurgeon_lite.graph.check import check
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.runtime.session import RuntimeOptions, run_model

X = np.array([1, -2, 3, 0.5], np.float32)
SWISH = """swish (float[4] x) => (float[4] y) {
    a = Abs(x)
    s = Sigmoid(a)
    m = Mul(a, s)
    y = Neg(m)
}"""
RELU = "relu (float[4] data) => (float[4] a) { s = Neg(data) m = Abs(s) a = Add(m, data) }"


def modules(model: Model, *scopes: str) -> Model:
    """The model with each of its nodes in a module, as TorchScript's exporter names them."""
    for node, scope in zip(model.proto.graph.node, scopes, strict=True):
        node.name = f"/{scope}/{node.op_type}"
    return model


def run(model: Model, feeds) -> dict:
    verdict = check(model, full=True)
    assert verdict.valid, verdict.problem
    return run_model(model, feeds, options=RuntimeOptions(opt="none"))


def test_a_region_becomes_one_node(model_of):
    model = model_of(SWISH)

    result = Replace(("a",), ("m",), "Softplus", node_name="fused").apply(model)

    assert [node.op_type for node in result.model.proto.graph.node] == ["Abs", "Softplus", "Neg"]
    assert np.allclose(run(result.model, {"x": X})["y"], -np.log1p(np.exp(np.abs(X))))


def test_a_region_becomes_a_model_whose_names_are_taken(model_of):
    model, relu = model_of(SWISH), model_of(RELU, "relu.onnx")

    result = Replace(("a",), ("m",), model=relu).apply(model)

    assert np.allclose(run(result.model, {"x": X})["y"], -2 * np.abs(X))


def test_what_reads_the_inside_of_a_region_is_named(model_of):
    model = model_of(SWISH.replace("y = Neg(m)", "y = Add(m, s)"))

    with pytest.raises(EditError, match="value 's' inside the region is read outside by Add @3"):
        Replace(("a",), ("m",), "Softplus").apply(model)


def test_a_constant_inside_a_region_that_others_read_stays(model_of):
    nodes = "c = Constant <value_float = 2.0> () a = Mul(x, c) b = Abs(a) y = Add(b, c)"
    text = f"g (float[4] x) => (float[4] y) {{ {nodes} }}"

    result = Replace(("x",), ("b",), "Neg").apply(model_of(text))

    assert [node.op_type for node in result.model.proto.graph.node] == ["Constant", "Neg", "Add"]
    assert np.allclose(run(result.model, {"x": X})["y"], 2 - X)


def test_nothing_is_replaced_where_a_shared_constant_is_all_there_is(model_of):
    nodes = "c = Constant <value_float = 2.0> () a = Mul(x, c) y = Add(a, c)"
    text = f"g (float[4] x) => (float[4] y) {{ {nodes} }}"

    with pytest.raises(EditError, match="nothing is between the inputs and the outputs"):
        Replace(("x",), ("c",), "Neg").apply(model_of(text))


@pytest.mark.parametrize(
    ("step", "error", "problem"),
    [
        (Replace(("s",), ("m",), "Softplus"), CutError, "do not determine 'm'"),
        (Replace(("a",), ("m",), "Softplu"), UnknownNameError, "no operator 'Softplu'"),
        (Replace(("a",), ("m",), "Add"), EditError, "Add takes 2 inputs"),
        (Outline("nowhere"), UnknownNameError, "no scope 'nowhere'"),
    ],
)
def test_a_replacement_that_does_not_fit_is_refused(model_of, step, error, problem):
    with pytest.raises(error, match=problem):
        step.apply(model_of(SWISH))


def test_a_module_becomes_a_function_and_back(model_of):
    model = modules(model_of(SWISH), "in", "block/one", "block/two", "out")
    expected = run_model(model, {"x": X})["y"]

    outlined = Outline("block").apply(model).model
    back = Inline().apply(outlined).model

    assert [node.op_type for node in outlined.proto.graph.node] == ["Abs", "block", "Neg"]
    assert [value.name for value in outlined.proto.graph.value_info] == ["a", "m"]
    assert run(outlined, {"x": X})["y"].tolist() == expected.tolist()
    assert run(back, {"x": X})["y"].tolist() == expected.tolist()
    assert [n.op_type for n in back.proto.graph.node] == ["Abs", "Sigmoid", "Mul", "Neg"]


def test_a_module_that_a_path_leaves_and_comes_back_to_is_no_function(model_of):
    model = modules(model_of(SWISH), "block", "block", "between", "block")

    with pytest.raises(EditError, match="a path leaves 'block' and enters it again, from Mul"):
        Outline("block").apply(model)


def test_a_module_of_a_real_export_becomes_a_function():
    model = load(FIXTURES / "whole_model_dynamo.onnx")
    image = np.ones((1, 3, 20, 20), np.float32)
    name = next(iter(GraphIndex.of(model).inputs))

    outlined = Outline("convs1").apply(model).model

    assert len(outlined.proto.graph.node) == 9
    expected, actual = run(model, {name: image}), run(outlined, {name: image})
    assert all(np.allclose(actual[output], expected[output]) for output in expected)
