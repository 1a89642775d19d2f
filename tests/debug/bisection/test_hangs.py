"""A model that hangs: the node, what drives it, and a reproducer that hangs, too."""

import subprocess
import sys

import pytest

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.errors import RuntimeTimeout

SECONDS = 1.5
FOREVER = 2**60

LOOP = """<ir_version: 9, opset_import: ["" : 17]>
g (float[4] x) => (float[4] y) <int64 k = {{{count}}}, bool go = {{1}}> {{
  a = Relu (x)
  s = Shape (a)
  n = ReduceMax <keepdims = 0> (s)
  m = Mul (n, k)
  h = Loop <body = b (int64 i, bool c, float[4] u) => (bool d, float[4] v) {{
    d = Identity (c) v = Neg (u) }}> (m, go, a)
  y = Abs (h)
}}"""
WHILE = """<ir_version: 9, opset_import: ["" : 17]>
g (float[4] x) => (float[4] y) <bool go = {1}, float step = {0}, float end = {10}, float zero = {0}> {
  a = Relu (x)
  h, t = Loop <body = b (int64 i, bool c, float[4] u, float p) => (bool d, float[4] v, float q) {
    v = Neg (u) q = Add (p, step) d = Less (q, end) }> (, go, a, zero)
  y = Abs (h)
}"""


@pytest.fixture
def hanging(tmp_path, monkeypatch):
    """A model whose trip count is wrong, and the references of the right one; its reproducer is soon known to hang."""
    monkeypatch.setattr("onnxsurgeon_lite.debug.bisection.reproducer._HANGS", SECONDS)
    osl.record(osl.build(LOOP.format(count=1)), tmp_path / "refs")
    return osl.build(LOOP.format(count=FOREVER)), tmp_path / "refs"


def test_a_loop_that_hangs_is_named_with_its_trip_count_and_its_reproducer_hangs(hanging, tmp_path):
    model, references = hanging

    result = osl.bisect(model, references, timeout=SECONDS, output=tmp_path / "out", cause=False)

    assert result.culprits[0].op_type == "Loop"
    assert [c.value for c in result.culprits] == ["h", "m"]
    (finding,) = result.culprits[0].findings
    assert finding.verdict == "crash"
    assert finding.because.endswith(f"its trip count 'm' is {4 * FOREVER}, the reference 4")
    assert not result.outputs  # none was computed
    assert "outputs agree" not in str(result)
    assert result.reproduce[0] == "python"
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([sys.executable, tmp_path / "out" / "repro.py"], timeout=3, check=False)


def test_what_looks_for_nan_names_the_loop_that_hangs(hanging, tmp_path):
    result = osl.bisect(hanging[0], find="nan", timeout=SECONDS, output=tmp_path / "out")

    assert result.verdict == "mismatch"
    assert str(result).startswith("crash: Loop (@4) makes 'h'")
    assert f"its trip count 'm' is {4 * FOREVER}" in str(result)
    assert result.reproduce[0] == "python"


def test_a_loop_without_a_trip_count_is_named_with_its_condition():
    with pytest.raises(RuntimeTimeout, match=r"no trip count: 'd' in its body .* Loop \(@1\)"):
        osl.run(osl.build(WHILE), timeout=SECONDS)
