"""A model's weights against a checkpoint: renamed, transposed, folded, cast; what differs is named, no more."""

import json
import pickle
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from safetensors.torch import save_file
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from onnxsurgeon_lite import load, open_references, save_tensors
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import ReferenceSetError, UsageError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.matching.weights import WeightsResult, compare_weights
from onnxsurgeon_lite.recording.checkpoint import open_checkpoint

RNG = np.random.default_rng(0)


def noise(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def model_with(folder: Path, nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray]) -> Path:
    """A model of nodes and initializers that need not run."""
    inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, None)]
    outputs = [helper.make_tensor_value_info(nodes[-1].output[0], onnx.TensorProto.FLOAT, None)]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    onnx.save(helper.make_model(graph), folder / "model.onnx")
    return folder / "model.onnx"


def compared(folder: Path, nodes, weights, checkpoint: dict[str, np.ndarray]) -> WeightsResult:
    index = GraphIndex.of(load(model_with(folder, nodes, weights)))
    save_tensors(folder / "checkpoint.npz", checkpoint)
    return compare_weights(index, open_references(folder / "checkpoint.npz"))


def linear(module: str, weight: str, source: str, target: str) -> onnx.NodeProto:
    return helper.make_node("MatMul", [source, weight], [target], name=f"/{module}/MatMul")


def hows(result: WeightsResult) -> dict[str, tuple[str, str, bool]]:
    return {w.name: (w.parameter, w.how, w.comparison.match) for w in result.weights}


def test_weights_of_other_names_and_layouts_are_found(tmp_path):
    square, wide, kernel, flat = noise(4, 4), noise(3, 4), noise(2, 3, 5, 5), noise(4, 1, 1)
    nodes = [
        linear("a", "onnx::1", "x", "h"),
        linear("b", "w", "h", "i"),
        helper.make_node("Conv", ["i", "k"], ["j"]),
        helper.make_node("Mul", ["j", "f"], ["y"]),
    ]
    weights = {"onnx::1": square.T, "w": wide, "k": kernel.transpose(3, 2, 1, 0), "f": flat}
    checkpoint = {"p.a": square, "p.b": wide, "p.c": kernel, "p.d": flat.reshape(-1)}

    result = compared(tmp_path, nodes, weights, checkpoint)

    assert hows(result) == {
        "onnx::1": ("p.a", "transposed", True),
        "w": ("p.b", "same", True),
        "k": ("p.c", "transposed", True),
        "f": ("p.d", "reshaped", True),
    }
    assert not result.only_model
    assert not result.only_checkpoint


def test_one_altered_weight_is_all_that_differs(tmp_path):
    weights = {f"onnx::{i}": noise(4, 4) for i in range(3)}
    checkpoint = {f"layer.{i}.weight": weights[f"onnx::{i}"].T.copy() for i in range(3)}
    nodes = [
        linear(f"layer/layer.{i}", f"onnx::{i}", f"{i}" if i else "x", f"{i + 1}") for i in range(3)
    ]
    weights["onnx::1"][2, 3] += 1

    result = compared(tmp_path, nodes, weights, checkpoint)

    (wrong,) = [w for w in result.weights if not w.comparison.match]
    assert (wrong.name, wrong.parameter, wrong.how) == ("onnx::1", "layer.1.weight", "transposed")
    assert (wrong.comparison.exceeding, wrong.comparison.worst.index) == (1, (2, 3))


def test_two_weights_that_changed_places_both_differ(tmp_path):
    q, k = noise(4, 4), noise(4, 4)
    nodes = [linear("q", "1", "x", "h"), linear("k", "2", "h", "y")]

    result = compared(tmp_path, nodes, {"1": k, "2": q}, {"q.weight": q, "k.weight": k})

    assert {w.name: (w.parameter, w.comparison.match) for w in result.weights} == {
        "1": ("q.weight", False),
        "2": ("k.weight", False),
    }


@pytest.mark.parametrize("front", [("", "model."), ("module.", ""), ("model.", "module.")])
def test_a_wrapper_around_either_side_is_no_difference(front, tmp_path):
    mine, theirs = front
    names = ["a.weight", "b.weight", "c.d.weight"]
    arrays = {name: noise(3, 3) for name in names}
    nodes = [
        linear(
            f"{mine}{name}".removesuffix(".weight"), mine + name, f"{i}" if i else "x", f"{i + 1}"
        )
        for i, name in enumerate(names)
    ]
    changed = arrays | {"b.weight": noise(3, 3)}

    result = compared(
        tmp_path,
        nodes,
        {mine + name: array for name, array in changed.items()},
        {theirs + name: array for name, array in arrays.items()},
    )

    wrong = [(w.name, w.parameter) for w in result.weights if not w.comparison.match]
    assert wrong == [(f"{mine}b.weight", f"{theirs}b.weight")]


def test_tied_weights_are_one_and_none_is_missing(tmp_path):
    shared = noise(8, 4)
    nodes = [
        helper.make_node("Gather", ["wte.weight", "x"], ["h"]),
        linear("head", "head", "h", "y"),
    ]
    checkpoint = {"wte.weight": shared, "lm_head.weight": shared}

    result = compared(tmp_path, nodes, {"wte.weight": shared, "head": shared.T}, checkpoint)

    assert result.match
    assert len(result.weights) == 2
    assert not result.only_checkpoint


