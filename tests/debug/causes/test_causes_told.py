"""Causes that a reader can trust: nothing that the references leave open, nothing by accident, in plain words."""

from collections import Counter

import numpy as np
import onnx
import pytest

import onnxsurgeon_lite as osl
from kit.causes import found, model, numbers, references, said
from onnxsurgeon_lite.debug.causes import finding
from onnxsurgeon_lite.debug.causes.attributes import attributes
from onnxsurgeon_lite.debug.causes.everywhere import merged
from onnxsurgeon_lite.debug.causes.operators import extra_steps
from onnxsurgeon_lite.debug.causes.other_model import of_other_model
from onnxsurgeon_lite.debug.causes.trying import Bench
from onnxsurgeon_lite.debug.causes.wiring import exchanged_operands
from onnxsurgeon_lite.errors import RuntimeFailure
from onnxsurgeon_lite.passes import SetConstant
from onnxsurgeon_lite.passes.protocol import key
from onnxsurgeon_lite.runtime.session import Runtime


def told(text: str, wrong: dict, right: dict, **feeds: np.ndarray) -> str:
    """The first cause, against the right model itself."""
    result = osl.bisect(model(text, **wrong), against=model(text, **right), feeds=feeds)
    return result.culprits[0].causes[0].sentence


@pytest.mark.parametrize("op_type", ["Gemm", "MatMul"])
def test_a_column_with_fewer_equations_than_unknowns_is_not_solved_for(op_type):
    text = f"g (float[32,48] x) => (float[32,6] y) {{ y = {op_type} (x, w) }}"
    right = numbers(48, 6)
    wrong = right.copy()
    wrong[:, 5] = 0

    (culprit,) = found(
        model(text, w=wrong), model(text, w=right), x=numbers(32, 48, seed=1)
    ).culprits

    assert not culprit.causes
    assert "the references do not determine them: 48 unknowns, 32 equations" in culprit.unexplained


def test_inputs_that_the_references_do_not_tell_apart_are_unknown():
    text = "g (float[24,32] x) => (float[24,6] y) { y = MatMul (x, w) }"
    right = numbers(32, 6)
    wrong = right.copy()
    wrong[:, 5] = 0
    of_low_rank = numbers(24, 10, seed=1) @ numbers(10, 32, seed=2)

    (culprit,) = found(model(text, w=wrong), model(text, w=right), x=of_low_rank).culprits

    assert not culprit.causes
    assert "the references do not determine them: 32 unknowns" in culprit.unexplained


def test_what_was_right_before_is_no_equation_for_what_is_solved_for():
    text = "g (float[1,32] x) => (float[1,32] y) { y = Add (x, b) }"
    right = numbers(32)
    wrong = right.copy()
    wrong[[3, 7, 9]] = numbers(3, seed=1)

    (culprit,) = found(
        model(text, b=wrong), model(text, b=right), x=numbers(1, 32, seed=2)
    ).culprits

    assert not culprit.causes
    assert "that proves nothing: 3 unknowns, 3 equations" in culprit.unexplained


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ((slice(None), 2), "would agree, but that proves nothing"),
        (([0, 2, 3], [2, 5, 7]), "solved for the node agrees"),
    ],
    ids=["one position", "several positions"],
)
def test_a_row_of_a_table_is_solved_for_where_it_is_taken_at_several_positions(at, said):
    text = "g (int64[4,9] ids) => (float[4,9,16] y) { y = Gather (table, ids) }"
    right = numbers(20, 16)
    wrong = right.copy()
    wrong[3] = 0
    ids = np.random.default_rng(0).integers(4, 20, (4, 9))
    ids[at] = 3

    (culprit,) = found(model(text, table=wrong), model(text, table=right), ids=ids).culprits

    sentence = culprit.causes[0].sentence if culprit.causes else culprit.unexplained
    assert "constant 'table' of Gather (@0) is zero at [3] of axis 0" in sentence
    assert said in sentence


def test_each_cause_that_is_shown_repairs_where_a_value_is_read_elsewhere():
    text = """g (float[6,16] x) => (float[6,16] y, float[6,16] z)
        {{ a = Tanh (x) m = MatMul (x, w) {} y = Add (a, {}) z = Mul (a, x) }}"""
    weights = {"w": numbers(16, 16)}
    wrong = model(text.format("", "m"), **weights)
    right = model(text.format("n = Add (m, b)", "n"), b=numbers(16, seed=1), **weights)
    feeds = {"x": numbers(6, 16, seed=2)}
    known = references(right, **feeds)

    result = osl.bisect(wrong, known, feeds=feeds)

    causes = result.culprits[0].causes
    assert "not added behind 'a' for Add (@2); with" in " ".join(c.sentence for c in causes)
    for cause in causes:
        result.culprits[0].causes = [cause]
        fixed = osl.repair(wrong, result).model
        assert osl.bisect(fixed, known, feeds=feeds, cause=False).verdict == "agrees"


