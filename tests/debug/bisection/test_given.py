"""What is given fits together, or it is said first: feeds and references, modes, factories, other models."""

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit.bisecting import parsed, random
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.debug.causes.finding import Finder
from onnxsurgeon_lite.errors import FeedsError, ReferenceSetError
from onnxsurgeon_lite.repl.commands import do
from onnxsurgeon_lite.repl.opening import open_session

TEXT = """net (float[N,4] x, float[N,4] z) => (float[N,4] y) {
    h = MatMul (x, w)
    s = Add (h, z)
    y = Relu (s)
}"""


def net() -> onnx.ModelProto:
    return parsed(TEXT, w=random(4, 4, seed=9))


def feeds(seed: int = 0, rows: int = 3) -> dict[str, np.ndarray]:
    return {"x": random(rows, 4), "z": random(rows, 4, seed=seed)}


@pytest.fixture
def recorded(tmp_path):
    osl.record(net(), tmp_path / "refs", feeds=feeds())
    return tmp_path / "refs"


ASKING = {
    "bisect": lambda refs, given: osl.bisect(net(), refs, feeds=given),
    "compare": lambda refs, given: osl.compare_sets(net(), refs, given),
    "rank": lambda refs, given: osl.rank(net(), refs, feeds=given),
    "debug": lambda refs, given: osl.Debugger(net(), given, refs),
}


@pytest.mark.parametrize("ask", ASKING)
def test_feeds_that_are_not_those_of_the_references_are_refused(ask, recorded):
    with pytest.raises(ReferenceSetError, match=r"input 'z' is .* at \[0, 0\] where .* recorded"):
        ASKING[ask](recorded, feeds(seed=1))
    with pytest.raises(ReferenceSetError, match=r"'x' has shape \[2, 4\], \[3, 4\] was recorded"):
        ASKING[ask](recorded, feeds(rows=2))


def test_the_feeds_of_the_recording_are_taken(recorded):
    assert osl.bisect(net(), recorded, feeds=feeds()).verdict == "agrees"
    assert osl.bisect(net(), recorded, feeds=recorded).verdict == "agrees"


def test_other_feeds_of_samples_are_refused(tmp_path):
    samples = [feeds(seed) for seed in (0, 1, 2)]
    osl.record(net(), tmp_path / "refs", feeds=samples)

    assert osl.bisect(net(), tmp_path / "refs", feeds=samples).verdict == "agrees"
    with pytest.raises(ReferenceSetError, match="input 'z' is"):
        osl.bisect(net(), tmp_path / "refs", feeds=samples[1:] + samples[:1])


def test_an_input_in_another_layout_or_precision_is_the_same(recorded):
    image = random(1, 3, 5, 5)
    model = parsed(
        "net (float[1,5,5,3] x) => (float[1,3,5,5] y) { y = Transpose <perm=[0,3,1,2]> (x) }"
    )
    stored = osl.ReferenceSet.of({"x": image, "y": image}, inputs=["x"])

    turned = {"x": np.ascontiguousarray(image.transpose(0, 2, 3, 1))}

    assert osl.bisect(model, stored, feeds=turned).verdict == "agrees"


def test_the_command_says_what_to_leave_out(recorded, tmp_path):
    onnx.save(net(), tmp_path / "net.onnx")
    np.savez(tmp_path / "feeds.npz", **feeds(seed=1))

    done = CliRunner().invoke(
        app,
        ["bisect", str(tmp_path / "net.onnx"), "--reference", str(recorded)]
        + ["--feeds", str(tmp_path / "feeds.npz")],
    )

    assert done.exit_code == 2
    assert "leave out --feeds, or record again with these" in done.stderr


@pytest.mark.parametrize("line", ["feed z = np.ones((3, 4), 'f4')", "seed 1"])
def test_at_the_prompt_other_inputs_put_the_references_off(line, recorded, tmp_path, capsys):
    onnx.save(net(), tmp_path / "net.onnx")
    outputs = tmp_path / "outputs.npz"
    np.savez(outputs, y=osl.run(net(), seed=0)["y"])
    session = open_session(tmp_path / "net.onnx", reference=recorded if "z" in line else outputs)
    session.namespace["own"] = feeds()["z"]
    back = "feed z = own" if "z" in line else "seed 0"
    with session.dbg:
        do(session, *line.split(" ", 1))
        do(session, "run", "")

        assert not session.dbg.read("y")[0].comparisons
        for word, rest in (("compare", "y"), ("heal", "y"), ("why", "")):
            with pytest.raises(ReferenceSetError, match="belong to other inputs: input '[xz]' "):
                do(session, word, rest)
        do(session, *back.split(" ", 1))
        do(session, "compare", "y")

    assert not session.mismatch
    assert "values are not compared, the references belong to other" in capsys.readouterr().err


