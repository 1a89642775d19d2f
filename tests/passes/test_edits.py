"""Edits: the tutorial's own, what is refused, what is kept, and random graphs that compute what they did."""

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper, parser
from typer.testing import CliRunner

from kit import FIXTURES
from kit.graphs import FEEDS, random_models, run
from kit.verbs import CONTRACT
from onnxsurgeon_lite import (
    PASSES,
    BatchOutputs,
    Clean,
    Extract,
    Fix,
    Freeze,
    Inference,
    Insert,
    Model,
    PadOutputs,
    Pipeline,
    Promote,
    Rebatch,
    Remove,
    Rename,
    Reorder,
    Replace,
    Rewire,
    Script,
    SetAttr,
    SetConstant,
    SetOp,
    SetShape,
    Sort,
    load,
    save,
)
from onnxsurgeon_lite import model as model_package
from onnxsurgeon_lite.api import edit as api_edit
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import EditError, UnknownNameError
from onnxsurgeon_lite.graph import index as index_module
from onnxsurgeon_lite.graph import native
from onnxsurgeon_lite.graph.check import check
from onnxsurgeon_lite.graph.index import GraphIndex, Indexed
from onnxsurgeon_lite.passes.build import add_initializers, parse_text
from onnxsurgeon_lite.passes.recipe import read_recipe
from onnxsurgeon_lite.passes.recipe_writing import write_recipe
from onnxsurgeon_lite.passes.restore import Restore
from onnxsurgeon_lite.runtime.session import run_model

X = np.array([1, -2, 3, 0.5], np.float32)
SLOW = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def whole() -> Model:
    return load(FIXTURES / "whole_model.onnx")


def edited(model: Model, *steps) -> Model:
    """The model after the steps; the checker accepts it."""
    result = Pipeline(steps).apply(model).model
    onnx.checker.check_model(result.materialize())
    return result


def saved(model: Model, folder) -> bytes:
    save(model, folder / "saved.onnx")
    return (folder / "saved.onnx").read_bytes()


# --- names ---


def test_two_values_swap_names(whole, runtime):
    swapped = edited(whole, Rename((("24", "26"), ("26", "24"))))

    image = {"input.1": np.ones((1, 3, 20, 20), np.float32)}
    assert [node.output[0] for node in swapped.proto.graph.node][3:6] == ["26", "25", "24"]
    assert run(runtime, swapped, image)["31"].tolist() == run(runtime, whole, image)["31"].tolist()


def test_renaming_follows_into_bodies_annotations_and_training_graphs(model_of):
    model = model_of("""
        g (float[4] x, bool c) => (float[4] y) {
            u = Abs(x)
            y = If(c) <
                then_branch = t () => (float[4] q) { q = Add(u, u) },
                else_branch = e () => (float[4] z) { z = Neg(u) }
            >
        }""")
    graph = model.proto.graph
    graph.quantization_annotation.add(tensor_name="u").quant_parameter_tensor_names.add(
        key="SCALE_TENSOR", value="x"
    )
    training = model.proto.training_info.add()
    training.update_binding.add(key="u", value="new")
    training.algorithm.node.append(helper.make_node("Neg", ["u"], ["new"]))

    proto = Rename((("u", "w"), ("x", "image"))).apply(model).model.proto

    branches = [attribute.g for attribute in proto.graph.node[1].attribute]
    assert [list(branch.node[0].input) for branch in branches] == [["w"], ["w", "w"]] or [
        list(branch.node[0].input) for branch in branches
    ] == [["w", "w"], ["w"]]
    annotation = proto.graph.quantization_annotation[0]
    assert annotation.tensor_name == "w"
    assert annotation.quant_parameter_tensor_names[0].value == "image"
    assert proto.training_info[0].update_binding[0].key == "w"
    assert list(proto.training_info[0].algorithm.node[0].input) == ["w"]


def test_a_new_name_that_a_body_uses_itself_is_not_captured_by_it(model_of, runtime):
    model = model_of("""
        g (float[4] x, bool c) => (float[4] y) {
            u = Abs(x)
            y = If(c) <
                then_branch = t () => (float[4] q) { i = Neg(u) q = Add(u, i) },
                else_branch = e () => (float[4] z) { z = Neg(u) }
            >
        }""")

    renamed = edited(model, Rename((("u", "i"),)))

    feeds = {"x": X, "c": np.array(True)}
    assert run(runtime, renamed, feeds)["y"].tolist() == [0, 0, 0, 0]


def test_patterns_give_prefixes(whole):
    result = Rename((("convs1.*", "stem.*"),)).apply(whole)

    names = [t.name for t in result.model.proto.graph.initializer if t.name.startswith("stem.")]
    assert len(names) == len(result.changes) == 6


@pytest.mark.parametrize(
    ("pairs", "problem"),
    [
        ((("23", "24"),), "that name is taken"),
        ((("23", "a"), ("24", "a")), "'23', '24' would get the same name 'a'"),
        ((("23", ""),), "empty"),
        ((("convs*", "a*b*"),), "different numbers"),
    ],
)
def test_names_that_collide_are_refused(whole, pairs, problem):
    with pytest.raises(EditError, match=problem):
        Rename(pairs).apply(whole)


def test_nodes_are_renamed_by_pattern(whole):
    nodes = edited(whole, Rename((("Conv_*", "layer*"),), nodes=True)).proto.graph.node

    assert [node.name for node in nodes][:2] == ["layer0", "layer1"]
    assert nodes[7].name == "Add_7"


@pytest.mark.parametrize("nodes", [False, True])
def test_a_pattern_that_fits_nothing_says_of_what(whole, nodes):
    with pytest.raises(UnknownNameError, match=f"has no {'node' if nodes else 'value'} 'Con_\\*'"):
        Rename((("Con_*", "layer*"),), nodes).apply(whole)