def test_a_mask_with_another_number_is_no_division_by_zero():
    text = """g (float[2,4,4] x, float[2,1,4] m) => (float[2,4,4] y)
        { s = Sub (one, m) k = Mul (s, f) t = Add (x, k) y = Softmax (t) }"""
    one, lowest = np.float32(1), np.finfo(np.float32).min
    wrong, right = (model(text, one=one, f=np.float32(f)) for f in (-1, lowest))
    mask = np.array([[[1, 1, 1, 0]], [[1, 1, 0, 0]]], np.float32)

    sentence = said(wrong, right, "y", x=numbers(2, 4, 4), m=mask)

    assert sentence.startswith(
        "constant 'f' of Mul (@1) masks with -1; with -3.40282e+38 the region"
    )


def test_an_epsilon_comes_before_a_step_too_many():
    text = """g (float[8,16] x) => (float[8,16] y)
        { p = Pow (x, two) v = ReduceMean (p, axis) e = Add (v, eps) r = Sqrt (e) y = Div (x, r) }"""
    known = {"two": np.float32(2), "axis": np.array([-1])}
    wrong, right = (model(text, eps=np.float32(eps), **known) for eps in (0.1, 1e-6))

    sentence = said(wrong, right, "y", x=numbers(8, 16))

    assert sentence.startswith("epsilon 'eps' of Add (@2) is 0.1; with 1e-06 the region agrees")


def test_a_square_weight_that_is_transposed_is_said_to_be_so_of_a_gemm_too():
    text = "g (float[9,16] x) => (float[9,16] y) { y = Gemm (x, w, b) }"
    w, b, x = numbers(16, 16), numbers(16, seed=1), numbers(9, 16, seed=2)

    (culprit,) = found(model(text, w=w.T.copy(), b=b), model(text, w=w, b=b), x=x).culprits

    assert "or the weight is transposed; with 1" in culprit.causes[0].sentence


def test_a_dtype_is_said_by_its_name():
    text = "g (float[8,16] x) => (float[8,16] y) {{ h = Cast <to = {}> (x) f = Cast <to = 1> (h) y = Tanh (f) }}"

    sentence = said(model(text.format(16)), model(text.format(1)), "y", x=numbers(8, 16))

    assert sentence.startswith("to of Cast (@0) is bfloat16; with float the region agrees")


def test_slices_say_which_layout_they_take():
    text = """g (float[4,8] x) => (float[4,4] y)
        { a = Slice (x, a0, a1, axis, step) b = Slice (x, b0, b1, axis, step) p = Tanh (a) y = Sub (p, b) }"""
    axis = np.array([1])
    split = {"a0": [0], "a1": [4], "b0": [4], "b1": [8], "step": [1]}
    interleaved = {"a0": [0], "a1": [8], "b0": [1], "b1": [8], "step": [2]}
    of_halves, of_pairs = (
        model(text, axis=axis, **{n: np.array(v) for n, v in each.items()})
        for each in (split, interleaved)
    )

    assert said(of_halves, of_pairs, "y", x=numbers(4, 8)).startswith(
        "slices take split parts instead of interleaved ones; changed the region agrees"
    )
    assert said(of_pairs, of_halves, "y", x=numbers(4, 8)).startswith(
        "slices take interleaved parts instead of split ones; changed the region agrees"
    )


def test_a_table_that_is_off_says_that_only_what_enters_is_solved_for():
    text = "g (float[8,12,4] x) => (float[8,12,4] y) { y = Add (x, t) }"
    table = numbers(13, 4)

    result = found(model(text, t=table[1:]), model(text, t=table[:-1]), x=numbers(8, 12, 4, seed=1))

    sentence = result.culprits[0].causes[0].sentence
    assert (
        "is off by 1 along axis 0; moved by 1, with what enters there solved for, the node"
        in sentence
    )


def test_another_operator_is_said_plainly():
    text = "g (float[1,2,8,8] x) => (float y) {{ y = {}Pool <kernel_shape = [2, 2], strides = [2, 2]> (x) }}"

    sentence = said(
        model(text.format("Max")), model(text.format("Average")), "y", x=numbers(1, 2, 8, 8)
    )

    assert sentence.startswith("MaxPool (@0) should be AveragePool; with that the node agrees")


