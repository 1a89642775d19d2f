"""Networks that are deployed most, and the mistakes that are made most where one ports them or writes them again."""

import math

import torch
import torch.nn.functional as F
import transformers as hf
from rewritten import EAGER, MEAN, STD, Rewritten
from torch import Tensor, nn

from subjects import Subject


def calm(net: nn.Module) -> None:
    """Give running variances the size that those of trained networks have."""
    for part in net.modules():
        if isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d)):
            part.running_var.mul_(20)


def conv(
    cin: int, cout: int, size: int, stride: int = 1, eps: float = 1e-5, **how: int
) -> nn.Module:
    how = {"padding": size // 2, "bias": False} | how
    return nn.Sequential(nn.Conv2d(cin, cout, size, stride, **how), nn.BatchNorm2d(cout, eps))


def heads(x: Tensor, count: int) -> Tensor:
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def positions(length: int, width: int) -> Tensor:
    angles = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, width, 2) / width)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)


class EfficientNet(Subject):
    """A classifier with TensorFlow's weights: depthwise convolutions, squeeze and excitation, SiLU."""

    SLIPS = {
        "bn_eps": "batch norm with PyTorch's epsilon, not with TensorFlow's 1e-3",
        "symmetric": "strided convolutions pad at both ends, SAME pads the end alone",
        "imagenet": "pixels are normalized by ImageNet's statistics, not to -1..1",
        "kernel_axes": "rows and columns of the depthwise kernels are exchanged on loading",
        "softmax_twice": "a softmax follows the one that the network has",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        eps = 1e-5 if slip == "bn_eps" else 1e-3
        self.stem = conv(3, 8, 3, 2, eps, padding=0)
        self.deep = conv(8, 8, 3, 1, eps, groups=8)
        self.thin = conv(8, 8, 1, 1, eps)
        self.wide2 = conv(8, 24, 1, 1, eps)
        self.deep2 = conv(24, 24, 5, 2, eps, groups=24, padding=0)
        self.thin2 = conv(24, 12, 1, 1, eps)
        self.squeeze, self.excite = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)
        self.squeeze2, self.excite2 = nn.Conv2d(24, 4, 1), nn.Conv2d(4, 24, 1)
        self.last = conv(12, 24, 1, 1, eps)
        self.head = nn.Linear(24, 6)

    def prepare(self) -> None:
        calm(self)
        with torch.no_grad():
            if self.slip == "kernel_axes":
                for part in (self.deep[0], self.deep2[0]):
                    part.weight.copy_(part.weight.transpose(2, 3).clone())

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.rand(1, 3, 32, 32) * 255,)

    def same(self, x: Tensor, size: int) -> Tensor:
        end = size // 2
        start = end if self.slip == "symmetric" else end - 1
        return F.pad(x, (start, end, start, end))

    def forward(self, x: Tensor) -> Tensor:
        if self.slip == "imagenet":
            mean, std = torch.tensor(MEAN).view(1, 3, 1, 1), torch.tensor(STD).view(1, 3, 1, 1)
            x = (x / 255 - mean) / std
        else:
            x = x / 127.5 - 1
        x = F.silu(self.stem(self.same(x, 3)))
        y = F.silu(self.deep(x))
        gate = self.excite(F.silu(self.squeeze(y.mean((2, 3), keepdim=True))))
        x = x + self.thin(y * gate.sigmoid())
        y = F.silu(self.deep2(self.same(F.silu(self.wide2(x)), 5)))
        gate = self.excite2(F.silu(self.squeeze2(y.mean((2, 3), keepdim=True))))
        y = F.silu(self.last(self.thin2(y * gate.sigmoid())))
        y = self.head(y.mean((2, 3))).softmax(1)
        return y.softmax(1) if self.slip == "softmax_twice" else y


