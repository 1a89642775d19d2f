"""The right models: packages of onnxruntime-genai's builder and exports with a cache, of random weights."""

import os
import runpy
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import DynamicCache

sys.path.append(str(Path(__file__).parents[1] / "matching"))

from exporting import silence

LAYERS, WORDS, KV_HEADS, HEAD = 2, 99, 2, 16
_SIZES = {
    "vocab_size": WORDS,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "attn_implementation": "eager",
}
_OF_FAMILY: Mapping[str, Mapping[str, object]] = {
    "Llama": {},
    "Qwen2": {},
    "Qwen3": {},
    "Mistral": {"sliding_window": None},
    "Gemma2": {"layer_types": ["full_attention"] * LAYERS, "query_pre_attn_scalar": HEAD},
    "Phi3": {"original_max_position_embeddings": 128},
}
CACHE = [f"{i}.{part}" for i in range(LAYERS) for part in ("key", "value")]


@dataclass(frozen=True)
class Subject:
    """One right model.

    Attributes:
        module: what it was made of.
        source: the folder of its checkpoint.
        precision: how far a logit may be off, as a share of the largest.
    """

    name: str
    model: Path
    module: torch.nn.Module
    source: Path
    close: float = 1e-4


class Step(torch.nn.Module):
    """A module that takes and returns its cache as tensors by layer, as exports and packages do."""

    def __init__(self, module: torch.nn.Module, named: bool = False) -> None:
        super().__init__()
        self.module, self.named = module, named

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, *past: torch.Tensor
    ) -> tuple[torch.Tensor, ...] | dict[str, torch.Tensor]:
        cache = DynamicCache()
        for layer in range(LAYERS if past else 0):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        made = self.module(
            input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True
        )
        parts = [
            part for layer in made.past_key_values.layers for part in (layer.keys, layer.values)
        ]
        if self.named:
            return dict(
                zip(
                    ["logits", *(f"present.{name}" for name in CACHE)],
                    [made.logits, *parts],
                    strict=True,
                )
            )
        return made.logits, *parts


def module_of(family: str, **settings: object) -> torch.nn.Module:
    """Return an architecture whose weights are random, and large enough that each setting shows."""
    torch.manual_seed(0)
    given = {**_SIZES, **_OF_FAMILY[family], **settings}
    config = getattr(transformers, f"{family}Config")(**given)
    module = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    middle = 0.0 if "Gemma" in family else 1.0
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "norm" in name:
                parameter.copy_(middle + 0.3 * torch.randn_like(parameter))
            else:
                inputs = 1 if parameter.ndim == 1 or "embed" in name else parameter.shape[1]
                parameter.copy_(torch.randn_like(parameter) * inputs**-0.5)
    return module


def package(family: str, precision: str, folder: Path, **settings: object) -> Subject:
    """Return the package that onnxruntime-genai's builder makes of a checkpoint."""
    source, target = folder / "checkpoint", folder / "package"
    module = module_of(family, **settings)
    module.save_pretrained(source)
    words = {"<unk>": 0} | {f"w{number}": number for number in range(1, WORDS)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="w1", eos_token="w2"
    ).save_pretrained(source)
    provider = "cuda" if precision == "fp16" else "cpu"  # half precision is built for no CPU
    words = ["builder", "-i", str(source), "-o", str(target), "-p", precision, "-e", provider]
    with (
        mock.patch.object(sys, "argv", words),
        mock.patch.dict(os.environ, HF_HUB_OFFLINE="1"),
    ):
        runpy.run_module("onnxruntime_genai.models.builder", run_name="__main__")
    close = {"fp32": 1e-4, "fp16": 2e-2, "int4": 1e-3}[precision]
    return Subject(f"{family} {precision}", target / "model.onnx", module, source, close)


def exported(family: str, folder: Path) -> Subject:
    """Return the dynamo export of a module with its cache."""
    module, path = module_of(family), folder / "model.onnx"
    module.save_pretrained(folder / "checkpoint")
    given = tuple(map(torch.from_numpy, step(4, 3).values()))
    any_size = torch.export.Dim.AUTO
    shapes = ({1: any_size}, {1: any_size}, tuple({2: any_size} for _ in CACHE))
    torch.onnx.export(
        Step(module),
        given,
        path,
        dynamo=True,
        opset_version=18,
        external_data=False,
        verbose=False,
        input_names=["input_ids", "attention_mask", *(f"past_key_values.{name}" for name in CACHE)],
        output_names=["logits", *(f"present.{name}" for name in CACHE)],
        dynamic_shapes=shapes,
    )
    return Subject(f"{family} export", path, module, folder / "checkpoint")


def step(new: int, past: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Return feeds for some tokens behind a cache of some."""
    rng = np.random.default_rng(seed)
    cache = {
        f"past_key_values.{name}": rng.standard_normal((1, KV_HEADS, past, HEAD), np.float32)
        for name in CACHE
    }
    tokens = rng.integers(3, WORDS, (1, new))
    return {"input_ids": tokens, "attention_mask": np.ones((1, past + new), np.int64), **cache}


SUBJECTS: Mapping[str, tuple[str, str]] = {
    f"{family} {precision}": (family, precision)
    for family, precision in (
        ("Llama", "fp32"),
        ("Qwen2", "fp16"),
        ("Mistral", "int4"),
        ("Gemma2", "fp32"),
        ("Phi3", "int4"),
        ("Llama", "export"),
        ("Qwen3", "export"),
    )
}


def made(name: str, folder: Path) -> Subject:
    """Return a right model by its name."""
    family, precision = SUBJECTS[name]
    folder.mkdir(parents=True, exist_ok=True)
    with silence():
        return (
            exported(family, folder)
            if precision == "export"
            else package(family, precision, folder)
        )