# --- nodes ---


def test_an_add_becomes_a_sub(whole, runtime):
    image = {"input.1": np.ones((1, 3, 20, 20), np.float32)}
    sub = edited(whole, SetOp(("Add_7",), "Sub"), Rename((("28", "28s"),)))

    ends = edited(sub, Extract((), ("25", "27", "28s")))

    values = run(runtime, ends, image)
    assert np.array_equal(values["28s"], values["25"] - values["27"])


@pytest.mark.parametrize(
    ("step", "problem", "hint"),
    [
        (
            SetOp(("Add_7",), "Relu"),
            "Relu takes 1 inputs, the node has 2",
            "same inputs and outputs",
        ),
        (SetOp(("Add_7",), "Subb"), "has no operator 'Subb'", "'Sub'"),
        (
            SetOp(("Conv_6",), "MatMul"),
            "MatMul takes 2 inputs, the node has 3",
            "same inputs and outputs",
        ),
        (SetOp(("Add_8",), "Sub"), "has no node 'Add_8'", "'Add_7'"),
        (SetAttr(("Conv_6",), (("pad", 1),)), "Conv has no attribute 'pad'", "'pads'"),
        (SetAttr(("Conv_6",), (("pads", [0.5]),)), "'pads' of Conv has type ints", "[1, 2]"),
        (SetAttr(("Conv_6",), remove=("pad",)), "no attribute 'pad'", "'pads'"),
        (Remove(("Add_7",)), "2 inputs have the type", "--bridge"),
        (Insert("22", "Cast"), "Cast needs attribute 'to'", "to=VALUE"),
        (Insert("22", "Relu", to=("Add_7",)), "does not read '22'", "Conv_2"),
        (Insert("input.1", "Relu", before=True), "cannot insert a node before", "--before"),
        (Insert("22", "Cast", attributes=(("to", 10),)), "has type tensor(float)", "Cast"),
        (Rewire("24", "28"), "cycle of 2 nodes", ""),
        (Rewire("24", "convs1.0.bias", to=("Conv_4",)), "the types do not fit", "inspect"),
        (Promote(("23",)), "'23' is not a constant: it is produced by Conv", "initializer"),
        (Freeze((("23", 1),)), "'23' is not an input", "'input.1'"),
        (Freeze((("input.1", None),)), "has no default", "input.1=0.5"),
        (Freeze((("input.1", [1, 2]),)), "do not fit input 'input.1'", "shape"),
        (SetConstant("convs1.0.bias", "a"), "is not a number", "0.5"),
        (SetConstant("input.1", 1), "is not a constant: it is an input", "initializer"),
    ],
    ids=lambda p: p.name if hasattr(p, "name") else None,
)
def test_what_does_not_fit_is_refused_with_what_to_do(whole, step, problem, hint):
    before = whole.encoded()

    with pytest.raises((EditError, UnknownNameError)) as caught:
        step.apply(whole)

    assert problem in caught.value.message
    assert hint in (caught.value.hint or "")
    assert whole.encoded() == before


def test_a_node_in_a_body_is_reached_by_its_id(model_of, runtime):
    model = model_of("""
        g (float[4] x, bool c) => (float[4] y) {
            y = If(c) <
                then_branch = t () => (float[4] q) { q = Abs(x) },
                else_branch = e () => (float[4] z) { z = Neg(x) }
            >
        }""")

    changed = edited(model, SetOp(("@0/then_branch/@0",), "Neg"))

    assert run(runtime, changed, {"x": X, "c": np.array(True)})["y"].tolist() == (-X).tolist()


def test_an_attribute_changes_the_types_that_depend_on_it(whole):
    result = SetAttr(("Conv_9",), (("strides", [2, 2]),)).apply(whole)

    shape = result.model.proto.graph.output[0].type.tensor_type.shape
    assert [dim.dim_value for dim in shape.dim] == [1, 3, 10, 10]
    assert result.notes == ("output '31' changed its type",)
    assert check(result.model, full=True).valid


def test_a_constant_of_a_shape_that_its_reader_does_not_take_is_refused(model_of):
    model = model_of("g (float[4] x) => (float[4] y) <float[4] c = {1,2,3,4}> { y = Add(x, c) }")

    with pytest.raises(EditError, match="Add @0: the types do not fit"):
        SetConstant("c", [1, 2, 3]).apply(model)


def test_removed_nodes_in_a_row_are_bypassed_and_outputs_keep_their_names(whole, runtime):
    short = edited(whole, Remove(("Conv_8", "Conv_9", "Conv_10")))

    image = {"input.1": np.ones((1, 3, 20, 20), np.float32)}
    reference = run(runtime, Extract((), ("28",)).apply(whole).model, image)["28"]
    assert np.array_equal(run(runtime, short, image)["31"], reference)


def test_a_removed_node_that_reads_what_it_makes_is_refused(model_of):
    model = model_of("g (float[2] x) => (float[2] y) { y = Add(x, y) }")

    with pytest.raises(EditError, match="'y' would dangle: the removed nodes read what they make"):
        Remove(("@0",), bridge="y").apply(model)


def test_removing_what_several_read_says_what_would_dangle(model_of):
    model = model_of("""
        g (float[4] x) => (float[2] y) { a, b = Split<num_outputs = 2>(x) y = Add(a, b) }
    """)

    with pytest.raises(EditError, match="'a', read by Add @1; 'b', read by Add @1|'a', read by"):
        Remove(("@0",)).apply(model)


def test_an_output_is_not_bypassed_to_an_input(model_of):
    model = model_of("g (float[4] x) => (float[4] y) { y = Relu(x) }")

    with pytest.raises(EditError, match="'y' would dangle: its replacement 'x' is an input"):
        Remove(("op:Relu",)).apply(model)