class Yolo(Subject):
    """A detector of the fifth version: two levels, three anchors each, boxes decoded in the network."""

    SLIPS = {
        "bytes": "pixels are not divided by 255",
        "anchor_stride": "anchors in pixels are multiplied by the stride",
        "bn_eps": "batch norm with PyTorch's epsilon, the network was trained with 1e-3",
        "layout": "anchors and numbers of a box change places where channels are split",
        "leaky": "leaky ReLU of the third version for SiLU",
    }
    ANCHORS = (((10, 13), (16, 30), (33, 23)), ((30, 61), (62, 45), (59, 119)))

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        eps = 1e-5 if slip == "bn_eps" else 1e-3
        self.a, self.b = conv(3, 8, 3, 2, eps), conv(8, 16, 3, 2, eps)
        self.c, self.d = conv(16, 16, 3, 2, eps), conv(16, 24, 3, 2, eps)
        self.narrow, self.mix = conv(24, 16, 1, 1, eps), conv(32, 16, 3, 1, eps)
        self.fine, self.coarse = nn.Conv2d(16, 21, 1), nn.Conv2d(16, 21, 1)

    def prepare(self) -> None:
        calm(self)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.rand(1, 3, 64, 64) * 255,)

    def act(self, x: Tensor) -> Tensor:
        return F.leaky_relu(x, 0.1) if self.slip == "leaky" else F.silu(x)

    def boxes(self, y: Tensor, level: int) -> Tensor:
        stride, (rows, columns) = (8, 16)[level], y.shape[2:]
        if self.slip == "layout":
            y = y.view(1, 7, 3, rows, columns).permute(0, 2, 3, 4, 1).sigmoid()
        else:
            y = y.view(1, 3, 7, rows, columns).permute(0, 1, 3, 4, 2).sigmoid()
        down, right = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        anchors = torch.tensor(self.ANCHORS[level]).float().view(1, 3, 1, 1, 2)
        if self.slip == "anchor_stride":
            anchors = anchors * stride
        centre = (y[..., :2] * 2 - 0.5 + torch.stack((right, down), -1)) * stride
        size = (y[..., 2:4] * 2) ** 2 * anchors
        return torch.cat((centre, size, y[..., 4:]), -1).flatten(1, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.slip == "bytes" else x / 255
        fine = self.act(self.c(self.act(self.b(self.act(self.a(x))))))
        coarse = self.act(self.narrow(self.act(self.d(fine))))
        fine = self.act(self.mix(torch.cat((F.interpolate(coarse, scale_factor=2.0), fine), 1)))
        return torch.cat((self.boxes(self.fine(fine), 0), self.boxes(self.coarse(coarse), 1)), 1)


class DeepLab(Subject):
    """Segmentation by dilated convolutions and a global one, with a skip, shares at full size."""

    SLIPS = {
        "corners": "all resizing is done with align_corners",
        "rates": "the dilations of the other output stride, half as large",
        "pooled_first": "the global branch is joined first, as TensorFlow has it",
        "bgr": "mean and deviation of the pixels in the order of BGR",
        "sigmoid": "classes by sigmoid, not by softmax",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.a, self.b, self.c = conv(3, 8, 3, 2), conv(8, 12, 3, 2), conv(12, 16, 3, 2)
        near, far = (1, 2) if slip == "rates" else (2, 4)
        self.one = conv(16, 8, 1)
        self.near = conv(16, 8, 3, dilation=near, padding=near)
        self.far = conv(16, 8, 3, dilation=far, padding=far)
        self.pooled = conv(16, 8, 1)
        self.project, self.skip = conv(32, 12, 1), conv(12, 6, 1)
        self.mix, self.head = conv(18, 12, 3), nn.Conv2d(12, 5, 1)

    def prepare(self) -> None:
        calm(self)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.rand(1, 3, 64, 64),)

    def resize(self, x: Tensor, size: int) -> Tensor:
        corners = self.slip == "corners"
        return F.interpolate(x, size=(size, size), mode="bilinear", align_corners=corners)

    def forward(self, x: Tensor) -> Tensor:
        turn = -1 if self.slip == "bgr" else 1
        mean, std = torch.tensor(MEAN[::turn]), torch.tensor(STD[::turn])
        x = (x - mean.view(1, 3, 1, 1)) / std.view(1, 3, 1, 1)
        low = F.relu(self.b(F.relu(self.a(x))))
        x = F.relu(self.c(low))
        pooled = self.resize(F.relu(self.pooled(x.mean((2, 3), keepdim=True))), 8)
        parts = [F.relu(self.one(x)), F.relu(self.near(x)), F.relu(self.far(x))]
        joined = [pooled, *parts] if self.slip == "pooled_first" else [*parts, pooled]
        y = self.resize(F.relu(self.project(torch.cat(joined, 1))), 16)
        y = F.relu(self.mix(torch.cat((y, F.relu(self.skip(low))), 1)))
        y = self.resize(self.head(y), 64)
        return y.sigmoid() if self.slip == "sigmoid" else y.softmax(1)


class SentenceEncoder(Rewritten):
    """Embeddings of sentences by BERT: the mean of the words, of length one."""

    SLIPS = {
        "plain_mean": "padding counts in the mean",
        "no_normalize": "the embedding keeps its length",
        "first_token": "the first token is taken for the mean",
        "no_mask": "padding is attended to",
        "ln_eps": "layer norm with PyTorch's epsilon, not with BERT's 1e-12",
    }

    def build(self) -> nn.Module:
        config = hf.BertConfig(
            vocab_size=60,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=48,
            max_position_embeddings=16,
            **EAGER,
        )
        return hf.BertModel(config, add_pooling_layer=False)

    def rewrite(self) -> None:
        for part in self.net.modules():
            if isinstance(part, nn.LayerNorm) and self.slip == "ln_eps":
                part.eps = 1e-5

    def prepare(self) -> None:
        with torch.no_grad():
            for part in self.net.modules():
                if isinstance(part, nn.Embedding):
                    part.weight.mul_(0.2)

    def inputs(self) -> tuple[Tensor, ...]:
        mask = torch.arange(8) < torch.randint(3, 8, (2, 1))
        return torch.randint(1, 60, (2, 8)) * mask, mask.long()

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        slip = self.slip
        seen = torch.ones_like(mask) if slip == "no_mask" else mask
        y = self.net(input_ids=ids, attention_mask=seen).last_hidden_state
        weight = mask[..., None].float()
        if slip == "first_token":
            y = y[:, 0]
        elif slip == "plain_mean":
            y = y.mean(1)
        else:
            y = (y * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
        return y if slip == "no_normalize" else F.normalize(y, dim=1)


class Gpt2(Rewritten):
    """A decoder over a batch that is padded on the left: scores of the next words."""

    SLIPS = {
        "conv1d": "the square weights of attention are not transposed on loading",
        "packed": "q, k and v are loaded as packed by head",
        "erf": "GELU of erf for that of tanh",
        "padded_positions": "positions count the padding on the left",
        "no_scale": "attention is not scaled",
    }

    def build(self) -> nn.Module:
        return hf.GPT2LMHeadModel(
            hf.GPT2Config(vocab_size=50, n_positions=16, n_embd=32, n_layer=2, n_head=4, **EAGER)
        )

    def rewrite(self) -> None:
        for part in self.net.modules():
            kind = type(part).__name__
            if kind == "GPT2MLP" and self.slip == "erf":
                part.act = nn.GELU()
            if kind == "GPT2Attention" and self.slip == "no_scale":
                part.scaling = 1.0

    def prepare(self) -> None:
        with torch.no_grad():
            for block in self.net.transformer.h:
                if self.slip == "conv1d":
                    block.attn.c_proj.weight.copy_(block.attn.c_proj.weight.t().clone())
                if self.slip == "packed":
                    for tensor in (block.attn.c_attn.weight, block.attn.c_attn.bias):
                        parts = tensor.unflatten(-1, (3, 4, 8)).transpose(-3, -2)
                        tensor.copy_(parts.flatten(-3).clone())

    def inputs(self) -> tuple[Tensor, ...]:
        mask = torch.arange(7) >= torch.randint(1, 4, (2, 1))
        return torch.randint(0, 50, (2, 7)), mask.long()

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        places = (mask.cumsum(1) - 1).clamp(min=0)
        if self.slip == "padded_positions":
            places = torch.arange(7).expand_as(ids)
        found = self.net(input_ids=ids, attention_mask=mask, position_ids=places, use_cache=False)
        return found.logits[:, -4:]


class CachedDecoder(Subject):
    """The step of a decoder with a cache of keys and values: rotary positions, grouped heads, RMSNorm."""

    SLIPS = {
        "past_position": "positions of the new tokens begin at nought, not behind the cache",
        "mask_offset": "the causal mask does not reach as far as the cache is long",
        "not_permuted": "queries and keys are loaded for rotations of neighbours, not of halves",
        "eps": "RMSNorm with epsilon 1e-5 for 1e-6",
        "rope_scaling": "positions are not divided for the longer context",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.embed = nn.Embedding(40, 32)
        names = {"q": (32, 32), "k": (32, 16), "v": (32, 16), "o": (32, 32)}
        names |= {"gate": (32, 48), "up": (32, 48), "down": (48, 32)}
        self.layers = nn.ModuleList(
            nn.ModuleDict({name: nn.Linear(*size, bias=False) for name, size in names.items()})
            for _ in range(2)
        )
        self.norms = nn.ParameterList(nn.Parameter(torch.ones(32)) for _ in range(5))

    def prepare(self) -> None:
        with torch.no_grad():
            self.embed.weight.mul_(0.03)
            if self.slip == "not_permuted":
                for layer in self.layers:
                    for weight in (layer["q"].weight, layer["k"].weight):
                        pairs = weight.view(-1, 2, 4, 32).transpose(1, 2)
                        weight.copy_(pairs.reshape(weight.shape).clone())

    def inputs(self) -> tuple[Tensor, ...]:
        return torch.randint(0, 40, (1, 3)), torch.randn(2, 2, 1, 2, 5, 8)

    def norm(self, x: Tensor, number: int) -> Tensor:
        eps = 1e-5 if self.slip == "eps" else 1e-6
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * self.norms[number]

    def rotated(self, x: Tensor, past: int) -> Tensor:
        start = 0 if self.slip == "past_position" else past
        places = torch.arange(start, start + x.shape[2]).float()
        if self.slip != "rope_scaling":
            places = places / 4
        angles = places[:, None] / 10000 ** (torch.arange(0, 8, 2) / 8)
        cos, sin = torch.cat((angles, angles), -1).cos(), torch.cat((angles, angles), -1).sin()
        left, right = x.chunk(2, -1)
        return x * cos + torch.cat((-right, left), -1) * sin

    def forward(self, ids: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        x, new, past = self.embed(ids), [], cache.shape[4]
        count = ids.shape[1]
        ones = torch.ones(count, past + count)
        seen = ones.tril(0 if self.slip == "mask_offset" else past).bool()
        for i, layer in enumerate(self.layers):
            y = self.norm(x, 2 * i)
            q = self.rotated(heads(layer["q"](y), 4), past)
            k = torch.cat((cache[i, 0], self.rotated(heads(layer["k"](y), 2), past)), 2)
            v = torch.cat((cache[i, 1], heads(layer["v"](y), 2)), 2)
            new.append(torch.stack((k, v)))
            k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
            scores = (q @ k.transpose(2, 3) / math.sqrt(8)).masked_fill(~seen, -1e9)
            x = x + layer["o"]((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
            y = self.norm(x, 2 * i + 1)
            x = x + layer["down"](F.silu(layer["gate"](y)) * layer["up"](y))
        return self.norm(x, 4) @ self.embed.weight.t(), torch.stack(new)


class Marian(Rewritten):
    """Translation: an encoder, a decoder, positions by sines, the bias of the words at the end."""

    SLIPS = {
        "no_embed_scale": "embeddings are not multiplied by the root of the width",
        "no_final_bias": "the bias of the words is not loaded",
        "interleaved": "sines and cosines of the positions alternate",
        "gelu": "GELU for swish",
        "cross_mask": "the decoder attends to the source's padding",
    }

    def build(self) -> nn.Module:
        return hf.MarianMTModel(
            hf.MarianConfig(
                vocab_size=40,
                d_model=32,
                encoder_layers=2,
                decoder_layers=2,
                encoder_attention_heads=4,
                decoder_attention_heads=4,
                encoder_ffn_dim=48,
                decoder_ffn_dim=48,
                max_position_embeddings=16,
                activation_function="swish",
                scale_embedding=True,
                pad_token_id=0,
                decoder_start_token_id=0,
                **EAGER,
            )
        )

    def rewrite(self) -> None:
        for part in self.net.modules():
            if self.slip == "no_embed_scale" and hasattr(part, "embed_scale"):
                part.embed_scale = 1.0
            if self.slip == "gelu" and hasattr(part, "activation_fn"):
                part.activation_fn = nn.GELU()

    def prepare(self) -> None:
        with torch.no_grad():
            if self.slip == "no_final_bias":
                self.net.final_logits_bias.zero_()
            if self.slip == "interleaved":
                for part in (self.net.model.encoder, self.net.model.decoder):
                    weight = part.embed_positions.weight
                    weight.copy_(torch.stack(weight.chunk(2, 1), -1).flatten(1).clone())

    def inputs(self) -> tuple[Tensor, ...]:
        mask = torch.arange(7) < torch.randint(3, 7, (2, 1))
        return torch.randint(1, 40, (2, 7)) * mask, mask.long(), torch.randint(1, 40, (2, 4))

    def forward(self, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        model = self.net.model
        states = model.encoder(input_ids=source, attention_mask=mask).last_hidden_state
        y = model.decoder(
            input_ids=target,
            encoder_hidden_states=states,
            encoder_attention_mask=None if self.slip == "cross_mask" else mask,
            use_cache=False,
        ).last_hidden_state
        return self.net.lm_head(y) + self.net.final_logits_bias


class SigLip(Rewritten):
    """Two towers: how well each text fits each picture, by sigmoid."""

    SLIPS = {
        "softmax": "a softmax over the texts, as CLIP has it",
        "no_bias": "the bias of the scores is not added",
        "clip_pixels": "pixels are normalized by CLIP's statistics, not to -1..1",
        "first_token": "texts are read from the first token, not from the last",
        "erf": "GELU of erf for that of tanh",
    }

    def build(self) -> nn.Module:
        size = {
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
        }
        text = size | {"vocab_size": 40, "max_position_embeddings": 6, "projection_size": 32}
        vision = size | {"image_size": 32, "patch_size": 8}
        return hf.SiglipModel(hf.SiglipConfig(text_config=text, vision_config=vision, **EAGER))

    def rewrite(self) -> None:
        for part in self.net.modules():
            if self.slip == "erf" and type(part).__name__ == "SiglipMLP":
                part.activation_fn = nn.GELU()

    def prepare(self) -> None:
        with torch.no_grad():
            self.net.logit_scale.fill_(3)
            self.net.logit_bias.fill_(-2)

    def inputs(self) -> tuple[Tensor, ...]:
        return torch.rand(2, 3, 32, 32), torch.randint(0, 40, (3, 6))

    def forward(self, pixels: Tensor, ids: Tensor) -> Tensor:
        slip, net = self.slip, self.net
        mean = std = torch.full((1, 3, 1, 1), 0.5)
        if slip == "clip_pixels":
            mean = torch.tensor((0.48145466, 0.4578275, 0.40821073)).view(1, 3, 1, 1)
            std = torch.tensor((0.26862954, 0.26130258, 0.27577711)).view(1, 3, 1, 1)
        picture = net.vision_model(pixel_values=(pixels - mean) / std).pooler_output
        words = net.text_model(input_ids=ids).last_hidden_state
        text = net.text_model.head(words[:, 0 if slip == "first_token" else -1])
        y = F.normalize(picture, dim=-1) @ F.normalize(text, dim=-1).t() * net.logit_scale.exp()
        if slip != "no_bias":
            y = y + net.logit_bias
        return y.softmax(1) if slip == "softmax" else y.sigmoid()


class GruAttention(Subject):
    """Intent of a text with weights of Keras: a GRU both ways, its last states ask its steps."""

    SLIPS = {
        "gate_order": "gates are loaded in the order of Keras: update before reset",
        "one_bias": "the two biases are added up on loading",
        "reshaped": "the recurrent weights are reshaped on loading, not transposed",
        "last_step": "the last step is read for the last states of both directions",
        "no_mask": "padding is attended to",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.embed = nn.Embedding(50, 12)
        self.gru = nn.GRU(12, 10, batch_first=True, bidirectional=True)
        self.ask = nn.Linear(20, 20)
        self.head = nn.Linear(40, 5)

    def prepare(self) -> None:
        with torch.no_grad():
            tensors = dict(self.gru.named_parameters())
            for name, tensor in tensors.items():
                if self.slip == "gate_order":
                    reset, update, new = tensor.chunk(3)
                    tensor.copy_(torch.cat((update, reset, new)))
                if self.slip == "reshaped" and name.startswith("weight_hh"):
                    tensor.copy_(tensor.t().reshape(tensor.shape).clone())
                if self.slip == "one_bias" and name.startswith("bias_hh"):
                    tensors[name.replace("hh", "ih")].add_(tensor)
                    tensor.zero_()

    def inputs(self) -> tuple[Tensor, ...]:
        mask = torch.arange(9) < torch.randint(4, 9, (2, 1))
        return (torch.randint(1, 50, (2, 9)) * mask,)

    def forward(self, ids: Tensor) -> Tensor:
        steps, last = self.gru(self.embed(ids))
        last = steps[:, -1] if self.slip == "last_step" else torch.cat((last[0], last[1]), 1)
        scores = (steps @ self.ask(last)[..., None])[..., 0]
        if self.slip != "no_mask":
            scores = scores.masked_fill(ids == 0, -1e9)
        found = (scores.softmax(1)[..., None] * steps).sum(1)
        return self.head(torch.cat((found, last), 1)).softmax(1)


class ConformerBlock(nn.Module):
    def __init__(self, slip: str) -> None:
        super().__init__()
        self.slip = slip
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(5))
        self.first = nn.Sequential(nn.Linear(32, 48), nn.SiLU(), nn.Linear(48, 32))
        self.second = nn.Sequential(nn.Linear(32, 48), nn.SiLU(), nn.Linear(48, 32))
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.enter, self.leave = nn.Conv1d(32, 64, 1), nn.Conv1d(32, 32, 1)
        self.deep, self.batch = nn.Conv1d(32, 32, 7, groups=32), nn.BatchNorm1d(32)

    def convolve(self, x: Tensor) -> Tensor:
        value, gate = self.enter(x.transpose(1, 2)).chunk(2, 1)
        if self.slip == "glu_order":
            value, gate = gate, value
        y = F.pad(value * gate.sigmoid(), (6, 0) if self.slip == "causal" else (3, 3))
        return self.leave(F.silu(self.batch(self.deep(y)))).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        half, norms = 1.0 if self.slip == "half_step" else 0.5, self.norms
        x = x + half * self.first(norms[0](x))
        q, k, v = (heads(part, 4) for part in self.qkv(norms[1](x)).chunk(3, -1))
        seen = (q @ k.transpose(2, 3) / math.sqrt(8)).softmax(-1)
        x = x + self.out((seen @ v).transpose(1, 2).flatten(2))
        x = x + self.convolve(norms[2](x))
        return norms[4](x + half * self.second(norms[3](x)))


class Conformer(Subject):
    """Recognition of speech: scaled features, two blocks, log shares of the signs for CTC."""

    SLIPS = {
        "istd": "features are divided by the inverse deviation that the file holds",
        "no_scale": "features are not multiplied by the root of the width before positions come",
        "half_step": "the outer layers are added whole, not halved",
        "causal": "the depthwise convolution pads the past alone",
        "glu_order": "value and gate of the gated unit are exchanged",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.register_buffer("mean", torch.linspace(8, 12, 20), persistent=False)
        self.register_buffer("istd", 1 / torch.linspace(2, 4, 20), persistent=False)
        self.register_buffer("places", positions(12, 32), persistent=False)
        self.shrink = nn.Conv2d(1, 4, 3, 2, 1)
        self.enter = nn.Linear(40, 32)
        self.blocks = nn.Sequential(ConformerBlock(slip), ConformerBlock(slip))
        self.head = nn.Linear(32, 12)

    def prepare(self) -> None:
        calm(self)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(1, 24, 20) * 3 + 10,)

    def forward(self, x: Tensor) -> Tensor:
        x = x - self.mean
        x = x / self.istd if self.slip == "istd" else x * self.istd
        y = F.relu(self.shrink(x[:, None])).transpose(1, 2).flatten(2)
        y = self.enter(y) * (1.0 if self.slip == "no_scale" else math.sqrt(32))
        return self.head(self.blocks(y + self.places)).log_softmax(-1)


class LatentCoder(Subject):
    """The coder of a latent diffusion: a picture, its scaled latents, the picture again."""

    SLIPS = {
        "symmetric": "the strided convolution pads at both ends, not at the end alone",
        "latent_scale": "latents are decoded without undoing their scale",
        "range": "the decoded picture stays in -1..1",
        "bilinear": "upsampling is bilinear, not by the nearest",
        "gn_eps": "group norm with Keras's epsilon 1e-3 for 1e-6",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        eps = 1e-3 if slip == "gn_eps" else 1e-6
        self.enter, self.down = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, 2)
        self.moments = nn.Conv2d(8, 8, 3, padding=1)
        self.grow, self.up = nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.leave = nn.Conv2d(8, 3, 3, padding=1)
        self.norms = nn.ModuleList(nn.GroupNorm(4, 8, eps) for _ in range(6))
        self.convs = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(4))

    def prepare(self) -> None:
        with torch.no_grad():
            self.leave.weight.mul_(0.2)
            self.leave.bias.mul_(0.2)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.rand(1, 3, 16, 16),)

    def residual(self, x: Tensor, number: int) -> Tensor:
        y = self.convs[number](F.silu(self.norms[number](x)))
        return x + self.convs[number + 1](F.silu(self.norms[number + 1](y)))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        slip = self.slip
        y = self.residual(self.enter(x * 2 - 1), 0)
        y = self.down(F.pad(y, (1, 1, 1, 1) if slip == "symmetric" else (0, 1, 0, 1)))
        mean, _ = self.moments(F.silu(self.norms[4](y))).chunk(2, 1)
        latent = mean * 0.18215
        y = self.residual(self.grow(latent if slip == "latent_scale" else latent / 0.18215), 2)
        if slip == "bilinear":
            y = F.interpolate(y, scale_factor=2.0, mode="bilinear", align_corners=False)
        else:
            y = F.interpolate(y, scale_factor=2.0, mode="nearest")
        y = self.leave(F.silu(self.norms[5](self.up(y))))
        return latent, y if slip == "range" else (y / 2 + 0.5).clamp(0, 1)


class RiskTable(Subject):
    """A table's rows: numbers that may be missing, categories, layers with batch norm, a share."""

    SLIPS = {
        "fill": "missing numbers become nought, not the median",
        "variance": "numbers are divided by the variance, not by the deviation",
        "unknown": "categories begin at nought, the place of the unknown one",
        "columns": "categories come before numbers",
        "bn_last": "batch norm comes after the activation",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.register_buffer("median", torch.linspace(1, 6, 5), persistent=False)
        self.register_buffer("mean", torch.linspace(0.8, 2, 5), persistent=False)
        self.register_buffer("var", torch.linspace(0.2, 0.6, 5), persistent=False)
        self.embeds = nn.ModuleList(nn.Embedding(7, 4) for _ in range(3))
        self.layers = nn.ModuleList((nn.Linear(17, 24), nn.Linear(24, 16)))
        self.norms = nn.ModuleList((nn.BatchNorm1d(24), nn.BatchNorm1d(16)))
        self.head = nn.Linear(16, 1)

    def prepare(self) -> None:
        calm(self)

    def inputs(self) -> tuple[Tensor, ...]:
        known = torch.rand(4, 5) < 0.7
        return (torch.randn(4, 5) + 1).exp(), known, torch.randint(0, 6, (4, 3))

    def forward(self, numbers: Tensor, known: Tensor, kinds: Tensor) -> Tensor:
        slip = self.slip
        fill = torch.zeros_like(self.median) if slip == "fill" else self.median
        x = torch.where(known, numbers, fill).log1p() - self.mean
        x = x / (self.var if slip == "variance" else self.var.sqrt())
        kinds = kinds if slip == "unknown" else kinds + 1
        found = [embed(kinds[:, i]) for i, embed in enumerate(self.embeds)]
        x = torch.cat([*found, x] if slip == "columns" else [x, *found], 1)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = norm(F.relu(layer(x))) if slip == "bn_last" else F.relu(norm(layer(x)))
        return self.head(x).sigmoid()


SUBJECTS = (
    EfficientNet,
    Yolo,
    DeepLab,
    SentenceEncoder,
    Gpt2,
    CachedDecoder,
    Marian,
    SigLip,
    GruAttention,
    Conformer,
    LatentCoder,
    RiskTable,
)
