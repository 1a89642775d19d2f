"""Runtimes other than onnxruntime, each behind the same functions; operators that a runtime lacks."""

from functools import partial
from importlib.util import find_spec

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch

import onnxsurgeon_lite as osl
from kit.bisecting import parsed
from kit.faulty_runtime import FAULTY
from onnxsurgeon_lite.debug.causes.repairing import work_around
from onnxsurgeon_lite.errors import (
    NoKernel,
    RuntimeCrash,
    RuntimeFailure,
    RuntimeTimeout,
    UsageError,
)
from onnxsurgeon_lite.runtime.child import Child
from onnxsurgeon_lite.runtime.choice import runtime_of
from onnxsurgeon_lite.runtime.options import RuntimeOptions, named, with_settings, words_of
from onnxsurgeon_lite.runtime.session import Runtime

CHAIN = """
    chain (float[2,3] x) => (float[2,3] y) { a = Neg(x) b = Exp(a) c = Sqrt(b) y = Relu(c) }
"""
BFLOAT16 = """
    half (float[2,4] x) => (float[2,4] y) {
        a = Cast<to=16>(x) t = Transpose(a) b = MatMul(a, t) c = MatMul(b, a) d = Softmax(c) y = Cast<to=1>(d)
    }
"""
X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


def test_settings_and_a_runtime_are_written_alike():
    usual = RuntimeOptions()

    device = named(usual, "openvino:provider=GPU,threads=2,CACHE_DIR=a\\,b")
    assert device == with_settings(usual, "runtime=openvino,provider=GPU,threads=2,CACHE_DIR=a\\,b")
    assert (device.runtime, device.provider, device.threads) == ("openvino", "GPU", 2)
    assert device.settings == (("CACHE_DIR", "a,b"),)
    assert named(usual, "command:./a b;c,inner=no").settings == (
        ("target", "./a b;c"),
        ("inner", "no"),
    )
    assert named(usual, "ort") == usual
    for text in ("command:target=./a b;c,inner=no", "ort:session.x=a\\,b,else=reference"):
        assert words_of(named(usual, text)) == ["--runtime", text]
    with pytest.raises(UsageError, match="colour=red is no setting"):
        named(usual, "ort:colour=red")


def test_the_evaluator_computes_what_onnxruntime_cannot(model_of):
    model = model_of(BFLOAT16)
    feeds = {"x": np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)}
    a = feeds["x"].astype(ml_dtypes.bfloat16).astype(np.float32)
    logits = a @ a.T @ a
    wanted = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)

    with pytest.raises(NoKernel, match="cannot run MatMul"):
        osl.run(model, feeds)
    whole = osl.run(model, feeds, runtime="reference")["y"]
    filled = osl.run(model, feeds, ["b", "y"], runtime="ort:else=reference")

    np.testing.assert_allclose(whole, wanted, rtol=0.05)
    np.testing.assert_array_equal(filled["y"], whole)
    assert filled["b"].dtype == ml_dtypes.bfloat16


def test_a_provider_that_is_missing_or_does_not_start_is_told(model_of, monkeypatch):
    model = model_of(CHAIN)
    with pytest.raises(RuntimeFailure, match="no 'QNNExecutionProvider'") as caught:
        osl.run(model, {"x": X}, provider="qnn")
    assert "'CPUExecutionProvider'" in caught.value.hint

    log = "EP Error /onnxruntime/a.cc:1 F(const X&) Invalid option: nosuch when using ['Q']\nFalling back\n"
    there = {"providers": ["QNNExecutionProvider"]}
    monkeypatch.setattr(Runtime, "about", lambda _: there)
    monkeypatch.setattr(Child, "log", lambda _: log)
    with pytest.raises(RuntimeFailure, match="does not start: Invalid option: nosuch\n"):
        osl.run(model, {"x": X}, provider="qnn")


def test_the_evaluator_gathers_along_an_axis_of_any_size(model_of):
    text = "g (float[2,{0}] x, int64[{1}] i) => (float[{1}] y) {{ y = GatherElements<axis = {2}>(x, i) }}"
    x = np.random.default_rng(0).standard_normal((2, 100)).astype(np.float32)
    for i, axis in (([[99, -1, 70]], 1), ([[1, 0], [0, 1], [1, -1]], 0), ([[7], [99]], 1)):
        model = model_of(text.format(100, str(np.shape(i)).strip("()").replace(" ", ""), axis))
        feeds = {"x": x, "i": np.array(i)}
        right = osl.run(model, feeds)["y"]

        np.testing.assert_array_equal(osl.run(model, feeds, runtime="reference")["y"], right)


