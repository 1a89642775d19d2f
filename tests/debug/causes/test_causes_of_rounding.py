"""Weights that were rounded or lost: solved for where the references determine them, said where they do not."""

import numpy as np
import pytest

import onnxsurgeon_lite as osl
from kit.causes import model, numbers, references
from onnxsurgeon_lite.debug.causes import finding
from onnxsurgeon_lite.debug.causes.solving import solved_weights

PRODUCT = "g (float[{rows},24] x) => (float[{rows},8] y) { y = MatMul(x, w) }"


@pytest.fixture(autouse=True)
def _solved_alone(monkeypatch):
    monkeypatch.setattr(finding, "FAMILIES", ())
    monkeypatch.setattr(finding, "SOLVED", (solved_weights,))


def rounded(weight: np.ndarray) -> np.ndarray:
    step = np.abs(weight).max() / 127
    return (np.round(weight / step) * step).astype(np.float32)


def searched(rows: int, wrong: np.ndarray, right: np.ndarray) -> osl.BisectResult:
    text = PRODUCT.replace("{rows}", str(rows))
    x = numbers(rows, 24, seed=1)
    known = references(model(text, w=right), x=x)
    return osl.bisect(model(text, w=wrong), known, feeds={"x": x})


def test_what_was_rounded_is_solved_for_from_as_many_equations_as_unknowns():
    right = numbers(24, 8)

    result = searched(24, rounded(right), right)

    culprit = result.culprits[0]
    assert "'w' of MatMul (@0) looks rounded to int8" in culprit.causes[0].sentence
    fixed = osl.repair(model(PRODUCT.replace("{rows}", "24"), w=rounded(right)), result).model
    x = numbers(24, 24, seed=5)  # unseen
    made = references(fixed.proto, x=x)["y"]
    np.testing.assert_allclose(made, x @ right, atol=2e-4)


def test_another_change_of_a_rounded_weight_is_no_rounding():
    right = numbers(24, 8)
    wrong = rounded(right)

    result = searched(24, wrong, wrong * np.float32(1.003))

    assert not result.culprits[0].causes


@pytest.mark.parametrize("lost", ["looks rounded to int8 (step 0.0", "is zero at [3] of axis 1"])
def test_what_was_lost_is_said_where_the_references_do_not_determine_it(lost):
    right = numbers(24, 8)
    zero = right.copy()
    zero[:, 3] = 0

    result = searched(16, zero if "zero" in lost else rounded(right), right)

    culprit = result.culprits[0]
    assert not culprit.causes
    assert f"constant 'w' of MatMul (@0) {lost}" in culprit.unexplained
    assert "the right numbers are needed" in culprit.unexplained
