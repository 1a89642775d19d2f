"""Runs and recordings: what comes out, and that a recording is what a run with everything exposed gives."""

import tracemalloc

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxsurgeon_lite as osl
from kit import FIXTURES
from kit.bisecting import parsed, random
from onnxsurgeon_lite import (
    Expose,
    Recipe,
    Runtime,
    RuntimeOptions,
    load,
    make_feeds,
    open_references,
)
from onnxsurgeon_lite.errors import GraphError, RuntimeFailure, UnknownNameError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.recording.from_model import record
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.runtime.run import run
from onnxsurgeon_lite.tensors.statistics import Statistics, statistics

INSIDE = {
    "f16": (TensorProto.FLOAT16, np.float16),
    "bf16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
    "e4m3": (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn),
    "e5m2": (TensorProto.FLOAT8E5M2, ml_dtypes.float8_e5m2),
    "e4m3z": (TensorProto.FLOAT8E4M3FNUZ, ml_dtypes.float8_e4m3fnuz),
    "e5m2z": (TensorProto.FLOAT8E5M2FNUZ, ml_dtypes.float8_e5m2fnuz),
    "int4": (TensorProto.INT4, ml_dtypes.int4),
    "uint4": (TensorProto.UINT4, ml_dtypes.uint4),
    "bool": (TensorProto.BOOL, np.bool_),
}


