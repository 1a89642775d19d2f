"""From the culprit to the cause, and to the repair."""

import math
import re
import subprocess

import ml_dtypes
import numpy as np
import onnx
import pytest

import onnxsurgeon_lite as osl
from kit import COMMAND, FIXTURES
from kit.causes import found, model, numbers, references
from onnxsurgeon_lite.debug.causes import finding, surroundings
from onnxsurgeon_lite.debug.causes.families import FAMILIES
from onnxsurgeon_lite.debug.causes.hypothesis import Hypothesis
from onnxsurgeon_lite.debug.causes.rotary import missing_rotary
from onnxsurgeon_lite.debug.causes.trying import Bench, Outcome
from onnxsurgeon_lite.debug.computed_references import _Computed

REFERENCES = FIXTURES / "references" / "whole_model.npz"


NORM = "g (float[4,16] x) => (float[4,16] y) {{ y = LayerNormalization <epsilon = {}> (x, w, b) }}"
MASK = {"b": np.tri(5, 8, 2, dtype=bool), "l": np.float32(-1e30)}
PRODUCT = "g (float[64,16] x) => (float[64,16] y) { y = MatMul(x, w) }"


def test_the_cause_is_named_with_the_edit_that_repairs_it():
    weights = {"w": numbers(16), "b": numbers(16, seed=1)}
    right, wrong = model(NORM.format(1e-5), **weights), model(NORM.format(1e-3), **weights)

    result = found(wrong, right, x=numbers(4, 16) * 0.1)

    cause = result.culprits[0].causes[0]
    assert cause.sentence.startswith(
        "epsilon of LayerNormalization (@0) is 0.001; with 1e-05 the node agrees"
    )
    assert cause.repair == ["onnxdbg", "edit", "set-attr", "model.onnx", "@0", "epsilon=1e-05"]
    assert not cause.before.match
    assert cause.after.match


