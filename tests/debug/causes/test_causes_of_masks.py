"""Causes in attention masks: told as what is done with which mask, and right for all that reads it."""

import numpy as np
import pytest

import onnxsurgeon_lite as osl
from kit.causes import model, numbers, references, said
from onnxsurgeon_lite.debug.causes import finding
from onnxsurgeon_lite.debug.causes.masks import inverted_flags
from onnxsurgeon_lite.debug.causes.operations import other_operations

ONE, LOWEST = np.float32(1), np.finfo(np.float32).min
ATTENTION = "g (float[2,3,5,5] x, float[2,1,1,5] m) => (float[2,3,5,5] y) {{ {} y = Softmax(t) }}"
ADDED = ATTENTION.format("h = Sub (one, m) k = Mul (h, low) t = Add (x, k)")
PADDED = np.array([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]], np.float32).reshape(2, 1, 1, 5)
FEEDS = {"x": numbers(2, 3, 5, 5), "m": PADDED}
CAUSAL = """g (float[2,9,9] x, float[2,1,9] m) => (float[2,9,9] y)
    { k = Mul (c, m) f = Cast <to = 9> (k) y = Where (f, x, low) }"""
KEYS = np.ones((2, 1, 9), np.float32)
KEYS[1, 0, 6:] = 0


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (
            "t = Add (x, m)",
            "the mask 'm' is added to the scores as it is by Add (@0); with -3.40282e+38 where it is 0",
        ),
        (
            "h = Sub (one, m) t = Add (x, h)",
            "the mask 'h' is added to the scores as it is by Add (@1); with -3.40282e+38 where it is 1",
        ),
        (
            "t = Mul (x, m)",
            "the mask 'm' is multiplied with the scores by Mul (@0); with -3.40282e+38 where it is 0",
        ),
        (
            "t = Identity (x)",
            "Softmax (@1) attends to what the mask 'm' hides; with -3.40282e+38 where it is 0",
        ),
    ],
)
def test_it_is_said_what_is_done_with_a_mask(wrong, sentence):
    weights = {"one": ONE, "low": LOWEST}
    wrong, right = model(ATTENTION.format(wrong), **weights), model(ADDED, **weights)

    assert said(wrong, right, "y", **FEEDS).startswith(sentence)


def test_a_mask_with_fewer_axes_is_found_among_the_inputs():
    text = "g (float[2,3,5,5] x, int64[2,5] m) => (float[2,3,5,5] y) {{ {} y = Softmax (x{}) }}"
    masked = "u = Unsqueeze (m, a) f = Cast <to = 9> (u) t = Where (f, x, low)"
    weights = {"a": np.array([1, 2]), "low": LOWEST}
    right = model(text.format(masked, "").replace("Softmax (x)", "Softmax (t)"), **weights)
    wrong = model(text.format("", ""), **weights)

    sentence = said(wrong, right, "y", x=FEEDS["x"], m=PADDED.reshape(2, 5).astype(np.int64))

    assert sentence.startswith("Softmax (@0) attends to what the mask 'm' hides; with -3.40282e+38")


def test_a_mask_is_inverted_where_nothing_right_reads_it(monkeypatch):
    monkeypatch.setattr(finding, "FAMILIES", (inverted_flags,))
    text = """g (float[2,3,5,5] x, float[2,3,5,5] z, float[2,1,1,5] m) => (float[2,3,5,5] y, float[2,3,5,5] v) {{
        e = Equal (m, zero) t = Where (e, low, z) v = Softmax (t) f = {} (e) s = Where (f, low, x) y = Softmax (s) }}"""
    weights = {"zero": np.float32(0), "low": LOWEST}
    wrong, right = (model(text.format(op), **weights) for op in ("Not", "Identity"))

    sentence = said(wrong, right, "y", "v", z=numbers(2, 3, 5, 5, seed=1), **FEEDS)

    assert sentence.startswith("the mask 'e' is inverted; with 0 for 1 and 1 for 0 the region")


