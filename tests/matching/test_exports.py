"""Two exports of one network, and what its modules returned: no exporter is blamed for writing it its own way."""

import json
from collections import OrderedDict
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import ReferenceSetError
from onnxsurgeon_lite.recording.torch_recorder import record_module


class Stage(torch.nn.Module):
    """Tokens of a picture, and the picture again: all its sizes are 8."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.norm = torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.LayerNorm(8)

    def forward(self, x):
        tokens = self.norm(self.patches(x).flatten(2).transpose(1, 2))
        return tokens.reshape(-1, 8, 8, 8).permute(0, 3, 1, 2).contiguous()


class Picture(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stages = torch.nn.ModuleList(Stage() for _ in range(2))
        self.mixed = torch.nn.Linear(8, 8)

    def forward(self, images):
        for stage in self.stages:
            images = stage(images)
        return self.mixed(images.flatten(2).transpose(1, 2)).transpose(1, 2)


class Part(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.pooler = torch.nn.LayerNorm(8), torch.nn.Linear(8, 8)

    def forward(self, x):
        hidden = self.norm(x)
        return hidden, self.pooler(hidden.mean(1))


class Hidden(torch.nn.Module):
    """It returns one of the two outputs of its part."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.part = Part()

    def forward(self, images):
        return self.part(images)[0]


class TwoTowers(torch.nn.Module):
    """Two inputs, each with a batch of its own; one of the outputs has few numbers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.see, self.read = torch.nn.Linear(8, 32), torch.nn.Linear(8, 32)
        self.start = torch.nn.Parameter(torch.randn(1, 1, 8))

    def forward(self, images, texts):
        start = self.start.expand(images.shape[0], -1, -1)
        image = self.see(torch.cat([start, images], 1)).mean(1)
        text = self.read(texts).mean(1)
        return image @ text.T, text, image


SAMPLES = {
    Picture: (torch.randn(1, 8, 8, 8),),
    Hidden: (torch.randn(2, 5, 8),),
    TwoTowers: (torch.randn(2, 5, 8), torch.randn(3, 4, 8)),
}

NAMES = ["images", "texts"]


def exported(network: torch.nn.Module, folder: Path, dynamo: bool) -> Path:
    path = folder / f"{'dynamo' if dynamo else 'torchscript'}.onnx"
    sample = SAMPLES[type(network)]
    options = {"opset_version": 18, "external_data": False, "verbose": False}
    if isinstance(network, TwoTowers):
        sizes = {"images": {0: "images_batch"}, "texts": {0: "texts_batch"}}
        options |= {"dynamic_shapes": sizes} if dynamo else {"dynamic_axes": sizes}
    names = NAMES[: len(sample)]
    torch.onnx.export(network.eval(), sample, path, dynamo=dynamo, input_names=names, **options)
    return path


@pytest.fixture(scope="module", params=SAMPLES, ids=lambda kind: kind.__name__)
def network(request, tmp_path_factory) -> tuple[torch.nn.Module, dict[bool, Path]]:
    network, folder = request.param(), tmp_path_factory.mktemp("exports")
    with pytest.warns():
        return network, {dynamo: exported(network, folder, dynamo) for dynamo in (False, True)}


@pytest.mark.parametrize("dynamo", [False, True])
def test_two_exports_of_one_network_agree(network, dynamo, tmp_path):
    module, paths = network
    given = {n: t.numpy() for n, t in zip(NAMES, SAMPLES[type(module)], strict=False)}
    osl.record(paths[not dynamo], feeds=given, output=tmp_path / "refs")

    for other in (
        {"against": paths[not dynamo], "feeds": given},
        {"reference": tmp_path / "refs"},
    ):
        result = osl.bisect(paths[dynamo], **other)
        assert (result.verdict, result.culprits, result.masked) == ("agrees", [], []), other


@pytest.mark.parametrize("dynamo", [False, True])
def test_an_export_agrees_with_what_the_modules_returned(network, dynamo, tmp_path):
    module, paths = network
    sample = SAMPLES[type(module)]
    record_module(module, sample, folder=tmp_path / "refs")

    result = osl.bisect(paths[dynamo], reference=tmp_path / "refs")

    outputs = [output.name for output in onnx.load(paths[dynamo]).graph.output]
    assert (result.verdict, result.culprits) == ("agrees", [])
    assert sorted(result.outputs) == sorted(outputs)


class Named(torch.nn.Module):
    """What its module `out` returns is not what the model returns as `out`."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.out = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, body):
        return self.out(self.body(body).tanh()).relu() * 2


