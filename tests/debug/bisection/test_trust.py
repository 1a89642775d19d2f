"""What is said is true: references of a user's own hooks, masked faults, nothing compared."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import ModelProto, helper, numpy_helper
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit.bisecting import Case, altered, half_model, parsed, random
from kit.causes import numbers
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import ReferenceSetError, RuntimeTimeout, UsageError


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1 = torch.nn.LayerNorm(16)
        self.ff = torch.nn.Sequential(
            torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 16)
        )

    def forward(self, x):
        return x + self.ff(self.norm1(x))


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(3))
        self.head = torch.nn.Linear(16, 5)
        for parameter in self.parameters():  # exporters share equal weights
            torch.nn.init.normal_(parameter, std=0.3)

    def forward(self, given):
        for layer in self.layers:
            given = layer(given)
        return self.head(given)


def stack() -> torch.nn.Module:
    layers = torch.nn.Conv1d(4, 8, 3), torch.nn.ReLU(), torch.nn.Conv1d(8, 8, 3), torch.nn.ReLU()
    return torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(48, 5))


def hooked(module: torch.nn.Module, given: torch.Tensor, folder: Path, dynamo: bool) -> ModelProto:
    """Export a module; store what its modules return, as forward hooks see it."""
    stored: dict[str, np.ndarray] = {}
    for name, part in module.eval().named_modules():
        part.register_forward_hook(
            lambda *seen, name=name: stored.__setitem__(name, seen[2].detach().numpy())
        )
    module(given)
    del stored[""]
    np.savez(folder / "hooks.npz", **stored)
    np.savez(folder / "feeds.npz", given=given.numpy())
    for part in module.modules():
        part._forward_hooks.clear()
    names = {"input_names": ["given"], "opset_version": 18, "external_data": False}
    torch.onnx.export(module, (given,), folder / "m.onnx", dynamo=dynamo, verbose=False, **names)
    return onnx.load(folder / "m.onnx")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamo", [True, False])
@pytest.mark.parametrize(("make", "shape"), [(Net, (1, 6, 16)), (stack, (1, 4, 10))])
def test_names_of_hooks_are_module_paths_and_lead_to_every_wrong_weight(
    make, shape, dynamo, tmp_path
):
    torch.manual_seed(0)
    right = hooked(make(), torch.randn(shape), tmp_path, dynamo)
    weights = [t.name for t in right.graph.initializer if len(t.dims) == 2 or len(t.dims) == 3]

    def bisected(model: ModelProto):
        onnx.save(model, tmp_path / "wrong.onnx")
        given = tmp_path / "hooks.npz", tmp_path / "feeds.npz"
        return osl.bisect(tmp_path / "wrong.onnx", given[0], feeds=given[1], cause=False)

    assert bisected(right).verdict == "agrees"
    for name in weights[::2]:
        tensor = next(t for t in right.graph.initializer if t.name == name)
        wrong = numpy_helper.to_array(tensor) * np.float32(1.5) + np.float32(0.1)
        model = altered(right, **{name: wrong})

        result = bisected(model)

        assert result.verdict == "mismatch", name
        region = [model.graph.node[int(node[1:])] for node in result.culprits[0].region]
        assert any(name in node.input for node in region), name


class Pooled(torch.nn.Module):
    """A normalization that an export folds away, over one number for each channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.enter = torch.nn.Conv2d(3, 6, 3)
        self.pooled = torch.nn.Sequential(
            torch.nn.Conv2d(6, channels, 1), torch.nn.BatchNorm2d(channels), torch.nn.ReLU()
        )
        self.leave = torch.nn.Linear(channels, 5)
        torch.nn.init.normal_(self.pooled[1].running_mean)

    def forward(self, x):
        return self.leave(self.pooled(self.enter(x).mean((2, 3), keepdim=True)).flatten(1))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("channels", [2, 4, 8, 32])
def test_what_a_folded_normalization_returned_is_not_compared_with_what_was_before_it(
    channels, tmp_path
):
    torch.manual_seed(0)
    right = hooked(Pooled(channels), torch.randn(1, 3, 8, 8), tmp_path, dynamo=False)
    onnx.save(right, tmp_path / "right.onnx")

    result = osl.bisect(
        tmp_path / "right.onnx", tmp_path / "hooks.npz", feeds=tmp_path / "feeds.npz", cause=False
    )

    assert result.verdict == "agrees"
    assert not result.culprits


@pytest.mark.parametrize(("weight", "faulty"), [("w1", "a"), ("w2", "c")])
def test_references_whose_names_say_nothing_are_taken_in_order_behind_the_last_match(
    weight, faulty, tmp_path, runtime
):
    right = parsed(
        """net (float[8,16] x) => (float[8,5] y) {
            a = MatMul (x, w1) b = Tanh (a) c = MatMul (b, w2) d = Add (c, b) y = MatMul (d, w3)
        }""",
        w1=random(16, 16),
        w2=random(16, 16, seed=1),
        w3=random(16, 5, seed=2),
    )
    case = Case(tmp_path, right, runtime)
    theirs = {f"theirs {n}": array for n, array in case.values.items() if n != "x"}
    tensor = next(t for t in right.graph.initializer if t.name == weight)
    wrong = altered(right, **{weight: numpy_helper.to_array(tensor) * np.float32(1.5)})

    result = osl.bisect(wrong, theirs, feeds=case.feeds, cause=False)

    assert osl.bisect(right, theirs, feeds=case.feeds, cause=False).verdict == "agrees"
    assert (result.verdict, [c.value for c in result.culprits]) == ("mismatch", [faulty])
    assert any(f"has the place and shape of {faulty!r}" in note for note in result.notes)
    unlike = any(
        "are these the feeds and weights of the recording?" in note for note in result.notes
    )
    assert unlike == (faulty == "a")