def test_an_edit_that_leaves_all_wrong_is_not_the_nearest():
    text = "g (float[64,16] x) => (float[64,16] y) {{ y = {} (x) }}"

    right = model(
        "g (float[64,16] x) => (float[64,16] y) { a = MatMul (x, w) b = Sin (a) c = MatMul (b, w) y = Sin (c) }",
        w=numbers(16, 16),
    )
    (culprit,) = found(model(text.format("Tanh")), right, x=numbers(64, 16, seed=1)).culprits

    assert culprit.unexplained == "no known mistake explains it"


@pytest.mark.parametrize("off", [1, 2])
def test_a_mask_that_lets_a_later_position_through_is_said_to_be_off(off):
    text = "g (float[2,6,6] x) => (float[2,6,6] y) { t = Add (x, m) y = Softmax (t) }"
    wrong, right = (
        model(text, m=np.triu(np.full((6, 6), -1e9, np.float32), k)) for k in (1 + off, 1)
    )

    sentence = said(wrong, right, "y", x=numbers(2, 6, 6))

    later = "1 later position" if off == 1 else "2 later positions"
    assert sentence.startswith(
        f"Softmax (@1) attends to {later}: its mask is off by {off}; with a causal mask of [6, 6]"
    )


def test_the_numbers_of_the_other_model_are_described_as_a_known_mistake(monkeypatch):
    monkeypatch.setattr(finding, "FAMILIES", (of_other_model,))
    text = "g (float[4,16] x) => (float[4,16] y) { y = MatMul (x, w) }"
    weight, feeds = numbers(16, 16), {"x": numbers(4, 16, seed=1)}

    transposed = told(text, {"w": weight.T.copy()}, {"w": weight}, **feeds)
    reversed_ = told(text, {"w": weight[::-1].copy()}, {"w": weight}, **feeds)

    assert transposed.startswith(
        "constant 'w' of MatMul (@0) is transposed; with the numbers of the references' model"
    )
    assert reversed_.startswith(
        "constant 'w' of MatMul (@0) is reversed along axis 0; with the numbers of the references' model"
    )


def test_two_constants_of_the_other_model_that_are_exchanged_are_described():
    text = "g (float[4,16] x) => (float[4,16] y) { a = MatMul (x, w) b = MatMul (x, v) y = Sub (a, b) }"
    one, two = numbers(16, 16), numbers(16, 16, seed=1)

    sentence = told(text, {"w": one, "v": two}, {"w": two, "v": one}, x=numbers(4, 16, seed=2))

    assert (
        "'w' of MatMul (@0) and 'v' are exchanged; with the numbers of the references' model"
        in sentence
    )


def test_another_normalization_that_was_folded_is_described_by_the_other_model(monkeypatch):
    monkeypatch.setattr(finding, "FAMILIES", (of_other_model,))
    text = "g (float[1,4,6,6] x) => (float[1,4,4,4] y) { y = Conv (x, w, b) }"
    kernel, bias = numbers(4, 4, 3, 3), numbers(4, seed=1)
    scale = np.linspace(0.99, 0.999, 4).astype(np.float32)[:, None, None, None]
    feeds = {"x": numbers(1, 4, 6, 6, seed=2)}

    folded = told(text, {"w": kernel * scale, "b": bias * 2}, {"w": kernel, "b": bias}, **feeds)
    turned = {"w": kernel.swapaxes(0, 1) * scale, "b": bias}
    exchanged = told(text, turned, {"w": kernel, "b": bias}, **feeds)

    assert "'w' is scaled along axis 0 by 0.99 to 0.999" in folded
    assert (
        "folded normalization (epsilon, variance or scale); with the numbers of the references' model"
        in folded
    )
    assert "has its in and out channels exchanged, behind a scale by channel; with" in exchanged


def test_the_mean_and_the_deviation_of_images_are_turned_around_together():
    text = """g (float[1,3,8,8] x) => (float[1,4,4,4] y) {
        c = Sub (x, mean) n = Div (c, std) y = Conv <strides = [2, 2]> (n, w)
    }"""
    given = {"mean": np.float32([0.5, 0.3, 0.1]), "std": np.float32([0.2, 0.3, 0.5])}
    right = {name: numbers.reshape(1, 3, 1, 1) for name, numbers in given.items()}
    wrong = {name: array[:, ::-1].copy() for name, array in right.items()}
    models = (model(text, w=numbers(4, 3, 2, 2), **each) for each in (wrong, right))

    sentence = said(*models, "x", "y", x=numbers(1, 3, 8, 8, seed=1))

    assert "each of 'mean', 'std' is reversed along the axis that they share" in sentence


