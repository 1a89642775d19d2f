"""Graphs before and behind a model: as assignments, as ONNX text, as models; and models merged by equal names."""

import numpy as np
import onnx
import pytest

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.errors import BuildError, EditError, UnknownNameError
from onnxsurgeon_lite.passes.build import parse_text

NET = """<ir_version: 9, opset_import: ["" : 17]>
    net (float[1,3,4,4] x) => (float[1,3] scores) { h = GlobalAveragePool(x) scores = Flatten(h) }"""
DETECTOR = """<ir_version: 9, opset_import: ["" : 17]>
    det (float[1,6,4] x) => (float[1,6,4] boxes, float[1,2,6] scores)
        <int64[1] two = {2}, int64[1] zero = {0}, int64[1] last = {2}> {
        boxes = Abs(x) cut = Slice(x, zero, two, last) scores = Transpose <perm = [0, 2, 1]> (cut) }"""
IMAGE = np.arange(8 * 8 * 3, dtype=np.uint8).reshape(1, 8, 8, 3)


def ran(runtime, model: osl.Model, **feeds) -> dict[str, np.ndarray]:
    runtime.open(model)
    for name, value in feeds.items():
        runtime.put(name, value)
    return runtime.run(list(feeds), [v.name for v in model.proto.graph.output]).values


def test_an_image_is_resized_and_normalized_in_front_of_a_model_of_any_opset(runtime):
    model = parse_text(NET)
    model.proto.producer_name = "exporter"
    text = """image: uint8[1, 8, 8, 3]; mean = [0.5, 0.4, 0.3]; std = [0.2, 0.2, 0.1]
small = Resize(Transpose(Cast(image, to=FLOAT), perm=[0, 3, 1, 2]), sizes=[1, 3, 4, 4], mode='nearest')
x = Transpose((Transpose(small, perm=[0, 2, 3, 1]) / 255 - mean) / std, perm=[0, 3, 1, 2])"""

    result = osl.prepend(model, text).model

    onnx.checker.check_model(result.proto, full_check=True)
    assert [(o.domain, o.version) for o in result.proto.opset_import] == [("", 17)]
    assert (result.proto.producer_name, result.proto.graph.name) == ("exporter", "net")
    small = IMAGE[:, ::2, ::2].astype(np.float32)
    expected = ((small / 255 - [0.5, 0.4, 0.3]) / [0.2, 0.2, 0.1]).mean(axis=(1, 2))
    assert np.allclose(ran(runtime, result, image=IMAGE)["scores"], expected, atol=1e-5)


@pytest.mark.parametrize("dtype", ["10", "float16", "FLOAT16", "'float16'"])
def test_a_dtype_is_a_name_or_the_number_that_onnx_has(dtype):
    result = osl.append(parse_text(NET), f"half = Cast(scores, to={dtype})").model

    assert result.proto.graph.node[-1].attribute[0].i == onnx.TensorProto.FLOAT16


def test_integers_divide_as_numbers_do(runtime):
    result = osl.append(
        parse_text("g (int64[2] x) => (int64[2] y) { y = Abs(x) }"), "z = y / 2"
    ).model

    assert ran(runtime, result, x=np.array([-1, 4]))["z"].tolist() == [0.5, 2]


def test_the_best_of_the_scores_come_behind_a_model(runtime):
    text = "p = Softmax(scores, axis=-1); top, at = TopK(p, [2], axis=-1)"

    result = osl.append(parse_text(NET), text).model

    found = ran(runtime, result, x=np.arange(48, dtype=np.float32).reshape(1, 3, 4, 4))
    assert list(found) == ["top", "at"]
    assert found["at"].tolist() == [[2, 1]]


def test_boxes_are_suppressed_behind_a_detector(runtime):
    text = "kept = NonMaxSuppression(boxes, scores, [10], [0.5], [0.1])"
    boxes = np.array([[[0, 0, 2, 2], [0, 0, 2, 2.1], [5, 5, 7, 7]] * 2], np.float32)

    result = osl.append(parse_text(DETECTOR), text).model

    assert [value.name for value in result.proto.graph.output] == ["kept"]
    assert ran(runtime, result, x=boxes)["kept"].shape[1] == 3


def test_a_name_that_is_read_and_assigned_goes_over_to_what_is_new(runtime):
    model = parse_text("g (float[2] x) => (float[2] y) { y = Neg(x) }")

    both = osl.append(osl.prepend(model, "x = (x - 1) * 2").model, "y = y + 0.5").model

    assert [v.name for v in (*both.proto.graph.input, *both.proto.graph.output)] == ["x", "y"]
    assert ran(runtime, both, x=np.array([1, 3], np.float32))["y"].tolist() == [0.5, -3.5]