def test_where_no_output_was_compared_it_does_not_agree(tmp_path, runtime):
    right = parsed("net (float[4] x) => (float[4] y) { a = Tanh (x) b = Exp (a) y = Neg (b) }")
    case = Case(tmp_path, right, runtime)
    np.savez(tmp_path / "few.npz", x=case.feeds["x"], a=case.values["a"])

    done = CliRunner().invoke(
        app, ["bisect", str(tmp_path / "right.onnx"), "--reference", str(tmp_path / "few.npz")]
    )

    assert done.exit_code == 1
    assert "inconclusive" in done.output


def test_references_left_over_behind_the_last_match_are_named(tmp_path, runtime):
    right = parsed("net (float[64] x) => (float[64] y) { a = Tanh (x) b = Exp (a) y = Neg (b) }")
    case = Case(tmp_path, right, runtime)
    theirs = {"first": case.values["a"], "second": case.values["b"], "third": random(50)}
    np.savez(tmp_path / "theirs.npz", **theirs)

    result = osl.bisect(tmp_path / "right.onnx", tmp_path / "theirs.npz", feeds=case.feeds)

    assert result.verdict == "inconclusive"
    assert any("'third'" in note and "after the last match" in note for note in result.notes)


def test_a_masked_fault_is_still_a_fault(tmp_path, runtime):
    right = parsed(
        """net (float[4,8] x) => (float[4,8] y) {
            a = Add (x, w)
            b = Abs (a)
            c = Softmax (b)
            y = Identity (c)
        }""",
        w=np.zeros(8, np.float32),
    )
    case = Case(tmp_path, right, runtime)
    wrong = ModelProto()
    wrong.CopyFrom(right)
    wrong.graph.node[0].CopyFrom(helper.make_node("Sub", ["w", "x"], ["a"], "sub"))

    result = case.bisect(wrong)

    assert result.verdict == "mismatch"
    assert result.masked == ["a"]
    assert [culprit.name for culprit in result.culprits] == ["sub"]
    assert "outputs agree, 1 inner value does not: 'a'" in str(result)
    assert case.bisect(right).verdict == "agrees"


def test_a_fault_that_another_model_shows_and_the_outputs_mask_is_one(tmp_path, runtime):
    """Also where the other model calls its values otherwise."""
    text = """net (float[4,8] x) => (float[4,8] y) {{
        {0}h = MatMul (x, w)
        {0}s = Sigmoid ({0}h)
        {0}m = Mul ({0}s, zero)
        y = Add ({0}m, x)
    }}"""
    zero, w = np.zeros(1, np.float32), random(8, 8)
    onnx.save(parsed(text.format(""), w=w, zero=zero), tmp_path / "right.onnx")
    for name in ("", "other_"):
        wrong = parsed(text.format(name), w=w * np.float32(1.5), zero=zero)

        result = osl.bisect(wrong, against=tmp_path / "right.onnx")

        assert result.masked == [f"{name}h", f"{name}s"]
        assert [culprit.value for culprit in result.culprits] == [f"{name}h"]
        assert result.culprits[0].findings[0].verdict == "wrong constant"


def test_an_output_reversed_along_an_axis_is_named_and_views_are_read(tmp_path):
    model = parsed(
        "net (float[4,6] x) => (float[4,6] y) { h = MatMul (x, w) y = Tanh (h) }", w=random(6, 6)
    )
    found = osl.run(model, {"x": random(4, 6)[::-1]}, fetch=["h", "y"])
    refs = {"x": random(4, 6)[::-1], "h": found["h"], "y": found["y"][:, ::-1]}

    result = osl.bisect(model, refs, cause=False)

    assert [c.value for c in result.culprits] == ["y"]
    assert result.culprits[0].findings[0].verdict == "shape or layout"
    assert "reversed along axis 1" in result.culprits[0].findings[0].because


def test_what_a_module_returns_is_not_taken_transposed_where_its_sizes_are_equal(tmp_path):
    text = "net (float[6,6] x) => (float[6,6] y) {{ t = Transpose <perm = {0}> (x) y = Tanh (t) }}"
    right, wrong = (parsed(text.format(perm)) for perm in ("[1, 0]", "[0, 1]"))
    for model in (right, wrong):
        for node, module in zip(model.graph.node, ("turn", "act"), strict=True):
            scopes = str(["", module, node.output[0]])
            node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=scopes)
    feeds = {"x": random(6, 6)}
    hooks = {"turn": feeds["x"].T, "act": np.tanh(feeds["x"].T)}

    assert osl.bisect(right, hooks, feeds=feeds).verdict == "agrees"
    result = osl.bisect(wrong, hooks, feeds=feeds, cause=False)

    assert [c.value for c in result.culprits] == ["t"]
    assert result.culprits[0].findings[0].verdict == "shape or layout"


