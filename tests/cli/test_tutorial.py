"""What the tutorial does, on the command line: each of its rows, and its custom operators next to every edit."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper, parser
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit import FIXTURES
from kit.verbs import CUSTOM_WORDS
from onnxsurgeon_lite import PASSES, load
from onnxsurgeon_lite.cli.app import app

SQUARE = np.random.default_rng(0).normal(size=(10, 10)).astype(np.float32)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(*words: object, code: int = 0) -> str:
    """What a command prints; it ends as it should."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, done.output
    return done.stdout


def ran(model: str, **feeds: np.ndarray) -> dict[str, np.ndarray]:
    """The outputs of `onnxdbg run`."""
    np.savez("feeds.npz", **feeds)
    said("run", model, "--feeds", "feeds.npz", "--opt", "none", "--save", "outputs.npz", "--force")
    return dict(np.load("outputs.npz"))


def test_a_function_is_built_checked_printed_saved_and_run(folder):
    text = """linear_func (float[10,10] a, float[10,10] x, float[10,10] b) => (float[10,10] y) {
   c = Mul (a, x)
   y = Add (c, b)
}
"""
    Path("linear.txt").write_text(text)

    said("build", "linear.txt", "-o", "linear.onnx")
    checked = said("check", "linear.onnx")
    printed = said("print", "linear.onnx")
    outputs = ran("linear.onnx", a=SQUARE, x=SQUARE + 1, b=SQUARE + 2)

    assert checked == "'linear.onnx' is valid\n"
    assert printed.endswith(text)
    np.testing.assert_allclose(outputs["y"], SQUARE * (SQUARE + 1) + (SQUARE + 2), rtol=1e-6)


def test_an_add_becomes_a_sub_and_stays_valid(folder):
    model = FIXTURES / "linear_func.onnx"

    said("edit", "set-op", model, "op:Add", "Sub", "-o", "sub.onnx")
    outputs = ran("sub.onnx", a=SQUARE, x=SQUARE + 1, b=SQUARE + 2)

    assert said("check", "sub.onnx") == "'sub.onnx' is valid\n"
    np.testing.assert_allclose(outputs["y"], SQUARE * (SQUARE + 1) - (SQUARE + 2), rtol=1e-5)


def test_the_four_stages_are_equal_to_the_whole(folder):
    whole = FIXTURES / "whole_model.onnx"
    image = np.random.default_rng(1).normal(size=(1, 3, 20, 20)).astype(np.float32)

    told = said("split", whole, "--at", "23,25,27", "-o", "parts")
    at_23 = ran("parts/1.onnx", **{"input.1": image})
    branches = ran("parts/2.onnx", **at_23) | ran("parts/3.onnx", **at_23)
    last = ran("parts/4.onnx", **branches)

    assert "'31' agrees with the whole" in told
    assert np.array_equal(last["31"], ran(str(whole), **{"input.1": image})["31"])


