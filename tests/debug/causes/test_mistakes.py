"""The tables of what people mistake for each other: what they hold is true."""

import math
from itertools import chain, pairwise

import numpy as np
import onnx
import pytest
from onnx import defs

import onnxsurgeon_lite as osl
from kit.causes import model, numbers, references, said
from onnxsurgeon_lite.debug.causes import finding
from onnxsurgeon_lite.debug.causes.formulas import computed
from onnxsurgeon_lite.debug.causes.hypothesis import MISTAKES
from onnxsurgeon_lite.debug.causes.settings import feeding
from onnxsurgeon_lite.graph.operators import RUNTIME_DOMAIN, find_schema

OPERATORS = {schema.name for schema in defs.get_all_schemas()}
ERF = np.vectorize(math.erf)
FORMULAS = {
    "Gelu": lambda x: x * 0.5 * (1 + ERF(x / np.sqrt(2))),
    "Gelu (tanh)": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "Gelu (sigmoid)": lambda x: x / (1 + np.exp(-1.702 * x)),
    "Silu": lambda x: x / (1 + np.exp(-x)),
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "Log1p": np.log1p,
    "Mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "LeakyRelu (0.2)": lambda x: np.where(x > 0, x, 0.2 * x),
    "1 + Erf of Gelu": lambda x: 1 + ERF(x / np.sqrt(2)),
    "Tanh of Gelu": lambda x: np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)),
}


def given(activation: str) -> np.ndarray:
    """Numbers for which an activation is defined."""
    return np.abs(numbers(4, 8)) if activation == "Log1p" else numbers(4, 8)


@pytest.mark.parametrize("activation", FORMULAS)
def test_an_activation_is_its_formula(activation):
    x = given(activation).astype(np.float64)

    np.testing.assert_allclose(computed(activation, x), FORMULAS[activation](x), atol=1e-6)


@pytest.mark.parametrize("activation", MISTAKES["activations"])
def test_the_nodes_of_an_activation_compute_the_same_in_a_model(activation):
    _, nodes, _ = MISTAKES["activations"][activation]
    constants = {name: np.float32(n) for name, n in MISTAKES["numbers"].items()}
    read = {name: n for name, n in constants.items() if f" {name})" in nodes}
    x = given(activation)

    made = references(model(f"g (float[4,8] x) => (float[4,8] y) {{ {nodes} }}", **read), x=x)["y"]

    np.testing.assert_allclose(made, computed(activation, x.astype(np.float64)), atol=1e-5)


def test_what_is_most_often_forgotten_before_an_operator_is_known():
    titles = {title for title, *_ in MISTAKES["activations"].values()}
    titles |= set(MISTAKES["operators"]["missing"].split()) | {"Gelu (tanh)"}

    for row in MISTAKES["between"].values():
        assert OPERATORS.issuperset(row["readers"])
        assert titles.issuperset(row["forgotten"])


def test_a_number_that_is_usual_at_one_operator_is_known():
    nodes = "p = Pad (x, pads, grey) c = Conv (p, w) r = Relu (c) y = Softmax <axis = 1> (r)"
    constants = {"pads": np.array([0, 0, 0, 0, 0, 0, 2, 2]), "w": numbers(4, 3, 3, 3) / 99}
    black, grey = (
        model(
            f"g (float[1,3,6,6] x) => (float[1,4,6,6] y) {{ {nodes} }}",
            grey=np.float32(number),
            **constants,
        )
        for number in (0, 114)
    )

    sentence = said(black, grey, "x", "y", x=np.abs(numbers(1, 3, 6, 6, seed=1)) * 99)

    assert "constant 'grey' of Pad (@0) is 0; with 114 the region agrees" in sentence
    every = chain.from_iterable(MISTAKES["scalars"]["of"].values())
    assert OPERATORS.issuperset(MISTAKES["scalars"]["of"])
    assert set(map(type, every)) == {float}


def test_an_activation_is_one_operator_from_its_opset_on():
    for name, (_, _, since) in MISTAKES["activations"].items():
        op_type = name.partition(" ")[0]

        assert since == 99 or since >= min(
            schema.since_version
            for schema in defs.get_all_schemas_with_history()
            if schema.name == op_type
        )