def test_a_small_shift_of_a_folded_normalization_is_not_left_out():
    text = "g (float[1,4,9,9] x) => (float[1,4,7,7] y) { y = Conv (x, w, b) }"
    kernel, bias = numbers(4, 4, 3, 3), numbers(4, seed=1)
    scale = np.linspace(0.985, 0.995, 4).astype(np.float32)[:, None, None, None]
    shifted = bias + np.float32([6e-3, -4e-3, 5e-3, -6e-3])
    wrong, right = model(text, w=kernel * scale, b=shifted), model(text, w=kernel, b=bias)

    (culprit,) = found(wrong, right, x=numbers(1, 4, 9, 9, seed=2)).culprits

    assert "scaled by output, and its bias shifted" in culprit.causes[0].sentence


def test_a_kernel_of_one_group_is_not_solved_for_from_the_results_of_the_others():
    text = "g (float[1,12,5,5] x) => (float[1,12,2,2] y) { y = Conv <group = 12> (x, w) }"
    right = numbers(12, 1, 4, 4)
    wrong = right.copy()
    wrong[3] = numbers(1, 4, 4, seed=4)

    (culprit,) = found(
        model(text, w=wrong), model(text, w=right), x=numbers(1, 12, 5, 5, seed=1)
    ).culprits

    assert not culprit.causes


def test_a_value_that_is_rolled_is_said_to_be(monkeypatch):
    monkeypatch.setattr(finding, "FAMILIES", (extra_steps, exchanged_operands))
    cut = "l = Slice(x, m, e, a) f = Slice(x, z, m, a) r = Concat <axis = 1> (l, f)"
    ends = {"m": [-1], "e": [99], "z": [0], "a": [1]}
    constants = {name: np.array(numbers) for name, numbers in ends.items()}
    wrong = model(f"g (float[3,7] x) => (float[3,7] y) {{ {cut} y = Exp(r) }}", **constants)
    right = model("g (float[3,7] x) => (float[3,7] y) { y = Exp(x) }")
    x = numbers(3, 7)

    result = osl.bisect(wrong, {"y": references(right, x=x)["y"], "x": x}, feeds={"x": x})

    sentence = result.culprits[0].causes[0].sentence
    assert sentence.startswith("'r' is 'x' rolled by 1 along axis 1; not rolled the region agrees")


def test_a_factor_that_the_reference_has_is_said_as_a_size():
    factor = "f = Constant <value = float {{{}}}> ()"
    text = f"g (float[4,12] x) => (float[4,12] y) {{{{ {factor} y = Mul(x, f) }}}}"
    wrong, right = model(text.format(1)), model(text.format(12**-0.5))

    result = found(wrong, right, x=numbers(4, 12))

    said = "constant 'f' of Constant (@0), a factor of Mul (@1), is 1; with 1/sqrt(12), as the"
    assert result.culprits[0].causes[0].sentence.startswith(said)


def test_the_mistake_of_one_culprit_is_tried_first_at_the_next(monkeypatch):
    searched = []

    def others(place):
        searched.append(place.value)
        yield from ()

    monkeypatch.setattr(finding, "FAMILIES", (others, attributes))
    norms = [f"{y} = LayerNormalization <epsilon = {{0}}> ({x}, w)" for x, y in ("xh", "hy")]
    text = f"g (float[4,16] x) => (float[4,16] y) {{{{ {' '.join(norms)} }}}}"
    scale = numbers(16, seed=1)
    wrong, right = (model(text.format(epsilon), w=scale) for epsilon in (1e-2, 1e-5))

    result = found(wrong, right, x=numbers(4, 16))

    assert [len(culprit.causes) > 0 for culprit in result.culprits] == [True, True]
    assert searched == ["h"]


def test_a_padding_in_front_of_a_mean_of_all_positions():
    pool = "p = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = {}> (x)"
    text = f"g (float[2,64,9,9] x) => (float[2,64,1,1] y) {{{{ {pool} y = GlobalAveragePool(p) }}}}"
    wrong, right = (model(text.format(pads)) for pads in ("[0, 0, 0, 0]", "[1, 1, 0, 0]"))

    sentence = said(wrong, right, "y", x=numbers(2, 64, 9, 9))

    assert "pads of MaxPool (@0) is [0, 0, 0, 0]; with [1, 1, 0, 0]" in sentence


def test_what_reads_a_constant_tells_what_it_is():
    pads = (
        "p = Constant <value = int64[4] {{{0}}}> () c = Cast <to = 7> (p) h = Pad(x, c) y = Tanh(h)"
    )
    text = f"g (float[4,12] x) => (float[5,13] y) {{{{ {pads} }}}}"
    wrong, right = (model(text.format(numbers)) for numbers in ("1, 1, 0, 0", "0, 0, 1, 1"))

    result = found(wrong, right, x=numbers(4, 12))

    said = "the pads of Pad (@2), is [1, 1, 0, 0]; with [0, 0, 1, 1], as the reference has it,"
    assert said in result.culprits[0].causes[0].sentence


