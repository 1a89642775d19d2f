"""The dynamo export of a small Llama with a cache, whose lengths the exporter gives a name each."""

import torch
import transformers


class Step(torch.nn.Module):
    """A decoder with random weights that takes and returns its cache as tensors."""

    def __init__(self, layers: int = 1) -> None:
        super().__init__()
        torch.manual_seed(0)
        sizes = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
        config = transformers.LlamaConfig(
            vocab_size=50,
            num_hidden_layers=layers,
            num_key_value_heads=2,
            head_dim=8,
            attn_implementation="eager",
            **sizes,
        )
        self.module = transformers.LlamaForCausalLM(config).eval()

    def forward(self, input_ids, attention_mask, *past):
        cache = transformers.DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        made = self.module(input_ids, attention_mask=attention_mask, past_key_values=cache)
        parts = [
            part for layer in made.past_key_values.layers for part in (layer.keys, layer.values)
        ]
        return made.logits, *parts


def step(new: int, past: int, layers: int = 1, batch: int = 1) -> tuple[torch.Tensor, ...]:
    """Return what a step is called with: some tokens after a cache of some."""
    cache = torch.randn(2 * layers, batch, 2, past, 8)
    mask = torch.ones(batch, past + new, dtype=torch.int64)
    return torch.randint(0, 50, (batch, new)), mask, *cache


def exported_step(path, layers: int = 1) -> Step:
    """Write the export, and return its module."""
    module, size = Step(layers).eval(), torch.export.Dim.AUTO
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
