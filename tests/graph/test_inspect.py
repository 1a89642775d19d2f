"""What a model is, and the checker's verdict; no weight is read."""

import json
import os
import shutil

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import onnxsurgeon_lite as osl
from kit import FIXTURES
from onnxsurgeon_lite import load
from onnxsurgeon_lite.errors import RuntimeTimeout, UnknownNameError
from onnxsurgeon_lite.graph.check import check
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.summary import model_text, summarize, summarize_node, summarize_value
from onnxsurgeon_lite.graph.text import attribute_texts, type_text
from onnxsurgeon_lite.limits import limited
from onnxsurgeon_lite.report.results import data as plain

ALL_FIXTURES = sorted(path.name for path in FIXTURES.glob("*.onnx"))


def test_a_summary_says_what_the_tutorials_model_is():
    summary = summarize(load(FIXTURES / "whole_model.onnx"))

    assert [(v.name, v.type) for v in summary.inputs] == [("input.1", "float [1, 3, 20, 20]")]
    assert [v.name for v in summary.outputs] == ["31"]
    assert summary.ops == {"Conv": 10, "Add": 1}
    assert summary.nodes == 11
    assert summary.parameters == sum(
        np.prod(t.dims) for t in onnx.load(FIXTURES / "whole_model.onnx").graph.initializer
    )
    assert summary.parameter_bytes == 4 * summary.parameters


@pytest.mark.parametrize("name", ALL_FIXTURES)
def test_every_fixture_can_be_summarized_as_json_and_text(name):
    model = load(FIXTURES / name)
    index = GraphIndex.of(model)

    summary = json.loads(json.dumps(plain(summarize(model)), allow_nan=False))
    nodes = [summarize_node(index, position) for position in range(len(index.nodes))]
    values = [summarize_value(index, value) for value in index.values()]
    text = model_text(model)

    assert summary["nodes"] == len(nodes)
    assert all(node.id == f"@{i}" for i, node in enumerate(nodes))
    assert json.dumps(plain([nodes, values]), allow_nan=False)
    assert model.proto.graph.name in text


@pytest.mark.parametrize("name", ["linear_func.onnx", "control_flow.onnx"])
def test_the_text_of_a_small_model_is_read_again(name):
    model = load(FIXTURES / name)

    again = parser.parse_model(model_text(model))

    assert [n.op_type for n in again.graph.node] == [n.op_type for n in model.proto.graph.node]


def test_weights_are_elided_from_the_text_and_left_in_the_model(model_of):
    graph = parser.parse_graph("g (float[20] x) => (float[20] y) { y = Add (x, w) }")
    graph.initializer.append(numpy_helper.from_array(np.arange(20, dtype=np.float32), "w"))
    model = model_of(helper.make_model(graph))

    text = model_text(model)

    assert "80 bytes" in text
    assert "19" not in text
    assert model.array(model.proto.graph.initializer[0]).tolist() == list(range(20))


def test_a_summary_reads_no_weight(tmp_path):
    shutil.copy(FIXTURES / "external.onnx", tmp_path)
    data = tmp_path / "external.data"
    with data.open("wb") as file:
        file.truncate((FIXTURES / "external.data").stat().st_size)

    summary = summarize(load(tmp_path / "external.onnx"))

    assert summary.data_files == ["external.data"]
    assert summary.parameter_bytes > 0


def test_a_node_is_shown_with_what_it_reads_makes_and_captures():
    index = GraphIndex.of(load(FIXTURES / "control_flow.onnx"))
    position = next(i for i, node in enumerate(index.nodes) if node.op_type == "If")

    node = summarize_node(index, position)

    assert set(node.bodies) == {"then_branch", "else_branch"}
    assert node.captured
    assert all(name in index for name in node.captured)


