"""A body may use a name that an outer value gets later: an edit that brings this one forward keeps them apart."""

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.graphs import FEEDS, SLOW, random_models, run
from onnxsurgeon_lite import Extract, Fix, GraphIndex, Model, Promote, Rewire, Sort, bisect
from onnxsurgeon_lite.errors import CutError
from onnxsurgeon_lite.passes import Expose
from onnxsurgeon_lite.runtime.observe import Observer

LATER = """
    g (float[2] x, bool c) => (float[2] y, float[2] z) {
        h = If(c) <then_branch = yes () => (float[2] r) { t = Add(x, x) r = Neg(t) },
                   else_branch = no () => (float[2] r) { r = Abs(x) }>
        t = Exp(x)
        y = Neg(t)
        z = Add(t, h)
    }
"""
X = {"x": np.array([1, -2], np.float32), "c": np.array(True)}


def test_a_value_that_becomes_an_input_of_the_part_is_apart_from_the_one_in_a_body(
    model_of, runtime
):
    model = model_of(LATER)
    whole = run(runtime, Expose(all_values=True).apply(model).model, X)

    part = Extract(("x", "c", "t"), ("z",)).apply(model).model

    onnx.checker.check_model(part.proto, full_check=True)
    assert np.array_equal(run(runtime, part, {**X, "t": whole["t"]})["z"], whole["z"])


def test_a_kept_value_that_a_search_feeds_is_apart_from_the_one_in_a_body(model_of, runtime):
    observer = Observer(GraphIndex.of(model_of(LATER)), runtime)
    observer.feed(X)
    observer.fetch([], keep=["t"])

    assert np.allclose(observer.fetch(["z"])["z"], np.exp(X["x"]) - 2 * X["x"])


def test_bisect_finds_the_node_behind_such_a_body(model_of, runtime):
    model = model_of(LATER)
    wrong = model.copy()
    wrong.proto.graph.node[3].op_type = "Sub"

    found = bisect(wrong, against=model, feeds=X)

    assert "makes 'z'" in str(found)


def test_a_constant_that_is_promoted_and_nodes_that_move_stay_apart(model_of, runtime):
    model = model_of(LATER.replace("t = Exp(x)", "t = Constant<value = float[2] {3, 4}>()"))

    promoted = Promote(("t",)).apply(model).model
    moved = Rewire("x", "t", to=("op:If",)).apply(model_of(LATER, "other.onnx")).model

    feeds = {**X, "t": np.array([3, 4], np.float32)}
    assert np.array_equal(run(runtime, promoted, feeds)["z"], feeds["t"] - 2 * X["x"])
    assert np.allclose(run(runtime, moved, X)["z"], np.exp(X["x"]) * -1)


BEAM = """
    <ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
    g (int64[1, 4] input_ids) => (int64[1, 4] y) {
        past = Neg(input_ids)
        y = com.microsoft.Search(past) <
            decoder = gpt (int64[1, 4] input_ids, int64[1, 4] past) => (int64[1, 4] logits) {
                y = Add(input_ids, past) logits = Abs(y)
            }
        >
    }
"""


def test_inputs_of_a_body_that_its_operator_finds_by_name_are_not_renamed():
    model = Model(onnx.parser.parse_model(BEAM))

    body = Fix().apply(model).model.proto.graph.node[1].attribute[0].g

    assert [value.name for value in (*body.input, *body.output)] == ["input_ids", "past", "logits"]
    assert body.node[0].output[0] != "y"


@st.composite
def models_with_later_names(draw) -> Model:
    """Random sorted graphs whose branches use the names of values that come later."""
    model = Sort().apply(Model(draw(random_models()))).model
    nodes = model.proto.graph.node
    for place, node in enumerate(nodes):  # runtimes may refuse these names, though they are clear
        later = [n for other in nodes[place:] for n in other.output if n not in node.output]
        for attribute in node.attribute if node.op_type == "If" and later else ():
            name = draw(st.sampled_from(later))
            attribute.g.node[0].output[0] = attribute.g.node[1].input[0] = name
    return model


@settings(SLOW, max_examples=40)
@given(models_with_later_names(), st.data())
def test_a_part_of_a_random_graph_with_later_names_computes_what_it_did(runtime, model, data):
    inner = sorted(GraphIndex.of(model).producer)
    output = data.draw(st.sampled_from(inner))
    inputs = data.draw(st.lists(st.sampled_from(inner), max_size=3, unique=True))
    exposed = Expose(all_values=True).apply(model).model
    whole = run(runtime, Fix().apply(exposed).model, FEEDS)
    names = [f"name:{name}".replace("\\", "\\\\").replace(",", "\\,") for name in (*inputs, output)]

    try:
        part = Extract(tuple(names[:-1]), tuple(names[-1:]), auto_inputs=True).apply(model).model
    except CutError:
        return

    feeds = {value.name: {**FEEDS, **whole}[value.name] for value in part.proto.graph.input}
    assert np.array_equal(run(runtime, part, feeds)[output], whole[output], equal_nan=True)
