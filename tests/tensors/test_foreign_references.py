"""References of other tools: Polygraphy's JSON, and raw files with a JSON of their shapes."""

import base64
import io
import json

import numpy as np
import pytest
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit import FIXTURES
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import SurgeonError

MODEL = FIXTURES / "whole_model.onnx"
X = np.arange(6, dtype=np.float16).reshape(2, 3)


def coded(array, late=True):
    """Write an array as Polygraphy does; results are read late."""
    file = io.BytesIO()
    np.save(file, array)
    text = base64.b64encode(file.getvalue()).decode()
    plain = {"array": text, "polygraphy_class": "ndarray"}
    return {"values": plain, "polygraphy_class": "LazyArray"} if late else plain


def results(*samples, runners=("onnxrt",)):
    made = [
        {"outputs": {n: coded(a) for n, a in each.items()}, "polygraphy_class": "IterationResult"}
        for each in samples
    ]
    return {"lst": [[name, made] for name in runners], "polygraphy_class": "RunResults"}


def written(folder, data, name="out.json"):
    path = folder / name
    path.write_text(json.dumps(data, indent=4))
    return path


def test_polygraphys_results_are_references(tmp_path):
    stored = osl.open_references(FIXTURES / "references/whole_model.npz")
    inputs = written(tmp_path, [{"input.1": coded(stored.read("input.1"), late=False)}], "in.json")
    outputs = written(tmp_path, results({"31": stored.read("31")}))

    found = osl.compare_sets(MODEL, str(outputs), feeds=str(inputs))

    assert found.match
    result = CliRunner().invoke(
        app,
        ["bisect", str(FIXTURES / "faulty_attribute.onnx"), "--reference", str(outputs)]
        + ["--feeds", str(inputs), "-o", str(tmp_path / "culprit"), "--quick"],
    )
    assert result.exit_code == 1, result.output


def test_a_sample_is_chosen_and_others_are_told(tmp_path):
    path = written(tmp_path, results({"y": X}, {"y": X + 1}, runners=("onnxrt", "trt")))

    found = osl.open_references(path, sample=1)

    np.testing.assert_array_equal(found.read("y"), X + 1)
    assert len(found.notes) == 2
    assert "2 runners: using 'onnxrt'" in found.notes[0]
    assert "2 samples" in found.notes[1]


def test_raw_files_are_what_the_json_beside_them_says(tmp_path):
    (tmp_path / "Result_0").mkdir()
    X.tofile(tmp_path / "Result_0/y.raw")
    X.astype(np.float32).tofile(tmp_path / "z.raw")
    written(
        tmp_path, {"Result_0/y": {"shape": [2, 3], "dtype": "float16"}, "z": [3, 2]}, "shapes.json"
    )

    found = osl.open_references(tmp_path)

    np.testing.assert_array_equal(found.read("Result_0/y"), X)
    np.testing.assert_array_equal(found.read("z"), X.reshape(3, 2))


@pytest.mark.parametrize(
    "shapes",
    [
        {"y": [2, 4]},
        {"y": [-2, -3]},
        {"y": {"shape": [2, 3], "dtype": "no"}},
        {"y": {"dtype": "float"}},
        {"no": [1]},
        {"../y": [6]},
        {"/etc/passwd": [6]},
        [],
        3,
    ],
)
def test_raw_files_that_are_otherwise_are_one_error(tmp_path, shapes):
    (tmp_path / "refs").mkdir()
    X.astype(np.float32).tofile(tmp_path / "y.raw")
    X.astype(np.float32).tofile(tmp_path / "refs/y.raw")
    written(tmp_path / "refs", shapes, "shapes.json")

    with pytest.raises(SurgeonError):
        osl.open_references(tmp_path / "refs").read("y")


def test_a_raw_file_may_be_no_link_out_of_its_folder(tmp_path):
    (tmp_path / "refs").mkdir()
    X.tofile(tmp_path / "secret")
    (tmp_path / "refs/y.raw").symlink_to(tmp_path / "secret")
    written(tmp_path / "refs", {"y": {"shape": [2, 3], "dtype": "float16"}}, "shapes.json")

    with pytest.raises(SurgeonError, match="link out of its folder"):
        osl.open_references(tmp_path / "refs")


def damaged():
    pickled = io.BytesIO()
    np.save(pickled, np.array([{}]), allow_pickle=True)
    huge = coded(X)
    header = base64.b64decode(huge["values"]["array"]).replace(b"(2, 3)", b"(2,9**9)")
    for text in (
        "***",
        base64.b64encode(pickled.getvalue()).decode(),
        base64.b64encode(header).decode(),
    ):
        value = {"array": text, "polygraphy_class": "ndarray"}
        yield [{"y": value, "polygraphy_class": "ndarray"}]
    yield results()
    yield {"polygraphy_class": "RunResults"}
    yield {"lst": [], "polygraphy_class": "RunResults"}
    yield [{"y": {"tensor": "x", "polygraphy_class": "Tensor"}}]
    yield ["polygraphy_class"]


@pytest.mark.parametrize("data", list(damaged()))
def test_a_damaged_file_is_one_error(tmp_path, data):
    with pytest.raises(SurgeonError):
        osl.open_references(written(tmp_path, data)).read("y")


def test_a_model_as_json_is_no_reference(tmp_path):
    osl.save(osl.load(MODEL), tmp_path / "model.json")

    assert osl.compare_sets(tmp_path / "model.json", FIXTURES / "references/whole_model.npz").match
