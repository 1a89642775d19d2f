"""Models as textproto and as JSON: read and written by their extensions, as onnx does."""

import json

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit import FIXTURES
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import ModelFileError

TEXTS = ["m.textproto", "m.prototxt", "m.json", "m.onnxjson"]


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("source", ["linear_func.onnx", "external.onnx"])
def test_onnx_reads_what_is_written_under_the_name_of_a_text(source, name, tmp_path):
    path = FIXTURES / source

    done = CliRunner().invoke(app, ["edit", "clean", str(path), "-o", str(tmp_path / name)])

    assert done.exit_code == 0, done.output
    assert onnx.load(tmp_path / name) == onnx.load(path)
    assert "ir_version" in (tmp_path / name).read_text()


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_that_onnx_wrote_is_edited_and_runs_alike(name, tmp_path):
    onnx.save(onnx.load(FIXTURES / "linear_func.onnx"), tmp_path / name)
    feeds = {each: np.full((10, 10), 1.5, np.float32) for each in "axb"}

    osl.rename(tmp_path / name, {"a": "z"}).save(tmp_path / "o.onnx")

    after = osl.run(tmp_path / "o.onnx", {"z": feeds.pop("a"), **feeds})
    assert np.array_equal(after["y"], np.full((10, 10), 3.75, np.float32))


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_compared_as_a_model(name, tmp_path):
    onnx.save(onnx.load(FIXTURES / "linear_func.onnx"), tmp_path / name)

    done = CliRunner().invoke(
        app, ["compare", str(FIXTURES / "linear_func.onnx"), str(tmp_path / name)]
    )

    assert done.exit_code == 0, done.output


def test_a_text_that_is_edited_in_place_stays_one(tmp_path):
    onnx.save(onnx.load(FIXTURES / "linear_func.onnx"), tmp_path / "m.json")

    done = CliRunner().invoke(
        app,
        [
            "edit",
            "rename",
            str(tmp_path / "m.json"),
            "a=z",
            "-o",
            str(tmp_path / "m.json"),
            "--force",
        ],
    )

    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "m.json").read_text())["graph"]["input"][0]["name"] == "z"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("m.json", b"{"),
        ("m.json", b"[" * 100_000),
        ("m.json", b'{"graph": ' * 100_000),
        ("m.json", b"\xff\xfe"),
        ("m.json", b"{}"),
        ("m.json", b'{"irVersion": "99999999999999999999"}'),
        ("m.textproto", b"graph {"),
        ("m.textproto", b"graph { node { attribute { g { " * 20_000),
        ("m.textproto", b""),
        ("m.textproto", bytes(1000)),
    ],
)
def test_a_text_that_is_no_model_is_refused(name, text, tmp_path):
    (tmp_path / name).write_bytes(text)

    with pytest.raises(ModelFileError, match="is not an ONNX model"):
        osl.load(tmp_path / name)


def test_onnx_text_leads_to_build(tmp_path):
    (tmp_path / "m.onnxtxt").write_text("g (float[1] x) => (float[1] y) { y = Neg(x) }")

    with pytest.raises(ModelFileError) as raised:
        osl.load(tmp_path / "m.onnxtxt")

    assert raised.value.hint.startswith("build it first: onnxdbg build ")


def test_a_text_of_endless_size_is_not_read(tmp_path):
    with (tmp_path / "m.json").open("wb") as file:
        file.truncate((1 << 30) + 1)

    with pytest.raises(ModelFileError, match="more than 1073741824 bytes of text"):
        osl.load(tmp_path / "m.json")
