"""The architectures, with random weights, and a second version of each with one more layer."""

import types
from collections.abc import Callable

import torch
import transformers
from transformers.models.whisper.modeling_whisper import WhisperEncoder

Version = Callable[[torch.nn.Module, torch.Tensor], torch.nn.Module]
Made = tuple[torch.nn.Module, torch.Tensor, str]
"""Module, what it is given, and which part of its output counts."""
LISTS = (torch.nn.ModuleList, torch.nn.Sequential)

_NARROW = {
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
}


def resnet(small: bool) -> Made:
    sizes = {"embedding_size": 16, "hidden_sizes": [16, 32, 32, 32], "depths": [1, 2, 3, 1]}
    module = transformers.ResNetForImageClassification(
        transformers.ResNetConfig(**sizes if small else {})
    )
    return module, torch.randn(1, 3, *[64 if small else 224] * 2), "logits"


def vit(small: bool) -> Made:
    sizes = _NARROW | {"image_size": 64}
    config = transformers.ViTConfig(attn_implementation="eager", **sizes if small else {})
    image = torch.randn(1, 3, config.image_size, config.image_size)
    return transformers.ViTForImageClassification(config), image, "logits"


def bert(small: bool) -> Made:
    config = transformers.BertConfig(attn_implementation="eager", **_NARROW if small else {})
    tokens = torch.randint(0, config.vocab_size, (1, 32))
    return transformers.BertModel(config), tokens, "last_hidden_state"


def gpt2(small: bool) -> Made:
    sizes = {
        "n_embd": 48,
        "n_layer": 4,
        "n_head": 4,
        "vocab_size": 500,
        "bos_token_id": 1,
        "eos_token_id": 1,
    }
    config = transformers.GPT2Config(
        use_cache=False, attn_implementation="eager", **sizes if small else {}
    )
    tokens = torch.randint(0, config.vocab_size, (1, 32))
    return transformers.GPT2LMHeadModel(config), tokens, "logits"


def dpt(small: bool) -> Made:
    sizes = {"hidden_size": 384, "intermediate_size": 1536, "num_attention_heads": 6}
    if small:
        sizes = {
            "hidden_size": 48,
            "intermediate_size": 96,
            "num_attention_heads": 4,
            "image_size": 96,
        }
        sizes |= {"fusion_hidden_size": 16, "neck_hidden_sizes": [16, 16, 16, 16]}
    config = transformers.DPTConfig(attn_implementation="eager", **sizes)
    image = torch.randn(1, 3, config.image_size, config.image_size)
    return transformers.DPTForDepthEstimation(config), image, "predicted_depth"


def whisper(small: bool) -> Made:
    sizes = {
        "d_model": 48,
        "encoder_layers": 4,
        "encoder_attention_heads": 4,
        "encoder_ffn_dim": 96,
    }
    sizes |= {"max_source_positions": 50}
    config = transformers.WhisperConfig(attn_implementation="eager", **sizes if small else {})
    given = torch.randn(1, config.num_mel_bins, 2 * config.max_source_positions)
    return WhisperEncoder(config), given, "last_hidden_state"


class Heard(torch.nn.Module):
    """An encoder, and a decoder that is given the same tokens each time."""

    def __init__(self, model: torch.nn.Module, tokens: torch.Tensor) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("tokens", tokens)

    def forward(self, given: torch.Tensor) -> object:
        return self.model(given, decoder_input_ids=self.tokens, use_cache=False)


