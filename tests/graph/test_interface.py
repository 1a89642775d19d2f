"""What a model shows to its users: dtypes, layouts, inputs and outputs, the header; and numbers as operands."""

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit import FIXTURES
from kit.graphs import run
from onnxsurgeon_lite import Model
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import EditError, UnknownNameError

WHOLE = FIXTURES / "whole_model.onnx"
MOVED = """moved (float[1,2,3] x) => (float[3,2] y) <int64[2] shape = {2,3}> {
    r = Reshape(x, shape) t = Transpose<perm = [1,0]>(r) y = Neg(t)
}"""
LOOKUP = """lookup (int64[3] ids) => (float[3,2] y, int64[3] z) <float[4,2] w = {1,2,3,4,5,6,7,8}> {
    flat = Identity(ids) e = Gather(w, flat) y = Neg(e) z = Add(flat, ids)
}"""
LATE = """late (float[2,3] x) => (float[3,2] y) { n = Neg(x) y = Transpose<perm = [1,0]>(n) }"""


def built(text: str) -> Model:
    return Model(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>\n{text}'))


def order(model: Model) -> list[str]:
    return [node.op_type for node in model.proto.graph.node]


def test_an_input_takes_another_dtype_by_a_cast(runtime):
    model = built(MOVED)
    image = np.arange(6, dtype=np.uint8).reshape(1, 2, 3)

    result = osl.set_type(model, {"x": "uint8"}).model

    assert order(result) == ["Cast", "Reshape", "Transpose", "Neg"]
    expected = run(runtime, model, {"x": image.astype(np.float32)})["y"]
    assert np.array_equal(run(runtime, result, {"x": image})["y"], expected)


def test_a_cast_goes_inward_over_nodes_that_only_move(runtime):
    model = built(MOVED)
    image = np.arange(6, dtype=np.uint8).reshape(1, 2, 3)

    result = osl.set_type(model, {"x": "uint8"}, inward=True).model

    assert order(result) == ["Reshape", "Transpose", "Cast", "Neg"]
    onnx.checker.check_model(result.proto, full_check=True)
    expected = run(runtime, model, {"x": image.astype(np.float32)})["y"]
    assert np.array_equal(run(runtime, result, {"x": image})["y"], expected)


def test_indices_take_int32_themselves_and_sums_do_not(runtime):
    model = built(LOOKUP)
    ids = np.array([3, 0, 2])

    result = osl.set_type(model, {"ids": "int32"}, inward=True).model

    gather = next(node for node in result.proto.graph.node if node.op_type == "Gather")
    made = {name: node.op_type for node in result.proto.graph.node for name in node.output}
    assert made[gather.input[1]] == "Identity"
    assert order(result).count("Cast") == 2
    expected = run(runtime, model, {"ids": ids})
    actual = run(runtime, result, {"ids": ids.astype(np.int32)})
    assert all(np.array_equal(actual[name], expected[name]) for name in expected)
    assert actual["z"].dtype == np.int64


FORKED = """forked (float[2,3] x, bool cond) => (float[3,2] y, float[6] z, float[2,3] w) <int64[1] flat = {-1}> {
    t = Transpose<perm = [1,0]>(x) s = Identity(t) y = Identity(s) f = Reshape(x, flat)
    g = Reshape(f, flat) z = Neg(g)
    w = If(cond) <then_branch = a () => (float[2,3] p) { p = Identity(x) },
        else_branch = b () => (float[2,3] q) { k = Transpose<perm = [1,0]>(t) q = Neg(k) }>
}"""


def test_casts_stop_where_a_body_or_an_output_needs_the_value(runtime):
    model = built(FORKED)
    x = np.arange(6, dtype=np.uint8).reshape(2, 3)

    result = osl.set_type(model, {"x": "uint8"}, inward=True).model

    onnx.checker.check_model(result.proto, full_check=True)
    made = {node.output[0]: node for node in result.proto.graph.node}
    assert {name for name, node in made.items() if node.op_type == "Cast"} == {
        "x_cast", "t", "y", "g",
    }  # fmt: skip
    for cond in np.array([True, False]):
        expected = run(runtime, model, {"x": x.astype(np.float32), "cond": cond})
        actual = run(runtime, result, {"x": x, "cond": cond})
        assert all(np.array_equal(actual[name], expected[name]) for name in expected)


def test_an_output_takes_another_dtype_before_what_moves_it(runtime):
    model = built(LATE)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)

    result = osl.set_type(model, {"y": "float16"}, inward=True).model

    assert order(result) == ["Neg", "Cast", "Transpose"]
    actual = run(runtime, result, {"x": x})["y"]
    assert actual.dtype == np.float16
    assert np.array_equal(actual, run(runtime, model, {"x": x})["y"])


def test_a_cast_of_an_earlier_edit_is_taken_away_and_one_of_the_author_stays():
    model = built(MOVED)
    own = built("g (float[2] x) => (float16[2] y) { a = Neg(x) y = Cast<to = 10>(a) }")

    there = osl.set_type(model, {"x": "uint8", "y": "double"}).model
    back = osl.set_type(there, {"x": "float", "y": "float"}).model

    assert there.proto != model.proto == back.proto
    assert order(osl.set_type(own, {"y": "float"}).model) == ["Neg", "Cast", "Cast"]


