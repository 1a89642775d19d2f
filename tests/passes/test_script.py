"""Scripts: what users of onnx-graphsurgeon write, on a model whose weights stay where they are."""

from pathlib import Path

import numpy as np
import onnx_graphsurgeon as gs
import pytest
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit import FIXTURES
from onnxsurgeon_lite import Model, Script, load
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import EditError, ScriptError, UsageError
from onnxsurgeon_lite.graph.check import check
from onnxsurgeon_lite.model import DataFile
from onnxsurgeon_lite.runtime.session import RuntimeOptions, run_model

IMAGE = np.ones((1, 3, 20, 20), np.float32)


def outputs(model: Model, feeds) -> dict:
    assert check(model).valid
    return run_model(model, feeds, options=RuntimeOptions(opt="none"))


def test_nodes_are_added_rewired_and_cleaned_away():
    def edit(graph: gs.Graph) -> None:
        value = graph.tensors()["28"]
        new = gs.Variable("clipped", np.float32)
        graph.nodes.append(gs.Node("Relu", "new", inputs=[value], outputs=[new]))
        graph.outputs = [new]
        graph.cleanup().toposort()

    whole = load(FIXTURES / "whole_model.onnx")
    result = Script(edit).apply(whole)

    assert len(result.model.proto.graph.node) == 9
    assert "added node Relu 'new' (@8)" in result.changes
    reference = outputs(whole, {"input.1": IMAGE})  # it runs, and so does the result
    clipped = outputs(result.model, {"input.1": IMAGE})["clipped"]
    assert reference["31"].shape == clipped.shape
    assert clipped.min() == 0


def test_weights_are_read_only_when_the_script_looks_at_them(monkeypatch):
    read = []
    blocks = DataFile.blocks
    monkeypatch.setattr(
        DataFile, "blocks", lambda self, *where: read.append(where) or blocks(self, *where)
    )

    def edit(graph: gs.Graph) -> None:
        weight = graph.tensors()["layer1.weight"]
        weight.values = weight.values * 2

    model = load(FIXTURES / "external.onnx")
    untouched = Script(lambda graph: None).apply(model)
    assert read == []
    result = Script(edit).apply(model).model

    assert not untouched.changed
    assert len(read) <= 2  # once for the script, once to see whether it changed
    old, new = (
        next(m.array(t) for t in m.proto.graph.initializer if t.name == "layer1.weight")
        for m in (model, result)
    )
    assert np.array_equal(new, old * 2)


def test_looking_at_values_changes_nothing():
    model = load(FIXTURES / "external.onnx")

    result = Script(
        lambda graph: [t.values for t in graph.tensors().values() if hasattr(t, "values")]
    )

    assert not result.apply(model).changed


def test_bodies_are_edited_and_captured_weights_stay_outside():
    def edit(graph: gs.Graph) -> None:
        for inner in graph.subgraphs(recursive=True):
            inner.nodes[0].name = "touched"

    model = load(FIXTURES / "control_flow.onnx")
    result = Script(edit).apply(model).model

    assert check(result).valid
    assert [t.name for t in result.proto.graph.initializer] == [
        t.name for t in model.proto.graph.initializer
    ]
    for node in result.proto.graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                assert attribute.g.node[0].name == "touched"
                assert not attribute.g.initializer


def test_a_cycle_is_refused():
    def edit(graph: gs.Graph) -> None:
        graph.nodes[0].inputs[0] = graph.nodes[3].outputs[0]

    with pytest.raises(EditError, match="cycle of 4 nodes"):
        Script(edit).apply(load(FIXTURES / "whole_model.onnx"))


def test_what_a_script_raises_is_shown_from_its_file_down(tmp_path):
    script = tmp_path / "patch.py"
    script.write_text("def edit(graph):\n    return graph.nodes[99]\n")

    with pytest.raises(ScriptError, match="raised IndexError: list index out of range") as caught:
        Script(str(script)).apply(load(FIXTURES / "whole_model.onnx"))

    assert caught.value.__notes__[0].strip().startswith(f'File "{script}", line 2')


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("edit = 3", "does not define a function 'edit'"),
        ("def edit(graph:", "raised SyntaxError"),
        (None, "does not exist"),
    ],
)
def test_a_script_that_cannot_be_run_is_refused(tmp_path, monkeypatch, text, problem):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / "patch.py").write_text(text)

    done = CliRunner().invoke(
        app, ["edit", "script", "patch.py", str(FIXTURES / "whole_model.onnx")]
    )

    assert done.exit_code == 2
    assert problem in done.stderr
    assert not list(tmp_path.glob("*.onnx"))


@pytest.fixture
def came(tmp_path, monkeypatch):
    """A folder with a recipe from elsewhere, beside a script and a model outside of it."""
    (tmp_path / "came").mkdir()
    monkeypatch.chdir(tmp_path / "came")
    (tmp_path / "model.onnx").write_bytes((FIXTURES / "whole_model.onnx").read_bytes())
    np.save(tmp_path / "secret.npy", np.zeros(3, np.float32))
    Path("link.npy").symlink_to("../secret.npy")
    Path("patch.py").write_text(
        "import pathlib; pathlib.Path('PWN').touch()\ndef edit(graph):\n    graph.nodes[7].op = 'Sub'\n"
    )
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("a request"))
    return tmp_path


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ('verb = "script"\nedit = "patch.py"', "runs Python: 'patch.py'"),
        ('verb = "merge"\nwhat = "http://127.0.0.1:9/m.onnx"', "reads 'http"),
        (
            'verb = "replace"\ninputs = ["input.1"]\noutputs = ["31"]\nmodel = "http://127.0.0.1:9/m"',
            "reads 'http",
        ),
        ('verb = "append"\nwhat = "/dev/zero"', "reads '/dev/zero'"),
        ('verb = "merge"\nwhat = "../model.onnx"', "reads '../model.onnx'"),
        ('verb = "rewrite"\nrules = ["../model.onnx"]', "reads '../model.onnx'"),
        ('verb = "set-constant"\nvalues = { "31" = "link.npy" }', "reads 'link.npy'"),
        ('verb = "set-constant"\nvalues = { "31" = "../secret.npy" }', "reads '../secret.npy'"),
    ],
)
def test_a_recipe_is_data_unless_scripts_are_allowed(came, step, said):
    Path("recipe.toml").write_text(f"[[step]]\n{step}\n")
    words = ["edit", "apply", "recipe.toml", "../model.onnx", "--dry-run"]

    done = CliRunner().invoke(app, words)
    assert (done.exit_code, said in done.stderr) == (2, True), done.output
    assert "--allow-scripts (in Python allow_scripts=True)" in done.stderr
    with pytest.raises(UsageError, match=said.split(" ")[0]):
        osl.apply("recipe.toml", "../model.onnx")
    assert not Path("PWN").exists()


def test_a_script_in_a_recipe_runs_where_it_is_allowed(came):
    Path("recipe.toml").write_text('[[step]]\nverb = "script"\nedit = "patch.py"\n')
    words = ["edit", "apply", "recipe.toml", "../model.onnx", "--dry-run", "--allow-scripts"]

    assert CliRunner().invoke(app, words).exit_code == 0
    assert osl.apply("recipe.toml", "../model.onnx", allow_scripts=True).changed
    assert Path("PWN").exists()


def test_a_recipe_that_is_no_usual_file_is_refused(came):
    Path("recipe.toml").symlink_to("/dev/zero")

    with pytest.raises(osl.SurgeonError, match="not a regular file"):
        osl.apply("recipe.toml", "../model.onnx")
