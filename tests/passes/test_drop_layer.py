"""A layer that is removed: the model computes what it does without it, under the numbers of a shorter one."""

import re
import warnings

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit import packages
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import EditError, UsageError
from onnxsurgeon_lite.passes.build import parse_text

TWO_PARTS = """g (float[4] x) => (float[4] y) {
    ["/a/l.0/Abs"] p = Abs(x) ["/a/l.0/Neg"] q = Neg(p) ["/a/l.1/Abs"] r = Abs(q) ["/a/l.1/Exp"] s = Exp(r)
    ["/b/l.0/Abs"] t = Abs(s) ["/b/l.0/Neg"] u = Neg(t) ["/b/l.1/Abs"] v = Abs(u) ["/b/l.1/Neg"] y = Neg(v)
}"""


def without(parameters: dict[str, np.ndarray], layer: int) -> dict[str, np.ndarray]:
    """A checkpoint as a model without a layer has it."""
    found = {}
    for name, array in parameters.items():
        number = re.search(r"layers\.(\d+)", name)
        at = -1 if number is None else int(number[1])
        if at != layer:
            found[name.replace(f"layers.{at}", f"layers.{at - (at > layer)}")] = array
    return found


def decoded(model: osl.Model, layers: int) -> dict[str, np.ndarray]:
    feeds = packages.feeds(tokens=4, past=3)
    rng = np.random.default_rng(1)
    for layer in range(layers):
        for part in ("key", "value"):
            cache = rng.standard_normal((1, 2, 3, 16)).astype(np.float32)
            feeds[f"past_key_values.{layer}.{part}"] = cache
    return osl.run(model, feeds)


@pytest.mark.parametrize("layer", range(3))
def test_a_package_without_a_layer_is_that_of_the_shorter_checkpoint(layer):
    parameters = packages.checkpoint(layers=3)

    dropped = osl.drop_layer(packages.decoder(parameters), layer)

    shorter = packages.decoder(without(parameters, layer))
    assert dropped.changes[0] == f"dropped layer {layer} of 3 in 'model.layers': 12 nodes"
    graph, wanted = dropped.model.proto.graph, shorter.proto.graph
    for field in ("input", "output", "initializer"):
        names = {each.name for each in getattr(graph, field)}
        assert names == {each.name for each in getattr(wanted, field)}
    assert [n.op_type for n in graph.node] == [n.op_type for n in wanted.node]
    actual, expected = decoded(dropped.model, 2), decoded(shorter, 2)
    for name, array in expected.items():
        np.testing.assert_allclose(actual[name], array, rtol=1e-4, atol=1e-5, err_msg=name)


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = torch.nn.Linear(8, 8)

    def forward(self, x, past, mask):
        kept = torch.cat([past, self.mix(x)], 1)
        return x + torch.softmax(x @ kept.mT + mask, -1) @ kept, kept