@pytest.mark.parametrize("mode", ["nearest", "bicubic"])
def test_the_scales_of_a_resize_are_an_input_and_scale_as_torch_does(folder, mode):
    how = {
        "nearest": 'mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"',
        "bicubic": 'mode = "cubic", coordinate_transformation_mode = "pytorch_half_pixel", cubic_coeff_a = -0.75',
    }[mode]
    Path("resize.txt").write_text(f"""resize (float[1,1,2,2] x) => (float[1,1,4,4] y) {{
        scales = Constant <value = float[4] {{1, 1, 2, 2}}> ()
        y = Resize <{how}> (x, , scales)
    }}""")
    said("build", "resize.txt", "-o", "resize.onnx")
    x = np.array([[[[1, 2], [3, 5]]]], np.float32)

    said("edit", "promote", "resize.onnx", "scales", "-o", "dynamic.onnx")

    for factor in (2, 3):
        scales = np.array([1, 1, factor, factor], np.float32)
        y = ran("dynamic.onnx", x=x, scales=scales)["y"]
        expected = torch.nn.functional.interpolate(
            torch.from_numpy(x), scale_factor=factor, mode=mode
        )
        assert y.shape == (1, 1, 2 * factor, 2 * factor)
        np.testing.assert_allclose(y, expected.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("edit", "accepted"),
    [
        ([], (True, False, False)),
        (["rebatch", "--to", "N"], (True, True, False)),
        (["set-shape", "x=1,3,H,W"], (True, False, True)),
    ],
    ids=["static", "dimension 0", "dimensions 2 and 3"],
)
def test_a_static_model_made_dynamic_accepts_what_the_dimension_allows(folder, edit, accepted):
    weights = np.random.default_rng(0).normal(size=(3, 3, 3, 3)).astype(np.float32)
    np.save("w.npy", weights)
    Path("static.txt").write_text("""static (float[1,3,10,10] x) => (float[1,3,10,10] y) {
        h = Conv <pads = [1,1,1,1]> (x, w)
        y = Relu(h)
    }""")
    said("build", "static.txt", "--initializer", "w=w.npy", "-o", "model.onnx")
    if edit:
        said("edit", edit[0], "model.onnx", *edit[1:], "-o", "model.onnx", "--force")

    for shape, taken in zip(
        [(1, 3, 10, 10), (2, 3, 10, 10), (1, 3, 20, 20)], accepted, strict=True
    ):
        np.savez("feeds.npz", x=np.ones(shape, np.float32))
        said("run", "model.onnx", "--feeds", "feeds.npz", code=0 if taken else 2)


def test_a_detectors_outputs_are_batched_for_three_images_one_of_them_empty(folder):
    logits = np.array([[3, -1, 2, -1, -1], [-1, -1, -1, -1, -1], [5, 4, 3, 2, 1]], np.float32)
    ragged = ran(str(FIXTURES / "detector.onnx"), logits=logits)
    boxes = [ragged["boxes"], ragged["33"], ragged["36"]]

    said(
        "edit",
        "name-outputs",
        FIXTURES / "detector.onnx",
        "boxes,labels,scores",
        "-o",
        "named.onnx",
    )
    said(
        "edit",
        "batch-outputs",
        "named.onnx",
        "--max",
        5,
        "--fill",
        "labels=-1",
        "-o",
        "batched.onnx",
    )
    outputs = ran("batched.onnx", logits=logits)

    assert outputs["num_detections"].tolist() == [len(found) for found in boxes] == [2, 0, 5]
    assert outputs["boxes"].shape == (3, 5, 4)
    for batched, found in zip(outputs["boxes"], boxes, strict=True):
        assert np.array_equal(batched, np.pad(found, [(0, 5 - len(found)), (0, 0)]))
    assert outputs["labels"][0].tolist() == [*ragged["labels"].tolist(), -1, -1, -1]
    assert outputs["labels"][1].tolist() == [-1] * 5


def test_edits_and_their_inverses_give_back_the_bytes(folder):
    original = (FIXTURES / "whole_model.onnx").read_bytes()
    Path("model.onnx").write_bytes(original)
    np.save("bias.npy", load("model.onnx").array(initializer("convs1.1.bias")))

    edits = [
        ["promote", "convs1.1.bias"],
        ["insert", "23", "Relu", "--name", "new"],
        ["rename", "24=26", "26=24"],
        ["freeze", "input.1=0"],
    ]
    inverses = [
        ["promote", "input.1"],
        ["rename", "24=26", "26=24"],
        ["remove", "new"],
        ["freeze", "convs1.1.bias=bias.npy"],
    ]
    for verb, *words in edits:
        before = Path("model.onnx").read_bytes()
        said("edit", verb, "model.onnx", *words, "--in-place")
        assert Path("model.onnx").read_bytes() != before
    for verb, *words in inverses:
        said("edit", verb, "model.onnx", *words, "--in-place")

    assert Path("model.onnx").read_bytes() == original


def initializer(name: str) -> onnx.TensorProto:
    graph = load("model.onnx").proto.graph
    return next(tensor for tensor in graph.initializer if tensor.name == name)


