"""Bisection with planted culprits: the fault is made here, and known to nothing but the test."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper, numpy_helper, parser

from kit import FIXTURES
from onnxsurgeon_lite import load, open_references, save_tensors
from onnxsurgeon_lite.debug.bisection.bisect import Search, bisect
from onnxsurgeon_lite.debug.bisection.reproducer import finished, reproducing
from onnxsurgeon_lite.errors import FeedsError, OutputExistsError, ReferenceSetError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.runtime.feeds import Recipe, feeds_from, make_feeds
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.runtime.session import Runtime, run_model

REFERENCES = FIXTURES / "references" / "whole_model.npz"


def chain(length: int) -> ModelProto:
    """h0 = x * w0, h1 = h0 * w1, ..."""
    nodes = [
        helper.make_node("Mul", [f"h{i - 1}" if i else "x", f"w{i}"], [f"h{i}"])
        for i in range(length)
    ]
    return _model(nodes, [f"h{length - 1}"], length)


def diamond(length: int) -> ModelProto:
    """Two chains from x, joined at the end."""
    nodes = []
    for side in "ab":
        for i in range(length):
            before = f"{side}{i - 1}" if i else "x"
            nodes.append(helper.make_node("Mul", [before, f"w{i}"], [f"{side}{i}"]))
    nodes.append(helper.make_node("Add", [f"a{length - 1}", f"b{length - 1}"], ["y"]))
    return _model(nodes, ["y"], length)


def residual(length: int) -> ModelProto:
    """s0 = x + f0(x), s1 = s0 + f1(s0), ...: the stream goes around every branch."""
    nodes = []
    for i in range(length):
        stream = f"s{i - 1}" if i else "x"
        nodes.append(helper.make_node("Mul", [stream, f"w{i}"], [f"m{i}"]))
        nodes.append(helper.make_node("Identity", [f"m{i}"], [f"t{i}"]))
        nodes.append(helper.make_node("Add", [stream, f"t{i}"], [f"s{i}"]))
    return _model(nodes, [f"s{length - 1}"], length)


def _model(nodes: list, outputs: list[str], weights: int) -> ModelProto:
    constants = [
        numpy_helper.from_array(np.full(4, 1 + 0.01 * i, np.float32), f"w{i}")
        for i in range(weights)
    ]
    vector = helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [4])
    graph = helper.make_graph(
        nodes,
        "planted",
        [helper.make_value_info("x", vector)],
        [helper.make_value_info(name, vector) for name in outputs],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def plant(model: ModelProto, position: int) -> ModelProto:
    """A copy with one node wrong: it computes something else of the same inputs."""
    wrong = ModelProto()
    wrong.CopyFrom(model)
    node = wrong.graph.node[position]
    node.op_type = {"Mul": "Add", "Add": "Sub", "Identity": "Neg"}[node.op_type]
    return wrong


def recorded(proto: ModelProto, folder: Path, runtime: Runtime, only=None, **recipe):
    """(references of every value, feeds), as a correct run computes them."""
    onnx.save(proto, folder / "right.onnx")
    index = GraphIndex.of(load(folder / "right.onnx"))
    feeds, _ = make_feeds(index, Recipe(seed=3, **recipe))
    observer = Observer(index, runtime)
    observer.feed(feeds)
    values = {**feeds, **observer.fetch(list(index.producer))}
    save_tensors(folder / "refs", {n: v for n, v in values.items() if only is None or n in only})
    return open_references(folder / "refs"), feeds


def bisected(proto: ModelProto, folder: Path, references, feeds, runtime, **search):
    onnx.save(proto, folder / "wrong.onnx")
    model = load(folder / "wrong.onnx")
    return bisect(model, references, feeds, runtime, search=Search(**search))


@pytest.mark.parametrize("shape", [chain, diamond, residual])
def test_the_planted_node_is_named_wherever_it_is(shape, tmp_path, runtime):
    right = shape(24)
    references, feeds = recorded(right, tmp_path, runtime)

    for position in range(len(right.graph.node)):
        wrong = plant(right, position), tmp_path, references, feeds, runtime
        found = [bisected(*wrong, quick=True)]
        if position % 3 == 0:
            found.append(bisected(*wrong))

        for result in found:
            assert [culprit.id for culprit in result.culprits] == [f"@{position}"]
            assert result.culprits[0].region == [f"@{position}"]
            assert not result.elsewhere
        for result in found[1:]:
            verdict = result.culprits[0].findings[0].verdict
            assert verdict in ("wrong node", "wrong constant", "extra node")
        assert found[0].sessions <= 4


def test_the_first_of_two_faults_is_told_before_the_outputs_are_computed(tmp_path, runtime):
    right = chain(24)
    references, feeds = recorded(right, tmp_path, runtime)
    told = list[tuple[list[str], list[str]]]()

    def tell(result):
        told.append(([each.id for each in result.culprits], list(result.outputs)))

    found = bisected(plant(plant(right, 3), 15), tmp_path, references, feeds, runtime, tell=tell)

    assert told == [(["@3"], [])]
    assert [culprit.id for culprit in found.culprits] == ["@3", "@15"]


def test_a_fault_that_is_masked_for_a_while_is_named(tmp_path, runtime):
    right = parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        masked (float[4] x) => (float[4] y) {
            a = Neg(x)
            b = Abs(a)
            c = Mul(b, a)
            y = Neg(c)
        }
    """)
    wrong = ModelProto()
    wrong.CopyFrom(right)
    wrong.graph.node[0].op_type = "Identity"  # Abs hides it, Mul sees it again
    references, feeds = recorded(right, tmp_path, runtime)

    result = bisected(wrong, tmp_path, references, feeds, runtime)

    assert [culprit.value for culprit in result.culprits] == ["a"]