def test_what_an_optimizer_breaks_and_the_outputs_mask_is_a_fault_of_the_optimizer(tmp_path):
    model = parsed(
        """net (float[1,4,6,6] x) => (float[1,4,4,4] y) {
            c = Conv (x, w)
            n = BatchNormalization (c, g, b, m, v)
            k = Greater (n, big)
            y = Where (k, n, zero)
        }""",
        w=random(4, 4, 3, 3) * np.float32(1e30),
        g=np.float32([1e10] * 4),
        b=random(4, seed=1),
        m=random(4, seed=3),
        v=np.ones(4, np.float32),
        big=np.float32([1e38]),
        zero=np.zeros((1, 4, 1, 1), np.float32),
    )
    feeds = {"x": random(1, 4, 6, 6) * np.float32(1e-30)}

    result = osl.bisect(model, a="opt=none", b="opt=all", feeds=feeds)

    assert result.masked == ["n"]
    assert "without ConvBNFusion it agrees" in str(result)


V1 = """net (float[4,16] pixels) => (float[4,16] y) {
    add_1 = MatMul (pixels, w1)
    add_2 = Tanh (add_1)
    add_3 = MatMul (add_2, w2)
    add_4 = Exp (add_3)
    add_5 = MatMul (add_4, w3)
    y = Identity (add_5)
}"""
V2 = """net (float[4,16] image) => (float[4,16] y) {
    add_1 = MatMul (image, w1)
    add_2 = Tanh (add_1)
    add_3 = Relu (add_2)
    add_4 = MatMul (add_3, w2)
    add_5 = Exp (add_4)
    add_6 = MatMul (add_5, w3)
    y = Identity (add_6)
}"""


def weights() -> dict[str, np.ndarray]:
    return {f"w{i}": random(16, 16, seed=i) / 8 for i in (1, 2, 3)}


def test_another_model_s_values_are_matched_where_its_names_are_shifted(tmp_path):
    positive = weights() | {"w1": np.abs(weights()["w1"])}
    onnx.save(parsed(V1, **positive), tmp_path / "v1.onnx")
    np.savez(tmp_path / "feeds.npz", image=np.abs(random(4, 16)))
    for name, constants in (("right", positive), ("wrong", positive | {"w3": weights()["w3"].T})):
        onnx.save(parsed(V2, **constants), tmp_path / f"{name}.onnx")

    def bisected(name: str, **how):
        given = {"against": tmp_path / "v1.onnx", "feeds": tmp_path / "feeds.npz"}
        return osl.bisect(tmp_path / f"{name}.onnx", **given, **how)

    right, wrong = bisected("right"), bisected("wrong", map="auto")

    assert right.verdict == "agrees", right
    assert [culprit.value for culprit in wrong.culprits] == ["add_6"]
    assert any("only the model has Relu 'add_3'" in note for note in right.notes)


@pytest.mark.parametrize("made", ["Abs", "Neg"])
def test_of_two_versions_the_inserted_relu_and_the_altered_weight_are_told_apart(made, tmp_path):
    """Behind Abs the Relu changes nothing: then the weight is the only culprit."""
    text = """net (float[4,16] x) => (float[4,16] y) {{
        h = MatMul (x, w1)
        a = {0} (h)
        {1}
        b = Tanh ({2})
        m = MatMul (b, w2)
        y = Softmax (m)
    }}"""
    first = parsed(text.format(made, "", "a"), w1=weights()["w1"], w2=weights()["w2"])
    onnx.save(first, tmp_path / "v1.onnx")
    wrong = weights()["w2"] * np.float32(1.1)
    second = parsed(text.format(made, "r = Relu (a)", "r"), w1=weights()["w1"], w2=wrong)
    second.graph.node[4].name = "/layers.1/MatMul"

    result = osl.bisect(second, against=tmp_path / "v1.onnx", feeds={"x": random(4, 16)})

    assert any("only the model has Relu 'r'" in note for note in result.notes)
    culprits = [(c.findings[0].verdict, c.scope) for c in result.culprits]
    extra = [] if made == "Abs" else [("extra node", "")]
    assert sorted(culprits) == [*extra, ("wrong constant", "layers.1")]
    assert "initializer 'w2' differs from that of the references' model" in str(
        result.culprits[-1].findings
    )


def test_a_coinciding_name_of_another_shape_is_no_match(tmp_path):
    right = parsed(
        "net (float[4,16] x) => (float[4,16] y) { h = Tanh (x) add_4 = Exp (h) y = Neg (add_4) }"
    )
    theirs = parsed(
        """net (float[4,16] x) => (float[4,16] y) {
            add_4 = ReduceMax <keepdims = 0> (x)
            h = Tanh (x)
            e = Exp (h)
            y = Neg (e)
        }"""
    )
    onnx.save(right, tmp_path / "right.onnx")
    onnx.save(theirs, tmp_path / "theirs.onnx")
    wrong = ModelProto()
    wrong.CopyFrom(right)
    wrong.graph.node[1].op_type = "Sigmoid"
    onnx.save(wrong, tmp_path / "wrong.onnx")

    assert osl.bisect(tmp_path / "right.onnx", against=tmp_path / "theirs.onnx").verdict == "agrees"
    result = osl.bisect(tmp_path / "wrong.onnx", against=tmp_path / "theirs.onnx")
    assert result.verdict == "mismatch"
    assert "@1" in result.culprits[0].region