def test_a_node_is_inserted_on_one_edge_only(model_of, runtime):
    model = model_of("g (float[4] x) => (float[4] y) { a = Neg(x) b = Abs(x) y = Add(a, b) }")

    one = edited(model, Insert("x", "Exp", to=("op:Neg",)))

    expected = -np.exp(X) + np.abs(X)
    assert np.allclose(run(runtime, one, {"x": X})["y"], expected)


def test_an_inserted_node_may_have_omitted_and_further_inputs(model_of, runtime):
    model = model_of(
        "g (float[4] x) => (float[4] y) { two = Constant<value = float {2.0}>() y = Neg(x) }"
    )

    clipped = edited(model, Insert("y", "Clip", inputs=("y", "", "two"), before=True))

    assert run(runtime, clipped, {"x": X})["y"].tolist() == np.minimum(-X, 2).tolist()


@pytest.mark.parametrize(
    ("commas", "apart"),
    [
        (Remove(("Conv_1,Conv_2",)), Remove(("Conv_1", "Conv_2"))),
        (Promote(("convs1.0.bias,convs1.1.bias",)), Promote(("convs1.0.bias", "convs1.1.bias"))),
        (SetOp(("Conv_1,Conv_2",), "ConvInteger"), SetOp(("Conv_1", "Conv_2"), "ConvInteger")),
        (
            SetAttr(("Conv_1,Conv_2",), remove=("pads,dilations",)),
            SetAttr(("Conv_1", "Conv_2"), remove=("pads", "dilations")),
        ),
        (Rewire("23", "22", ("Conv_3,Conv_5",)), Rewire("23", "22", ("Conv_3", "Conv_5"))),
        (Insert("23", "Sum", ("23,22",)), Insert("23", "Sum", ("23", "22"))),
    ],
    ids=lambda step: step.name,
)
def test_a_list_is_split_at_commas_wherever_names_are_taken(whole, commas, apart):
    def outcome(step):
        try:
            return step.apply(whole).model.proto
        except EditError as error:
            return error.message

    assert outcome(commas) == outcome(apart)


def test_readers_are_rewired_and_nodes_sorted_behind_what_they_read(model_of, runtime):
    model = model_of("g (float[4] x) => (float[4] y) { a = Neg(x) b = Abs(x) y = Add(a, x) }")

    moved = edited(model, Rewire("x", "y", to=("op:Abs",)))

    assert [node.op_type for node in moved.proto.graph.node] == ["Neg", "Add", "Abs"]


# --- constants ---


def test_a_shared_constant_is_copied_for_one_reader(model_of, runtime):
    model = model_of("""
        g (float[4] x) => (float[4] y) {
            two = Constant<value = float {2.0}>()
            a = Mul(x, two)
            y = Mul(a, two)
        }""")

    result = SetConstant("two", 3, to=("@2",)).apply(model)

    assert run(runtime, result.model, {"x": X})["y"].tolist() == (X * 6).tolist()
    assert result.notes == ("'two' is shared: 1 of 2 nodes read the copy 'two_1'",)


RESIZE = """
    g (float[1,1,2,2] x) => (float[1,1,a,b] y) {
        scales = Constant<value = float[4] {1.0, 1.0, 2.0, 2.0}>()
        y = Resize<mode = "nearest">(x, , scales)
    }"""


def test_the_scales_of_a_resize_become_an_input(model_of, runtime):
    dynamic = edited(model_of(RESIZE), Promote(("scales",)))

    x = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
    for factor in (2, 3):
        feeds = {"x": x, "scales": np.array([1, 1, factor, factor], np.float32)}
        assert run(runtime, dynamic, feeds)["y"].shape == (1, 1, 2 * factor, 2 * factor)


def test_a_default_lets_a_promoted_constant_be_left_out(model_of, runtime):
    dynamic = edited(model_of(RESIZE), Promote(("scales",), default=True))

    x = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
    assert run(runtime, dynamic, {"x": x})["y"].shape == (1, 1, 4, 4)


def test_what_depends_on_a_frozen_input_is_folded(model_of, runtime):
    model = model_of("""
        g (float[4] x, float[4] w) => (float[4] y) { a = Neg(w) b = Exp(a) y = Mul(x, b) }
    """)

    result = Freeze((("w", 1),), fold=True).apply(model)
    kept = Freeze((("w", 1),), fold=True, limit=8).apply(model)

    assert [node.op_type for node in result.model.proto.graph.node] == ["Mul"]
    assert np.allclose(run(runtime, result.model, {"x": X})["y"], X * np.exp(-1))
    assert len(kept.model.proto.graph.node) == 3
    assert "over 8 bytes" in kept.notes[0]


INVERSES = {
    "promote an initializer": (
        lambda m: Promote(("convs1.1.bias",)),
        lambda m: Freeze((("convs1.1.bias", array_of(m, "convs1.1.bias")),)),
    ),
    "promote without giving numbers back": (
        lambda m: Promote(("convs1.1.bias",)),
        lambda m: Freeze((("convs1.1.bias", None),)),
    ),
    "promote with a default": (
        lambda m: Promote(("convs1.1.bias",), default=True),
        lambda m: Freeze((("convs1.1.bias", None),)),
    ),
    "freeze an input": (
        lambda m: Freeze((("input.1", 0),)),
        lambda m: Promote(("input.1",)),
    ),
    "insert": (
        lambda m: Insert("23", "Relu", node_name="new"),
        lambda m: Remove(("new",)),
    ),
    "insert before an output": (
        lambda m: Insert("31", "Relu", before=True, node_name="new"),
        lambda m: Remove(("new",)),
    ),
    "swap": (
        lambda m: Rename((("24", "26"), ("26", "24"))),
        lambda m: Rename((("24", "26"), ("26", "24"))),
    ),
    "set-op": (lambda m: SetOp(("Add_7",), "Sub"), lambda m: SetOp(("Add_7",), "Add")),
    "rewire": (
        lambda m: Rewire("27", "24", to=("Add_7",)),
        lambda m: Rewire("24", "27", to=("Add_7",)),
    ),
    "set-attr": (
        lambda m: SetAttr(("Conv_9",), (("strides", [2, 2]),)),
        lambda m: SetAttr(("Conv_9",), (("strides", [1, 1]),)),
    ),
    "set-constant": (
        lambda m: SetConstant("convs1.1.bias", 5),
        lambda m: SetConstant("convs1.1.bias", array_of(m, "convs1.1.bias")),
    ),
}