def test_an_agreeing_model_agrees_with_its_margin(tmp_path, runtime):
    right = chain(8)
    references, feeds = recorded(right, tmp_path, runtime)

    result = bisected(right, tmp_path, references, feeds, runtime)

    assert result.verdict == "agrees"
    assert result.outputs["h7"].max_abs == 0


def test_partial_references_give_a_region(tmp_path, runtime):
    right = chain(20)
    references, feeds = recorded(right, tmp_path, runtime, only={"x", "h4", "h9", "h19"})

    result = bisected(plant(right, 7), tmp_path, references, feeds, runtime)

    quick = bisected(plant(right, 7), tmp_path, references, feeds, runtime, quick=True)

    for culprit in (result.culprits[0], quick.culprits[0]):
        assert culprit.value == "h9"
        assert culprit.inputs == ["h4"]
    assert quick.culprits[0].region == ["@5", "@6", "@7", "@8", "@9"]
    assert result.culprits[0].region == ["@7"]
    assert "Mul gives the reference, Add does not" in result.culprits[0].findings[0].because


def test_a_quick_search_says_what_else_mismatches(tmp_path, runtime):
    right = diamond(20)
    references, feeds = recorded(right, tmp_path, runtime)
    wrong = plant(plant(right, 3), 25)

    result = bisected(wrong, tmp_path, references, feeds, runtime, quick=True)

    assert result.culprits[0].id == "@3"
    assert result.elsewhere
    assert all(name.startswith("b") for name in result.elsewhere)


def test_a_non_finite_value_leads_to_its_node(tmp_path, runtime):
    right = chain(12)
    wrong = ModelProto()
    wrong.CopyFrom(right)
    wrong.graph.initializer[5].CopyFrom(
        numpy_helper.from_array(np.array([1.05, np.nan, 1.05, 1.05], np.float32), "w5")
    )
    references, feeds = recorded(right, tmp_path, runtime)

    result = bisected(wrong, tmp_path, references, feeds, runtime)

    report = next(v for v in result.culprits[0].values if v.role == "output")
    assert result.culprits[0].id == "@5"
    assert (report.comparison.reason, report.comparison.non_finite) == ("non-finite", (1,))


def test_outputs_without_a_reference_are_said(tmp_path, runtime):
    right = chain(10)
    references, feeds = recorded(right, tmp_path, runtime, only={"x", "h2", "h6"})

    result = bisected(plant(right, 4), tmp_path, references, feeds, runtime)

    assert "no output has a reference: compared 'h6' instead" in result.notes
    assert result.culprits[0].region == ["@4"]


def test_references_of_another_model_are_refused(tmp_path, runtime):
    save_tensors(tmp_path / "other.npz", {"q": np.zeros(3)})

    with pytest.raises(ReferenceSetError, match="no value that the model computes"):
        bisected(chain(3), tmp_path, open_references(tmp_path / "other.npz"), {}, runtime)


def test_a_reference_of_another_shape_is_refused_before_the_search(tmp_path, runtime):
    save_tensors(tmp_path / "other.npz", {"x": np.zeros(4, np.float32), "h2": np.zeros((2, 4))})
    feeds = {"x": np.zeros(4, np.float32)}

    with pytest.raises(ReferenceSetError, match=r"shape \[2, 4\], the model declares \[4\]"):
        bisected(chain(3), tmp_path, open_references(tmp_path / "other.npz"), feeds, runtime)


