"""Models from text and from the builder: valid, run against numpy, and refused with the place of the mistake."""

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

from kit import FIXTURES
from onnxsurgeon_lite import Builder, load
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import BuildError, EditError, SurgeonError, UnknownNameError
from onnxsurgeon_lite.graph.check import check
from onnxsurgeon_lite.graph.summary import model_text
from onnxsurgeon_lite.matching.diff import diff
from onnxsurgeon_lite.passes.build import add_initializers, parse_text
from onnxsurgeon_lite.runtime.session import run_model

LINEAR = """linear (float[2] a, float[2] x, float[2] b) => (float[2] y) {
    c = Mul(a, x)
    y = Add(c, b)
}
"""
X = np.array([3, -4], np.float32)


def test_the_tutorials_function_is_built_and_runs():
    model = parse_text(LINEAR)

    outputs = run_model(model, {"a": X, "x": X, "b": X})

    assert check(model, full=True).valid
    assert np.array_equal(outputs["y"], X * X + X)


def test_what_is_printed_can_be_built():
    model = load(FIXTURES / "linear_func.onnx")

    assert diff(model, parse_text(model_text(model))).same


@pytest.mark.parametrize("size", [2, 1000])
def test_an_array_takes_the_place_of_an_input(tmp_path, size):
    array = np.arange(size, dtype=np.float32)
    np.save(tmp_path / "a.npy", array)
    text = LINEAR.replace("float[2]", f"float[{size}]")

    model = add_initializers(parse_text(text), {"a": tmp_path / "a.npy"})

    assert [value.name for value in model.proto.graph.input] == ["x", "b"]
    outputs = run_model(model, {"x": array, "b": array})
    assert np.array_equal(outputs["y"], array * array + array)


def test_an_array_may_be_for_a_name_that_is_only_read(tmp_path):
    np.save(tmp_path / "w.npy", np.asfortranarray(np.arange(6.0).reshape(2, 3)))

    model = add_initializers(
        parse_text("g (double[2] x) => (double[3] y) { y = MatMul(x, w) }"),
        {"w": tmp_path / "w.npy"},
    )

    outputs = run_model(model, {"x": np.array([1.0, 2.0])})
    assert outputs["y"].tolist() == [6.0, 9.0, 12.0]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(3, np.float32), r"holds float \[3\], 'a' is declared as float \[2\]"),
        (np.zeros(2), r"holds double \[2\], 'a' is declared as float \[2\]"),
    ],
)
def test_an_array_that_does_not_fit_is_refused(tmp_path, array, message):
    np.save(tmp_path / "a.npy", array)

    with pytest.raises(BuildError, match=message):
        add_initializers(parse_text(LINEAR), {"a": tmp_path / "a.npy"})


def test_what_is_no_array_is_refused(tmp_path):
    (tmp_path / "a.npy").write_text("no array")
    np.save(tmp_path / "object.npy", np.array([{}]), allow_pickle=True)

    for name in ("a.npy", "object.npy", "missing.npy"):
        with pytest.raises(BuildError, match=f"cannot read initializer 'a' from .*{name}"):
            add_initializers(parse_text(LINEAR), {"a": tmp_path / name})
    with pytest.raises(UnknownNameError) as caught:
        add_initializers(parse_text(LINEAR), {"aa": tmp_path / "a.npy"})
    assert caught.value.closest == ["a"]


def test_a_mistake_in_a_text_is_told_with_its_line():
    with pytest.raises(
        BuildError, match=r"not a model: \[ParseError at position \(line: 4 column: 1\)\]"
    ):
        parse_text(LINEAR.replace("Add(c, b)", "Add(c, b"))


def test_the_command_builds_what_is_valid_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "linear.txt").write_text(LINEAR)
    (tmp_path / "bad.txt").write_text(LINEAR.replace("Mul", "Nul"))
    np.save(tmp_path / "a.npy", X)

    built = CliRunner().invoke(app, ["build", "linear.txt", "--initializer", "a=a.npy"])
    refused = CliRunner().invoke(app, ["build", "bad.txt"])

    assert built.output == "wrote 'linear.build.onnx'\n"
    assert np.array_equal(run_model(load("linear.build.onnx"), {"x": X, "b": X})["y"], X * X + X)
    assert refused.exit_code == 2
    assert "No Op registered for Nul" in refused.output
    assert not (tmp_path / "bad.build.onnx").exists()


# the builder


def test_a_built_model_is_what_its_text_says():
    g = Builder()
    a, x, b = (g.input(name, "float", [2]) for name in "axb")
    g.output("y", g.op("Add", g.op("Mul", a, x), b))

    assert diff(g.model("linear"), parse_text(LINEAR)).differences[1:] == []
    assert np.array_equal(run_model(g.model(), {"a": X, "x": X, "b": X})["y"], X * X + X)