def casts() -> onnx.ModelProto:
    """x, an odd number of elements, cast to each dtype and back; a string and a sequence of it."""
    nodes = []
    for name, (data_type, _) in INSIDE.items():
        nodes.append(helper.make_node("Cast", ["x"], [name], to=data_type))
        nodes.append(helper.make_node("Cast", [name], [f"{name}_back"], to=TensorProto.FLOAT))
    nodes += [
        helper.make_node("Cast", ["x"], ["text"], to=TensorProto.STRING),
        helper.make_node("Cast", ["text"], ["text_back"], to=TensorProto.FLOAT),
        helper.make_node("SequenceConstruct", ["x", "text_back", "x"], ["seq"]),
        helper.make_node("SequenceConstruct", ["text", "text"], ["texts"]),
        helper.make_node("SequenceLength", ["texts"], ["two"]),
        helper.make_node("SequenceAt", ["seq", "two"], ["seq_back"]),
    ]
    ends = [*(f"{name}_back" for name in INSIDE), "text_back", "seq_back"]
    vector = helper.make_tensor_type_proto(TensorProto.FLOAT, [5])
    graph = helper.make_graph(
        nodes,
        "casts",
        [helper.make_value_info("x", vector)],
        [helper.make_value_info(name, vector) for name in ends],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def one_input(model_of, proto) -> tuple[GraphIndex, dict]:
    return GraphIndex.of(model_of(proto)), {"x": np.array([-1, 0, 0.3, 2, 7], np.float32)}


@pytest.mark.parametrize("name", INSIDE)
def test_an_inner_value_of_any_dtype_can_be_fetched(name, model_of, runtime):
    index, feeds = one_input(model_of, casts())
    dtype = np.dtype(INSIDE[name][1])

    fetched = run(index, feeds, runtime, [name, f"{name}_back"])

    assert fetched[name].dtype == dtype
    assert fetched[name].shape == (5,)
    assert fetched[name].astype(np.float32).tolist() == fetched[f"{name}_back"].tolist()


def test_inner_strings_and_sequences_can_be_fetched(model_of, runtime):
    index, feeds = one_input(model_of, casts())

    fetched = run(index, feeds, runtime, ["text", "seq", "texts"])

    assert [float(text) for text in fetched["text"]] == pytest.approx(feeds["x"].tolist())
    assert [element.tolist() for element in fetched["seq"]] == [feeds["x"].tolist()] * 3
    assert [element.tolist() for element in fetched["texts"]] == [fetched["text"].tolist()] * 2


def test_weights_of_low_precision_can_be_fetched(runtime):
    index = GraphIndex.of(load(FIXTURES / "low_precision.onnx"))
    feeds, _ = make_feeds(index, Recipe())
    initializers = [n for n in index.initializers if n in index.consumers]

    fetched = run(index, feeds, runtime, initializers)

    assert initializers
    for name in initializers:
        assert fetched[name].tobytes() == index.model.array(index.initializers[name]).tobytes()


def test_inputs_can_be_fetched(model_of, runtime):
    index, feeds = one_input(model_of, casts())

    assert run(index, feeds, runtime, ["x"])["x"].tolist() == feeds["x"].tolist()


def test_an_unknown_value_is_not_fetched(model_of, runtime):
    index, feeds = one_input(model_of, casts())

    with pytest.raises(UnknownNameError):
        run(index, feeds, runtime, ["nothing"])


@pytest.mark.parametrize("opt", ["none", "basic", "extended", "all"])
def test_every_level_of_optimization_gives_the_outputs(opt):
    index = GraphIndex.of(load(FIXTURES / "whole_model.onnx"))
    feeds, _ = make_feeds(index, Recipe())
    expected = open_references(FIXTURES / "references" / "whole_model.npz")
    feeds["input.1"] = expected.read("input.1")

    with Runtime(RuntimeOptions(opt=opt)) as runtime:
        outputs = run(index, feeds, runtime)

    np.testing.assert_allclose(outputs["31"], expected.read("31"), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "fixture",
    ["whole_model", "transformer_block", "control_flow", "external", "low_precision", "casts"],
)
def test_a_recording_is_a_run_with_everything_exposed(fixture, model_of, runtime, tmp_path):
    model = model_of(casts()) if fixture == "casts" else load(FIXTURES / f"{fixture}.onnx")
    index = GraphIndex.of(model)
    feeds, _ = make_feeds(index, Recipe())

    count = record(index, feeds, runtime, tmp_path / "refs")
    recorded = open_references(tmp_path / "refs")
    exposed = GraphIndex.of(Expose(all_values=True).apply(model).model)
    expected = run(exposed, feeds, runtime)

    assert set(recorded) == {*feeds, *index.producer}
    assert count == len(recorded)
    for name, value in expected.items():
        stored = recorded.read(name)
        pairs = zip(stored, value, strict=True) if isinstance(value, list) else [(stored, value)]
        for one, other in pairs:
            assert (one.dtype, one.shape) == (other.dtype, other.shape), name
            assert one.tolist() == other.tolist() or one.tobytes() == other.tobytes(), name


def test_named_values_alone_are_recorded_with_the_feeds(runtime, tmp_path):
    index = GraphIndex.of(load(FIXTURES / "whole_model.onnx"))
    feeds, _ = make_feeds(index, Recipe())
    weight = next(iter(index.initializers))

    record(index, feeds, runtime, tmp_path / "refs.npz", ["28", "22", weight])
    recorded = open_references(tmp_path / "refs.npz")

    assert set(recorded) == {"input.1", "22", "28", weight}
    expected = index.model.array(index.initializers[weight])
    assert recorded.read(weight).tobytes() == expected.tobytes()


def test_an_unknown_value_is_told_before_anything_runs(runtime, tmp_path):
    index = GraphIndex.of(load(FIXTURES / "whole_model.onnx"))

    with pytest.raises(UnknownNameError):
        record(index, {}, runtime, tmp_path / "refs", ["29x"])
    assert list(tmp_path.iterdir()) == []


def test_a_broken_graph_is_told_before_anything_runs(model_of, runtime, tmp_path):
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, [1])],
    )
    index = GraphIndex.of(model_of(helper.make_model(graph)))
    feeds = {"x": np.zeros(1, np.float32)}

    with pytest.raises(GraphError, match="cycle of 2 nodes"):
        record(index, feeds, runtime, tmp_path / "refs")
    with pytest.raises(GraphError, match="cycle of 2 nodes"):
        run(index, feeds, runtime)
    assert not (tmp_path / "refs").exists()


def test_an_unknown_provider_is_not_passed_over():
    index = GraphIndex.of(load(FIXTURES / "whole_model.onnx"))
    feeds, _ = make_feeds(index, Recipe())

    with (
        Runtime(RuntimeOptions(provider="abacus")) as runtime,
        pytest.raises(RuntimeFailure, match="'abacus'") as caught,
    ):
        run(index, feeds, runtime)

    assert "CPUExecutionProvider" in caught.value.hint


