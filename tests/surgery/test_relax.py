"""Declared sizes that hang on a promoted constant: unknown while it is an input, then as they were."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import shape_inference

from onnxsurgeon_lite import Freeze, Model, Promote, SetConstant, save

RESIZE = """
    g (float[1,3,2,2] x) => (float[1,3,4,4] y)
    <float[4] scales = {1, 1, 2, 2}, float[3] bias = {1, 2, 3}, float[3,3,1,1] w = {1,0,0,0,1,0,0,0,1}> {
        before = Relu(x)
        large = Resize<mode = "nearest">(before, , scales)
        y = Conv(large, w, bias)
    }"""
SIZES = """
    g (float[1,3,2,2] x) => (float[1,3,4,4] y) <int64[2] two = {4, 4}> {
        shape = Shape<start = 0, end = 2>(x)
        sizes = Concat<axis = 0>(shape, two)
        y = Resize<mode = "nearest">(x, , , sizes)
    }"""
SCALES = np.array([1, 1, 2, 2], np.float32)


def sizes(model: Model, name: str) -> list[int | str | None] | None:
    """What is declared of a value's sizes."""
    graph = model.proto.graph
    kind = next(i.type for i in (*graph.value_info, *graph.output) if i.name == name).tensor_type
    if not kind.HasField("shape"):
        return None
    return [getattr(dim, dim.WhichOneof("value") or "", None) for dim in kind.shape.dim]


def bytes_of(model: Model, tmp_path) -> bytes:
    return save(model, tmp_path / "saved.onnx", force=True).path.read_bytes()


@pytest.mark.parametrize("default", [False, True])
def test_scales_that_are_an_input_leave_no_size_declared_that_they_decide(model_of, capfd, default):
    result = Promote(("scales",), default).apply(model_of(RESIZE))

    onnx.checker.check_model(result.model.materialize(), full_check=True)
    assert sizes(result.model, "before") == [1, 3, 2, 2]
    assert sizes(result.model, "large") == [None] * 4
    assert sizes(result.model, "y") == [None, 3, None, None]
    assert "for 2 values: 'large', 'y'" in result.notes[0]
    session = onnxruntime.InferenceSession(result.model.materialize().SerializeToString())
    x = np.arange(12, dtype=np.float32).reshape(1, 3, 2, 2)
    for factor in (2, 3):
        scales = np.array([1, 1, factor, factor], np.float32)
        y = session.run(None, {"x": x, "scales": scales})[0]
        assert y.shape == (1, 3, 2 * factor, 2 * factor)
    assert "shape" not in capfd.readouterr().err


def test_the_runtime_would_have_warned(model_of, capfd):
    promoted = Promote(("scales",)).apply(model_of(RESIZE)).model
    dims = promoted.proto.graph.output[0].type.tensor_type.shape.dim
    dims[0].dim_value, dims[2].dim_value, dims[3].dim_value = 1, 4, 4

    session = onnxruntime.InferenceSession(promoted.materialize().SerializeToString())
    session.run(None, {"x": np.zeros((1, 3, 2, 2), np.float32), "scales": SCALES * SCALES})

    assert "shape" in capfd.readouterr().err


