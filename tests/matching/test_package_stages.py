"""A model in several files: a prompt and a token model that share a cache, and the pipeline of a package."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit import packages
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import UsageError

DECODE = {"logits": "input_ids"}
SEQUENCE = {"present.*": "past_key_values.*"}
PROMPT = {"input_ids": np.array([[3, 17, 5, 40]])}
PAIR = """
[[stage]]
model = "prefill.onnx"
runs = "prompt"

[[stage]]
model = "token.onnx"
runs = "token"
cache = { "present.*" = "past_key_values.*" }
"""
CACHE = [f"{kind}.{layer}.{part}" for kind in ("past_key_values", "present") for layer in (0, 1)
         for part in ("key", "value")]  # fmt: skip
NAMES = {
    "inputs": {
        "input_ids": "input_ids",
        "past_key_names": "past_key_values.%d.key",
        "past_value_names": "past_key_values.%d.value",
    },
    "outputs": {
        "logits": "logits",
        "present_key_names": "present.%d.key",
        "present_value_names": "present.%d.value",
    },
}


def whole():
    return packages.decoder(packages.checkpoint())


def prompt_model():
    """The model without a cache before it."""
    past = {name: np.zeros((1, 2, 0, 16), np.float32) for name in CACHE[:4]}
    return osl.freeze(whole(), values=past).model


def exchanged(model):
    """The same model, whose layers have each other's cache."""
    for node in model.proto.graph.node:
        for slot, name in enumerate(node.output):
            if name.startswith("present."):
                node.output[slot] = name.translate(str.maketrans("01", "10"))
    return model


def folder_of(folder, toml=None, config=None, **models):
    folder.mkdir()
    for name, model in models.items():
        osl.save(model, folder / f"{name}.onnx")
    if toml:
        (folder / "onnxdbg.toml").write_text(toml)
    if config:
        (folder / "genai_config.json").write_text(json.dumps({"model": config}))
    return folder


def pipeline(folder, prefill=None, decoder=NAMES):
    """A package as NPUs have it: an embedding, a body for the prompt and one for tokens, a head."""
    states, last = "residual_0", "normed_2"
    body = {"inputs": [states, "attention_mask", *CACHE[:4]], "outputs": [last, *CACHE[4:]]}
    parts = [
        {"embedding": {"inputs": ["input_ids"], "outputs": [states]}},
        {"prompt": {**body, "run_on_token_gen": False}},
        {"token": {**body, "run_on_prompt": False}},
        {"head": {"inputs": [last], "outputs": ["logits"]}},
    ]
    for part in parts:
        for name, each in part.items():
            each["filename"] = f"{name}.onnx"
    inner = {"inputs": body["inputs"], "outputs": body["outputs"]}
    return folder_of(
        folder,
        config={"decoder": {**decoder, "pipeline": parts}},
        embedding=osl.extract(whole(), outputs=[states]).model,
        prompt=osl.extract(prefill or whole(), **inner).model,
        token=osl.extract(whole(), **inner).model,
        head=osl.extract(whole(), inputs=[last], outputs=["logits"]).model,
    )


def test_a_prompt_and_a_token_model_decode_as_the_one_that_they_were_made_of(tmp_path):
    pair = folder_of(tmp_path / "pair", PAIR, prefill=prompt_model(), token=whole())

    found = osl.compare_sets(pair, whole(), PROMPT, decode=DECODE, sequence=SEQUENCE, steps=8)

    assert found.match
    assert len({step.wanted for step in found.steps}) > 1
    assert max(step.kl for step in found.steps) < 1e-9


def test_a_cache_that_the_prompt_model_gives_to_another_layer_shows_at_the_first_token(tmp_path):
    models = {"prefill": exchanged(prompt_model()), "token": whole()}
    wrong = folder_of(tmp_path / "wrong", PAIR, **models)
    right = folder_of(tmp_path / "right", PAIR, prefill=prompt_model(), token=whole())

    # the cache is written in the file, so no option names it
    found = osl.compare_sets(
        wrong, right, PROMPT, decode=DECODE, steps=12, step_feeds=tmp_path / "step.npz"
    )

    assert found.steps[0].kl < 1e-9
    assert found.steps[1].kl > 1e-3
    assert found.divergent > 0
    fed = np.load(tmp_path / "step.npz")
    assert fed["past_key_values.1.key"].shape[2] == 4 + found.divergent - 1


