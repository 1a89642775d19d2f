"""The shape edits from the command line: what they print, what they write, and that a refusal writes nothing."""

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser
from typer.testing import CliRunner

from kit import FIXTURES
from onnxsurgeon_lite import load
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.runtime.session import run_model


@pytest.fixture
def edit(tmp_path, monkeypatch):
    """Runs `onnxdbg edit` in a folder that holds fixtures."""
    monkeypatch.chdir(tmp_path)
    for name in ("frozen_batch", "detector", "transformer_block", "custom_op", "external"):
        shutil.copy(FIXTURES / f"{name}.onnx", tmp_path)
    shutil.copy(FIXTURES / "external.data", tmp_path)
    return lambda *words: CliRunner().invoke(app, ["edit", *words])


def save(text: str, name: str) -> None:
    header = '<ir_version: 8, opset_import: ["" : 17]>\n'
    onnx.save(parser.parse_model(header + text), name)


def test_a_change_is_listed_proved_and_written(edit):
    done = edit("rebatch", "frozen_batch.onnx", "--to", "5", "-o", "five.onnx")

    assert done.exit_code == 0
    assert "[2, 2, 4, 3] -> [5, 2, 4, 3] at Reshape 'split_heads' (@0)" in done.stdout
    assert "kept 2 at 'heads'[1] of Reshape 'split_heads' (@0)" in done.stderr
    assert "agrees with the original at dimension 0 of 'x' = 5\n" in done.stdout
    given = np.random.default_rng(0).normal(size=(5, 4, 6)).astype(np.float32)
    five = run_model(load("five.onnx"), {"x": given})["y"]
    two = run_model(load("frozen_batch.onnx"), {"x": given[3:]})["y"]
    np.testing.assert_allclose(five[3:], two, rtol=1e-5)


def test_what_cannot_be_proved_is_not_written(edit, tmp_path):
    save("mean (float[2,4] x) => (float[2,4] y) { m = ReduceMean <axes = [0]> (x) y = Sub(x, m) }",
         "mean.onnx")  # fmt: skip

    done = edit("rebatch", "mean.onnx", "-o", "out.onnx")

    assert done.exit_code == 2
    assert "error: not proved: with N = " in done.stderr
    assert "nothing was written" in done.stderr
    assert not (tmp_path / "out.onnx").exists()


def test_two_exports_stand_before_or_after_their_option(edit):
    for size in (2, 3):
        save(f"e (float[{size},4] x) => (float[{size},2,2] y) <int64[3] s = {{{size},2,2}}> "
             "{ y = Reshape(x, s) }", f"{size}.onnx")  # fmt: skip

    for words in (["--two-exports", "2.onnx", "3.onnx"], ["2.onnx", "3.onnx", "--two-exports"]):
        done = edit("rebatch", *words, "-o", "out.onnx", "--force")

        assert done.exit_code == 0, done.output
        assert "agrees with '3.onnx'" in done.stdout
    assert edit("rebatch", "2.onnx", "3.onnx").exit_code == 2
    assert edit("rebatch", "2.onnx", "--two-exports").exit_code == 2


def test_a_recipe_takes_a_second_export_and_another_model(edit, tmp_path):
    for size in (2, 3):
        save(f"e (float[{size},4] x) => (float[{size},2,2] y) <int64[3] s = {{{size},2,2}}> "
             "{ h = Relu(x) y = Reshape(h, s) }", f"{size}.onnx")  # fmt: skip
    save("r (float[2,4] a) => (float[2,4] b) { b = Abs(a) }", "abs.onnx")
    step = '[[step]]\nverb = "{}"\n{}\n'
    replace = step.format("replace", 'inputs = "x"\noutputs = "h"\nmodel = "abs.onnx"')
    rebatch = step.format("rebatch", 'to = "N"\nsecond = "{}.onnx"')
    Path("wrong.toml").write_text(replace + rebatch.format("gone"))
    Path("recipe.toml").write_text(rebatch.format("3") + replace)

    wrong = edit("apply", "wrong.toml", "2.onnx", "-o", "out.onnx")
    done = edit("apply", "recipe.toml", "2.onnx", "-o", "out.onnx")

    assert wrong.exit_code == 2
    assert "cannot read 'gone.onnx'" in wrong.stderr
    assert "in pass 'rebatch', step 2 of 2, after 'replace'" in wrong.stderr
    assert done.exit_code == 0, done.output
    assert "agrees with '3.onnx'" in done.stdout
    outputs = run_model(load("out.onnx"), {"x": -np.ones((5, 4), np.float32)})
    assert outputs["y"].tolist() == np.ones((5, 2, 2)).tolist()


def test_an_open_batch_is_fixed_and_opened_again(edit):
    assert edit("set-shape", "transformer_block.onnx", "hidden_states=[4,8,16]").exit_code == 0
    done = edit("rebatch", "transformer_block.set-shape.onnx", "--to", "batch", "-o", "back.onnx")

    assert done.exit_code == 0, done.output
    back, source = onnx.load("back.onnx"), onnx.load("transformer_block.onnx")
    assert back == source


def test_weights_of_another_file_come_along(edit, tmp_path):
    shape = load("external.onnx").proto.graph.input[0].type.tensor_type.shape.dim
    (tmp_path / "out").mkdir()

    done = edit("rebatch", "external.onnx", "--to", "9", "-o", "out/external.onnx")

    assert done.exit_code == 0, done.output
    assert (tmp_path / "out" / "external.data").exists()
    given = {"x": np.ones((9, *(dim.dim_value for dim in shape[1:])), np.float32)}
    name = load("out/external.onnx").proto.graph.input[0].name
    assert run_model(load("out/external.onnx"), {name: given["x"]})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["set-shape", "frozen_batch.onnx", "x"], "gives no input and shape"),
        (["set-shape", "frozen_batch.onnx", "x=N,,6"], "gives no input and shape"),
        (["set-shape", "frozen_batch.onnx", "x=N,4"], "the requested shape has 2 dimensions"),
        (["set-shape", "frozen_batch.onnx", "z=N,4,6"], "the model has no input 'z'"),
        (["set-shape", "frozen_batch.onnx", "x=0,4,6"], "0 is neither a size nor a name"),
        (["rebatch", "frozen_batch.onnx", "--to", "-1"], "'-1' is neither a size nor a name"),
        (["rebatch", "frozen_batch.onnx", "--to", "2.5"], "'2.5' is neither"),
        (["rebatch", "frozen_batch.onnx", "--inputs", "z"], "the model has no input 'z'"),
        (["rebatch", "custom_op.onnx"], "has no operator"),
        (["pad-outputs", "detector.onnx", "--max", "3", "--fill", "boxes"], "gives no number"),
        (["pad-outputs", "detector.onnx", "--max", "3", "--outputs", "box"], "no output 'box'"),
        (["batch-outputs", "detector.onnx", "--max", "3", "boxes"], "gives no group"),
        (["batch-outputs", "frozen_batch.onnx", "--max", "3"], "no outputs are numbered"),
        (
            ["name-outputs", "detector.onnx", "a,b"],
            "9 outputs are not a multiple of 2 names",
        ),
    ],
)
def test_what_has_no_meaning_is_an_error_and_writes_nothing(edit, words, message, tmp_path):
    before = sorted(tmp_path.iterdir())

    done = edit(*words)

    assert done.exit_code == 2
    assert message in done.stderr
    assert sorted(tmp_path.iterdir()) == before