def test_operators_that_are_written_in_place_of_each_other_exist():
    kinds = [line.split() for line in MISTAKES["operators"]["kinds"]]

    named = {name for kind in kinds for name in kind}
    known = {
        name
        for name in named
        if find_schema(name, 1, RUNTIME_DOMAIN) or name == "SimplifiedLayerNormalization"
    }
    assert named <= OPERATORS | known
    assert {*MISTAKES["operators"]["missing"].split()} <= OPERATORS
    assert {*MISTAKES["variants"], *MISTAKES["only"]} <= {name for kind in kinds for name in kind}


def test_kinds_of_few_operators_come_first():
    lengths = [len(line.split()) for line in MISTAKES["operators"]["kinds"]]

    assert lengths == sorted(lengths)


@pytest.fixture
def known_inputs(monkeypatch):
    """Search only how inputs are prepared."""
    monkeypatch.setattr(finding, "FAMILIES", (feeding,))
    monkeypatch.setattr(finding, "SOLVED", ())


def prepared(how: str):
    """The model that prepares its input so; Tanh makes it another one than any other number of a linear model."""
    text = "g (float[2,3,4,4] x) => (float[2,3,4,4] y) { a = Sub(x, m) b = Div(a, s) c = Div(b, k) y = Tanh(c) }"
    mean, std = (np.float32(n) for n in MISTAKES["preparations"][how])
    by_color = {n: v.reshape(3, 1, 1) if v.size > 1 else v for n, v in (("m", mean), ("s", std))}
    return model(text, k=np.float32(50), **by_color)


PREPARED = sorted(MISTAKES["preparations"])


@pytest.mark.parametrize(("wrong", "right"), list(pairwise([*PREPARED, PREPARED[0]])))
def test_an_input_that_is_prepared_otherwise_is_named_and_repaired(known_inputs, wrong, right):
    scale = max(np.max(MISTAKES["preparations"][how][1]) for how in (wrong, right))

    sentence = said(prepared(wrong), prepared(right), "y", x=numbers(2, 3, 4, 4) * scale / 4)

    assert sentence.startswith("input 'x' is prepared otherwise, for example ")
    assert "; prepared so" in sentence


HALVES = {"s": np.float32(127.5), "o": np.float32(1)}


def test_bytes_are_prepared_behind_their_cast(known_inputs):
    text = "g (uint8[2,3,4,4] x) => (float[2,3,4,4] y) { f = Cast<to = 1>(x) a = Div(f, s) y = %s }"
    wrong = model(text % "Tanh(a)", s=np.float32(255))
    right = model(text.replace("y =", "b = Sub(a, o) y =") % "Tanh(b)", **HALVES)

    sentence = said(wrong, right, "y", x=(numbers(2, 3, 4, 4) * 40 + 100).astype(np.uint8))

    assert (
        "'f' is prepared otherwise, for example divided by 255 instead of stretched from 0 .. 255 to"
        in sentence
    )


@pytest.mark.parametrize("norm", MISTAKES["norms"])
def test_the_nodes_of_a_normalization_compute_it(norm):
    nodes = MISTAKES["norms"][norm].format(epsilon="0.5", mean="ReduceMean(q, last)")
    axes = () if norm in ("LayerNormalization", "RMSNormalization") else (1, 1)
    scale, bias = (numbers(6, seed=seed).reshape(6, *axes) for seed in (1, 2))
    floats = {"s": scale, "b": bias, "e": np.float32(0.5), "ones": np.ones(2, np.float32)}
    floats["zeros"] = np.zeros(2, np.float32)
    sizes = {"last": np.array([-1]), "split": np.array([0, 2, -1]), "whole": np.array([4, 6, 5, 6])}
    constants = {
        n: c for n, c in (floats | sizes).items() if f" {n})" in nodes or f" {n}," in nodes
    }
    x = numbers(4, 6, 5, 6)

    text = f"g (float[4,6,5,6] x) => (float[4,6,5,6] y) {{ {nodes} }}"
    made = references(model(text, **constants), x=x)["y"]

    grouped = x.reshape(4, 2, -1) if norm == "GroupNormalization" else x
    centered = grouped - grouped.mean(-1, keepdims=True) * (norm != "RMSNormalization")
    normal = centered / np.sqrt(np.square(centered).mean(-1, keepdims=True) + 0.5)
    normal = x if norm == "BatchNormalization" else normal.reshape(x.shape)
    np.testing.assert_allclose(made, normal * scale + bias, rtol=1e-4, atol=1e-4)


