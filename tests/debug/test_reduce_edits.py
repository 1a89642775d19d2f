"""`reduce`: each thing that shrinks, and how few questions that takes."""

import sys

import numpy as np
import onnx
import pytest

import onnxsurgeon_lite as osl
from kit.bisecting import parsed
from kit.planted import FAILURES, MODULE
from onnxsurgeon_lite.cli.prompt import PromptVerbs
from onnxsurgeon_lite.repl.opening import open_session
from onnxsurgeon_lite.repl.script import run_script


def operators(found: osl.Reduction) -> list[str]:
    return [node.op_type for node in found.model.proto.graph.node]


def constant(found: osl.Reduction) -> np.ndarray:
    (tensor,) = found.model.proto.graph.initializer
    return onnx.numpy_helper.to_array(tensor)


@pytest.mark.parametrize(
    ("name", "what", "left", "most"),
    [
        ("missing operator", "run-is not a registered", "Nope", 3),
        ("index out of range", "run-out of data bounds", "Gather", 3),
        ("attention block", "run-MultiHeadAttention", "MultiHeadAttention", 3),
        ("NaN", "run-nan", "Sqrt", 8),
        ("infinity", "run-inf", "Reciprocal", 8),
        ("kernel that crashes, in a branch", "run-crash", "Div", 8),
        ("Scan whose body crashes", "run-crash", "Div", 12),
        ("shape error three functions deep", "run-Reshape", "Reshape", 3),
    ],
)
def test_a_program_that_sees_no_feeds_is_asked_a_few_times(name, what, left, most):
    """A value that such a program cannot be given as an input becomes a constant."""
    command = f"{sys.executable} {MODULE.CHECK} '{what}' {{model}}"

    found = osl.reduce(FAILURES[name].make(), command=command)

    assert operators(found) == [left]
    assert found.calls <= most


def test_a_branch_of_an_if_that_fails_is_the_model():
    command = f"{sys.executable} {MODULE.CHECK} 'run-is not a registered' {{model}}"
    model = FAILURES["If whose branch has a missing operator"].make()

    found = osl.reduce(model, command=command, says="is not a registered")

    assert operators(found) == ["Nope"]
    assert found.calls <= 5


def test_an_operator_of_the_message_is_found_in_a_function_at_once():
    found = osl.reduce(FAILURES["shape error three functions deep"].make(), "error")

    assert operators(found) == ["Reshape"]
    assert found.found <= 3


def test_the_line_that_a_program_says_is_kept_but_only_the_match_must_stay(tmp_path):
    (tmp_path / "check.py").write_text(
        "import sys\nif b'Log' in open(sys.argv[1], 'rb').read():\n"
        "    print('start')\n    print('layer l: Log is not supported')\n    print('end')\n"
    )
    model = osl.build("g (float[4] x) => (float[4] y) { a = Neg (x)  l = Log (a)  y = Abs (l) }")

    found = osl.reduce(
        model,
        command=f"{sys.executable} {tmp_path}/check.py {{model}}",
        says="is not \\w+",
        output=tmp_path / "small",
    )

    assert (found.reason.said, operators(found)) == ("layer l: Log is not supported", ["Log"])
    assert "layer l: Log is not supported" in (tmp_path / "small" / "README.md").read_text()


def test_another_exit_code_than_the_one_asked_for_is_another_failure(tmp_path):
    (tmp_path / "check.py").write_text(
        "import sys\nmodel = open(sys.argv[1], 'rb').read()\n"
        "sys.exit(3 if b'Log' in model and b'Exp' in model else 4 if b'Log' in model else 0)\n"
    )
    model = osl.build("g (float[4] x) => (float[4] y) { a = Exp (x)  b = Neg (a)  y = Log (b) }")
    command = f"{sys.executable} {tmp_path}/check.py {{model}}"

    asked = osl.reduce(model, command=command, code=3)

    assert sorted(operators(asked)) == ["Exp", "Log"]
    with pytest.raises(osl.errors.UsageError, match="does not fail"):
        osl.reduce(model, command=command, code=5)


def test_dimensions_of_inputs_that_must_agree_become_1_together():
    found = osl.reduce(FAILURES["kernel that crashes"].make(), "crash")

    assert operators(found) == ["Div"]
    assert {value.shape for value in found.feeds.values()} == {(1, 1)}


