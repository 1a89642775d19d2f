"""`record --python`: the torch of another interpreter records."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch  # noqa: F401  another interpreter is this one here

import onnxsurgeon_lite as osl
from kit import FIXTURES
from onnxsurgeon_lite.errors import ReferenceSetError, UsageError

FACTORY = f"{FIXTURES}/whole_model.py:factory"


@pytest.fixture
def python(tmp_path) -> Path:
    """Return an interpreter that notes what it runs, and is this one."""
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/started\nexec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return path


def test_what_another_interpreter_records_is_what_this_one_records(python, tmp_path):
    names_of = FIXTURES / "whole_model.onnx"

    found = osl.record(FACTORY, tmp_path / "there", python=str(python), names_of=names_of)

    here = osl.record(FACTORY, tmp_path / "here", names_of=names_of)
    assert "torch_recorder.py" in (tmp_path / "started").read_text()
    assert (found.values, found.told) == (here.values, here.told)
    there, own = (osl.open_references(tmp_path / name) for name in ("there", "here"))
    assert list(there) == list(own)
    assert "input.1" in there
    for name in there:
        np.testing.assert_array_equal(there.read(name), own.read(name))


def test_scopes_are_those_of_the_recording(python, tmp_path):
    osl.record(FACTORY, tmp_path / "there", python=str(python), scope=["convs2.*"])

    osl.record(FACTORY, tmp_path / "here", scope=["convs2.*"])
    there, own = (list(osl.open_references(tmp_path / name)) for name in ("there", "here"))
    assert there == own
    assert "convs2.1" in there
    assert "convs1.0" not in there


def test_what_is_no_interpreter_or_has_no_torch_is_said(tmp_path):
    with pytest.raises(UsageError, match="no interpreter '/no/python'"):
        osl.record(FACTORY, tmp_path / "refs", python="/no/python")
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o755)

    with pytest.raises(UsageError, match="has no torch"):
        osl.record(FACTORY, tmp_path / "refs", python=str(bare))
    assert not (tmp_path / "refs").exists()


def test_an_error_there_is_the_error_here(python, tmp_path):
    with pytest.raises(ReferenceSetError, match="has no function 'no'"):
        osl.record(f"{FIXTURES}/whole_model.py:no", tmp_path / "refs", python=str(python))


def test_an_interpreter_that_says_nothing_is_an_error(tmp_path):
    with pytest.raises(ReferenceSetError, match="exit code 0"):
        osl.record(FACTORY, tmp_path / "refs", python=shutil.which("true"))


def test_feeds_and_onnx_models_are_not_for_it(python, tmp_path):
    with pytest.raises(UsageError, match="the arguments that it returns"):
        osl.record(FACTORY, tmp_path / "refs", {"x": np.ones(1)}, python=str(python))
    with pytest.raises(UsageError, match="--python is not for an ONNX model"):
        osl.record(FIXTURES / "whole_model.onnx", tmp_path / "refs", python=str(python))