def test_a_table_of_angles_that_a_model_holds_is_told_by_its_base():
    text = "g (float[12,8] x) => (float[12,8] y) {{ t = Constant <value = float[8] {{{0}}}> () y = Mul(x, t) }}"
    wrong, right = (
        model(text.format(", ".join(f"{base ** (-k / 8):.8g}" for k in range(8))))
        for base in (500000, 10000)
    )

    result = found(wrong, right, x=numbers(12, 8))

    said = "the base (theta) of the rotary frequencies in 't' is 500000; with 10000"
    assert result.culprits[0].causes[0].sentence.startswith(said)


def test_edits_that_differ_only_in_the_middle_of_large_arrays_stay_apart():
    ones, other = np.ones(5000, np.float32), np.ones(5000, np.float32)
    other[2500] = 2

    steps = merged(
        [
            SetConstant("w", ones, ("n1",)),
            SetConstant("w", other, ("n2",)),
            SetConstant("w", ones.copy(), ("n3",)),
        ]
    )

    assert [step.to for step in steps] == [("n1", "n3"), ("n2",)]
    assert steps[1].numbers[2500] == 2
    assert key(["mistake", ones]) != key(["mistake", other])


# of more nodes than are taken over from another model, so that only the one sample tells what is wrong
MANY = " ".join(f"t{n + 1} = Identity (t{n})" for n in range(600))
LONG = f"net (float[8] x) => (float[8] y) {{ t0 = Tanh (x) {MANY} s = Gather (x, first) y = Mul (t600, s) }}"
FIXED = "net (float[8] x) => (float[8] y) { h = Tanh (x) y = Mul (h, s) }"


def test_a_repair_is_proved_on_fresh_inputs_by_another_model(tmp_path):
    wrong = model(FIXED, s=np.float32([2]))
    by_input, by_number = model(LONG, first=np.int64([0])), model(FIXED, s=np.float32([5]))
    feeds = {"x": numbers(8)}

    def repaired(right: onnx.ModelProto) -> tuple[str, str]:
        how = {"against": right, "repair": tmp_path / "fixed.onnx", "force": True}
        made = osl.bisect(wrong, feeds=feeds, **how).repair
        return made.verdict, made.fresh

    assert repaired(by_number) == ("agrees", "agrees on fresh inputs")
    assert repaired(by_input) == ("mismatch", "mismatch on fresh inputs: this is no cause")


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"x": numbers(8), "c": np.float32(3)}, "agrees on fresh inputs"),
        ({"x": np.ones(8, np.float32), "c": np.float32(3)}, "agrees on fresh inputs"),
    ],
    ids=["one of no shape", "the same again and again"],
)
def test_a_repair_is_proved_on_fresh_inputs_where_there_are_some(inputs, said, tmp_path):
    text = (
        "net (float[8] x, float c) => (float[8] y) { h = Tanh (x) s = Mul (h, w) y = Add (s, c) }"
    )
    wrong, right = model(text, w=np.float32([2])), model(text, w=np.float32([5]))

    made = osl.bisect(wrong, against=right, feeds=inputs, repair=tmp_path / "fixed.onnx").repair

    assert made.verdict == "agrees"
    assert made.fresh.startswith(said)


def test_what_a_norm_of_the_whole_input_does_is_no_factor_on_fresh_inputs(tmp_path):
    """In another order the numbers have the same norm."""
    head = "net (float[1,8] x) => (float[1,4] y) {{ {} y = MatMul (n, w) }}"
    norm = (
        f"t0 = Mul (x, x) {MANY} m = ReduceMean <keepdims = 1> (t600) r = Sqrt (m) n = Div (x, r)"
    )
    wrong = model(head.format("n = Mul (x, half)"), w=numbers(8, 4), half=np.float32(0.5))
    right = model(head.format(norm), w=numbers(8, 4))

    result = osl.bisect(
        wrong, against=right, feeds={"x": numbers(1, 8, seed=1)}, repair=tmp_path / "fixed.onnx"
    )

    assert result.repair.verdict == "mismatch"
    assert result.repair.fresh == "mismatch on fresh inputs: this is no cause"
    assert not result.culprits[0].causes
    assert result.culprits[0].unexplained.endswith("but not on fresh inputs")