def test_a_transpose_of_an_earlier_edit_is_taken_away_if_the_new_one_undoes_it():
    model = built("g (float[2,2,2] x) => (float[2,2,2] y) { y = Neg(x) }")
    there = osl.set_layout(model, {"x": "ABC->BCA", "y": "ABC->CAB"}).model

    back = osl.set_layout(there, {"x": "BCA->ABC", "y": "CAB->ABC"}).model
    more = osl.set_layout(there, {"x": "BCA->BAC"}).model

    assert there.proto != model.proto == back.proto
    assert order(more).count("Transpose") == 3


@pytest.mark.parametrize(
    ("types", "said"),
    [
        ({"n": "uint8"}, "no input or output 'n'"),
        ({"x": "int7"}, "no dtype 'int7'"),
        ({"x": "f4,("}, "no dtype"),
        ({"x": "b,=1"}, "no dtype"),
    ],
)
def test_what_cannot_get_a_dtype_is_said(types, said):
    with pytest.raises(UnknownNameError, match=said):
        osl.set_type(built(LATE), types)


def test_inputs_and_outputs_take_another_layout(runtime):
    model = osl.load(WHOLE)
    image = np.random.default_rng(0).normal(size=(1, 20, 20, 3)).astype(np.float32)

    edited = osl.set_layout(model, {"input.1": "NHWC", "31": "NHWC"})
    result = edited.model

    assert edited.changes[1] == "output '31': NCHW [1, 3, 20, 20] -> NHWC [1, 20, 20, 3]"
    expected = run(runtime, model, {"input.1": image.transpose(0, 3, 1, 2)})["31"]
    actual = run(runtime, result, {"input.1": image})["31"]
    assert np.array_equal(actual, expected.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("layout", ["NHC", "NHWX", "NNCH", "NCHW->NHW"])
def test_a_layout_that_does_not_fit_is_said(layout):
    with pytest.raises(EditError):
        osl.set_layout(WHOLE, {"input.1": layout})


def test_an_input_that_is_read_stays_and_one_with_a_default_becomes_a_constant():
    opened = osl.promote(WHOLE, "convs1.0.bias", default=True).model

    with pytest.raises(EditError, match="'input.1' is read by Conv"):
        osl.remove_input(opened, "input.1")
    result = osl.remove_input(opened, "convs1.0.bias").model

    assert [info.name for info in result.proto.graph.input] == ["input.1"]
    assert osl.run(result)["31"].shape == (1, 3, 20, 20)


def test_an_output_goes_and_the_last_one_stays():
    exposed = osl.expose(WHOLE, "23").model

    result = osl.remove_output(exposed, "23")

    assert [info.name for info in result.model.proto.graph.output] == ["31"]
    with pytest.raises(EditError, match="none would be left"):
        osl.remove_output(result.model, "31")


def test_inputs_and_outputs_are_reordered():
    exposed = osl.expose(WHOLE, ["23", "25"]).model

    result = osl.reorder(exposed, outputs="25")

    assert [info.name for info in result.model.proto.graph.output] == ["25", "31", "23"]
    assert not osl.reorder(result.model, outputs="25").changed


def test_everything_in_the_header_is_set_by_its_name():
    result = osl.set(
        WHOLE,
        {
            "producer_name": "me", "doc_string": "of the model", "model_version": 3, "metadata.author": "Ada",
            "opset_import.com.microsoft": 1, "graph.name": "net", "producer_version": "",
        },
    )  # fmt: skip
    proto = result.model.proto

    assert (proto.producer_name, proto.doc_string, proto.model_version) == ("me", "of the model", 3)
    assert [(entry.key, entry.value) for entry in proto.metadata_props] == [("author", "Ada")]
    assert {o.domain: o.version for o in proto.opset_import}["com.microsoft"] == 1
    assert proto.graph.name == "net"
    assert not osl.set(result.model, {"metadata.author": "Ada"}).changed
    assert not osl.set(result.model, {"metadata.author": ""}).model.proto.metadata_props


def test_an_ir_version_below_what_the_model_needs_is_told():
    result = osl.set(WHOLE, {"ir_version": "3"})

    assert result.notes == ("the model needs IR version 8, it says 3",)


def test_nodes_in_bodies_and_functions_have_fields_too():
    model = built("""body (float[4] x, bool flag) => (float[4] y) { y = If(flag) <
        then_branch = t () => (float[4] o) { o = Neg(x) }, else_branch = f () => (float[4] u) { u = local.twice(x) }>
    }
    <domain: "local", opset_import: ["" : 21]> twice (a) => (b) { b = Add(a, a) }""")
    model.proto.opset_import.add(domain="local", version=1)

    inner = osl.set(model, {"name": "minus", "metadata.why": "sign"}, "@0/then_branch/@0").model
    result = osl.set(inner, {"doc_string": "a sum"}, "fn:local::twice").model

    node = result.proto.graph.node[0].attribute[0].g.node[0]
    assert (node.name, node.metadata_props[0].value) == ("minus", "sign")
    assert result.proto.functions[0].doc_string == "a sum"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["colour=red"], "no field 'colour'"),
        (["model_version=new"], "model_version is a number, 'new' is not"),
        (["fn:local::x", "doc_string=a"], "no function 'fn:local::x'"),
        ([], "Missing argument"),
        (["@3"], "no field is given"),
    ],
)
def test_a_field_that_cannot_be_set_is_said(words, said):
    done = CliRunner().invoke(app, ["edit", "set", str(WHOLE), *words, "--dry-run"])

    assert done.exit_code == 2
    assert said in done.stderr