def array_of(model: Model, name: str) -> np.ndarray:
    return model.array(GraphIndex.of(model).initializers[name])


@pytest.mark.parametrize("name", INVERSES)
def test_the_inverse_edit_gives_back_the_originals_bytes(name, whole, tmp_path):
    edit, inverse = (make(whole) for make in INVERSES[name])
    original = saved(whole, tmp_path)

    there = edited(whole, edit)
    back = inverse.apply(there).model

    assert saved(there, tmp_path) != original
    assert saved(back, tmp_path) == original


def test_all_edits_undone_in_turn_give_back_the_originals_bytes(whole, tmp_path):
    names = ("promote an initializer", "insert", "swap", "freeze an input")
    pairs = [[make(whole) for make in INVERSES[name]] for name in names]

    there = edited(whole, *(edit for edit, _ in pairs))
    back = edited(there, *(inverse for _, inverse in reversed(pairs)))

    assert saved(back, tmp_path) == saved(whole, tmp_path)


@pytest.mark.parametrize("payload", ["raw", "typed", "value_floats"])
def test_a_promoted_constant_node_comes_back_as_it_was(model_of, payload, tmp_path):
    model = model_of(RESIZE)
    node = model.proto.graph.node[0]
    node.doc_string = "kept"
    numbers = np.array([1, 1, 2, 2], np.float32)
    if payload == "raw":
        node.attribute[0].t.CopyFrom(numpy_helper.from_array(numbers))
    elif payload == "value_floats":
        node.attribute[0].CopyFrom(helper.make_attribute("value_floats", numbers.tolist()))
    onnx.save(model.proto, tmp_path / "constant.onnx")
    model = load(tmp_path / "constant.onnx")

    promoted = edited(model, Promote(("scales",)))

    for numbers in ([1, 1, 2, 2], None):
        back = edited(promoted, Freeze((("scales", numbers),)))
        assert saved(back, tmp_path) == (tmp_path / "constant.onnx").read_bytes()


@pytest.mark.parametrize("as_node", [False, True])
@pytest.mark.parametrize("external", [False, True])
def test_many_promoted_numbers_stay_on_disk_until_they_are_wanted(as_node, external, tmp_path):
    numbers = np.arange(300_000, dtype=np.float32)
    header = '<ir_version: 8, opset_import: ["": 18]>'
    proto = parser.parse_model(header + "g (float[n] x) => (float[n] y) { y = Add(x, w) }")
    if as_node:
        value = numpy_helper.from_array(numbers)
        proto.graph.node.insert(0, helper.make_node("Constant", [], ["w"], value=value))
    else:
        proto.graph.initializer.append(numpy_helper.from_array(numbers, "w"))
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=external)
    model = load(tmp_path / "m.onnx")

    result = Promote(("w",)).apply(model)
    save(result.model, tmp_path / "there.onnx")
    back = edited(load(tmp_path / "there.onnx"), Freeze((("w", None),)))
    others = edited(result.model, Freeze((("w", 1),)))

    assert "the numbers of 'w' stay in 'w_promoted'" in result.notes[0]
    assert saved(back, tmp_path) == saved(model, tmp_path)
    assert [*GraphIndex.of(others).values()] == ["x", "w", "y"]


# --- types ---

CONCATENATED = """
    g (float[2,4] x) => (float[2,7] y) <float[1] token = {1}, int64[2] shape = {2,3}, float[3] b = {1,2,3}> {
        t = Expand(token, shape)
        s = Add(t, b)
        y = Concat <axis = 1> (x, s)
    }"""


@pytest.mark.parametrize("before", [False, True])
def test_a_node_among_values_without_a_shape_is_inferred_alone(before, monkeypatch):
    model = without_shapes()
    asked = []
    infer = index_module.infer_encoded
    monkeypatch.setattr(
        index_module, "infer_encoded", lambda *a, **k: asked.append(a) or infer(*a, **k)
    )
    model.index.learn_types(model.index.producer)
    learned = len(asked)

    done = Insert("h", "Add", inputs=("h", "x"), before=before).apply(model).model

    assert learned
    assert len(asked) == learned
    assert GraphIndex.of(done).type_of("y").tensor_type.elem_type == TensorProto.FLOAT


def test_a_shape_that_only_the_whole_graph_says_must_fit(model_of):
    model = model_of(
        "g (float[1,3] x, float[2,3] w, float[2,1] v) => (float[M,N] y)"
        " { s = Shape(w) h = Concat <axis = 0> (x, x) y = Mul(h, v) }"
    )

    with pytest.raises(EditError, match="the types do not fit"):
        Insert("x", "Expand", inputs=("x", "s"), to=("op:Concat",)).apply(model)


def without_shapes() -> Indexed:
    """A model of which inference finds no shape, indexed once for several edits."""
    proto = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]>'
        "g (float[N] x) => (float[N] y) { h = Relu(x) y = Neg(h) }"
    )
    for info in (proto.graph.input[0], proto.graph.output[0]):
        info.type.tensor_type.ClearField("shape")
    return Indexed(GraphIndex.of(Model(proto)))