def _of_last_axis(x: np.ndarray) -> dict[str, np.ndarray]:
    """What each row of the table `along` makes of an array along its last axis."""
    mean, low, high = (f(x, axis=-1, keepdims=True) for f in (np.mean, np.min, np.max))
    exps = np.exp(x - high)
    return {
        "Softmax": exps / exps.sum(-1, keepdims=True),
        "an L2 normalization": x / np.linalg.norm(x, axis=-1, keepdims=True),
        "mean 0 and variance 1": (x - mean) / x.std(-1, keepdims=True),
        "mean 0": x - mean,
        "root mean square 1": x / np.sqrt(np.square(x).mean(-1, keepdims=True)),
        "an L1 normalization": x / np.abs(x).sum(-1, keepdims=True),
        "sum 1": x / x.sum(-1, keepdims=True),
        "largest absolute 1": x / np.abs(x).max(-1, keepdims=True),
        "range 0 .. 1": (x - low) / (high - low),
        "mean 1": x / mean,
        "the reverse order": x[..., ::-1],
        "variance 1": x / x.std(-1, keepdims=True),
    }


@pytest.mark.parametrize("row", sorted(MISTAKES["along"].keys() - {"the reverse order"}))
def test_a_step_along_an_axis_that_is_missing_is_named(row):
    x, w = numbers(2, 5, 8) + 0.5, numbers(8, 6, seed=1)
    wrong = model("g (float[2,5,8] x) => (float[2,5,6] y) { y = MatMul(x, w) }", w=w)

    y = _of_last_axis(x)[row] @ w
    cause = (
        osl.bisect(wrong, {"x": x, "y": y.astype(np.float32)}, feeds={"x": x}).culprits[0].causes[0]
    )

    assert cause.sentence.startswith(f"{row} along axis 2 is missing between 'x' and MatMul (@0)")


def test_a_reversal_that_is_missing_is_named():
    feeds = {"x": numbers(2, 5, 8), "b": numbers(2, 5, 8, seed=1)}
    wrong = model("g (float[2,5,8] x, float[2,5,8] b) => (float[2,5,8] y) { y = Mul(x, b) }")

    result = osl.bisect(wrong, feeds | {"y": feeds["x"][..., ::-1] * feeds["b"]}, feeds=feeds)

    said = "the reverse order along axis 2 is missing between 'x' and Mul (@0)"
    assert result.culprits[0].causes[0].sentence.startswith(said)


REDUCED = {
    "the first position": lambda x: x[:, 0],
    "the last position": lambda x: x[:, -1],
    "the mean": lambda x: x.mean(1),
    "the sum": lambda x: x.sum(1),
    "the maximum": lambda x: x.max(1),
    "the L2 norm": lambda x: np.linalg.norm(x, axis=1),
    "the root mean square": lambda x: np.sqrt(np.square(x).mean(1)),
    "the variance": lambda x: x.var(1),
    "the standard deviation": lambda x: x.std(1),
    "the generalized mean of power 3": lambda x: np.cbrt((np.maximum(x, 1e-6) ** 3).mean(1)),
    "the luminance (0.299, 0.587, 0.114)": lambda x: np.einsum(
        "nchw,c->nhw", x, [0.299, 0.587, 0.114]
    ),
}


@pytest.mark.parametrize("opset", [17, 21])
@pytest.mark.parametrize("row", MISTAKES["reduced"])
def test_a_reduction_in_place_of_another_is_named(row, opset):
    x = numbers(2, 3, 4, 6)
    wrong = model(
        "g (float[2,3,4,6] x) => (float[2,4,6] y) { m = ReduceLogSumExp <axes = [1], keepdims = 0> (x) y = Tanh(m) }"
    )
    wrong.opset_import[0].version = opset
    if opset > 17:
        wrong.graph.node[0].input.append("axis")
        del wrong.graph.node[0].attribute[0]
        wrong.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "axis"))

    y = np.tanh(REDUCED[row](x)).astype(np.float32)
    cause = osl.bisect(wrong, {"x": x, "y": y}, feeds={"x": x}).culprits[0].causes[0]

    operator = {
        "the mean": "ReduceMean",
        "the sum": "ReduceSum",
        "the maximum": "ReduceMax",
        "the L2 norm": "ReduceL2",
    }
    said = (
        f"should be {operator[row]}"
        if row in operator and (row, opset) != ("the sum", 17)  # it reads its axes since opset 13
        else f"what computes 'm' from 'x' is not {row} along axis 1"
    )
    assert said in cause.sentence


