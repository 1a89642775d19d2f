"""The settings of docs/howto/git.md make git show what changed in a model."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnxsurgeon_lite as osl
from kit import FIXTURES

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "git.md"
SETTINGS, TOOL = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """Run lines of a shell in a repository with a model."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")

    def run(lines):
        done = subprocess.run(
            ["bash", "-ec", lines], cwd=tmp_path, text=True, capture_output=True, check=True
        )
        return done.stdout + done.stderr

    onnx.save(onnx.load(FIXTURES / "whole_model.onnx"), tmp_path / "m.onnx")
    run("git init -q . && git config user.name n && git config user.email n@example.org")
    run(f"{SETTINGS}\ngit add -A && git commit -qm first")
    return run


def test_git_shows_the_nodes_that_changed(shell, tmp_path):
    osl.save(osl.rename(tmp_path / "m.onnx", {"22": "renamed"}), tmp_path / "m.onnx", force=True)

    shown = shell("git --no-pager diff")

    assert re.search(r"^\+.*renamed", shown, re.MULTILINE)
    assert "Binary files" not in shown


def test_the_tool_compares_the_weights_that_the_text_leaves_out(shell, tmp_path):
    model = onnx.load(tmp_path / "m.onnx")
    largest = max(model.graph.initializer, key=lambda tensor: np.prod(tensor.dims))
    numbers = numpy_helper.to_array(largest) + 1
    largest.CopyFrom(numpy_helper.from_array(numbers, largest.name))
    onnx.save(model, tmp_path / "m.onnx")

    assert largest.name in shell(TOOL)
