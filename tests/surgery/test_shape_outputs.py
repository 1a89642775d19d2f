"""Ragged outputs: padded, stacked, named; a mini detector with an image in which nothing is found."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnxsurgeon_lite.errors import EditError, ShapeError, UnknownNameError, UsageError
from onnxsurgeon_lite.graph.check import check
from onnxsurgeon_lite.passes import BatchOutputs, NameOutputs, PadOutputs
from onnxsurgeon_lite.runtime.session import run_model

PARTS = ("boxes", "labels", "scores", "masks")
FEW = {  # detections that are found: rows whose score is above 0
    "none": np.full((5,), -1, np.float32),
    "two": np.array([3, -1, 2, -1, -1], np.float32),
    "five": np.array([5, 4, 3, 2, 1], np.float32),
}


def detector(images: int, opset: int = 17, names=lambda part, image: f"{part}.{image}"):
    """For each image: the rows whose score is above 0, as a detector gives them: of any number."""
    nodes, inputs, outputs, values = [], [], [], []
    shapes = {"boxes": (5, 4), "labels": (5,), "scores": (5,), "masks": (5, 1, 3, 2)}
    dtypes = {"boxes": 1, "labels": 7, "scores": 1, "masks": 1}
    rng = np.random.default_rng(0)
    for part, shape in shapes.items():
        array = rng.integers(1, 90, shape).astype(np.int64 if part == "labels" else np.float32)
        if part != "scores":
            values.append(onnx.numpy_helper.from_array(array, f"all_{part}"))
    values.append(onnx.numpy_helper.from_array(np.zeros((), np.float32), "zero"))
    for image in range(images):
        x = f"x{image}"
        inputs.append(helper.make_tensor_value_info(x, 1, [5]))
        nodes.append(helper.make_node("Greater", [x, "zero"], [f"found{image}"]))
        for part, shape in shapes.items():
            name = names(part, image)
            source = x if part == "scores" else f"all_{part}"
            nodes.append(helper.make_node("Compress", [source, f"found{image}"], [name], axis=0))
            dims = [f"n{image}", *shape[1:]]
            outputs.append(helper.make_tensor_value_info(name, dtypes[part], dims))
    if opset == 9:  # with the IR version of that time every initializer is an input too
        inputs += [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in values]
    graph = helper.make_graph(nodes, "detector", inputs, outputs, values)
    return helper.make_model(
        graph, ir_version=8 if opset > 9 else 3, opset_imports=[helper.make_opsetid("", opset)]
    )


def test_three_images_one_of_them_empty_become_a_padded_batch(model_of):
    model = model_of(detector(3))
    feeds = {"x0": FEW["two"], "x1": FEW["none"], "x2": FEW["five"]}
    ragged = run_model(model, feeds)

    batched = BatchOutputs(4, fill={"labels": -1}).apply(model).model
    outputs = run_model(batched, feeds)

    assert check(batched, full=True).valid
    assert list(outputs) == [*PARTS, "num_detections"]
    assert outputs["num_detections"].tolist() == [2, 0, 4]
    assert outputs["masks"].shape == (3, 4, 1, 3, 2)
    for part in PARTS:
        for image, count in enumerate(outputs["num_detections"]):
            kept, filler = np.split(outputs[part][image], [count])
            assert np.array_equal(kept, ragged[f"{part}.{image}"][:4])
            assert (filler == (-1 if part == "labels" else 0)).all()


@pytest.mark.parametrize("few", FEW)
@pytest.mark.parametrize("opset", [9, 11, 13, 21])
def test_outputs_are_padded_in_every_opset(model_of, few, opset):
    model = model_of(detector(1, opset, lambda part, _: part))
    ragged = run_model(model, {"x0": FEW[few]})

    padded = PadOutputs(3).apply(model).model
    outputs = run_model(padded, {"x0": FEW[few]})

    assert check(padded, full=True).valid
    assert outputs["num_detections"].tolist() == [min(3, len(ragged["boxes"]))]
    for part in PARTS:
        kept = ragged[part][:3]
        assert outputs[part].shape == (3, *kept.shape[1:])
        assert np.array_equal(outputs[part][: len(kept)], kept)
        assert not outputs[part][len(kept) :].any()


def test_a_single_image_becomes_a_batch_of_one(model_of):
    model = model_of(detector(1))

    outputs = run_model(BatchOutputs(10).apply(model).model, {"x0": FEW["none"]})

    assert outputs["boxes"].shape == (1, 10, 4)
    assert not outputs["boxes"].any()


def test_outputs_without_names_get_them_image_by_image(model_of):
    model = model_of(detector(2, names=lambda part, image: f"{'abcd'[PARTS.index(part)]}{image}"))

    named = NameOutputs(PARTS).apply(model)
    batched = BatchOutputs(6).apply(named.model).model
    outputs = run_model(batched, {"x0": FEW["two"], "x1": FEW["five"]})

    assert [o.name for o in named.model.proto.graph.output][3:5] == ["masks.0", "boxes.1"]
    assert outputs["num_detections"].tolist() == [2, 5]
    assert not NameOutputs(PARTS).apply(named.model).changed


def test_groups_may_be_given_by_name(model_of):
    model = model_of(detector(2))

    batched = BatchOutputs(6, {"found": ("boxes.1", "boxes.0")}).apply(model).model

    names = [output.name for output in batched.proto.graph.output]
    assert names[:2] == ["found", "num_detections"]
    assert "boxes.0" not in names
    assert "labels.0" in names


def test_swapped_output_names_are_swapped(model_of):
    model = model_of("two (float[2] x) => (float[2] a, float[2] b) { a = Relu(x) b = Neg(a) }")

    outputs = run_model(NameOutputs(("b", "a")).apply(model).model, {"x": np.float32([1, -1])})

    assert outputs["b"].tolist() == [1, 0]
    assert outputs["a"].tolist() == [-1, 0]


def test_what_a_body_captures_of_a_padded_output_is_the_ragged_value(model_of):
    model = model_of("""
        captured (float[n] boxes_in, bool c) => (float[n] boxes, float[m] z) {
            boxes = Identity(boxes_in)
            z = If(c) <then_branch = t () => (float[m] a) { a = Neg(boxes) },
                       else_branch = e () => (float[m] boxes2) { boxes2 = Abs(boxes) }>
        }
    """)

    padded = PadOutputs(4, ("boxes",)).apply(model).model
    outputs = run_model(padded, {"boxes_in": np.float32([1, 2]), "c": np.array(True)})

    assert outputs["boxes"].tolist() == [1, 2, 0, 0]
    assert outputs["z"].tolist() == [-1, -2]


@pytest.mark.parametrize(
    ("step", "error", "message"),
    [
        (PadOutputs(3, ("boxs.0",)), UnknownNameError, "no output 'boxs.0'"),
        (PadOutputs(0), UsageError, "--max is 0"),
        (PadOutputs(3, fill={"labels.0": 0.5}), UsageError, "cannot represent 0.5"),
        (PadOutputs(3, count="boxes.0"), UsageError, "already"),
        (BatchOutputs(3, {"boxes": ("boxes.0",), "labels": ("labels.0", "labels.1")}),
         UsageError, "different numbers of images: 'boxes' 1, 'labels' 2"),
        (BatchOutputs(3, {"boxes": ("boxes.0", "scores.1")}), ShapeError, "do not stack"),
        (BatchOutputs(3, {"boxes.0": ("boxes.0",)}), UsageError, "already"),
        (BatchOutputs(3, fill={"masks_": 1}), UsageError, "'masks_' is not a group"),
        (NameOutputs(("a", "b", "c")), UsageError, "8 outputs are not a multiple of 3 names"),
        (NameOutputs(("a", "a")), UsageError, "twice"),
        (NameOutputs(("x0", "b", "c", "d", "e", "f", "g", "h")), EditError, "'x0': that name"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(model_of, step, error, message):
    with pytest.raises(error, match=message):
        step.apply(model_of(detector(2)))


def test_a_scalar_cannot_be_padded(model_of):
    model = model_of("scalar (float[2] x) => (float y) { y = ReduceSum<keepdims = 0>(x) }")

    with pytest.raises(ShapeError, match="no output has an open dimension 0"):
        PadOutputs(3).apply(model)
    with pytest.raises(ShapeError, match="'y' is \\[\\] and has no dimension 0"):
        PadOutputs(3, ("y",)).apply(model)


def test_low_precision_outputs_are_padded(model_of):
    proto = detector(1)
    proto.graph.node.append(
        helper.make_node("Cast", ["scores.0"], ["half"], to=TensorProto.FLOAT16)
    )
    proto.graph.output.append(helper.make_tensor_value_info("half", TensorProto.FLOAT16, ["n0"]))

    padded = PadOutputs(3, ("half",), {"half": -1}).apply(model_of(proto)).model

    assert run_model(padded, {"x0": FEW["two"]})["half"].tolist() == [3, 2, -1]


@pytest.mark.parametrize(
    "step", [PadOutputs(3), BatchOutputs(3), NameOutputs(PARTS), NameOutputs(tuple("abcdefgh"))]
)
def test_an_edit_of_outputs_keeps_its_input_and_everything_else(model_of, step):
    proto = detector(2)
    proto.metadata_props.add(key="author", value="me")
    proto.graph.doc_string = "kept"
    proto.graph.node[0].metadata_props.add(key="scope", value="head")
    model = model_of(proto)
    before = model.proto.SerializeToString()

    result = step.apply(model)

    after = result.model.proto
    assert model.proto.SerializeToString() == before
    assert result.changed == (after != model.proto)
    assert after.metadata_props == proto.metadata_props
    assert after.graph.doc_string == "kept"
    assert after.graph.node[0] == proto.graph.node[0]
    assert after.graph.initializer == model.proto.graph.initializer
    assert after.graph.input == proto.graph.input
    assert check(result.model, full=True).valid


def test_onnx_s_own_domain_may_be_called_ai_onnx(model_of):
    model = model_of(detector(1))
    model.proto.opset_import[0].domain = "ai.onnx"

    padded = PadOutputs(4).apply(model).model

    assert run_model(padded, {"x0": FEW["two"]})["boxes.0"].shape == (4, 4)
