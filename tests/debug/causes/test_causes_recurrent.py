"""Numbers of an LSTM, a GRU or an RNN that are wrong, and are solved for from the states that the references have."""

import numpy as np
import pytest

import onnxsurgeon_lite as osl
from kit.causes import model, numbers, references
from onnxsurgeon_lite.debug.causes import finding
from onnxsurgeon_lite.debug.causes.cells import Cells, Direction
from onnxsurgeon_lite.debug.causes.newton import solved_recurrent

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@pytest.fixture(autouse=True)
def _solved_alone(monkeypatch):
    monkeypatch.setattr(finding, "FAMILIES", (solved_recurrent,))
    monkeypatch.setattr(finding, "SOLVED", ())


def attributes(kind: str, hidden: int, direction: str) -> str:
    resets = ", linear_before_reset = 1" if kind == "GRU" else ""
    return f'{kind} <hidden_size = {hidden}, direction = "{direction}"{resets}>'


def weights_of(kind: str, ways: int, hidden: int = 6) -> dict[str, np.ndarray]:
    rows = GATES[kind] * hidden
    return {
        "w": numbers(ways, rows, 5) / 2,
        "r": numbers(ways, rows, hidden, seed=1) / 2,
        "b": numbers(ways, 2 * rows, seed=2) / 3,
    }


def side_by_side(nodes: list[str], weights: list[dict[str, np.ndarray]]):
    """A model in which several nodes read `x`, each its own weights."""
    each = (f"y{n} = {node} (x, w{n}, r{n}, b{n})" for n, node in enumerate(nodes))
    ends = ", ".join(f"float[a,{len(w['r'])},c,6] y{n}" for n, w in enumerate(weights))
    named = {f"{name}{n}": array for n, w in enumerate(weights) for name, array in w.items()}
    return model(f"g (float[a,c,5] x) => ({ends}) {{ {' '.join(each)} }}", **named)


def without(array: np.ndarray, *place: object) -> np.ndarray:
    array = array.copy()
    array[place] = 0
    return array


def rounded(array: np.ndarray) -> np.ndarray:
    step = np.abs(array).max() / 127
    return (np.round(array / step) * step).astype(np.float32)


def repaired(wrong, right, keep: str = "", **feeds: np.ndarray) -> dict[str, str]:
    """The first cause at each culprit's value, of a model whose repair is right for other inputs, too."""
    known = {n: v for n, v in references(right, **feeds).items() if not keep or n in keep}
    result = osl.bisect(wrong, known, feeds=feeds)

    fixed = osl.repair(wrong, result).model.proto
    fresh = {name: value[::-1] * np.float32(1.5) for name, value in feeds.items()}
    made, wanted = (references(m, **fresh) for m in (fixed, right))
    for name, value in wanted.items():
        np.testing.assert_allclose(made[name], value, rtol=1e-5, atol=2e-6)
    return {culprit.value: culprit.causes[0].sentence for culprit in result.culprits}


def test_the_states_are_those_of_the_runtime():
    cases = [(kind, way) for kind in GATES for way in ("forward", "reverse", "bidirectional")]
    weights = [weights_of(kind, 1 + (way == "bidirectional")) for kind, way in cases]
    whole = side_by_side([attributes(kind, 6, way) for kind, way in cases], weights)
    x, none = numbers(7, 3, 5, seed=3), np.zeros((3, 6))
    found = references(whole, x=x)

    for n, (kind, direction) in enumerate(cases):
        for way, each in enumerate(zip(*weights[n].values(), strict=True)):
            step = -1 if way or direction == "reverse" else 1
            wanted = found[f"y{n}"][::step, way]
            before = np.concatenate([none[None], wanted[:-1]])
            (made,) = Cells(kind, each, [Direction(x[::step], before, none, wanted)]).states()
            np.testing.assert_allclose(made, wanted, atol=1e-6)