def test_a_value_is_shown_with_the_nodes_around_it():
    index = GraphIndex.of(load(FIXTURES / "whole_model.onnx"))

    value = summarize_value(index, "23")

    assert value.kind == "produced"
    assert value.producer == "Conv 'Conv_2' (@2)"
    assert value.consumers == ["Conv 'Conv_3' (@3)", "Conv 'Conv_5' (@5)"]
    assert summarize_value(index, "31").is_output


def test_a_value_inside_bodies_is_shown_as_it_is_named_elsewhere():
    index = GraphIndex.of(load(FIXTURES / "control_flow.onnx"))

    inner = summarize_value(index, "@2/body/@3/else_branch/loop/else/out[1]")
    outer = summarize_value(index, "@2/body/loop/sum")

    assert inner.name == "@2/body/@3/else_branch/loop/else/out"
    assert inner.producer == "Mul 'loop/else/Mul' (@2/body/@3/else_branch/@0)"
    assert inner.type == "float [2, 3]"
    assert outer.producer == "Add 'loop/Add' (@2/body/@1)"
    assert all("(@2/body/@" in user for user in outer.consumers)
    with pytest.raises(UnknownNameError) as caught:
        summarize_value(index, "@2/body/loop/sun")
    assert "'loop/sum'" in caught.value.hint


def test_symbolic_dimensions_are_listed_once(model_of):
    text = "g (float[batch, seq] x, float[batch, 2] z) => (float[batch, seq] y) { y = Relu (x) }"

    assert summarize(model_of(text)).dynamic_dims == ["batch", "seq"]


def test_attributes_of_every_kind_are_text():
    tensor = numpy_helper.from_array(np.arange(100, dtype=np.float32), "big")
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.ones(1, np.float32)), numpy_helper.from_array(np.array([1])), [4]
    )
    graph = parser.parse_graph("b (float[1] x) => (float[1] y) { y = Relu (x) }")
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [1])
    given = {
        "f": float("nan"),
        "i": -3,
        "s": b"\xff\x00bytes",
        "text": "new\nline",
        "floats": [1.0, 2.0],
        "ints": list(range(1000)),
        "strings": ["a", "b"],
        "tensor": tensor,
        "sparse": sparse,
        "graph": graph,
        "type": kind,
        "tensors": [tensor],
        "graphs": [graph],
        "types": [kind],
    }
    node = helper.make_node("Any", [], ["y"], domain="d", **given)
    node.attribute.add(name="ref", ref_attr_name="outer", type=onnx.AttributeProto.INT)

    texts = attribute_texts(node)

    assert set(texts) == {*given, "ref"}
    assert texts["i"] == "-3"
    assert texts["floats"] == "[1, 2]"
    assert max(map(len, texts.values())) < 10_000


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (helper.make_tensor_type_proto(TensorProto.FLOAT, [1, "n", None]), "float [1, n, ?]"),
        (helper.make_tensor_type_proto(TensorProto.BFLOAT16, None), "bfloat16 [...]"),
        (
            helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.STRING, [])),
            "sequence of string []",
        ),
        (
            helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.INT4, [2])),
            "optional int4 [2]",
        ),
        (onnx.TypeProto(), "unknown type"),
    ],
)
def test_a_type_is_text(kind, text):
    assert type_text(kind) == text


@pytest.mark.parametrize("name", [name for name in ALL_FIXTURES if name != "custom_op.onnx"])
def test_the_fixtures_are_valid(name):
    result = check(load(FIXTURES / name))

    assert result.valid, result.problem


def test_an_invalid_model_comes_with_the_checkers_words(model_of):
    graph = parser.parse_graph("g (float[1] x) => (float[1] y) { y = Relu <oops = 3> (x) }")
    opset = [helper.make_opsetid("", 21)]

    result = check(model_of(helper.make_model(graph, opset_imports=opset)))

    assert not result.valid
    assert "oops" in result.problem


def test_a_full_check_infers_types(model_of):
    graph = parser.parse_graph("g (float[2] x) => (float[3] y) { y = Relu (x) }")
    opset = [helper.make_opsetid("", 21)]
    proto = helper.make_model(graph, opset_imports=opset, ir_version=10)
    path = model_of("g (float[2] x) => (float[2] y) { y = Relu (x) }").path
    path.write_bytes(proto.SerializeToString())

    assert check(load(path)).valid
    assert not check(load(path), full=True).valid


