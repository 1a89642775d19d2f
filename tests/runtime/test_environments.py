"""Other versions of onnxruntime, which pip installs when they are asked for."""

import subprocess

import numpy as np
import pytest

import onnxsurgeon_lite as osl
from kit import COMMAND
from kit.older import POOLED, versions_kept
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.runtime import environments


@pytest.fixture(scope="module", autouse=True)
def _kept():
    with versions_kept():
        yield


@pytest.fixture
def _without_pip(monkeypatch):
    def run(*words):
        raise AssertionError(f"{words} was run")

    monkeypatch.setattr(environments, "run_to_end", run)


@pytest.mark.usefixtures("_without_pip")
@pytest.mark.parametrize("text", ["1.20.1", "1.20..", "1.20.1,--pre", "1.20.1,1.21;id", ""])
def test_what_is_no_version_reaches_no_pip(text, model_of):
    with pytest.raises(UsageError, match="does not name versions"):
        osl.bisect(model_of(POOLED), versions=text)


@pytest.mark.usefixtures("_without_pip")
def test_a_setting_that_is_no_version_reaches_no_pip(model_of):
    with pytest.raises(UsageError, match="is no version"):
        osl.run(model_of(POOLED), runtime="ort:version=1.20.1 --pre")


@pytest.mark.usefixtures("_without_pip")
def test_versions_are_one_way_to_compare(model_of):
    with pytest.raises(UsageError, match="several things"):
        osl.bisect(model_of(POOLED), versions="1.20.1,1.21.0", find="nan")


def test_versions_between_two_are_those_that_pip_knows(monkeypatch):
    known = b"onnxruntime (1.22.0)\nAvailable versions: 1.22.0, 1.21.1, 1.21.0, 1.20.1, 1.21.0.dev7, 1.9.0\n"
    monkeypatch.setattr(environments, "run_to_end", lambda *_: (0, known))

    assert environments.versions_between("1.20.1..1.21") == ["1.20.1", "1.21.0", "1.21.1"]
    assert environments.versions_between("1.21.1..1.20") == ["1.21.1", "1.21.0", "1.20.1"]
    with pytest.raises(UsageError, match="fewer than two"):
        environments.versions_between("1.22..1.30")


def test_the_first_version_that_differs_is_named_with_its_node_and_who_errs(model_of, tmp_path):
    model = model_of(POOLED)

    found = osl.bisect(model, versions="1.20.1,1.21.0", output=tmp_path / "culprit")

    assert (
        found.notes[0]
        == "onnxruntime 1.21.0 is the first version whose outputs differ from those of 1.20.1"
    )
    assert found.notes[0] in (found.reproducer / "report.md").read_text()
    culprit = found.culprits[0]
    assert (culprit.op_type, culprit.findings[0].verdict) == ("AveragePool", "kernel")
    assert "ort:version=1.20.1 computes AveragePool wrongly" in culprit.findings[0].because
    # the reproducer runs in both, and no path of this machine is in its words
    assert found.reproduce[-2:] == ["--runtime", "ort:version=1.21.0"]
    for version, code in (("1.20.1", 0), ("1.21.0", 1)):
        words = [*COMMAND, *found.reproduce[1:-1], f"ort:version={version}"]
        assert subprocess.run(words, capture_output=True, check=False).returncode == code


def test_versions_that_agree_are_no_finding_and_say_what_was_tried(model_of):
    found = osl.bisect(
        model_of("g (float[N] x) => (float[N] y) { y = Relu(x) }"), versions="1.20.1,1.21.0"
    )

    assert found.verdict == "agrees"
    assert (
        found.notes[0] == "onnxruntime 1.20.1 and 1.21.0 agree: no version between them was tried"
    )


def test_a_version_that_cannot_be_had_is_told_with_what_pip_says(model_of):
    with pytest.raises(UsageError, match=r"pip fails for onnxruntime 0\.0\.1 .*version"):
        osl.run(
            model_of(POOLED),
            feeds={"x": np.zeros((1, 2, 8, 8), np.float32)},
            runtime="ort:version=0.0.1",
        )
