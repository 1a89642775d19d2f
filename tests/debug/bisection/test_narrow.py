"""Narrowing a region by the operators of a PyTorch module: it never loses what was found, nor makes it false."""

from contextlib import nullcontext

import numpy as np
import onnx
import pytest

import onnxsurgeon_lite as osl
from kit.bisecting import altered, parsed, random
from onnxsurgeon_lite.api import bisecting
from onnxsurgeon_lite.errors import RuntimeFailure

CHAIN = """net (float[4,16] x) => (float[4,16] y) {
    a = MatMul (x, w0)
    mul = Mul (a, s0)
    mul_1 = Mul (mul, s1)
    mul_2 = Mul (mul_1, s2)
    mul_3 = Mul (mul_2, s3)
    y = MatMul (mul_3, w1)
}"""


MULS = ["mul", "mul_1", "mul_2", "mul_3"]


@pytest.fixture
def chain(tmp_path):
    """(A model that is wrong at `mul_2`, references of `a` and `y`, all right values)."""
    constants = {f"s{i}": 1 + random(16, seed=i) / 4 for i in range(4)}
    right = parsed(CHAIN, **constants, w0=random(16, 16, seed=5), w1=random(16, 16, seed=6))
    onnx.save(right, tmp_path / "right.onnx")
    onnx.save(altered(right, s2=random(16, seed=9)), tmp_path / "wrong.onnx")
    values = {"x": random(4, 16, seed=7)}
    values |= osl.run(tmp_path / "right.onnx", values, ["a", *MULS, "y"])
    return tmp_path / "wrong.onnx", {name: values[name] for name in ("x", "a", "y")}, values


def traced(monkeypatch, program):
    """Let this model be what every module computes."""
    monkeypatch.setattr(bisecting, "program_of", lambda *_: nullcontext(program))


def test_values_that_a_traced_module_counts_otherwise_are_matched_by_their_contents(
    chain, monkeypatch
):
    model, references, _ = chain
    program = model.with_name("program.onnx")
    named = osl.rename(model.with_name("right.onnx"), {f"mul{n}": f"t{n}" for n in ("", "_1")})
    osl.rename(named, {"mul_2": "mul_1", "mul_3": "mul_2"}).save(program)
    traced(monkeypatch, program)

    result = osl.bisect(model, references, factory="net.py:net", cause=False)

    (culprit,) = result.culprits
    assert culprit.region == ["@3"]
    assert result.notes[0] == "traced 'net.py:net' to narrow the region"


def test_a_search_that_fails_beside_the_module_leaves_the_first_result(chain, monkeypatch):
    model, references, _ = chain
    first = osl.bisect(model, references, cause=False)
    traced(monkeypatch, model.with_name("right.onnx"))
    search = bisecting.bisect

    def refused(model, known, *given, **how):
        if "mul" in known:  # beside the module
            raise RuntimeFailure("Mul cannot broadcast 4 by 9", "look at it")
        return search(model, known, *given, **how)

    monkeypatch.setattr(bisecting, "bisect", refused)
    result = osl.bisect(model, references, factory="net.py:net", cause=False)

    assert [each.region for each in result.culprits] == [each.region for each in first.culprits]
    assert (
        "'net.py:net' does not narrow the region: Mul cannot broadcast 4 by 9" in result.notes[-1]
    )


def test_a_module_that_computes_otherwise_than_the_references_is_not_used(chain, monkeypatch):
    model, references, _ = chain
    other = osl.set_constant(model.with_name("right.onnx"), "s0", np.ones(16, np.float32))
    other.save(model.with_name("other.onnx"))
    traced(monkeypatch, model.with_name("other.onnx"))

    result = osl.bisect(model, references, factory="net.py:net", cause=False)

    assert result.culprits[0].region == ["@1", "@2", "@3", "@4", "@5"]
    assert "'net.py:net' does not narrow the region" in result.notes[-1]


def test_a_reference_of_another_shape_is_never_computed_with(tmp_path):
    model = parsed(
        """net (float[2,3] x) => (float[2,3] y, float[2,3] z) {
            t = Mul (x, w)
            y = Add (t, c)
            u = Sub (x, w)
            z = Add (u, c)
        }""",
        w=random(2, 3, seed=1),
        c=random(2, 3, seed=2),
    )
    onnx.save(model, tmp_path / "net.onnx")
    x = {"x": random(2, 3, seed=3)}
    values = {**x, **osl.run(tmp_path / "net.onnx", x, ["t", "y", "u", "z"])}
    values |= {"t": values["t"].T.copy(), "y": values["y"] + 1}
    values |= {"u": values["u"] + 1, "z": values["z"] + np.float32(1)}

    result = osl.bisect(tmp_path / "net.onnx", values, cause=False)

    assert [culprit.value for culprit in result.culprits] == ["u", "t"]