def test_inputs_of_two_exports_are_matched_and_a_map_is_taken(tmp_path):
    onnx.save(parsed(V1, **weights()), tmp_path / "v1.onnx")
    other = parsed(V1.replace("add_", "mul_").replace("pixels", "image"), **weights())
    onnx.save(other, tmp_path / "other.onnx")
    wrong = altered(other, w2=weights()["w2"].T)
    onnx.save(wrong, tmp_path / "wrong.onnx")
    osl.match(tmp_path / "v1.onnx", tmp_path / "other.onnx").save(tmp_path / "map.json")

    for how in (None, "auto", tmp_path / "map.json"):
        result = osl.bisect(tmp_path / "wrong.onnx", against=tmp_path / "v1.onnx", map=how)

        assert [culprit.value for culprit in result.culprits] == ["mul_3"], how


def test_a_wrong_reference_set_is_told_as_such(tmp_path):
    onnx.save(parsed(V1, **weights()), tmp_path / "m.onnx")
    np.savez(tmp_path / "refs.npz", pixels=np.ones((4, 16), np.int64), logits=random(2, 3))

    with pytest.raises(ReferenceSetError, match="belongs to another model"):
        osl.bisect(tmp_path / "m.onnx", tmp_path / "refs.npz")


@pytest.mark.parametrize("keep_io", [True, False])
def test_a_half_precision_model_agrees_with_float32_references(keep_io, tmp_path, runtime):
    wide, half = half_model(keep_io)
    Case(tmp_path, wide, runtime)
    onnx.save(half, tmp_path / "half.onnx")

    result = osl.bisect(tmp_path / "half.onnx", tmp_path / "refs", feeds=None)

    assert result.verdict == "agrees", result
    said = [note for note in result.told if "cast to float16" in note]
    assert bool(said) is not keep_io


@pytest.mark.parametrize("keep_io", [True, False])
def test_a_fault_in_half_precision_is_named_and_not_the_output_cast(keep_io, tmp_path, runtime):
    wide, half = half_model(keep_io)
    Case(tmp_path, wide, runtime)
    wrong = altered(half, w2=-numpy_helper.to_array(half.graph.initializer[1]))
    onnx.save(wrong, tmp_path / "half.onnx")

    result = osl.bisect(tmp_path / "half.onnx", tmp_path / "refs")

    assert [culprit.value for culprit in result.culprits] == ["m"]


def test_an_overflow_is_called_so_with_the_largest_magnitude_and_the_node(tmp_path, runtime):
    wide, half = half_model(keep_io=False, scale=40.0)
    case = Case(tmp_path, wide, runtime)
    onnx.save(half, tmp_path / "half.onnx")

    result = osl.bisect(tmp_path / "half.onnx", tmp_path / "refs", look="node")
    risky = osl.bisect(tmp_path / "right.onnx", find="overflow:float16", feeds=case.feeds)

    first = min(result.culprits, key=lambda culprit: int(culprit.id[1:]))
    assert (first.value, first.findings[0].verdict) == ("square", "overflow")
    largest = np.abs(case.values["square"]).max()
    assert f"{largest:.6g} > 65504" in first.findings[0].because
    assert risky.culprits[0].findings[0].verdict == "overflow"
    assert f"{largest:.6g} > 65504" in risky.culprits[0].findings[0].because


def test_rank_of_a_half_precision_model_measures_every_node(tmp_path, runtime):
    wide, half = half_model(keep_io=True)
    Case(tmp_path, wide, runtime)
    onnx.save(half, tmp_path / "half.onnx")

    ranking = osl.rank(tmp_path / "half.onnx", reference=tmp_path / "refs")

    assert min(node.own_db for node in ranking.nodes) > 40


def test_values_of_a_float_model_are_computed_together_for_a_ranking(tmp_path, monkeypatch):
    steps = " ".join(f"v{i + 1} = Neg (v{i})" for i in range(200))
    text = f"net (float[2] v0) => (float[2] v200) {{ {steps} }}"
    onnx.save(parsed(text), tmp_path / "m.onnx")
    opened, usual = [], osl.Runtime.open
    monkeypatch.setattr(osl.Runtime, "open", lambda *given: opened.append(usual(*given)))

    ranking = osl.rank(tmp_path / "m.onnx", against=tmp_path / "m.onnx")

    assert len(ranking.nodes) == 200
    assert len(opened) < 30


def test_what_rounds_to_a_subnormal_does_not_vanish(tmp_path):
    onnx.save(parsed("net (float[2] x) => (float[2] y) { y = Neg (x) }"), tmp_path / "m.onnx")

    def vanishing(*numbers: float) -> list[int]:
        feeds = {"x": np.float32(numbers)}
        risks = osl.rank(tmp_path / "m.onnx", fp16_risk=True, feeds=feeds)
        return [node.vanishing for node in risks.nodes]

    assert vanishing(4.5e-8, 3.0e-8) == []
    assert vanishing(2.0**-25, 1.0) == [1]