@pytest.mark.filterwarnings("ignore")
def test_a_module_of_the_name_of_an_output_is_not_taken_for_it(tmp_path):
    module, x, path = Named(), torch.randn(2, 8), tmp_path / "model.onnx"
    names = {"input_names": ["body"], "output_names": ["out"], "verbose": False}
    torch.onnx.export(module, x, path, dynamo=False, **names)
    record_module(module, x, folder=tmp_path / "refs")
    record_module(module, x, folder=tmp_path / "part", scopes=["out"])
    broken = onnx.load(path)
    node = next(node for node in broken.graph.node if node.op_type == "Mul")
    node.op_type = "Add"
    onnx.save(broken, tmp_path / "wrong.onnx")

    healthy = osl.bisect(path, reference=tmp_path / "refs")
    unknown = osl.bisect(path, reference=tmp_path / "part")
    found = osl.bisect(tmp_path / "wrong.onnx", reference=tmp_path / "refs", cause=False)

    assert (healthy.verdict, list(healthy.outputs)) == ("agrees", ["out"])
    assert (unknown.verdict, unknown.culprits) == ("inconclusive", [])
    assert [culprit.name for culprit in found.culprits] == [node.name]


ONE_NUMBER = """net (float[4, 8] x) => (float[4, 8] {0}, float {1}, float {2}) {{
    {0} = Tanh (x)
    {3} = Exp ({0})
    {1} = ReduceMean <keepdims = 0> ({3})
    {2} = {4} <keepdims = 0> ({3})
}}"""


def test_outputs_of_one_number_are_compared_in_order(model_of, tmp_path):
    given = {"x": np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)}
    other = model_of(ONE_NUMBER.format(*"abcd", "ReduceMax"), "other.onnx")
    osl.record(other, feeds=given, output=tmp_path / "refs")
    osl.record(other, feeds=given, output=tmp_path / "names.npz")

    right = model_of(ONE_NUMBER.format(*"pqrs", "ReduceMax"), "right.onnx")
    wrong = model_of(ONE_NUMBER.format(*"pqrs", "ReduceMin"), "wrong.onnx")
    healthy = osl.bisect(right, reference=tmp_path / "refs")
    found = osl.bisect(wrong, reference=tmp_path / "refs", cause=False)
    unknown = osl.bisect(right, reference=tmp_path / "names.npz")

    assert (healthy.verdict, healthy.culprits) == ("agrees", [])
    assert [(c.value, c.region) for c in found.culprits] == [("r", ["@3"])]
    assert (unknown.verdict, unknown.culprits) == ("inconclusive", [])


MASKED = """masked (float[2, 2, 8] scores, bool[8] allowed) => (float[2, 2, 8] shares) {
    mask = Where (allowed, zero, low)
    added = Add (scores, mask)
    shares = Softmax <axis = -1> (added)
}"""


def test_a_mask_of_inf_is_one_of_the_lowest_number(model_of):
    models = []
    for low in (-np.inf, np.finfo(np.float32).min):
        model = onnx.parser.parse_graph(MASKED)
        constants = {"zero": 0.0, "low": low}
        model.initializer.extend(
            numpy_helper.from_array(np.float32(value), name) for name, value in constants.items()
        )
        opsets = [onnx.helper.make_opsetid("", 18)]
        made = onnx.helper.make_model(model, opset_imports=opsets, ir_version=8)
        models.append(model_of(made, f"{low}.onnx"))
    given = {
        "scores": np.random.default_rng(0).normal(size=(2, 2, 8)).astype(np.float32),
        "allowed": np.arange(8) < 5,
    }

    for one, other in (models, models[::-1]):
        result = osl.bisect(one, against=other, feeds=given)
        assert (result.verdict, result.culprits, result.masked) == ("agrees", [], [])