def test_numbers_solved_for_from_one_example_prove_nothing(tmp_path):
    def made(*shape: int) -> osl.BisectResult:
        text = FIXED.replace("8", ",".join(map(str, shape)))
        wrong, right = (model(text, s=np.float32([s])) for s in (2, 0.7331))
        known = references(right, x=numbers(*shape))
        return osl.bisect(wrong, known, repair=tmp_path / "fixed.onnx", force=True)

    one, several = made(1, 8), made(4, 8)

    assert one.repair.verdict == "inconclusive"
    assert one.repair.fresh.endswith("record several")
    assert "a number that depends on the input fits, too" in one.culprits[0].causes[0].sentence
    assert several.repair.verdict == "agrees"
    assert "depends on the input" not in several.culprits[0].causes[0].sentence


def test_a_step_that_is_missing_comes_before_a_number_that_was_solved_for():
    text = (
        "net (float[1,8] x, float[1] s) => (float[1,4] y) {{"
        " q = Mul (s, s) v = Add (q, c) {} h = Div (x, {}) y = MatMul (h, w) }}"
    )
    weights = {"w": numbers(8, 4), "c": np.float32([0.25])}
    wrong = model(text.format("", "v"), **weights)
    right = model(text.format("r = Sqrt (v)", "r"), **weights)
    feeds = {"x": numbers(1, 8, seed=1), "s": np.float32([1.9])}

    culprit = osl.bisect(wrong, {**feeds, "y": osl.run(right, feeds)["y"]}, feeds=feeds).culprits[0]

    assert culprit.causes[0].sentence.startswith("Sqrt is missing")


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_a_convolution_that_should_repeat_the_border_is_named(mode):
    head = "net (float[2,3,8,8] x) => (float[2,4,8,8] y) {{ {} }}"
    wrong = head.format("y = Conv <pads = [1, 1, 1, 1]> (x, w)")
    right = head.format(f'p = Pad <mode = "{mode}"> (x, pads) y = Conv (p, w)')
    w, pads = numbers(4, 3, 3, 3), np.int64([0, 0, 1, 1, 0, 0, 1, 1])

    sentence = said(
        model(wrong, w=w), model(right, w=w, pads=pads), "x", "y", x=numbers(2, 3, 8, 8, seed=1)
    )

    assert sentence.startswith(f"Conv (@0) pads with zeros; with a Pad of mode {mode} before it")


@pytest.mark.parametrize(
    ("node", "title"),
    [
        ("LpNormalization <axis = -1, p = 2>", "an L2 normalization along axis 1"),
        ("MeanVarianceNormalization <axes = [1]>", "mean 0 and variance 1 along axis 1"),
    ],
)
def test_a_normalization_without_weights_that_is_missing_is_named(node, title):
    head = "net (float[4,8] x) => (float[4,5] y) {{ h = Tanh (x) {} y = MatMul ({}, w) }}"
    wrong = model(head.format("", "h"), w=numbers(8, 5))
    right = model(head.format(f"n = {node} (h)", "n"), w=numbers(8, 5))

    sentence = said(wrong, right, "x", "y", x=numbers(4, 8, seed=1))

    assert sentence.startswith(f"{title} is missing between 'h' and MatMul")


@pytest.mark.parametrize(("wrong", "right"), [([1, 1], [2, 0]), ([0, 2], [2, 0]), ([4, 0], [2, 2])])
def test_pads_at_the_wrong_ends_that_an_exporter_computes_are_named(wrong, right):
    length = 6 + sum(right)
    text = (
        f"net (float[2,3,8] x) => (float[2,4,{length}] y)"
        " { pads = Cast <to = 7> (c) p = Pad (x, pads) y = Conv (p, w) }"
    )

    def net(first: int, last: int) -> onnx.ModelProto:
        return model(text, c=np.int32([0, 0, first, 0, 0, last]), w=numbers(4, 3, 3))

    sentence = said(net(*wrong), net(*right), "x", "y", x=numbers(2, 3, 8, seed=1))

    was, instead = ([0, 0, first, 0, 0, last] for first, last in (wrong, right))
    kinds = f"pads of Pad (@1) are {was}; with ", f"what Pad (@1) reads as pads is {was}; with "
    assert sentence.startswith(kinds)
    assert str(instead) in sentence


FACTORY = """import torch

class Scaled(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x) * {by}

def make():
    return Scaled(), (torch.ones(8),)
"""


def test_a_repair_is_proved_on_fresh_inputs_by_the_module(tmp_path):
    wrong = model(FIXED, s=np.float32([2]))
    x = numbers(8)
    known = {"x": x, "y": np.tanh(x) * x[0]}

    def repaired(by: str) -> tuple[str, str]:
        (tmp_path / "net.py").write_text(FACTORY.format(by=by))
        how = {"factory": f"{tmp_path / 'net.py'}:make", "repair": tmp_path / "fixed.onnx"}
        made = osl.bisect(wrong, known, **how, force=True).repair
        return made.verdict, made.fresh

    assert repaired(f"{x[0]}") == ("agrees", "agrees on fresh inputs")
    assert repaired("x[0]") == ("mismatch", "mismatch on fresh inputs: this is no cause")


