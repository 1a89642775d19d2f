"""What the model that computed the references has otherwise: its own nodes are the repair."""

import numpy as np
import onnx
import pytest
import torch

import onnxsurgeon_lite as osl
from kit.causes import model, numbers

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the exporter that traces

HEAD = "net (float[3,8] x, float[3,8] other) => (float[3,8] y) { a = Tanh (x) "
SAID = "is not computed as the references are: "
WRONG = {
    "without Sub and Mul, which they have": (
        "y = Relu (a)",
        "s = Sub (a, other) m = Mul (s, a) y = Relu (m)",
    ),
    "with Cos, where they have Asinh and Erf": (
        "c = Cos (a) y = Mul (c, x)",
        "s = Asinh (a) t = Erf (s) y = Mul (t, x)",
    ),
    "by the same operators, from other values": (
        "m = Sub (a, x) n = Sub (m, other) s = Sin (n) y = Mul (s, m)",
        "m = Sub (x, other) n = Sub (a, m) s = Sin (a) y = Mul (n, s)",
    ),
}


@pytest.mark.parametrize("said", WRONG)
def test_the_nodes_of_the_other_model_are_the_repair(said, tmp_path):
    wrong, right = (model(f"{HEAD}{nodes} }}") for nodes in WRONG[said])
    feeds = {"x": numbers(3, 8, seed=1), "other": numbers(3, 8, seed=2)}

    result = osl.bisect(wrong, against=right, feeds=feeds, repair=tmp_path / "fixed.onnx")

    assert f"{SAID}{said}; with their nodes the " in result.culprits[0].causes[0].sentence
    assert result.repair.verdict == "agrees"
    fresh = {"x": numbers(3, 8, seed=3), "other": numbers(3, 8, seed=4)}
    assert osl.compare_sets(osl.run(tmp_path / "fixed.onnx", fresh), osl.run(right, fresh)).match


def test_nodes_that_others_read_stay_beside_those_of_the_other_model(tmp_path):
    text = "net (float[3,8] x) => (float[3,8] y, float[3,8] z) {{ {} z = Sinh (s) }}"
    wrong = model(text.format("s = Sin (x) t = Cos (s) y = Erf (t)"))
    right = model(text.format("s = Sin (x) u = Mul (x, x) v = Sub (u, s) y = Erf (v)"))
    feeds = {"x": numbers(3, 8, seed=1)}

    result = osl.bisect(wrong, against=right, feeds=feeds, repair=tmp_path / "fixed.onnx")

    assert "with Cos, where they have Mul and Sub" in result.culprits[0].causes[0].sentence
    fixed = onnx.load(tmp_path / "fixed.onnx")
    assert [node.op_type for node in fixed.graph.node if "s" in node.input] == ["Sub", "Sinh"]
    assert result.repair.fresh == "agrees on fresh inputs"


def test_large_constants_of_the_other_model_are_read_from_its_own_file(tmp_path):
    """A structure in memory refers to the numbers in a file; the model that is edited knows its own files alone."""
    table = onnx.helper.make_node(
        "Constant", [], ["t"], value=onnx.numpy_helper.from_array(numbers(32, 32, seed=5))
    )
    text = "net (float[32,32] x) => (float[32,32] y) {{ a = Sin (x) {} y = Erf (b) }}"
    wrong = model(text.format("b = Cos (a)"))
    right = model(text.format("s = Sub (a, x) b = MatMul (s, x)"))
    right.graph.node.insert(0, table)
    right.graph.node[2].input[1] = right.graph.node[3].input[1] = "t"
    onnx.save(wrong, tmp_path / "wrong.onnx")
    onnx.save(right, tmp_path / "right.onnx")
    feeds = {"x": numbers(32, 32, seed=1)}

    result = osl.bisect(tmp_path / "wrong.onnx", against=tmp_path / "right.onnx", feeds=feeds)

    sentence = result.culprits[0].causes[0].sentence
    assert "with Cos, where they have Sub and MatMul" in sentence


class Right(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(8, 8), torch.nn.Linear(8, 4)

    def forward(self, x, gate):
        h = self.a(x)
        return self.b(h * torch.sigmoid(gate) - torch.atan(h) * h.cumsum(-1))


class Wrong(Right):
    def forward(self, x, gate):
        h = self.a(x)
        return self.b(h * torch.sigmoid(gate))


@pytest.fixture
def exported(tmp_path):
    """(The right module, its arguments, the wrong one as a file, its feeds)."""
    torch.manual_seed(0)
    right, wrong = Right(), Wrong()
    wrong.load_state_dict(right.state_dict())
    args = torch.randn(3, 8), torch.randn(3, 8)
    names = ["values", "gates"]
    torch.onnx.export(wrong, args, tmp_path / "wrong.onnx", input_names=names, dynamo=False)
    return right, args, tmp_path / "wrong.onnx", dict(zip(names, args, strict=True))


def test_a_recording_of_a_module_tells_what_is_missing(exported, tmp_path):
    right, args, path, feeds = exported
    known = osl.record((right, args), tmp_path / "refs")

    result = osl.bisect(path, known, feeds=feeds, repair=tmp_path / "fixed.onnx")

    (cause,) = result.culprits[0].causes
    assert "without Atan and CumSum and Mul and Sub, which they have" in cause.sentence
    assert result.repair.fresh == "agrees on fresh inputs"
    fresh = [torch.randn(3, 8), torch.randn(3, 8)]
    made = osl.run(tmp_path / "fixed.onnx", dict(zip(feeds, fresh, strict=True)))
    with torch.no_grad():
        np.testing.assert_allclose(*made.values(), right(*fresh), rtol=1e-4, atol=1e-5)


class Activated(torch.nn.Module):
    def __init__(self, act):
        super().__init__()
        self.a, self.act = torch.nn.Linear(8, 8), act

    def forward(self, x):
        return self.act(self.a(x)) + x


def test_a_known_mistake_comes_before_the_nodes_of_the_module(tmp_path):
    torch.manual_seed(0)
    right, wrong = Activated(torch.nn.GELU()), Activated(torch.nn.SiLU())
    wrong.load_state_dict(right.state_dict())
    args = (torch.randn(3, 8),)
    torch.onnx.export(wrong, args, tmp_path / "wrong.onnx", input_names=["x"], dynamo=False)

    result = osl.bisect(tmp_path / "wrong.onnx", osl.record((right, args), tmp_path / "refs"))

    assert "is SiLU instead of GELU (erf)" in result.culprits[0].causes[0].sentence


def test_without_the_module_as_onnx_the_values_alone_are_known(exported, tmp_path):
    right, args, path, feeds = exported
    known = osl.record((right, args), tmp_path / "refs", program=False)

    result = osl.bisect(path, known, feeds=feeds, seconds=3)

    assert not (tmp_path / "refs" / "program.onnx").exists()
    assert not result.culprits[0].causes


def test_a_module_as_onnx_that_returns_other_values_is_not_used(exported, tmp_path):
    right, args, path, feeds = exported
    known = osl.record((right, args), tmp_path / "refs")
    osl.set_constant(tmp_path / "refs" / "program.onnx", "a.bias", np.ones(8, np.float32)).save(
        tmp_path / "refs" / "program.onnx", force=True
    )

    result = osl.bisect(path, known, feeds=feeds, seconds=3)

    assert not result.culprits[0].causes
    assert "'/a/Gemm_output_0'" not in str(result.notes)