def test_three_models_share_one_input(folder):
    names = ["whole_model.onnx", "faulty_attribute.onnx", "faulty_constant.onnx"]
    image = np.random.default_rng(1).normal(size=(1, 3, 20, 20)).astype(np.float32)
    apart = [ran(str(FIXTURES / name), **{"input.1": image})["31"] for name in names]

    prefixes = ["--prefix", "second/", "--prefix", "third/"]
    models = [FIXTURES / name for name in names]
    told = said("merge", *models, "--share", "input.1", *prefixes, "-o", "merged.onnx")
    together = ran("merged.onnx", **{"input.1": image})

    assert "merged 3 models: input.1 -> 31, second/31, third/31" in told
    for name, value in zip(["31", "second/31", "third/31"], apart, strict=True):
        assert np.array_equal(together[name], value)


@pytest.mark.parametrize(
    ("model", "place"),
    [
        ("faulty_attribute.onnx", "scope: convs3.1 (Conv2d), whole_model.py:20"),
        ("faulty_constant.onnx", "scope: convs2.1 (Conv2d), whole_model.py:20"),
        ("whole_model.onnx", None),
    ],
)
def test_references_named_by_modules_name_the_layer_of_a_graph_named_by_numbers(
    folder, model, place
):
    said("record", f"{FIXTURES / 'whole_model.py'}:factory", "-o", "torch_refs")

    told = said("bisect", FIXTURES / model, "--reference", "torch_refs", code=1 if place else 0)

    assert told.count(" makes ") == (1 if place else 0)
    assert (place or "agrees at '31'") in told


def test_a_map_is_written_edited_and_taken_back(folder):
    faulty = FIXTURES / "faulty_attribute.onnx"
    # not by the command, which remembers the module
    osl.record(f"{FIXTURES / 'whole_model.py'}:factory", "torch_refs", program=False)
    said("match", "torch_refs", faulty, "--save", "map.json")
    whole = json.loads(Path("map.json").read_text())
    kept = [{"a": p["a"], "b": p["b"]} for p in whole["pairs"] if p["b"] not in ("26", "27")]
    Path("map.json").write_text(json.dumps({"pairs": kept}))

    told = said("bisect", faulty, "--reference", "torch_refs", "--map", "map.json", code=1)
    compared = said("compare", faulty, "torch_refs", "--map", "map.json", code=1)

    assert len(kept) == len(whole["pairs"]) - 2
    assert "  between these nodes no value has a reference\n    Conv 'Conv_5' (@5)\n" in told
    assert "scope: convs4.2 (Conv2d), whole_model.py:21" in compared


# --- custom operators ---

CUSTOM = """
<ir_version: 8, opset_import: ["" : 17, "mmcv" : 1, "my_ops" : 1]>
tutorial (float[1,3,8,8] x, float[1,18,8,8] offset) => (float[1,3,8,8] y, int64[n,4] rows)
<float[1] half = {0.5}, float[1] twin = {0.5}, float[1,3,8,8] d> {
    ["/act/asinh"] h = Asinh (x)
    ["/deform"] d = mmcv.MMCVDeformConv2d <deform_groups = 1, padding = [1, 1], stride = [1, 1]> (h, offset, w)
    ["/my_add"] t = my_ops.my_add (d, h)
    ["/half"] s = Mul (t, half)
    ["/twin"] u = Mul (s, twin)
    ["/relu"] y = Relu (u)
    ["/where"] at = NonZero (y)
    ["/rows"] rows = Transpose <perm = [1, 0]> (at)
    ["/dead"] dead = Neg (h)
    ["/again"] again = Neg (h)
    ["/idle"] idle = Identity (again)
    ["/one"] one = Add (half, twin)
    ["/deader"] deader = Sub (one, idle)
}
<domain: "my_ops", opset_import: ["" : 17]>
my_add (a, b) => (c) { a2 = Add (a, a) c = Add (a2, b) }
"""
KEPT = ("Asinh", "MMCVDeformConv2d", "my_add")