def test_types_of_outputs_are_inferred():
    g = Builder()
    x = g.input("x", "float", ["N", 3])
    g.output("y", g.op("MatMul", x, g.constant(np.zeros((3, 5), np.float32))))

    (output,) = g.model().proto.graph.output
    dims = output.type.tensor_type.shape.dim
    assert (dims[0].dim_param, dims[1].dim_value) == ("N", 5)


def test_omitted_inputs_several_outputs_and_attributes():
    g = Builder()
    x = g.input("x", "float", [4])
    low, high = g.ops("Split", 2, x, axis=0, num_outputs=2)
    limited = g.op("Clip", g.op("Add", low, high), None, g.constant(np.float32(1)))
    g.output("y", limited)

    outputs = run_model(g.model(), {"x": np.array([0, 1, 0.5, 2], np.float32)})

    assert outputs["y"].tolist() == [0.5, 1]


def test_a_body_reads_the_values_around_it():
    g = Builder()
    x, c = g.input("x", "float", [2]), g.input("c", "bool", [])
    h = g.op("Relu", x)
    yes, no = g.body(), g.body()
    yes.output("p", yes.op("Add", h, h))
    no.output("q", no.op("Neg", h))
    g.output("y", g.op("If", c, then_branch=yes, else_branch=no))
    model = g.model()

    assert check(model, full=True).valid
    for condition, expected in ((True, [6, 0]), (False, [-3, 0])):
        outputs = run_model(model, {"x": X, "c": np.array(condition)})
        assert outputs["y"].tolist() == expected


def test_an_input_and_a_value_twice_can_be_outputs():
    g = Builder()
    x = g.input("x", "float", [2])
    h = g.op("Neg", x)
    for name, value in (("a", x), ("b", h), ("c", h)):
        g.output(name, value)

    outputs = run_model(g.model(), {"x": X})

    assert [outputs[name].tolist() for name in "abc"] == [[3, -4], [-3, 4], [-3, 4]]


def test_made_up_names_keep_clear_of_given_ones():
    g = Builder()
    x = g.input("v0", "float", [2])
    g.output("v1", g.op("Neg", g.op("Abs", x)))

    onnx.checker.check_model(g.model().proto, full_check=True)


def test_two_values_of_one_name_and_foreign_values_are_refused():
    g = Builder()
    x = g.input("x", "float", [2])
    g.output("x", g.op("Neg", x))
    with pytest.raises(BuildError, match="two values have the name 'x'"):
        g.model()

    other = Builder()
    other.output("y", other.op("Neg", x))
    with pytest.raises(BuildError, match="another builder"):
        other.model()


@pytest.mark.parametrize(
    ("add", "says"),
    [
        (lambda g, x, n: g.op("Reluu", x), "no operator 'Reluu'"),
        (lambda g, x, n: g.op("Relu", x, x), "takes 1 inputs, the node has 2"),
        (lambda g, x, n: g.op("Softmax", x, axes=1), "has no attribute 'axes'"),
        (lambda g, x, n: g.op("Add", x, n), "has type tensor\\(int64\\)"),
        (lambda g, x, n: g.op("MatMul", g.op("Transpose", x, perm=[1, 0]), g.op("Transpose", x, perm=[1, 0])),
         "types do not fit"),
        (lambda g, x, n: g.body().op("Add", x, n), "has type tensor\\(int64\\)"),
    ],
)  # fmt: skip
def test_a_builder_refuses_a_wrong_node_where_it_is_added(add, says):
    g = Builder()
    x, n = g.input("x", "float", [2, 3]), g.constant(np.array([1, 2]))

    with pytest.raises(SurgeonError, match=says):
        add(g, x, n)

    assert g._nodes == [] or g._nodes[-1].op_type == "Transpose"  # what was right before it


def test_numbers_stand_where_a_value_may_and_get_the_dtype_that_is_needed_there():
    g = Builder()
    x = g.input("x", "float16", [2, 2])
    doubled = g.op("Mul", x, 2)
    g.output("y", g.op("Reshape", doubled, [-1]))
    g.output("z", g.op("Add", x, np.ones(2, np.float16)))

    result = run_model(g.model(), {"x": np.full((2, 2), 1.5, np.float16)})

    assert result["y"].tolist() == [3, 3, 3, 3]
    assert result["z"].dtype == np.float16
    with pytest.raises(EditError, match="is int64, which cannot hold"):
        g.op("Reshape", x, [0.5])
