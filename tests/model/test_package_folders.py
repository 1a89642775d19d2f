"""The folder of a language model package is taken for the model that its configuration names."""

import json

import pytest
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit import packages
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import ModelFileError, ReferenceSetError

GENAI = {
    "model": {
        "decoder": {
            "filename": "weights/decoder.onnx",
            "head_size": 16,
            "hidden_size": 64,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "num_hidden_layers": 2,
            "sliding_window": {"window_size": 4, "layers": [0]},
            "inputs": {"input_ids": "input_ids", "past_key_names": "past_key_values.%d.key"},
            "outputs": {"logits": "logits"},
        },
        "vocab_size": 48,
    }
}


@pytest.fixture
def package(tmp_path):
    """A package whose model is not called model.onnx; gives its folder after a change of its configuration."""
    (tmp_path / "weights").mkdir()
    model = packages.decoder(packages.checkpoint())
    osl.save(model, tmp_path / "weights" / "decoder.onnx")

    def made(config=GENAI, **decoder):
        text = json.loads(json.dumps(config))
        if decoder:
            text["model"]["decoder"].update(decoder)
        (tmp_path / "genai_config.json").write_text(json.dumps(text))
        return tmp_path

    return made


def test_a_folder_is_inspected_checked_and_run(package):
    folder = package()

    assert osl.load(folder).path == folder / "weights" / "decoder.onnx"
    assert osl.inspect(folder).graph == "main_graph"
    assert osl.run(folder)["logits"].shape == (1, 1, 48)
    result = osl.check(folder)
    assert result.match
    assert {field.agrees for field in result.config} == {True}
    assert "sliding_window" not in {field.field for field in result.config}


@pytest.mark.parametrize(
    ("field", "decoder"),
    [
        ("head_dim", {"head_size": 32}),
        ("num_key_value_heads", {"num_key_value_heads": 4}),
        ("num_hidden_layers", {"num_hidden_layers": 28}),
        ("past_value_names", {"inputs": {"past_value_names": "past.%d.value"}}),
    ],
)
def test_a_configuration_of_another_model_differs(field, decoder, package):
    folder = package(**decoder)

    result = osl.check(folder)

    assert [each.field for each in result.config if each.agrees is False] == [field]
    assert CliRunner().invoke(app, ["check", str(folder)]).exit_code == 1


@pytest.mark.parametrize("name", ["../outside.onnx", "/etc/passwd", "weights/../../x.onnx"])
def test_a_path_out_of_the_folder_is_refused(name, package):
    with pytest.raises(ModelFileError, match="outside of its folder"):
        osl.load(package(filename=name))


@pytest.mark.parametrize(
    "name",
    ["a\0b", "loop.onnx", "a" * 5000 + "/m.onnx"],
    ids=["no path", "a loop of links", "too long"],
)
def test_a_path_that_leads_nowhere_is_refused(name, package):
    folder = package(filename=name)
    (folder / "loop.onnx").symlink_to("loop.onnx")

    with pytest.raises(ModelFileError, match="cannot read"):
        osl.load(folder)


def test_a_link_out_of_the_folder_is_refused(package, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "model.onnx"
    folder = package(filename="link.onnx")
    outside.write_bytes((folder / "weights" / "decoder.onnx").read_bytes())
    (folder / "link.onnx").symlink_to(outside)

    with pytest.raises(ModelFileError, match="outside of its folder"):
        osl.load(folder)


def test_a_package_of_several_models_says_which_there_are(package):
    config = {
        "model": {
            "encoder": {"filename": "a.onnx"},
            "decoder": {"pipeline": [{"x": {"filename": "b.onnx"}}]},
        }
    }

    with pytest.raises(ModelFileError, match="names 2 models") as error:
        osl.load(package(config))

    assert "a.onnx" in error.value.hint
    assert "b.onnx" in error.value.hint


@pytest.mark.parametrize("text", ["[]", "{", "nonsense", "[" * 100_000])
def test_a_configuration_that_is_none_is_refused(text, package):
    folder = package()
    (folder / "genai_config.json").write_text(text)

    with pytest.raises(ReferenceSetError):
        osl.load(folder)


def test_a_configuration_that_names_no_model_is_refused(package):
    with pytest.raises(ModelFileError, match="names no model"):
        osl.load(package({"model": {"decoder": {"filename": 3}}}))
