"""Where nodes come from: both exporters' traces, weights' names, and selectors for modules, classes and lines."""

import pytest
from onnx import helper

from kit import FIXTURES
from onnxsurgeon_lite import load
from onnxsurgeon_lite.errors import UnknownNameError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.modules import module_tree
from onnxsurgeon_lite.graph.scopes import Provenance, Provenances
from onnxsurgeon_lite.graph.scopes.origin import fits_scope, fits_source, origin_of
from onnxsurgeon_lite.graph.selecting.select import select_nodes, select_values
from onnxsurgeon_lite.graph.summary import summarize_value

CONVS = [f"convs{i}.{j}" for i, many in ((1, 3), (2, 2), (3, 2), (4, 3)) for j in range(many)]


def index_of(name: str) -> GraphIndex:
    return GraphIndex.of(load(FIXTURES / f"{name}.onnx"))


@pytest.mark.parametrize("name", ["whole_model_dynamo", "whole_model_torchscript", "whole_model"])
def test_every_exporter_s_nodes_name_their_module(name):
    index = index_of(name)

    scopes = [
        o.scope for n, o in zip(index.nodes, index.origins, strict=True) if n.op_type == "Conv"
    ]

    assert scopes == CONVS


def test_the_dynamo_exporter_s_nodes_name_class_and_line():
    origin = index_of("whole_model_dynamo").origins[6]

    assert str(origin) == "convs3.1 (Conv2d), make_fixtures.py:100"
    assert [path for path, _ in origin.modules] == ["", "convs3", "convs3.1"]


@pytest.mark.parametrize(
    ("name", "scope"),
    [
        ("/encoder/layer.4/Add", "encoder.layer.4"),
        ("/layer/layer.1/activation/Relu", "layer.1.activation"),
        ("/seq/seq.0/seq.0.0/Gemm", "seq.0.0"),
        ("/embedder/embedder/Conv", "embedder.embedder"),
        ("/Add", ""),
        ("Add_3", ""),
    ],
)
def test_a_torchscript_name_is_a_module_path(name, scope):
    assert origin_of(helper.make_node("Add", ["a", "b"], ["c"], name=name)).scope == scope


def test_a_fused_node_is_placed_by_the_value_it_makes():
    node = helper.make_node("Gelu", ["a"], ["/layer.0/act/Mul_1_output_0"], name="Gelu")

    assert origin_of(node).scope == "layer.0.act"


def test_the_second_call_of_a_module_is_that_module():
    nodes = [
        helper.make_node("Gemm", ["x", "fc.weight"], ["h"], name="/fc_1/Gemm"),
        helper.make_node("Gemm", ["h", "ln_1.weight"], ["y"], name="/ln_1/Gemm"),
    ]

    assert [o.scope for o in Provenances(nodes, {"fc.weight", "ln_1.weight"})] == ["fc", "ln_1"]


def test_a_weight_that_several_nodes_share_places_none_of_them():
    nodes = [helper.make_node("Mul", [x, "a.ln.weight"], [y]) for x, y in ("xh", "hy")]

    assert list(Provenances(nodes, {"a.ln.weight"})) == [Provenance(), Provenance()]


def test_a_node_without_a_trace_lies_in_the_module_around_its_neighbors():
    nodes = [
        helper.make_node("Gemm", ["x", "a.b.c.weight"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "a.b.d.weight"], ["y"]),
        helper.make_node("Relu", ["y"], ["z"]),
    ]

    found = Provenances(nodes, {"a.b.c.weight", "a.b.d.weight"})

    assert [(o.scope, o.known) for o in found] == [
        ("a.b.c", True),
        ("a.b", False),
        ("a.b.d", True),
        ("", False),
    ]


@pytest.mark.parametrize(
    ("pattern", "scope", "fits"),
    [
        ("encoder.layer.4", "encoder.layer.4", True),
        ("encoder.layer.4", "encoder.layer.4.mlp", True),
        ("encoder.layer.4.*", "encoder.layer.4", True),
        ("encoder.layer.4.*", "encoder.layer.4.mlp", True),
        ("encoder.layer.4.*", "encoder.layer.40", False),
        ("encoder.layer.4", "encoder.layer.40", False),
        ("*.mlp", "encoder.layer.4.mlp.fc1", True),
        ("encoder", "", False),
    ],
)
def test_a_scope_pattern_means_all_that_lies_in_a_module(pattern, scope, fits):
    assert fits_scope(pattern, scope) == fits


def test_a_source_line_is_any_call_on_the_way():
    origin = Provenance(frames=(("/home/me/model.py", 4), ("/x/torch/nn/modules/conv.py", 9)))

    def fits(pattern):
        return any(fits_source(pattern, *frame) for frame in origin.frames)

    assert fits("model.py:4")
    assert fits("me/model.py")
    assert not fits("model.py:9")
    assert not fits("del.py:4")
    assert origin.source == "model.py:4"


@pytest.mark.parametrize(
    ("selector", "values"),
    [
        ("scope:convs2", ["conv2d_3", "conv2d_4"]),
        ("scope:convs2.*", ["conv2d_3", "conv2d_4"]),
        ("scope:convs?.2", ["conv2d_2", "conv2d_9"]),
        ("class:Conv2d", [f"conv2d_{i}" if i else "conv2d" for i in range(10)]),
        ("src:make_fixtures.py:99", ["conv2d_3", "conv2d_4"]),
    ],
)
def test_a_place_in_the_program_selects_its_values(selector, values):
    index = index_of("whole_model_dynamo")

    selected = select_values(index, [selector]).names

    assert [name for name in selected if name.startswith("conv2d")] == values[: len(selected)]
    assert len(select_nodes(index, selector)) == len(values)


@pytest.mark.parametrize(
    ("selector", "hint"),
    [
        ("scope:convs22", "closest names: 'convs2'"),
        ("class:Conv2", "closest names: 'Conv2d'"),
        ("class:Conv", "an operator has this name: 'op:Conv'"),
        ("src:make_fixtures.py:90", "closest lines: make_fixtures.py:98, make_fixtures.py:99"),
    ],
)
def test_an_unknown_place_offers_the_closest(selector, hint):
    with pytest.raises(UnknownNameError) as caught:
        select_values(index_of("whole_model_dynamo"), [selector])

    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize("selector", ["class:Conv2d", "src:model.py:42"])
def test_where_the_exporter_wrote_no_such_places_down_that_is_said(selector):
    with pytest.raises(UnknownNameError) as caught:
        select_values(index_of("whole_model_torchscript"), [selector])

    assert "the dynamo exporter classes and lines" in caught.value.hint


def test_a_value_that_is_called_like_a_selector_is_that_value(model_of):
    model = model_of('g (float[1] "scope:a") => (float[1] y) { y = Relu("scope:a") }')

    assert select_values(GraphIndex.of(model), ["scope:a"]).names == ["scope:a"]


def test_the_tree_counts_what_lies_in_each_module():
    modules = {module.path: module for module in module_tree(index_of("whole_model_dynamo"))}

    assert list(modules)[:3] == ["", "convs1", "convs1.0"]
    assert modules[""].ops == {"Conv": 10, "Add": 1}
    assert (modules["convs2"].class_name, modules["convs2"].parameters) == ("Sequential", 168)
    assert modules["convs3"].outputs == {"conv2d_6": "float [1, 3, 20, 20]"}


def test_a_value_says_where_it_comes_from():
    summary = summarize_value(index_of("whole_model_dynamo"), "conv2d_6")

    assert (summary.scope, summary.class_name) == ("convs3.1", "Conv2d")
    assert summary.source == "make_fixtures.py:100"
