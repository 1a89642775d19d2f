"""onnxruntime of another interpreter: `runtime=ort:python=PATH`."""

import sys
from pathlib import Path

import numpy as np
import pytest

import onnxsurgeon_lite as osl
from kit.older import POOLED
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.runtime.options import RuntimeOptions, with_settings, words_of


def wrapper(folder: Path, lines: str = "") -> Path:
    """Write an interpreter that counts its starts and is this one."""
    path = folder / "python"
    path.write_text(
        f'#!/bin/sh\necho start >> {folder}/starts\n{lines}exec {sys.executable} "$@"\n'
    )
    path.chmod(0o755)
    return path


def test_a_model_runs_in_another_interpreter_with_inner_values(model_of, tmp_path):
    model, python = model_of(POOLED), wrapper(tmp_path)
    x = {"x": np.arange(128, dtype=np.float32).reshape(1, 2, 8, 8)}

    found = osl.run(model, feeds=x, fetch="p,y", runtime=f"ort:python={python}")

    assert (tmp_path / "starts").read_text() == "start\n"
    usual = osl.run(model, feeds=x, fetch="p,y")
    assert all(np.array_equal(found[name], usual[name]) for name in ("p", "y"))


def test_the_words_of_another_interpreter_lead_back_to_it():
    options = with_settings(RuntimeOptions(), "runtime=ort:python=/v/bin/python,threads=1")

    assert (options.python, options.threads) == ("/v/bin/python", 1)
    assert words_of(options) == ["--runtime", "ort:python=/v/bin/python"]


def test_what_is_no_interpreter_or_has_no_onnxruntime_is_said(model_of, tmp_path):
    model = model_of(POOLED)
    with pytest.raises(UsageError, match="no interpreter '/no/python'"):
        osl.run(model, runtime="ort:python=/no/python")
    bare = wrapper(tmp_path, f"export PYTHONPATH={tmp_path}\n")
    raises = "raise ModuleNotFoundError(\"No module named 'onnxruntime'\")"
    (tmp_path / "onnxruntime.py").write_text(raises)

    with pytest.raises(UsageError, match=f"{bare} has no onnxruntime") as caught:
        osl.run(model, runtime=f"ort:python={bare}")

    assert caught.value.hint == f"{bare} -m pip install onnxruntime"


@pytest.mark.parametrize("guilty", ["a", "b"])
def test_of_two_versions_the_one_that_pools_wrongly_is_named(model_of, older, guilty):
    """onnxruntime 1.20.1 divides by the whole window where `ceil_mode` made it reach out of the padding."""
    old, new = f"runtime=ort:python={older}", "runtime=ort"

    result = osl.bisect(
        model_of(POOLED), **{"a": old, "b": new} if guilty == "a" else {"a": new, "b": old}
    )

    (culprit,) = result.culprits
    assert (culprit.op_type, culprit.findings[0].verdict) == ("AveragePool", "kernel")
    because = culprit.findings[0].because
    assert because.startswith(f"ort:python={older} computes AveragePool wrongly")
