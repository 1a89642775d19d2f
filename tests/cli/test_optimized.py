"""`optimized:MODEL`: what the runtime makes of a model, as a model for every command."""

import re
import shutil

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit import FIXTURES
from onnxsurgeon_lite.cli.app import app

BLOCK = FIXTURES / "transformer_block.onnx"


def onnxdbg(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_a_fused_node_says_which_nodes_it_stands_for():
    found = onnxdbg("inspect", f"optimized:{BLOCK}", "--node", "op:BiasGelu")

    assert found.exit_code == 0
    assert re.search("onnxdbg.stands_for +@24 @25", found.output)


def test_the_optimizers_that_changed_a_model_are_told():
    found = onnxdbg("inspect", f"optimized=extended:{BLOCK}")

    assert "onnxdbg.optimizers=BiasGeluFusion, MatMulScaleFusion" in found.output
    assert "onnxdbg.optimizers=none" in onnxdbg("inspect", f"optimized=basic:{BLOCK}").output


def test_a_model_differs_from_what_the_runtime_makes_of_it():
    found = onnxdbg("diff", BLOCK, f"optimized:{BLOCK}")

    assert found.exit_code == 1
    changed = next(line for line in found.output.splitlines() if "FusedMatMul" in line)
    assert "metadata 'onnxdbg.stands_for' '@13 @14' added" in changed
    assert "removed node Gelu 'Gelu_25'" in found.output


def test_what_it_computes_is_what_the_model_computes(tmp_path):
    found = onnxdbg(
        "compare",
        f"optimized:{FIXTURES}/whole_model.onnx",
        BLOCK.parent / "references/whole_model.npz",
    )

    assert "match   31" in found.output


def test_values_of_its_kernels_come_beside_those_of_the_model():
    x = {"hidden_states": np.random.default_rng(3).normal(size=(1, 8, 16)).astype(np.float32)}
    with osl.optimized(BLOCK) as optimized:
        expected = osl.run(optimized, x, "op:FusedMatMul", opt="none")
    both = osl.run(BLOCK, x, ["scores", "kernel:op:FusedMatMul"])

    assert list(both) == ["scores", "kernel:scaled_scores"]
    np.testing.assert_array_equal(both["kernel:scaled_scores"], expected["scaled_scores"])
    assert list(osl.run(BLOCK, x, "kernel:scaled_scores,kernel:activation")) == [
        "kernel:scaled_scores",
        "kernel:activation",
    ]


def test_a_value_in_a_blocked_layout_is_fetched_by_its_own_name():
    whole = FIXTURES / "whole_model.onnx"

    found = osl.run(whole, fetch=["29", "kernel:29"])

    assert found["kernel:29"].shape == (1, 3, 20, 20)
    np.testing.assert_allclose(found["kernel:29"], found["29"], rtol=1e-4, atol=1e-4)


def test_a_value_that_was_fused_away_is_no_value_of_a_kernel():
    found = onnxdbg("run", BLOCK, "--fetch", "kernel:up_linear")
    other = onnxdbg("run", BLOCK, "--fetch", "kernel:output", "--runtime", "reference")

    assert (found.exit_code, other.exit_code) == (2, 2)
    assert "has no value 'up_linear'" in found.output
    assert "does not tell the graph that it runs" in other.output


def test_an_edit_of_it_writes_its_weights_too(tmp_path):
    out = tmp_path / "out.onnx"

    result = onnxdbg("edit", "clean", f"optimized:{BLOCK}", "-o", out)

    assert result.exit_code == 0, result.output
    x = {"hidden_states": np.ones((1, 8, 16), np.float32)}
    np.testing.assert_allclose(
        osl.run(out, x)["output"], osl.run(BLOCK, x)["output"], rtol=1e-4, atol=1e-5
    )
    onnx.load(out)  # with all of its data


def test_a_file_of_such_a_name_is_that_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(BLOCK, "optimized:block.onnx")

    found = onnxdbg("inspect", "optimized:block.onnx", "--ops")

    assert "FusedMatMul" not in found.output
    assert "MatMul" in found.output


def test_no_file_is_left_of_it(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    assert onnxdbg("print", f"optimized:{BLOCK}").exit_code == 0
    assert list(tmp_path.glob("onnxdbg-*")) == []


def test_a_model_that_the_runtime_refuses_has_none(model_of, tmp_path):
    path = tmp_path / "model.onnx"
    text = """<ir_version: 9, opset_import: ["" : 17, "no" : 1]> g (float[1] x) => (float[1] y) { y = no.Such(x) }"""
    onnx.save(onnx.parser.parse_model(text), path)

    found = onnxdbg("print", f"optimized:{path}")

    assert found.exit_code == 2
    assert "the runtime has no operator no:Such" in found.output
    with pytest.raises(osl.SurgeonError, match="no operator"), osl.optimized(path):
        pass