WRONG = [
    ("LSTM", "bidirectional", "b", "is zero everywhere in the bias of the state; solved for"),
    ("GRU", "bidirectional", "b", "is zero everywhere in the bias of the inputs in direction 1;"),
    ("GRU", "reverse", "r", "is zero everywhere; solved for"),
    ("RNN", "forward", "w", "is zero at 8 places; solved for"),
    ("LSTM", "reverse", "w", "looks rounded to int8 and differs; solved for"),
    ("LSTM", "bidirectional", "r", "has the numbers of direction 0 in direction 1; solved for"),
    ("GRU", "bidirectional", "w", "is scaled by 1.5 in direction 0; solved for"),
]
CHANGED = [
    lambda b: without(b, slice(None), slice(24, None)),
    lambda b: without(b, 1, slice(18)),
    np.zeros_like,
    lambda w: without(w, 0, [0, 0, 1, 2, 3, 4, 5, 5], [0, 3, 2, 4, 1, 3, 0, 2]),
    rounded,
    lambda r: np.stack([r[0], r[0]]),
    lambda w: w * np.array([1.5, 1], np.float32)[:, None, None],
]


def test_numbers_are_solved_for_unit_by_unit():
    nodes = [attributes(kind, 6, direction) for kind, direction, *_ in WRONG]
    right = [weights_of(kind, 1 + (way == "bidirectional")) for kind, way, *_ in WRONG]
    changed = zip(right, WRONG, CHANGED, strict=True)
    wrong = [weights | {name: f(weights[name])} for weights, (_, _, name, _), f in changed]

    said = repaired(
        side_by_side(nodes, wrong), side_by_side(nodes, right), x=numbers(16, 8, 5, seed=3)
    )

    for n, (kind, _, name, what) in enumerate(WRONG):
        assert f"constant '{name}{n}' of {kind} (@{n}) {what}" in said[f"y{n}"]


def test_few_steps_and_rare_settings_prove_no_numbers():
    right = weights_of("LSTM", 1)
    rare = ["", ", clip = 3.0", ", input_forget = 1", ', activations = ["Relu", "Tanh", "Tanh"]']
    nodes = [f"LSTM <hidden_size = 6{more}>" for more in rare]
    wrong = [right | {"w": rounded(right["w"])}, *[right | {"b": 0 * right["b"]}] * 3]
    x = numbers(9, 1, 5, seed=3)
    known = references(side_by_side(nodes, [right] * 4), x=x)

    culprits = osl.bisect(side_by_side(nodes, wrong), known, feeds={"x": x}).culprits

    assert not [cause for culprit in culprits for cause in culprit.causes]
    (said,) = (culprit.unexplained for culprit in culprits if culprit.value == "y0")
    assert "'w0' of LSTM (@0) looks rounded to int8" in said
    assert "the references do not determine them: 20 unknowns, 9 equations" in said


def test_many_biases_of_a_layer_before_another_are_solved_for():
    right = weights_of("LSTM", 2, hidden=9)
    right |= {"v": numbers(2, 16, 18) / 3, "q": numbers(2, 16, 4, seed=5) / 2}
    right |= {"c": numbers(2, 32, seed=6) / 3, "sizes": np.array([0, 0, -1])}
    wrong = right | {"b": without(right["b"], slice(None), slice(36, None))}
    first, second = (attributes("LSTM", hidden, "bidirectional") for hidden in (9, 4))
    nodes = f"h = {first} (x, w, r, b) t = Transpose <perm = [0,2,1,3]> (h)"
    nodes += f" s = Reshape (t, sizes) y = {second} (s, v, q, c)"
    text = f"g (float[10,6,5] x) => (float[10,2,6,4] y) {{ {nodes} }}"

    said = repaired(
        model(text, **wrong), model(text, **right), keep="y", x=numbers(10, 6, 5, seed=3)
    )

    assert "'b' of LSTM (@0) is zero everywhere in the bias of the state; solved for" in said["y"]