def test_a_program_that_errs_in_one_operator_is_found_out_by_cutting(model_of, program):
    model = model_of(CHAIN)
    right = osl.run(model, {"x": X}, ["a", "b", "c", "y"])

    found = osl.bisect(model, {"x": X, **right}, runtime=program(FAULTY) + ",inner=no", quick=True)

    assert [c.op_type for c in found.culprits] == ["Sqrt"]


def test_an_error_of_a_program_inside_a_loop_is_found_where_it_is_made(model_of, program):
    model = model_of("""
        steps (float[2,3] x) => (float[2,3] y) {
            times = Constant<value = int64 {4}>()
            yes = Constant<value = bool {1}>()
            l = Loop(times, yes, x) <
                body = b (int64 i, bool go, float[2,3] s) => (bool still, float[2,3] next) {
                    e = Exp(s) r = Sqrt(e) next = Tanh(r) still = Identity(go)
                }
            >
            y = Neg(l)
        }
    """)

    wrong = f"runtime={program(FAULTY)}"
    found = osl.bisect(model, a="runtime=ort", b=wrong, feeds={"x": X}, quick=True)

    (culprit,) = found.culprits
    assert [(c.op_type, c.id) for c in culprit.inside] == [("Sqrt", "@2/body/@1")]


def test_an_operator_that_a_program_gets_wrong_is_worked_around(model_of, program):
    model = model_of(
        "g (float[2,3] x) => (float[2,3] y) { s = HardSigmoid<alpha = 0.16666667> (x) y = Mul(x, s) }"
    )
    wrong = FAULTY.replace("op_sqrt", "op_hard_sigmoid").replace("Sqrt", "HardSigmoid")
    wrong = wrong.replace("self, x)", "self, x, **given)")
    right = osl.run(model, {"x": X}, ["s", "y"])
    again = partial(osl.bisect, reference={"x": X, **right}, runtime=program(wrong), cause=False)

    result = again(model)
    work_around(model, result, again)

    (culprit,) = result.culprits
    assert [finding.verdict for finding in culprit.findings] == ["kernel"]
    assert culprit.causes[0].repair[1:3] == ["edit", "rewrite"]
    assert culprit.causes[0].repair[-1] == "hard-swish"


def test_an_error_of_a_program_that_a_normalization_hides_is_found_where_the_other_side_fuses(
    program,
):
    weights = {name: np.random.default_rng(1).normal(size=8).astype(np.float32) for name in "gb"}
    model = parsed(
        """net (float[1,2,8] x) => (float[1,2,8] y) {
            r = Relu(x) a = Add(r, x) n = LayerNormalization(a, g, b) y = Neg(n)
        }""",
        **weights,
    )
    adding = FAULTY.replace("op_sqrt", "op_add").replace("Sqrt", "Add").replace("x)", "x, y)")
    wrong = program(adding.replace("1.01),", "1) + np.float32(0.1),"))

    found = osl.bisect(
        model, a="runtime=ort", b=f"runtime={wrong}", feeds={"x": np.eye(2, 8)[None]}
    )

    assert [(c.value, c.op_type) for c in found.culprits] == [("a", "Add")]
    assert found.masked == ["a"]
    assert found.outputs["y"].match


@pytest.mark.parametrize(
    ("does", "kind", "says"),
    [
        ("echo it is broken >&2; exit 3", RuntimeFailure, "exit code 3: it is broken"),
        ("kill -SEGV $$", RuntimeCrash, "SIGSEGV"),
        ("sh -c 'kill -SEGV $$'", RuntimeCrash, "SIGSEGV"),
        ("sleep 600", RuntimeTimeout, "within 2 seconds"),
        ("true", RuntimeFailure, "gave no 'y'"),
        ("echo nonsense > $1/values.npz", RuntimeFailure, "values.npz"),
    ],
)
def test_what_a_program_may_do(model_of, program, does, kind, says):
    model = model_of("one (float[2,3] x) => (float[2,3] y) { y = Neg(x) }")
    timeout = 2 if kind is RuntimeTimeout else None

    with pytest.raises(kind, match=says):
        osl.run(model, {"x": X}, runtime=program(f"#!/bin/sh\n{does}\n"), timeout=timeout)