def test_an_output_that_is_read_behind_a_model_stays_one_where_that_is_asked_for(runtime):
    model = parse_text("g (float[2] x) => (float[2] y, float[2] z) { y = Neg(x) z = Abs(x) }")
    text = "sum = y + z"

    kept = osl.append(model, text, keep="y").model

    found = ran(runtime, kept, x=np.array([1, -3], np.float32))
    assert {name: array.tolist() for name, array in found.items()} == {
        "y": [-1, 3],
        "sum": [0, 6],
    }
    assert [value.name for value in osl.append(model, text).model.proto.graph.output] == ["sum"]


def test_text_files_and_models_stand_before_and_behind_too(tmp_path, runtime):
    model = parse_text(NET)
    (tmp_path / "tail.txt").write_text(
        "tail (float[n,m] scores) => (float[n,m] z) { z = Neg(scores) }"
    )
    osl.save(
        osl.build("head (float[1,3,4,4] raw) => (float[1,3,4,4] x) { x = Relu(raw) }"),
        tmp_path / "head.onnx",
    )
    recipe = tmp_path / "both.toml"
    recipe.write_text(f"""
[[step]]
verb = "prepend"
what = "{tmp_path}/head.onnx"

[[step]]
verb = "merge"
what = "{tmp_path}/tail.txt"
""")

    result = osl.apply(recipe, model).model

    assert [node.op_type for node in result.proto.graph.node] == [
        "Relu",
        "GlobalAveragePool",
        "Flatten",
        "Neg",
    ]
    raw = np.ones((1, 3, 4, 4), np.float32)
    assert ran(runtime, result, raw=raw)["z"].tolist() == [[-1, -1, -1]]


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("z = ", BuildError, "not a list of assignments"),
        ("import os", BuildError, "is no assignment"),
        ("z = lambda: 1", BuildError, "is no node"),
        ("z = Cast(scores, to=foo)", UnknownNameError, "no dtype 'foo'"),
        ("k: uint9[2]; z = Neg(k)", UnknownNameError, "no dtype 'uint9'"),
        ("k: float[-1]; z = Neg(k)", BuildError, "'-1' is neither a size nor a name"),
        ("z = Foo(scores)", UnknownNameError, "no operator 'Foo'"),
        ("z = Softmax(scores, side=1)", BuildError, "has no attribute 'side'"),
        ("z = Neg(unknown)", BuildError, "nothing says what 'unknown' is"),
        ("z = MatMul(scores, scores)", BuildError, "types do not fit"),
        ("z = Shape(scores) * 0.5", EditError, "is int64, which cannot hold 0.5"),
        ("k: uint8[2]; z = k + 300", EditError, "is uint8, which cannot hold 300"),
        ("k: float[99999999999999999999]; z = Neg(k)", BuildError, "out of range"),
        (f"z = {'-' * 3000}scores", BuildError, "not a list of assignments"),
    ],
)
def test_a_wrong_text_is_refused_in_words(text, error, says):
    with pytest.raises(error, match=says) as raised:
        osl.append(parse_text(NET), text)

    assert raised.value.hint


def test_the_names_of_the_model_are_told_where_one_is_unknown():
    model = parse_text("g (float[2] image) => (float[2] logits) { logits = Neg(image) }")

    with pytest.raises(BuildError) as raised:
        osl.append(model, "best = ArgMax(logit, axis=0)")

    assert "the model has 'image', 'logits'" in raised.value.hint


def test_a_result_without_an_input_to_feed_is_refused():
    two = "g (float[2] a, float[2] b) => (float[2] y) { y = Add(a, b) }"

    with pytest.raises(EditError, match="no input 'c'"):
        osl.prepend(parse_text(two), "c = Neg(a)")


def test_a_merge_by_names_that_links_nothing_says_so():
    first, second = (f"{n} (float[2] {n}x) => (float[2] {n}y) {{ {n}y = Neg({n}x) }}" for n in "ab")

    merged = osl.merge(parse_text(first), parse_text(second), by_name=True)

    assert merged.notes == ("graph 'b' has no name in common: nothing is linked by name",)


def test_models_merge_by_equal_names(runtime):
    first = "a (float[2] x, float[2] m) => (float[2] h) { h = Add(x, m) }"
    second = "b (float[2] h, float[2] m) => (float[2] y) { y = Mul(h, m) }"

    merged = osl.merge(parse_text(first), parse_text(second), by_name=True)

    assert merged.changes[:2] == ("linked 'h' to input 'h'", "input 'm' is shared")
    feeds = {"x": np.array([1, 2], np.float32), "m": np.array([3, 4], np.float32)}
    assert ran(runtime, merged.model, **feeds)["y"].tolist() == [12, 24]
