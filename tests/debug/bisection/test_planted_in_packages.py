"""Faults of `scripts/packages` in a small package: each has a cause whose repair holds on fresh texts."""

import numpy as np
import onnxruntime
import pytest

import onnxsurgeon_lite as osl
from kit import packages
from kit.planted import FAULTS
from kit.versions import STURDY_ATTENTION
from onnxsurgeon_lite.runtime.session import Runtime

pytestmark = STURDY_ATTENTION

CACHE = [f"{layer}.{part}" for layer in (0, 1) for part in ("key", "value")]
HOW = {"decode": {"logits": "input_ids"}, "sequence": {"present.*": "past_key_values.*"}}
PROMPT, STEPS = 7, 5


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    """The file of a right package, with operators as the builder of onnxruntime-genai writes them."""
    place = tmp_path_factory.mktemp("right") / "model.onnx"
    osl.save(packages.decoder(packages.checkpoint()), place)
    return place


def decoded(place, seed):
    """All outputs at a text and at each step behind it."""
    session = onnxruntime.InferenceSession(str(place))
    names = [each.name for each in session.get_outputs()]
    tokens = np.random.default_rng(seed).integers(0, packages.VOCABULARY, (1, PROMPT + STEPS))
    empty = np.zeros((1, packages.KV_HEADS, 0, packages.HEAD), np.float32)
    cache, found, new = {f"past_key_values.{name}": empty for name in CACHE}, [], tokens[:, :PROMPT]
    for count in range(PROMPT, PROMPT + STEPS):
        mask = np.ones((1, count), np.int64)
        made = session.run(None, {"input_ids": new, "attention_mask": mask, **cache})
        found += made
        held = dict(zip(names, made, strict=True))
        cache = {f"past_key_values.{name}": held[f"present.{name}"] for name in CACHE}
        new = tokens[:, count : count + 1]
    return found


@pytest.mark.parametrize(
    "name",
    [
        "scale of attention",
        "window of attention",
        "epsilon of all norms",
        "K and V exchanged",
        "cache of another layer",
        "positions off by one from step 3 on",
        "base of rotary tables",
    ],
)
def test_a_fault_is_named_and_its_repair_decodes_fresh_texts_as_the_right_model(
    name, right, tmp_path
):
    wrong, planted = tmp_path / "wrong.onnx", osl.load(right).materialize()
    assert any(fault.plant(planted) for fault in FAULTS if fault.name == name)
    osl.save(planted, wrong)
    feeds, step = {"input_ids": np.array([[3, 17, 5, 40, 2, 30, 11]])}, tmp_path / "step.npz"

    found = osl.compare_sets(wrong, right, feeds, steps=8, step_feeds=step, **HOW)
    given = None if found.match else step  # a small error changes no token
    result = osl.bisect(wrong, against=right, feeds=given, repair=tmp_path / "repaired.onnx")

    assert result.verdict == "mismatch"
    assert result.repair.verdict == "agrees"
    for seed in (1, 2):
        for made, known in zip(
            decoded(tmp_path / "repaired.onnx", seed), decoded(right, seed), strict=True
        ):
            np.testing.assert_allclose(made, known, atol=1e-4 * np.abs(known).max())


def test_a_right_package_has_no_culprit(right, tmp_path):
    packed = tmp_path / "other.onnx"
    osl.save(packages.decoder(packages.checkpoint()), packed)
    feeds = {"input_ids": np.array([[3, 17, 5, 40, 2, 30, 11]])}

    assert osl.compare_sets(packed, right, feeds, steps=8, **HOW).match
    assert osl.bisect(packed, against=right).verdict == "agrees"


def test_one_model_has_a_session_at_a_time(right, tmp_path, monkeypatch):
    wrong = tmp_path / "wrong.onnx"
    osl.save(
        osl.set_attr(right, "/model/layers.0/attn/GroupQueryAttention", {"scale": 0.4}).model, wrong
    )
    opened, forgot, sizes, together = Runtime.open, Runtime.forget, {}, []

    def opens(runtime, proto, *args, **kwargs):
        sizes[id(runtime)] = len(proto.graph.node)
        together.append(sum(size > 10 for size in sizes.values()))
        return opened(runtime, proto, *args, **kwargs)

    def forgets(runtime, names, session=False):
        if session:
            sizes.pop(id(runtime), None)
        return forgot(runtime, names, session)

    monkeypatch.setattr(Runtime, "open", opens)
    monkeypatch.setattr(Runtime, "forget", forgets)
    result = osl.bisect(wrong, against=right)

    assert result.culprits[0].causes
    assert max(together) == 1
