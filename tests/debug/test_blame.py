"""Shares of nodes in an output's error: against the true effect of healing one node at a time."""

import numpy as np
import pytest
from onnx import ModelProto

import onnxsurgeon_lite as osl
from kit import FIXTURES
from kit.bisecting import half_model, parsed, random
from kit.graphs import run
from kit.quantized import Quantized, attention
from onnxsurgeon_lite import Model
from onnxsurgeon_lite.errors import SurgeonError

WEIGHTS = [f"w{i}" for i in range(4)]
BLOCKS = """net (float[5,8] x) => (float[5,8] y) {
    [norm] n = LayerNormalization (x, w0)
    [up] u = MatMul (n, w1)
    [act] g = Gelu (u)
    [down] d = MatMul (g, w2)
    [sum] s = Add (d, x)
    [mix] m = MatMul (s, w3)
    [y] y = Tanh (m)
}"""
ITERATED = """net (float[5,8] x) => (float[5,8] y) {
    [norm] n = LayerNormalization (x, w0)
    times = Constant <value = int64 {3}> ()
    on = Constant <value = bool {1}> ()
    [loop] l = Loop (times, on, n) <body = b (int64 i, bool go, float[5,8] s) => (bool more, float[5,8] t) {
        more = Identity (go)
        p = MatMul (s, w1)
        t = Tanh (p)
    }>
    [down] d = MatMul (l, w2)
    [sum] y = MatMul (d, w3)
}"""
OWNERS = {"w0": "norm", "w1": "up", "w2": "down", "w3": "mix"}


def weights(of: dict[str, float]) -> dict[str, np.ndarray]:
    """The weights; some with an error of this size."""
    found = {"w0": 1 + random(8, seed=0) / 10}
    found |= {f"w{i}": random(8, 8, seed=i) / 3 for i in range(1, 4)}
    return {n: v + of.get(n, 0) * random(*v.shape, seed=50) for n, v in found.items()}


def net(text: str, **errors: float) -> ModelProto:
    return parsed(text, **weights(errors))


@pytest.mark.parametrize(
    ("text", "owners"),
    [(BLOCKS, OWNERS), (ITERATED, OWNERS | {"w1": "loop", "w3": "sum"})],
    ids=["blocks", "loop"],
)
def test_shares_are_what_healing_one_node_at_a_time_removes(text, owners, runtime):
    errors = {"w0": 2e-3, "w1": 1e-3, "w2": 3e-3, "w3": 5e-4}
    feeds = {"x": random(5, 8, seed=9)}

    def output(**left: float) -> np.ndarray:
        return run(runtime, Model(net(text, **left)), feeds)["y"].astype(np.float64)

    wrong = output(**errors)
    error = wrong - output()
    healed = {
        owners[name]: ((wrong - output(**errors | {name: 0})) * error).sum() / (error**2).sum()
        for name in WEIGHTS
    }

    blame = osl.rank(Model(net(text, **errors)), against=Model(net(text)), feeds=feeds, by="output")

    shares = {node.name: node.share for node in blame.nodes}
    assert blame.explained == pytest.approx(1, abs=0.02)
    assert {name: shares[name] for name in healed} == pytest.approx(healed, abs=0.03)
    assert all(abs(shares[name]) < 1e-3 for name in shares.keys() - healed.keys())


def test_shares_of_a_quantized_model_explain_its_error(tmp_path):
    case = Quantized(tmp_path, attention())

    blame = osl.rank(case.quantize("u8"), against=case.float, feeds=case.feeds, by="output", of="y")

    assert blame.explained == pytest.approx(1, abs=0.05)
    assert blame.left_out == []


def test_shares_of_half_precision_explain_its_error():
    wide, half = half_model(keep_io=False, scale=0.3)
    feeds = {"x": random(4, 16, seed=9).astype(np.float16)}

    blame = osl.rank(Model(half), against=Model(wide), feeds=feeds, by="output")

    assert blame.explained == pytest.approx(1, abs=0.05)
    assert len(blame.nodes) == 6


GAPS = """net (float[2,2] x) => (float[2,2] y, int64[2] k) {
    [scale] a = Mul (x, w)
    [index] k = ArgMax <axis = 0, keepdims = 0> (a)
    [hole] d = com.microsoft.Gelu (a)
    [round] r = Round (d)
    [product] p = MatMul (a, a)
    [sum] y = Sum (r, d, p)
}"""


def with_gaps(w: list[list[float]]) -> Model:
    proto = parsed(GAPS, w=np.float32(w))
    proto.opset_import.add(domain="com.microsoft", version=1)
    return Model(proto)


def test_what_no_gradient_passes_is_left_out_and_said():
    right, wrong = (with_gaps([[3, 1.5], [2, size]]) for size in (4, 4.001))
    feeds = {"x": np.float32([[1, 2], [3, 4]])}

    blame = osl.rank(wrong, against=right, feeds=feeds, by="output")

    assert blame.output == "y"
    assert blame.left_out == [
        "no gradient passes Round 'round' (@3): what they make does not change smoothly",
        "no gradient passes Gelu 'hole' (@2): com.microsoft::Gelu has no gradient rule",
    ]


def test_bisect_adds_the_shares_to_its_answer():
    faulty, right = FIXTURES / "faulty_constant.onnx", FIXTURES / "whole_model.onnx"

    result = osl.bisect(faulty, against=right, blame=True, quick=True)

    assert "100% of the error of '31' comes from Conv 'Conv_4' (@4)" in str(result)
    assert result.to_json()["blame"]["nodes"][0]["name"] == "Conv_4"
    assert osl.bisect(right, against=right, blame=True).blame is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"of": "k"}, "'k' is int64"),
        ({"of": "x"}, "'x' cannot be compared"),
        ({"of": "y", "by": "node"}, "an output's error is shared"),
        ({"fp16_risk": True, "against": None}, "an output's error is shared"),
    ],
)
def test_what_has_no_shares_is_said(options, said):
    model = with_gaps([[1, 1], [1, 1]])

    with pytest.raises(SurgeonError) as caught:
        osl.rank(model, **{"against": model, "by": "output"} | options)

    assert caught.value.message.startswith(said)


def test_bits_of_layers_reach_the_wanted_error_at_the_least_bytes():
    model = Model(net(BLOCKS))
    feeds = {"x": random(5, 8, seed=9)}

    found = {wanted: osl.rank(model, bits=wanted, feeds=feeds) for wanted in (15, 30, 200)}

    for wanted, bits in found.items():
        assert bits.reached_db >= wanted
        assert bits.bytes == sum(layer.bytes for layer in bits.layers)
    assert [bits.bytes for bits in found.values()] == sorted({b.bytes for b in found.values()})
    assert found[30].reached_db == pytest.approx(found[30].predicted_db, abs=3)
    assert {layer.bits for layer in found[200].layers} == {32}
