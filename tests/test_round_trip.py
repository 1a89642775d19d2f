"""Print and build: the model comes back, and edits of the text are all that changes."""

import numpy as np
import pytest
from conftest import FIXTURES
from test_nothing_lost import rich

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.errors import BuildError
from onnxsurgeon_lite.matching.diff import diff
from onnxsurgeon_lite.model import walk


def payloads(model: osl.Model) -> list[bytes]:
    return [model.raw(tensor) for tensor in walk.tensors(model.proto)]


@pytest.mark.parametrize(
    "name",
    [
        "whole_model",
        "whole_model_dynamo",
        "external",
        "control_flow",
        "low_precision",
        "linear_func",
    ],
)
def test_a_printed_model_is_built_again(name, tmp_path):
    model = osl.load(FIXTURES / f"{name}.onnx")

    text = osl.text(model, tmp_path / "w.safetensors")
    built = osl.build(text, weights=tmp_path / "w.safetensors")

    assert diff(model, built).differences == []
    assert payloads(model) == payloads(built)


def test_what_text_cannot_say_comes_back_too_and_edits_are_all_that_changes(tmp_path):
    model = rich()
    text = osl.text(model, tmp_path / "w.safetensors")

    same = osl.build(text, weights=tmp_path / "w.safetensors")
    edited = osl.build(text.replace("= 0.5>", "= 0.25>"), weights=tmp_path / "w.safetensors")

    assert same.materialize() == model.materialize()
    (changed,) = diff(model, edited).differences
    assert "alpha" in str(changed)


@pytest.mark.parametrize("kept", [True, False])
def test_a_text_without_its_weights_says_how_to_keep_them(kept, tmp_path):
    text = osl.text(FIXTURES / "whole_model.onnx", tmp_path / "w.safetensors" if kept else None)

    with pytest.raises(BuildError, match="elides the numbers of 10 tensors") as refused:
        osl.build(text)

    assert "--weights" in refused.value.hint


def test_a_file_of_another_text_is_refused(tmp_path):
    text = osl.text(FIXTURES / "whole_model.onnx", tmp_path / "w.safetensors")
    osl.save_tensors(tmp_path / "other.safetensors", {"x": np.ones(2, np.float32)})

    with pytest.raises(BuildError, match="has no tensor 'convs1"):
        osl.build(text, weights=tmp_path / "other.safetensors")