@pytest.mark.parametrize(
    "step",
    [
        SetConstant("shape", [3, 3]),
        SetConstant("shape", [2, 5]),
        Replace(("x",), ("t",), "Identity"),
        Replace(("x",), ("t",), model="narrow.onnx"),
    ],
    ids=["rows", "columns", "operator", "model"],
)
def test_types_that_do_not_fit_further_on_are_refused(step, model_of, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = model_of(CONCATENATED)
    model_of("n (float[2,4] a) => (float[2,4] c) { c = Abs(a) }", "narrow.onnx")

    with pytest.raises(EditError, match=r"the types do not fit further on: \(op_type:(Add|Concat)"):
        step.apply(model)


def test_shapes_that_a_constants_numbers_decide_are_declared_anew(model_of, runtime):
    model = model_of("""
        g (float[2,6] x) => (float[2,2,3] y)
        <int64[1] two = {2}, int64[1] rest = {-1}, int64[1] three = {3}, float[2,2,3] h> {
            shape = Concat <axis = 0> (two, rest, three)
            h = Reshape(x, shape)
            y = Neg(h)
        }""")

    result = SetConstant("three", [2]).apply(model)

    graph = result.model.proto.graph
    shapes = {v.name: v.type.tensor_type.shape.dim for v in (*graph.value_info, *graph.output)}
    assert [dim.dim_value for dim in shapes["h"]] == [2, 3, 2]
    assert [dim.dim_value for dim in shapes["y"]] == [2, 3, 2]
    assert result.notes == ("output 'y' changed its type",)
    assert run(runtime, result.model, {"x": np.ones((2, 6), np.float32)})["y"].shape == (2, 3, 2)


def test_a_constant_node_of_another_shape_is_declared_anew(model_of):
    model = model_of("""
        g (float[2,3] x) => (float[1,2,3] y) <int64[2] shape> {
            shape = Constant <value = int64[2] {3, 2}> ()
            h = Reshape(x, shape)
            y = Reshape(h, last)
        }""")
    model.proto.graph.initializer.append(numpy_helper.from_array(np.array([1, 2, 3]), "last"))

    graph = SetConstant("shape", [3, 1, 2]).apply(model).model.proto.graph

    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in graph.value_info}
    assert shapes["shape"] == [3]


def test_what_did_not_fit_before_is_no_reason_to_refuse(model_of):
    model = model_of(CONCATENATED)
    model.proto.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.array([7, 3]), "shape"))

    assert SetConstant("shape", [8, 3]).apply(model).changed


@pytest.mark.parametrize("kind", ["int64[2,4]", "float[2,5]"])
def test_a_model_that_takes_other_inputs_does_not_replace_a_region(model_of, kind):
    other = model_of(f"n ({kind} a) => ({kind} c) {{ c = Abs(a) }}", "other.onnx")

    with pytest.raises(EditError, match=r"'x' float \[2, 4\] does not fit input 'a'"):
        Replace(("x",), ("t",), model=other).apply(model_of(CONCATENATED))


# --- the whole graph ---


def test_sorting_moves_only_what_is_out_of_order(model_of):
    model = model_of(
        "g (float[4] x) => (float[4] y) { a = Neg(x) b = Abs(a) c = Exp(x) y = Add(b, c) }"
    )
    nodes = list(model.proto.graph.node)
    del model.proto.graph.node[:]
    model.proto.graph.node.extend([nodes[1], nodes[0], nodes[2], nodes[3]])

    result = Sort().apply(model)

    assert [node.op_type for node in result.model.proto.graph.node] == ["Neg", "Abs", "Exp", "Add"]
    assert not Sort().apply(result.model).changed


def test_a_body_is_sorted_by_what_its_own_bodies_capture(model_of):
    model = model_of("""
        g (float[4] x, bool c) => (float[4] y) {
            y = If(c) <
                then_branch = t () => (float[4] q) {
                    u = Abs(x)
                    q = If(c) <
                        then_branch = tt () => (float[4] r) { r = Neg(u) },
                        else_branch = te () => (float[4] s) { s = Exp(u) }
                    >
                },
                else_branch = e () => (float[4] z) { z = Neg(x) }
            >
        }""")
    branch = next(a.g for a in model.proto.graph.node[0].attribute if a.name == "then_branch")
    nodes = list(branch.node)
    del branch.node[:]
    branch.node.extend(nodes[::-1])
    assert not check(model).valid

    edited(model, Sort())


def test_cleaning_keeps_what_annotations_bodies_and_defaults_need(model_of):
    model = model_of("""
        g (float[4] x, float[4] unused, bool c) => (float[4] y)
        <float[4] w = {1,1,1,1}, float[4] idle = {1,1,1,1}, float s = {0.5}> {
            u = Abs(x)
            dead = Exp(u)
            deader = Neg(dead)
            y = If(c) <
                then_branch = t () => (float[4] q) { l = Exp(u) q = Add(u, w) },
                else_branch = e () => (float[4] z) { z = Neg(u) }
            >
        }""")
    graph = model.proto.graph
    graph.quantization_annotation.add(tensor_name="u").quant_parameter_tensor_names.add(
        key="SCALE_TENSOR", value="s"
    )

    result = Clean().apply(model)

    kept = result.model.proto.graph
    assert [t.name for t in kept.initializer] == ["w", "s"]
    assert [node.op_type for node in kept.node] == ["Abs", "If"]
    branch = next(a.g for a in kept.node[1].attribute if a.name == "then_branch")
    assert [node.op_type for node in branch.node] == ["Add"]
    assert [value.name for value in kept.input] == ["x", "unused", "c"]
    assert not Clean().apply(result.model).changed