def test_a_repair_without_fresh_references_says_so(tmp_path):
    x = numbers(8)
    known = {"x": x, "y": np.tanh(x) * 5}

    made = osl.bisect(model(FIXED, s=np.float32([2])), known, repair=tmp_path / "fixed.onnx").repair

    assert made.verdict == "agrees"
    assert made.fresh.startswith("proved on the recorded samples alone")


def test_a_search_of_causes_ends_in_its_time_and_says_how_far_it_came():
    text = "g (float[4,8] x) => (float[4,8] y) { h = MatMul (x, w) y = Softmax <axis = 0> (h) }"
    wrong, right = model(text, w=numbers(8, 8)), model(text.replace("0", "1"), w=numbers(8, 8))
    known, feeds = references(right, x=numbers(4, 8, seed=2)), {"x": numbers(4, 8, seed=2)}

    late = osl.bisect(wrong, known, feeds=feeds, seconds=0).culprits[0]
    found = osl.bisect(wrong, known, feeds=feeds, seconds=120).culprits[0]

    assert not late.causes
    assert late.unexplained.startswith("not known: the time ran out with")
    assert late.unexplained.endswith("--seconds 1 tries more")
    assert "axis of Softmax" in found.causes[0].sentence


def test_a_search_of_causes_that_is_resumed_tries_nothing_twice(tmp_path, monkeypatch):
    layers = (f"m{i} = MatMul (h{i}, w{i}) h{i + 1} = Tanh (m{i})" for i in range(4))
    text = f"g (float[3,16] h0) => (float[3,16] h4) {{ {' '.join(layers)} }}"
    weights = {f"w{i}": numbers(16, 16, seed=i) / 4 for i in range(4)}
    right = model(text, **weights)
    wrong = model(text, **weights | {"w2": numbers(16, 16, seed=9) / 4})
    x, journal, tried = numbers(3, 16, seed=5), tmp_path / "journal", []

    def counting(bench, edited):
        if np.isfinite(bench.until):  # else it searches for culprits
            tried.extend(edited)
        yield from run(bench, edited)

    def search(**how) -> tuple[str, int]:
        tried.clear()
        known = {"h4": references(right, h0=x)["h4"]}
        result = osl.bisect(wrong, known, feeds={"h0": x}, journal=journal, force=True, **how)
        return result.culprits[0].unexplained, len(tried)

    run = Bench._run
    monkeypatch.setattr(Bench, "_run", counting)
    late, none = search(seconds=0)
    whole, every = search(seconds=300)
    again, few = search(seconds=300, resume=True)

    assert late.endswith("; --resume goes on")
    assert not none
    assert whole.startswith("no known mistake explains it")
    assert again == whole
    assert few < every / 3, (few, every)


POOLS = {
    "AveragePool": """c = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w)
        p = AveragePool<kernel_shape=[2,2], strides=[2,2]>(c) r = Tanh(p)
        t = ConvTranspose<kernel_shape=[3,3], strides=[2,2]>(%s, v) y = Concat<axis=1>(t, x)""",
    "MaxPool": """p = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(x) r = Tanh(p)
        c = Conv<kernel_shape=[1,1]>(%s, w1) n = ReduceMean<keepdims=0>(c, axes) y = Gemm(n, m)""",
}


@pytest.mark.parametrize("pool", POOLS)
def test_edits_that_cannot_run_do_not_end_the_sessions_of_those_beside_them(monkeypatch, pool):
    text = f"two (float[1,4,9,9] x) => (float y) {{ {POOLS[pool]} }}"
    weights = {"w": numbers(4, 4, 3, 3), "v": numbers(4, 4, 3, 3), "w1": numbers(4, 4, 1, 1)}
    weights |= {"axes": np.int64([2, 3]), "m": numbers(4, 5)}
    right, wrong = model(text % "r", **weights), model(text % "p", **weights)
    x, refused = numbers(1, 4, 9, 9), []

    def counting(what):
        def counted(self, *given, **more):
            try:
                return what(self, *given, **more)
            except RuntimeFailure as error:
                refused.append(error.message)
                raise

        return counted

    for step in ("open", "run"):
        monkeypatch.setattr(Runtime, step, counting(getattr(Runtime, step)))
    cause = said(wrong, right, "y", x=x)

    assert "Tanh is missing" in cause
    assert len(refused) < 10, Counter(refused).most_common(5)


SCALES = """g (float[4,8] x) => (float[4,8] y) {
    a = Mul(x, s) b = Relu(a) c = Mul(b, u) d = MatMul(c, w) y = Add(d, t)
}"""


