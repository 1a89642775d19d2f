"""Small networks of `transformers`, and what people get wrong when they load, rewrite or export them."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
import transformers
from torch import Tensor, nn

from subjects import Subject

SMALL = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "max_position_embeddings": 32,
    "vocab_size": 60,
    "attn_implementation": "eager",
}


class Packaged(Subject):
    """A network of `transformers`.

    Attributes:
        KIND, SIZES: its class and the configuration. SHAPE: of the input: token ids, or an image.
        FED: the name of its input. FIXED: what it is fed beside that. PICK: which output is compared.
    """

    KIND: ClassVar[str]
    SIZES: ClassVar[dict[str, Any]] = SMALL
    SHAPE: ClassVar[tuple[int, ...]] = (2, 9)
    FED: ClassVar[str] = "input_ids"
    FIXED: ClassVar[dict[str, Any]] = {}
    PICK: ClassVar[int] = 0

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        kind = getattr(transformers, self.KIND)
        self.net = kind(kind.config_class(**self.SIZES))

    def inputs(self) -> tuple[Tensor, ...]:
        if len(self.SHAPE) == 2 and self.FED.endswith("ids"):
            return (torch.randint(3, self.SIZES["vocab_size"], self.SHAPE),)
        return (torch.randn(self.SHAPE),)

    def forward(self, given: Tensor) -> Tensor:
        return self.net(**{self.FED: given}, **self.FIXED).to_tuple()[self.PICK]

    def replace(self, end: str, new: Callable[[nn.Module], nn.Module], first: bool = False) -> None:
        """Put another module in the place of those whose path ends so."""
        paths = [path for path, _ in self.named_modules() if path.endswith(end)]
        for path in paths[:1] if first else paths:
            parent, _, name = path.rpartition(".")
            setattr(self.get_submodule(parent), name, new(self.get_submodule(path)))


class Hubert(Packaged):
    """Convolutions over sound, then a transformer."""

    KIND, FED, SHAPE = "HubertModel", "input_values", (2, 400)
    SIZES = {
        **{key: SMALL[key] for key in list(SMALL)[:4] + ["attn_implementation"]},
        "conv_dim": (12, 12),
        "conv_stride": (5, 2),
        "conv_kernel": (10, 3),
        "num_conv_pos_embeddings": 8,
        "num_conv_pos_embedding_groups": 4,
        "do_stable_layer_norm": True,
        "feat_extract_norm": "layer",
    }
    SLIPS = {
        "no last norm": "the encoder's last LayerNorm is left out",
        "relu": "ReLU for GELU in the second layer",
    }

    def prepare(self) -> None:
        if self.slip == "no last norm":
            self.replace("encoder.layer_norm", lambda _: nn.Identity())
        if self.slip == "relu":
            self.replace("1.feed_forward.intermediate_act_fn", lambda _: nn.ReLU())


class Albert(Packaged):
    """One layer, called three times."""

    KIND = "AlbertModel"
    SIZES = {**SMALL, "embedding_size": 16, "num_hidden_layers": 3}
    SLIPS = {
        "erf": "GELU of erf for that of tanh, at all calls",
        "epsilon": "another epsilon in the norm that all calls share",
        "no types": "the embedding of token types is zero",
    }

    def prepare(self) -> None:
        if self.slip == "erf":
            self.replace(".activation", lambda _: nn.GELU())
        for path, module in self.named_modules():
            if self.slip == "epsilon" and path.endswith("full_layer_layer_norm"):
                module.eps = 1e-3
            if self.slip == "no types" and path.endswith("token_type_embeddings"):
                module.weight.data.zero_()


class Qwen3(Packaged):
    """Grouped attention with norms of q and k."""

    KIND = "Qwen3ForCausalLM"
    SIZES = {**SMALL, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    FIXED = {"use_cache": False, "attention_mask": torch.ones(2, 9, dtype=torch.long)}
    SLIPS = {
        "exchanged norms": "the norms of q and k are exchanged in the first layer",
        "no q norm": "q is not normalized in the second layer",
        "theta": "rotary angles of another base",
        "one norm": "q is normalized with the weight of k in the first layer",
    }

    def prepare(self) -> None:
        one, two = (layer.self_attn for layer in self.net.model.layers)
        if self.slip == "exchanged norms":
            one.q_norm, one.k_norm = one.k_norm, one.q_norm
        if self.slip == "no q norm":
            two.q_norm = nn.Identity()
        if self.slip == "theta":
            self.net.model.rotary_emb.inv_freq = 1e6 ** -(torch.arange(0, 8, 2) / 8)
        if self.slip == "one norm":
            one.q_norm = one.k_norm


class Gemma(Packaged):
    """Norms whose weight is 1 + w."""

    KIND = "GemmaForCausalLM"
    SIZES = {**Qwen3.SIZES, "num_key_value_heads": 1}
    FIXED = Qwen3.FIXED
    SLIPS = {
        "no 1": "the norms multiply by w, not by 1 + w",
        "one layer": "the first norm of the second layer multiplies by w",
    }

    def prepare(self) -> None:
        for path, module in self.named_modules():
            every = self.slip == "no 1" and path.endswith("norm")
            if every or (self.slip == "one layer" and path.endswith("1.input_layernorm")):
                module.weight.data -= 1


class Opt(Packaged):
    """Learned positions, which begin at 2."""

    KIND = "OPTForCausalLM"
    SIZES = {**SMALL, "ffn_dim": 40, "word_embed_proj_dim": 24}
    FIXED = Qwen3.FIXED
    SLIPS = {
        "offset": "positions begin at 1",
        "no last norm": "the last norm before the head is left out",
        "gelu": "GELU for ReLU",
    }

    def prepare(self) -> None:
        decoder = self.net.model.decoder
        if self.slip == "offset":
            decoder.embed_positions.offset = 1
        if self.slip == "no last norm":
            decoder.final_layer_norm = nn.Identity()
        if self.slip == "gelu":
            self.replace("activation_fn", lambda _: nn.GELU())


class Bloom(Packaged):
    """Attention with slopes for each head; q, k and v in one weight."""

    KIND, SIZES = (
        "BloomForCausalLM",
        {"vocab_size": 60, "hidden_size": 24, "n_layer": 2, "n_head": 3},
    )
    FIXED = {"use_cache": False}
    SLIPS = {"packed": "q, k and v of the second layer in another order of heads"}

    def prepare(self) -> None:
        if self.slip == "packed":
            weight = self.net.transformer.h[1].self_attention.query_key_value.weight
            weight.data = weight.data.view(3, 3, 8, 24).transpose(0, 1).reshape(72, 24)


class Bart(Packaged):
    """An encoder and a decoder, both fed the same tokens."""

    KIND = "BartModel"
    SIZES = {
        **{"vocab_size": 60, "d_model": 24, "encoder_layers": 1, "decoder_layers": 1},
        **{"encoder_attention_heads": 3, "decoder_attention_heads": 3},
        **{"encoder_ffn_dim": 40, "decoder_ffn_dim": 40, "max_position_embeddings": 32},
    }
    FIXED = {"use_cache": False}
    SLIPS = {
        "transposed": "the weight of k in cross attention is transposed",
        "offset": "the decoder's positions begin at 0",
    }

    def prepare(self) -> None:
        decoder = self.net.decoder
        if self.slip == "transposed":
            weight = decoder.layers[0].encoder_attn.k_proj.weight
            weight.data = weight.data.T.contiguous()
        if self.slip == "offset":
            decoder.embed_positions.offset = 0


class SwinV2(Packaged):
    """Attention in windows, with a mask for shifted ones."""

    KIND, FED, SHAPE = "Swinv2Model", "pixel_values", (2, 3, 32, 32)
    SIZES = {
        **{"image_size": 32, "patch_size": 4, "embed_dim": 12},
        **{"depths": [2, 1], "num_heads": [2, 3], "window_size": 4},
    }
    SLIPS = {"no last norm": "the last norm is left out"}

    def prepare(self) -> None:
        if self.slip == "no last norm":
            self.net.layernorm = nn.Identity()


class MobileVit(Packaged):
    """Convolutions and attention between patches; four numbers of output."""

    KIND, FED, SHAPE = "MobileViTForImageClassification", "pixel_values", (2, 3, 64, 64)
    SIZES = {
        **{"image_size": 64, "hidden_sizes": [16, 20, 24], "num_attention_heads": 2},
        "neck_hidden_sizes": [8, 8, 12, 12, 16, 16, 24],
    }
    SLIPS = {"no bias": "the bias of the classifier is zero"}

    def prepare(self) -> None:
        if self.slip == "no bias":
            self.net.classifier.bias.data.zero_()


SUBJECTS = (Hubert, Albert, Qwen3, Gemma, Opt, Bloom, Bart, SwinV2, MobileVit)
