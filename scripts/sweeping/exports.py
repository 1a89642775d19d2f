"""Exports of transformers with random weights, by both exporters, and what quantizers and others make of them."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import torch
import transformers
from onnx import ModelProto
from onnxruntime import quantization
from onnxruntime.transformers.float16 import convert_float_to_float16

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "matching"))
import architectures
from architectures import Made, Output
from diet import opened
from exporting import EXPORTERS, export, silence

_TINY = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 48}  # fmt: skip


def segformer(small: bool) -> Made:
    sizes = {"depths": [1] * 4, "hidden_sizes": [8, 16, 16, 16], "decoder_hidden_size": 16}
    config = transformers.SegformerConfig(**sizes, num_attention_heads=[1, 2, 2, 2])
    module = transformers.SegformerForSemanticSegmentation(config)
    return module, torch.randn(1, 3, 64, 64), "logits"


def distilbert(small: bool) -> Made:
    sizes = {"dim": 32, "n_layers": 1, "n_heads": 2, "hidden_dim": 48, "vocab_size": 100}
    module = transformers.DistilBertModel(transformers.DistilBertConfig(**sizes))
    return module, torch.randint(0, 100, (1, 8)), "last_hidden_state"


def wav2vec2(small: bool) -> Made:
    sizes = {"conv_dim": (16, 16), "conv_stride": (5, 2), "conv_kernel": (10, 3)}
    sizes |= {"num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2}
    module = transformers.Wav2Vec2Model(transformers.Wav2Vec2Config(**_TINY, **sizes))
    return module, torch.randn(1, 400), "last_hidden_state"


def mamba(small: bool) -> Made:
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "state_size": 4, "vocab_size": 100}
    module = transformers.MambaModel(transformers.MambaConfig(**sizes, use_cache=False))
    return module, torch.randint(0, 100, (1, 6)), "last_hidden_state"


OWN = {"segformer": segformer, "distilbert": distilbert, "wav2vec2": wav2vec2, "mamba": mamba}


def write(folder: Path) -> None:
    """Write what is not in the folder yet: each model with its feeds beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    known: dict[str, Callable[[bool], Made]]
    known = architectures.ARCHITECTURES | architectures.FURTHER | OWN
    for name, make in known.items():
        for exporter in EXPORTERS:
            path = folder / f"{name}-{exporter}.onnx"
            if path.exists():
                continue
            torch.manual_seed(0)
            module, given, output = make(True)
            with contextlib.suppress(Exception):  # an exporter that cannot
                if export(Output(module.eval(), output), given, path, exporter) is None:
                    continue
                for kind, model in _further(path):
                    onnx.save(model, folder / f"{name}-{exporter}-{kind}.onnx")
            for made in folder.glob(f"{name}-{exporter}*.onnx"):
                np.savez(made.with_suffix(".npz"), given=given.numpy())


def _further(path: Path) -> Iterator[tuple[str, ModelProto]]:
    """Yield what other tools make of an export."""
    model = onnx.load(path)
    yield "open", opened(model, len(path.name) % 3)
    with contextlib.suppress(Exception), silence():
        yield "half", convert_float_to_float16(model, keep_io_types=True)
    made = path.with_suffix(".quantized")
    with contextlib.suppress(Exception), silence():
        quantization.quantize_dynamic(path, made)
        yield "dynamic", onnx.load(made)
    made.unlink(missing_ok=True)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