def test_the_order_of_equal_sizes_is_not_taken_for_known_in_the_middle(model_of):
    text = """net (float[8, 8] x) => (float[8, 8] {3}) {{
        {0} = Tanh (x)
        {1} = Transpose <perm = [{4}]> ({0})
        {2} = Exp ({1})
        {3} = MatMul ({2}, x)
    }}"""
    given = {"x": np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)}
    right = model_of(text.format(*"abcd", "1, 0"), "right.onnx")
    wrong = model_of(text.format(*"efgh", "0, 1"), "wrong.onnx")

    result = osl.bisect(wrong, against=right, feeds=given, cause=False)

    [culprit] = result.culprits
    assert "@1" in culprit.region


def test_numbers_that_the_other_model_has_in_two_orders_do_not_clear_a_node(model_of):
    theirs = """net (float[3, 8, 4, 8] x, float[3, 4, 8, 8] q) => (float[3, 4, 8, 8] out) {
        v = Tanh (x)
        k = Transpose <perm = [0, 2, 1, 3]> (v)
        kt = Transpose <perm = [0, 2, 3, 1]> (v)
        out = MatMul (q, kt)
    }"""
    ours = """net (float[3, 8, 4, 8] x, float[3, 4, 8, 8] q) => (float[3, 4, 8, 8] y)
    <int64[3] flat = {12, 8, 8}, int64[4] heads = {3, 4, 8, 8}> {
        a = Tanh (x)
        b = Transpose <perm = [0, 2, 3, 1]> (a)
        c = Reshape (b, flat)
        d = Transpose <perm = [0, 2, 1]> (c)
        e = Reshape (d, heads)
        y = MatMul (q, e)
    }"""
    rng = np.random.default_rng(0)
    given = {
        "x": rng.normal(size=(3, 8, 4, 8)).astype(np.float32),
        "q": rng.normal(size=(3, 4, 8, 8)).astype(np.float32),
    }

    one, other = model_of(ours, "ours.onnx"), model_of(theirs, "theirs.onnx")
    result = osl.bisect(one, against=other, feeds=given, cause=False)

    [culprit] = result.culprits
    assert {"@1", "@3"} & {*culprit.region}


def test_an_output_in_another_order_of_axes_does_not_agree(model_of):
    text = """net (float[8, 8] x) => (float[8, 8] {2}) {{
        {0} = Tanh (x)
        {1} = Exp ({0})
        {2} = Transpose <perm = [{3}]> ({1})
    }}"""
    given = {"x": np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)}
    one = model_of(text.format("h", "e", "y", "1, 0"), "one.onnx")
    other = model_of(text.format("a", "b", "c", "0, 1"), "other.onnx")

    result = osl.bisect(one, against=other, feeds=given, cause=False)

    assert (result.verdict, [culprit.value for culprit in result.culprits]) == ("mismatch", ["y"])


def test_a_lost_bias_is_repaired_where_the_names_of_nodes_tell_the_module(tmp_path):
    torch.manual_seed(0)
    layers = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Conv2d(4, 4, 1)
    )
    sample = torch.randn(1, 3, 8, 8)
    record_module(layers.eval(), (sample,), folder=tmp_path / "refs")
    layers[2].bias = None
    with pytest.warns():
        torch.onnx.export(layers, (sample,), tmp_path / "m.onnx", dynamo=False)

    result = osl.bisect(
        tmp_path / "m.onnx", reference=tmp_path / "refs", repair=tmp_path / "fixed.onnx"
    )

    assert "a bias is not added" in str(result)
    repaired = osl.bisect(tmp_path / "fixed.onnx", reference=tmp_path / "refs")
    assert (repaired.verdict, repaired.masked) == ("agrees", [])


