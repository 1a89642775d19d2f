"""onnxruntime of another interpreter: `runtime=ort:python=PATH`."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxsurgeon_lite as osl
from kit import COMMAND, FIXTURES, ROOT
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


def test_an_older_version_shows_what_it_made_of_a_model_and_its_times(older):
    """1.20 leaves the file where weights of the optimized graph were not to be written; 1.27 removes it."""
    model, how = FIXTURES / "whole_model.onnx", {"runtime": f"ort:python={older}"}

    fused = osl.inspect(model, optimized=True, **how).made
    placed = osl.inspect(model, placement=True, **how)
    timed = osl.profile(model, runs=2, **how)

    assert fused
    assert {node.provider for node in placed.nodes} == {"CPUExecutionProvider"}
    assert timed.total.seconds > 0


def test_an_older_version_finds_weights_in_files_wherever_they_are(older, tmp_path, monkeypatch):
    """Before 1.21 it looks for them in the working folder, where the model lies, or its optimized form."""
    monkeypatch.chdir(tmp_path)
    old = f"ort:python={older}"

    assert list(osl.run(FIXTURES / "external.onnx", runtime=old)) == ["y"]
    result = osl.bisect(FIXTURES / "whole_model.onnx", a=f"runtime={old}", b="runtime=ort")
    assert result.verdict == "agrees"


def test_what_an_older_version_records_agrees_with_it_alone(model_of, older, tmp_path):
    old = ["--runtime", f"ort:python={older}"]
    onnx.save(model_of(POOLED).materialize(), tmp_path / "m.onnx")

    def ended(*words):
        return subprocess.run([*COMMAND, *words], cwd=tmp_path, check=False).returncode

    assert ended("record", "m.onnx", "-o", "refs", *old) == 0
    assert ended("compare", "m.onnx", "refs", *old) == 0
    assert ended("compare", "m.onnx", "refs") == 1


LATER = {"removeprefix", "removesuffix", "pairwise", "lcm", "bit_count", "cache", "batched"}
"""What Python 3.8 has not."""


@pytest.mark.parametrize("file", ["guard.py", "runtime/worker.py", "recording/torch_recorder.py"])
def test_a_file_that_other_interpreters_run_needs_python_3_8(file):
    tree = ast.parse((ROOT / "onnxsurgeon_lite" / file).read_text(), feature_version=(3, 8))

    assert [ast.unparse(node) for node in evaluated(tree) if is_later(node)] == []


def evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what Python evaluates when it runs a file: neither annotations nor what is for type checkers alone."""
    yield node
    for name, field in ast.iter_fields(node):
        below = field if isinstance(field, list) else [field]
        for each in below:
            for_checkers = isinstance(each, ast.If) and ast.unparse(each.test) == "TYPE_CHECKING"
            if isinstance(each, ast.AST) and name not in ("annotation", "returns"):
                yield from () if for_checkers else evaluated(each)


def is_later(node: ast.AST) -> bool:
    """Return whether it is `list[int]`, `zip(strict=...)`, `a | b` of tables or types, or a later name."""
    match node:
        case ast.Subscript(value=ast.Name(id=name)):
            return name in {"dict", "list", "set", "tuple", "type", "frozenset", "Iterator"}
        case ast.Call(func=ast.Name(id="zip"), keywords=keywords):
            return bool(keywords)
        case ast.BinOp(op=ast.BitOr()):
            return True
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name in LATER
    return False