class Stack(torch.nn.Module):
    """Layers with a cache, whose common mask needs the length of the first one's."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(3))

    def forward(self, x, *past):
        length = past[0].shape[1]
        mask = torch.arange(length + x.shape[1])[None] > length + torch.arange(x.shape[1])[:, None]
        made = []
        for layer, before in zip(self.layers, past, strict=True):
            x, kept = layer(x, before, mask * -1e4)
            made.append(kept)
        return x, *made


@pytest.mark.parametrize("layer", range(3))
def test_an_export_without_a_layer_is_the_module_without_it(layer, exported_stack):
    module = Stack()
    del module.layers[layer]
    x, *past = (torch.randn(1, n, 8) for n in (2, 3, 3))

    dropped = osl.drop_layer(exported_stack, layer).model

    given = {"x": x.numpy(), **{f"past.{n}": p.numpy() for n, p in enumerate(past)}}
    assert [info.name for info in dropped.proto.graph.input] == list(given)
    actual = osl.run(dropped, given)
    assert list(actual) == ["y", "present.0", "present.1"]
    for array, wanted in zip(actual.values(), module(x, *past), strict=True):
        np.testing.assert_allclose(array, wanted.detach().numpy(), rtol=1e-4, atol=1e-5)
    index = osl.inspect(dropped, tree=True)
    assert [m.path for m in index if re.fullmatch(r"layers\.\d+", m.path)] == [
        "layers.0",
        "layers.1",
    ]


@pytest.fixture(scope="module")
def exported_stack(tmp_path_factory):
    path = tmp_path_factory.mktemp("stack") / "stack.onnx"
    given = tuple(torch.randn(1, n, 8) for n in (4, 5, 5, 5))
    length, new = torch.export.Dim("length"), torch.export.Dim("new")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Stack().eval(),
            given,
            path,
            dynamo=True,
            external_data=False,
            verbose=False,
            input_names=["x", *(f"past.{n}" for n in range(3))],
            output_names=["y", *(f"present.{n}" for n in range(3))],
            dynamic_shapes=({1: new}, tuple({1: length} for _ in range(3))),
        )
    return path


def test_a_module_is_removed_as_a_whole_and_what_others_need_of_it_stays():
    model = parse_text("""g (float[4] x) => (float[4] y) {
        ["/a/Shape"] n = Shape(x) ["/a/Neg"] p = Neg(x) ["/a/Exp"] q = Exp(p)
        ["/b/Reshape"] y = Reshape(q, n)
    }""")

    removed = osl.remove(model, "scope:a")

    assert [node.op_type for node in removed.model.proto.graph.node] == ["Shape", "Reshape"]
    assert removed.changes[-1] == "'x' replaces 'q'"
    assert osl.run(removed.model, {"x": np.arange(4, dtype=np.float32)})["y"].tolist() == [
        0,
        1,
        2,
        3,
    ]


def test_two_values_of_a_module_are_not_both_replaced_by_one():
    model = parse_text("""g (float[4] x) => (float[4] y) {
        ["/a/Neg"] p = Neg(x) ["/a/Exp"] q = Exp(p) ["/b/Add"] y = Add(p, q)
    }""")

    with pytest.raises(EditError, match="Add '/b/Add' would read one value in the place of two"):
        osl.remove(model, "scope:a")


def test_a_skip_with_a_bias_is_not_made_a_plain_normalization():
    model = packages.decoder(packages.checkpoint())
    skip = [n for n in model.proto.graph.node if n.op_type.startswith("Skip")][1]
    skip.input.append("bias")
    model.proto.graph.initializer.add(
        name="bias", dims=[packages.WIDTH], data_type=TensorProto.FLOAT
    ).float_data.extend([0.0] * packages.WIDTH)

    with pytest.raises(EditError, match="would read one value in the place of two"):
        osl.drop_layer(model, 0)


def test_of_several_stacks_one_is_named_and_a_layer_that_is_not_there_is_refused():
    model = parse_text(TWO_PARTS)

    with pytest.raises(UsageError, match="'a.l', 'b.l' have numbered layers"):
        osl.drop_layer(model, 0)
    with pytest.raises(EditError, match="'a.l' has 2 layers, 0 to 1: 2 cannot be dropped"):
        osl.drop_layer(model, 2, stack="a.l")
    with pytest.raises(UsageError, match="no module has layers"):
        osl.drop_layer(parse_text("g (float[4] x) => (float[4] y) { y = Neg(x) }"), 0)
    names = [n.name for n in osl.drop_layer(model, 0, stack="a.l").model.proto.graph.node]
    assert names[:4] == ["/a/l.0/Abs", "/a/l.0/Exp", "/b/l.0/Abs", "/b/l.0/Neg"]


def test_a_layer_is_dropped_by_the_command(tmp_path):
    osl.save(packages.decoder(packages.checkpoint(layers=3)), tmp_path / "decoder.onnx")
    words = ["edit", "drop-layer", tmp_path / "decoder.onnx", "1", "-o", tmp_path / "two.onnx"]

    done = CliRunner().invoke(app, list(map(str, words)))

    assert done.exit_code == 0, done.output
    assert "removed output 'present.1.key'" in done.stdout
    onnx.load(tmp_path / "two.onnx")


def test_a_glob_gives_all_inputs_that_match_another_dtype():
    model = packages.decoder(packages.checkpoint())

    changes = osl.set_type(model, {"past_key_values.*": "float16", "logits": "double"}).changes

    assert len(changes) == 5
    assert changes[0] == "input 'past_key_values.0.key': float -> float16"


def test_a_tree_is_as_deep_as_asked():
    model = packages.decoder(packages.checkpoint())

    paths = {module.path for module in osl.inspect(model, tree=True, depth=2)}

    assert {"model.layers", "lm_head"} <= paths
    assert max(path.count(".") for path in paths) == 1


@pytest.mark.parametrize("size", [3, "B"])
def test_a_batch_that_is_open_gets_a_size_or_another_name(size):
    done = osl.rebatch(packages.decoder(packages.checkpoint()), to=size)

    assert done.proof[0].startswith("agrees with the original at ")
    dims = [info.type.tensor_type.shape.dim[0] for info in done.model.proto.graph.input]
    assert {dim.dim_value or dim.dim_param for dim in dims} == {size}


def test_a_size_that_later_layers_read_is_no_stream_and_stays():
    layers = (
        '["/h.0/Add"] n = Add(k, k) ["/h.0/Exp"] p = Exp(x)'
        ' ["/h.1/Neg"] q = Neg(p) ["/h.1/Expand"] y = Expand(q, n)'
    )
    model = osl.build("g (float[4] x, int64[2] k) => (float y) { " + layers + " }")

    result = osl.drop_layer(model, 0).model

    assert [node.op_type for node in result.proto.graph.node] == ["Add", "Neg", "Expand"]