def whisper_decoder(small: bool) -> Made:
    encoder, given, output = whisper(small)
    sizes = {"decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 96}
    if small:
        sizes |= {"vocab_size": 500, "pad_token_id": 0, "max_target_positions": 32}
    options = encoder.config.to_dict() | sizes if small else {}
    config = transformers.WhisperConfig(attn_implementation="eager", **options)
    tokens = torch.randint(0, config.vocab_size, (1, 12))
    return Heard(transformers.WhisperModel(config), tokens), given, output


def swin(small: bool) -> Made:
    sizes = {"image_size": 32, "patch_size": 2, "window_size": 4, "embed_dim": 16}
    sizes |= {"depths": [2, 2], "num_heads": [2, 4]}
    config = transformers.SwinConfig(attn_implementation="eager", **sizes if small else {})
    image = torch.randn(1, 3, config.image_size, config.image_size)
    return transformers.SwinForImageClassification(config), image, "logits"


def mobilenet(small: bool) -> Made:
    config = transformers.MobileNetV2Config(
        **{"image_size": 32, "depth_multiplier": 0.25} if small else {}
    )
    image = torch.randn(1, 3, config.image_size, config.image_size)
    return transformers.MobileNetV2ForImageClassification(config), image, "logits"


def convnext(small: bool) -> Made:
    sizes = {"image_size": 32, "hidden_sizes": [16, 24, 32, 32], "depths": [1, 1, 2, 1]}
    config = transformers.ConvNextConfig(**sizes if small else {})
    image = torch.randn(1, 3, config.image_size, config.image_size)
    return transformers.ConvNextForImageClassification(config), image, "logits"


def t5(small: bool) -> Made:
    sizes = {"d_model": 48, "d_kv": 12, "d_ff": 96, "num_layers": 2, "num_heads": 4}
    config = transformers.T5Config(
        attn_implementation="eager", **sizes | {"vocab_size": 500} if small else {}
    )
    tokens = torch.randint(1, config.vocab_size, (1, 16))
    return Heard(transformers.T5Model(config), tokens[:, :8]), tokens, "last_hidden_state"


def llama(small: bool) -> Made:
    sizes = _NARROW | {"num_hidden_layers": 2, "num_key_value_heads": 2, "vocab_size": 500}
    config = transformers.LlamaConfig(
        use_cache=False, attn_implementation="eager", **sizes if small else {}
    )
    tokens = torch.randint(0, config.vocab_size, (1, 16))
    return transformers.LlamaForCausalLM(config), tokens, "logits"


class Tagger(torch.nn.Module):
    """A bidirectional LSTM of two layers between an embedding and a linear layer."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(500, size)
        self.lstm = torch.nn.LSTM(size, size, 2, batch_first=True, bidirectional=True)
        self.head = torch.nn.Linear(2 * size, 10)

    def forward(self, given: torch.Tensor) -> types.SimpleNamespace:
        return types.SimpleNamespace(logits=self.head(self.lstm(self.embed(given))[0]))


def lstm(small: bool) -> Made:
    return Tagger(24 if small else 256), torch.randint(0, 500, (1, 16)), "logits"


ARCHITECTURES: dict[str, Callable[[bool], Made]] = {
    "resnet": resnet, "vit": vit, "bert": bert, "gpt2": gpt2, "dpt": dpt, "whisper": whisper,
    "whisper_decoder": whisper_decoder,
}  # fmt: skip

FURTHER: dict[str, Callable[[bool], Made]] = {
    "swin": swin, "mobilenet": mobilenet, "convnext": convnext, "t5": t5, "llama": llama, "lstm": lstm,
}  # fmt: skip
"""Faults are planted in them on demand; some have no list of layers that one more could be added to."""


class Output(torch.nn.Module):
    """One tensor of what a transformers model returns."""

    def __init__(self, model: torch.nn.Module, name: str) -> None:
        super().__init__()
        self.model, self.name = model, name

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return getattr(self.model(given), self.name)


class Scaled(torch.nn.Module):
    """A layer that changes every value after it, and is an identity where its weights are one."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(1 + 0.5 * torch.cos(torch.arange(size)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


def as_it_is(module: torch.nn.Module, given: torch.Tensor) -> torch.nn.Module:
    return module


def with_extra_layer(module: torch.nn.Module, given: torch.Tensor) -> torch.nn.Module:
    """The same with one more layer at the end of the block in the middle."""
    blocks = max((m for m in module.modules() if isinstance(m, LISTS)), key=len)
    block = blocks[len(blocks) // 2]
    sizes: list[int] = []
    handle = block.register_forward_hook(lambda *call: sizes.append(_first(call[-1]).shape[-1]))
    module(given)
    handle.remove()
    before, block.extra = block.forward, Scaled(sizes[0])

    def forward(*args: object, **kwargs: object) -> object:
        made = before(*args, **kwargs)
        return (block.extra(made[0]), *made[1:]) if isinstance(made, tuple) else block.extra(made)

    block.forward = forward
    return module


def _first(made: object) -> torch.Tensor:
    return made[0] if isinstance(made, tuple) else made


def built(name: str, small: bool, noisy: bool) -> Made:
    torch.manual_seed(0)
    module, given, output = (ARCHITECTURES | FURTHER)[name](small)
    if noisy:
        with torch.no_grad():
            for parameter in module.parameters():
                parameter += 0.05 * torch.randn_like(parameter)
    return module.eval(), given, output