def scales(**given: float) -> onnx.ModelProto:
    numbers_of = {name: np.float32(value) for name, value in given.items()}
    return model(SCALES, **numbers_of, w=numbers(8, 8, seed=3), t=numbers(8, seed=1))


def test_a_factor_that_makes_up_for_another_node_s_names_both():
    x = {"x": numbers(4, 8)}
    right, wrong = scales(s=2, u=0.5), scales(s=4, u=0.3)
    known = {"y": osl.run(right, feeds=x)["y"]}

    one, other = osl.bisect(wrong, known, feeds=x).culprits[0].causes

    assert "constant 'u' of Mul (@2) is 0.3" in one.sentence
    assert "constant 's' of Mul (@0) is scaled by 1.2" in other.sentence
    assert other.apart == "fits as well, and computes the same from other inputs that were tried"


def test_a_solved_weight_behind_another_wrong_constant_is_no_certain_cause():
    text = """g (float[64,8] x) => (float[64,16] y) {
        n = LayerNormalization(x, g, b) h = MatMul(n, w) y = Add(h, p)
    }"""
    weights = {"b": numbers(8, seed=2), "w": numbers(8, 16, seed=3), "p": numbers(16, seed=4)}
    gamma = 1 + numbers(8, seed=1) / 5
    wrong = {**weights, "w": np.float32(0.8) * weights["w"]}
    x = numbers(64, 8, seed=7)

    sentence = said(
        model(text, g=np.float32(1.1) * gamma, **wrong), model(text, g=gamma, **weights), "y", x=x
    )

    assert "it may make up for another constant here" in sentence


def test_what_another_node_takes_back_is_no_cause_of_either():
    x = {"x": numbers(4, 8)}
    right, wrong = scales(s=2, u=0.5), scales(s=4, u=0.25)
    known = osl.run(right, feeds=x, fetch=["a", "y"])

    result = osl.bisect(wrong, known, feeds=x)

    assert [culprit.causes for culprit in result.culprits] == [[], []]
    assert "'y' is right without 'a'" in result.culprits[0].unexplained
    assert osl.bisect(wrong, {"y": known["y"]}, feeds=x).verdict == "agrees"


@pytest.mark.parametrize("mean", [0.45, -0.45])
def test_a_number_that_was_left_out_is_solved_for(mean):
    text = """g (float[1,3,6,6] x) => (float[1,4,6,6] y) {
        c = Sub(x, m) d = Div(c, s) y = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(d, w)
    }"""
    weights = {"s": np.float32(0.23), "w": numbers(4, 3, 3, 3)}
    right, wrong = (model(text, m=np.float32(m), **weights) for m in (mean, 0))

    sentence = said(wrong, right, "y", x=numbers(1, 3, 6, 6, seed=4))

    assert f"constant 'm' of Sub (@0) is 0; with {mean} " in sentence


def test_groups_of_one_image_are_no_missing_normalization_of_channels():
    text = (
        "g (float[1,8,6,6] x) => (float[1,8,6,6] y) <int64[3] split = {{0, {0}, -1}}, int64[4] whole = {{1, 8, 6, 6}}>"
        " {{ c = Neg(x) r = Reshape(c, split) n = InstanceNormalization(r, one, zero)"
        " b = Reshape(n, whole) m = Mul(b, s) y = Add(m, t) }}"
    )
    weights = {"s": numbers(8, 1, 1), "t": numbers(8, 1, 1, seed=1)}

    def made(groups: int):
        ones = np.ones(groups, np.float32)
        return model(text.format(groups), one=ones, zero=0 * ones, **weights)

    wrong, right = made(2), made(4)
    x = numbers(1, 8, 6, 6, seed=2)
    known = {name: value for name, value in references(right, x=x).items() if name in "cy"}

    result = osl.bisect(wrong, known, feeds={"x": x})

    assert "normalizes 8 channels in 2 groups; in 4" in result.culprits[0].causes[0].sentence


def test_channels_of_one_sound_are_one_example():
    nodes = "a = Relu(x) {} y = Mul(n, two)"
    text = f"g (float[1,4,30] x) => (float[1,4,30] y) {{{{ {nodes} }}}}"
    norm = "n = InstanceNormalization(a, one, zero)"
    ones = np.ones(4, np.float32)
    wrong = model(text.format("n = Identity(a)"), two=np.float32(2))
    right = model(text.format(norm), two=np.float32(2), one=ones, zero=0 * ones)
    x = numbers(1, 4, 30)
    known = {"y": references(right, x=x)["y"]}

    result = osl.bisect(wrong, known, feeds={"x": x})

    for cause in result.culprits[0].causes:
        assert cause.of_one_example, cause.sentence