def test_faults_of_other_tools_are_put_right(model_of, runtime):
    model = model_of("g (float[4] x) => (float[4] y) { a = Neg(x) b = Abs(a) y = Exp(b) }")
    graph = model.proto.graph
    graph.node[1].output[0] = "a"  # a = Neg(x); a = Abs(a); y = Exp(a)
    graph.node[2].input[0] = "a"
    for node in graph.node:
        node.name = "same"
    del graph.value_info[:]
    graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, [7]))
    graph.value_info.append(helper.make_tensor_value_info("nothing", TensorProto.FLOAT, [4]))
    assert "'a' has two producers" in check(model).problem

    fixed = edited(model, Fix())

    assert np.allclose(run(runtime, fixed, {"x": X})["y"], np.exp(np.abs(X)))
    assert len({node.name for node in fixed.proto.graph.node}) == 3
    assert [v.type.tensor_type.shape.dim[0].dim_value for v in fixed.proto.graph.value_info] == [4]
    assert not Fix().apply(fixed).changed


def test_fix_finds_a_stale_size_behind_numbers_that_nodes_compute(model_of):
    model = model_of(
        "g (float[2,3] x, float[6] z) => (float[2,3] y) { s = Shape(x) h = Reshape(z, s) y = Relu(h) }"
    )
    declared = model.proto.graph.value_info
    declared.append(helper.make_tensor_value_info("h", TensorProto.FLOAT, [3, 2]))
    for info in list(declared)[:-1]:
        if info.name == "h":
            declared.remove(info)

    fixed = edited(model, Fix())

    (h,) = (info for info in fixed.proto.graph.value_info if info.name == "h")
    assert [dim.dim_value for dim in h.type.tensor_type.shape.dim] == [2, 3]


def test_a_body_that_shadows_an_outer_value_is_put_right(model_of, runtime):
    model = model_of("""
        g (float[4] x, bool c) => (float[4] y) {
            u = Abs(x)
            y = If(c) <
                then_branch = t () => (float[4] q) { u = Neg(x) q = Add(u, u) },
                else_branch = e () => (float[4] z) { z = Neg(x) }
            >
        }""")
    assert not check(model).valid

    fixed = edited(model, Fix())

    assert run(runtime, fixed, {"x": X, "c": np.array(True)})["y"].tolist() == (-2 * X).tolist()


# --- pipelines and recipes ---


def test_a_pipeline_names_the_pass_that_failed_and_those_before_it(whole):
    steps = Pipeline((Sort(), Rename((("23", "a"),)), SetOp(("Add_9",), "Sub"), Clean()))

    with pytest.raises(UnknownNameError) as caught:
        steps.apply(whole)

    assert caught.value.__notes__ == ["in pass 'set-op', step 3 of 4, after 'sort', 'rename'"]


WIDER = (SetConstant("shape", [2, 5]), SetConstant("b", [1, 2, 3, 4, 5]))


@pytest.mark.parametrize("steps", [WIDER, WIDER[::-1]], ids=["far first", "near first"])
def test_steps_that_fit_only_together_are_judged_by_their_end(steps, model_of, runtime):
    model = model_of(CONCATENATED.replace("float[2,7] y", "float[2,n] y"))
    for step in steps:
        with pytest.raises(EditError, match="do not fit"):
            step.apply(model)

    result = Pipeline(steps).apply(model).model

    declared = {info.name: info.type for info in result.proto.graph.value_info}
    assert [dim.dim_value for dim in declared["s"].tensor_type.shape.dim] == [2, 5]
    onnx.checker.check_model(result.proto, full_check=True)
    assert run(runtime, result, {"x": np.ones((2, 4), np.float32)})["y"].shape == (2, 9)


@pytest.mark.parametrize("steps", [WIDER[:1], (*WIDER, SetConstant("b", [1, 2, 3]))])
def test_steps_whose_end_does_not_fit_are_refused(steps, model_of):
    with pytest.raises(EditError, match="do not fit further on"):
        Pipeline((Sort(), Pipeline(steps), Sort())).apply(model_of(CONCATENATED))


def test_a_recipe_is_a_pipeline(tmp_path):
    (tmp_path / "recipe.toml").write_text("""
        [[step]]
        verb = "rename"
        names = {"31" = "out"}

        [[step]]
        verb = "set-attr"
        nodes = "Conv_6"
        attributes = {pads = [2, 2, 2, 2], dilations = [2, 2]}

        [[step]]
        verb = "freeze"
        values = {"input.1" = 0.5}
        fold = true
    """)

    assert read_recipe(tmp_path / "recipe.toml", PASSES) == Pipeline(
        (
            Rename((("31", "out"),)),
            SetAttr(("Conv_6",), (("pads", [2, 2, 2, 2]), ("dilations", [2, 2]))),
            Freeze((("input.1", 0.5),), fold=True),
        )
    )


STEPS = [
    *(step for step, _ in CONTRACT.values() if step.name != "script"),
    Script("patch.py"),
    SetShape({"x": ("N", 3, "H", 8), "left": (1,)}, "second.onnx"),
    Rebatch(7, ("x",), 1, "second.onnx"),
    Replace(("a",), ("b",), model="other.onnx"),
    Insert("x", "Clip", ("x", "", "most"), (("list", [1, 2]),), "domain", ("@2",), True, "v", "n"),
    BatchOutputs(4, {"all": ("rows",)}, {"all": -1.0}),
]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_recipe_can_say_every_step(step, tmp_path):
    write_recipe([step], tmp_path / "recipe.toml")

    read = read_recipe(tmp_path / "recipe.toml", PASSES, allow_scripts=step.name == "script")
    assert read == Pipeline((step,))


def test_a_recipe_leaves_out_what_has_a_default_and_takes_names_alone(tmp_path):
    (tmp_path / "recipe.toml").write_text("""
        [[step]]
        verb = "pad-outputs"
        most = 4
        fill = {labels = -1}

        [[step]]
        verb = "freeze"
        values = ["w"]
    """)

    read = read_recipe(tmp_path / "recipe.toml", PASSES)

    assert read == Pipeline((PadOutputs(4, fill={"labels": -1.0}), Freeze((("w", None),))))