def test_a_replaced_operator_leads_with_wrong_node(tmp_path, runtime):
    right = parsed(
        "net (float[4,8] x) => (float[4,8] y) { a = Mul (x, w) y = Tanh (a) }", w=random(8)
    )
    wrong = ModelProto()
    wrong.CopyFrom(right)
    wrong.graph.node[0].op_type = "Add"

    culprit = Case(tmp_path, right, runtime).bisect(wrong).culprits[0]

    assert culprit.findings[0].verdict == "wrong node"
    assert "Mul gives the reference, Add does not" in culprit.findings[0].because


def test_a_wrong_constant_is_named_with_what_it_is_off_by(tmp_path, runtime):
    right = parsed(
        """net (float[16,8] x) => (float[16,8] y) {
            a = MatMul (x, w)
            h = Add (a, b)
            y = Tanh (h)
        }""",
        w=random(8, 8, seed=1),
        b=random(8, seed=2),
    )
    case = Case(tmp_path, right, runtime)
    scale, shift = np.ones(8, np.float32), np.zeros(8, np.float32)
    scale[3:6], shift[:] = 0.99, -0.1

    def verdict(**constants):
        culprit = case.bisect(altered(right, **constants)).culprits[0]
        return culprit.findings[0].verdict, culprit.findings[0].because

    scaled, shifted = verdict(w=random(8, 8, seed=1) * scale), verdict(b=random(8, seed=2) + shift)

    assert scaled == (
        "wrong constant",
        "'w' is wrong, or a factor is missing: the effect is x0.99 in channels 3-5 of axis 1",
    )
    assert shifted == ("wrong constant", "'b' is wrong, or a term is missing: the effect is -0.1")


def test_of_two_faults_in_a_row_the_first_is_not_told_to_have_no_effect(tmp_path, runtime):
    right = parsed(
        "net (float[4,8] x) => (float[4,8] y) { a = Mul (x, w) b = Add (a, v) y = Softmax (b) }",
        w=random(8, seed=1),
        v=random(8, seed=2),
    )
    wrong = altered(right, w=-random(8, seed=1), v=random(8, seed=2) * 30)

    result = Case(tmp_path, right, runtime).bisect(wrong)

    assert {culprit.value for culprit in result.culprits} == {"a", "b"}
    assert "(0% of the error)" not in str(result)
    assert "evidence: " in str(result)


@pytest.mark.parametrize(
    ("kind", "node", "number"),
    [("nan", "Log", -1.0), ("inf", "Exp", 1000.0), ("overflow:float16", "Mul", 400.0)],
)
def test_what_is_found_without_references_is_reproduced_before_it_is_announced(
    kind, node, number, tmp_path
):
    inputs = "(a, a)" if node == "Mul" else "(a)"
    text = (
        f"net (float[4] x) => (float[4] y) {{ a = Identity (x) b = {node} {inputs} y = Neg (b) }}"
    )
    onnx.save(parsed(text), tmp_path / "m.onnx")
    feeds = {"x": np.full(4, number, np.float32)}

    result = osl.bisect(tmp_path / "m.onnx", find=kind, feeds=feeds, output=tmp_path / "out")

    assert [culprit.value for culprit in result.culprits] == ["b"]
    assert result.reproduce == ["python", str(tmp_path / "out" / "repro.py")]
    done = subprocess.run([sys.executable, *result.reproduce[1:]], check=False, capture_output=True)
    assert (done.returncode, done.stdout) == (1, b"MISMATCH\n")


def test_an_optimizer_that_does_not_exist_is_refused_with_the_list(tmp_path):
    onnx.save(parsed(V1, **weights()), tmp_path / "m.onnx")

    with pytest.raises(UsageError, match="no such optimizer") as refused:
        osl.bisect(tmp_path / "m.onnx", a="opt=all", b="disabled=NoSuch")
    assert "ConstantFolding" in refused.value.hint
    assert "ConvBNFusion" in refused.value.hint
    allowed = osl.bisect(tmp_path / "m.onnx", a="opt=all", b="opt=all,disabled=ConstantFolding")
    assert allowed.verdict == "agrees"


ENDLESS = """net (float[4] x) => (float[4] y) {
    a = Neg (x)
    n = Constant <value_int = 4611686018427387904> ()
    go = Constant <value = bool {1}> ()
    b = Loop (n, go, a) <body = turn (int64 i, bool c, float[4] s) => (bool c2, float[4] s2) {
    c2 = Identity (c)
    s2 = Cos (s)
    }>
    y = Tanh (b)
}"""


def test_a_run_that_takes_too_long_names_its_node(tmp_path):
    onnx.save(parsed(ENDLESS), tmp_path / "m.onnx")

    with pytest.raises(RuntimeTimeout, match=r"it was in Loop.*@3"):
        osl.run(tmp_path / "m.onnx", timeout=2)


def test_the_reproducer_of_a_hang_ends_by_itself(tmp_path, monkeypatch):
    monkeypatch.setattr("onnxsurgeon_lite.debug.bisection.reproducer._HANGS", 1.0)
    onnx.save(parsed(ENDLESS), tmp_path / "m.onnx")
    references = {"x": np.ones(4, np.float32), "y": np.ones(4, np.float32)}

    result = osl.bisect(tmp_path / "m.onnx", references, timeout=1, output=tmp_path / "out")

    script = tmp_path / "out" / "repro.py"
    script.write_text(script.read_text().replace("Timer(30", "Timer(0.5"))
    done = subprocess.run([sys.executable, script], check=False, capture_output=True, timeout=60)
    assert [culprit.op_type for culprit in result.culprits] == ["Loop"]
    assert (done.returncode, done.stdout) == (1, b"it does not end within 30 seconds\n")