@pytest.fixture
def custom(folder) -> onnx.ModelProto:
    """The model, in `custom.onnx`: nothing here can run it."""
    proto = parser.parse_model(CUSTOM)
    weights = np.ones((3, 3, 3, 3), np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    onnx.save(proto, "custom.onnx")
    return proto


def kept(proto: onnx.ModelProto) -> list[tuple[str, str]]:
    """The custom operators among a model's nodes, those of its functions too."""
    nodes = [*proto.graph.node, *(node for function in proto.functions for node in function.node)]
    return sorted((node.domain, node.op_type) for node in nodes if node.op_type in KEPT)


@pytest.mark.parametrize("verb", [*sorted(set(PASSES) - {"script"}), "script", "apply"])
def test_custom_operators_stay_next_to_every_edit(verb, custom):
    if verb in ("sort", "fix"):
        nodes = list(custom.graph.node)
        del custom.graph.node[:]
        custom.graph.node.extend(reversed(nodes))
        onnx.save(custom, "custom.onnx")
    if verb == "inference":
        custom.graph.node.add(op_type="Dropout", input=["x"], output=["dropped"])
        custom.graph.node[-1].input.extend(["", "training"])
        truth = numpy_helper.from_array(np.asarray(True), "training")
        custom.graph.initializer.append(truth)
        onnx.save(custom, "custom.onnx")
    if verb == "remove-input":
        custom.graph.input.add(name="unused").type.tensor_type.elem_type = 1
        onnx.save(custom, "custom.onnx")
    if verb == "dequantize":
        for name, array in (("kept", np.ones(2, np.int8)), ("scale", np.float32(2))):
            custom.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        inputs, outputs = ["kept", "scale"], ["numbers"]
        custom.graph.node.add(op_type="DequantizeLinear", input=inputs, output=outputs)
        onnx.save(custom, "custom.onnx")
    if verb in ("standardize", "fuse"):
        custom.opset_import[0].version = 20
        custom.opset_import.add(domain="com.microsoft", version=1)
        domain = "com.microsoft" if verb == "standardize" else ""
        custom.graph.node.add(op_type="Gelu", domain=domain, input=["x"], output=["gated"])
        onnx.save(custom, "custom.onnx")
    if verb == "drop-layer":
        values = ["one", "l1", "l2", "l3", "l4"]
        for n, op_type in enumerate(["Abs", "Neg"] * 2):
            made = {"input": [values[n]], "output": [values[n + 1]]}
            custom.graph.node.add(op_type=op_type, name=f"/l.{n // 2}/{op_type}", **made)
        custom.graph.output.append(onnx.helper.make_tensor_value_info("l4", 1, [1]))
        onnx.save(custom, "custom.onnx")
    Path("patch.py").write_text("def edit(graph):\n    graph.nodes[5].op = 'Abs'\n")
    Path("recipe.toml").write_text('[[step]]\nverb = "set-op"\nnodes = "/relu"\nop_type = "Abs"\n')
    Path("rule.onnxtxt").write_text(
        "pattern (x) => (y) { y = Relu(x) } replacement (x) => (y) { y = Abs(x) }"
    )
    words = [verb, "custom.onnx", *CUSTOM_WORDS.get(verb, [])]
    if verb in ("script", "apply"):
        words = [verb, {"script": "patch.py", "apply": "recipe.toml"}[verb], "custom.onnx"]

    said(*([] if verb in ("expose", "extract") else ["edit"]), *words, "-o", "edited.onnx")

    edited = onnx.load("edited.onnx")
    assert edited != custom
    onnx.checker.check_model(edited)
    gone = {"inline": "my_add", "extract": "Asinh"}.get(verb)
    assert kept(edited) == [name for name in kept(custom) if name[1] != gone]


def test_new_sizes_next_to_an_operator_that_cannot_run_are_not_written_unasked(custom, folder):
    done = CliRunner().invoke(app, ["edit", "rebatch", "custom.onnx", "-o", "out.onnx"])

    assert done.exit_code == 2
    assert "MMCVDeformConv2d" in done.stderr
    assert not Path("out.onnx").exists()