def test_statistics_leave_out_what_is_not_finite():
    array = np.array([[1, np.nan, 3], [np.inf, -np.inf, np.nan]], np.float32)

    assert statistics("x", array) == [Statistics("x", "float", (2, 3), 1, 3, 2, nan=2, inf=2)]


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.full(2, np.nan), Statistics("x", "double", (2,), nan=2)),
        (np.zeros((0, 3), np.int64), Statistics("x", "int64", (0, 3))),
        (np.array(["a"], object), Statistics("x", "string", (1,))),
        (np.array([True, False]), Statistics("x", "bool", (2,), 0, 1, 0.5)),
        (np.array([-8, 7], ml_dtypes.int4), Statistics("x", "int4", (2,), -8, 7, -0.5)),
        (np.array(2, ml_dtypes.bfloat16), Statistics("x", "bfloat16", (), 2, 2, 2)),
        (np.array([1 + 1j], np.complex64), Statistics("x", "complex64", (1,))),
        (None, Statistics("x", "none", ())),
    ],
)
def test_statistics_of_every_kind_of_value(array, expected):
    assert statistics("x", array) == [expected]


def test_a_sequence_has_a_line_for_each_tensor():
    lines = statistics("s", [np.zeros(1), np.ones(2)])

    assert [(line.name, line.max) for line in lines] == [("s[0]", 0), ("s[1]", 1)]


def test_only_what_fetched_values_need_is_computed(model_of):
    model = model_of(
        """two (float[n,4] x) => (float[7,7] y) {
            a = Relu (x)
            seven = Constant <value_ints = [7, 7]> ()
            b = Reshape (a, seven)
            y = Neg (b)
        }"""
    )

    found = osl.run(model, fetch="a")

    assert [*found] == ["a"]
    with pytest.raises(RuntimeFailure, match="cannot be reshaped"):
        osl.run(model)


def test_a_value_that_the_optimizer_fuses_is_fetched_with_a_note():
    model = parsed(
        "net (float[1,4,6,6] x) => (float[1,4,4,4] y) { c = Conv (x, w) y = Relu (c) }",
        w=random(4, 4, 3, 3),
    )

    fused, plain, output = (
        osl.run(model, fetch=name, opt=opt)
        for name, opt in (("c", "all"), ("c", "none"), ("y", "all"))
    )

    assert any("'c' unless fetched" in note for note in fused.told)
    assert not any("unless fetched" in note for note in (*plain.told, *output.told))


def test_a_sweep_keeps_to_its_budget_of_bytes(model_of, runtime):
    steps = "\n".join(f"h{i + 1} = Neg (h{i})" for i in range(60))
    model = model_of(f"chain (float[16] h0) => (float[16] h60) {{ {steps} }}")
    sizes = dict.fromkeys([None, 1 << 20, 4 * 64], 0)
    for budget in sizes:
        observer = Observer(GraphIndex.of(model), runtime, budget=budget)
        observer.feed({"h0": np.ones(16, np.float32)})
        assert len(list(observer.sweep(observer.index.producer))) == 60
        sizes[budget] = observer.sessions

    assert sizes == {None: 1, 1 << 20: 2, 4 * 64: 1 + 44 // 4}


def test_record_takes_a_budget(tmp_path):
    fixture = FIXTURES / "whole_model.onnx"
    first, second = tmp_path / "first", tmp_path / "second"

    osl.record(fixture, first, seed=1)
    osl.record(fixture, second, seed=1, memory="5KB")

    assert osl.compare_sets(first, second, rtol=0, atol=0).match


@pytest.mark.parametrize("name", ["refs", "refs.npz"])
def test_record_holds_what_its_budget_allows(name, tmp_path, model_of):
    steps = "\n".join(f"h{i + 1} = Neg (h{i})" for i in range(60))
    model = model_of(f"chain (float[65536] h0) => (float[65536] h60) {{ {steps} }}")
    tracemalloc.start()

    osl.record(model, tmp_path / name, seed=1, memory="1MB")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert most < 8 << 20  # all values are 15 MB
    assert len(osl.open_references(tmp_path / name)) == 61


def test_a_node_that_reads_nothing_but_a_sparse_constant_is_recorded_in_float64(tmp_path):
    model = parsed("g (float[4] x) => (float[4] y) { t = Neg(s)  y = Add(x, t) }")
    values = helper.make_tensor("s", TensorProto.FLOAT, [1], [5.0])
    at = helper.make_tensor("at", TensorProto.INT64, [1], [2])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, at, [4]))

    osl.record(model, tmp_path / "refs", float64=True)

    assert list(open_references(tmp_path / "refs").read("t")) == [0, 0, -5, 0]