@pytest.mark.parametrize(
    ("op_type", "inputs", "dtype", "expected"),
    [
        ("Mul", ["2.0"], TensorProto.FLOAT, 2),
        ("Mul", ["2"], TensorProto.FLOAT, 2),
        ("Sub", ["[[[1]],[[2]],[[3]]]", "23"], TensorProto.FLOAT, [[[1]], [[2]], [[3]]]),
        ("Reshape", ["[0,-1]"], TensorProto.INT64, [0, -1]),
    ],
)
def test_a_number_stands_where_a_value_may(op_type, inputs, dtype, expected):
    tail = osl.extract(WHOLE, outputs="23").model

    result = osl.insert(tail, "23", op_type, inputs)

    tensor = result.model.proto.graph.initializer[-1]
    assert tensor.data_type == dtype
    assert result.model.array(tensor).tolist() == expected


def test_a_name_that_is_a_number_means_the_value():
    result = osl.insert(WHOLE, "24", "Add", ["24", "23"])

    assert list(result.model.proto.graph.node[4].input) == ["24", "23"]


def test_readers_and_regions_take_numbers_too(runtime):
    rewired = osl.rewire(WHOLE, "25", "0.5", to="Add_7").model
    replaced = osl.replace(WHOLE, ["23", "0.25"], "25", "Mul").model

    assert replaced.array(replaced.proto.graph.initializer[-1]).tolist() == 0.25
    assert rewired.array(rewired.proto.graph.initializer[-1]).tolist() == 0.5
    x = np.ones((1, 3, 20, 20), np.float32)
    assert run(runtime, rewired, {"input.1": x})["31"].shape == (1, 3, 20, 20)


def test_constants_are_added_from_numbers_and_files(tmp_path):
    np.save(tmp_path / "eye.npy", np.eye(2))

    result = osl.add_constant(WHOLE, {"half": 0.5, "eye": str(tmp_path / "eye.npy"), "ids": [1, 2]})

    tensors = {t.name: t for t in result.model.proto.graph.initializer}
    kinds = [tensors[name].data_type for name in ("half", "eye", "ids")]
    assert kinds == [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64]
    with pytest.raises(EditError, match="'half' exists already"):
        osl.add_constant(result.model, {"half": 1})
    with pytest.raises(EditError, match="which is not a number"):
        osl.add_constant(WHOLE, {"broken": "[1,2"})
    for name in ("@0/body/half", "fn:local::twice/half"):
        with pytest.raises(EditError, match="constants are added to the main graph"):
            osl.add_constant(WHOLE, {name: 0.5})


def test_a_small_constant_is_shown_whole(tmp_path):
    model = osl.add_constant(WHOLE, {"small": [0.1, -2], "large": np.zeros(65)}).model
    osl.save(model, tmp_path / "m.onnx")

    shown = [
        json.loads(CliRunner().invoke(app, ["inspect", str(tmp_path / "m.onnx"), "--value", name, "--json"]).stdout)
        for name in ("small", "large")
    ]  # fmt: skip

    assert [value["numbers"] for value in shown] == ["[0.1, -2.0]", ""]


def test_a_glob_names_inputs_and_outputs(model_of):
    model = model_of("""g (float[2] x, float[2] spare_a, float[2] spare_b)
        => (float[2] y, float[2] past_k, float[2] past_v) { y = Neg(x) past_k = Abs(x) past_v = Exp(x) }""")

    ordered = osl.reorder(model, outputs="past_*").model
    left = osl.remove_input(osl.remove_output(ordered, "past_*").model, "spare_*").model

    assert [value.name for value in ordered.proto.graph.output] == ["past_k", "past_v", "y"]
    assert [value.name for value in left.proto.graph.output] == ["y"]
    assert [value.name for value in left.proto.graph.input] == ["x"]


def test_a_header_that_makes_the_model_invalid_is_noted():
    model = osl.build("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[2,3] x) => (float[2,1] y) { y = ReduceMean <axes = [1]> (x) }""")

    notes = [osl.set(model, {"opset_import.ai.onnx": str(v)}).notes for v in (16, 18)]
    (problem,) = notes[1]

    assert not notes[0]
    assert problem.startswith("the model is not valid any more: Unrecognized attribute: axes")