@pytest.mark.parametrize("rows", [1, 3])
def test_inner_values_alone_prove_nothing_of_the_outputs(rows, tmp_path):
    model = parsed("net (float[1,4] x) => (float[1,4] y) { h = Relu (x) y = Neg (h) }")
    onnx.save(model, tmp_path / "m.onnx")
    x = np.arange(4 * rows, dtype=np.float32).reshape(rows, 4)
    np.savez(tmp_path / "inner.npz", x=x, h=x)

    done = CliRunner().invoke(
        app, ["compare", str(tmp_path / "m.onnx"), str(tmp_path / "inner.npz")]
    )

    assert done.exit_code == 1, done.output
    assert "inconclusive: no output of the model was compared" in done.output


TWO = """
import torch

class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.f, self.a, self.b = torch.nn.Linear(8, 8), torch.nn.Linear(8, 4), torch.nn.Linear(8, 4)

    def forward(self, x):
        x = torch.tanh(self.f(x))
        made = self.a(x), self.b(x)
        return ORDER

def factory():
    torch.manual_seed(0)
    return Two().eval(), (torch.randn(3, 8),)
"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("order", "dynamo"),
    [
        ("made", False),
        ("made[::-1]", False),
        ("made[::-1]", True),
    ],
)
def test_outputs_in_another_order_do_not_agree(order, dynamo, tmp_path):
    torch = pytest.importorskip("torch")
    (tmp_path / "two.py").write_text(TWO.replace("ORDER", "made"))
    space: dict = {}
    exec(TWO.replace("ORDER", order), space)
    torch.onnx.export(*space["factory"](), tmp_path / "m.onnx", dynamo=dynamo, verbose=False)
    references = osl.record(f"{tmp_path / 'two.py'}:factory", tmp_path / "refs")

    found = osl.bisect(tmp_path / "m.onnx", references, cause=False)
    compared = osl.compare_sets(tmp_path / "m.onnx", references)

    exchanged = order != "made"
    assert (found.verdict == "agrees") is not exchanged
    assert compared.match is not exchanged
    if dynamo:
        assert found.verdict == "inconclusive"
        assert "not in the order of what is compared" in found.notes[-1]


def test_feeds_that_stand_behind_the_values_of_a_set_are_not_left_over(tmp_path, runtime):
    right = parsed("net (float[64] x) => (float[64] y) { a = Tanh (x) b = Exp (a) y = Neg (b) }")
    case = Case(tmp_path, right, runtime)
    values = [case.values[name] for name in "aby"]
    theirs = {**dict(zip(("one", "two", "three"), values, strict=True)), "x": case.feeds["x"]}

    assert osl.bisect(tmp_path / "right.onnx", theirs).verdict == "agrees"


def test_a_branch_that_made_feeds_do_not_take_is_said_not_to_be_compared(tmp_path):
    text = """net (float[4] x) => (float[4] y) {
        big = Constant <value_float = 1000.0> () most = ReduceMax <keepdims = 0> (x) c = Greater (most, big)
        y = If (c) <then_branch = a () => (float[4] o) { o = %s (x) },
                    else_branch = b () => (float[4] o) { o = Neg (x) }>
    }"""

    made = osl.bisect(parsed(text % "Abs"), against=parsed(text % "Exp"), cause=False)
    given = osl.bisect(
        parsed(text % "Abs"),
        against=parsed(text % "Exp"),
        feeds={"x": np.full(4, 2000, np.float32)},
        cause=False,
    )

    assert made.verdict == "agrees"
    assert any("do not take were not compared" in note for note in made.notes)
    assert given.verdict == "mismatch"


def test_outputs_of_another_model_in_another_order_do_not_agree():
    text = "net (float[64] x) => (float[64] {}, float[64] {}) {{ y = Tanh (x) z = Exp (x) }}"
    right, turned = (parsed(text.format(*names)) for names in ("yz", "zy"))

    assert osl.bisect(right, against=right, cause=False).verdict == "agrees"
    assert osl.bisect(turned, against=right, cause=False).verdict == "inconclusive"


def test_a_constant_of_the_same_name_that_stands_for_another_axis_is_not_at_fault():
    """Exporters number their constants: the same name is that of another axis in an edited graph."""
    named = "net (float[2, 6, 3] x) => (float[2, 6] y) { %s"
    reduced = "m = ReduceMean <keepdims = 0> (%s, c) y = LayerNormalization <axis = -1> (m, g) }"
    right = named % "c = Constant <value_ints = [2]> ()" + reduced % "x"
    turned = named % "t = Transpose <perm = [0, 2, 1]> (x) c = Constant <value_ints = [1]> ()"
    given = {"against": parsed(right, g=random(6)), "feeds": {"x": random(2, 6, 3)}}

    result = osl.bisect(parsed(turned + reduced % "t", g=random(6)), **given)

    assert (result.verdict, result.culprits) == ("agrees", [])


def test_final_outputs_of_other_names_are_compared_where_the_inputs_are_integers():
    text = """net (int64[1,6] ids, int64[1,6] mask) => (float[1,6,5] logits) {{
        e = Gather (table, ids) m = Cast <to = 1> (mask) axes = Constant <value_ints = [2]> ()
        u = Unsqueeze (m, axes) k = Mul (e, u) h = MatMul (k, w) r = {} (h) logits = MatMul (r, v)
    }}"""
    weights = {"table": random(10, 8), "w": random(8, 8, seed=1), "v": random(8, 5, seed=2)}
    right, wrong = (parsed(text.format(op_type), **weights) for op_type in ("Relu", "Tanh"))
    ids, mask = np.arange(6).reshape(1, 6), np.ones((1, 6), np.int64)
    feeds = {"ids": ids, "mask": mask}
    theirs = {"input_ids": ids, "attention_mask": mask, "last": osl.run(right, feeds)["logits"]}

    result = osl.bisect(wrong, theirs, feeds=feeds, cause=False)

    assert osl.bisect(right, theirs, feeds=feeds, cause=False).verdict == "agrees"
    assert result.verdict == "mismatch"
    assert [culprit.value for culprit in result.culprits] == ["logits"]


def test_an_agreement_of_zeros_says_that_it_proves_little(tmp_path):
    model = parsed("net (float[4] x) => (float[4] y) { z = Sub (x, x) y = Abs (z) }")
    onnx.save(model, tmp_path / "m.onnx")
    osl.record(model, tmp_path / "refs", feeds={"x": random(4)})

    found = osl.bisect(tmp_path / "m.onnx", tmp_path / "refs")
    compared = osl.compare_sets(tmp_path / "m.onnx", tmp_path / "refs")

    assert found.verdict == "agrees"
    assert "all numbers are 0, which proves little" in str(found)
    assert "proves little" in compared.compared["y"].notes[0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("z = Sub (x, x) y = Div (z, z)", "all numbers are NaN, which proves little"),
        ("z = NonZero (x) y = Cast <to = 1> (z)", "it has no elements, which proves little"),
    ],
)
def test_an_agreement_of_nothing_says_that_it_proves_little(text, says):
    model = parsed(f"net (float[4] x) => (float[M, N] y) {{ {text} }}")
    feeds = {"x": np.zeros(4, np.float32)}
    references = osl.record(model, feeds=feeds)

    found = osl.bisect(model, references, feeds=feeds)

    assert found.verdict == "agrees"
    assert says in str(found)


def test_a_hook_on_a_normalization_that_is_folded_is_compared_with_its_convolution():
    text = "g (float[2,3,8,8] x) => (float[2,4,8,8] y) { n = Neg(x) c = Conv<pads=[1,1,1,1]>(n, w, b) y = Relu(c) }"
    weight, scale, bias = numbers(4, 3, 3, 3), numbers(4, 1, 1, 1, seed=1), numbers(4, seed=2)
    folded = parsed(text, w=weight * scale, b=bias)
    for node, name in zip(folded.graph.node, ("/Neg", "/stem/Conv", "/act/Relu"), strict=True):
        node.name = name
    x = numbers(2, 3, 8, 8, seed=3)
    right = parsed(text.replace("n = Neg", "n = Identity"), w=weight, b=np.zeros(4, np.float32))
    stem = osl.run(right, feeds={"x": x}, fetch=["c"])["c"]
    norm = stem * scale[:, 0] + bias[:, None, None]
    hooks = {"stem": stem, "norm": norm, "act": np.maximum(norm, 0)}

    result = osl.bisect(folded, hooks, feeds={"x": x})

    (culprit,) = result.culprits
    assert culprit.causes[0].sentence.startswith("Neg '/Neg' is one too many")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamo", [True, False])
def test_a_normalization_that_changes_little_has_its_own_value_not_its_input(tmp_path, dynamo):
    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = torch.nn.Linear(16, 64)
            self.first, self.second = torch.nn.LayerNorm(64), torch.nn.LayerNorm(64)
            self.down = torch.nn.Linear(64, 3)

        def forward(self, x):
            normal = self.first(self.up(x))
            return self.down(self.second(normal + 1e-3 * torch.tanh(normal)))

    torch.manual_seed(0)
    net = Twice().eval()
    torch.nn.init.normal_(
        net.second.weight, 1, 3e-4
    )  # the output differs by as much from the input
    x = torch.randn(4, 16)
    path = tmp_path / "net.onnx"
    torch.onnx.export(
        net, (x,), path, dynamo=dynamo, verbose=False, external_data=False, input_names=["x"],
        opset_version=18,
    )  # fmt: skip
    norm = [n.name for n in onnx.load(path).graph.node if n.op_type == "LayerNormalization"][1]
    wrong = osl.set_attr(path, f"name:{norm}", {"epsilon": 0.1}).model

    result = osl.bisect(wrong, osl.record(net, args=(x,)))

    assert [culprit.name for culprit in result.culprits] == [norm]
    assert "epsilon of LayerNormalization" in str(result)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamo", [True, False])
def test_an_export_without_the_last_module_does_not_agree_with_hooks(tmp_path, dynamo):
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 16), torch.nn.LayerNorm(16)
    ).eval()
    x, hooked = torch.randn(3, 16), {}
    for name, module in net.named_children():
        module.register_forward_hook(
            lambda _, args, made, name=name: hooked.update({name: made.detach().numpy()})
        )
    hooked["final"] = net(x).detach().numpy()
    np.savez(tmp_path / "hooks.npz", **hooked)
    for path, module in (("right.onnx", net), ("wrong.onnx", net[:3])):
        torch.onnx.export(
            module, (x,), tmp_path / path, dynamo=dynamo, opset_version=18, input_names=["x"]
        )

    right, wrong = (
        osl.bisect(tmp_path / path, tmp_path / "hooks.npz", feeds={"x": x.numpy()})
        for path in ("right.onnx", "wrong.onnx")
    )

    assert right.verdict == "agrees"
    assert wrong.verdict == "inconclusive"
    assert any("after the last match" in note and "'3'" in note for note in wrong.notes)
    given = tmp_path / "wrong.onnx", tmp_path / "hooks.npz"
    assert not osl.compare_sets(*given, feeds={"x": x.numpy()}).match


class Shared(torch.nn.Module):
    """One layer, called three times."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.dense = torch.nn.Linear(8, 16), torch.nn.Linear(16, 16)
        self.dropout, self.norm = torch.nn.Dropout(0.1), torch.nn.LayerNorm(16)

    def forward(self, x):
        x = self.up(x)
        for _ in range(3):
            x = self.norm(x + self.dropout(self.dense(torch.tanh(x))))
        return x


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamo", [True, False])
def test_a_layer_that_is_called_three_times_is_told_by_the_last_call_that_a_hook_kept(
    tmp_path, dynamo
):
    torch.manual_seed(0)
    net, x, hooked = Shared().eval(), torch.randn(2, 9, 8), {}
    for name, module in net.named_children():
        module.register_forward_hook(
            lambda _, args, made, name=name: hooked.update({name: made.detach().numpy()})
        )
    hooked["y"] = net(x).detach().numpy()
    np.savez(tmp_path / "hooks.npz", **hooked)
    path = tmp_path / "net.onnx"
    how = {"dynamo": dynamo, "opset_version": 18, "input_names": ["x"], "output_names": ["y"]}
    torch.onnx.export(net, (x,), path, **how)
    norm = [n.name for n in onnx.load(path).graph.node if n.op_type == "LayerNormalization"][-1]
    wrong = osl.set_attr(path, f"name:{norm}", {"epsilon": 0.1}).model

    found = [
        osl.bisect(model, tmp_path / "hooks.npz", feeds={"x": x.numpy()}) for model in (path, wrong)
    ]

    assert found[0].verdict == "agrees"
    assert [culprit.name for culprit in found[1].culprits] == [norm]
    assert "epsilon of LayerNormalization" in str(found[1])