def test_the_pipeline_of_a_package_decodes_as_the_whole_model(tmp_path):
    found = osl.compare_sets(pipeline(tmp_path / "parts"), whole(), PROMPT, decode=DECODE,
                             sequence=SEQUENCE, steps=8)  # fmt: skip

    assert found.match
    assert max(step.kl for step in found.steps) < 1e-9


def test_the_package_of_one_model_needs_no_option_for_its_cache(tmp_path):
    config = {"decoder": {**NAMES, "filename": "model.onnx"}}
    one = folder_of(tmp_path / "one", config=config, model=whole())
    wrong = pipeline(tmp_path / "parts", exchanged(whole()))

    found = osl.compare_sets(wrong, one, PROMPT, decode=DECODE, steps=8)

    assert found.steps[0].kl < 1e-9
    assert found.divergent > 0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('runs = "prompt"', 'runs = "never"', "not understood"),
        ('runs = "prompt"', 'runs = "token"', "no model that runs at the prompt makes 'logits'"),
        ('runs = "token"', 'runs = "prompt"', "no model that runs at the token makes 'logits'"),
        ('.*" = "past_key_values.*', '.0.*" = "past_key_values.0.*', "values.1.key' has no value"),
        ('cache = { "present.*" = "past_key_values.*" }', "", "which outputs are the cache"),
    ],
)
def test_a_pair_that_cannot_go_on_is_refused(old, new, message, tmp_path):
    assert old in PAIR
    pair = folder_of(
        tmp_path / "pair", PAIR.replace(old, new), prefill=prompt_model(), token=whole()
    )

    with pytest.raises(UsageError, match=message):
        osl.compare_sets(pair, whole(), PROMPT, decode=DECODE)


@pytest.mark.parametrize(
    "config",
    [
        {"decoder": {"pipeline": [3, {"a": 3}, {"b": {"filename": 3}}]}},
        {"decoder": {"pipeline": 3}, "encoder": [], "vision": None},
        3,
        {},
    ],
)
def test_a_configuration_without_a_file_has_no_stages(config, tmp_path):
    folder = folder_of(tmp_path / "odd", config=config or {"x": 1})

    with pytest.raises(UsageError, match="a model is needed"):
        osl.compare_sets(folder, folder, PROMPT, decode=DECODE)


def test_a_pipeline_that_names_a_file_outside_is_refused(tmp_path):
    folder = pipeline(tmp_path / "parts")
    place = folder / "genai_config.json"
    place.write_text(place.read_text().replace("head.onnx", "../head.onnx"))

    with pytest.raises(UsageError, match="'../head.onnx', which is not in its folder"):
        osl.inspect(folder)


def test_inspect_shows_where_the_inputs_of_each_stage_come_from(tmp_path):
    folder = pipeline(tmp_path / "parts")

    package = osl.inspect(folder)

    assert [(s.file, s.runs) for s in package.stages] == [
        ("embedding.onnx", "step"),
        ("prompt.onnx", "prompt"),
        ("token.onnx", "token"),
        ("head.onnx", "step"),
    ]
    token, head = package.stages[2:]
    assert token.inputs["residual_0"] == "'residual_0' of embedding.onnx"
    assert token.inputs["past_key_values.1.key"] == "cache: 'present.1.key' of the step before"
    assert token.inputs["attention_mask"] == "feeds"
    assert head.inputs == {"normed_2": "'normed_2' of prompt.onnx or 'normed_2' of token.onnx"}
    shown = CliRunner().invoke(app, ["inspect", str(folder)]).output
    assert "past_key_values.*.key     2   cache: 'present.*.key' of the step before" in shown
    assert "'normed_2' of prompt.onnx or 'normed_2' of token.onnx" in shown
    # what is asked of a model is asked of one
    assert CliRunner().invoke(app, ["inspect", str(folder), "--ops"]).exit_code == 2


def test_inspect_shows_what_the_encoder_of_a_package_gives_to_its_decoder(tmp_path):
    config = {
        "encoder": {
            "filename": "embedding.onnx",
            "outputs": {"encoder_hidden_states": "residual_0"},
        },
        "decoder": {"filename": "head.onnx", "inputs": {"encoder_hidden_states": "normed_2"}},
    }
    folder = pipeline(tmp_path / "parts")
    (folder / "genai_config.json").write_text(json.dumps({"model": config}))

    first, second = osl.inspect(folder).stages

    assert [first.runs, second.runs] == ["once", "step"]
    assert second.inputs == {"normed_2": "'residual_0' of embedding.onnx"}
