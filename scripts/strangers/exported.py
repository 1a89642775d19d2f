"""Networks that people export and deploy, and what most often goes wrong where one writes them again for that."""

import math

import torch
import torch.nn.functional as F
import transformers as hf
from ported import calm, conv, heads, positions
from rewritten import EAGER, Rewritten
from torch import Tensor, nn

from subjects import Subject


class GroupedBottleneck(nn.Module):
    def __init__(self, slip: str, cin: int, cout: int, stride: int) -> None:
        super().__init__()
        first, second = (1, stride) if slip == "stride_place" else (stride, 1)
        self.a = conv(cin, 16, 1, first)
        self.b = conv(16, 16, 3, second, groups=4)
        self.c = conv(16, cout, 1)
        self.short = conv(cin, cout, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.short(x) + self.c(F.relu(self.b(F.relu(self.a(x))))))


class ResNext(Subject):
    """A classifier with Caffe's weights: bytes in the order of BGR, grouped bottlenecks."""

    SLIPS = {
        "shares": "pixels are divided by 255, the network was trained on bytes",
        "mean_order": "the means are in the order of RGB, the pixels of BGR",
        "stride_place": "the stride is in the grouped convolution, not in the one before",
        "pool_pad": "max pooling pads at both ends instead of rounding its size up",
        "scale_layer": "batch norm's factors and offsets, a layer of their own in Caffe, are not loaded",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.stem = conv(3, 12, 7, 2)
        self.one = GroupedBottleneck(slip, 12, 24, 1)
        self.two = GroupedBottleneck(slip, 24, 32, 2)
        self.head = nn.Linear(32, 6)

    def prepare(self) -> None:
        calm(self)
        with torch.no_grad():
            self.stem[1].running_var.mul_(1e4)
            for part in self.modules():
                if isinstance(part, nn.BatchNorm2d) and self.slip == "scale_layer":
                    part.weight.fill_(1)
                    part.bias.zero_()

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.rand(1, 3, 64, 64) * 255,)

    def forward(self, x: Tensor) -> Tensor:
        mean = torch.tensor((103.939, 116.779, 123.68))
        mean = mean.flip(0) if self.slip == "mean_order" else mean
        x = x / 255 if self.slip == "shares" else x
        x = F.relu(self.stem(x[:, [2, 1, 0]] - mean.view(1, 3, 1, 1)))
        how = {"padding": 1} if self.slip == "pool_pad" else {"ceil_mode": True}
        x = F.max_pool2d(x, 3, 2, **how)
        return self.head(self.two(self.one(x)).mean((2, 3))).softmax(1)


