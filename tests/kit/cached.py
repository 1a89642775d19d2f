"""Modules with a cache: a small Llama and its dynamo export, and the source of a package."""

import numpy as np
import torch
import transformers

from kit import packages


class Step(torch.nn.Module):
    """A decoder that takes and returns its cache as tensors."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, input_ids, attention_mask, *past):
        cache = transformers.DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        made = self.module(input_ids, attention_mask=attention_mask, past_key_values=cache)
        parts = [
            part for layer in made.past_key_values.layers for part in (layer.keys, layer.values)
        ]
        return made.logits, *parts


def llama(layers: int) -> torch.nn.Module:
    """Return a Llama with random weights."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        attn_implementation="eager",
    )
    return transformers.LlamaForCausalLM(config).eval()


def of_checkpoint(parameters: dict[str, np.ndarray]) -> Step:
    """Return the module of `packages.checkpoint()`, of which `packages.decoder` is the package."""
    config = transformers.Qwen2Config(
        vocab_size=packages.VOCABULARY,
        hidden_size=packages.WIDTH,
        intermediate_size=2 * packages.WIDTH,
        num_hidden_layers=2,
        num_attention_heads=packages.HEADS,
        num_key_value_heads=packages.KV_HEADS,
        rope_parameters={"rope_type": "default", "rope_theta": 100.0},
        rms_norm_eps=1e-6,
        attn_implementation="eager",
        tie_word_embeddings=False,
    )
    module = transformers.Qwen2ForCausalLM(config).eval()
    module.load_state_dict({name: torch.from_numpy(array) for name, array in parameters.items()})
    return Step(module)


def step(
    new: int, past: int, layers: int = 1, batch: int = 1, head: int = 8
) -> tuple[torch.Tensor, ...]:
    """Return what a step is called with: some tokens after a cache of some."""
    cache = torch.randn(2 * layers, batch, 2, past, head)
    mask = torch.ones(batch, past + new, dtype=torch.int64)
    return torch.randint(0, 48, (batch, new)), mask, *cache


def exported_step(path, layers: int = 1) -> Step:
    """Write the export, whose caches have lengths with a name each, and return its module."""
    module, size = Step(llama(layers)), torch.export.Dim.AUTO
    names = [f"{part}.{layer}" for layer in range(layers) for part in ("key", "value")]
    torch.onnx.export(
        module,
        step(4, 3, layers),
        path,
        dynamo=True,
        verbose=False,
        external_data=False,
        input_names=["input_ids", "attention_mask", *names],
        output_names=["logits", *(f"new.{name}" for name in names)],
        dynamic_shapes=({1: size}, {1: size}, tuple({2: size} for _ in names)),
    )
    return module
