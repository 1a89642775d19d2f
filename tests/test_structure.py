"""What differs in structure: forks, missing and extra operations, faults without a reference of their own."""

import numpy as np
import pytest
from onnx import ModelProto
from test_verdicts import Case, altered, parsed, random, verdicts

import onnxsurgeon_lite as osl

FORK = """net (float[4,16] x) => (float[4,16] y) {
    h = MatMul (x, w0)
    n = LayerNormalization (h, g, b)
    r = Mul (n, s)
    q = MatMul (r, w1)
    k = MatMul (r, w2)
    v = MatMul (r, w3)
    t = Mul (q, k)
    u = Softmax (t)
    m = Mul (u, v)
    y = Add (m, r)
}"""


def fork() -> ModelProto:
    constants = {f"w{i}": random(16, 16, seed=i) / 4 for i in range(4)}
    norm = {"g": 1 + random(16, seed=5) / 9, "b": random(16, seed=6), "s": random(16, seed=7)}
    return parsed(FORK, **constants, **norm)


def some(case: Case, *names: str):
    kept = {name: case.values[name] for name in ("x", *names)}
    np.savez(case.folder / "some.npz", **kept)
    return osl.open_references(case.folder / "some.npz")


def replaced(model: ModelProto, value: str, op_type: str, *inputs: str) -> ModelProto:
    """The model with another operator, or other inputs, at one value."""
    copy = ModelProto()
    copy.CopyFrom(model)
    node = next(node for node in copy.graph.node if value in node.output)
    node.op_type = op_type
    node.input[:] = inputs or node.input
    return copy


@pytest.mark.parametrize(("value", "region"), [("n", {"@1", "@2"}), ("r", {"@1", "@2"})])
def test_one_fault_seen_through_a_fork_is_one_culprit(value, region, tmp_path, runtime):
    right = fork()
    case = Case(tmp_path, right, runtime)
    g = {"g": np.float32([1.5] * 16)} if value == "n" else {"s": np.float32([1.5] * 16)}

    result = case.bisect(altered(right, **g), references=some(case, "h", "q", "k", "v", "y"))

    (culprit,) = result.culprits
    assert set(culprit.region) == region
    assert {culprit.value, *culprit.seen} == {"q", "k", "v", "y"}
    assert "one of 2 nodes up to Mul (@2), seen at 'q', 'k', 'v', 'y'" in str(result)


def test_two_faults_on_two_branches_are_two_culprits(tmp_path, runtime):
    right = fork()
    case = Case(tmp_path, right, runtime)
    wrong = altered(right, w1=random(16, 16, seed=8), w3=random(16, 16, seed=9))

    result = case.bisect(wrong, references=some(case, "h", "r", "q", "k", "v", "y"))

    assert {culprit.value for culprit in result.culprits} == {"q", "v"}


def test_an_amplification_does_not_outrank_the_node_that_is_wrong(tmp_path, runtime):
    right = parsed(
        """net (float[1000] x) => (float[1000] y, float[1000] z) {
            a = Mul (x, w)
            y = Tanh (a)
            c = Add (x, o)
            d = Sub (c, o)
            z = Mul (d, big)
        }""",
        w=np.float32([0.5]),
        o=np.float32([1000]),
        big=np.float32([1e6]),
    )
    case = Case(tmp_path, right, runtime)
    near = case.values["c"].copy()
    near[:5] += 0.05
    references = case.references(c=near, d=near - 1000, z=(near - 1000) * np.float32(1e6))

    result = case.bisect(altered(right, w=np.float32([0.6])), references=references)

    assert [culprit.value for culprit in result.culprits] == ["a", "d"]
    assert verdicts(result.culprits[1])[0] == "amplification"
