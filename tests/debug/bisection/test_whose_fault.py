"""Whose fault a difference is: the model's, a runtime's, or that of the precision of a device."""

import sys

import ml_dtypes
import numpy as np
import pytest
from onnx import numpy_helper, parser

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.runtime import options

X = np.random.default_rng(0).normal(size=(2, 8)).astype(np.float32)
IMAGE = np.random.default_rng(2).normal(size=(1, 1, 4, 4)).astype(np.float32)
PRODUCTS = "net (float[2,8] x) => (float[2,8] y) { a = MatMul(x, v) b = Relu(a) y = MatMul(b, w) }"
POOL = """
    net (float[1,1,4,4] x) => (float[1,1,4,4] y) {
        p = AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1], count_include_pad = 1>(x)
        y = Relu(p)
    }
"""
PROGRAM = f"""#!{sys.executable}
import json, sys
from pathlib import Path
import ml_dtypes, numpy as np, onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_average_pool import AveragePool_19

class MatMul(OpRun):
    def _run(self, a, b):
        a, b = (x.astype(ml_dtypes.bfloat16).astype(np.float32) for x in (a, b))
        return (a @ b,)

class AveragePool(AveragePool_19):
    def _run(self, x, **given):
        return super()._run(x, **(given | {{"count_include_pad": 0}}))

folder = Path(sys.argv[1])
asked = json.loads((folder / "request.json").read_text())
raw = (folder / "feeds/values.bin").read_bytes()
feeds = {{}}
for v in json.loads((folder / "feeds/index.json").read_text())["values"]:
    flat = np.frombuffer(raw, np.float32, int(np.prod(v["shape"])), v["offset"])
    feeds[v["name"]] = flat.reshape(v["shape"])
ops = [] if asked["settings"].get("precision") == "f32" else [MatMul, AveragePool]
model = onnx.load(folder / "model.onnx")
values = ReferenceEvaluator(model, new_ops=ops).run(asked["wanted"], feeds)
np.savez(folder / "values.npz", **dict(zip(asked["wanted"], values)))
"""


@pytest.fixture
def program(tmp_path) -> str:
    """A program that pools without the padding, and rounds what products read."""
    path = tmp_path / "program"
    path.write_text(PROGRAM)
    path.chmod(0o755)
    return f"command:{path}"


def model(text: str, **constants: np.ndarray) -> osl.Model:
    proto = parser.parse_model('<ir_version: 10, opset_import: ["" : 21]>\n' + text)
    tensors = (numpy_helper.from_array(array, name) for name, array in constants.items())
    proto.graph.initializer.extend(tensors)
    return osl.Model(proto)


def weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {name: rng.normal(size=(8, 8)).astype(np.float32) for name in "vw"}


def coarse(array: np.ndarray) -> np.ndarray:
    return array.astype(ml_dtypes.bfloat16).astype(np.float32)


@pytest.mark.parametrize("wrong", ["a", "b"])
def test_the_side_that_errs_is_named_and_no_repair_is_made(wrong, program, tmp_path):
    sides = {"a": "runtime=ort", "b": "runtime=ort", wrong: f"runtime={program}"}

    found = osl.bisect(model(POOL), **sides, feeds={"x": IMAGE}, repair=tmp_path / "fixed.onnx")

    (culprit,) = found.culprits
    (finding,) = culprit.findings
    assert finding.verdict == "kernel"
    assert finding.because.startswith(
        f"{program} computes AveragePool wrongly (float64 agrees with ort"
    )
    assert not culprit.causes
    assert not (tmp_path / "fixed.onnx").exists()


@pytest.mark.parametrize("wrong", ["a", "b"])
def test_a_lower_precision_is_one_verdict_with_the_switch_that_is_proved(
    wrong, program, monkeypatch
):
    monkeypatch.setitem(options._SWITCHES, "command", ("precision", "f32"))
    sides = {"a": "runtime=ort", "b": "runtime=ort", wrong: f"runtime={program}"}

    found = osl.bisect(model(PRODUCTS, **weights()), **sides, feeds={"x": X})

    (culprit,) = found.culprits
    (finding,) = culprit.findings
    assert finding.verdict == "precision"
    assert finding.because.startswith(f"{program} computed in bfloat16: ")
    assert "all 2 wrong products" in finding.because
    assert finding.because.endswith("with precision=f32 the outputs agree")
    assert (culprit.causes, culprit.unexplained) == ([], "")


def test_references_of_a_device_that_rounds_are_told_and_no_switch_is_made_up():
    v, w = weights().values()
    a = coarse(X) @ coarse(v)
    b = np.maximum(a, 0)
    recorded = {"x": X, "a": a, "b": b, "y": coarse(b) @ coarse(w)}

    told = list[str]()

    found = osl.bisect(
        model(PRODUCTS, **weights()),
        recorded,
        headline=lambda result: told.append(result.culprits[0].verdict),
    )

    # no product is called wrong before all are known
    assert set(told) <= {"precision"}
    (culprit,) = found.culprits
    (finding,) = culprit.findings
    assert finding.verdict == "precision"
    assert finding.because.startswith("the references computed in bfloat16")
    assert finding.because.endswith("no switch is known here that turns it off")


def test_weights_that_were_rounded_are_a_mistake_of_the_model():
    right = weights()
    rounded = {name: coarse(array) for name, array in right.items()}
    a = X @ right["v"]
    b = np.maximum(a, 0)
    recorded = {"x": X, "a": a, "b": b, "y": b @ right["w"]}

    found = osl.bisect(model(PRODUCTS, **rounded), recorded)

    assert [c.op_type for c in found.culprits] == ["MatMul", "MatMul"]
    assert all(f.verdict != "precision" for c in found.culprits for f in c.findings)