def test_an_output_of_another_name_is_compared_where_all_else_is_named_alike(model_of):
    text = """g (float[2,8] x) => (float[2,8] y) <float[8] w = {1,2,3,4,5,6,7,8}> {
        a = Mul(x, w) b = Relu(a) c = Sin(b) y = Neg(c)
    }"""
    right, wrong = model_of(text), model_of(text.replace("Neg", "Abs"), "wrong.onnx")
    other = osl.rename(right, {"y": "z"}).model

    assert osl.bisect(right, against=other).verdict == "agrees"
    assert [culprit.op_type for culprit in osl.bisect(wrong, against=other).culprits] == ["Abs"]


def test_outputs_of_other_names_are_compared_in_order_or_by_a_map(tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[3] x) => (float[3] A, float[3] B)
    { A = Exp(x) B = Neg(x) }"""
    for name, a, b in (("mine", "one", "two"), ("theirs", "1", "2"), ("turned", "2", "1")):
        changed = text.replace("B)", f"v{b})").replace("A,", f"v{a},")
        changed = changed.replace("A =", f"v{a} =").replace("B =", f"v{b} =")
        if name == "turned":  # the same names in the other order
            changed = changed.replace("(float[3] v2, float[3] v1)", "(float[3] v1, float[3] v2)")
        onnx.save(onnx.parser.parse_model(changed), tmp_path / f"{name}.onnx")
    mine = tmp_path / "mine.onnx"

    found = osl.compare_sets(mine, tmp_path / "theirs.onnx")
    assert found.match
    assert sorted(found.compared) == ["vone", "vtwo"]
    typed = CliRunner().invoke(app, ["compare", str(mine), str(tmp_path / "theirs.onnx")])
    assert "compared in order: 'v1', 'v2' as 'vone', 'vtwo'" in typed.output
    model = onnx.load(tmp_path / "theirs.onnx")
    model.graph.input[0].name = model.graph.node[0].input[0] = model.graph.node[1].input[0] = "z"
    onnx.save(model, tmp_path / "z.onnx")
    typed = CliRunner().invoke(app, ["compare", str(mine), str(tmp_path / "z.onnx")])
    assert "the other model's inputs are fed in order: 'z' as 'x'" in typed.output
    turned = tmp_path / "turned.onnx"
    assert not osl.compare_sets(mine, turned).match
    pairs = [{"a": "v2", "b": "vone"}, {"a": "v1", "b": "vtwo"}]
    (tmp_path / "map.json").write_text(json.dumps({"pairs": pairs}))
    assert osl.compare_sets(mine, turned, map=tmp_path / "map.json").match
    with pytest.raises(ReferenceSetError, match="has no value that the model computes"):
        osl.compare_sets(mine, turned, map="names")


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of torch's exporter
def test_a_convolution_that_took_its_normalization_in_is_no_missing_module(tmp_path):
    torch.manual_seed(0)
    parts = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU()
    module = torch.nn.Sequential(OrderedDict(zip(("conv", "norm", "act"), parts, strict=True)))
    module.norm.running_mean += torch.rand(4)
    image = torch.randn(1, 3, 8, 8)
    torch.onnx.export(module.eval(), (image,), tmp_path / "m.onnx", dynamo=True, verbose=False)
    record_module(module, image, folder=tmp_path / "refs")
    model = onnx.load(tmp_path / "m.onnx")
    assert [node.op_type for node in model.graph.node] == ["Conv", "Relu"]
    weight = next(each for each in model.graph.initializer if len(each.dims) == 4)
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * 1.1, weight.name))

    result = osl.bisect(model, tmp_path / "refs", cause=False)

    assert [culprit.op_type for culprit in result.culprits] == ["Conv"]
    assert "does not have" not in str(result)
    assert not [note for note in result.notes if "does not have" in note]