# --- random graphs ---


@st.composite
def models_with_loops(draw) -> onnx.ModelProto:
    """Random graphs, and behind them a Loop whose body calls its state by the name of an outer value."""
    proto = draw(random_models())
    graph = proto.graph
    values = ["x0", "x1", *(n.output[0] for n in graph.node if n.op_type != "Split")]
    initial, captured, shadowed = (draw(st.sampled_from(values)) for _ in range(3))
    assume(captured != shadowed)
    vector = helper.make_tensor_type_proto(1, [4])
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["go on"]),
            helper.make_node("Add", [shadowed, captured], ["sum"]),
            helper.make_node("Tanh", ["sum"], ["bounded"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", 7, []),
            helper.make_tensor_value_info("going", 9, []),
            helper.make_value_info(shadowed, vector),
        ],
        [
            helper.make_tensor_value_info("go on", 9, []),
            helper.make_value_info("bounded", vector),
        ],
    )
    last = graph.output[0].name
    graph.initializer.append(helper.make_tensor("trips", 7, [], [2]))
    graph.node.append(helper.make_node("Loop", ["trips", "yes", initial], ["looped"], body=body))
    graph.node.append(helper.make_node("Add", ["looped", last], ["result"]))
    graph.output[0].name = "result"
    return proto


def loaded(proto: onnx.ModelProto, folder) -> Model:
    onnx.save(proto, folder / "random.onnx")
    return load(folder / "random.onnx")


def values_of(model: Model) -> list[str]:
    return list(GraphIndex.of(model).values())


@SLOW
@given(models_with_loops(), st.data())
def test_renamed_values_of_a_random_graph_compute_what_they_did(tmp_path, runtime, proto, data):
    model = edited(loaded(proto, tmp_path), Sort())
    expected = run(runtime, model, FEEDS)["result"]
    names = values_of(model)
    old = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=6, unique=True))
    other = st.one_of(
        st.sampled_from(["inner", "out", "sum", "bounded", "i"]), st.sampled_from(old)
    )
    new = data.draw(st.lists(other, min_size=len(old), max_size=len(old), unique=True))
    stay = set(names) - set(old)
    assume(stay.isdisjoint(new))

    renamed = edited(model, Rename(tuple((f"name:{o}", n) for o, n in zip(old, new, strict=True))))

    names = dict(zip(old, new, strict=True))
    feeds = {names.get(name, name): value for name, value in FEEDS.items()}
    result = run(runtime, renamed, feeds)[names.get("result", "result")]
    assert np.array_equal(result, expected, equal_nan=True)
    back = Rename(tuple((f"name:{n}", o) for o, n in names.items())).apply(renamed).model
    assert np.array_equal(run(runtime, back, FEEDS)["result"], expected, equal_nan=True)


@SLOW
@given(models_with_loops(), st.data())
def test_an_identity_put_in_and_taken_out_changes_nothing(tmp_path, runtime, proto, data):
    model = edited(loaded(proto, tmp_path), Sort())
    value = data.draw(st.sampled_from([n for n in values_of(model) if n not in ("yes", "trips")]))

    there = edited(model, Insert(f"name:{value}", "Identity", node_name="put in"))
    back = edited(there, Remove(("put in",)))

    expected = run(runtime, model, FEEDS)["result"]
    assert np.array_equal(run(runtime, there, FEEDS)["result"], expected, equal_nan=True)
    assert back.proto == model.proto


@SLOW
@given(models_with_loops())
def test_sorting_cleaning_and_fixing_a_random_graph_keep_what_it_computes(tmp_path, runtime, proto):
    model = loaded(proto, tmp_path)
    expected = run(runtime, model, FEEDS)["result"]

    for step in (Sort(), Pipeline((Sort(), Clean())), Fix(), Pipeline((Fix(), Clean()))):
        result = edited(model, step)

        assert np.array_equal(run(runtime, result, FEEDS)["result"], expected, equal_nan=True)
        assert not step.apply(result).changed


@settings(SLOW, max_examples=10)
@given(models_with_loops(), st.data())
def test_a_frozen_input_of_a_random_graph_is_fed_no_more(tmp_path, runtime, proto, data):
    model = edited(loaded(proto, tmp_path), Sort())
    name = data.draw(st.sampled_from(["x0", "x1"]))
    expected = run(runtime, model, FEEDS)["result"]

    for fold in (False, True):
        frozen = edited(model, Freeze(((name, FEEDS[name]),), fold=fold))
        feeds = {other: value for other, value in FEEDS.items() if other != name}

        assert np.allclose(run(runtime, frozen, feeds)["result"], expected, equal_nan=True)


