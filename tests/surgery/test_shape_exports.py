"""Static exports of real architectures, given another batch and compared sample by sample with the export."""

import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit.cached import exported_step, step
from kit.faults import Output
from onnxsurgeon_lite import load
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import ShapeError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.matching.prove import prove
from onnxsurgeon_lite.passes import Rebatch, SetShape
from onnxsurgeon_lite.runtime.feeds import Recipe

SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
SEEN = {"initializer_range": 0.2}  # with the default, samples hardly differ


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(8, 6, 2, batch_first=True, bidirectional=True)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return self.lstm(given)[0]


class FoldedHeads(torch.nn.Module):
    """Attention that merges the batch and the heads into one dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.project = torch.nn.Linear(8, 8)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        batch = int(given.shape[0])
        heads = self.project(given).view(batch, -1, 2, 4).transpose(1, 2).reshape(batch * 2, -1, 4)
        mixed = torch.softmax(heads @ heads.transpose(1, 2), -1) @ heads
        return mixed.view(batch, 2, -1, 4).transpose(1, 2).reshape(batch, -1, 8)


class Masked(torch.nn.Module):
    """A text model with the mask of attention that leaves out a token."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return self.module(given, attention_mask=(given != 5).long()).last_hidden_state


def vit():
    config = transformers.ViTConfig(
        **SMALL, **SEEN, num_hidden_layers=2, image_size=32, patch_size=8
    )
    return Output(transformers.ViTForImageClassification(config), "logits"), (3, 32, 32)


def dpt():
    config = transformers.DPTConfig(
        **SMALL, **SEEN, image_size=96, num_hidden_layers=4, backbone_out_indices=[0, 1, 2, 3],
        fusion_hidden_size=16, neck_hidden_sizes=[16, 16, 16, 16],
    )  # fmt: skip
    return Output(transformers.DPTForDepthEstimation(config), "predicted_depth"), (3, 96, 96)


def swin():
    config = transformers.SwinConfig(
        **SEEN, image_size=64, patch_size=4, embed_dim=16, depths=[1, 2], num_heads=[2, 4],
        window_size=4,
    )  # fmt: skip
    return Output(transformers.SwinForImageClassification(config), "logits"), (3, 64, 64)


def segformer():
    config = transformers.SegformerConfig(
        **SEEN, num_encoder_blocks=2, depths=[1, 1], hidden_sizes=[8, 16], num_attention_heads=[1, 2],
        sr_ratios=[8, 4], decoder_hidden_size=32,
    )  # fmt: skip
    return Output(transformers.SegformerForSemanticSegmentation(config), "logits"), (3, 64, 64)


def bert():
    config = transformers.BertConfig(**SMALL, **SEEN, num_hidden_layers=2, vocab_size=64)
    return Output(transformers.BertModel(config), "pooler_output"), (16,)


def masked_bert():
    config = transformers.BertConfig(**SMALL, **SEEN, num_hidden_layers=1, vocab_size=64)
    return Masked(transformers.BertModel(config)), (16,)


def masked_roberta():
    config = transformers.RobertaConfig(**SMALL, **SEEN, num_hidden_layers=1, vocab_size=64)
    return Masked(transformers.RobertaModel(config)), (16,)


def gpt2():
    config = transformers.GPT2Config(
        **SEEN, n_layer=2, n_embd=32, n_head=4, vocab_size=64, use_cache=False
    )
    return Output(transformers.GPT2LMHeadModel(config), "logits"), (16,)


def recurrent():
    return Recurrent(), (5, 8)


def folded_heads():
    return FoldedHeads(), (5, 8)


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    """The file of an export; each is made once."""
    folder = tmp_path_factory.mktemp("exports")

    @cache
    def export(make, dynamo: bool, batch: int) -> Path:
        path = folder / f"{make.__name__}_{'dynamo' if dynamo else 'torchscript'}_{batch}.onnx"
        exported(make, dynamo, batch, path)
        return path

    return export


def exported(make, dynamo: bool, batch: int, path):
    torch.manual_seed(0)
    module, shape = make()
    given = torch.randint(0, 64, (batch, *shape)) if len(shape) == 1 else torch.randn(batch, *shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(),
            (given,),
            path,
            dynamo=dynamo,
            opset_version=18 if dynamo else 17,
            input_names=["x"],
            output_names=["y"],
            verbose=False,
            **({"external_data": False} if dynamo else {}),
        )
    return load(path)