def test_dimensions_of_weights_become_1_with_those_of_the_inputs_that_they_meet():
    """A program that needs a Conv, with two spatial dimensions, that computes."""

    def fails(model: osl.Model, feeds: dict) -> bool:
        assert osl.run(model, feeds)["y"].ndim == 4
        return "Conv" in {node.op_type for node in model.proto.graph.node}

    weights = np.random.default_rng(1).normal(size=(24, 12, 3, 3)).astype(np.float32)
    model = parsed(
        """g (float[2,12,16,16] x) => (float[2,24,16,16] y) {
        a = Relu (x)  c = Conv<pads = [1, 1, 1, 1], kernel_shape = [3, 3]> (a, w)  y = Abs (c) }""",
        w=weights,
    )

    found = osl.reduce(model, fails)

    assert operators(found) == ["Conv"]
    assert {value.shape for value in found.feeds.values()} == {(1, 1, 1, 1)}
    assert constant(found).shape == (1, 1, 1, 1)
    assert found.calls <= 12


def test_constants_of_a_model_without_inputs_become_short():
    command = f"{sys.executable} {MODULE.CHECK} run-crash {{model}}"

    found = osl.reduce(FAILURES["kernel that crashes"].make(), command=command)

    assert (found.feeds, found.after.bytes) == ({}, 16)


def test_weights_become_noise_where_neither_0_nor_1_fails():
    def fails(model: osl.Model, feeds: dict) -> bool:
        held = [model.array(each) for each in model.proto.graph.initializer]
        return any(array.size >= 64 and array.std() > 0.3 for array in held)

    weights = np.random.default_rng(1).normal(size=(16, 16)).astype(np.float32)
    model = parsed(
        "g (float[1,16] x) => (float[1,16] y) { a = Relu (x)  y = MatMul (a, w) }", w=weights
    )
    found = osl.reduce(model, fails)

    left = constant(found)
    assert abs(np.corrcoef(left.ravel(), weights.ravel())[0, 1]) < 0.3
    assert np.array_equal(left, left.round(1))


def test_a_loop_that_fails_turns_once():
    def fails(model: osl.Model, feeds: dict) -> bool:
        return "Loop" in {node.op_type for node in model.proto.graph.node}

    model = osl.build(
        """g (float[4] x) => (float[4] y) <int64 m = {1000}, bool go = {1}> {
        a = Relu (x)
        y = Loop (m, go, a) <body = turn (int64 i, bool c, float[4] s) => (bool c2, float[4] s2)
            { c2 = Identity (c)  s2 = Neg (s) }> }"""
    )
    found = osl.reduce(model, fails)

    (loop,) = [node for node in found.model.proto.graph.node if node.op_type == "Loop"]
    constants = {each.name: found.model.array(each) for each in found.model.proto.graph.initializer}
    assert constants.get(loop.input[0], np.int64(1)) <= 1


def test_the_body_of_a_loop_is_emptied():
    def fails(model: osl.Model, feeds: dict) -> bool:
        return "Loop" in {node.op_type for node in model.proto.graph.node}

    found = osl.reduce(FAILURES["Loop that hangs"].make(), fails, timeout=1)

    assert found.after.nodes <= 3


def test_an_input_of_two_outputs_leaves_with_the_one_that_is_not_needed():
    model = osl.build(
        """g (float[4] x, float[4] unused) => (float[4] y, float[4] z) {
        y = Softplus (x)  z = Neg (unused) }"""
    )

    found = osl.reduce(model, command=MODULE.program("both-Softplus"))

    graph = found.model.proto.graph
    assert (len(graph.input), len(graph.output)) == (1, 1)


@pytest.mark.parametrize("how", [{"fill": {"x": "ones"}}, {"dim": {"N": 3}}])
def test_how_inputs_of_the_first_model_are_made_hinders_no_cut(how):
    model = osl.build(
        """<ir_version: 9, opset_import: ["" : 18, "planted" : 1]>
        g (float[N,4] x) => (float[M,4] y) { a = Neg (x)  b = planted.Nope (a)  y = Abs (b) }"""
    )

    found = osl.reduce(model, "error", **how)

    assert (operators(found), found.steps[0]) == (["Nope"], "extract")


def test_at_the_prompt_the_models_own_failure_is_reduced(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    onnx.save(FAILURES["missing operator"].make(), "model.onnx")
    session = open_session("model.onnx")
    session.verbs = PromptVerbs(session)

    with session.dbg:
        well = run_script(session, ["reduce --fails error -o small"])

    assert well
    assert "-> 1 node, " in capsys.readouterr().out
    assert (tmp_path / "small" / "repro.py").exists()
