"""Models in parts: complete, runnable one after another, equal to the whole."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import numpy_helper
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit import FIXTURES
from kit.graphs import models
from onnxsurgeon_lite import GraphIndex, Recipe, load, make_feeds
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import CutError, UnknownNameError
from onnxsurgeon_lite.graph.check import check
from onnxsurgeon_lite.matching.split import compare_chain, model_of, split, write_parts
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.runtime.session import Runtime, RuntimeOptions


def index_of(name: str) -> GraphIndex:
    return GraphIndex.of(load(FIXTURES / name))


def ends(index: GraphIndex, *at: str) -> list[tuple[str, str]]:
    return [(" ".join(p.inputs), " ".join(p.outputs)) for p in split(index, at).parts]


def test_the_tutorials_model_falls_into_four_parts():
    found = split(index_of("whole_model.onnx"), ["23", "25", "27"])

    assert [(p.inputs, p.outputs, len(p.nodes)) for p in found.parts] == [
        (("input.1",), ("23",), 3),
        (("23",), ("25",), 2),
        (("23",), ("27",), 2),
        (("25", "27"), ("31",), 4),
    ]
    assert found.crossing == ()
    assert found.notes == []


def test_a_value_that_crosses_too_is_named():
    found = split(index_of("whole_model.onnx"), ["25"])

    assert ends(index_of("whole_model.onnx"), "25") == [
        ("input.1", "25 27"),
        ("25 27", "31"),
    ]
    assert found.crossing == ("27",)
    assert found.notes == ["'27' crosses parts too"]


def test_constants_go_to_each_part_that_reads_them(model_of):
    index = GraphIndex.of(
        model_of("""g (float[2] x) => (float[2] y) {
            k = Constant<value = float[2] {1, 2}>()  two = Add(k, k)
            a = Add(x, two)  b = Relu(a)  y = Mul(b, two)
        }""")
    )

    assert ends(index, "b") == [("x", "b"), ("b", "y")]


def test_a_value_that_a_body_captures_crosses(model_of):
    index = GraphIndex.of(
        model_of("""g (float[2] x, bool c) => (float[2] y) {
            a = Relu(x)  b = Neg(a)
            y = If(c) <
                then_branch = yes () => (float[2] p) { p = Add(a, b) },
                else_branch = no () => (float[2] q) { q = Sub(a, b) }
            >
        }""")
    )

    assert ends(index, "b") == [("x", "a b"), ("c a b", "y")]


@pytest.mark.parametrize(
    ("name", "at"),
    [
        ("whole_model.onnx", "23,25,27"),
        ("transformer_block.onnx", "probabilities"),
        ("external.onnx", "activation"),
        ("control_flow.onnx", "@1"),
    ],
)
def test_the_parts_are_valid_and_give_what_the_whole_gives(name, at, tmp_path):
    index = index_of(name)
    found = write_parts(index, split(index, at.split(",")), tmp_path / "parts")
    feeds, _ = make_feeds(index, Recipe(seed=3))

    with Runtime(RuntimeOptions(opt="none")) as runtime:
        found = compare_chain(index, found, feeds, runtime)

    assert len(found.parts) > 1
    assert all(check(load(part.path)).valid for part in found.parts)
    assert {c.max_abs for c in found.outputs.values()} == {0.0}
    assert set(found.outputs) == set(index.outputs)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(models(), st.data())
def test_any_graph_split_anywhere_gives_what_the_whole_gives(runtime, proto, data):
    index = GraphIndex.of(Model(proto))
    at = data.draw(st.lists(st.sampled_from(list(index.producer)), min_size=1, unique=True))
    feeds = {"in0": np.arange(4, dtype=np.float32), "in1": np.ones(4, np.float32)}

    found = compare_chain(index, split(index, at), feeds, runtime)

    assert sorted(n for p in found.parts for n in p.nodes) == sorted(
        f"@{i}" for i in range(len(index.nodes))
    )
    assert found.match
    assert set(found.outputs) == set(index.outputs)
    for part in found.parts:
        assert not set(part.inputs) & set(part.outputs)

    if len(found.parts) == 1:
        return
    with TemporaryDirectory() as folder:
        parts = [part.path for part in write_parts(index, found, Path(folder) / "parts").parts]
        merged = osl.merge(*data.draw(st.permutations(parts)), by_name=True)
        differences = osl.diff(proto, merged.model)
    assert str(differences) == "no difference"
    assert not merged.notes


def test_nodes_that_no_output_needs_are_counted(model_of):
    text = "g (float[2] x) => (float[2] y) { a = Neg(x) b = Abs(a) c = Exp(b) y = Relu(a) }"

    found = split(GraphIndex.of(model_of(text)), ["a"])

    assert found.notes == ["nodes in no part, because no output needs them: 2"]
    assert not split(index_of("whole_model.onnx"), ["23"]).notes


def test_a_graph_input_is_no_place_to_split_at():
    with pytest.raises(CutError, match=r"no node produces 'input\.1'"):
        split(index_of("whole_model.onnx"), ["input.1"])
    with pytest.raises(UnknownNameError):
        split(index_of("whole_model.onnx"), ["nothing"])


def test_a_part_holds_only_its_own_weights():
    index = index_of("whole_model.onnx")
    parts = [model_of(index, part) for part in split(index, ["23"]).parts]

    names = [{t.name for t in part.proto.graph.initializer} for part in parts]
    assert names[0] & names[1] == set()
    assert names[0] | names[1] == set(index.initializers)


def test_the_command_writes_the_parts_and_says_how_they_compare(tmp_path):
    words = ["split", str(FIXTURES / "whole_model.onnx"), "--at", "23", "-o", str(tmp_path / "p")]

    done = CliRunner().invoke(app, [*words, "--json"])

    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert [part["outputs"] for part in found["parts"]] == [["23"], ["31"]]
    assert found["outputs"]["31"]["match"]
    assert sorted(p.name for p in (tmp_path / "p").iterdir()) == ["1.onnx", "2.onnx"]
    assert CliRunner().invoke(app, words).exit_code == 2  # the folder is there already


def test_what_is_split_at_three_places_is_whole_again_when_it_is_merged(tmp_path, model_of):
    whole = model_of("""g (float[2] x, float[2] z) => (float[2] late, float[2] early, float[2] c)
        <float[2] w = {1, 2}, float[2] a, float[2] d> {
            k = Constant<value = float[2] {1, 2}>()  two = Add(k, k)
            a = Add(x, w)  early = Neg(a)  b = Mul(a, w)
            c = Add(b, two)  d = Add(c, two)  e = Sub(b, two)  last = Sub(d, z)  late = Mul(last, e)
        }""")
    parts = [part.path for part in osl.split(whole, ["b", "c", "d"], tmp_path / "parts").parts]

    some = osl.merge(parts[2], parts[1], by_name=True)  # c is an output of the whole: it stays one
    merged = osl.merge(some, *parts[3:], parts[0], by_name=True)

    assert [value.name for value in some.model.proto.graph.output] == ["c", "d"]
    assert len(parts) == 5
    assert str(osl.diff(whole, merged)) == "no difference"
    assert merged.model.proto.metadata_props == whole.proto.metadata_props
    declared = ({info.name for info in m.proto.graph.value_info} for m in (merged.model, whole))
    assert len({*map(frozenset, declared)}) == 1


DEVICES = pytest.mark.skipif(
    "device_configurations" not in onnx.NodeProto.DESCRIPTOR.fields_by_name,
    reason="onnx before 1.18",
)


def on_devices(stages=True):
    """A model whose first half is on two devices together, and whose other half on a third one."""
    model = onnx.parser.parse_model("""<ir_version: 11, opset_import: ["" : 21]>
    g (float[2,4] x) => (float[2,4] y) {
        [first] k = Relu (x) [product] h = MatMul (k, w)
        [plain] p = Abs (h)
        [second] n = Neg (p) [last] y = Add (n, h)
    }""")
    model.graph.initializer.append(numpy_helper.from_array(np.eye(4, dtype=np.float32), "w"))
    model.configuration.add(name="pair", num_devices=3)
    for place, node in enumerate(model.graph.node):
        if node.name == "plain":
            continue
        own = node.device_configurations.add(configuration_id="pair")
        if stages:
            own.pipeline_stage = int(place > 2)
        for name in node.output:
            own.sharding_spec.add(tensor_name=name, device=[0, 1] if place < 3 else [2])
    return model


@DEVICES
@pytest.mark.parametrize("stages", [True, False])
def test_a_model_is_split_where_a_value_goes_to_another_device(stages, tmp_path):
    onnx.save(on_devices(stages), tmp_path / "m.onnx")

    done = CliRunner().invoke(
        app, ["split", str(tmp_path / "m.onnx"), "--by-device", "-o", str(tmp_path / "parts")]
    )

    assert done.exit_code == 0, done.output
    parts = [osl.load(tmp_path / "parts" / f"{n}.onnx").proto for n in (1, 2)]
    named = [[node.name for node in part.graph.node] for part in parts]
    assert named == [["first", "product", "plain"], ["second", "last"]]
    assert parts[1].configuration[0].name == "pair"
    assert not (tmp_path / "parts" / "3.onnx").exists()


def test_a_model_of_one_device_has_no_border():
    with pytest.raises(CutError, match="nothing says where the parts end"):
        osl.split(FIXTURES / "whole_model.onnx", by_device=True)
    assert CliRunner().invoke(app, ["split", str(FIXTURES / "whole_model.onnx")]).exit_code == 2


@DEVICES
def test_where_a_value_is_goes_with_its_name():
    model = osl.rename(osl.Model(on_devices()), {"h": "hidden", "y": "result"}).model

    named = [s.tensor_name for n in model.proto.graph.node for c in n.device_configurations
             for s in c.sharding_spec]  # fmt: skip
    assert named == ["k", "hidden", "n", "result"]


@DEVICES
def test_a_device_that_has_a_turn_twice_has_two_parts():
    model = onnx.parser.parse_model("""<ir_version: 11, opset_import: ["" : 21]>
    g (float[4] x) => (float[4] y) { [a] h = Relu (x) [b] k = Neg (h) [c] l = Abs (k) y = Add (l, h) }""")
    for node, device in zip(model.graph.node, [0, 1, 0, 0], strict=True):
        own = node.device_configurations.add(configuration_id="two")
        own.sharding_spec.add(tensor_name=node.output[0], device=[device])

    found = osl.split(osl.Model(model), by_device=True)

    assert [part.nodes for part in found.parts] == [("@0",), ("@1",), ("@2", "@3")]
    assert found.notes == []
