"""The package that brings onnxruntime may be another one, or there may be none."""

import os
import subprocess

import pytest

from kit import COMMAND, FIXTURES

HIDE = """
import importlib.metadata as metadata

find = metadata.MetadataPathFinder.find_distributions


def without_onnxruntime(context=metadata.DistributionFinder.Context()):
    return (each for each in find(context) if each.metadata["Name"] != "onnxruntime")


metadata.MetadataPathFinder.find_distributions = without_onnxruntime
"""
NO_MODULE = "raise ModuleNotFoundError(\"No module named 'onnxruntime'\", name='onnxruntime')\n"


@pytest.fixture
def ran(tmp_path):
    """Run a command where no package is called onnxruntime; its files are written in a folder."""

    def run(*words):
        done = subprocess.run(
            [*COMMAND, *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path / "packages")},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "sitecustomize.py").write_text(HIDE)
    for name in ("whole_model.onnx", "faulty_attribute.onnx"):
        (tmp_path / name).write_bytes((FIXTURES / name).read_bytes())
    return run


def test_a_search_works_with_a_package_of_another_name_and_reports_it(ran, tmp_path):
    named = tmp_path / "packages" / "onnxruntime_gpu-1.2.3.dist-info"
    named.mkdir()
    (named / "METADATA").write_text("Name: onnxruntime-gpu\nVersion: 1.2.3\n")
    (named / "top_level.txt").write_text("onnxruntime\n")

    code, said = ran(
        "bisect", "faulty_attribute.onnx", "--against", "whole_model.onnx", "--no-cause"
    )

    assert (code, "wrong node: Conv 'Conv_6'" in said) == (1, True), said
    report = (tmp_path / "faulty_attribute.culprit" / "report.md").read_text()
    assert ", onnxruntime-gpu 1.2.3, " in report


@pytest.fixture
def _no_runtime(ran, tmp_path):
    (tmp_path / "packages" / "onnxruntime.py").write_text(NO_MODULE)


@pytest.mark.usefixtures("_no_runtime")
@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("inspect whole_model.onnx --html page.html", 0, "nodes       11"),
        ("edit rename whole_model.onnx 22=image -o m.onnx", 0, "wrote 'm.onnx'"),
        ("extract whole_model.onnx --inputs 22 --outputs 28 -o m.onnx", 0, "wrote 'm.onnx'"),
        ("diff faulty_attribute.onnx whole_model.onnx", 1, "attribute"),
        ("check whole_model.onnx", 0, ""),
        ("run whole_model.onnx", 2, "pip install 'onnxsurgeon-lite[cpu]'"),
        ("edit rename whole_model.onnx 22=image -o m.onnx --verify", 2, "pip install"),
    ],
)
def test_without_a_runtime_models_are_read_and_edited_and_a_run_says_what_lacks(
    ran, words, code, says
):
    ended, said = ran(*words.split())

    assert (ended, says in said) == (code, True), said


@pytest.mark.usefixtures("_no_runtime")
def test_without_a_runtime_the_demo_ends_at_the_first_run(ran):
    code, said = ran("demo")

    assert (code, "onnxdbg bisect" in said) == (2, False)
    assert said.index("no onnxruntime") < said.index("error: the demo ends at the error above")