@pytest.mark.parametrize("heads", [4, 6])
def test_slopes_by_head_that_are_missing_are_named(heads):
    text = (
        f"g (float[2,{heads},5,5] x) => (float[2,{heads},5,5] y) {{{{ t = {{}} y = Softmax (t) }}}}"
    )
    slopes = [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8][:heads]
    away = np.arange(5) - np.arange(5)[:, None]
    bias = np.array(slopes, np.float32)[:, None, None] * away.astype(np.float32)
    wrong, right = (model(text.format(t), b=bias) for t in ("Identity (x)", "Add (x, b)"))

    sentence = said(wrong, right, "y", x=numbers(2, heads, 5, 5))

    how = f"; with those of {heads} heads for positions before"
    assert sentence.startswith(f"Softmax (@1) has no slopes by head in its scores (ALiBi){how}")


def test_axes_of_what_is_no_kernel_are_not_called_height_and_width():
    text = "g (float[2,3,5,5] x) => (float[2,3,5,5] y) { t = Add (x, b) y = Softmax (t) }"
    bias = numbers(1, 3, 5, 5)
    wrong, right = model(text, b=bias.swapaxes(2, 3).copy()), model(text, b=bias)

    sentence = said(wrong, right, "y", x=numbers(2, 3, 5, 5, seed=1))

    assert sentence.startswith(
        "constant 'b' of Add (@0) has its last two axes exchanged; changed back"
    )


def test_an_operator_that_makes_infinity_of_a_mask_is_no_cause(monkeypatch):
    monkeypatch.setattr(finding, "FAMILIES", (other_operations,))
    weights = {"one": ONE, "low": LOWEST}
    wrong, right = model(ATTENTION.format("t = Add (x, m)"), **weights), model(ADDED, **weights)
    known = {"y": osl.run(right, feeds=FEEDS)["y"]}

    (culprit,) = osl.bisect(wrong, known, feeds=FEEDS).culprits

    assert not any("Log" in cause.sentence for cause in culprit.causes)


@pytest.mark.parametrize(
    ("wrong", "right", "how"),
    [
        (np.triu(np.ones((9, 9))), np.tri(9), "is another mask; with the lower triangle"),
        (np.ones((9, 9)), np.tri(9), "is another mask; with the lower triangle"),
        (np.tri(9, k=1), np.tri(9), "is a mask that keeps -8 .. 1 positions ahead; with -8 .. 0"),
        (
            np.tri(9),
            np.tri(9) - np.tri(9, k=-4),
            "is a mask that keeps -8 .. 0 positions ahead; with -3 .. 0",
        ),
    ],
)
def test_a_constant_mask_of_ones_and_zeros_is_told_as_a_mask(wrong, right, how):
    wrong, right = (model(CAUSAL, c=c.astype(np.float32)[None], low=LOWEST) for c in (wrong, right))

    sentence = said(wrong, right, "y", x=numbers(2, 9, 9), m=KEYS)

    assert sentence.startswith(f"constant 'c' of Mul (@0) {how}")


def test_a_mask_that_is_one_too_many_is_left_out():
    wrong = model(CAUSAL, c=np.tri(9, dtype=np.float32)[None], low=LOWEST)
    right = model(CAUSAL.replace("Mul (c, m)", "Identity (m)"), low=LOWEST)

    sentence = said(wrong, right, "y", x=numbers(2, 9, 9), m=KEYS)

    assert sentence.startswith("the mask 'c' of Mul (@0) is one too many; without it")


def test_a_number_that_masks_with_the_wrong_sign_is_told():
    wrong, right = (
        model(ATTENTION.format("k = Cast <to = 9> (m) t = Where (k, x, low)"), low=np.float32(low))
        for low in (1e9, -1e9)
    )

    sentence = said(wrong, right, "y", **FEEDS)

    assert sentence.startswith("constant 'low' of Where (@1) masks with 1e+09; with -")


def test_a_cause_does_not_read_what_is_wrong_behind_it():
    text = """g (float[2,1,9] m) => (float[2,9,9] a, float[2,9,9] b) {
        a = Mul (c, m) b = Mul (d, m) }"""
    wrong, right = (
        {"c": np.tri(9, k=k, dtype=np.float32)[None], "d": np.tri(9, k=k, dtype=np.float32)[None]}
        for k in (1, 0)
    )
    wrong, right = model(text, **wrong), model(text, **right)
    known = osl.run(right, feeds={"m": KEYS})

    causes = [c.causes[0].sentence for c in osl.bisect(wrong, known, feeds={"m": KEYS}).culprits]

    assert causes
    assert all("is a mask that keeps -8 .. 1 positions ahead; with -8 .. 0" in c for c in causes)