def test_a_model_is_repaired_and_searched_again(tmp_path):
    fixed = tmp_path / "fixed.onnx"
    words = ["bisect", FIXTURES / "faulty_attribute.onnx", "--reference", REFERENCES]

    done = subprocess.run(
        [*COMMAND, *words, "-o", tmp_path / "wrong", "--repair", fixed],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "repaired: agrees" in done.stdout
    assert osl.bisect(fixed, REFERENCES, cause=False).verdict == "agrees"
    again = osl.apply(fixed.with_suffix(".toml"), FIXTURES / "faulty_attribute.onnx")
    assert osl.bisect(again.model, REFERENCES, cause=False).verdict == "agrees"


def test_a_row_that_is_zero_is_solved_for_and_described():
    right = numbers(16, 16)
    wrong = right.copy()
    wrong[7] = 0

    result = found(model(PRODUCT, w=wrong), model(PRODUCT, w=right), x=numbers(64, 16, seed=1))

    assert "is zero at [7] of axis 0; solved for" in result.culprits[0].causes[0].sentence


def test_as_many_unknowns_as_equations_prove_nothing():
    text = PRODUCT.replace("64", "8")

    result = found(
        model(text, w=numbers(16, 16)),
        model(text, w=numbers(16, 16, seed=1)),
        x=numbers(8, 16, seed=2),
    )

    culprit = result.culprits[0]
    assert not culprit.causes
    assert "no known mistake explains it" in culprit.unexplained


def test_the_numbers_of_the_other_model_are_tried_where_its_values_prove_none():
    text = "g (float[1,16] x) => (float[1,16] y) { h = MatMul(x, w) s = Add(h, b) y = Tanh(s) }"
    right = {"w": numbers(16, 16), "b": numbers(16, seed=1)}
    wrong = {"w": right["w"].copy(), "b": numbers(16, seed=2)}
    wrong["w"][:, 3] = 0

    result = osl.bisect(
        model(text, **wrong), against=model(text, **right), feeds={"x": numbers(1, 16, seed=3)}
    )

    first, second = (culprit.causes[0].sentence for culprit in result.culprits)
    assert "is zero at [3] of axis 1; with the numbers of the references' model" in first
    assert "constant 'b' of Add (@1) differs; with the numbers of the references' model" in second


def test_a_bias_is_no_normalization_that_is_missing():
    text = (
        "g (float[1,3,8,8] x) => (float[1,6,8,8] y) <float[6,3,3,3] w, float[6] b>"
        " { h = Conv(x, w, b) y = Relu(h) }"
    )
    weight = numbers(6, 3, 3, 3)

    result = found(
        model(text, w=weight, b=numbers(6, seed=1)),
        model(text, w=weight, b=numbers(6, seed=2)),
        x=numbers(1, 3, 8, 8, seed=3),
    )

    (cause,) = result.culprits[0].causes
    assert cause.sentence.startswith("constant 'b' of Conv (@0) differs; solved for")


def test_one_index_is_too_little_to_prove_a_cause():
    text = (
        "g (float[1,4] x) => (int64[1,1] y)"
        " { h = MatMul(x, w) r = Relu(h) l = MatMul(r, v) y = ArgMax <axis = 1> (l) }"
    )
    feeds = {"x": numbers(1, 4)}
    right = model(text, w=numbers(4, 4, seed=1), v=numbers(4, 4, seed=2))
    wrong = model(text, w=numbers(4, 4, seed=3), v=numbers(4, 4, seed=4))

    result = osl.bisect(wrong, osl.run(right, feeds=feeds), feeds=feeds)

    culprit = result.culprits[0]
    assert not culprit.causes
    assert "no known mistake" in culprit.unexplained


def test_equal_rows_are_one_equation():
    text = "g (float[8,4] x) => (float[8,4] y) { y = MatMul(x, w) }"

    result = found(
        model(text, w=numbers(4, 4)),
        model(text, w=numbers(4, 4, seed=1)),
        x=np.ones((8, 4), np.float32),
    )

    assert not result.culprits[0].causes


def test_a_repair_is_never_in_place(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes((FIXTURES / "faulty_attribute.onnx").read_bytes())

    with pytest.raises(osl.SurgeonError, match="is the model itself"):
        osl.bisect(path, REFERENCES, repair=path, force=True)


def test_a_quick_search_has_no_causes():
    result = osl.bisect(FIXTURES / "faulty_attribute.onnx", REFERENCES, quick=True)

    assert not result.culprits[0].causes


CHAIN = (
    "g (float[4,16] x, float[4,16] z) => (float[4,16] y) { h = Relu(x) s = Sub(h, z) y = Tanh(s) }"
)
PLANTED = {
    "operands that are exchanged": (
        "s = Sub(h, z)",
        "s = Sub(z, h)",
        "in the wrong order; exchanged",
    ),
    "another operator": ("h = Relu(x)", "h = Abs(x)", "should be Relu; with that"),
    "a missing activation": ("y = Tanh(s)", "y = Identity(s)", "Tanh"),
    "a doubled activation": ("y = Tanh(s)", "t = Tanh(s) y = Tanh(t)", "one too many"),
    "an input of another value": ("s = Sub(h, z)", "s = Sub(h, x)", "reads 'x'; with 'z'"),
}


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_mistake_in_the_graph_is_named_and_its_repair_agrees(mistake):
    right_text, wrong_text, said = PLANTED[mistake]
    right, wrong = model(CHAIN), model(CHAIN.replace(right_text, wrong_text))
    feeds = {"x": numbers(4, 16), "z": numbers(4, 16, seed=1)}
    refs = references(right, **feeds)

    result = osl.bisect(wrong, refs, feeds=feeds)

    assert said in result.culprits[0].causes[0].sentence
    fixed = osl.repair(wrong, result).model
    assert osl.bisect(fixed, {"y": refs["y"]}, feeds=feeds, cause=False).verdict == "agrees"


WEIGHTS = {
    "is transposed; transposed back": lambda w: w.T,
    "is scaled, by 1.1": lambda w: w * np.float32(1.1),
    "has its 4 parts along axis 1 in another order": lambda w: w[
        :, [*range(4, 8), *range(4), *range(8, 16)]
    ],
}


@pytest.mark.parametrize("said", WEIGHTS)
def test_a_wrong_weight_is_described(said):
    right = numbers(16, 16)

    result = found(
        model(PRODUCT, w=np.ascontiguousarray(WEIGHTS[said](right))),
        model(PRODUCT, w=right),
        x=numbers(64, 16, seed=1),
    )

    assert said in result.culprits[0].causes[0].sentence


def test_a_kernel_of_one_pixel_has_no_height_and_width_to_exchange():
    right = numbers(16, 16, 1, 1)
    text = "g (float[1,16,8,8] x) => (float[1,16,8,8] y) <float[16,16,1,1] w> { y = Conv(x, w) }"

    result = found(
        model(text, w=right * np.float32(1.05)),
        model(text, w=right),
        x=numbers(1, 16, 8, 8, seed=1),
    )

    sentences = [cause.sentence for cause in result.culprits[0].causes]
    assert "is scaled" in sentences[0]
    assert not any("exchanged" in sentence or "flipped" in sentence for sentence in sentences)


def test_what_two_nodes_share_is_said_once_and_repaired_in_one_edit():
    text = (
        "g (float[4,16] x) => (float[4,16] y) {{ h = LayerNormalization <epsilon = {0}> (x, w, b)"
        " y = LayerNormalization <epsilon = {0}> (h, w, b) }}"
    )
    weights = {"w": numbers(16) * 0.1, "b": numbers(16, seed=1) * 0.1}

    result = found(
        model(text.format(1e-2), **weights),
        model(text.format(1e-5), **weights),
        x=numbers(4, 16) * 0.1,
    )

    cause = result.culprits[0].causes[0]
    assert "epsilon of all 2 LayerNormalization nodes is 0.01; with 1e-05" in cause.sentence
    assert cause.repair[4:] == ["@0,@1", "epsilon=1e-05"]


def test_healthy_models_have_no_cause():
    feeds = {"x": numbers(4, 16), "z": numbers(4, 16, seed=1)}

    result = found(model(CHAIN), model(CHAIN), **feeds)

    assert result.verdict == "agrees"
    assert not result.culprits


def test_the_prompt_says_why_and_repairs():
    words = ["repl", FIXTURES / "faulty_attribute.onnx", "--reference", REFERENCES]

    done = subprocess.run(
        [*COMMAND, *words],
        input="why\nrepair\nwhy\nquit\n",
        capture_output=True,
        text=True,
        check=False,
    )

    assert "cause: dilations of Conv 'Conv_6' is [2, 2]" in done.stdout
    assert "attribute dilations = [2, 2] -> [1, 1]" in done.stdout
    assert "agrees at '31'" in done.stdout


def test_interrupted_it_reports_the_causes_found_so_far():
    text = (
        "g (float[4,16] x) => (float[4,16] y) {{ h = LayerNormalization <epsilon = {}> (x, w, b)"
        " y = {}(h) }}"
    )
    weights = {"w": numbers(16), "b": numbers(16, seed=1)}
    right, wrong = (
        model(text.format(1e-5, "Tanh"), **weights),
        model(text.format(1e-2, "Abs"), **weights),
    )
    x = numbers(4, 16) * 0.1

    def interrupt(progress: str) -> None:
        if progress == "searching the cause at @1":
            raise KeyboardInterrupt

    result = osl.bisect(wrong, references(right, x=x), feeds={"x": x}, progress=interrupt)

    first, second = result.culprits
    assert "with 1e-05" in first.causes[0].sentence
    assert second.unexplained == "not known: its search was interrupted"


def test_an_interrupted_reproducer_leaves_the_cause(tmp_path, monkeypatch):
    text = "g (float[4,16] x) => (float[4,16] y) {{ y = LeakyRelu <alpha = {}> (x) }}"
    right, wrong = (model(text.format(alpha)) for alpha in (0.1, 0.2))
    x, told = numbers(4, 16), []

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("onnxsurgeon_lite.api.bisecting.finished", interrupt)
    result = osl.bisect(
        wrong, references(right, x=x), output=tmp_path / "made", headline=told.append
    )

    assert [each.culprits[0].id for each in told] == ["@0"]
    assert "0.1" in result.culprits[0].causes[0].sentence
    assert result.notes[-1] == ("interrupted: not looked for: a reproducer, a smaller reproducer")
    assert not (tmp_path / "made").exists()


def test_ctrl_c_after_the_first_culprit_keeps_it_and_says_that_others_were_not_looked_for():
    text = "g (float[4,16] x) => (float[4,16] y) {{ h = LeakyRelu <alpha = {}> (x) n = Neg(h) y = {}(n) }}"
    right, wrong = model(text.format(0.1, "Tanh")), model(text.format(0.2, "Sigmoid"))
    x = numbers(4, 16)

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    result = osl.bisect(wrong, references(right, x=x), headline=interrupt)

    assert [culprit.id for culprit in result.culprits] == ["@0"]
    assert result.notes[-1] == "interrupted: not looked for: other culprits, more about the cause"


def test_two_causes_that_fit_equally_come_with_what_tells_them_apart():
    text = "g (float[4,16] x, float[4,16] z) => (float[4,16] y) {{ {} }}"
    right, wrong = (
        model(text.format("h = Add(x, z) y = Relu(h)")),
        model(text.format("y = Add(x, z)")),
    )
    feeds = {"x": numbers(4, 16), "z": numbers(4, 16, seed=1)}

    result = osl.bisect(wrong, {"y": references(right, **feeds)["y"]}, feeds=feeds)

    first, second = result.culprits[0].causes
    assert "Relu is missing" in first.sentence
    assert "Clip to 0 .. 6 is missing" in second.sentence
    assert not first.apart
    assert "a sample with inputs 10 times as large here distinguishes the two" in second.apart


LOOP = """g (float[4,16] x, float[16] s) => (float[4,16] y) {{
    n = Constant <value = int64 {{3}}> () c = Constant <value = bool {{1}}> ()
    y = Loop(n, c, x) <body = b (int64 i, bool go, float[4,16] a) => (bool on, float[4,16] o) {{
        on = Identity(go) {} o = Tanh(t) }}> }}"""
CALL = """g (float[4,16] x, float[16] s) => (float[4,16] y) {{ y = local.f(x, s) }}
<domain: "local", opset_import: ["" : 21]> f (a, s) => (o) {{ {} o = Tanh(t) }}"""
IN_BODIES = {
    "a missing activation": (LOOP, "q = Relu(a) t = Sub(q, s)", "Relu", "Identity"),
    "a constant of the body": (LOOP, "e = Constant <value_float = 0.5> () t = Mul(a, e)", "= 0.5", "= 0.25"),
    "a weight from outside": (LOOP, "p = MatMul(a, w) t = Add(p, s)", "w)", "v)"),
    "exchanged operands": (CALL, "p = Mul(a, s) t = Sub(p, s)", "p, s", "s, p"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", IN_BODIES)
def test_a_mistake_in_a_body_is_repaired_there(mistake):
    place, text, right_text, wrong_text = IN_BODIES[mistake]
    weight = numbers(16, 16, seed=3)
    weights = {"w": weight, "v": np.ascontiguousarray(weight.T)} if "w)" in text else {}
    right = model(place.format(text), **weights)
    wrong = model(place.format(text.replace(right_text, wrong_text)), **weights)
    feeds = {"x": numbers(4, 16), "s": numbers(16, seed=1)}

    result = osl.bisect(wrong, against=right, feeds=feeds)

    fixed = osl.repair(wrong, result).model
    assert osl.bisect(fixed, against=right, feeds=feeds, cause=False).verdict == "agrees"


def test_a_table_whose_rows_are_off_by_one_is_moved_and_its_new_row_is_solved_for():
    text = "g (float[8,16,4] x) => (float[8,16,4] y) { y = Add(x, table) }"
    table = numbers(17, 4)

    result = found(
        model(text, table=table[1:]), model(text, table=table[:-1]), x=numbers(8, 16, 4, seed=1)
    )

    assert "is off by 1 along axis 0; moved by 1" in result.culprits[0].causes[0].sentence


def test_a_limit_of_a_clip_is_solved_for_in_few_digits():
    text = "g (float[4,16] x) => (float[4,16] y) { y = Clip(x, low, high) }"
    low = np.float32(-2)

    result = found(
        model(text, low=low, high=np.float32(0.6)),
        model(text, low=low, high=np.float32(0.37)),
        x=numbers(4, 16),
    )

    assert "is 0.6; with 0.37 the node" in result.culprits[0].causes[0].sentence


TABLES = {
    "is scaled; with": lambda table: table * np.float32(1.1),
    "is scaled by column; with": lambda table: table * np.linspace(0.5, 1.5, 8, dtype=np.float32),
}


@pytest.mark.parametrize("said", TABLES)
def test_a_wrong_table_is_described_and_solved_for(said):
    text = "g (int64[64] x) => (float[64,8] y) { y = Gather(table, x) }"
    table = numbers(16, 8)

    result = found(
        model(text, table=TABLES[said](table)), model(text, table=table), x=np.arange(64) % 16
    )

    assert said in result.culprits[0].causes[0].sentence


def test_a_bias_of_which_only_the_gates_are_in_another_order_is_taken_back():
    text = "g (float[6,2,5] x) => (float[6,1,2,4] y) { y = LSTM <hidden_size = 4> (x, w, r, b) }"
    weights = {"w": numbers(1, 16, 5), "r": numbers(1, 16, 4, seed=1)}
    bias = numbers(1, 2, 4, 4, seed=2)
    wrong = bias[:, :, [0, 2, 3, 1]].reshape(1, 32)

    result = found(
        model(text, b=wrong, **weights),
        model(text, b=bias.reshape(1, 32), **weights),
        x=numbers(6, 2, 5, seed=3),
    )

    sentence = result.culprits[0].causes[0].sentence
    assert "are in another order in 'b'; taken as [0, 3, 1, 2]" in sentence


def test_the_base_of_rotary_tables_is_named():
    text = "g (float[16,8] x) => (float[16,8] y) { y = Mul(x, cosines) }"

    def table(base: float) -> np.ndarray:
        angles = np.outer(np.arange(16), base ** (-np.arange(4) / 4))
        return np.cos(np.tile(angles, 2)).astype(np.float32)

    result = found(
        model(text, cosines=table(1e4)), model(text, cosines=table(5e5)), x=numbers(16, 8)
    )

    assert "(theta) of the rotary frequencies in 'cosines' is 10000; with 500000" in (
        result.culprits[0].causes[0].sentence
    )


def test_a_constant_on_which_a_region_depends_otherwise_than_linearly_is_solved_for():
    text = "g (float[8,4] x) => (float[8,4] y) { h = Exp(k) y = Mul(x, h) }"
    right = np.array([0.3, -0.2, 0.5, 0.1], np.float32)
    wrong = np.array([0.3, 0.9, 0.5, 0.1], np.float32)
    feeds = {"x": numbers(8, 4)}
    refs = osl.run(model(text, k=right), feeds=feeds)

    result = osl.bisect(model(text, k=wrong), refs, feeds=feeds)

    assert "'k' of Exp (@0) differs only at [1]; solved for" in (
        result.culprits[0].causes[0].sentence
    )


def test_references_of_another_model_are_computed_together(monkeypatch):
    nodes = " ".join(f"h{i} = Tanh(h{i - 1})" for i in range(1, 20))
    start = f"g (float[4,16] x) => (float[4,16] y) {{ h0 = Relu(x) {nodes} "
    searching, alone = [], []
    read = _Computed.read

    def counted(self: _Computed, name: str) -> object:
        alone.extend([name] if searching and name not in self.waiting else [])
        return read(self, name)

    monkeypatch.setattr(_Computed, "read", counted)

    result = osl.bisect(
        model(start + "y = Neg(h19) }"),
        against=model(start + "y = Tanh(h19) }"),
        feeds={"x": numbers(4, 16)},
        progress=lambda said: searching.append(said) if "searching the cause" in said else None,
    )

    assert searching
    assert result.culprits[0].causes
    assert not alone


def test_a_reference_under_the_name_of_a_weight_is_no_value_of_the_model():
    text = "g (float[4,16] x) => (float[4,8] y) {{ {} h = MatMul(c, w) y = Add(h, b) }}"
    weights = {"w": numbers(16, 8), "b": numbers(8, seed=1), "half": np.float32(0.5)}
    right, wrong = (
        model(text.format(f"c = {o}"), **weights) for o in ("Identity(x)", "Mul(x, half)")
    )
    x = numbers(4, 16, seed=2)
    given = {"x": x, "y": osl.run(right, {"x": x})["y"], "w": numbers(4, 8)}

    (culprit,) = osl.bisect(wrong, given, feeds={"x": x}).culprits

    assert "half" in culprit.causes[0].sentence or "one too many" in culprit.causes[0].sentence


@pytest.mark.parametrize(
    ("start", "said"),
    [(1, ", it is off by one along axis 0; with"), (2, ", it is off by two along axis 0; with")],
)
def test_a_table_that_an_export_has_computed_is_held_against_the_references_own(start, said):
    text = "g (float[2,6,4] x) => (float[2,6,4] y) { h = Add(x, table) n = Neg(h) y = Tanh(n) }"
    rows = numbers(8, 4)
    right, wrong = (model(text, table=rows[i : i + 6]) for i in (0, start))
    x = numbers(2, 6, 4, seed=1)
    known = references(right, x=x)
    given = {"x": x, "position": rows[None, :6], "n": known["n"], "y": known["y"]}

    (culprit,) = osl.bisect(wrong, given, feeds={"x": x}).culprits

    assert f"is not the references' 'position'{said}" in culprit.causes[0].sentence


def test_an_activation_too_many_is_none_of_another_kind_where_all_is_positive():
    text = "g (float[4,16] x) => (float[4,16] y) {{ a = Exp(x) b = {}(a) y = Sigmoid(b) }}"
    right, wrong = (model(text.format(o)) for o in ("Identity", "Sigmoid"))

    (culprit,) = found(wrong, right, x=numbers(4, 16)).culprits

    assert "Sigmoid (@1) is one too many" in culprit.causes[0].sentence


def test_steps_too_many_are_no_other_operator_that_takes_the_next_step_back():
    text = "g (float[4,16] x) => (float[4,16] y) {{ {} y = MatMul(b, w) }}"
    weights = {"w": numbers(16, 16), "half": np.array(0.5, np.float32)}
    right = model(text.format("b = Identity(x)"), **weights)
    wrong = model(text.format("a = Sub(x, half) b = Div(a, half)"), **weights)
    x = numbers(4, 16, seed=1)

    (culprit,) = osl.bisect(wrong, osl.run(right, {"x": x}), feeds={"x": x}).culprits

    assert "what computes 'b' from 'x' is one too many" in culprit.causes[0].sentence


TURNED = (
    "q2 = Slice(q, two, four, last) q1 = Slice(q, zero, two, last) n = Neg(q2) t = Concat <axis = -1> (n, q1)",
    "q1 = Slice(q, zero, end, last, two) q2 = Slice(q, one, end, last, two) n = Neg(q2)"
    " u = Unsqueeze(n, last) v = Unsqueeze(q1, last) p = Concat <axis = -1> (u, v) t = Reshape(p, whole)",
)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("where", ["frequencies", "cosines", "both"])
def test_rotary_frequencies_in_half_precision_are_told_as_that(dtype, where):
    text = "g (float[16,16] x) => (float[16,16] y) { y = Mul(x, w) }"
    exact, positions = 1e4 ** (-np.arange(8) / 8), np.arange(16)

    def half(array: np.ndarray) -> np.ndarray:
        return array.astype(dtype).astype(float)

    if where == "frequencies":
        text = "g (float[16,8] x) => (float[16,8] y) { p = Mul(x, w) y = Sin(p) }"
        tables = exact, half(exact)
    elif where == "cosines":
        table = np.cos(np.tile(np.outer(positions, exact), 2))
        tables = table, half(table)
    else:
        tables = [np.cos(np.tile(np.outer(positions, f), 2)) for f in (exact, half(exact))]
    right, wrong = (model(text, w=table.astype(np.float32)) for table in tables)

    (culprit,) = found(wrong, right, x=numbers(16, tables[0].shape[-1]) * 30).culprits

    said = f"in 'w' are those of base 10000 rounded to {np.dtype(dtype)}; with those of base (theta) 10000"
    assert said in culprit.causes[0].sentence


def test_a_base_that_does_not_give_the_rotary_frequencies_is_not_told():
    text = "g (float[16,8] x) => (float[16,8] y) { p = Mul(x, w) y = Sin(p) }"
    exact = 1e4 ** (-np.arange(8) / 8)
    tables = exact, exact * (1 - 8e-3 * (np.arange(8) % 2))
    right, wrong = (model(text, w=table.astype(np.float32)) for table in tables)

    (culprit,) = found(wrong, right, x=numbers(16, 8) * 30).culprits

    said = "frequencies in 'w' are those of no base; with those of base (theta) 10000"
    assert said in culprit.causes[0].sentence


def test_features_that_rotary_embeddings_turn_in_other_pairs_are_turned_as_wanted():
    text = "g (float[6,4] q) => (float[6,6] y) {{ {} c = Mul(q, cos) s = Mul(t, sin) a = Add(c, s) {} }}"
    end = "k = Transpose(q) m = MatMul(a, k) y = Softmax(m)"
    weights = {"cos": np.cos(numbers(6, 4)), "sin": np.sin(numbers(6, 4))}
    known = {"zero": 0, "one": 1, "two": 2, "four": 4, "last": -1, "end": 9}
    weights |= {name: np.array([value]) for name, value in known.items()}
    weights["whole"] = np.array([6, 4])
    right, wrong = (model(text.format(turn, end), **weights) for turn in TURNED)
    q = numbers(6, 4, seed=1)

    (culprit,) = osl.bisect(wrong, osl.run(right, {"q": q}), feeds={"q": q}).culprits

    assert "rotary embeddings turn neighbors in 't'; with halves" in culprit.causes[0].sentence


HALVES = "a, b = Split <axis = -1, num_outputs = 2> ({})"
NEIGHBORS = (
    "v = Reshape({}, pairs) a2, b2 = Split <axis = -1, num_outputs = 2> (v)"
    " a = Squeeze(a2, last) b = Squeeze(b2, last)"
)
TURN = "ac = Mul(a, cos) bs = Mul(b, sin) c = Sub(ac, bs) as = Mul(a, sin) bc = Mul(b, cos) s = Add(as, bc)"
JOINED = "{} = Concat <axis = -1> (c, s)"
STACKED = "c2 = Unsqueeze(c, last) s2 = Unsqueeze(s, last) w = Concat <axis = -1> (c2, s2) {} = Reshape(w, whole)"


@pytest.mark.parametrize("wrong", ["halves", "neighbors"])
def test_pairs_that_are_turned_part_by_part_are_turned_as_wanted(wrong):
    ways = {"halves": (HALVES, JOINED), "neighbors": (NEIGHBORS, STACKED)}

    def attention(how: str) -> onnx.ModelProto:
        nodes = "k = Add(q, shift) f = Cast <to = 1> (q)"
        for name in ("f", "k"):
            turn = " ".join((ways[how][0].format(name), TURN, ways[how][1].format("turned")))
            nodes += " " + re.sub(
                r"\b(turned|v|a2?|b2?|ac|bs|as|bc|c2?|s2?|w)\b", rf"\1_{name}", turn
            )
        nodes += (
            " o = Cast <to = 1> (turned_f) t = Transpose(turned_k) m = MatMul(o, t) y = Softmax(m)"
        )
        shapes = {"pairs": np.array([6, 4, 2]), "whole": np.array([6, 8]), "last": np.array([-1])}
        angles = np.outer(np.arange(6), 10.0 ** -np.arange(4)).astype(np.float32)
        tables = {"cos": np.cos(angles), "sin": np.sin(angles), "shift": numbers(8, seed=2)}
        return model(f"g (float[6,8] q) => (float[6,6] y) {{ {nodes} }}", **shapes, **tables)

    (right,) = {*ways} - {wrong}
    q = numbers(6, 8, seed=1)
    wanted = osl.run(attention(right), {"q": q})

    result = osl.bisect(attention(wrong), wanted, feeds={"q": q})

    said = f"rotary embeddings turn {wrong} in 'turned_f', 'turned_k'; with {right}"
    assert said in result.culprits[0].causes[0].sentence
    fixed = osl.repair(attention(wrong), result).model
    assert osl.bisect(fixed, wanted, feeds={"q": q}, cause=False).verdict == "agrees"


def test_neighbors_of_a_part_of_each_head_are_turned_where_halves_of_it_should_be():
    turns = {
        "neighbors": """a = Slice(q, zero, four, last, two) b = Slice(q, one, four, last, two) n = Neg(b)
            n2 = Unsqueeze(n, last) a2 = Unsqueeze(a, last) w = Concat<axis = -1>(n2, a2) t = Reshape(w, part)""",
        "halves": """a = Slice(p, zero, two, last) b = Slice(p, two, four, last) n = Neg(b)
            t = Concat<axis = -1>(n, a)""",
    }
    numbered = {"zero": 0, "one": 1, "two": 2, "four": 4, "last": -1, "end": 9}
    shapes = {name: np.array([value]) for name, value in numbered.items()}
    angles = np.outer(np.arange(6), [1.0, 0.1])

    def attention(how: str) -> onnx.ModelProto:
        of_pairs = np.repeat(angles, 2, 1) if how == "neighbors" else np.tile(angles, 2)
        tables = {"cos": np.cos(of_pairs), "sin": np.sin(of_pairs)}
        return model(
            f"""g (float[6,8] q) => (float[6,6] y) {{
                p = Slice(q, zero, four, last) r = Slice(q, four, end, last) {turns[how]}
                c = Mul(p, cos) s = Mul(t, sin) d = Add(c, s) e = Concat<axis = -1>(d, r)
                k = Transpose(q) m = MatMul(e, k) y = Softmax(m)
            }}""",
            part=np.array([6, 4]),
            **shapes,
            **{name: table.astype(np.float32) for name, table in tables.items()},
        )

    q = numbers(6, 8, seed=1)
    wanted = osl.run(attention("halves"), {"q": q})

    result = osl.bisect(attention("neighbors"), wanted, feeds={"q": q})

    said = "rotary embeddings turn neighbors in 'e'; with halves"
    assert said in result.culprits[0].causes[0].sentence
    fixed = osl.repair(attention("neighbors"), result).model
    fresh = {"q": numbers(6, 8, seed=2)}
    right = osl.run(attention("halves"), fresh)["y"]
    np.testing.assert_allclose(osl.run(fixed, fresh)["y"], right, rtol=1e-4, atol=1e-6)


def test_query_and_key_that_are_exchanged_are_seen_before_what_is_slow_to_try(monkeypatch):
    early = FAMILIES[: FAMILIES.index(missing_rotary)]
    for name, families in (("FAMILIES", early), ("WIDER", ()), ("TOGETHER", ()), ("SOLVED", ())):
        monkeypatch.setattr(finding, name, families)
    turned = " ".join(
        f"{x}c = Mul({x}, cos) {x}t = Mul({x}, sin) {x}r = Sin({x}t) {x}a = Add({x}c, {x}r)"
        for x in "uv"
    )
    scored = "w = Neg(va) t = Transpose(w) m = MatMul(ua, t) n = Softmax(m) y = MatMul(n, k)"
    nodes = f"u = Relu({{}}) v = Relu({{}}) {turned} {scored}"
    text = f"g (float[6,4] q, float[6,4] k) => (float[6,4] y) {{{{ {nodes} }}}}"
    tables = {"cos": np.cos(numbers(6, 4)), "sin": np.sin(numbers(6, 4))}
    right, wrong = model(text.format("q", "k"), **tables), model(text.format("k", "q"), **tables)
    feeds = {"q": numbers(6, 4, seed=1), "k": numbers(6, 4, seed=2)}

    (culprit,) = osl.bisect(wrong, osl.run(right, feeds), feeds=feeds).culprits

    assert "are exchanged; swapped back" in culprit.causes[0].sentence


def test_the_base_of_a_table_of_angles_is_named():
    text = "g (float[8,8] x) => (float[8,8] y) { c = Cos(angles) p = Mul(x, c) y = Tanh(p) }"
    powers = np.arange(4) / 4
    tables = (
        np.outer(np.arange(8), np.tile(base**-powers, 2)).astype(np.float32) for base in (1e4, 500)
    )
    right, wrong = (model(text, angles=table) for table in tables)
    x = numbers(8, 8)

    (culprit,) = osl.bisect(wrong, osl.run(right, {"x": x}), feeds={"x": x}).culprits

    said = "(theta) of the rotary frequencies in 'angles' is 500; with 10000"
    assert said in culprit.causes[0].sentence


def test_an_addition_of_two_values_may_be_one_too_many():
    text = "g (float[4,16] x, float[4,16] z) => (float[4,16] y) {{ h = Relu(x) {} y = Tanh(s) }}"
    right, wrong = (model(text.format(step)) for step in ("s = Identity(h)", "s = Add(h, z)"))

    (culprit,) = found(wrong, right, x=numbers(4, 16), z=numbers(4, 16, seed=1)).culprits

    assert "Add (@1) is one too many; without it the node agrees" in culprit.causes[0].sentence


def test_one_mistake_that_explains_culprits_that_read_each_other_is_the_cause_of_all():
    text = "g (float[4,16] x) => (float[4,8] y) {{ c = MatMul(x, w) {} y = MatMul({}, v) }}"
    weights = {"w": numbers(16, 16), "v": numbers(16, 8, seed=1)}
    right = model(text.format("a = Add(c, x) r = Relu(a)", "r"), **weights)
    wrong = model(text.format("r = Relu(c) a = Add(r, x)", "a"), **weights)

    result = found(wrong, right, x=numbers(4, 16, seed=2))

    assert len(result.culprits) == 3
    assert len({culprit.causes[0].sentence for culprit in result.culprits}) == 1
    assert "Relu (@1) stands at the wrong place" in result.culprits[0].causes[0].sentence
    fixed = osl.repair(wrong, result).model
    assert osl.bisect(fixed, against=right, cause=False).verdict == "agrees"


def test_one_mistake_that_leaves_a_wrong_value_is_not_the_cause_of_several_culprits():
    text = (
        "g (float[4,16] x) => (float[4,8] y) {{ g = MatMul(x, w) u = MatMul(x, v) s = Sigmoid({0})"
        " a = Mul({0}, s) m = Mul(a, {1}) y = MatMul(m, d) }}"
    )
    weights = {"w": numbers(16, 16), "v": numbers(16, 16, seed=1), "d": numbers(16, 8, seed=2)}
    right, wrong = (model(text.format(*pair), **weights) for pair in ("gu", "ug"))
    x = numbers(4, 16, seed=3)
    known = references(right, x=x)
    del known["s"]  # a module has the product alone

    result = osl.bisect(wrong, known, feeds={"x": x})

    fixed = osl.repair(wrong, result).model
    assert osl.bisect(fixed, known, feeds={"x": x}, cause=False).verdict == "agrees"


def test_what_is_missing_between_a_value_and_one_of_its_readers_is_the_cause():
    text = (
        "g (float[4,16] x) => (float[4,8] y) {{ c = MatMul(x, w) a = Add(c, x) n = Tanh(a)"
        " q = MatMul(n, w) {} y = MatMul({}, v) }}"
    )
    weights = {"w": numbers(16, 16), "v": numbers(16, 8, seed=1)}
    right = model(text.format("r = Add(a, q)", "r"), **weights)
    wrong = model(text.format("", "a"), **weights)
    x = numbers(4, 16, seed=2)
    known = references(right, x=x)
    of_modules = {"n": known["n"], "q": known["q"], "a": known["r"], "y": known["y"]}

    result = osl.bisect(wrong, of_modules, feeds={"x": x})

    assert "'q' is not added to 'a'" in result.culprits[0].causes[0].sentence
    fixed = osl.repair(wrong, result).model
    made = osl.run(fixed, feeds={"x": x})["y"]
    np.testing.assert_allclose(made, known["y"], rtol=1e-4, atol=1e-4)


def test_another_activation_comes_before_a_number_of_which_it_is_the_limit():
    gelu = "d = Div(h, root) f = Erf(d) o = Add(f, one) m = Mul(h, o) a = Mul(m, half)"
    text = "g (float[4,16] x) => (float[4,8] y) {{ h = MatMul(x, w) {} y = MatMul(a, v) }}"
    weights = {"w": numbers(16, 16), "v": numbers(16, 8, seed=1)}
    weights |= {
        name: np.array(value, np.float32)
        for name, value in {"root": math.sqrt(2), "one": 1, "half": 0.5}.items()
    }
    right, wrong = (model(text.format(act), **weights) for act in ("a = Relu(h)", gelu))
    x = numbers(4, 16, seed=2)

    (culprit,) = osl.bisect(wrong, references(right, x=x), feeds={"x": x}).culprits

    assert "Relu" in culprit.causes[0].sentence


def test_a_folded_variance_scales_a_convolution_in_groups():
    text = (
        "g (float[2,6,8,8] x) => (float[2,6,6,6] y) <float[6,1,3,3] w, float[6] b>"
        " { h = Conv <group = 6> (x, w, b) y = Relu(h) }"
    )
    kernel, bias = numbers(6, 1, 3, 3), numbers(6, seed=1)
    factor = np.linspace(0.5, 2, 6).astype(np.float32)

    result = osl.bisect(
        model(text, w=kernel * factor[:, None, None, None], b=bias * factor),
        against=model(text, w=kernel, b=bias),
        feeds={"x": numbers(2, 6, 8, 8, seed=3)},
    )

    said = "2 constants of Conv (@0) differ: 'w' is scaled along axis 0 by 0.5 to 2, 'b' differs, as by another folded"
    assert said in result.culprits[0].causes[0].sentence


def test_what_is_below_a_culprit_may_be_what_another_one_should_read():
    norm = "n = LayerNormalization ({}, s, b)"
    weights = {"w": numbers(16, 16), "v": numbers(16, 4, seed=1)}
    weights |= {"s": numbers(16, seed=2), "b": numbers(16, seed=3)}
    before = f"{norm.format('e')} q = MatMul(n, w) a = Mul(e, q) y = MatMul(a, v)"
    behind = f"q = MatMul(e, w) a = Mul(e, q) {norm.format('a')} y = MatMul(n, v)"
    right, wrong = (
        model(f"g (float[8,16] x) => (float[8,4] y) {{ e = Neg(x) {nodes} }}", **weights)
        for nodes in (before, behind)
    )
    x = numbers(8, 16, seed=4)
    known = {name: value for name, value in references(right, x=x).items() if name not in "ae"}

    result = osl.bisect(wrong, known, feeds={"x": x})

    said = {culprit.causes[0].sentence for culprit in result.culprits}
    assert len(result.culprits) == 3
    (sentence,) = said  # each alone reads another value, which is below one of the others
    assert "LayerNormalization (@3) stands at the wrong place; between 'e' and MatMul" in sentence
    fixed = osl.repair(wrong, result).model
    assert osl.bisect(fixed, {"y": known["y"]}, feeds={"x": x}, cause=False).verdict == "agrees"


def test_exchanged_channels_are_seen_behind_a_folded_normalization():
    text = "g (float[2,4,9,9] x) => (float[2,4,7,7] y) { y = Conv(x, w) }"
    kernel, scale = numbers(4, 4, 3, 3), np.array([2, 0.5, -1, 3], np.float32)[:, None, None, None]

    result = found(
        model(text, w=kernel.swapaxes(0, 1) * scale),
        model(text, w=kernel * scale),
        x=numbers(2, 4, 9, 9, seed=1),
    )

    sentence = result.culprits[0].causes[0].sentence
    assert "has its in and out channels exchanged; changed back, behind a scale" in sentence


def test_an_activation_is_named_where_only_the_product_behind_it_is_known():
    text = "g (float[64,16] x) => (float[64,4] y) {{ {} y = MatMul(a, w) }}"
    wrong = "h = Mul(x, c) g = Sigmoid(h) a = Mul(x, g)"
    weights = {"w": numbers(16, 4), "c": np.float32(1.702)}
    x = numbers(64, 16, seed=1)
    given = osl.run(model(text.format("a = Gelu(x)"), w=weights["w"]), {"x": x})

    (culprit,) = osl.bisect(model(text.format(wrong), **weights), given, feeds={"x": x}).culprits

    assert (
        "computes 'a' from 'x' is GELU (sigmoid) instead of GELU (erf)"
        in culprit.causes[0].sentence
    )


SEVERAL = {
    "Relu": "y = Relu(x)",
    "SiLU": "w = Sigmoid(x) y = Mul(x, w)",
    "Mish": "v = Softplus(x) w = Tanh(v) y = Mul(x, w)",
    "LeakyRelu with alpha=0.2": "y = LeakyRelu <alpha = 0.2> (x)",
}


@pytest.mark.parametrize(
    ("old", "new"),
    [("SiLU", "Relu"), ("Relu", "SiLU"), ("SiLU", "Mish"), ("SiLU", "LeakyRelu with alpha=0.2")],
)
def test_an_activation_of_several_nodes_and_another_are_named(old, new):
    text = "g (float[32,16] x) => (float[32,16] y) {{ {} }}"
    wrong, right = (model(text.format(SEVERAL[which])) for which in (old, new))
    x = numbers(32, 16)

    (culprit,) = osl.bisect(wrong, osl.run(right, {"x": x}), feeds={"x": x}).culprits

    said = f"what computes 'y' from 'x' is {old} instead of {new}; with {new}"
    assert said in culprit.causes[0].sentence


def test_an_activation_that_no_operator_computes_is_missing_behind_the_last_node():
    text = "g (float[32,16] x) => (float[32,8] y) {{ {} }}"
    nodes = "h = MatMul(x, w) s = Sigmoid(h) y = Mul(h, s)"
    wrong, right = (
        model(text.format(each), w=numbers(16, 8)) for each in ("y = MatMul(x, w)", nodes)
    )
    x = numbers(32, 16, seed=1)

    (culprit,) = osl.bisect(wrong, osl.run(right, {"x": x}), feeds={"x": x}).culprits

    assert "SiLU is missing behind MatMul (@0); with it" in culprit.causes[0].sentence


def test_an_embedding_that_only_the_references_have_is_not_added():
    nodes = "n = LayerNormalization ({}, s, b) y = MatMul(n, w)"
    weights = {"s": numbers(16), "b": numbers(16, seed=1), "w": numbers(16, 4, seed=2)}
    start = "g (float[2,6,16] x) => (float[2,6,4] y) {"
    right = model(f"{start} e = Add(x, p) {nodes.format('e')} }}", p=numbers(6, 16), **weights)
    wrong = model(f"{start} {nodes.format('x')} }}", **weights)
    x = numbers(2, 6, 16, seed=3)
    known = references(right, x=x)
    given = {"x": x, "positions": numbers(6, 16), "n": known["n"], "y": known["y"]}

    (culprit,) = osl.bisect(wrong, given, feeds={"x": x}).culprits

    assert "the references' 'positions' is not added to 'x'" in culprit.causes[0].sentence


def test_a_constant_is_missing_beside_one_that_is_too_small_to_hold_it():
    text = "g (float[3,4,6,8] q, float[3,4,8,6] k) => (float[3,4,6,6] y) {{ h = MatMul(q, k) {} }}"
    weights = {"mask": np.zeros((3, 1, 6, 6), np.float32)}
    wrong = model(text.format("y = Add(h, mask)"), **weights)
    weights["bias"] = numbers(1, 4, 6, 6)
    right = model(text.format("m = Add(h, mask) y = Add(m, bias)"), **weights)
    feeds = {"q": numbers(3, 4, 6, 8, seed=1), "k": numbers(3, 4, 8, 6, seed=2)}
    known = references(right, **feeds)

    given = {**feeds, "h": known["h"], "y": known["y"]}
    (culprit,) = osl.bisect(wrong, given, feeds=feeds).culprits

    said = "a constant [1, 4, 6, 6] is not added behind Add"
    assert said in culprit.causes[0].sentence


def _root_mean_square(x):
    return x / np.sqrt(np.square(x).mean(-1, keepdims=True) + 1e-6)


OTHERWISE = {
    "is another normalization; with RMSNormalization": (
        "g (float[2,5,8] x) => (float[2,5,8] y) { y = LayerNormalization (x, ones) }",
        _root_mean_square,
    ),
    "what computes 'y' from 'x' is not the mean along axis 1; with that": (
        "g (float[2,5,8] x) => (float[2,8] y) { y = Gather <axis = 1> (x, first) }",
        lambda x: x.mean(1),
    ),
    "Transpose [0, 2, 1, 3] is missing between 'h' and Reshape": (
        "g (float[2,4,6,8] x) => (float[2,6,32] y) { h = Neg(x) y = Reshape(h, merged) }",
        lambda x: -x.transpose(0, 2, 1, 3).reshape(2, 6, 32),
    ),
    "Clip to 0 .. 6 is missing between 'h' and Relu": (
        "g (float[2,5,8] x) => (float[2,5,4] y) { h = Mul(x, four) r = Relu(h) y = MatMul(r, v) }",
        lambda x: np.clip(4 * x, 0, 6) @ numbers(8, 4, seed=1),
    ),
    "is the Tanh of GELU (tanh) instead of the Erf of GELU (erf); with the Erf": (
        "g (float[2,5,8] x) => (float[2,5,8] y)"
        " { a = Mul(x, x) b = Mul(a, x) c = Mul(b, k) d = Add(x, c) e = Mul(d, f) y = Tanh(e) }",
        lambda x: np.vectorize(math.erf)(x / np.sqrt(2)),
    ),
}


@pytest.mark.parametrize("said", OTHERWISE)
def test_what_is_computed_otherwise_is_named_and_its_repair_agrees(said):
    text, right = OTHERWISE[said]
    known = {"ones": np.ones(8, np.float32), "first": np.int64(0), "merged": np.array([2, 6, 32])}
    known |= {"k": np.float32(0.044715), "f": np.float32((2 / np.pi) ** 0.5)}
    known |= {"four": np.float32(4), "v": numbers(8, 4, seed=1)}
    wrong = model(text, **{name: value for name, value in known.items() if f"{name})" in text})
    x = numbers(2, 4, 6, 8) if "[2,4,6,8]" in text else numbers(2, 5, 8)
    wanted = {"y": right(x).astype(np.float32)}

    result = osl.bisect(wrong, wanted, feeds={"x": x})

    assert said in result.culprits[0].causes[0].sentence
    fixed = osl.repair(wrong, result).model
    assert osl.bisect(fixed, wanted, feeds={"x": x}, cause=False).verdict == "agrees"


def test_query_and_key_are_exchanged_where_their_product_is_transposed():
    nodes = "t = Transpose <perm = [0,2,1]> ({}) s = MatMul({}, t) y = Softmax(s)"
    text = f"g (float[2,6,8] q, float[2,6,8] k) => (float[2,6,6] y) {{{{ {nodes} }}}}"
    right, wrong = model(text.format("k", "q")), model(text.format("q", "k"))
    feeds = {"q": numbers(2, 6, 8), "k": numbers(2, 6, 8, seed=1)}
    known = {"y": references(right, **feeds)["y"], "s": references(wrong, **feeds)["s"]}

    (culprit,) = osl.bisect(wrong, known, feeds=feeds).culprits

    assert "query and key are exchanged in MatMul (@1)" in culprit.causes[0].sentence


@pytest.mark.parametrize(
    "factor",
    [
        "f = Constant <value_float = 0.35> ()",
        "f = Constant <value = float[3,1,1] {0.5, 0.25, 2.0}> ()",
        "n = Shape <start = -1> (x) c = Cast <to = 1> (n) r = Sqrt(c) f = Reciprocal(r)",
    ],
    ids=["number", "of each head", "computed"],
)
def test_a_factor_that_cancels_is_no_sum(factor):
    text = "g (float[2,3,5,8] x) => (float[2,3,5,8] y) {{ {} y = Softmax(d) }}"
    wrong = model(text.format(f"{factor} m = Mul(x, f) d = Where(b, m, l)"), **MASK)
    right = model(text.format("d = Where(b, x, l)"), **MASK)
    x = numbers(2, 3, 5, 8)

    (culprit,) = osl.bisect(wrong, osl.run(right, feeds={"x": x}), feeds={"x": x}).culprits

    assert "is one too many; without it" in culprit.causes[0].sentence
    assert "Mul" in culprit.causes[0].sentence


def test_a_sum_with_zeros_is_a_cause_though_it_changes_nothing():
    text = "g (float[2,5,5] x, float[1,5,5] mask) => (float[2,5,5] y) {{ d = {}(x, mask) y = Softmax(d) }}"
    right, wrong = model(text.format("Add")), model(text.format("Mul"))
    feeds = {"x": numbers(2, 5, 5), "mask": np.zeros((1, 5, 5), np.float32)}

    (culprit,) = osl.bisect(wrong, osl.run(right, feeds=feeds), feeds=feeds).culprits

    assert "should be Add; with that" in culprit.causes[0].sentence


@pytest.mark.parametrize("batch", [2, 12])
def test_what_was_changed_comes_first_and_few_integers_prove_nothing(batch):
    text = f"""g (int64[{batch},6] ids, float[{batch},6,4] h) => (float[{batch},4] y) {{{{
        e = Equal(ids, end) c = Cast <to = 6> (e) i = {{}} <axis = 1, keepdims = 0> (c)
        u = Unsqueeze(i, one) y = GatherND <batch_dims = 1> (h, u)
    }}}}"""
    constants = {"end": np.int64(49), "one": np.array([1])}
    right, wrong = (model(text.format(o), **constants) for o in ("ArgMax", "ArgMin"))
    ids = np.random.default_rng(0).integers(0, 48, (batch, 6))
    ids[np.arange(batch), 1 + np.arange(batch) % 5] = 49  # the largest, as in CLIP
    feeds = {"ids": ids, "h": numbers(batch, 6, 4)}

    (culprit,) = osl.bisect(wrong, osl.run(right, feeds=feeds), feeds=feeds).culprits

    said = "ArgMin (@2) should be ArgMax; with that the region"
    if batch == 2:
        assert not culprit.causes
        assert said in culprit.unexplained
        assert "so few integers stand between it and the references" in culprit.unexplained
    else:
        assert said in culprit.causes[0].sentence
        assert "distinguishes the two" in culprit.causes[1].apart


@pytest.mark.parametrize("laid_out", [False, True])
def test_a_reshape_where_axes_are_exchanged_is_named(laid_out):
    text = "g (float[3,6,4] x, float[3,4,6] z) => (float[3,4,6] y) {{ h = Neg(x) r = {} y = Add(r, z) }}"
    right = model(text.format("Transpose <perm = [0,2,1]> (h)"))
    wrong = model(text.format("Reshape(h, s)"), s=np.array([3, 4, 6]))
    feeds = {"x": numbers(3, 6, 4), "z": numbers(3, 4, 6, seed=1)}
    known = {**feeds, "y": osl.run(right, feeds=feeds)["y"]}
    if laid_out:  # what `h` should be, matched with what has its elements
        known["r"] = -feeds["x"].reshape(3, 4, 6)

    result = osl.bisect(wrong, known, feeds=feeds)

    sentence = result.culprits[0].causes[0].sentence
    assert "should be Transpose [0, 2, 1]; with that" in sentence
    known.pop("r", None)
    fixed = osl.repair(wrong, result).model
    assert osl.bisect(fixed, known, feeds=feeds, cause=False).verdict == "agrees"


@pytest.mark.parametrize("constant", [True, False])
def test_values_that_are_each_laid_out_otherwise_are_arranged_together(constant):
    text = "g (float[2,5,8] q, float[2,5,8] k, float[2,5,8] v) => (float[2,2,5,4] y) {{ {} {} }}"

    def attention(split: str, perm: str) -> onnx.ModelProto:
        parts = "".join(
            f"{n}_r = Reshape({n}, s) {n}_h = Transpose <perm = [{perm}]> ({n}_r) " for n in "qkv"
        )
        scores = "t = Transpose <perm = [0,1,3,2]> (k_h) m = MatMul(q_h, t) p = Softmax(m) y = MatMul(p, v_h)"
        sizes = np.array([*map(int, split.split())])
        if constant:
            return model(text.format(parts, scores), s=sizes)
        # what is computed is edited nowhere: its values are arranged
        return model(
            text.format(f"s = Cast <to = 7> (c) {parts}", scores), c=sizes.astype(np.int32)
        )

    right, wrong = attention("2 5 2 4", "0,2,1,3"), attention("2 5 4 2", "0,3,1,2")
    feeds = {name: numbers(2, 5, 8, seed=seed) for seed, name in enumerate("qkv")}

    result = osl.bisect(wrong, {"y": osl.run(right, feeds=feeds)["y"]}, feeds=feeds)

    sentence = result.culprits[0].causes[0].sentence
    if constant:
        assert "Reshape (@0) splits into [2, 5, 4, 2] before" in sentence
        assert "with [2, 5, 2, 4] and [0, 2, 1, 3]" in sentence
    else:
        assert "the order of 'q' and 'k' and 'v' is another: each is interleaved" in sentence


def test_the_other_output_of_all_makers_is_read():
    parts = "a, b = Split(x, n) c, d = Split(z, n)"
    text = f"g (float[4,8] x, float[4,8] z) => (float[4,8] y) {{{{ {parts} y = Concat <axis = 0> ({{}}) }}}}"
    right, wrong = (model(text.format(read), n=np.array([2, 2])) for read in ("a, c", "b, d"))

    result = found(wrong, right, x=numbers(4, 8), z=numbers(4, 8, seed=1))

    assert "reads 'b' and 'd'; with 'a' and 'c'" in result.culprits[0].causes[0].sentence


def test_numbers_that_repeat_along_an_axis_are_one_unknown():
    text = "g (float[3,10,4] x) => (float[3,10,4] y) { y = Add(x, c) }"
    repeated = np.tile(numbers(1, 10, 4, seed=1), (3, 1, 1))

    result = found(
        model(text, c=0 * repeated), model(text, c=repeated), x=numbers(3, 10, 4, seed=2)
    )

    assert "is zero everywhere; solved for" in result.culprits[0].causes[0].sentence


def test_right_values_of_another_size_end_the_search_behind_them():
    nodes = "h = Neg(x) a = Concat <axis = 0> ({}) s = Shape(a) y = Reshape({}, s)"
    text = f"g (float[4,6] x) => (float[m,n] y) {{{{ {nodes} }}}}"
    right, wrong = model(text.format("h, x", "a")), model(text.format("h", "h"))

    result = found(wrong, right, x=numbers(4, 6))

    assert [culprit.value for culprit in result.culprits] == ["a"]
    assert any("not searched after 'a'" in note for note in result.notes)


def test_what_is_missing_may_be_a_value_whose_shape_is_not_declared():
    text = "g (float[n,16] x) => (float[n,16] y) {{ h = Exp(x) m = MatMul(h, w) {} }}"
    ends = "r = Add(m, h) y = Div(r, two)", "y = Div(m, two)"
    weights = {"w": numbers(16, 16), "two": np.float32(2)}
    right, wrong = (model(text.format(end), **weights) for end in ends)
    known = references(right, x=numbers(4, 16))
    known = {name: known[name] for name in ("x", "m", "y")}

    result = osl.bisect(wrong, known, feeds={"x": known["x"]})

    assert "'h' is not added to 'm'" in result.culprits[0].causes[0].sentence


@pytest.mark.parametrize("right", [1 / 1.2, 1e-5, 0.0316, 0.8335])
def test_a_number_that_a_coarse_step_meets_is_solved_for(monkeypatch, right):
    def outcomes(self, hypotheses):
        for hypothesis in hypotheses:
            error = abs(float(hypothesis.name) / right - 1)
            yield Outcome(hypothesis, fits=False, left=1.0, error=error + explained)

    monkeypatch.setattr(Bench, "outcomes", outcomes)
    bench = Bench(None, 0, 0.0)

    explained = 0.0
    found = bench.solve(lambda number: Hypothesis(repr(number), "", ()))
    explained = 0.1  # of the error, that no number takes back

    assert found == pytest.approx(right, rel=1e-5)
    assert bench.solve(lambda number: Hypothesis(repr(number), "", ())) is None


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ((-1, 9), (0, 1), "takes [:1] of axis 1; with [-1:] the node agrees (max abs 0)"),
        ((0, -1), (1, 6), "takes [1:6] of axis 1; with [:-1] the node agrees (max abs 0)"),
        ((-4, 9), (0, 4), "takes [:4] of axis 1; with [-4:] the node agrees (max abs 0)"),
    ],
)
def test_a_slice_of_a_dimension_of_any_size_is_repaired_for_every_size(right, wrong, said):
    text = "g (float[b,s,8] x) => (float[b,t,8] y) { y = Slice(x, begin, end, axis, step) }"
    one = {"axis": np.array([1]), "step": np.array([1])}
    models = [model(text, begin=np.array([a]), end=np.array([b]), **one) for a, b in (wrong, right)]

    result = found(*models, x=numbers(2, 6, 8))

    assert said in result.culprits[0].causes[0].sentence
    longer = {"x": numbers(1, 9, 8)}
    fixed = osl.repair(models[0], result).model
    assert np.array_equal(osl.run(fixed, longer)["y"], osl.run(models[1], longer)["y"])


def test_an_order_of_what_may_have_any_size_is_said_to_hold_for_this_one():
    text = "g (float[n,4] x) => (float[n,4] y) {{ h = Gather <axis = 0> (x, {}) y = Neg(h) }}"
    order = {"o": np.array([3, 2, 1, 0]), "p": np.arange(4)}
    right, wrong = (model(text.format(name), **order) for name in "op")

    (culprit,) = osl.bisect(
        wrong, {"y": osl.run(right, {"x": numbers(4, 4)})["y"]}, feeds={"x": numbers(4, 4)}
    ).culprits

    assert culprit.causes[0].sentence.endswith("at the sizes of this sample alone")


_LOOP = """y = Loop(n, go, x) <body = b (int64 i, bool c, float[8] a) => (bool on, float[8] o) {{
    on = Identity(c) f = Gather(table, i) o = {}(a, f)
}}>"""
_SCAN = """y = Scan <num_scan_inputs = 1, body = b (float[8] a, float f) => (float[8] o) {{
    o = {}(a, f)
}}> (x, table)"""


@pytest.mark.parametrize("loop", [_LOOP, _SCAN], ids=["Loop", "Scan"])
def test_a_cause_in_a_loop_holds_in_every_iteration(loop, tmp_path):
    text = f"g (float[8] x) => (float[8] y) {{{{ {loop} }}}}"
    constants = {"n": np.int64(3), "go": np.bool_(True), "table": np.float32([1, 2, 3])}
    right, wrong = (model(text.format(operator), **constants) for operator in ("Mul", "Add"))
    feeds = {"x": numbers(8)}
    osl.record(right, tmp_path / "right.npz", feeds, inner=True)

    result = osl.bisect(wrong, tmp_path / "right.npz", feeds=feeds)

    (inside,) = result.culprits[0].inside  # which is first wrong where all is multiplied with 1
    assert ["should be Mul; with that" in cause.sentence for cause in inside.causes] == [True]
    assert not any("iterations" in note for note in result.notes)


def test_iterations_that_the_references_do_not_have_are_counted(tmp_path):
    text = f"g (float[8] x) => (float[8] y) {{{{ {_LOOP} }}}}"
    constants = {"n": np.int64(3), "go": np.bool_(True), "table": np.float32([2, 1, 3])}
    right, wrong = (model(text.format(operator), **constants) for operator in ("Mul", "Add"))
    feeds = {"x": numbers(8)}
    osl.record(right, tmp_path / "right.npz", feeds, inner=True)
    known = {**np.load(tmp_path / "right.npz")}
    first = {name: value for name, value in known.items() if not name.endswith(("[1]", "[2]"))}

    result = osl.bisect(wrong, first, feeds=feeds)

    assert "causes in @0/body were tried in 1 of 3 iterations" in result.notes


def test_another_operator_with_a_number_comes_before_another_number():
    text = "g (float[4,16] x) => (float[4,16] y) {{ h = {}(x, c) y = Neg(h) }}"
    right, wrong = (model(text.format(o), c=np.float32(0.5)) for o in ("Mul", "Div"))

    (culprit,) = found(wrong, right, x=numbers(4, 16)).culprits

    assert "should be Mul; with that" in culprit.causes[0].sentence


def test_what_is_new_behind_references_that_agree_is_searched_where_the_stream_has_none():
    """A stream of residuals that no hook sees: each reference is of a normalization that reads it."""
    rng, blocks = np.random.default_rng(0), 107
    lines, weights = [], {"s": np.ones(8, np.float32)}
    for i in range(blocks):
        weights[f"w{i}"] = (rng.standard_normal((8, 8)) / 4).astype(np.float32)
        lines.append(
            f"n{i} = LayerNormalization (r{i}, s) a{i} = MatMul (n{i}, w{i})"
            f" b{i} = LeakyRelu <alpha = {{{'alpha' if i == 102 else 'usual'}}}> (a{i})"
            f" r{i + 1} = Add (r{i}, b{i})"
        )
    text = f"g (float[4,8] r0) => (float[4,8] r{blocks}) {{{{ {' '.join(lines)} }}}}"
    right, wrong = (model(text.format(alpha=a, usual=0.1), **weights) for a in (0.1, 0.3))
    x = numbers(4, 8)
    every = references(right, r0=x)
    known = {
        n: v
        for n, v in every.items()
        if n in ("r0", f"r{blocks}") or n[1:] in map(str, range(0, blocks, 5)) and n[0] == "n"
    }

    culprit = osl.bisect(wrong, known).culprits[0]

    assert culprit.value == "n105"
    assert "alpha of LeakyRelu (@410) is 0.3; with 0.1" in culprit.causes[0].sentence


def test_the_last_nodes_of_a_large_region_are_searched(monkeypatch):
    monkeypatch.setattr(surroundings, "_LARGEST", 4)
    text = "g (float[4,16] x) => (float[4,8] y) {{ {} c = Tanh(b) d = MatMul(c, w) e = {}(d) y = MatMul(e, v) }}"
    weights = {"w": numbers(16, 16), "v": numbers(16, 8, seed=1)}
    before = "p = Sin(x) q = Exp(p) r = Neg(q) a = {}(r) b = Neg(a)"
    right = model(text.format(before.format("Tanh"), "Relu"), **weights)
    x = numbers(4, 16, seed=2)
    known = {name: value for name, value in references(right, x=x).items() if name == "y"}

    late, early = (
        osl.bisect(model(text.format(before.format(a), b), **weights), known, feeds={"x": x})
        for a, b in (("Tanh", "Sigmoid"), ("Sigmoid", "Relu"))
    )

    assert "Sigmoid (@7) should be Relu" in late.culprits[0].causes[0].sentence
    assert not early.culprits[0].causes
    for result in (late, early):
        assert "5 nodes before 'y' were not searched for a cause" in result.notes
