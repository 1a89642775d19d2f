"""What another package brings by entry points is used; what is broken is named and left out."""

import json
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
import typer
from typer._completion_classes import BashComplete
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from onnxsurgeon_lite import plugins
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import ReferenceSetError, RuntimeFailure, UnknownNameError

SOURCE = Path(__file__).parent / "plugin"
X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the package, installed from its wheel without a network."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(SOURCE, folder / "source")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    where = ["--no-index", "--disable-pip-version-check", "--target", str(folder / "site")]
    subprocess.run([*pip, *where, str(folder / "source")], check=True, capture_output=True)
    return folder / "site"


@pytest.fixture(autouse=True)
def plugin(installed, monkeypatch):
    monkeypatch.syspath_prepend(installed)
    plugins.brought.cache_clear()
    yield
    plugins.brought.cache_clear()


def test_a_runtime(model_of):
    model = model_of("n (float[3,4] x) => (float[3,4] y) { a = Neg(x) b = Neg(a) y = Neg(b) }")

    assert osl.bisect(model, a="runtime=acme", b="runtime=ort", feeds={"x": X}).verdict == "agrees"
    found = osl.bisect(model, a="runtime=ort", b="runtime=acme,sign=-1.5", feeds={"x": X})
    assert [c.value for c in found.culprits] == ["a", "b", "y"]
    with pytest.raises(RuntimeFailure, match="acme knows Neg alone"):
        osl.run(
            model_of("e (float[3,4] x) => (float[3,4] y) { y = Exp(x) }", "e.onnx"), runtime="acme"
        )
    with pytest.raises(
        RuntimeFailure, match="'broken-runtime' of 'acme-onnx' is broken: ImportError"
    ):
        osl.run(model, {"x": X}, runtime="broken-runtime")


def test_a_pass(model_of, tmp_path):
    model = model_of("n (float[3,4] x) => (float[3,4] y) { y = Neg(x) }")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[[step]]\nverb = "acme-tag"\nproducer = "acme"\n')

    assert osl.apply(recipe, model).model.proto.producer_name == "acme"
    recipe.write_text('[[step]]\nverb = "broken-pass"\n')
    with pytest.raises(UnknownNameError) as caught:
        osl.apply(recipe, model)
    assert (
        "left out 'broken-pass' of 'acme-onnx': ImportError: acme needs its device"
        in caught.value.__notes__
    )


def test_a_pass_is_a_verb_and_a_function(model_of, tmp_path):
    model = model_of("n (float[3,4] x) => (float[3,4] y) { y = Neg(x) }")
    source, target = tmp_path / "n.onnx", tmp_path / "tagged.onnx"
    onnx.save(model.proto, source)
    done = partial(CliRunner().invoke, app)

    assert osl.acme_tag(model, producer="acme").model.proto.producer_name == "acme"
    words = ["edit", "acme-tag", str(source), "acme", "--version", "v2", "-o", str(target)]
    assert done(words).exit_code == 0
    assert osl.load(target).proto.producer_name == "acme v2"
    listed, told = done(["edit", "--help"]), done(["edit", "acme-tag", "--help"]).output
    assert "acme-tag" in listed.output
    assert "left out 'broken-pass' of 'acme-onnx': ImportError" in listed.stderr
    assert "Write who made the model." in told
    assert "Its version." in told
    broken = done(["edit", "broken-pass", str(source)])
    assert (broken.exit_code, "acme needs its device" in broken.stderr) == (2, True)
    completer = BashComplete(typer.main.get_command(app), {}, "", "")
    assert [found.value for found in completer.get_completions(["edit"], "ac")] == ["acme-tag"]
    assert not hasattr(osl, "broken_pass")


def test_hypotheses(model_of):
    text = "h (float[3,4] x) => (float[3,4] y) {{ y = HardSigmoid<alpha = {}, beta = {}>(x) }}"
    right = osl.run(model_of(text.format(0.37, 0.21)), {"x": X})

    found = osl.bisect(model_of(text.format(0.11, 0.68)), {"x": X, **right})

    assert [cause.hypothesis for cause in found.culprits[0].causes] == ["acme"]
    assert any("left out 'broken-hypotheses' of 'acme-onnx'" in note for note in found.notes)


def test_a_reader_of_references(tmp_path):
    (tmp_path / "refs.acme").write_text(json.dumps({"y": [1, 2]}))
    (tmp_path / "bad.acme").write_text("{")
    (tmp_path / "refs.other").write_text("")

    assert osl.open_references(tmp_path / "refs.acme").read("y").tolist() == [1, 2]
    with pytest.raises(ReferenceSetError, match="the reader of '.acme' cannot read"):
        osl.open_references(tmp_path / "bad.acme")
    with pytest.raises(ReferenceSetError) as caught:
        osl.open_references(tmp_path / "refs.other")
    assert any("'broken-reader'" in note for note in caught.value.__notes__)