def test_a_symmetric_normalization_in_place_of_that_of_rows_is_named():
    links, x = (
        (numbers(2, 6, 6) > 0).astype(np.float32) + np.eye(6, dtype=np.float32),
        numbers(2, 6, 4),
    )
    nodes = "d = ReduceSum(a, axis) n = Div(a, d) y = MatMul(n, x)"
    text = f"g (float[2,6,6] a, float[2,6,4] x) => (float[2,6,4] y) {{ {nodes} }}"
    degree = links.sum(-1, keepdims=True) ** -0.5

    y = (degree * links * degree.transpose(0, 2, 1)) @ x
    feeds = {"a": links, "x": x}
    result = osl.bisect(model(text, axis=np.array([2])), feeds | {"y": y}, feeds=feeds)

    said = (
        "what computes 'n' from 'a' is not a symmetric normalization (D^-1/2 A D^-1/2); with that"
    )
    assert result.culprits[0].causes[0].sentence.startswith(said)


@pytest.mark.parametrize("row", MISTAKES["logarithms"])
def test_another_base_of_a_logarithm_is_named(row):
    x, w = np.abs(numbers(2, 8)) + 0.1, numbers(8, 5, seed=1)
    wrong = model(
        "g (float[2,8] x) => (float[2,5] y) { h = Log(x) r = Relu(h) y = MatMul(r, w) }", w=w
    )

    y = np.maximum(np.log(x) * MISTAKES["logarithms"][row], 0) @ w
    result = osl.bisect(wrong, {"x": x, "y": y.astype(np.float32)}, feeds={"x": x})

    assert f"'h' is not multiplied by {row} before Relu" in result.culprits[0].causes[0].sentence


@pytest.mark.parametrize("opset", [17, 21])
def test_other_axes_of_a_reduction_are_named(opset):
    x = numbers(2, 3, 4, 6)
    text = "g (float[2,3,4,6] x) => (float[2,3,4,6] y) {{ m = ReduceMean {} y = Sub (x, m) }}"
    read = opset > 17
    wrong = model(
        text.format("(x, axes)" if read else "<axes = [1]> (x)"),
        **({"axes": np.array([1])} if read else {}),
    )
    wrong.opset_import[0].version = opset

    y = x - x.mean((1, 3), keepdims=True)
    result = osl.bisect(wrong, {"x": x, "y": y}, feeds={"x": x})

    said = result.culprits[0].causes[0].sentence
    assert said.startswith(
        (
            "axes of ReduceMean (@0) are [1]; with [1, 3]",
            "axes of ReduceMean (@0) is [1]; with [1, 3]",
        )
    )


def test_an_operand_with_another_axis_that_is_missing_is_named():
    x = numbers(3, 5, 8)
    wrong = model(
        "g (float[3,5,8] x) => (float[3,5] y)"
        " { m = ReduceMean (x, axes) c = Sub (x, m) a = Tanh (c) y = ReduceMax <keepdims = 0> (a, axes) }",
        axes=np.array([2]),
    )

    y = np.tanh(x - x.mean(2, keepdims=True)).max(2) + x.mean(2)
    result = osl.bisect(wrong, {"x": x, "y": y}, feeds={"x": x})

    assert "'m' is not added to the result of ReduceMax" in result.culprits[0].causes[0].sentence


def test_one_number_that_is_not_added_is_named():
    x = numbers(3, 8)
    wrong = model("g (float[3,8] x) => (float[3,8] y) { a = Tanh (x) y = Sin (a) }")

    y = np.sin(np.tanh(x)) + np.float32(0.5)
    result = osl.bisect(wrong, {"x": x, "y": y}, feeds={"x": x})

    assert "0.5 is not added behind Sin" in result.culprits[0].causes[0].sentence


@pytest.mark.parametrize("opset", [12, 17, 21])
def test_another_reduction_repairs_a_model_of_any_batch(opset):
    text = 'g (float["n",3,4,6] x) => (float["n",4,6] y) {{ {} y = Tanh (m) }}'
    first = "c = Constant <value = int64 {0}> () m = Gather <axis = 1> (x, c)"
    wrong = model(text.format(first))
    wrong.opset_import[0].version = opset
    x, fresh = numbers(2, 3, 4, 6), numbers(5, 3, 4, 6, seed=1)

    result = osl.bisect(wrong, {"x": x, "y": np.tanh(x.std(1))}, feeds={"x": x})

    made = osl.run(osl.repair(wrong, result).model, feeds={"x": fresh})["y"]
    np.testing.assert_allclose(made, np.tanh(fresh.std(1)), rtol=1e-4, atol=1e-5)