def test_no_shell_reads_names(tmp_path, program, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "y; touch owned; $(touch owned) `touch owned` ../../owned"
    node = onnx.helper.make_node("Neg", ["x"], [name])
    kinds = [
        onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2, 3]) for n in ("x", name)
    ]
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", kinds[:1], kinds[1:]))

    found = osl.run(model, {"x": X}, runtime=program(FAULTY, "a $(touch owned); 'b'"))

    np.testing.assert_array_equal(found[name], -X)
    assert not list(tmp_path.rglob("owned*"))


def test_a_partial_answer_is_completed_by_cutting(model_of, program):
    first_alone = FAULTY.replace('["wanted"]', '["wanted"][:1]').replace("1.01", "1.0")

    found = osl.run(model_of(CHAIN), {"x": X}, ["a", "c"], runtime=program(first_alone))

    np.testing.assert_allclose(found["c"], np.exp(-X / 2), rtol=1e-5)
    assert [*found] == ["a", "c"]


def test_a_program_that_is_not_there(model_of):
    for name in ("nosuch", "command:./nosuch"):
        with pytest.raises(RuntimeFailure, match="there is no .* '(./)?nosuch'"):
            osl.run(model_of(CHAIN), {"x": X}, runtime=name)


OPS = '''
import numpy as np


def my_add(a, b, factor=2.0):
    return np.float32(factor) * a + b


def deform_conv2d(x, weight, offset):
    """One image, one group, stride 1, no padding: pixels are read where the offsets say, between them linearly."""
    _, channels, height, width = x.shape
    out, _, high, wide = weight.shape
    rows, columns = np.meshgrid(*map(np.arange, offset.shape[2:]), indexing="ij")
    y = np.zeros((out, *rows.shape), x.dtype)
    for k in range(high * wide):
        down, right = rows + k // wide + offset[0, 2 * k], columns + k % wide + offset[0, 2 * k + 1]
        patch = np.zeros((channels, *rows.shape), x.dtype)
        for i in (0, 1):
            for j in (0, 1):
                r, c = np.floor(down).astype(int) + i, np.floor(right).astype(int) + j
                share = (1 - abs(down - r)) * (1 - abs(right - c))
                inside = (r >= 0) & (r < height) & (c >= 0) & (c < width)
                patch += x[0][:, r.clip(0, height - 1), c.clip(0, width - 1)] * share * inside
        y += np.einsum("oc,chw->ohw", weight[:, :, k // wide, k % wide], patch)
    return y[None]


OPS = {"own::Asinh": np.arcsinh, "own::my_add": my_add, "own::deform_conv2d": deform_conv2d}
'''
HEADER = '<ir_version: 10, opset_import: ["" : 21, "own" : 1]>\n'
BOTH = f"""{HEADER} both (float[2,3] x) => (float[2,3] y) {{
    a = Neg(x) s = own.Asinh(a) m = own.my_add<factor = 3.0>(s, x) y = Relu(m)
}}"""
INSIDE = f"""{HEADER.replace("1]", '1, "local" : 1]')} inside (float[2,3] x, bool cond) => (float[2,3] y) {{
    a = Abs(x)
    b = If(cond) <
        then_branch = yes () => (float[2,3] t) {{ u = own.Asinh(a) t = Neg(u) }},
        else_branch = no () => (float[2,3] e) {{ e = Identity(a) }}
    >
    c = local.twice(b)
    y = Neg(c)
}}
<domain: "local", opset_import: ["own" : 1]> twice (v) => (w) {{ w = own.my_add(v, v) }}
"""


@pytest.fixture
def own_ops(tmp_path):
    path = tmp_path / "own_ops.py"
    path.write_text(OPS)
    return path


def test_operators_in_python_are_those_of_torch(model_of, own_ops):
    feeds = {"x": X}
    asinh = torch.asinh(-torch.tensor(X))

    found = osl.run(model_of(BOTH), feeds, ["s", "m", "y"], ops=own_ops)

    np.testing.assert_allclose(found["s"], asinh, rtol=1e-6)
    np.testing.assert_allclose(found["m"], torch.add(torch.tensor(X), asinh, alpha=3), rtol=1e-6)
    np.testing.assert_allclose(found["y"], torch.relu(torch.tensor(found["m"])), rtol=1e-6)


