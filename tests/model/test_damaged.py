"""Damaged model files: whatever the bytes are, what reads them works or says why not."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import onnxsurgeon_lite as osl
from kit import FIXTURES
from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.lint import find
from onnxsurgeon_lite.graph.summary import model_text, summarize, summarize_node, summarize_value

MODELS = sorted(FIXTURES.glob("*.onnx"))


@st.composite
def damaged(draw: st.DrawFn) -> tuple[Path, bytes]:
    """A model's file with some bytes replaced, taken out or put in."""
    path = draw(st.sampled_from(MODELS))
    data = bytearray(path.read_bytes())
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data) - 1))
        stop = start + draw(st.integers(0, 3))
        data[start:stop] = draw(st.binary(max_size=3))
    return path, bytes(data)


def look(index: GraphIndex) -> None:
    """Everything that is shown of a model."""
    summarize(index.model)
    for position in range(len(index.nodes)):
        summarize_node(index, position)
    for name in index.producer:
        summarize_value(index, name)
    list(find(index))


READERS = {
    "look": lambda model, original: look(GraphIndex.of(model)),
    "print": lambda model, original: model_text(model),
    "diff": lambda model, original: osl.diff(osl.load(original), model),
    **{
        verb.name: lambda model, original, verb=verb: osl.save(verb.apply(model).model, "out.onnx")
        for verb in (
            osl.Clean(),
            osl.Dedupe(),
            osl.Expose((), all_values=True),
            osl.Fix(),
            osl.Inline(),
            osl.Opset(21),
            osl.Rebatch("N"),
            osl.Remove(("@0",)),
            osl.Rename((("*", "p/*"),)),
            osl.Sort(),
            osl.Extract((), ("*",)),
        )
    },
}


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(damage=damaged())
def test_a_damaged_file_is_read_or_refused(damage, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    original, data = damage
    Path("damaged.onnx").write_bytes(data)
    try:
        model = osl.load("damaged.onnx")
    except SurgeonError:
        return
    for read in READERS.values():
        with contextlib.suppress(SurgeonError):
            read(model, original)


@pytest.mark.parametrize("text", [b"\xfcber", b"\xff"])
def test_text_that_is_not_utf8_is_found_wherever_it_is(text, tmp_path):
    original = osl.load(FIXTURES / "control_flow.onnx").proto
    inner = original.graph.node[-1].name.encode()
    data = original.SerializeToString()
    assert inner in data
    (tmp_path / "m.onnx").write_bytes(data.replace(inner, (text + inner)[: len(inner)]))

    with pytest.raises(SurgeonError, match=r"graph\.node\[\d+\]\S*\.name is not UTF-8"):
        osl.load(tmp_path / "m.onnx")