SHAPES = {
    "Resize sizes, computed": (SIZES, "two", [4, 4], [1, 3, None, None]),
    "Reshape": (
        "g (float[2,6] x) => (float[3,4] y) <int64[2] s = {3, 4}> { y = Reshape(x, s) }",
        "s", [3, 4], [None, None],
    ),
    "Expand": (
        "g (float[1,6] x) => (float[3,6] y) <int64[2] s = {3, 6}> { y = Expand(x, s) }",
        "s", [3, 6], [None, 6],
    ),
    "Slice ends": (
        """g (float[4,6] x) => (float[4,3] y)
        <int64[1] start = {0}, int64[1] s = {3}, int64[1] axis = {1}> { y = Slice(x, start, s, axis) }""",
        "s", [3], [None, None],
    ),
    "Unsqueeze": (
        "g (float[4] x) => (float[1,4] y) <int64[1] s = {0}> { h = Unsqueeze(x, s) y = Relu(h) }",
        "s", [0], [None, None],
    ),
    "a name": (
        """g (float[N,6] x) => (float[N,2,3] y) <int64[3] s = {0, 2, 3}> { y = Reshape(x, s) }""",
        "s", [0, 2, 3], [None, None, None],
    ),
    "a scalar": (
        """g (float[4] x) => (float[4] z, int64[n] y) <int64 a = {0}, int64 s = {5}, int64 d = {1}> {
            z = Relu(x)
            y = Range(a, s, d)
        }""",
        "s", 5, [None],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SHAPES)
@pytest.mark.parametrize("default", [False, True])
def test_what_followed_from_the_numbers_is_unknown_then_comes_back(
    model_of, tmp_path, case, default
):
    text, name, numbers, expected = SHAPES[case]
    model = model_of(text)
    known = sizes(model, "y")

    promoted = Promote((name,), default).apply(model).model
    back = Freeze(((name, None if default else numbers),)).apply(promoted).model

    onnx.checker.check_model(promoted.materialize(), full_check=True)
    assert sizes(promoted, "y") == expected
    assert sizes(back, "y") == known
    assert bytes_of(back, tmp_path) == (tmp_path / "model.onnx").read_bytes()


def test_a_frozen_input_with_other_numbers_declares_their_sizes(model_of):
    promoted = Promote(("scales",)).apply(model_of(RESIZE)).model

    frozen = Freeze((("scales", [1, 1, 3, 3]),)).apply(promoted).model

    assert sizes(frozen, "large") == sizes(frozen, "y") == [1, 3, 6, 6]


@pytest.mark.parametrize("name", ["bias", "w"])
def test_a_constant_that_no_shape_depends_on_relaxes_nothing(model_of, name):
    model = model_of(RESIZE)

    result = Promote((name,)).apply(model)

    assert result.model.proto.graph.output == model.proto.graph.output
    assert result.model.proto.graph.value_info == model.proto.graph.value_info
    assert not result.notes


def test_an_integer_is_followed_through_arithmetic(model_of):
    model = model_of("""
        g (float[4] x) => (float[4] z, float[6] y) <int64[1] a = {2}, int64[1] b = {3}> {
            z = Relu(x)
            size = Mul(a, b)
            y = ConstantOfShape(size)
        }""")

    promoted = Promote(("a",)).apply(model).model

    assert sizes(promoted, "y") == [None]


def test_two_constants_that_decide_together_come_back_together_or_in_turn(model_of, tmp_path):
    model = model_of("""
        g (float[1,6] x) => (float[3,6] y) <int64[1] a = {3}, int64[1] b = {6}> {
            shape = Concat<axis = 0>(a, b)
            y = Expand(x, shape)
        }""")
    original = (tmp_path / "model.onnx").read_bytes()
    promoted = Promote(("a", "b")).apply(model).model

    together = Freeze((("a", [3]), ("b", [6]))).apply(promoted).model
    one = Freeze((("b", [6]),)).apply(promoted).model
    turn = Freeze((("a", [3]),)).apply(one).model

    assert sizes(promoted, "y") == [None, 6]
    assert sizes(together, "y") == sizes(turn, "y") == [3, 6]
    assert bytes_of(turn, tmp_path) == original


def test_a_size_that_was_declared_wrongly_or_by_another_name_is_kept(model_of):
    model = model_of(RESIZE)
    dims = model.proto.graph.output[0].type.tensor_type.shape.dim
    dims[2].dim_value, dims[3].dim_param = 5, "width"

    promoted = Promote(("scales",)).apply(model).model

    assert sizes(promoted, "y") == [None, 3, 5, "width"]


def test_a_rank_that_hangs_on_the_numbers_is_forgotten_except_of_an_output(model_of):
    model = model_of("""
        g (float[2,3,4] x) => (float[2,12] y)
        <int64[1] start = {0}, int64[1] end = {1}, int64[1] rest = {12}> {
            whole = Shape(x)
            first = Slice(whole, start, end)
            shape = Concat<axis = 0>(first, rest)
            flat = Reshape(x, shape)
            y = Relu(flat)
        }""")
    model.proto.graph.CopyFrom(shape_inference.infer_shapes(model.proto, data_prop=True).graph)
    assert sizes(model, "flat") == [2, 12]

    promoted = Promote(("end",)).apply(model).model

    assert sizes(promoted, "shape") == [None]
    assert sizes(promoted, "flat") is None
    assert sizes(promoted, "y") == [None, None]


@pytest.mark.parametrize(("node", "before", "after"), [("Expand (x, n)", 2, 4), ("Relu (x)", 1, 1)])
def test_other_numbers_are_followed_directly_and_through_arithmetic(model_of, node, before, after):
    model = model_of(f"""
        g (float[1] x) => (float[{before}] a, float[3] b) <int64[1] n = {{2}}, int64[1] one = {{1}}> {{
            a = {node}
            more = Add (n, one)
            b = Expand (x, more)
        }}""")

    result = SetConstant("n", [4]).apply(model).model

    assert sizes(result, "a") == [after]
    assert sizes(result, "b") == [5]