def test_a_deformed_convolution_in_python_is_that_of_torch(model_of, own_ops):
    random = np.random.default_rng(0)
    shapes = {"x": (1, 2, 6, 6), "w": (3, 2, 2, 2), "o": (1, 8, 5, 5)}
    feeds = {n: random.normal(size=shape).astype(np.float32) for n, shape in shapes.items()}
    model = model_of(
        f"{HEADER} d (float[1,2,6,6] x, float[3,2,2,2] w, float[1,8,5,5] o) => (float[1,3,5,5] y)"
        " { n = Neg(x) y = own.deform_conv2d(n, w, o) }"
    )

    found = osl.run(model, feeds, ops=own_ops)["y"]

    x, w, o = (torch.tensor(feeds[name]) for name in "xwo")
    grid = torch.stack(torch.meshgrid(torch.arange(5.0), torch.arange(5.0), indexing="ij"))
    wanted = torch.zeros(1, 3, 5, 5)
    for k in range(4):
        place = grid + torch.tensor([k // 2, k % 2])[:, None, None] + o[0, 2 * k : 2 * k + 2]
        scaled = (place.flip(0) / 2.5 - 1).permute(1, 2, 0)[None]  # (column, row) in -1 .. 1
        sampled = torch.nn.functional.grid_sample(-x, scaled, align_corners=True)
        wanted += torch.einsum("oc,nchw->nohw", w[:, :, k // 2, k % 2], sampled)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_operators_in_python_stand_in_branches_and_functions(model_of, own_ops):
    found = osl.run(model_of(INSIDE), {"x": X, "cond": np.array(True)}, ["b", "y"], ops=own_ops)

    np.testing.assert_allclose(found["b"], -np.arcsinh(abs(X)), rtol=1e-6)
    np.testing.assert_allclose(found["y"], 3 * np.arcsinh(abs(X)), rtol=1e-6)


def test_operators_in_python_work_wherever_models_run(model_of, own_ops, tmp_path):
    model, wrong = model_of(BOTH), tmp_path / "wrong.py"
    wrong.write_text(OPS.replace("factor) * a + b", "factor) * a - b"))
    how = RuntimeOptions(opt="none", ops=str(own_ops))

    assert osl.record(model, tmp_path / "refs", {"x": X}, ops=own_ops).values == 5
    assert osl.bisect(model, tmp_path / "refs", ops=own_ops).verdict == "agrees"
    found = osl.bisect(model, tmp_path / "refs", ops=wrong, cause=False)
    assert [c.op_type for c in found.culprits] == ["my_add"]
    assert osl.rename(model, {"m": "sum"}, verify=True, ops=own_ops).changed
    with osl.Debugger(model, {"x": X}, runtime=runtime_of(how)) as debugger:
        debugger.run()
        np.testing.assert_allclose(debugger["s"], np.arcsinh(-X), rtol=1e-6)


def test_a_file_of_operators_that_fails_says_so(model_of, tmp_path):
    file = tmp_path / "ops.py"
    for text, says in (
        ("nothing = 1", "has no OPS"),
        ("def f(x): raise OSError('no device')\nOPS = {'own::Asinh': f}", "no device"),
        ("import os\nOPS = {'own::Asinh': lambda x: os._exit(7)}", "exit code 7"),
    ):
        file.write_text(text)
        with pytest.raises(RuntimeFailure, match=says):
            osl.run(model_of(BOTH), {"x": X}, ["s"], ops=file)


NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.gelu = torch.nn.Linear(3, 8), torch.nn.GELU()

    def forward(self, x):
        return torch.exp(self.gelu(self.up(x)))

def factory():
    torch.manual_seed(0)
    return Net(), (torch.randn(2, 3),)
"""


def test_the_module_itself_eager_and_compiled(model_of, tmp_path):
    (tmp_path / "net.py").write_text(NET)
    space = {}
    exec(NET, space)
    up = space["factory"]()[0].up
    text = """<ir_version: 10, opset_import: ["" : 21]> net (float[2,3] x) => (float[2,8] y) {{
        u = Gemm<transB = 1>(x, w, b) g = Gelu<approximate = "{}">(u) y = Exp(g)
    }}"""
    models = []
    for number, how in enumerate(("none", "tanh")):
        proto = onnx.parser.parse_model(text.format(how))
        for name, tensor in (("w", up.weight), ("b", up.bias)):
            proto.graph.initializer.append(
                onnx.numpy_helper.from_array(tensor.detach().numpy(), name)
            )
        models.append(model_of(proto, f"{number}.onnx"))
    eager = f"runtime=torch:{tmp_path}/net.py:factory"

    found = osl.bisect(models[1], a=eager, cause=False, rtol=1e-6, atol=1e-6)
    assert [c.op_type for c in found.culprits] == ["Gelu"]
    for model, export in zip(models, ("match", "MISMATCH"), strict=True):
        found = osl.bisect(model, a=f"{eager},compile=eager", quick=True, rtol=1e-6, atol=1e-6)
        assert found.verdict == ("agrees" if export == "match" else "mismatch")
        beside = found.beside_eager["y"]
        assert (beside.compiled.max_abs, beside.compiled.match) == (0, True)
        assert beside.export.match == (export == "match")
        assert 1 < beside.eager < 10
        *_, titles, _, row = str(found).splitlines()
        assert titles.split() == ["output", "eager", "compiled", "export", "allowed"]
        assert row.split()[:6] == ["y", "up", "to", f"{beside.eager:.6g}", "0", "match"]
        assert row.split()[7] == export
    with pytest.raises(UsageError, match="gives references"):
        osl.run(models[0], {"x": X}, runtime=eager.removeprefix("runtime="))


BRANCHES = """
    branches (float[2,3] x, bool cond) => (float[2,3] y) <float[3,3] w> {
        a = MatMul(x, w)
        b = If(cond) <
            then_branch = yes () => (float[2,3] t) { t = Exp(a) },
            else_branch = no () => (float[2,3] e) { e = Neg(a) }
        >
        y = Softmax(b)
    }
"""


@pytest.mark.skipif(find_spec("openvino") is None, reason="pip install openvino")
def test_openvino_is_searched_and_held_against_onnxruntime(model_of):
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>\n{BRANCHES}')
    weights = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    right = model_of(proto, "right.onnx")
    feeds = {"x": X, "cond": np.array(True)}
    values = osl.run(right, feeds, ["a", "b", "y"])
    faulty = osl.set_op(right, nodes=["@2"], op_type="LogSoftmax").model
    exact = "openvino:INFERENCE_PRECISION_HINT=f32"

    np.testing.assert_allclose(osl.run(right, feeds, runtime=exact)["y"], values["y"], rtol=1e-4)
    found = osl.bisect(faulty, {**feeds, **values}, runtime=exact, quick=True)
    assert [c.op_type for c in found.culprits] == ["LogSoftmax"]
    assert found.look == "unoptimized"


REFUSED = {
    "y = other.domain.Thing(x)": "the runtime has no operator other.domain:Thing (node @0)",
    "n = NonZero(x) y = StringSplit(x)": "the runtime has no operator ai.onnx:StringSplit (node @1)",
    "y = Conv<kernel_shape=[1,1]>(x, w)": "the runtime refuses the model: Conv '@0': Data batch channel count (3) "
    "does not match filter input channel count (5).",
}


@pytest.mark.skipif(find_spec("openvino") is None, reason="pip install openvino")
@pytest.mark.parametrize("nodes", REFUSED)
def test_what_openvino_refuses_is_said_in_a_sentence(nodes):
    model = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 20, "other.domain": 1]>
        refused (float[1,3,2,2] x) => (float[1,3,2,2] y) {{ {nodes} }}
    """)
    model.graph.initializer.append(
        onnx.numpy_helper.from_array(np.ones((3, 5, 1, 1), np.float32), "w")
    )

    with pytest.raises(RuntimeFailure) as caught:
        osl.run(model, runtime="openvino")

    assert caught.value.message == REFUSED[nodes]
    assert (
        "--ops" if "no operator" in REFUSED[nodes] else "check MODEL --run"
    ) in caught.value.hint


@pytest.mark.skipif(find_spec("openvino") is None, reason="pip install openvino")
def test_a_property_that_openvino_has_not_is_no_fault_of_the_model(model_of):
    with pytest.raises(RuntimeFailure, match="Unsupported property NO_SUCH by CPU") as caught:
        osl.run(model_of(CHAIN), runtime="openvino:NO_SUCH=1")

    assert "its properties" in caught.value.hint


def test_an_operator_that_the_evaluator_lacks_is_named():
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 20, "other.domain": 1]>
        lacking (float[2] x) => (float[2] y) { y = other.domain.Thing(x) }
    """)

    with pytest.raises(NoKernel, match="no operator other.domain:Thing") as caught:
        osl.run(model, runtime="reference")

    assert caught.value.hint.startswith("give a function with --ops")


def test_what_falls_back_to_another_provider_is_said(model_of):
    found = osl.run(model_of(CHAIN), {"x": X}, opt="none", provider="AzureExecutionProvider")

    assert [note for note in found.told if "ran" in note] == [
        "CPUExecutionProvider ran 4 of the nodes: '@0', '@1', '@2', '@3'"
    ]