class Biased(torch.nn.Module):
    """Adds to what it gets what it makes of a table."""

    def __init__(self, table: torch.nn.Module) -> None:
        super().__init__()
        self.table, self.last = table, torch.nn.Linear(8, 5)
        self.register_buffer("places", torch.randn(4, 8))

    def forward(self, x):
        return self.last(x + self.table(self.places))


@pytest.mark.parametrize("of_a_table", [False, True])
@pytest.mark.filterwarnings("ignore")
def test_what_the_next_module_wrote_over_is_not_compared_with_what_was_there(tmp_path, of_a_table):
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.ReLU(inplace=True), torch.nn.Linear(16, 8)
    )
    net = Biased(net) if of_a_table else net
    hooked(net, torch.randn(4, 8), tmp_path, dynamo=False)

    result = osl.bisect(
        tmp_path / "m.onnx", tmp_path / "hooks.npz", feeds=tmp_path / "feeds.npz", cause=False
    )

    assert result.verdict == "agrees"
    assert not result.culprits


class Inner(torch.nn.Module):
    def __init__(self, activation: torch.nn.Module) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(
            torch.nn.ModuleDict({"enter": torch.nn.Linear(8, 8), "leave": torch.nn.Linear(8, 8)})
            for _ in range(3)
        )
        self.activation = activation

    def forward(self, x):
        for layer in self.layers:
            x = x + layer["leave"](self.activation(layer["enter"](x)))
        return x


class Outer(torch.nn.Module):
    def __init__(self, activation: torch.nn.Module) -> None:
        super().__init__()
        self.net = torch.nn.Module()
        self.net.model = Inner(activation)

    def forward(self, x):
        return self.net.model(x)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("wrapped", [True, False])
def test_what_hooks_stored_by_paths_is_compared_inside_where_every_number_is_wrong(
    wrapped, tmp_path
):
    torch.manual_seed(0)
    right, wrong = Outer(torch.nn.GELU()).eval(), Outer(torch.nn.SiLU()).eval()
    wrong.load_state_dict(right.state_dict())
    given = torch.randn(4, 8)
    hooked(right, given, tmp_path, dynamo=False)
    exported = wrong if wrapped else wrong.net.model
    torch.onnx.export(exported, given, tmp_path / "wrong.onnx", input_names=["given"], dynamo=False)

    result = osl.bisect(
        tmp_path / "wrong.onnx", tmp_path / "hooks.npz", feeds=tmp_path / "feeds.npz", cause=False
    )

    layers = {culprit.value.split("/")[-2] for culprit in result.culprits}
    assert result.verdict == "mismatch"
    assert len(result.culprits) == 3, layers
    assert all(len(culprit.region) <= 4 for culprit in result.culprits)
