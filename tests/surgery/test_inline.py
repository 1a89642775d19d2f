"""Inlining: the nodes of functions where they are called compute what the calls did."""

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from onnx import AttributeProto

import onnxsurgeon_lite as osl
from kit.bodies import X, programs
from kit.graphs import run
from onnxsurgeon_lite import Inline, Model, Rename, load
from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.model import walk

FEED = {"x": X}


def inlined(runtime, model: Model) -> Model:
    """The model without functions; it is valid and computes what it did."""
    expected = run(runtime, model, FEED)
    result = Inline().apply(model).model
    onnx.checker.check_model(result.proto, full_check=True)
    for name, value in run(runtime, result, FEED).items():
        assert np.array_equal(value, expected[name], equal_nan=True), name
    assert not result.proto.functions
    return result


def test_a_call_without_an_attribute_gets_the_functions_default(model_of, runtime):
    model = model_of("""
        <ir_version: 10, opset_import: ["" : 21, "local" : 1]>
        g (float[2] x) => (float[2] y, float[2] z) { y = local.leaky(x) z = local.leaky<slope = 0.25>(x) }
        <domain: "local", opset_import: ["" : 21]>
        leaky <slope: float = 0.545> (a) => (b) { b = LeakyRelu<alpha: float = @slope>(a) }
    """)

    result = inlined(runtime, model)

    assert [node.attribute[0].f for node in result.proto.graph.node] == pytest.approx([0.545, 0.25])


def test_an_attribute_without_a_default_that_the_call_omits_is_the_operators(model_of, runtime):
    model = model_of("""
        <ir_version: 10, opset_import: ["" : 21, "local" : 1]>
        g (float[2] x) => (float[2] y) { y = local.leaky(x) }
        <domain: "local", opset_import: ["" : 21]>
        leaky <slope> (a) => (b) { b = LeakyRelu<alpha: float = @slope>(a) }
    """)

    assert not inlined(runtime, model).proto.graph.node[0].attribute


OTHER_OPSET = """
    <ir_version: 10, opset_import: ["" : 21, "local" : 1]>
    g (float[2] x) => (float y) { y = local.total(x) }
    <domain: "local", opset_import: ["" : 11]>
    total (a) => (b) { c = Mul(a, a) b = ReduceSum<axes = [0], keepdims = 0>(c) }
"""


def test_a_function_of_another_opset_is_converted_to_the_models(model_of, runtime):
    model = Model(onnx.parser.parse_model(OTHER_OPSET))

    result = Inline().apply(model).model

    onnx.checker.check_model(result.proto, full_check=True)
    assert run(runtime, result, FEED)["y"] == 5


def test_a_function_that_cannot_be_converted_is_refused_by_name():
    text = OTHER_OPSET.replace("total (a)", "total (a)").replace("Mul", "other.Square")
    text = text.replace('"local" : 1]', '"local" : 1, "other" : 2]').replace(
        '["" : 11]', '["" : 21, "other" : 1]'
    )

    with pytest.raises(EditError, match="function 'local::total' has version 1 of domain 'other'"):
        Inline().apply(Model(onnx.parser.parse_model(text)))


def test_no_import_of_the_functions_domain_and_no_changed_name_is_left(model_of, runtime):
    model = model_of("""
        <ir_version: 10, opset_import: ["" : 21, "local" : 1]>
        g (float[2] x) => (float[2] y) { y = local.twice(x) }
        <domain: "local", opset_import: ["" : 21]> twice (x) => (y) { sum = Add(x, x) y = Neg(sum) }
    """)

    result = inlined(runtime, model).proto

    assert [opset.domain for opset in result.opset_import] == [""]
    assert [list(node.output) for node in result.graph.node] == [["sum"], ["y"]]


def test_an_output_that_is_an_input_or_omitted_stays_so(model_of, runtime):
    model = model_of("""
        <ir_version: 10, opset_import: ["" : 21, "local" : 1]>
        g (float[2] x) => (float[2] y, float[2] z, float[2] w) { y, unused, z, w = local.four(x) }
        <domain: "local", opset_import: ["" : 21]>
        four (a, low, high) => (a, b, c, c) { b = Abs(a) c = Clip(a, low, high) }
    """)

    model.proto.graph.node[0].output[1] = ""

    result = Inline().apply(model).model

    onnx.checker.check_model(result.proto, full_check=True)
    assert [value.tolist() for value in run(runtime, result, FEED).values()] == [X.tolist()] * 3


