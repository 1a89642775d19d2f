"""Faults of `scripts/packages` in a small package: each has a cause whose repair holds on fresh texts."""

import pytest

import onnxsurgeon_lite as osl
from kit import packages
from kit.planted import HOW, TEXT, repaired
from kit.versions import STURDY_ATTENTION
from onnxsurgeon_lite.runtime.session import Runtime

pytestmark = STURDY_ATTENTION


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    """The file of a right package, with operators as the builder of onnxruntime-genai writes them."""
    place = tmp_path_factory.mktemp("right") / "model.onnx"
    osl.save(packages.decoder(packages.checkpoint()), place)
    return place


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
    repaired(name, right, tmp_path)


def test_a_right_package_has_no_culprit(right, tmp_path):
    packed = tmp_path / "other.onnx"
    osl.save(packages.decoder(packages.checkpoint()), packed)

    assert osl.compare_sets(packed, right, TEXT, steps=8, **HOW).match
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