def test_equal_biases_that_an_exporter_stored_once_are_all_there(tmp_path):
    zeros, weight = np.zeros(4, np.float32), noise(4, 4)
    nodes = [linear("a", "w", "x", "h"), helper.make_node("Add", ["h", "a.bias"], ["y"])]
    checkpoint = {"a.weight": weight.T, "a.bias": zeros, "b.bias": zeros, "c.weight": noise(2, 2)}

    result = compared(tmp_path, nodes, {"w": weight, "a.bias": zeros}, checkpoint)

    assert result.match
    assert result.only_checkpoint == ["c.weight"]


def test_a_constant_that_was_computed_from_parameters_is_none_of_them(tmp_path):
    token, weight = noise(1, 1, 4), noise(4, 4)
    nodes = [
        linear("embeddings/proj", "w", "x", "h"),
        helper.make_node("Concat", ["onnx::1", "h"], ["y"], axis=1, name="/embeddings/Concat"),
    ]
    weights = {"w": weight, "onnx::1": token + 1}
    checkpoint = {"embeddings.proj.weight": weight.T, "embeddings.token": token}

    result = compared(tmp_path, nodes, weights, checkpoint)

    assert result.match
    assert result.only_model == ["onnx::1"]
    assert result.only_checkpoint == ["embeddings.token"]


# --- folded BatchNorms ---


class Stem(torch.nn.Module):
    def __init__(self, transposed: bool, bias: bool, affine: bool) -> None:
        super().__init__()
        conv = torch.nn.ConvTranspose2d if transposed else torch.nn.Conv2d
        self.first, self.second = (conv(6, 6, 3, bias=bias) for _ in range(2))
        self.norm_1, self.norm_2 = (
            torch.nn.BatchNorm2d(6, eps=3e-4, affine=affine) for _ in range(2)
        )
        for tensor in (*self.parameters(), *self.buffers()):
            if tensor.is_floating_point():
                torch.nn.init.uniform_(tensor, 0.2, 2)

    def folded(self) -> dict[str, np.ndarray]:
        """The weights after folding, as torch does it."""
        found = {}
        for name, conv, norm in (("1", self.first, self.norm_1), ("2", self.second, self.norm_2)):
            both = torch.nn.utils.fusion.fuse_conv_bn_weights(
                conv.weight,
                conv.bias,
                norm.running_mean,
                norm.running_var,
                norm.eps,
                norm.weight,
                norm.bias,
                isinstance(conv, torch.nn.ConvTranspose2d),
            )
            pair = zip((f"w{name}", f"b{name}"), both, strict=True)
            found |= {key: part.detach().numpy().copy() for key, part in pair}
        return found


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
def test_a_folded_batch_norm_is_unfolded_whatever_its_epsilon(transposed, bias, affine, tmp_path):
    torch.manual_seed(0)
    module = Stem(transposed, bias, affine).eval()
    op = "ConvTranspose" if transposed else "Conv"
    nodes = [
        helper.make_node(op, ["x", "w1", "b1"], ["h"], name="/first/Conv"),
        helper.make_node(op, ["h", "w2", "b2"], ["y"], name="/second/Conv"),
    ]
    weights, state = module.folded(), {k: v.numpy() for k, v in module.state_dict().items()}

    whole = compared(tmp_path, nodes, weights, state)
    weights["w2"][0, 1, 2, 2] += 1
    altered = compared(tmp_path, nodes, weights, state)

    assert {w.name: w.how for w in whole.weights} == {
        "w1": "folded with norm_1",
        "b1": "folded with norm_1",
        "w2": "folded with norm_2",
        "b2": "folded with norm_2",
    }
    assert whole.match
    assert not whole.only_checkpoint
    wrong = [w for w in altered.weights if not w.comparison.match]
    assert [(w.name, w.how, w.comparison.exceeding) for w in wrong] == [
        ("w2", "folded with norm_2", 1)
    ]