@pytest.mark.parametrize("relative", [False, True])
def test_external_data_is_found_from_another_working_directory(relative, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = FIXTURES / "external.onnx"

    result = check(load(os.path.relpath(path) if relative else path), full=True)

    assert result.valid, result.problem


def test_a_broken_graph_is_told_with_its_nodes(model_of):
    proto = onnx.load(model_of("g (float[1] x) => (float[1] y) { h = Relu (x) y = Neg (h) }").path)
    proto.graph.node[0].input[0] = "y"

    found = check(model_of(proto, "broken.onnx"))

    assert not found.valid
    assert "cycle of 2 nodes: Neg @1 -> Relu @0 -> Neg @1" in found.problem


def test_the_checker_is_given_its_time(model_of):
    nodes = " ".join(f"h{i + 1} = Relu (h{i})" for i in range(100_000))
    model = model_of(f"g (float[1] h0) => (float[1] h100000) {{ {nodes} }}")

    with limited(0.001, 0), pytest.raises(RuntimeTimeout, match=r"the checker .* 0.001 seconds"):
        check(model)


def test_a_histogram_counts_what_is_odd_in_a_tensor():
    array = np.zeros((10, 100), np.float32)
    array[0, :5] = [np.nan, np.inf, -np.inf, 50, -1]

    [found] = osl.inspect({"x": array}, histogram=True)

    assert (found.nan, found.inf, found.zeros, found.outliers) == (1, 2, 995, 1)
    assert found.std == pytest.approx(array[np.isfinite(array)].std(), rel=1e-5)
    assert [(e.index, e.value) for e in found.largest][:2] == [((0, 3), 50), ((0, 4), -1)]
    assert (found.quantiles["0.99"], found.counts[0], found.counts[-1]) == (0, 996, 1)
    assert sum(found.counts) == 997


@pytest.mark.parametrize(
    ("array", "counts"),
    [
        (np.array([1e308, -1e308]), [1, 1]),  # their difference is not finite
        (np.array([1, np.nextafter(1, 2)]), [1, 1]),  # no bin fits between
        (np.full(3, 5e-324), [3]),
        (np.array([7, 7], ml_dtypes.int4), [2]),
        (np.array([2, 1], ml_dtypes.bfloat16), [1, 1]),
        (np.array(True), [1]),
        (np.array([np.nan]), []),
        (np.array(["text"]), []),
        (np.zeros((0, 3)), []),
    ],
)
def test_a_histogram_of_every_kind_of_tensor(array, counts):
    found = osl.inspect({"x": array}, histogram=True)

    assert [count for count in found[0].counts if count] == counts
    assert "x" in str(found)


@pytest.mark.parametrize("form", ["refs", "refs.npz", "refs.safetensors"])
def test_histograms_read_tensor_files_of_every_form(tmp_path, form):
    osl.save_tensors(
        tmp_path / form,
        {"a.b": np.arange(4.0), "c": [np.ones(1), np.zeros(2)]}
        if form == "refs"
        else {"a.b": np.arange(4.0)},
    )

    found = osl.inspect(tmp_path / form, histogram=True)

    assert found[0].name == "a.b"
    assert found[0].max == 3
    assert [t.name for t in found[1:]] == (["c[0]", "c[1]"] if form == "refs" else [])


def test_histograms_of_a_models_weights_are_chosen_by_name():
    found = osl.inspect(FIXTURES / "external.onnx", value="*weight", histogram=True)

    assert found
    assert all(t.name.endswith("weight") and sum(t.counts) == np.prod(t.shape) for t in found)
    with pytest.raises(UnknownNameError, match="no tensor 'wieght'"):
        osl.inspect(FIXTURES / "external.onnx", value="wieght", histogram=True)