class AlexNet(Subject):
    """A classifier with TensorFlow's weights: local response norm, overlapping pools, dense layers."""

    SLIPS = {
        "flatten": "features are flattened with the channels first, the weights have them last",
        "lrn_alpha": "the norm's alpha is TensorFlow's, it is not multiplied by the size",
        "pool_first": "pooling comes before the local response norm",
        "keep": "features are multiplied by the share that dropout kept in training",
        "relu_last": "an activation follows the last layer, too",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.a = nn.Conv2d(3, 12, 7, 2, 3)
        self.b = nn.Conv2d(12, 16, 5, padding=2, groups=2)
        self.c = nn.Conv2d(16, 12, 3, padding=1)
        self.dense, self.head = nn.Linear(108, 32), nn.Linear(32, 6)

    def prepare(self) -> None:
        with torch.no_grad():
            self.dense.weight.mul_(0.03)
            self.head.weight.mul_(0.3)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.rand(1, 3, 64, 64) * 255,)

    def normed(self, x: Tensor) -> Tensor:
        alpha = 2e-5 if self.slip == "lrn_alpha" else 1e-4
        return F.local_response_norm(x, 5, alpha, 0.75, 1.0)

    def pooled(self, x: Tensor) -> Tensor:
        if self.slip == "pool_first":
            return self.normed(F.max_pool2d(x, 3, 2))
        return F.max_pool2d(self.normed(x), 3, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.pooled(F.relu(self.a(x - 117.0)))
        y = self.pooled(F.relu(self.b(y)))
        y = F.max_pool2d(F.relu(self.c(y)), 3, 2)
        y = y.flatten(1) if self.slip == "flatten" else y.permute(0, 2, 3, 1).flatten(1)
        y = F.relu(self.dense(y))
        y = self.head(y * 0.5 if self.slip == "keep" else y)
        return (F.relu(y) if self.slip == "relu_last" else y).softmax(1)


class SsdBoxes(Subject):
    """A detector with default boxes at two levels: corners of boxes and shares of classes."""

    SLIPS = {
        "variances": "offsets are not multiplied by the variances they were trained with",
        "cell_corner": "default boxes are centred on the corners of cells, not on their middles",
        "no_permute": "the heads are reshaped without moving the channels to the end",
        "whole_size": "corners are a whole size away from the centre, not half",
        "ratio": "width and height of the default boxes are exchanged",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.a, self.b = conv(3, 8, 3, 2), conv(8, 16, 3, 2)
        self.c, self.d = conv(16, 16, 3, 2), conv(16, 24, 3, 2)
        self.places = nn.ModuleList((nn.Conv2d(16, 12, 3, 1, 1), nn.Conv2d(24, 12, 3, 1, 1)))
        self.kinds = nn.ModuleList((nn.Conv2d(16, 15, 3, 1, 1), nn.Conv2d(24, 15, 3, 1, 1)))

    def prepare(self) -> None:
        calm(self)
        with torch.no_grad():
            for part in (*self.places, *self.kinds):
                part.weight.mul_(0.4)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.rand(1, 3, 64, 64),)

    def split(self, x: Tensor, width: int) -> Tensor:
        x = x if self.slip == "no_permute" else x.permute(0, 2, 3, 1)
        return x.reshape(1, -1, width)

    def defaults(self, cells: int, size: float) -> Tensor:
        """Return (centre x, centre y, width, height) of three boxes for each cell."""
        half = 0.0 if self.slip == "cell_corner" else 0.5
        steps = (torch.arange(cells) + half) / cells
        down, right = torch.meshgrid(steps, steps, indexing="ij")
        centres = torch.stack((right, down), -1).view(-1, 1, 2).expand(-1, 3, 2)
        root = torch.tensor((1.0, 2.0, 0.5)).sqrt()
        sides = (1 / root, root) if self.slip == "ratio" else (root, 1 / root)
        sizes = torch.stack(sides, -1).expand(cells * cells, 3, 2) * size
        return torch.cat((centres, sizes), -1).reshape(-1, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        near, far = (1.0, 1.0) if self.slip == "variances" else (0.1, 0.2)
        fine = F.relu(self.c(F.relu(self.b(F.relu(self.a(x * 2 - 1))))))
        levels = (fine, F.relu(self.d(fine)))
        offsets = torch.cat(
            [self.split(p(y), 4) for p, y in zip(self.places, levels, strict=True)], 1
        )
        scores = torch.cat(
            [self.split(k(y), 5) for k, y in zip(self.kinds, levels, strict=True)], 1
        )
        boxes = torch.cat((self.defaults(8, 0.2), self.defaults(4, 0.45)))
        centre = boxes[:, :2] + offsets[..., :2] * near * boxes[:, 2:]
        size = boxes[:, 2:] * (offsets[..., 2:] * far).exp()
        size = size if self.slip == "whole_size" else size / 2
        return torch.cat((centre - size, centre + size), -1), scores.softmax(-1)


class FlowWarp(Subject):
    """Optical flow from coarse to fine: features of the second frame are warped by the flow so far."""

    SLIPS = {
        "corners": "the grid is made for align_corners, and sampled without",
        "not_doubled": "the flow is enlarged, but not multiplied by two",
        "rows_first": "the first number of the flow is taken for the one of rows",
        "zeros": "outside the picture there are zeros, not the border",
        "summed": "products of features are summed over the channels, not averaged",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.a, self.b = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 12, 3, 2, 1)
        self.coarse = nn.Conv2d(21, 16, 3, padding=1)
        self.fine = nn.Conv2d(19, 16, 3, padding=1)
        self.flows = nn.ModuleList(nn.Conv2d(16, 2, 3, padding=1) for _ in range(2))

    def prepare(self) -> None:
        with torch.no_grad():
            for part in self.flows:
                part.weight.mul_(0.5)

    def inputs(self) -> tuple[Tensor, ...]:
        first = F.interpolate(torch.rand(1, 3, 9, 9), size=(34, 34), mode="bicubic")
        return first[:, :, 1:33, 1:33], first[:, :, :32, 2:]

    def products(self, x: Tensor, y: Tensor) -> Tensor:
        rows, columns = x.shape[2:]
        y = F.pad(y, (1, 1, 1, 1))
        moved = [y[:, :, i : i + rows, j : j + columns] for i in range(3) for j in range(3)]
        found = torch.stack([(x * each).sum(1) for each in moved], 1)
        return F.leaky_relu(found if self.slip == "summed" else found / x.shape[1], 0.1)

    def enlarged(self, flow: Tensor) -> Tensor:
        flow = F.interpolate(flow, scale_factor=2.0, mode="bilinear", align_corners=False)
        return flow if self.slip == "not_doubled" else flow * 2

    def warped(self, x: Tensor, flow: Tensor) -> Tensor:
        rows, columns = x.shape[2:]
        down, right = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        flow = flow.flip(1) if self.slip == "rows_first" else flow
        grid = torch.stack((right + flow[:, 0], down + flow[:, 1]), -1)
        grid = grid * 2 / torch.tensor((columns - 1, rows - 1)) - 1
        outside = "zeros" if self.slip == "zeros" else "border"
        return F.grid_sample(x, grid, "bilinear", outside, align_corners=self.slip != "corners")

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        fine = [F.leaky_relu(self.a(x * 2 - 1), 0.1) for x in (first, second)]
        coarse = [F.leaky_relu(self.b(x), 0.1) for x in fine]
        y = torch.cat((self.products(*coarse), coarse[0]), 1)
        flow = self.enlarged(self.flows[0](F.leaky_relu(self.coarse(y), 0.1)))
        y = torch.cat((self.products(fine[0], self.warped(fine[1], flow)), fine[0], flow), 1)
        return self.enlarged(flow + self.flows[1](F.leaky_relu(self.fine(y), 0.1)))


class RobertaQa(Rewritten):
    """Answers to questions by RoBERTa: for each token, how likely the answer starts and ends there."""

    SLIPS = {
        "positions": "positions begin at nought, not behind the padding's number",
        "no_types": "the vector of the only token type is not loaded",
        "raw_mask": "the mask of ones and noughts is added to the scores as it is",
        "softmax_axis": "softmax over start and end, not over tokens",
        "unhidden": "padding has a share of the answer",
    }

    def build(self) -> nn.Module:
        config = hf.RobertaConfig(
            vocab_size=60,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=48,
            max_position_embeddings=16,
            type_vocab_size=1,
            pad_token_id=1,
            **EAGER,
        )
        return hf.RobertaForQuestionAnswering(config)

    def prepare(self) -> None:
        with torch.no_grad():
            if self.slip == "no_types":
                self.net.roberta.embeddings.token_type_embeddings.weight.zero_()

    def inputs(self) -> tuple[Tensor, ...]:
        seen = torch.arange(9) < torch.randint(4, 9, (2, 1))
        return (torch.where(seen, torch.randint(2, 60, (2, 9)), 1),)

    def forward(self, ids: Tensor) -> Tensor:
        seen = ids != 1
        mask = seen.long()
        places = mask.cumsum(1) * mask + 1
        if self.slip == "positions":
            places = torch.arange(9).expand_as(ids)
        if self.slip == "raw_mask":
            mask = mask[:, None, None].float()
        y = self.net(input_ids=ids, attention_mask=mask, position_ids=places)
        y = torch.stack((y.start_logits, y.end_logits), -1)
        if self.slip != "unhidden":
            y = y.masked_fill(~seen[..., None], -1e9)
        return y.softmax(-1 if self.slip == "softmax_axis" else 1)


class MistralWindow(Rewritten):
    """A decoder that looks back over a window: rotary positions, grouped heads, a head of its own."""

    SLIPS = {
        "no_window": "attention looks back to the first token",
        "window_edge": "the window is longer by one token",
        "rounded": "cosines and sines of the rotation were rounded to bfloat16",
        "gate_up": "the two matrices of the gated layers are exchanged on loading",
        "tied": "the embedding is loaded for the head, which has weights of its own",
    }

    def build(self) -> nn.Module:
        config = hf.MistralConfig(
            vocab_size=50,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=48,
            max_position_embeddings=32,
            sliding_window=4,
            tie_word_embeddings=False,
            **EAGER,
        )
        return hf.MistralForCausalLM(config)

    def rewrite(self) -> None:
        def rounded(_module: nn.Module, _inputs: tuple, found: tuple) -> tuple:
            return tuple(part.bfloat16().float() for part in found)

        if self.slip == "rounded":
            self.net.model.rotary_emb.register_forward_hook(rounded)

    def prepare(self) -> None:
        with torch.no_grad():
            if self.slip == "tied":
                self.net.lm_head.weight.copy_(self.net.model.embed_tokens.weight)
            for layer in self.net.model.layers:
                if self.slip == "gate_up":
                    gate, up = layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight
                    kept = gate.clone()
                    gate.copy_(up)
                    up.copy_(kept)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randint(0, 50, (1, 12)),)

    def forward(self, ids: Tensor) -> Tensor:
        steps = torch.arange(12)
        back = steps[:, None] - steps
        width = {"no_window": 12, "window_edge": 5}.get(self.slip, 4)
        hidden = (back < 0) | (back >= width)
        mask = torch.zeros(1, 1, 12, 12).masked_fill(hidden, -1e9)
        return self.net(
            input_ids=ids, attention_mask=mask, position_ids=steps[None], use_cache=False
        ).logits


class FastSpeech(Subject):
    """Synthesis of speech: tokens, their durations and pitch, frames of a spectrogram."""

    SLIPS = {
        "truncated": "durations are cut to whole numbers, not rounded",
        "no_minus_one": "durations are exponentials, the one is not taken off",
        "frame_edge": "the first frame of a token is given to the token before",
        "no_alpha": "positions are not multiplied by their learned factor",
        "standardized": "the spectrogram is not scaled back by its statistics",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.register_buffer("places", positions(8, 24), persistent=False)
        self.register_buffer("mean", torch.linspace(-4, -7, 10), persistent=False)
        self.register_buffer("std", torch.linspace(2, 1.2, 10), persistent=False)
        self.embed = nn.Embedding(30, 24)
        self.alpha = nn.Parameter(torch.tensor(0.4))
        self.qkv, self.out = nn.Linear(24, 72), nn.Linear(24, 24)
        self.norms = nn.ModuleList(nn.LayerNorm(24) for _ in range(2))
        self.wide, self.thin = nn.Conv1d(24, 32, 3, padding=1), nn.Conv1d(32, 24, 1)
        self.lasts, self.last = nn.Conv1d(24, 16, 3, padding=1), nn.Linear(16, 1)
        self.pitches, self.pitch = nn.Conv1d(24, 16, 3, padding=1), nn.Linear(16, 1)
        self.bend = nn.Conv1d(1, 24, 3, padding=1)
        self.grow, self.head = nn.Conv1d(24, 32, 5, padding=2), nn.Linear(32, 10)

    def prepare(self) -> None:
        with torch.no_grad():
            self.last.weight.mul_(0.4)
            self.last.bias.fill_(1.2)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randint(0, 30, (1, 8)),)

    def forward(self, ids: Tensor) -> Tensor:
        slip = self.slip
        x = self.embed(ids) + self.places * (1.0 if slip == "no_alpha" else self.alpha)
        q, k, v = (heads(part, 2) for part in self.qkv(x).chunk(3, -1))
        seen = (q @ k.transpose(2, 3) / math.sqrt(12)).softmax(-1)
        x = self.norms[0](x + self.out((seen @ v).transpose(1, 2).flatten(2)))
        y = self.thin(F.relu(self.wide(x.transpose(1, 2)))).transpose(1, 2)
        x = self.norms[1](x + y).transpose(1, 2)
        lasts = self.last(F.relu(self.lasts(x)).transpose(1, 2))[..., 0].exp()
        lasts = lasts if slip == "no_minus_one" else lasts - 1
        lasts = (lasts.floor() if slip == "truncated" else lasts.round()).clamp(min=0)
        x = x + self.bend(self.pitch(F.relu(self.pitches(x)).transpose(1, 2)).transpose(1, 2))
        frames, ends = torch.arange(20)[:, None], lasts.cumsum(1)[:, None]
        passed = ends < frames if slip == "frame_edge" else ends <= frames
        token = passed.long().sum(-1).clamp(max=7)
        y = x.gather(2, token[:, None].expand(-1, 24, -1))
        y = self.head(F.relu(self.grow(y)).transpose(1, 2))
        return y if slip == "standardized" else y * self.std + self.mean


class SpectrumMask(Subject):
    """Speech without noise: a spectrum by convolution, a mask on it, the sound by its transpose."""

    SLIPS = {
        "pad_zeros": "the sound's ends are padded with zeros, not mirrored",
        "no_overlap": "frames are added up without dividing by their overlapping windows",
        "power": "the mask is found from powers, not from magnitudes",
        "one_sided": "the half of the spectrum that is left out is not counted on the way back",
        "sine_sign": "the sines of the way back have the sign of the way there",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        window = torch.hann_window(32)
        angles = torch.arange(17)[:, None] * torch.arange(32) * (math.tau / 32)
        share = torch.full((17, 1), 1.0 if slip == "one_sided" else 2.0)
        share[0] = share[16] = 1
        there = torch.cat((angles.cos(), -angles.sin())) * window
        sign = 1 if slip == "sine_sign" else -1
        back = torch.cat((share * angles.cos(), sign * share * angles.sin())) / 32 * window
        total = F.conv_transpose1d(torch.ones(1, 1, 33), window.pow(2)[None, None], stride=8)
        self.register_buffer("there", there[:, None], persistent=False)
        self.register_buffer("back", back[:, None], persistent=False)
        self.register_buffer("total", total[..., 16:-16], persistent=False)
        self.a, self.b = nn.Conv1d(17, 24, 3, padding=1), nn.Conv1d(24, 24, 3, padding=1)
        self.head = nn.Conv1d(24, 17, 1)

    def inputs(self) -> tuple[Tensor, ...]:
        time = torch.arange(256) / 256
        tone = (time * torch.randint(80, 400, (1, 1))).sin() * 0.5
        return (tone + torch.randn(1, 256) * 0.2,)

    def forward(self, x: Tensor) -> Tensor:
        mode = "constant" if self.slip == "pad_zeros" else "reflect"
        y = F.conv1d(F.pad(x[:, None], (16, 16), mode), self.there, stride=8)
        real, imaginary = y.chunk(2, 1)
        size = real.pow(2) + imaginary.pow(2)
        size = size if self.slip == "power" else (size + 1e-8).sqrt()
        mask = self.head(F.relu(self.b(F.relu(self.a(size.log1p()))))).sigmoid()
        y = torch.cat((real * mask, imaginary * mask), 1)
        y = F.conv_transpose1d(y, self.back, stride=8)[..., 16:-16]
        return (y if self.slip == "no_overlap" else y / self.total)[:, 0]


class CrossNet(Subject):
    """A recommender: ages in buckets, a bag of words, categories; crossed and deep layers in parallel."""

    SLIPS = {
        "bucket_edge": "an age on a boundary counts to the bucket below",
        "combiner": "the bag's sum is divided by its length, not by the root of it",
        "no_residual": "crossed layers do not add what enters them",
        "running": "crossed layers multiply by what enters them, not by the first features",
        "deep_first": "the deep part comes first where the two are joined",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.age, self.word = nn.Embedding(5, 6), nn.Embedding(40, 6)
        self.kinds = nn.ModuleList(nn.Embedding(9, 6) for _ in range(2))
        self.crosses = nn.ModuleList(nn.Linear(24, 24) for _ in range(2))
        self.deep = nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU())
        self.head = nn.Linear(48, 1)

    def prepare(self) -> None:
        with torch.no_grad():
            self.head.weight.mul_(0.4)

    def inputs(self) -> tuple[Tensor, ...]:
        bag = torch.randint(1, 40, (6, 5)) * (torch.arange(5) < torch.randint(1, 6, (6, 1)))
        ages = torch.randint(3, 12, (6,)) * 5
        return ages.float(), bag, torch.randint(0, 9, (6, 2))

    def forward(self, ages: Tensor, bag: Tensor, kinds: Tensor) -> Tensor:
        slip, edges = self.slip, torch.tensor((20.0, 30.0, 40.0, 50.0))
        over = ages[:, None] > edges if slip == "bucket_edge" else ages[:, None] >= edges
        there = (bag > 0).float()
        count = there.sum(1, keepdim=True)
        words = (self.word(bag) * there[..., None]).sum(1)
        words = words / (count if slip == "combiner" else count.sqrt())
        found = [embed(kinds[:, i]) for i, embed in enumerate(self.kinds)]
        first = x = torch.cat((self.age(over.long().sum(1)), words, *found), 1)
        for cross in self.crosses:
            y = (x if slip == "running" else first) * cross(x)
            x = y if slip == "no_residual" else x + y
        deep = self.deep(first)
        joined = (deep, x) if slip == "deep_first" else (x, deep)
        return self.head(torch.cat(joined, 1)).sigmoid()


class Wav2Vec(Rewritten):
    """Recognition of speech from the waveform, the large kind: norms come first, positions by convolution."""

    SLIPS = {
        "raw": "the waveform is not normalized",
        "direction": "positions' kernels are loaded without the lengths that weight norm gives them",
        "cut": "the convolution of positions, even in size, drops its first step, not its last",
        "norm_first": "the encoder's norm comes before its layers, as in the base kind",
        "shares": "shares of the signs, not logarithms",
    }

    def build(self) -> nn.Module:
        config = hf.Wav2Vec2Config(
            vocab_size=16,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=48,
            conv_dim=(16, 16),
            conv_stride=(5, 4),
            conv_kernel=(10, 4),
            conv_bias=True,
            feat_extract_norm="layer",
            do_stable_layer_norm=True,
            num_conv_pos_embeddings=8,
            num_conv_pos_embedding_groups=4,
            **EAGER,
        )
        return hf.Wav2Vec2ForCTC(config)

    def prepare(self) -> None:
        with torch.no_grad():
            if self.slip == "direction":
                kernels = self.net.wav2vec2.encoder.pos_conv_embed.conv.parametrizations.weight
                kernels.original0.copy_(kernels.original1.norm(dim=(0, 1), keepdim=True))

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(1, 400) * 0.1 + 0.02,)

    def placed(self, x: Tensor) -> Tensor:
        part = self.net.wav2vec2.encoder.pos_conv_embed
        y = part.conv(x.transpose(1, 2))
        y = y[..., 1:] if self.slip == "cut" else y[..., :-1]
        return x + part.activation(y).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        slip, net = self.slip, self.net.wav2vec2
        if slip != "raw":
            x = x - x.mean(1, keepdim=True)
            x = x / (x.pow(2).mean(1, keepdim=True) + 1e-7).sqrt()
        y, _ = net.feature_projection(net.feature_extractor(x).transpose(1, 2))
        y = self.placed(y)
        y = net.encoder.layer_norm(y) if slip == "norm_first" else y
        for layer in net.encoder.layers:
            y = layer(y)
        y = y if slip == "norm_first" else net.encoder.layer_norm(y)
        y = self.net.lm_head(y)
        return y.softmax(-1) if slip == "shares" else y.log_softmax(-1)


class ShiftVideo(Subject):
    """Actions in clips: a network of pictures whose channels are shifted in time."""

    SLIPS = {
        "wrap": "what is shifted out of a clip comes in at its other end",
        "direction": "the channels that look ahead and back are exchanged",
        "fold": "a quarter of the channels is shifted each way, not an eighth",
        "time_first": "frames are counted with the time first, then the clip",
        "consensus": "shares of the frames are averaged, not their scores",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.stem = conv(3, 16, 5, 2)
        self.blocks = nn.ModuleList(
            nn.ModuleList((conv(16, 16, 3), conv(16, 16, 3))) for _ in range(2)
        )
        self.head = nn.Linear(16, 6)

    def prepare(self) -> None:
        calm(self)

    def inputs(self) -> tuple[Tensor, ...]:
        still = torch.rand(2, 1, 3, 24, 24)
        return (still * 0.5 + torch.rand(2, 4, 3, 24, 24) * 0.5,)

    def shifted(self, x: Tensor) -> Tensor:
        part = 4 if self.slip == "fold" else 2
        late = self.slip == "time_first"
        x = x.unflatten(0, (4, 2)).transpose(0, 1) if late else x.unflatten(0, (2, 4))
        ahead, back, still = x[:, :, :part], x[:, :, part : 2 * part], x[:, :, 2 * part :]
        if self.slip == "direction":
            ahead, back = back, ahead
        first, last = ahead[:, :1], back[:, -1:]
        if self.slip != "wrap":
            first, last = torch.zeros_like(first), torch.zeros_like(last)
        ahead = torch.cat((ahead[:, 1:], first), 1)
        back = torch.cat((last, back[:, :-1]), 1)
        if self.slip == "direction":
            ahead, back = back, ahead
        x = torch.cat((ahead, back, still), 2)
        return (x.transpose(0, 1) if late else x).flatten(0, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.stem(x.flatten(0, 1) * 2 - 1))
        for first, second in self.blocks:
            y = F.relu(y + second(F.relu(first(self.shifted(y)))))
        y = self.head(y.mean((2, 3))).view(2, 4, 6)
        return y.softmax(-1).mean(1) if self.slip == "consensus" else y.mean(1).softmax(-1)


class HeatmapNet(Subject):
    """Joints of a person: branches of two sizes that are joined, a map for each joint, its peak."""

    SLIPS = {
        "bilinear": "the coarse branch is enlarged bilinearly, not by the nearest",
        "relu_early": "each branch is activated before the sum, not the sum",
        "no_floor": "the row of a peak is a quotient that is not rounded down",
        "no_quarter": "peaks are not moved a quarter to their larger neighbour",
        "cells": "peaks are in cells of the map, not in pixels",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.a, self.b, self.c = conv(3, 8, 3, 2), conv(8, 12, 3, 2), conv(12, 16, 3, 2)
        self.fine, self.coarse = conv(12, 12, 3), conv(16, 16, 3)
        self.up, self.down = conv(16, 12, 1), conv(12, 16, 3, 2)
        self.head = nn.Conv2d(12, 5, 1)

    def prepare(self) -> None:
        calm(self)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.rand(1, 3, 64, 48),)

    def joined(self, fine: Tensor, coarse: Tensor) -> Tensor:
        if self.slip == "bilinear":
            coarse = F.interpolate(coarse, scale_factor=2.0, mode="bilinear", align_corners=False)
        else:
            coarse = F.interpolate(coarse, scale_factor=2.0, mode="nearest")
        if self.slip == "relu_early":
            return F.relu(fine) + F.relu(coarse)
        return F.relu(fine + coarse)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        fine = F.relu(self.b(F.relu(self.a(x * 2 - 1))))
        coarse = F.relu(self.c(fine))
        fine, coarse = F.relu(fine + self.fine(fine)), F.relu(coarse + self.coarse(coarse))
        coarse = F.relu(coarse + self.down(fine))
        maps = self.head(self.joined(fine, self.up(coarse)))
        best, place = maps.flatten(2).max(2)
        column = (place % 12).float()
        row = place.float() / 12
        row = row if self.slip == "no_floor" else row.floor()
        if self.slip != "no_quarter":
            wide = F.pad(maps, (1, 1, 1, 1), "replicate").flatten(2)
            here = ((place // 12 + 1) * 14 + place % 12 + 1)[..., None]
            right = wide.gather(2, here + 1) - wide.gather(2, here - 1)
            below = wide.gather(2, here + 14) - wide.gather(2, here - 14)
            column, row = column + right[..., 0].sign() / 4, row + below[..., 0].sign() / 4
        peaks = torch.stack((column, row), -1)
        return peaks if self.slip == "cells" else peaks * 4, best


SUBJECTS = (
    ResNext,
    AlexNet,
    SsdBoxes,
    FlowWarp,
    RobertaQa,
    MistralWindow,
    FastSpeech,
    SpectrumMask,
    CrossNet,
    Wav2Vec,
    ShiftVideo,
    HeatmapNet,
)