def collide(function: onnx.FunctionProto) -> None:
    """Give a function's values names that other scopes have too."""
    names: dict[str, str] = {"": ""}

    def rename(slots) -> None:
        slots[:] = [names.setdefault(name, f"v{len(names)}") for name in slots]

    rename(function.input)
    for node in function.node:
        rename_node(node, rename)
    rename(function.output)


def rename_node(node: onnx.NodeProto, rename) -> None:
    rename(node.input)
    rename(node.output)
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            for inner in attribute.g.node:
                rename_node(inner, rename)
            for value in (*attribute.g.input, *attribute.g.output):
                slots = [value.name]
                rename(slots)
                value.name = slots[0]


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_random_functions_in_each_other_and_in_bodies_compute_what_they_did(
    tmp_path, runtime, program
):
    proto, block = program
    for function in proto.functions:
        collide(function)
    onnx.save(proto, tmp_path / "model.onnx")
    values, trace = {"x": X, "w": np.float32([0.5, -1.0])}, {}
    block.evaluate(values, trace, "", ())

    result = Inline().apply(load(tmp_path / "model.onnx")).model

    (name,) = (value.name for value in result.proto.graph.output)
    assert np.array_equal(run(runtime, result, FEED)[name], values[name], equal_nan=True)
    assert not result.proto.functions
    for graph in walk.graphs(result.proto):
        for node in graph.node:
            assert node.domain == ""


def test_names_in_bodies_avoid_all_names_of_the_caller(model_of, runtime):
    model = model_of("""
        <ir_version: 10, opset_import: ["" : 21, "local" : 1]>
        g (float[2] x) => (float[2] y) { h = Abs(x) h_1 = Neg(h) k = local.f(h_1) y = Add(k, h) }
        <domain: "local", opset_import: ["" : 21]>
        f (a) => (b) {
            c = Constant <value = bool {1}> ()
            b = If (c) <
                then_branch = t () => (float[2] u) { h = Neg(a) u = Abs(h) },
                else_branch = e () => (float[2] v) { v = Neg(a) }
            >
        }
    """)

    result = Inline().apply(model).model

    onnx.checker.check_model(result.proto, full_check=True)
    assert run(runtime, result, FEED)["y"].tolist() == run(runtime, model, FEED)["y"].tolist()


def test_a_body_whose_name_a_renamed_value_takes_avoids_all_names_outside(model_of):
    model = model_of("""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[2] x, bool c, float[2] bar_1) => (float[2] y) {
            foo = Abs(x)
            y = If (c) <
                then_branch = t () => (float[2] u) { bar = Neg(foo) u = Abs(bar) },
                else_branch = e () => (float[2] v) { v = Neg(foo) }
            >
        }
    """)

    result = Rename((("foo", "bar"),)).apply(model).model

    onnx.checker.check_model(result.proto, full_check=True)
    then = result.proto.graph.node[1].attribute[0].g
    assert then.node[0].input[0] == "bar"
    assert then.node[0].output[0] not in ("bar", "bar_1")


@pytest.mark.parametrize(("axis", "holds"), [(-1, True), (1, False)])
def test_a_function_of_another_opset_is_inlined_as_the_runtime_takes_it_or_refused(
    axis, holds, model_of
):
    """onnxruntime gives a function the model's opset, whatever it imports; the nodes are converted as ONNX says."""
    model = model_of(f"""<ir_version: 8, opset_import: ["" : 17, "l" : 1]>
        g (float[2,3,4] x) => (float[2,3,4] y) {{ y = l.f(x) }}
        <domain: "l", opset_import: ["" : 11]> f (a) => (b) {{ b = Softmax<axis = {axis}>(a) }}""")

    result = osl.inline(model)

    assert result.match == holds
    assert result.verified
    assert osl.inline(model, unproved=True).ran == ("this was not proved: neither model was run",)