AT_BOTH_BATCHES = [
    (vit, False), (dpt, True), (bert, False), (bert, True), (gpt2, True), (recurrent, False),
    (recurrent, True), (folded_heads, False), (folded_heads, True),
]  # fmt: skip
AT_ONE = [
    (vit, True), (dpt, False), (swin, False), (segformer, True), (masked_bert, False),
    (masked_bert, True), (masked_roberta, False), (masked_roberta, True),
]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "dynamo", "batch"),
    [
        *((*case, batch) for case in AT_BOTH_BATCHES for batch in (1, 2)),
        *((*case, 1) for case in AT_ONE),
    ],
    ids=lambda value: (
        value.__name__
        if callable(value)
        else {"True": "dynamo", "False": "torchscript"}.get(str(value))
    ),
)
def test_a_static_export_gets_any_batch(runtime, export, make, dynamo, batch):
    model = load(export(make, dynamo, batch))
    index = GraphIndex.of(model)

    for to in ("N", 3 - batch):
        step = Rebatch(to)
        result = step.apply(model)
        lines = prove(model, result.model, step.shapes(index), runtime, Recipe())

        assert lines[0].startswith("agrees with the original at")
        assert (
            result.model.proto.graph.output[0].type.tensor_type.shape.dim[0]
            == (result.model.proto.graph.input[0].type.tensor_type.shape.dim[0])
        )


@pytest.mark.parametrize(
    ("make", "dynamo"),
    [(vit, False), (gpt2, True), (dpt, True)],
    ids=lambda value: value.__name__ if callable(value) else "dynamo" if value else "torchscript",
)
def test_two_exports_at_different_batches_become_one_at_any(export, make, dynamo, tmp_path):
    one, two = (str(export(make, dynamo, batch)) for batch in (1, 2))
    words = ["edit", "rebatch", "--two-exports", one, two, "-o", str(tmp_path / "any.onnx")]

    done = CliRunner().invoke(app, words)

    assert done.exit_code == 0, done.output
    assert "agrees with the original at N = 1; N = 2; N = 3; N = 7\n" in done.stdout
    assert f"agrees with {two!r}" in done.stdout


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    """A module with a cache, and its export."""
    path = tmp_path_factory.mktemp("decoder") / "step.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return exported_step(path, layers=2), path


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("batch", [3, "N"])
def test_a_cache_whose_lengths_have_distinct_names_gets_any_batch(batch, decoder):
    module, path = decoder
    before = load(path)
    lengths = [
        info.type.tensor_type.shape.dim[2].dim_param for info in before.proto.graph.input[2:]
    ]
    assert len(set(lengths)) == 4

    done = osl.rebatch(before, to=batch)

    assert done.proof[0].startswith("agrees with the original at")
    after = done.model.proto.graph.input[2:]
    assert [info.type.tensor_type.shape.dim[2].dim_param for info in after] == lengths
    ids, mask, *cache = step(4, 5, layers=2, batch=3)
    mask[1, :3] = 0  # a text that is shorter
    feeds = dict(zip(GraphIndex.of(done.model).inputs, (ids, mask, *cache), strict=True))
    found = osl.run(done.model, {name: value.numpy() for name, value in feeds.items()})
    with torch.no_grad():
        for made, wanted in zip(found.values(), module(ids, mask, *cache), strict=True):
            assert np.allclose(made, wanted.numpy(), atol=1e-5)


def test_a_sequence_length_that_the_exporter_wrote_into_a_mask_is_refused(export, tmp_path):
    def longer():
        return gpt2()[0], (24,)

    one, two = str(export(gpt2, True, 1)), str(export(longer, True, 1))
    words = ["set-shape", "--two-exports", one, two, "x=1,S", "-o", str(tmp_path / "any.onnx")]

    done = CliRunner().invoke(app, ["edit", *words])

    assert done.exit_code == 2
    assert "blocks the change: constant" in done.stderr
    assert not (tmp_path / "any.onnx").exists()


def test_an_image_size_that_position_embeddings_fix_is_refused(export):
    model = load(export(vit, True, 1))

    with pytest.raises(ShapeError, match="Add 'node_add' .* blocks the change"):
        SetShape({"x": (1, 3, "H", "W")}).apply(model)


def test_image_sizes_that_an_upsampling_fixes_are_learned_from_a_second_export(
    runtime, export, tmp_path
):
    def segformer_at(height: int, width: int, name: str):
        return exported(lambda: (segformer()[0], (3, height, width)), True, 1, tmp_path / name)

    model = load(export(segformer, True, 1))
    shapes = {"x": (1, 3, "H", "W")}
    with pytest.raises(ShapeError, match="Concat .* its size is fixed on the way"):
        SetShape(shapes).apply(model)

    second = segformer_at(128, 192, "b.onnx")
    told = SetShape(shapes, second).apply(model).model
    lines = prove(model, told, shapes, runtime, Recipe(), second=second)

    assert lines[-1].startswith("agrees with ")
    with pytest.raises(ShapeError, match="may depend on several dimensions"):
        SetShape(shapes, segformer_at(128, 128, "c.onnx")).apply(model)