@pytest.mark.parametrize(
    "words",
    [
        ["rename", "m.onnx", "23=features", "31=out"],
        ["promote", "m.onnx", "convs1.0.bias,convs1.1.bias"],
        ["set-constant", "m.onnx", "convs1.0.bias", "0"],
        ["insert", "m.onnx", "31", "Softmax"],
        [
            "set",
            "m.onnx",
            "doc_string=hi",
            "producer_name=",
            "metadata.author=Ada",
            "opset_import.my.ops=1",
        ],
        ["set", "m.onnx", "graph.name=other", "model_version=3"],
        ["annotate", "m.onnx", "op:Conv", "layer_ann=tail", "reviewed=yes"],
        ["set-type", "m.onnx", "input.1=uint8", "31=float16"],
        ["set-layout", "m.onnx", "input.1=NHWC", "31=NCHW->NWHC"],
        ["append", "m.onnx", "best = ArgMax(scores, axis=1)", "--map", "31=scores"],
        ["prepend", "m.onnx", "x = image / 255", "--map", "x=input.1"],
        ["add-constant", "m.onnx", "half=0.5"],
        ["gradient", "m.onnx", "--of", "31", "--to", "input.1"],
        ["rebatch", "m.onnx"],
        ["infer", "m.onnx"],
        ["remove", "m.onnx", "Conv_10"],
        ["clean", "m.onnx"],
    ],
)
def test_undo_on_the_command_line_is_a_recipe(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(FIXTURES / "whole_model.onnx", "m.onnx")
    there = ["edit", *words, "-o", "there.onnx", "--undo", "back.toml"]
    back = ["edit", "apply", "back.toml", "there.onnx", "-o", "back.onnx"]

    for command in (there, back):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output

    assert Path("back.onnx").read_bytes() == Path("m.onnx").read_bytes()


def test_an_order_of_inputs_and_outputs_is_taken_back(model_of):
    model = model_of(
        "g (float[2] a, float[2] b, float[2] c) => (float[2] y, float[2] z) { y = Add(a, b) z = Neg(c) }"
    )
    there = Reorder(inputs=("c",), outputs=("z",)).apply(model).model

    back = Restore.undoing(model, there).apply(there).model

    assert there.proto != model.proto == back.proto


def test_undo_brings_back_numbers_of_a_data_file_from_a_file_beside_the_recipe(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    text = "g (float[2, 300] x) => (float[2, 300] y) { y = MatMul(x, w) }"
    weight = np.random.default_rng(0).normal(size=(300, 300)).astype(np.float32)
    save(add_initializers(parse_text(text), {"w": weight}), "m.onnx", external=True)
    there = ["edit", "set-constant", "m.onnx", "w", "0", "-o", "there.onnx", "--undo", "back.toml"]
    back = ["edit", "apply", "back.toml", "there.onnx", "-o", "back.onnx"]

    for command in (there, back):
        assert CliRunner().invoke(app, command).exit_code == 0

    (tensor,) = onnx.load("back.onnx").graph.initializer
    assert Path("back.1.onnx").exists()
    assert np.array_equal(numpy_helper.to_array(tensor), weight)


def test_an_edit_in_place_is_taken_back_though_its_weights_are_gone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    large = {name: np.random.default_rng(0).normal(size=(300, 300)) for name in "ab"}
    text = (
        "g (double[300] x) => (double[300] y, double[300] z) { y = MatMul(x, a) z = MatMul(x, b) }"
    )
    save(add_initializers(parse_text(text), large), "m.onnx")
    before = Path("m.onnx").read_bytes()
    there = ["edit", "remove-output", "m.onnx", "z", "--in-place", "--undo", "back.toml"]

    for command in (there, ["edit", "apply", "back.toml", "m.onnx", "--in-place"]):
        assert CliRunner().invoke(app, command).exit_code == 0

    assert Path("m.onnx").read_bytes() == before
    assert Path("back.1.onnx").stat().st_size < len(before) * 0.6  # the half that was removed


def test_a_recipe_that_takes_back_another_edit_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = str(FIXTURES / "whole_model.onnx")
    edit = ["edit", "remove", model, "Conv_10", "-o", "there.onnx", "--undo", "back.toml"]

    assert CliRunner().invoke(app, edit).exit_code == 0
    done = CliRunner().invoke(app, ["edit", "apply", "back.toml", model, "-o", "back.onnx"])

    assert done.exit_code == 2
    assert "takes back an edit that did not make this model" in done.output


def test_the_process_that_infers_is_forked_before_a_large_model_is_loaded(monkeypatch):
    """It would hold the model, too."""
    order = []
    monkeypatch.setattr(api_edit, "_LARGE", 100)
    monkeypatch.setattr(native, "begin", lambda: order.append("fork"))
    monkeypatch.setattr(model_package, "loaded", lambda path: order.append("load") or load(path))

    api_edit.applied(lambda: SetOp(("Add_7",), "Sub"), FIXTURES / "whole_model.onnx")

    assert order == ["fork", "load"]


@pytest.mark.parametrize(
    ("opset", "nodes"),
    [
        (
            21,
            "h, rm, rv = BatchNormalization<training_mode = 1>(x, s, b, m, v) y, mask = Dropout(h, r, t)",
        ),
        (9, "h, rm, rv, sm, sv = BatchNormalization(x, s, b, m, v) y = Dropout<ratio = 0.5>(h)"),
        (6, "h, rm = BatchNormalization(x, s, b, m, v) y = Dropout(h)"),
    ],
)
def test_normalizations_and_dropouts_compute_as_in_inference(model_of, opset, nodes):
    start = f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[2,3] x)'
    held = """<float[3] s = {1,1,1}, float[3] b = {0,0,0}, float[3] m = {1,2,3}, float[3] v = {1,1,1},
        float r = {0.5}, bool t = {1}>"""
    model = model_of(f"{start} => (float[2,3] y, float[3] rm) {held} {{ {nodes} }}")

    result = Inference().apply(model)

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    kinds = [node.op_type for node in result.model.proto.graph.node]
    assert kinds == ["BatchNormalization", "Identity", "Dropout"]
    assert not Inference().apply(result.model).changed
    if opset > 6:
        found = run_model(result.model, {"x": x})
        assert np.allclose(found["y"], x - [1, 2, 3], atol=1e-4)
        assert found["rm"].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    "step",
    [
        Insert("h", "Gelu", domain="com.microsoft"),
        Replace(("h",), ("g",), "Gelu", domain="com.microsoft"),
        SetOp(("op:Neg",), "Gelu", "com.microsoft"),
    ],
)
def test_a_domain_that_is_not_imported_is_imported(model_of, step):
    result = step.apply(
        model_of("g (float[2] x) => (float[2] y) { h = Relu(x) g = Neg(h) y = Abs(g) }")
    )

    assert result.notes[0] == "domain 'com.microsoft' is imported at version 1"
    assert "y" in run_model(result.model, {"x": np.ones(2, np.float32)})
