"""`reduce --fails mismatch`: against stored references, other settings, another runtime, another version."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxsurgeon_lite as osl
from kit.bisecting import parsed, random
from kit.faulty_runtime import FAULTY
from onnxsurgeon_lite.errors import UsageError

CHAIN = """net (float[2, 6] x) => (float[2, 6] y) {
    a = Relu (x)  b = Tanh (a)  c = Neg (b)  d = Abs (c)  e = Sigmoid (d)  y = Neg (e) }"""


def recorded(folder: Path, place: str, wrong: str, text: str = CHAIN) -> tuple[osl.Model, Path]:
    """Return a model with a wrong operator, and what the right one computes."""
    right = osl.build(text)
    osl.record(right, folder / "refs", {"x": random(2, 6)})
    model = osl.build(text).proto
    for node in model.graph.node:
        if node.output[0] == place:
            node.op_type = wrong
    return model, folder / "refs"


def ended(folder: Path, *words: str) -> int:
    return subprocess.run([sys.executable, *words], cwd=folder, check=False).returncode


@pytest.mark.parametrize("place", ["b", "c", "e", "y"])
def test_against_stored_references_the_wrong_node_is_left(tmp_path, place):
    model, refs = recorded(tmp_path, place, "Softsign")

    found = osl.reduce(model, "mismatch", reference=refs, output=tmp_path / "small")

    assert [node.op_type for node in found.model.proto.graph.node] == ["Softsign"]
    assert (found.reason.kind, found.reason.text) == ("mismatch", "values, wrong node")
    assert found.proved
    assert found.command == ("python", str(tmp_path / "small" / "repro.py"))
    assert ended(tmp_path / "small", "repro.py") == 1


def test_the_script_of_a_mismatch_with_references_ends_with_0_where_the_model_is_right(tmp_path):
    model, refs = recorded(tmp_path, "c", "Softsign")
    osl.reduce(model, "mismatch", reference=refs, output=tmp_path / "small")

    small = onnx.load(tmp_path / "small" / "model.onnx")
    small.graph.node[0].op_type = "Neg"
    small.opset_import[0].version = 21
    onnx.save(small, tmp_path / "small" / "model.onnx")

    assert ended(tmp_path / "small", "repro.py") == 0


def test_a_node_that_only_passes_an_error_on_is_not_what_is_left(tmp_path):
    """References lack what the wrong node makes: both nodes stay, because nothing says which one is wrong."""
    right = osl.build(CHAIN)
    osl.record(right, tmp_path / "refs", {"x": random(2, 6)}, value=["b", "d", "y"])
    model = osl.build(CHAIN).proto
    model.graph.node[2].op_type = "Exp"  # of c, which is not recorded

    found = osl.reduce(model, "mismatch", reference=tmp_path / "refs")

    assert [node.op_type for node in found.model.proto.graph.node] == ["Exp", "Abs"]


def test_references_are_one_side_of_a_mismatch_alone(tmp_path):
    model, refs = recorded(tmp_path, "c", "Softsign")

    with pytest.raises(UsageError, match="one side of a mismatch"):
        osl.reduce(model, "nan", reference=refs)
    with pytest.raises(UsageError, match="one side of a mismatch"):
        osl.reduce(model, "mismatch", reference=refs, a="opt=basic")


def test_several_samples_are_refused_with_what_to_give(tmp_path):
    model, _ = recorded(tmp_path, "c", "Softsign")
    osl.record(osl.build(CHAIN), tmp_path / "two", [{"x": random(2, 6)}, {"x": random(2, 6)}])

    with pytest.raises(UsageError, match="several samples"):
        osl.reduce(model, "mismatch", reference=tmp_path / "two")


def fused() -> onnx.ModelProto:
    """Return a model whose Conv and BatchNormalization the runtime fuses to numbers that overflow."""
    return parsed(
        """net (float[1,4,6,6] x) => (float[1,4,4,4] y) {
            a = Relu (x)  t = Tanh (a)  s = Mul (t, tiny)
            c = Conv (s, w)  n = BatchNormalization (c, g, b, m, v)
            d = Abs (n)  e = Neg (d)  y = Relu (e) }""",
        tiny=np.float32([1e-30]),
        w=random(4, 4, 3, 3) * np.float32(1e30),
        g=np.float32([1e10] * 4),
        b=random(4, seed=1),
        m=random(4, seed=3),
        v=np.ones(4, np.float32),
    )


def test_a_wrong_fusion_of_the_runtime_is_two_nodes_for_the_reason_of_the_first_model(tmp_path):
    found = osl.reduce(fused(), "mismatch", output=tmp_path / "small")

    operators = [node.op_type for node in found.model.proto.graph.node]
    assert operators == ["Conv", "BatchNormalization"]
    assert found.reason.text.endswith(", optimizer")
    assert found.proved
    assert found.command[0] == "python"
    text = (tmp_path / "small" / "README.md").read_text()
    assert "with opt=all, provider=CPUExecutionProvider beside onnxruntime" in text
    assert "with opt=none, " in text


def test_the_settings_that_disable_the_wrong_optimizer_show_no_mismatch(tmp_path):
    with pytest.raises(UsageError, match="does not fail"):
        osl.reduce(fused(), "mismatch", b="opt=all,disabled=ConvBNFusion")


def test_another_runtime_that_errs_is_shown_with_the_command_as_printed(tmp_path, program):
    model = osl.build(
        "net (float[2, 6] x) => (float[2, 6] y) { a = Abs (x)  b = Exp (a)  c = Sqrt (b)  y = Neg (c) }"
    )

    found = osl.reduce(
        model, "mismatch", b=f"runtime={program(FAULTY)}", output=tmp_path / "small", rtol=1e-3
    )
    again = ended(
        tmp_path, "-m", "onnxsurgeon_lite", *found.command[1:], "-o", str(tmp_path / "again")
    )

    assert [node.op_type for node in found.model.proto.graph.node] == ["Sqrt"]
    assert found.reason.text == "values, kernel"
    assert found.command[:2] == ("onnxdbg", "reduce")
    assert found.command[-2:] == ("--rtol", "0.001") or "--rtol" in found.command
    assert (found.proved, again) == (True, 0)


POOLED = """<ir_version: 9, opset_import: ["" : 19]>
pooled (float[1,2,8,8] x) => (float[1,2,H,W] y) {
    a = Relu (x)  t = Tanh (a)
    p = AveragePool <kernel_shape = [3,3], strides = [2,2], ceil_mode = 1, count_include_pad = 1> (t)
    n = Neg (p)  y = Abs (n) }"""


@pytest.mark.parametrize("guilty", ["a", "b"])
def test_of_two_versions_the_node_is_left_that_one_computes_wrongly(
    model_of, older, tmp_path, guilty
):
    sides = {"a": "runtime=ort", "b": "runtime=ort", guilty: f"runtime=ort:python={older}"}

    found = osl.reduce(model_of(POOLED), "mismatch", output=tmp_path / "small", **sides)

    assert [node.op_type for node in found.model.proto.graph.node] == ["AveragePool"]
    assert found.reason.text == "values, kernel"
    assert found.command[0] == "python"
    assert found.proved
    text = (tmp_path / "small" / "README.md").read_text()
    assert "onnxruntime 1.20.1" in text


def test_the_script_judges_by_the_tolerance_of_the_search(tmp_path):
    model, refs = recorded(tmp_path, "b", "Exp")

    osl.reduce(model, "mismatch", reference=refs, output=tmp_path / "small", atol=0.01, rtol=0.02)

    text = (tmp_path / "small" / "repro.py").read_text()
    assert "LIMITS = {'b': (0.02, 0.01)}" in text


def test_a_tolerance_that_no_script_knows_is_that_of_the_printed_command(tmp_path):
    model, refs = recorded(tmp_path, "c", "Softsign")

    found = osl.reduce(
        model, "mismatch", reference=refs, output=tmp_path / "small", allow="1%", atol=1e-5
    )

    assert not (tmp_path / "small" / "repro.py").exists()
    assert found.proved
    assert ended(tmp_path, "-m", "onnxsurgeon_lite", *found.command[1:], "-o", "again") == 0


def test_an_answer_of_another_tolerance_is_not_resumed(tmp_path):
    model, refs = recorded(tmp_path, "c", "Softsign")
    journal = {"journal": tmp_path / "journal"}
    osl.reduce(model, "mismatch", reference=refs, **journal)

    with pytest.raises(UsageError, match="belongs to another"):
        osl.reduce(model, "mismatch", reference=refs, rtol=0.1, resume=True, **journal)