def folded_stack(*epsilons: float) -> tuple[list, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Convolutions with BatchNorms folded in, and their checkpoint."""
    nodes, weights, state, source = [], {}, {}, "x"
    for i, epsilon in enumerate(epsilons):
        kernel, norm = (
            noise(6, 6, 3, 3),
            [RNG.uniform(0.2, 2, 6).astype(np.float32) for _ in range(4)],
        )
        parts = ("weight", "bias", "running_mean", "running_var")
        state |= {f"conv.{i}.weight": kernel}
        state |= {f"norm.{i}.{part}": array for part, array in zip(parts, norm, strict=True)}
        gamma, beta, mean, variance = norm
        factor = gamma / np.sqrt(variance + np.float32(epsilon))
        weights |= {f"w{i}": kernel * factor[:, None, None, None], f"b{i}": beta - mean * factor}
        names = [source, f"w{i}", f"b{i}"]
        nodes.append(helper.make_node("Conv", names, [f"h{i}"], name=f"/conv.{i}/Conv"))
        source = f"h{i}"
    return nodes, weights, state


def test_one_epsilon_of_all_batch_norms_is_shown_and_another_one_is_a_finding(tmp_path):
    right, odd = (compared(tmp_path, *folded_stack(1e-3, second, 1e-3)) for second in (1e-3, 1e-5))

    assert right.match
    assert right.epsilon == odd.epsilon == 1e-3
    assert not odd.match
    assert all(weight.comparison.match for weight in odd.weights)
    assert {w.name: w.finding for w in odd.weights if w.finding} == {
        "w1": "epsilon is 1e-05, 0.001 in the other BatchNorms"
    }
    assert "the folded BatchNorms have epsilon 0.001" in str(right)


def test_a_folded_bias_that_is_off_differs_alone(tmp_path):
    nodes, weights, state = folded_stack(1e-5, 1e-5)
    weights["b1"][2] += np.float32(0.01)

    result = compared(tmp_path, nodes, weights, state)

    wrong = [weight for weight in result.weights if not weight.comparison.match]
    assert [(w.name, w.how, w.comparison.exceeding) for w in wrong] == [
        ("b1", "folded with norm.1", 1)
    ]


def norms(weights: list[np.ndarray]) -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    """Norms of several layers, whose weights an exporter named anew."""
    names = ["x", *(f"h{i}" for i in range(len(weights)))]
    nodes = [
        helper.make_node("Mul", [names[i], f"c{i}"], [names[i + 1]], name=f"/layers.{i}/norm/Mul")
        for i in range(len(weights))
    ]
    return nodes, {f"c{i}": weight for i, weight in enumerate(weights)}


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_norms_that_multiply_with_1_and_the_weight_are_folded(dtype, tmp_path):
    stored = [noise(8).astype(dtype) for _ in range(3)]
    state = {f"layers.{i}.norm.weight": array for i, array in enumerate(stored)}
    nodes, weights = norms([(1 + array.astype(np.float32)) for array in stored])

    result = compared(tmp_path, nodes, weights, state)
    off = compared(
        tmp_path, nodes, weights | {"c1": weights["c1"] + np.float32([0] * 7 + [1e-4])}, state
    )
    mixed = compared(tmp_path, nodes, weights | {"c1": stored[1].astype(np.float32)}, state)

    assert result.match
    assert hows(result)["c1"] == ("layers.1.norm.weight", "folded as 1 + it", True)
    assert not result.only_checkpoint
    (wrong,) = (weight for weight in off.weights if not weight.comparison.match)
    assert (wrong.name, wrong.how, wrong.comparison.exceeding) == ("c1", "folded as 1 + it", 1)
    assert [w.name for w in mixed.weights if not w.comparison.match] == ["c0", "c2"]


def test_a_folded_sum_is_updated_with_the_sum(tmp_path):
    stored = [noise(8) for _ in range(2)]
    nodes, weights = norms([1 + array for array in stored])
    path = model_with(tmp_path, nodes, weights)
    for name, factor in (("old", 1), ("new", 3)):
        state = {f"layers.{i}.norm.weight": factor * a for i, a in enumerate(stored)}
        save_tensors(tmp_path / f"{name}.npz", state)

    result = osl.weights(path, tmp_path / "old.npz", update=tmp_path / "new.npz")

    written = {t.name: numpy_helper.to_array(t) for t in result.model.proto.graph.initializer}
    assert np.array_equal(written["c1"], 1 + 3 * stored[1])


def gemm(module: str, weight: str, trans_b: int) -> onnx.NodeProto:
    return helper.make_node("Gemm", ["x", weight], ["y"], name=f"/{module}/Gemm", transB=trans_b)


@pytest.mark.parametrize(
    ("node", "is_turned", "finding"),
    [
        (linear("a", "w", "x", "y"), True, ""),
        (gemm("a", "w", 1), False, ""),
        (gemm("a", "w", 0), True, ""),
        (gemm("a", "w", 1), True, "is transposed, unlike what its Gemm needs"),
        (helper.make_node("Gather", ["w", "x"], ["y"], name="/a/Gather"), False, ""),
        (
            helper.make_node("Gather", ["w", "x"], ["y"], name="/a/Gather"),
            True,
            "is transposed, and Gather does not transpose it back",
        ),
    ],
)
def test_a_square_weight_that_its_node_needs_otherwise_is_a_finding(
    node, is_turned, finding, tmp_path
):
    square = noise(4, 4)

    result = compared(
        tmp_path, [node], {"w": square.T if is_turned else square}, {"a.weight": square}
    )

    assert [weight.finding for weight in result.weights] == [finding]
    assert result.match == (not finding)
    assert ("transposed: 'w' from 'a.weight'" in str(result)) == is_turned


@pytest.mark.parametrize("by_input", [True, False])
def test_what_a_square_weight_must_be_follows_from_the_others(by_input, tmp_path):
    wide, square = noise(4, 8), noise(4, 4)
    nodes = [linear("a", "v", "x", "h"), linear("b", "w", "h", "y")]
    checkpoint = {"a.weight": wide if by_input else wide.T, "b.weight": square}

    same, turned = (
        compared(tmp_path, nodes, {"v": wide, "w": w}, checkpoint) for w in (square, square.T)
    )

    right, wrong = (same, turned) if by_input else (turned, same)
    assert right.match
    assert [w.name for w in wrong.weights if w.finding] == ["w"]


# --- files ---


@pytest.fixture
def small(tmp_path) -> tuple[Path, dict[str, torch.Tensor]]:
    """A model in half precision, and what it was exported from."""
    state = {"a.weight": torch.randn(4, 4), "a.bias": torch.randn(4), "step": torch.tensor(3)}
    weights = {"a.weight": state["a.weight"].half().numpy(), "a.bias": state["a.bias"].numpy()}
    nodes = [linear("a", "a.weight", "x", "h"), helper.make_node("Add", ["h", "a.bias"], ["y"])]
    return model_with(tmp_path, nodes, weights), state


def stored(state: dict[str, torch.Tensor], how: str, folder: Path) -> Path:
    path = folder / f"state.{'npz' if how == 'npz' else 'safetensors' if how == 'st' else 'pt'}"
    match how:
        case "npz":
            save_tensors(path, {name: tensor.numpy() for name, tensor in state.items()})
        case "st":
            save_file(state, path)
        case "wrapped":
            torch.save({"epoch": 3, "model_state_dict": state}, path)
        case _:
            torch.save(state, path, _use_new_zipfile_serialization=how == "pt")
    return path


def test_a_later_checkpoint_is_written_as_the_first_one_was_exported(tmp_path):
    """Renamed, transposed, cast, folded with and without a bias of its own; what is no parameter stays."""
    old = {
        "a.weight": noise(4, 4), "a.bias": noise(4), "c.weight": noise(3, 2, 3, 3), "c.bias": noise(3),
        "bn.weight": noise(3), "bn.bias": noise(3), "bn.running_mean": noise(3), "bn.running_var": abs(noise(3)) + 1,
    }  # fmt: skip
    new = {name: array + 1 for name, array in old.items()}

    def exported(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        factor = state["bn.weight"] / np.sqrt(state["bn.running_var"] + 1e-3)
        return {
            "onnx::MatMul_1": state["a.weight"].T.copy(),
            "bias": state["a.bias"].astype(np.float16),
            "onnx::Conv_2": state["c.weight"] * factor.reshape(3, 1, 1, 1),
            "onnx::Conv_3": (state["c.bias"] - state["bn.running_mean"]) * factor
            + state["bn.bias"],
            "scale": np.ones(2, np.float32),
        }

    nodes = [
        linear("a", "onnx::MatMul_1", "x", "h"),
        helper.make_node("Add", ["h", "bias"], ["i"], name="/a/Add"),
        helper.make_node("Mul", ["i", "scale"], ["j"]),
        helper.make_node("Conv", ["j", "onnx::Conv_2", "onnx::Conv_3"], ["y"], name="/c/Conv"),
    ]
    path = model_with(tmp_path, nodes, exported(old))

    result = osl.weights(path, old, update=new)

    weights = {t.name: result.model.array(t) for t in result.model.proto.graph.initializer}
    assert result.updated == ["onnx::MatMul_1", "bias", "onnx::Conv_2", "onnx::Conv_3"]
    for name, array in exported(new).items():
        assert weights[name].dtype == array.dtype
        assert np.allclose(weights[name], array, rtol=1e-4)
    again = osl.weights(result.model, new)
    assert again.match
    assert len(again.weights) == 4
    both = r"'a.weight' as it is, or 'a.weight' transposed to \[1, 0\]"
    with pytest.raises(ReferenceSetError, match=both):
        osl.weights(path, old | {"a.weight": noise(4, 4)}, update=new)
    with pytest.raises(ReferenceSetError, match=r"has no parameter 'a\.weight'"):
        osl.weights(path, old, update={n: a for n, a in new.items() if n != "a.weight"})


@pytest.mark.parametrize(("outer", "inner"), [("", "model."), ("", "net.model."), ("module.", "")])
def test_a_checkpoint_saved_from_inside_a_wrapper_updates_as_the_bare_one(outer, inner, tmp_path):
    old, new = {"a.weight": noise(5, 4)}, {"a.weight": noise(5, 4)}
    nodes = [linear("a", "w", "x", "y")]

    result, weights = updated(
        tmp_path,
        nodes,
        {"w": old["a.weight"].T},
        {f"{outer}{name}": array for name, array in old.items()},
        {f"{inner}{name}": array for name, array in new.items()},
    )

    assert result.updated == ["w"]
    assert np.array_equal(weights["w"], new["a.weight"].T)


def test_a_quantized_model_is_not_updated_and_the_way_is_said(tmp_path):
    old, new = ({"a.weight": noise(4, 4)} for _ in range(2))
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "scale"], ["w"]),
        linear("a", "w", "x", "y"),
        helper.make_node("Add", ["y", "bias"], ["z"], name="/b/Add"),
    ]
    bias = {"b.bias": noise(4)}
    weights = {
        "q": (old["a.weight"].T * 40).round().astype(np.int8),
        "scale": np.float32(1 / 40),
        "bias": bias["b.bias"],
    }

    with pytest.raises(ReferenceSetError, match=r"'a\.weight', and the numbers of 'q'") as caught:
        updated(tmp_path, nodes, weights, old | bias, new | bias)

    assert caught.value.hint == (
        "the model is quantized: update the float model, and quantize that again"
    )


def updated(folder: Path, nodes, weights, old, new, **how) -> tuple[WeightsResult, dict]:
    result = osl.weights(model_with(folder, nodes, weights), old, update=new, **how)
    return result, {t.name: result.model.array(t) for t in result.model.proto.graph.initializer}


def add(name: str, source: str, target: str, module: str) -> onnx.NodeProto:
    return helper.make_node("Add", [source, name], [target], name=f"/{module}/Add")


def test_rows_and_gates_that_an_export_gathered_are_followed(tmp_path):
    old = {"wpe.weight": noise(9, 4), "rnn.bias_ih": noise(12), "rnn.bias_hh": noise(12)}
    new = {name: noise(*array.shape) for name, array in old.items()}

    def exported(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        gates = [state[f"rnn.bias_{part}"].reshape(3, 4)[[1, 0, 2]] for part in ("ih", "hh")]
        return {
            "positions": state["wpe.weight"][np.array([[0, 1, 2], [5, 1, 0]])],
            "turned": state["wpe.weight"][2:6].T.copy(),
            "B": np.concatenate(gates).reshape(1, 24),
        }

    nodes = [
        add("positions", "x", "h", "emb"),
        helper.make_node("MatMul", ["h", "turned"], ["i"]),
        helper.make_node("GRU", ["i", "w", "r", "B"], ["y"], hidden_size=4),
    ]

    result, weights = updated(tmp_path, nodes, exported(old), old, new)

    assert result.updated == ["positions", "turned", "B"]
    assert all(np.array_equal(weights[name], array) for name, array in exported(new).items())
    with pytest.raises(ReferenceSetError, match=r"'wpe.weight' is \[8, 4\], it was \[9, 4\]"):
        updated(tmp_path, nodes, exported(old), old, new | {"wpe.weight": noise(8, 4)})


def test_a_weight_that_stands_for_parameters_which_are_equal_no_more_is_not_written(tmp_path):
    ones, matrix = np.ones(4, np.float32), noise(4, 4)
    nodes = [
        helper.make_node("Mul", ["x", "a.scale"], ["h"], name="/a/Mul"),
        helper.make_node("Mul", ["h", "a.scale"], ["i"], name="/b/Mul"),
        linear("c", "c.weight", "i", "y"),
    ]
    weights = {"a.scale": ones, "c.weight": matrix}
    old = {"a.scale": ones, "b.scale": ones, "c.weight": matrix}
    new = {"a.scale": noise(4), "b.scale": noise(4), "c.weight": matrix * 2}

    with pytest.raises(
        ReferenceSetError, match=r"'a.scale', 'b.scale', which were(.|\n)*edit unshare"
    ):
        updated(tmp_path, nodes, weights, old, new)
    result, written = updated(tmp_path, nodes, weights, old, new, partial=True)

    assert result.updated == ["c.weight"]
    assert list(result.kept) == ["a.scale"]
    assert np.array_equal(written["a.scale"], ones)
    _, tied = updated(tmp_path, nodes, weights, old, new | {"b.scale": new["a.scale"]})
    assert np.array_equal(tied["a.scale"], new["a.scale"])
    own = osl.unshare(tmp_path / "model.onnx", "a.scale").model
    result = osl.weights(own, old, update=new)
    made = {t.name: result.model.array(t) for t in result.model.proto.graph.initializer}
    assert np.array_equal(made["a.scale_1"], new["b.scale"])
    assert osl.weights(result.model, new).match


def test_a_constant_that_equals_a_parameter_by_luck_keeps_its_number(tmp_path):
    ones = np.ones(4, np.float32)
    nodes = [helper.make_node("Mul", ["x", "val_1"], ["h"]), add("a.bias", "h", "y", "a")]
    state = {"a.bias": noise(4), "norm.weight": ones}

    weights = {"val_1": ones, "a.bias": state["a.bias"]}
    with pytest.raises(ReferenceSetError, match="'val_1' may be a constant: it holds one number"):
        updated(tmp_path, nodes, weights, state, state | {"norm.weight": noise(4)})


def test_a_parameter_that_may_be_part_of_an_unknown_weight_is_named(tmp_path):
    matrix, bias = noise(4, 4), noise(4)
    nodes = [linear("a", "made", "x", "h"), add("a.bias", "h", "y", "a")]
    old = {"a.g": noise(4, 1), "a.v": matrix, "a.bias": bias, "unused": noise(3)}
    weights = {
        "made": matrix * old["a.g"] / np.linalg.norm(matrix, axis=1)[:, None],
        "a.bias": bias,
    }
    new = {name: array + 1 for name, array in old.items()}
    unknown = "no weight is known to hold .*'a.g'.* and the numbers of 'made' do not tell"

    with pytest.raises(ReferenceSetError, match=unknown):
        updated(tmp_path, nodes, weights, old, new)
    result, _ = updated(tmp_path, nodes, weights, old, new, partial=True)
    plain, _ = updated(tmp_path, nodes[1:], {"a.bias": bias}, old, new)

    assert "a.bias" in result.updated
    assert plain.updated == ["a.bias"]
    with pytest.raises(ReferenceSetError, match="has 'lora_A', which the model's checkpoint lacks"):
        updated(tmp_path, nodes[1:], {"a.bias": bias}, old, new | {"lora_A": noise(2, 4)})


def test_a_parameter_of_one_number_is_written_by_its_name_and_overflow_is_refused(tmp_path):
    nodes = [helper.make_node("Mul", ["x", "scale"], ["h"]), add("bias", "h", "y", "")]
    old = {"scale": np.float32(1.5), "bias": noise(3)}
    weights = {"scale": np.float16(1.5), "bias": old["bias"]}

    _, written = updated(tmp_path, nodes, weights, old, old | {"scale": np.float32(2.5)})

    assert written["scale"].shape == ()
    assert written["scale"] == 2.5
    with pytest.raises(
        ReferenceSetError, match="has numbers that float16 of 'scale' does not reach"
    ):
        updated(tmp_path, nodes, weights, old, old | {"scale": np.float32(1e6)})


def test_batch_norms_that_were_equal_do_not_tell_which_one_was_folded(tmp_path):
    norms = {f"{n}.{k}": np.full(3, v, np.float32) for n in ("b", "c") for k, v in FRESH.items()}
    kernel = noise(3, 2, 1, 1)
    nodes = [helper.make_node("Conv", ["x", "k"], ["y"], name="/a/Conv")]
    old = norms | {"a.weight": kernel}
    new = {name: abs(noise(*array.shape)) for name, array in old.items()}
    weights = {"k": kernel / np.sqrt(np.float32(1 + 1e-3))}

    with pytest.raises(ReferenceSetError, match="folded with 'b' or 'c', which were equal"):
        updated(tmp_path, nodes, weights, old, new)


FRESH = {"weight": 1, "bias": 0, "running_mean": 0, "running_var": 1}


def folded_one(state: dict[str, np.ndarray], bias: bool, dtype=np.float32) -> dict[str, np.ndarray]:
    factor = state["bn.weight"] / np.sqrt(state["bn.running_var"] + 1e-5)
    own = state["c.bias"] if bias else 0
    made = state["bn.bias"] + (own - state["bn.running_mean"]) * factor
    return {
        "k": (state["c.weight"] * factor[:, None, None, None]).astype(dtype),
        "b": made.astype(dtype),
    }


FOLDED = [helper.make_node("Conv", ["x", "k", "b"], ["y"], name="/c/Conv")]


def conv_state(**instead: np.ndarray) -> dict[str, np.ndarray]:
    state = {"c.weight": noise(3, 2, 3, 3)}
    return state | {f"bn.{k}": abs(noise(3)) + 1 for k in FRESH} | instead


@pytest.mark.parametrize("mean", [0, 1])
@pytest.mark.parametrize("is_plain", [False, True])
def test_a_bias_that_equals_the_shift_of_its_norm_is_folded_all_the_same(is_plain, mean, tmp_path):
    """A norm without mean, and one whose factor vanishes in half precision."""
    old = conv_state(**{"bn.running_mean": np.full(3, mean, np.float32)})
    dtype = np.float32
    if is_plain:
        dtype = np.float16
        old |= {"bn.weight": np.ones(3, np.float32), "bn.running_var": np.ones(3, np.float32)}
    new = conv_state()
    weights = folded_one(old, False, dtype)

    result, written = updated(tmp_path, FOLDED, weights, old, new)

    assert [w.how for w in result.weights] == ["folded with bn", "folded with bn"]
    tolerance = 1e-2 if is_plain else 1e-3
    for name, array in folded_one(new, False, dtype).items():
        assert np.allclose(written[name], array, rtol=tolerance, atol=tolerance)
    forgotten = folded_one(new, False) | {"b": new["bn.bias"]}
    checked = compared(tmp_path, FOLDED, forgotten, new)
    assert [w.name for w in checked.weights if not w.comparison.match] == ["b"]


def test_a_fold_that_changes_nothing_is_not_guessed(tmp_path):
    fresh = {f"bn.{k}": np.full(3, v, np.float32) for k, v in FRESH.items()}
    old = conv_state(**fresh, **{"c.bias": noise(3)})
    new = conv_state(**{"c.bias": noise(3)})

    with pytest.raises(ReferenceSetError, match="'c.weight' as it is, or folded with bn"):
        updated(tmp_path, FOLDED, folded_one(old, True, np.float16), old, new)


def test_without_the_old_checkpoint_a_norm_that_may_be_folded_in_is_not_forgotten(tmp_path):
    old = conv_state()
    new = {
        name: array * RNG.uniform(0.9, 1.1, array.shape).astype(np.float32)
        for name, array in old.items()
    }
    new["bn.running_var"] = old["bn.running_var"] * np.float32([0.2, 3, 9])

    path = model_with(tmp_path, FOLDED, folded_one(old, False))

    with pytest.raises(ReferenceSetError, match="no weight is known to hold 'bn.bias'"):
        osl.weights(path, update=new)
    result = osl.weights(path, update=new, partial=True)

    assert result.updated == []
    assert all("or folded with bn" in reason for reason in result.kept.values()), result.kept


@pytest.mark.parametrize("how", ["symmetric", "identity"])
def test_without_the_old_checkpoint_a_square_weight_says_its_order_or_is_refused(how, tmp_path):
    old = noise(6, 6)
    old = old + old.T if how == "symmetric" else old * 0.01 + np.eye(6, dtype=np.float32)
    new = old + 0.1 * noise(6, 6)
    path = model_with(tmp_path, [linear("a", "w", "x", "y")], {"w": old.T.copy()})

    with pytest.raises(ReferenceSetError, match="'a.weight' .*, or 'a.weight'"):
        osl.weights(path, update={"a.weight": new})

    clear = noise(6, 6)
    path = model_with(tmp_path, [linear("a", "w", "x", "y")], {"w": clear.T.copy()})
    result = osl.weights(path, update={"a.weight": clear + 0.1 * noise(6, 6)})
    assert result.weights[0].how == "transposed"


def test_without_the_old_checkpoint_equal_looking_parameters_of_one_module_are_not_guessed(
    tmp_path,
):
    nodes = [helper.make_node("Mul", ["x", "val_0"], ["y"], name="/block/norm/Mul")]
    new = {f"block.norm{i}.weight": 1 + 0.01 * noise(4) for i in (1, 2)}

    with pytest.raises(
        ReferenceSetError, match="norm1.weight' as it is, or 'block.norm2.weight' as"
    ):
        osl.weights(model_with(tmp_path, nodes, {"val_0": np.ones(4, np.float32)}), update=new)


def test_the_command_writes_the_updated_model(small, tmp_path):
    path, state = small
    new, old = tmp_path / "new.npz", stored(state, "st", tmp_path)
    save_tensors(new, {name: tensor.numpy() * 2 for name, tensor in state.items()})
    words = ["weights", str(path), "--against", str(old), "--update", str(new)]

    done = CliRunner().invoke(app, [*words, "-o", str(tmp_path / "out.onnx")])

    assert done.exit_code == 0, done.output
    assert "2 weights got other numbers" in done.stdout
    assert osl.weights(tmp_path / "out.onnx", new).match


@pytest.mark.parametrize("how", ["pt", "legacy", "wrapped", "st", "npz"])
def test_every_format_is_read(how, small, tmp_path):
    model, state = small
    checkpoint = open_checkpoint(stored(state, how, tmp_path))

    result = compare_weights(GraphIndex.of(load(model)), checkpoint)

    assert result.match
    assert len(result.weights) == 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float16])
def test_narrow_parameters_are_read_bit_by_bit(dtype, tmp_path):
    tensor = torch.randn(3, 5).to(dtype)
    torch.save({"w": tensor}, tmp_path / "state.pt")

    read = open_checkpoint(tmp_path / "state.pt").read("w")

    np.testing.assert_array_equal(read.astype(np.float32), tensor.float().numpy())


class Runs:
    """What a pickle runs when it is loaded."""

    def __reduce__(self):
        return (Path.touch, (Path("ran"),))


def test_a_pickle_that_runs_something_is_refused_and_does_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("plain.pt").write_bytes(pickle.dumps(Runs()))
    torch.save({"w": torch.zeros(2), "more": Runs()}, "zip.pt")
    torch.save(torch.nn.Linear(2, 2), "module.pt")

    for name in ("plain.pt", "zip.pt", "module.pt"):
        with pytest.raises(ReferenceSetError, match="refused") as caught:
            open_checkpoint(Path(name))
        assert "state_dict()" in caught.value.hint
    assert not Path("ran").exists()


def test_a_file_that_is_not_there_is_missed_before_torch_is(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)

    with pytest.raises(ReferenceSetError, match="No such file or directory"):
        open_checkpoint(tmp_path / "nothing.pt")
    (tmp_path / "state.pt").write_bytes(b"PK")
    with pytest.raises(UsageError, match="needs torch"):
        open_checkpoint(tmp_path / "state.pt")


def test_a_checkpoint_of_llama_cpp_is_read_in_float(tmp_path):
    gguf = pytest.importorskip("gguf")
    numbers = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32)
    kind = gguf.GGMLQuantizationType.Q8_0
    writer = gguf.GGUFWriter(tmp_path / "net.gguf", "llama")
    writer.add_tensor("blk.0.ffn_up.weight", numbers)
    writer.add_tensor("half", numbers.astype(np.float16))
    writer.add_tensor("eight", gguf.quantize(numbers, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    read = open_checkpoint(tmp_path / "net.gguf")

    assert {name: read.entries[name].shape for name in read} == dict.fromkeys(read, (4, 64))
    np.testing.assert_array_equal(read.read("blk.0.ffn_up.weight"), numbers)
    np.testing.assert_array_equal(read.read("half"), numbers.astype(np.float16))
    scales = np.abs(numbers.reshape(4, 2, 32)).max(-1, keepdims=True) / 127
    off = np.abs(read.read("eight") - numbers).reshape(4, 2, 32)
    assert (off <= scales * 0.51).all()
    # the weight of a Linear has another name there, and the other layout here
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[1,64] x) => (float[1,4] y) { y = MatMul(x, w) }"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(numbers.T.copy(), "w"))
    onnx.save(model, tmp_path / "net.onnx")
    found = osl.weights(tmp_path / "net.onnx", tmp_path / "net.gguf")
    assert found.match
    assert "1 of 1 weights found" in str(found)


def test_rows_that_llama_cpp_orders_by_pairs_are_in_their_order(tmp_path):
    """Its converter moves the rows of q and k of a Llama: those that are rotated together follow one another."""
    gguf = pytest.importorskip("gguf")
    rng = np.random.default_rng(0)
    heads, held = {"q": 4, "k": 2, "v": 2}, {}
    for part, count in heads.items():
        held[f"blk.0.attn_{part}.weight"] = rng.normal(size=(count * 8, 32)).astype(np.float32)
    held["blk.0.attn_q.bias"] = rng.normal(size=32).astype(np.float32)
    for kind in ("llama", "qwen2"):
        writer = gguf.GGUFWriter(tmp_path / f"{kind}.gguf", kind)
        writer.add_head_count(heads["q"])
        writer.add_head_count_kv(heads["k"])
        for name, numbers in held.items():
            stored, part = numbers, name.split("_")[1][0]
            if kind == "llama" and part != "v":
                # as convert_hf_to_gguf.py does it
                halves = numbers.reshape(heads[part], 2, 4, *numbers.shape[1:])
                stored = np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(numbers.shape)
            writer.add_tensor(name, stored)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

        read = open_checkpoint(tmp_path / f"{kind}.gguf")

        for name, numbers in held.items():
            np.testing.assert_array_equal(read.read(name), numbers)


def test_a_checkpoint_of_llama_cpp_says_which_library_reads_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "gguf", None)
    (tmp_path / "net.gguf").write_bytes(b"GGUF")

    with pytest.raises(UsageError, match="needs gguf") as caught:
        open_checkpoint(tmp_path / "net.gguf")

    assert caught.value.hint.startswith("run pip install gguf")


def test_a_damaged_checkpoint_of_llama_cpp_is_told(tmp_path):
    pytest.importorskip("gguf")
    (tmp_path / "net.gguf").write_bytes(b"GGUF and no more")

    with pytest.raises(ReferenceSetError, match="cannot read"):
        open_checkpoint(tmp_path / "net.gguf")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "state.pt': No such file or directory$"),
        (b"", "cannot read"),
        (b"PK\3\4nothing", "cannot read"),
        (b"no", "refused"),
    ],
)
def test_a_file_that_is_no_checkpoint_is_told(content, message, tmp_path):
    if content is not None:
        (tmp_path / "state.pt").write_bytes(content)

    with pytest.raises(ReferenceSetError, match=message):
        open_checkpoint(tmp_path / "state.pt")


def test_zeros_and_ones_of_another_network_are_no_weights_of_the_model(tmp_path):
    other = {"norm.weight": np.ones(3, np.float32), "norm.bias": np.zeros(7, np.float32)}
    np.savez(tmp_path / "other.npz", **other)
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,7] x) => (float[2,7] y)
    <float[7] val_3 = {0,0,0,0,0,0,0}, float[7] w = {1,2,3,4,5,6,7}> { s = Mul(x, w) y = Add(s, val_3) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "own.onnx")

    with pytest.raises(ReferenceSetError, match="has no weight of the model"):
        osl.weights(tmp_path / "own.onnx", tmp_path / "other.npz")
    np.savez(tmp_path / "own.npz", **other, scale=np.arange(1, 8, dtype=np.float32))
    found = osl.weights(tmp_path / "own.onnx", tmp_path / "own.npz")
    assert "2 of 2 weights found: 0 differ; 2 same" in str(found)


def test_the_checkpoint_of_another_model_is_told(small, tmp_path):
    save_tensors(tmp_path / "other.npz", {"w": noise(7)})

    with pytest.raises(ReferenceSetError, match="has no weight of the model"):
        compare_weights(GraphIndex.of(load(small[0])), open_references(tmp_path / "other.npz"))


def test_the_command_exits_1_on_a_difference_and_says_which(small, tmp_path):
    model, state = small
    state["a.bias"][1] += 1
    path = stored(state, "pt", tmp_path)

    shown = CliRunner().invoke(app, ["weights", str(model), "--against", str(path)])
    told = CliRunner().invoke(app, ["weights", str(model), "--against", str(path), "--json"])

    assert (shown.exit_code, told.exit_code) == (1, 1)
    assert "differs: 'a.bias' from 'a.bias', same" in shown.output
    assert "1 of 4 elements exceed" in shown.output
    found = {w["name"]: w["comparison"]["match"] for w in json.loads(told.stdout)["weights"]}
    assert found == {"a.weight": True, "a.bias": False}