def dropping() -> onnx.ModelProto:
    text = """net (float[8,16] x) => (float[8,16] y) {
        h = MatMul (x, w)
        d = Dropout (h, ratio, mode)
        y = Relu (d)
    }"""
    modes = {"ratio": np.float32(0.5), "mode": np.array(True)}
    return parsed(text, w=random(16, 16, seed=1), **modes)


@pytest.mark.parametrize("inner", [True, False])
def test_a_dropout_that_trains_is_the_cause_where_the_references_passed_it_by(inner):
    x = random(8, 16)
    h = x @ random(16, 16, seed=1)
    values = {"x": x, "d": h, "y": np.maximum(h, 0)} | ({"h": h} if inner else {})

    result = osl.bisect(dropping(), osl.ReferenceSet.of(values, inputs=["x"]), opt="none")

    assert result.verdict == "mismatch"
    assert result.culprits[0].causes[0].hypothesis == "training mode"
    fixed = osl.repair(dropping(), result).model
    assert osl.bisect(fixed, osl.ReferenceSet.of(values, inputs=["x"])).verdict == "agrees"


def test_a_normalization_that_trains_is_told_by_its_mode_and_not_solved_for():
    text = """net (float[4,3,5,5] x) => (float[4,3,5,5] y) {
        b, m, v = BatchNormalization <training_mode=1> (x, s, t, mean, var)
        y = Relu (b)
    }"""
    numbers = {
        name: 1 + np.abs(random(3, seed=n)) for n, name in enumerate(("s", "t", "mean", "var"))
    }
    evaluating = text.replace("<training_mode=1>", "").replace("b, m, v", "b")
    right = osl.run(parsed(evaluating, **numbers), {"x": random(4, 3, 5, 5)})
    references = osl.ReferenceSet.of({"x": random(4, 3, 5, 5), **right}, inputs=["x"])

    result = osl.bisect(parsed(text, **numbers), references)

    assert [cause.hypothesis for cause in result.culprits[0].causes] == ["training mode"]
    fixed = osl.repair(parsed(text, **numbers), result).model
    assert osl.verify(parsed(evaluating, **numbers), fixed).match


def test_references_of_an_active_dropout_are_told_and_no_edit_is_made():
    model = parsed(
        "net (float[8,16] x) => (float[8,16] y) { h = MatMul (x, w) y = Relu (h) }",
        w=random(16, 16, seed=1),
    )
    x = random(8, 16)
    h = x @ random(16, 16, seed=1)
    d = np.where(np.random.default_rng(0).random(h.shape) < 0.4, 0, h / 0.6).astype(np.float32)
    values = {"x": x, "h": h, "drop": d, "y": np.maximum(d, 0)}

    culprit = osl.bisect(model, osl.ReferenceSet.of(values, inputs=["x"])).culprits[0]

    assert not culprit.causes
    assert (
        "Dropout was active when the references were recorded ('drop' is 0 in 3"
        in culprit.unexplained
    )


def test_a_bug_in_the_search_for_causes_leaves_the_culprit(monkeypatch, recorded, tmp_path):
    wrong = parsed(TEXT.replace("Relu", "Abs"), w=random(4, 4, seed=9))
    monkeypatch.setattr(Finder, "explain", lambda *_: np.zeros(3).reshape(2))
    monkeypatch.setattr(Finder, "explain_everywhere", lambda *_: {}["nothing"])

    result = osl.bisect(wrong, recorded)

    assert result.culprits[0].op_type == "Abs"
    assert (
        "not known: internal error (ValueError): please report it with"
        in result.culprits[0].unexplained
    )
    assert any("internal error (KeyError)" in note for note in result.notes)


def test_a_model_that_agrees_has_nothing_to_repair(recorded, tmp_path):
    onnx.save(net(), tmp_path / "net.onnx")

    line = ["bisect", str(tmp_path / "net.onnx"), "--reference", str(recorded)]
    done = CliRunner().invoke(app, [*line, "--repair", str(tmp_path / "fixed.onnx")])

    assert done.exit_code == 0
    assert "repair: nothing to repair" in done.output
    assert not (tmp_path / "fixed.onnx").exists()


def test_defaults_that_differ_between_opsets_and_inputs_fed_in_order_are_said_first():
    text = "net (float[2,3,4] x) => (float[2,3,4] y) { y = Softmax (x) }"
    older, newer = parsed(text), parsed(text.replace("(x)", "(z)").replace(" x)", " z)"))
    older.opset_import[0].version = 11

    notes = osl.bisect(newer, against=older).told

    assert any("Softmax leaves out axis, whose default differs in opset" in note for note in notes)
    assert "the other model's inputs are fed in order: 'x' as 'z'" in notes


def test_another_batch_of_the_other_model_is_said():
    text = "net (float[2,4] x) => (float[2,4] y) { y = Relu (x) }"

    with pytest.raises(FeedsError, match="the other model takes other inputs: feed 'x' has shape"):
        osl.bisect(parsed(text), against=parsed(text.replace("2,4", "3,4")))
