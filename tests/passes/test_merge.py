"""Merging: what is linked, shared, renamed and refused; the result computes what the models do one after another."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onnxsurgeon_lite as osl
from onnxsurgeon_lite import Dedupe, Model, load, save
from onnxsurgeon_lite.errors import EditError, UnknownNameError
from onnxsurgeon_lite.graph.check import check
from onnxsurgeon_lite.passes.merge import merge
from onnxsurgeon_lite.runtime.session import run_model

X = np.array([1, -2, 3, 0.5], np.float32)
NEGATE = "first (float[4] x) => (float[4] y) { h = Neg(x) y = Abs(h) }"
DOUBLE = "second (float[4] x) => (float[4] y) { h = Add(x, x) y = Exp(h) }"


def weighted(folder, name: str, number: float) -> Model:
    """A model with 4 KiB of its own in `weights.data`."""
    folder.mkdir()
    vector = helper.make_tensor_type_proto(1, [1024])
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], [name])],
        name,
        [helper.make_value_info("x", vector)],
        [helper.make_value_info(name, vector)],
        [numpy_helper.from_array(np.full(1024, number, np.float32), "w")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(proto, folder / "m.onnx", save_as_external_data=True, location="weights.data")
    return load(folder / "m.onnx")


def test_an_output_feeds_an_input_of_the_next(model_of):
    merged = merge(model_of(NEGATE, "a.onnx"), model_of(DOUBLE, "b.onnx"), [("y", "x")]).model

    assert check(merged, full=True).valid
    assert [value.name for value in merged.proto.graph.output] == ["y_1"]
    assert np.allclose(run_model(merged, {"x": X})["y_1"], np.exp(2 * np.abs(X)))


def test_three_models_share_an_input_and_keep_their_weights(tmp_path):
    models = [weighted(tmp_path / name, name, i) for i, name in enumerate(("a", "b", "c"))]

    two = merge(models[0], models[1], share=["x"]).model
    three = merge(two, models[2], share=["x"], prefix="third/").model
    save(three, tmp_path / "three.onnx")

    loaded = load(tmp_path / "three.onnx")
    outputs = run_model(loaded, {"x": np.zeros(1024, np.float32)})
    assert {name: float(value[0]) for name, value in outputs.items()} == {
        "a": 0,
        "b": 1,
        "third/c": 2,
    }
    assert len(loaded.proto.graph.input) == 1
    assert check(loaded).valid


def test_models_of_different_opsets_are_brought_to_the_newer(model_of):
    header = '<ir_version: 8, opset_import: ["" : 11]>\n'
    old = model_of(
        header + "old (float[1,4] x) => (float[4] y) { y = Squeeze<axes = [0]>(x) }", "a.onnx"
    )
    new = model_of(DOUBLE, "b.onnx")

    result = merge(old, new, [("y", "x")])

    assert result.notes[0] == "graph 'old': opset 11 -> 21: 2 nodes changed"
    assert any("the conversion was not run; onnxdbg edit opset" in note for note in result.notes)
    assert np.allclose(run_model(result.model, {"x": X[None]})["y_1"], np.exp(2 * X))


def test_opsets_that_cannot_be_reconciled_are_refused_with_both_versions(model_of):
    header = '<ir_version: 10, opset_import: ["" : 21, "own" : {}]>\n'
    models = [
        model_of(header.format(version) + NEGATE, f"{version}.onnx") for version in ("1", "2")
    ]

    with pytest.raises(EditError, match="versions 1 and 2 of domain 'own'"):
        merge(*models, share=["x"])


def test_functions_of_one_name_and_two_bodies_are_both_kept(model_of):
    text = """<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
        g (float[4] x) => (float[4] OUT) { OUT = own.f(x) }
        <domain: "own", opset_import: ["" : 21]> f (a) => (b) { b = OP(a) }"""
    one = model_of(text.replace("OUT", "one").replace("OP", "Neg"), "a.onnx")
    two = model_of(text.replace("OUT", "two").replace("OP", "Abs"), "b.onnx")

    merged = merge(one, two, share=["x"]).model

    outputs = run_model(merged, {"x": X})
    assert outputs["one"].tolist() == (-X).tolist()
    assert outputs["two"].tolist() == np.abs(X).tolist()
    assert len(merge(one, one, share=["x"]).model.proto.functions) == 1


def test_metadata_and_doc_strings_of_both_are_kept(model_of):
    one, two = model_of(NEGATE, "a.onnx"), model_of(DOUBLE, "b.onnx")
    one.proto.metadata_props.add(key="author", value="me")
    two.proto.metadata_props.add(key="author", value="you")
    two.proto.metadata_props.add(key="licence", value="free")
    two.proto.doc_string = "the second"

    proto = merge(one, two, share=["x"]).model.proto

    metadata = {entry.key: entry.value for entry in proto.metadata_props}
    assert metadata == {"author": "me", "second.author": "you", "licence": "free"}
    assert proto.doc_string == "the second"


@pytest.mark.parametrize(
    ("links", "share", "error", "problem"),
    [
        ([], [], EditError, "input 'x' of graph 'second' has the name of a value"),
        ([("z", "x")], [], UnknownNameError, "graph 'first' has no value 'z'"),
        ([("y", "z")], [], UnknownNameError, "graph 'second' has no input 'z'"),
        ([], ["z"], UnknownNameError, "has no value 'z'"),
        ([("y", "x")], ["x"], EditError, "input 'x' is linked or shared twice"),
    ],
)
def test_what_does_not_fit_is_refused(model_of, links, share, error, problem):
    models = model_of(NEGATE, "a.onnx"), model_of(DOUBLE, "b.onnx")

    with pytest.raises(error) as caught:
        merge(*models, links, share)

    assert problem in caught.value.message


def test_types_that_do_not_fit_are_refused(model_of):
    wide = model_of(DOUBLE.replace("[4]", "[5]"), "b.onnx")

    with pytest.raises(EditError, match=r"'y' float \[4\] does not fit input 'x' float \[5\]"):
        merge(model_of(NEGATE, "a.onnx"), wide, [("y", "x")])


def test_equal_weights_are_kept_once(tmp_path):
    models = [weighted(tmp_path / name, name, 1.0) for name in ("a", "b")]
    merged = merge(*models, share=["x"]).model

    result = Dedupe().apply(merged)
    save(result.model, tmp_path / "small.onnx", external=True)

    assert [tensor.name for tensor in result.model.proto.graph.initializer] == ["w"]
    assert result.changes == ("merged 'w_1' into 'w'",)
    assert (tmp_path / "small.data").stat().st_size == 4096
    outputs = run_model(load(tmp_path / "small.onnx"), {"x": np.zeros(1024, np.float32)})
    assert outputs["b"][0] == 1


def test_a_body_uses_the_outer_constant_that_equals_its_own(model_of):
    model = model_of("""
        g (float[4] x, bool c) => (float[4] y) <float[4] w = {1,2,3,4}> {
            u = Add(x, w)
            y = If(c) <
                then_branch = t () => (float[4] q) <float[4] v = {1,2,3,4}> { q = Add(u, v) },
                else_branch = e () => (float[4] z) { z = Neg(u) }
            >
        }""")

    result = Dedupe().apply(model)

    assert check(result.model).valid
    feeds = {"x": X, "c": np.array(True)}
    assert run_model(result.model, feeds)["y"].tolist() == run_model(model, feeds)["y"].tolist()
    assert result.changes == ("merged 'v' into 'w'",)


def test_one_value_feeds_several_models_and_stays_an_output_where_that_is_wanted(model_of):
    texts = "one (float[4] x) => (float[4] y) { y = Neg(x) }", DOUBLE, DOUBLE.replace("Exp", "Neg")
    models = [
        model_of(text.replace("y = Exp", "y = Abs"), f"{i}.onnx") for i, text in enumerate(texts)
    ]

    several = osl.merge(*models, map={"y": "x"}, prefix=["a/", "b/"])
    kept = osl.merge(*models, map=[("y", "x"), ("a/y", "x")], prefix=["a/", "b/"], keep="y")
    result = osl.run(kept, {"x": X})

    assert "linked, and no output any more: y; --keep y keeps one" in several.notes
    assert [value.name for value in several.model.proto.graph.output] == ["a/y", "b/y"]
    assert [value.name for value in kept.model.proto.graph.output] == ["y", "b/y"]
    assert result["b/y"].tolist() == (-2 * np.abs(2 * X)).tolist()
    with pytest.raises(UnknownNameError, match="the models has no output 'z'"):
        osl.merge(*models, map={"y": "x"}, keep="z")


def test_an_output_that_is_read_stays_one_where_that_is_wanted(model_of):
    model = model_of(NEGATE, "a.onnx")

    gone = osl.append(model, "z = Exp(y)")
    kept = osl.append(osl.clean(model), "z = Exp(y)", keep="y")

    assert gone.notes == ("linked, and no output any more: y; --keep y keeps one",)
    assert [value.name for value in gone.model.proto.graph.value_info] == ["h", "y"]
    assert not kept.notes
    assert [value.name for value in kept.model.proto.graph.output] == ["y", "z"]


def test_the_result_of_an_edit_is_taken_wherever_a_model_is(model_of, tmp_path):
    edited = osl.clean(osl.extract(model_of(NEGATE, "a.onnx"), outputs="h"))
    tail = osl.rename(
        model_of("t (float[4] h) => (float[4] z) { z = Abs(h) }", "b.onnx"), {"z": "w"}
    )

    whole = osl.append(edited, tail)
    osl.save(whole, tmp_path / "whole.onnx")

    assert osl.run(whole, {"x": X})["w"].tolist() == np.abs(X).tolist()
    assert osl.record(whole, tmp_path / "refs", feeds={"x": X}).values == 3
    assert not osl.bisect(whole, reference=tmp_path / "refs").culprits
    assert str(osl.diff(whole, tmp_path / "whole.onnx")) == "no difference"
    assert osl.verify(whole, osl.sort(whole)).match
    assert osl.compare_sets(whole, whole, feeds={"x": X}).match
