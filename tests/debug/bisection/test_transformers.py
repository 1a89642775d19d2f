"""Real architectures with random weights, exported by torch, one wrong node planted in each."""

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
import transformers

from kit import AS_WRITTEN
from kit.faults import Output
from onnxsurgeon_lite import Extract, load, open_references, save
from onnxsurgeon_lite.debug.bisection.bisect import bisect
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.recording.from_model import record
from onnxsurgeon_lite.runtime.feeds import Recipe, make_feeds
from onnxsurgeon_lite.runtime.run import run
from onnxsurgeon_lite.runtime.session import Runtime, run_model
from onnxsurgeon_lite.surgery.types import downstream


def dpt() -> tuple[torch.nn.Module, torch.Tensor]:
    config = transformers.DPTConfig(
        hidden_size=48,
        intermediate_size=96,
        num_attention_heads=4,
        image_size=96,
        fusion_hidden_size=16,
        neck_hidden_sizes=[16, 16, 16, 16],
        initializer_range=0.2,  # with the default, the last layers change the output by rounding errors
        attn_implementation="eager",
    )
    return Output(transformers.DPTForDepthEstimation(config), "predicted_depth"), torch.randn(
        1, 3, 96, 96
    )


def gpt2() -> tuple[torch.nn.Module, torch.Tensor]:
    config = transformers.GPT2Config(
        n_layer=12,
        n_embd=48,
        n_head=4,
        vocab_size=128,
        use_cache=False,
        attn_implementation="eager",
    )
    return Output(transformers.GPT2LMHeadModel(config), "logits"), torch.arange(16).reshape(1, 16)


@pytest.fixture(scope="module", params=[(dpt, False), (gpt2, True)], ids=["DPT", "GPT-2"])
def exported(request, tmp_path_factory) -> tuple[Path, Path]:
    """(model, references of every value)."""
    make, dynamo = request.param
    folder = tmp_path_factory.mktemp(make.__name__)
    torch.manual_seed(0)
    module, given = make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(),
            (given,),
            folder / "model.onnx",
            dynamo=dynamo,
            opset_version=18,
            external_data=False,
            input_names=["given"],
            verbose=False,
        )
    index = GraphIndex.of(load(folder / "model.onnx"))
    feeds, _ = make_feeds(index, Recipe(seed=1))
    with Runtime(AS_WRITTEN) as runtime:
        record(index, feeds, runtime, folder / "references")
    return folder / "model.onnx", folder / "references"


def planted(model: Path, position: int) -> Path:
    """A copy in which one LayerNormalization has another epsilon."""
    proto = onnx.load(model)
    attributes = proto.graph.node[position].attribute
    next(a for a in attributes if a.name == "epsilon").f = 3.0
    onnx.save(proto, model.with_name("wrong.onnx"))
    return model.with_name("wrong.onnx")


def test_the_planted_node_is_named(exported):
    model, references = exported
    nodes = onnx.load(model).graph.node
    norms = [i for i, node in enumerate(nodes) if node.op_type == "LayerNormalization"]

    for position in norms[1 :: len(norms) // 4]:
        wrong = load(planted(model, position))
        stored = open_references(references)
        feeds = {name: stored.read(name) for name in GraphIndex.of(wrong).inputs}
        with Runtime(AS_WRITTEN) as runtime:
            result = bisect(wrong, stored, feeds, runtime)

        assert [culprit.id for culprit in result.culprits] == [f"@{position}"]
        assert result.culprits[0].region == [f"@{position}"]
        assert result.culprits[0].scope
        assert not result.elsewhere


def test_a_good_copy_agrees(exported):
    model, references = exported
    stored = open_references(references)
    right = load(model)
    feeds = {name: stored.read(name) for name in GraphIndex.of(right).inputs}

    with Runtime(AS_WRITTEN) as runtime:
        result = bisect(right, stored, feeds, runtime)

    assert result.verdict == "agrees"


def test_a_layer_cut_out_computes_what_it_did_inside(exported, tmp_path):
    model, references = exported
    index = GraphIndex.of(load(model))
    norms = [n.output[0] for n in index.nodes if n.op_type == "LayerNormalization"]
    stored = open_references(references)

    part = Extract((norms[2],), (norms[3],), auto_inputs=True).apply(load(model)).model
    save(part, tmp_path / "layer.onnx")
    layer = load(tmp_path / "layer.onnx")
    feeds = {value.name: stored.read(value.name) for value in layer.proto.graph.input}
    outputs = run_model(layer, feeds, options=AS_WRITTEN)

    np.testing.assert_array_equal(outputs[norms[3]], stored.read(norms[3]))
    assert len(layer.proto.graph.node) < len(index.nodes) / 4


def bert() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    config = transformers.BertConfig(
        vocab_size=64,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        attn_implementation="eager",
    )
    ids = torch.arange(6).reshape(1, 6)
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return transformers.BertModel(config), given


def resnet() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    config = transformers.ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 16],
        depths=[2, 2],
        layer_type="basic",
    )
    return transformers.ResNetModel(config), {"pixel_values": torch.randn(1, 3, 32, 32)}


class Named(torch.nn.Module):
    """Calls a module by the names of its inputs, and returns its last hidden state."""

    def __init__(self, module: torch.nn.Module, names: list[str]) -> None:
        super().__init__()
        self.module, self.names = module, names

    def forward(self, *given):
        return self.module(**dict(zip(self.names, given, strict=True))).last_hidden_state


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", [bert, resnet])
def test_every_residual_cut_is_closed_near_by_and_computes_what_it_did(make, tmp_path):
    torch.manual_seed(0)
    module, given = make()
    torch.onnx.export(
        Named(module, [*given]).eval(),
        (*given.values(),),
        tmp_path / "model.onnx",
        dynamo=False,
        input_names=[*given],
    )
    model = load(tmp_path / "model.onnx")
    index = GraphIndex.of(model)
    with Runtime(AS_WRITTEN) as runtime:
        values = run(index, {n: v.numpy() for n, v in given.items()}, runtime, [*index.values()])
        moving = downstream(index, index.inputs)
        residuals = [n for n in index.nodes if n.op_type == "Add" and moving.issuperset(n.input)]
        for node in residuals:
            branch, other = sorted(node.input, key=index.rank.__getitem__, reverse=True)
            source = next(n for n in index.reads[index.producer[branch]] if n in moving)
            if source == other or source not in index.producer:
                continue
            part = Extract((source,), (node.output[0],), auto_inputs=True).apply(model)
            inputs = [value.name for value in part.model.proto.graph.input]
            found = run(GraphIndex.of(part.model), {n: values[n] for n in inputs}, runtime)

            assert inputs in ([source, other], [source])
            assert not any("no output depends" in note for note in part.notes)
            assert found[node.output[0]].tobytes() == values[node.output[0]].tobytes()
    assert len(residuals) >= 4
