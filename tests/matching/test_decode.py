"""Two language models that decode side by side: the first token that differs, and what leads there."""

import numpy as np
import pytest
from onnx import helper
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit import packages
from kit.versions import STURDY_ATTENTION
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import FeedsError, UsageError

HOW = {"decode": {"logits": "input_ids"}, "sequence": {"present.*": "past_key_values.*"}}
EMPTY = {
    f"past_key_values.{layer}.{kind}": np.zeros((1, 2, 0, 16), np.float32)
    for layer in (0, 1)
    for kind in ("key", "value")
}
PROMPT = {"input_ids": np.array([[3, 17, 5, 40]])}


def decoder(**attributes):
    model = packages.decoder(packages.checkpoint())
    node = [n for n in model.proto.graph.node if n.op_type == "GroupQueryAttention"][1]
    kept = [a for a in node.attribute if a.name not in attributes]
    del node.attribute[:]
    node.attribute.extend(kept)
    node.attribute.extend(helper.make_attribute(n, v) for n, v in attributes.items())
    return model


def test_a_model_decodes_the_tokens_that_it_gives_without_a_cache():
    found = osl.compare_sets(decoder(), decoder(), PROMPT, steps=8, **HOW)

    tokens = [step.wanted for step in found.steps]
    text = np.array([[*PROMPT["input_ids"][0], *tokens]])
    cache = dict(EMPTY)
    whole = osl.run(decoder(), {"input_ids": text, "attention_mask": np.ones_like(text), **cache})
    assert tokens == whole["logits"][0, 3:-1].argmax(-1).tolist()
    assert found.match
    assert found.agreement == 1
    assert max(step.kl for step in found.steps) < 1e-9
    assert len(set(tokens)) > 1


@STURDY_ATTENTION
def test_the_first_token_that_differs_is_named_with_its_margin_and_what_it_was_fed(tmp_path):
    wrong = decoder(scale=2.0)

    found = osl.compare_sets(
        wrong, decoder(), PROMPT, steps=16, step_feeds=tmp_path / "step.npz", **HOW
    )

    first = found.steps[found.divergent]
    assert not found.match
    assert all(step.agrees for step in found.steps[: found.divergent])
    assert first.token != first.wanted
    assert first.margin > 0
    assert first.kl > 1e-4
    assert 0 < found.agreement < 1
    result = osl.bisect(wrong, against=decoder(), feeds=tmp_path / "step.npz")
    assert result.culprits[0].causes[0].sentence.startswith("scale of GroupQueryAttention")


def test_a_cache_of_another_layer_shows_after_the_first_step():
    wrong = decoder()
    for node in wrong.proto.graph.node:
        for slot, name in enumerate(node.output):
            if name.startswith("present."):
                node.output[slot] = name.translate(str.maketrans("01", "10"))

    found = osl.compare_sets(wrong, decoder(), PROMPT, steps=12, **HOW)

    assert found.steps[0].kl < 1e-9
    assert found.steps[1].kl > 1e-3
    assert found.divergent > 0


def test_positions_go_on_where_the_model_reads_them():
    graph = """<ir_version: 10, opset_import: ["" : 21]>
        g (int64[b, s] input_ids, int64[b, s] position_ids, float[b, past] old) => (
            float[b, s, 9] logits, float[b, total] new) {
        depth = Constant <value_ints = [9]> () ends = Constant <value_floats = [0.0, 1.0]> ()
        logits = OneHot(position_ids, depth, ends)
        given = Cast<to = 1>(input_ids) new = Concat<axis = 1>(old, given) }"""
    model = osl.build(graph)

    found = osl.compare_sets(
        model, model, PROMPT, steps=4, decode={"logits": "input_ids"}, sequence={"new": "old"}
    )

    assert [step.token for step in found.steps] == [3, 4, 5, 6]  # each position as a token


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sequence": None}, "which outputs are the cache"),
        (
            {"decode": {"logits": "input_ids", "present.*": "past_key_values.*"}},
            "one output and one",
        ),
        (
            {"sequence": {"present.0.*": "past_key_values.0.*"}},
            "'past_key_values.1.key' has no value",
        ),
    ],
)
def test_what_is_not_said_is_not_guessed(change, message):
    with pytest.raises(UsageError, match=message):
        osl.compare_sets(decoder(), decoder(), PROMPT, **(HOW | change))


def recording(model, count=8):
    """The steps of a model that decodes: what it was fed, and its logits."""
    text, steps = PROMPT["input_ids"], []
    cache = dict(EMPTY)
    for fed in [text, *([None] * (count - 1))]:
        tokens = text[:, -1:] if fed is None else fed
        feeds = {"input_ids": tokens, "attention_mask": np.ones_like(text)}
        made = osl.run(model, feeds | cache)
        cache = {name: made[name.replace("past_key_values", "present")] for name in cache}
        steps.append(feeds | {"logits": made["logits"]})
        text = np.concatenate([text, [[made["logits"][0, -1].argmax()]]], 1)
    return steps


@STURDY_ATTENTION
def test_a_recording_is_decoded_as_the_model_is_that_it_was_made_of(tmp_path):
    steps = recording(decoder())

    same = osl.compare_sets(decoder(), steps, steps=32, **HOW)
    wrong = osl.compare_sets(decoder(scale=2.0), steps, step_feeds=tmp_path / "s.npz", **HOW)

    assert same.match
    assert len(same.steps) == len(steps)
    assert max(step.kl for step in same.steps) < 1e-9
    both = osl.compare_sets(decoder(scale=2.0), decoder(), PROMPT, steps=len(steps), **HOW)
    assert [step.token for step in wrong.steps] == [step.token for step in both.steps]
    assert wrong.divergent == both.divergent is not None
    assert (tmp_path / "s.npz").exists()


def test_tokens_that_were_recorded_are_fed_though_they_are_not_the_most_likely():
    steps = recording(decoder(), 3)
    forced = [steps[0], steps[1] | {"input_ids": np.array([[7]])}]
    text = np.array([[*PROMPT["input_ids"][0], 7]])
    cache = dict(EMPTY)
    whole = osl.run(decoder(), {"input_ids": text, "attention_mask": np.ones_like(text), **cache})
    forced[1]["logits"] = whole["logits"][:, -1:]

    found = osl.compare_sets(decoder(), forced, **HOW)

    assert max(step.kl for step in found.steps) < 1e-9


def test_a_recording_that_begins_in_the_middle_is_refused():
    with pytest.raises(FeedsError, match="has seen 5 tokens, and the recording has 1"):
        osl.compare_sets(decoder(), recording(decoder(), 3)[1:], **HOW)


def test_two_texts_at_once_are_refused():
    with pytest.raises(FeedsError, match="one text is decoded"):
        osl.compare_sets(decoder(), decoder(), {"input_ids": np.array([[1], [2]])}, **HOW)


def test_the_command_shows_the_first_token_and_exits_with_1(tmp_path):
    osl.save(decoder(scale=2.0), tmp_path / "wrong.onnx")
    osl.save(decoder(), tmp_path / "right.onnx")
    osl.save_tensors(tmp_path / "prompt.npz", PROMPT)
    words = ["compare", "wrong.onnx", "right.onnx", "--feeds", "prompt.npz"]
    words = [str(tmp_path / word) if "." in word else word for word in words]
    how = ["--decode", "logits=input_ids", "--sequence", "present.*=past_key_values.*"]

    result = CliRunner().invoke(app, [*words, *how, "--steps", "16"])

    assert result.exit_code == 1
    assert "differs first: " in result.stdout
    assert "tokens agree" in result.stdout
