"""Steps for what is not linear: many small problems at once, with few slopes where these are expensive."""

import numpy as np
import pytest

from onnxsurgeon_lite.debug.causes.linear import Descent, equations

TIMES = np.linspace(0, 1, 20)
RIGHT = np.array([[2.0, -1.0], [0.5, 3.0], [1.0, 0.0]])  # a * exp(b * t), one problem each


def made(numbers: np.ndarray) -> np.ndarray:
    return numbers[:, :1] * np.exp(numbers[:, 1:] * TIMES)


def slopes(numbers: np.ndarray) -> np.ndarray:
    by_factor = np.exp(numbers[:, 1:] * TIMES)
    return np.stack([by_factor, numbers[:, :1] * TIMES * by_factor], axis=-1)


def left(numbers: np.ndarray) -> np.ndarray:
    return made(RIGHT) - made(numbers)


@pytest.mark.parametrize("much", [0.0, 0.5])
def test_each_problem_is_solved(much):
    asked = []

    found = Descent(100, 1e-9, patience=12, enough=1e-10, much=much)(
        np.ones((3, 2)), left, lambda numbers: asked.append(numbers) or slopes(numbers)
    )

    np.testing.assert_allclose(found, RIGHT, atol=1e-6)
    assert len(asked) < 20


def test_slopes_serve_while_steps_make_errors_much_smaller():
    asked = {}

    for much in (0.0, 0.5):
        asked[much] = 0

        def counted(numbers, much=much):
            asked[much] += 1
            return np.broadcast_to(np.eye(3), (1, 3, 3))  # a linear problem

        Descent(100, 1e-9, enough=1e-8, much=much)(
            np.zeros((1, 3)), lambda numbers: np.array([[1.0, 2.0, 3.0]]) - numbers, counted
        )

    assert asked[0.5] == 1 < asked[0.0]


def test_what_cannot_be_solved_ends():
    found = Descent(100, 1e-9)(
        np.zeros((1, 2)), lambda _: np.ones((1, 5)), lambda _: np.ones((1, 5, 2))
    )

    assert not found.any()


def test_numbers_that_do_not_matter_are_not_determined():
    of_both, of_one = np.eye(4)[:, :2], np.eye(4)[:, [0, 0]]

    assert equations(of_both, np.arange(4.0)) == (2, True)
    assert equations(of_one, np.arange(4.0)) == (1, False)
