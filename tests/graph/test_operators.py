"""The operators of onnxruntime are known: their schemas, and the types of what they make."""

import os
import subprocess
import sys

import numpy as np
import pytest

import onnxsurgeon_lite as osl
from kit.packages import feeds, package, quantized
from onnxsurgeon_lite.passes.build import parse_text
from onnxsurgeon_lite.tensors import dtypes

MODELS = {"float": package, "int4": quantized}


@pytest.mark.parametrize("kind", MODELS)
def test_a_package_is_valid_and_what_it_needs_is_named(kind):
    result = osl.check(MODELS[kind]())

    assert result.valid
    assert "ai.onnx:SimplifiedLayerNormalization" in result.needs
    assert "com.microsoft:GroupQueryAttention" in result.needs
    assert ("com.microsoft:MatMulNBits" in result.needs) == (kind == "int4")


def test_what_a_model_needs_is_named_after_its_operators_are_registered(tmp_path):
    osl.save(package(), tmp_path / "m.onnx")
    code = (
        "import sys, onnxsurgeon_lite as osl\n"
        "from onnxsurgeon_lite.graph.operators import register\n"
        "register()\nprint(osl.check(sys.argv[1]).needs)"
    )

    command = [sys.executable, "-c", code, tmp_path / "m.onnx"]
    done = subprocess.run(command, capture_output=True, text=True)

    assert "ai.onnx:SimplifiedLayerNormalization" in done.stdout, done.stderr


def test_a_model_of_onnx_alone_needs_nothing():
    model = parse_text("g (float[2] x) => (float[2] y) { y = Relu(x) }")

    assert osl.check(model).needs == ()


def test_a_function_with_the_name_of_an_operator_of_onnxruntime_needs_nothing():
    model = parse_text(
        '<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>\n'
        "g (float[2] x) => (float[2] y) { y = com.microsoft.FastGelu(x) }\n"
        '<domain: "com.microsoft", opset_import: ["" : 18]>\nFastGelu (x) => (y) { y = Relu(x) }'
    )

    assert osl.check(model).needs == ()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda node: node.attribute.add(name="no_such", type=2), "no_such"),
        (lambda node: node.attribute.pop(0), "num_heads"),
        (lambda node: node.input.__delitem__(slice(1, None)), "input size"),
    ],
)
def test_what_onnxruntime_would_refuse_is_invalid(change, problem):
    model = package()
    change(next(n for n in model.proto.graph.node if n.op_type == "GroupQueryAttention"))

    result = osl.check(model)

    assert not result.valid
    assert problem in result.problem


@pytest.mark.parametrize("past", [0, 5])
@pytest.mark.parametrize("kind", MODELS)
def test_inferred_types_are_those_of_a_run(kind, past):
    model = osl.infer(MODELS[kind]()).model
    known = {info.name: info.type.tensor_type for info in model.proto.graph.value_info}
    made = [name for node in model.proto.graph.node for name in node.output if name]
    outputs = {info.name for info in model.proto.graph.output}
    assert set(made) <= known.keys() | outputs

    shown = osl.expose(model, sorted(known)).model
    found = osl.run(shown, feeds(past=past))

    for name in known:
        sizes = [dim.dim_value or None for dim in known[name].shape.dim]
        array = np.asarray(found[name])
        assert known[name].elem_type == dtypes.data_type_of_numpy(array.dtype), name
        assert len(sizes) == array.ndim, name
        assert all(a in (None, b) for a, b in zip(sizes, array.shape, strict=True)), name


CASES = {
    "FastGelu": "(float[2, N, 8] x, float[8] b) => (y) { y = com.microsoft.FastGelu(x, b) }",
    "QuickGelu": "(float[2, N, 8] x) => (y) { y = com.microsoft.QuickGelu(x) }",
    "BiasGelu": "(float[2, N, 8] x, float[8] b) => (y) { y = com.microsoft.BiasGelu(x, b) }",
    "SkipLayerNormalization": """(float[2, N, 8] x, float[2, N, 8] s, float[8] g) => (y) {
        y, , , sum = com.microsoft.SkipLayerNormalization(x, s, g) }""",
    "MultiHeadAttention": """(float[2, N, 8] q, float[2, M, 8] k, float[2, M, 8] v) => (y) {
        y = com.microsoft.MultiHeadAttention<num_heads = 2>(q, k, v) }""",
    "GroupQueryAttention": """(float[1, N, 32] q, float[1, N, 16] k, float[1, N, 16] v,
        int32[1] last, int32[1] total) => (y, pk, pv) {
        y, pk, pv = com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 2>(
            q, k, v, , , last, total) }""",
}


@pytest.mark.parametrize("operator", CASES)
def test_each_rule_of_types_agrees_with_the_kernel(operator):
    header = '<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>\ng '
    model = osl.infer(parse_text(header + CASES[operator])).model
    sizes = {"N": 3, "M": 3}
    given = {
        info.name: np.full(
            [sizes.get(d.dim_param, d.dim_value) for d in info.type.tensor_type.shape.dim],
            {"last": 2, "total": 3}.get(info.name, 0.5),
            dtypes.numpy_dtype(info.type.tensor_type.elem_type),
        )
        for info in model.proto.graph.input
    }

    found = osl.run(model, given)

    for info in model.proto.graph.output:
        dims = info.type.tensor_type.shape.dim
        inferred = [sizes.get(d.dim_param, d.dim_value) or None for d in dims]
        assert any(inferred)
        shape = found[info.name].shape
        assert all(a in (None, b) for a, b in zip(inferred, shape, strict=True)), inferred


def test_attributes_of_these_operators_have_their_types():
    with pytest.raises(osl.SurgeonError, match="'num_heads' of GroupQueryAttention has type int"):
        osl.set_attr(package(), "heads", attributes={"num_heads": 2.5})

    model = osl.set_attr(package(), "heads", attributes={"softcap": 3}).model

    node = next(n for n in model.proto.graph.node if n.op_type == "GroupQueryAttention")
    assert next(a.f for a in node.attribute if a.name == "softcap") == 3.0


def test_a_newer_operator_than_this_onnxruntime_has_can_be_edited():
    model = parse_text(
        '<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>\n'
        "g (float[2] x) => (float[2] y) { y = com.microsoft.OfNextYear<old = 1>(x) }"
    )

    changed = osl.set_attr(model, "y", attributes={"old": 2}).model

    assert changed.proto.graph.node[0].attribute[0].i == 2


def test_onnxruntime_is_asked_once_and_a_damaged_answer_is_asked_for_again(tmp_path):
    code = "from onnxsurgeon_lite.graph import operators as o; print(sorted(o.register()))"

    def known() -> str:
        words = [sys.executable, "-c", code]
        environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
        return subprocess.run(words, env=environment, capture_output=True, check=True).stdout

    first = known()
    (kept,) = (tmp_path / "onnxdbg").iterdir()
    right = kept.read_text()
    kept.write_text("[]")
    from_the_file = known()
    kept.write_text("[{")

    assert b"GroupQueryAttention" in first
    assert b"'Relu'" not in first
    assert from_the_file.split() == [b"[]"]
    assert known() == first
    assert kept.read_text() == right


def test_the_reference_evaluator_can_be_imported_after_them(tmp_path):
    osl.save(package(), tmp_path / "m.onnx")
    code = "import sys, onnxsurgeon_lite as osl\nosl.check(sys.argv[1])\nimport onnx.reference"

    done = subprocess.run([sys.executable, "-c", code, tmp_path / "m.onnx"], capture_output=True)

    assert done.returncode == 0, done.stderr.decode()