@pytest.mark.parametrize("keeps", [0, 1])
def test_a_mean_of_all_positions_is_one_of_those_that_the_mask_shows(keeps):
    head = f"g (float[3,5,8] x, int64[3,5] mask) => (float[3,{'1,' * keeps}8] y) {{{{ {{}} }}}}"
    shown = "c = Cast<to = 1>(mask) u = Unsqueeze(c, two) h = Mul(x, u) e = Tanh(h)"
    mean = f"ReduceMean<keepdims = {keeps}>(e, one)"
    summed = f"ReduceSum<keepdims = {keeps}>"
    masked = f"t = Mul(e, u) s = {summed}(t, one) n = {summed}(u, one) m = Div(s, n)"
    weights = {"one": np.array([1]), "two": np.array([2]), "w": numbers(8, 8)}
    wrong = model(head.format(f"{shown} m = {mean} y = MatMul(m, w)"), **weights)
    right = model(head.format(f"{shown} {masked} y = MatMul(m, w)"), **weights)
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 0, 0, 0]])
    feeds = {"x": numbers(3, 5, 8, seed=1), "mask": mask}
    known = {name: value for name, value in references(right, **feeds).items() if name in "ey"}

    result = osl.bisect(wrong, known, feeds=feeds)

    said = result.culprits[0].causes[0].sentence
    assert "is the mean of all positions of axis 1; with the mean of those that " in said
    fixed = osl.repair(wrong, result).model
    fresh = {"x": numbers(3, 5, 8, seed=2), "mask": mask[::-1].copy()}
    made = [osl.run(each, feeds=fresh)["y"] for each in (fixed, right)]
    np.testing.assert_allclose(*made, rtol=1e-4, atol=1e-5)


POSITIONS = "g (int64[2,6] ids, int64[2,6] mask) => (float[2,6,8] y) {{ {} {} }}"
LOOKED_UP = "p = Gather(w, i) t = Gather(v, ids) s = Add(t, p) y = Tanh(s)"
ALL = "z = Mul(mask, nought) i = Add(z, all)"
SHOWN = "c = CumSum(mask, last) d = Sub(c, one) f = Cast<to = 9>(mask) i = Where(f, d, {})"


@pytest.mark.parametrize("keep", ["p", "y"])
@pytest.mark.parametrize("hidden", ["nought", "one"])
def test_positions_of_all_tokens_are_those_of_the_tokens_that_the_mask_shows(keep, hidden):
    constants = {"one": np.array(1), "nought": np.array(0), "last": np.array(-1)}
    weights = {"w": numbers(12, 8), "v": numbers(20, 8, seed=1), "all": np.arange(6)}
    wrong = model(POSITIONS.format(ALL, LOOKED_UP), **weights, nought=constants["nought"])
    right = model(POSITIONS.format(SHOWN.format(hidden), LOOKED_UP), **weights, **constants)
    ids = np.arange(12).reshape(2, 6)
    feeds = {"ids": ids, "mask": np.array([[0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1]])}

    result = osl.bisect(wrong, {keep: references(right, **feeds)[keep]}, feeds=feeds)

    said = result.culprits[0].causes[0].sentence
    assert "counts all positions; counting those that 'mask' shows" in said
    fixed = osl.repair(wrong, result).model
    fresh = {"ids": ids + 3, "mask": np.array([[0, 0, 0, 1, 1, 1], [1, 1, 1, 1, 1, 1]])}
    made = [osl.run(each, feeds=fresh)["y"] for each in (fixed, right)]
    np.testing.assert_allclose(*made, rtol=1e-4, atol=1e-5)


def test_rows_that_differ_between_examples_are_no_constants():
    weights = {"w": numbers(12, 8), "v": numbers(20, 8, seed=1)}
    every = np.tile(np.arange(6), (2, 1))
    wrong = model(POSITIONS.format("i = Identity(all)", LOOKED_UP), **weights, all=every)
    right = model(
        POSITIONS.format("d = Mul(ids, ids) i = Mod(d, seven)", LOOKED_UP),
        **weights,
        seven=np.array(7),
    )
    feeds = {"ids": np.arange(12).reshape(2, 6), "mask": np.ones((2, 6), np.int64)}

    result = osl.bisect(wrong, {"p": references(right, **feeds)["p"]}, feeds=feeds)

    assert result.verdict == "mismatch"
    assert not any(culprit.causes for culprit in result.culprits)