@pytest.mark.parametrize("quick", [False, True])
def test_references_of_another_batch_are_refused_not_blamed_on_a_node(tmp_path, runtime, quick):
    text = "net (float[n,4] x) => (float[n,4] y) { h = Relu (x) y = Neg (h) }"
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]> {text}')
    references, feeds = recorded(model, tmp_path, runtime, dims={"n": 4})

    with pytest.raises(ReferenceSetError, match=r"the feeds give \[2, 4\]: it has n = 4, not 2"):
        bisected(model, tmp_path, references, {"x": feeds["x"][:2]}, runtime, quick=quick)


def test_a_missing_feed_is_named(tmp_path):
    save_tensors(tmp_path / "refs.npz", {"h2": np.zeros(4, np.float32)})
    onnx.save(chain(3), tmp_path / "m.onnx")
    index = GraphIndex.of(load(tmp_path / "m.onnx"))

    with pytest.raises(FeedsError, match="no tensor for input 'x'"):
        feeds_from(index, open_references(tmp_path / "refs.npz"))


@pytest.mark.parametrize(("fault", "value"), [("attribute", "27"), ("constant", "25")])
def test_the_fixtures_faults_are_named(fault, value, runtime):
    model = load(FIXTURES / f"faulty_{fault}.onnx")
    references = open_references(REFERENCES)
    feeds = feeds_from(GraphIndex.of(model), references)

    result = bisect(model, references, feeds, runtime)

    assert [culprit.value for culprit in result.culprits] == [value]


def test_the_reproducer_holds_the_culprit_alone_and_shows_the_mismatch(tmp_path, runtime):
    model = load(FIXTURES / "faulty_attribute.onnx")
    references = open_references(REFERENCES)
    result = bisect(model, references, feeds_from(GraphIndex.of(model), references), runtime)

    made = finished(reproducing(model, result, tmp_path / "culprit"))

    folder = made.folder
    assert made.shows

    alone = load(folder / "model.onnx")
    onnx.checker.check_model(str(folder / "model.onnx"), full_check=True)
    expected = open_references(folder / "test_data_set_0")
    actual = run_model(alone, {"26": expected.read("26")})
    assert [node.output[0] for node in alone.proto.graph.node] == ["27"]
    assert np.abs(actual["27"] - expected.read("27")).max() > 1


def test_the_command_keeps_its_contract(tmp_path):
    command = [sys.executable, "-m", "onnxsurgeon_lite", "bisect", "--json", "-o", "out"]
    command += [str(FIXTURES / "faulty_constant.onnx"), "--reference", str(REFERENCES)]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    result = json.loads(done.stdout)
    assert done.returncode == 1
    assert result["verdict"] == "mismatch"
    culprit = result["culprits"][0]
    assert {k: culprit[k] for k in ("id", "name", "op_type", "outputs", "scope")} == {
        "id": "@4",
        "name": "Conv_4",
        "op_type": "Conv",
        "outputs": ["25"],
        "scope": "convs2.1",
    }
    assert {v["name"]: v["comparison"]["match"] for v in culprit["values"]} == {
        "24": True,
        "25": False,
    }
    assert set(result) == {
        "verdict",
        "look",
        "findings",
        "culprits",
        "cleared",
        "outputs",
        "blame",
        "beside_eager",
        "elsewhere",
        "masked",
        "notes",
        "compared",
        "sessions",
        "samples",
        "reproducer",
        "repair",
        "versions",
    }
    assert (tmp_path / "out" / "model.onnx").exists()


def test_a_folder_that_is_there_is_not_written_over(tmp_path):
    from onnxsurgeon_lite.atomic import require_free

    (tmp_path / "mine.txt").write_text("mine")

    with pytest.raises(OutputExistsError):
        require_free(tmp_path)


def test_a_damaged_reference_is_told_not_blamed_on_a_node(tmp_path, runtime):
    feeds, damaged = {"x": np.ones((2, 4), np.float32)}, tmp_path / "damaged.npz"
    h2 = np.full((2, 4), 7, np.float32)
    save_tensors(damaged, {"h2": h2})
    damaged.write_bytes(damaged.read_bytes().replace(h2.tobytes(), (h2 + 1).tobytes()))

    with pytest.raises(ReferenceSetError, match="cannot read 'h2'|cannot read .*h2"):
        bisected(chain(3), tmp_path, open_references(damaged), feeds, runtime)
