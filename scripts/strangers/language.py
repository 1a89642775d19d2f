"""Transformers, and what people get wrong when they write them again."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from subjects import Subject

WIDTH, HEADS, LENGTH = 32, 4, 10
EACH = WIDTH // HEADS


def heads(x: Tensor, count: int = HEADS) -> Tensor:
    return x.view(x.shape[0], x.shape[1], count, -1).transpose(1, 2)


def merged(x: Tensor) -> Tensor:
    return x.transpose(1, 2).reshape(x.shape[0], -1, WIDTH)


class Vit(Subject):
    """A small ViT: patches, a class token, two blocks."""

    SLIPS = {
        "class last": "the class token is appended, and still the first one is read",
        "no position": "positions are not added",
        "scale": "scores are divided by the root of the width, not of the head's",
        "qkv layout": "q, k and v are cut head by head",
        "tanh gelu": "GELU by its tanh formula",
        "no last norm": "the last LayerNorm was forgotten",
        "ln eps": "LayerNorms with epsilon 1e-2 for 1e-6",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        eps = 1e-2 if slip == "ln eps" else 1e-6
        self.patch = nn.Conv2d(3, WIDTH, 8, 8)
        self.cls, self.pos = (
            nn.Parameter(torch.zeros(1, 1, WIDTH)),
            nn.Parameter(torch.zeros(1, 10, WIDTH)),
        )
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH, eps) for _ in range(5))
        self.qkv = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(2))
        self.out = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.up = nn.ModuleList(nn.Linear(WIDTH, 64) for _ in range(2))
        self.down = nn.ModuleList(nn.Linear(64, WIDTH) for _ in range(2))
        self.head = nn.Linear(WIDTH, 7)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(1, 3, 24, 24),)

    def attention(self, x: Tensor, i: int) -> Tensor:
        n, t, _ = x.shape
        if self.slip == "qkv layout":
            q, k, v = self.qkv[i](x).view(n, t, HEADS, 3, EACH).permute(3, 0, 2, 1, 4)
        else:
            q, k, v = self.qkv[i](x).view(n, t, 3, HEADS, EACH).permute(2, 0, 3, 1, 4)
        scale = math.sqrt(WIDTH if self.slip == "scale" else EACH)
        return self.out[i](merged((q @ k.transpose(-1, -2) / scale).softmax(-1) @ v))

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        cls = self.cls.expand(x.shape[0], -1, -1)
        x = torch.cat((x, cls) if self.slip == "class last" else (cls, x), 1)
        if self.slip != "no position":
            x = x + self.pos
        form = "tanh" if self.slip == "tanh gelu" else "none"
        for i in range(2):
            x = x + self.attention(self.norms[2 * i](x), i)
            x = x + self.down[i](F.gelu(self.up[i](self.norms[2 * i + 1](x)) * 2, approximate=form))
        x = x[:, 0]
        return self.head(x if self.slip == "no last norm" else self.norms[4](x))


class Gpt(Subject):
    """A small GPT: learned positions, a causal mask, tied weights."""

    SLIPS = {
        "mask diagonal": "a token does not see itself (but for the first)",
        "no mask": "the causal mask was forgotten",
        "position": "positions start at 1",
        "post norm": "the norm comes after the addition",
        "no transpose": "heads are merged without the transpose",
        "k for v": "keys in place of values",
        "relu": "ReLU for GELU",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.token, self.pos = nn.Embedding(50, WIDTH), nn.Embedding(16, WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.n1, self.n2, self.n3 = (nn.LayerNorm(WIDTH) for _ in range(3))
        self.up, self.down = nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randint(0, 50, (1, LENGTH)),)

    def attention(self, x: Tensor) -> Tensor:
        q, k, v = heads(self.q(x)), heads(self.k(x)), heads(self.v(x))
        scores = q @ k.transpose(-1, -2) / math.sqrt(EACH)
        mask = torch.ones(LENGTH, LENGTH).triu(0 if self.slip == "mask diagonal" else 1)
        mask[0, 0] = 0
        if self.slip != "no mask":
            scores = scores.masked_fill(mask.bool(), -1e4)
        mixed = scores.softmax(-1) @ (k if self.slip == "k for v" else v)
        if self.slip == "no transpose":
            return self.o(mixed.reshape(1, LENGTH, WIDTH))
        return self.o(merged(mixed))

    def forward(self, ids: Tensor) -> Tensor:
        start = 1 if self.slip == "position" else 0
        x = self.token(ids) + self.pos(torch.arange(start, start + LENGTH))
        x = (
            self.n1(x + self.attention(x))
            if self.slip == "post norm"
            else x + self.attention(self.n1(x))
        )
        act = F.relu if self.slip == "relu" else F.gelu
        x = x + self.down(act(self.up(self.n2(x))))
        return self.n3(x) @ self.token.weight.T


class Llama(Subject):
    """A block of a llama: RMSNorm, rotary positions, grouped keys, a gated MLP."""

    SLIPS = {
        "interleaved": "rotary pairs are neighbors, not halves",
        "base": "the base of the rotary positions is 500000 for 10000",
        "q alone": "keys are not rotated",
        "tiled kv": "keys and values are tiled, not repeated one by one",
        "gate": "the activation is on the other branch",
        "rms eps": "epsilon 1e-2 for 1e-6 of every RMSNorm",
        "one plus": "the weight of the norm counts from one, as in Gemma",
        "embed scale": "embeddings are multiplied by the root of the width, as in Gemma",
        "mean norm": "LayerNorm's subtraction of the mean in every norm",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.token = nn.Embedding(50, WIDTH)
        self.q, self.o = nn.Linear(WIDTH, WIDTH, False), nn.Linear(WIDTH, WIDTH, False)
        self.k, self.v = nn.Linear(WIDTH, WIDTH // 2, False), nn.Linear(WIDTH, WIDTH // 2, False)
        self.gate, self.up = nn.Linear(WIDTH, 48, False), nn.Linear(WIDTH, 48, False)
        self.down, self.head = nn.Linear(48, WIDTH, False), nn.Linear(WIDTH, 50, False)
        self.w = nn.ParameterList(nn.Parameter(torch.ones(WIDTH)) for _ in range(3))

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randint(0, 50, (1, LENGTH)),)

    def norm(self, x: Tensor, i: int) -> Tensor:
        if self.slip == "mean norm":
            x = x - x.mean(-1, keepdim=True)
        eps = 1e-2 if self.slip == "rms eps" else 1e-6
        weight = self.w[i] + 1 if self.slip == "one plus" else self.w[i]
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight

    def rotated(self, x: Tensor) -> Tensor:
        base = 500000.0 if self.slip == "base" else 10000.0
        rates = base ** (-torch.arange(0, EACH, 2) / EACH)
        angles = torch.arange(LENGTH)[:, None] * rates
        cos, sin = angles.cos(), angles.sin()
        if self.slip == "interleaved":
            a, b = x[..., ::2], x[..., 1::2]
            return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.token(ids)
        if self.slip == "embed scale":
            x = x * math.sqrt(WIDTH)
        y = self.norm(x, 0)
        q, k, v = heads(self.q(y)), heads(self.k(y), 2), heads(self.v(y), 2)
        q, k = self.rotated(q), k if self.slip == "q alone" else self.rotated(k)
        if self.slip == "tiled kv":
            k, v = k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1)
        else:
            k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        scores = q @ k.transpose(-1, -2) / math.sqrt(EACH)
        scores = scores + torch.full((LENGTH, LENGTH), -1e9).triu(1)
        x = x + self.o(merged(scores.softmax(-1) @ v))
        y = self.norm(x, 1)
        gate, up = self.gate(y), self.up(y)
        x = x + self.down(gate * F.silu(up) if self.slip == "gate" else F.silu(gate) * up)
        return self.head(self.norm(x, 2))


class Bert(Subject):
    """A block of BERT with a padding mask, token types and a pooler."""

    SLIPS = {
        "no types": "token types are not added",
        "mask sign": "the mask hides what it should show",
        "last token": "the pooler takes the last token",
        "no tanh": "the pooler has no tanh",
        "no embedding norm": "the norm of the embeddings was forgotten",
        "softmax axis": "softmax over the queries",
        "pre norm": "norms come before the layers",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.token, self.types = nn.Embedding(50, WIDTH), nn.Embedding(2, WIDTH)
        self.pos = nn.Embedding(16, WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.n0, self.n1, self.n2 = (nn.LayerNorm(WIDTH, 1e-12) for _ in range(3))
        self.up, self.down = nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH)
        self.pool = nn.Linear(WIDTH, WIDTH)

    def inputs(self) -> tuple[Tensor, ...]:
        mask = (torch.arange(LENGTH) < 7).long()[None]
        return torch.randint(0, 50, (1, LENGTH)), mask, (torch.arange(LENGTH) > 3).long()[None]

    def attention(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = heads(self.q(x)), heads(self.k(x)), heads(self.v(x))
        scores = q @ k.transpose(-1, -2) / math.sqrt(EACH)
        shown = mask[:, None, None].float()
        scores = scores + (shown if self.slip == "mask sign" else 1 - shown) * -10000.0
        return self.o(merged(scores.softmax(-2 if self.slip == "softmax axis" else -1) @ v))

    def forward(self, ids: Tensor, mask: Tensor, types: Tensor) -> tuple[Tensor, Tensor]:
        x = self.token(ids) + self.pos(torch.arange(LENGTH))
        x = x + self.types(types) * (0.0 if self.slip == "no types" else 1.0)
        x = x if self.slip == "no embedding norm" else self.n0(x)
        if self.slip == "pre norm":
            x = x + self.attention(self.n1(x), mask)
            x = x + self.down(F.gelu(self.up(self.n2(x))))
        else:
            x = self.n1(x + self.attention(x, mask))
            x = self.n2(x + self.down(F.gelu(self.up(x))))
        pooled = self.pool(x[:, -1] if self.slip == "last token" else x[:, 0])
        return x, pooled if self.slip == "no tanh" else pooled.tanh()


class Swin(Subject):
    """A block of Swin: shifted windows with a relative bias."""

    SLIPS = {
        "shift": "windows are shifted the other way",
        "no shift back": "the shift is not taken back",
        "window axes": "rows and columns of a window are exchanged",
        "bias transposed": "the relative bias is of key and query, not query and key",
        "no bias": "the relative bias was forgotten",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.norm, self.qkv = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.o, self.bias = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.zeros(HEADS, 16, 16))

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(1, 8, 8, WIDTH),)

    def forward(self, x: Tensor) -> Tensor:
        by = 2 if self.slip == "shift" else -2
        y = self.norm(x).roll((by, by), (1, 2))
        order = (0, 1, 3, 4, 2, 5) if self.slip == "window axes" else (0, 1, 3, 2, 4, 5)
        y = y.view(1, 2, 4, 2, 4, WIDTH).permute(*order).reshape(4, 16, WIDTH)
        q, k, v = (heads(part) for part in self.qkv(y).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) / math.sqrt(EACH)
        bias = self.bias.transpose(1, 2) if self.slip == "bias transposed" else self.bias
        scores = scores if self.slip == "no bias" else scores + bias
        y = self.o(merged(scores.softmax(-1) @ v))
        y = y.view(1, 2, 2, 4, 4, WIDTH).permute(0, 1, 3, 2, 4, 5).reshape(1, 8, 8, WIDTH)
        return x + (y if self.slip == "no shift back" else y.roll((-by, -by), (1, 2)))


class Detr(Subject):
    """Queries that look at an image with sine positions, as in DETR."""

    SLIPS = {
        "sine order": "sines and cosines are concatenated, not interleaved",
        "x before y": "positions of x come first",
        "no turn": "positions are not scaled to a full turn",
        "position on values": "positions are added to the values, too",
        "no query position": "query embeddings are not added again",
        "relu last": "an activation after the last layer of the boxes",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.body = nn.Conv2d(3, WIDTH, 4, 4)
        self.query, self.start = (
            nn.Parameter(torch.zeros(1, 5, WIDTH)),
            nn.Parameter(torch.zeros(1, 5, WIDTH)),
        )
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.norm, self.hidden, self.box = (
            nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, 16),
            nn.Linear(16, 4),
        )

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(1, 3, 16, 24),)

    def positions(self, h: int, w: int) -> Tensor:
        half = WIDTH // 2
        rates = 10000 ** (2 * (torch.arange(half) // 2) / half)
        parts = []
        for size, axis in ((h, 0), (w, 1)):
            at = torch.arange(1, size + 1) / size * (1 if self.slip == "no turn" else 2 * math.pi)
            at = at[:, None] / rates
            sines = at[:, 0::2].sin(), at[:, 1::2].cos()
            line = (
                torch.cat(sines, -1)
                if self.slip == "sine order"
                else torch.stack(sines, -1).flatten(-2)
            )
            parts.append(
                line[:, None].expand(h, w, half) if axis == 0 else line[None].expand(h, w, half)
            )
        if self.slip == "x before y":
            parts.reverse()
        return torch.cat(parts, -1).reshape(1, h * w, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        h, w = x.shape[2:]
        x = x.flatten(2).transpose(1, 2)
        placed = x + self.positions(h, w)
        start = self.start if self.slip == "no query position" else self.start + self.query
        values = placed if self.slip == "position on values" else x
        q, k, v = heads(self.q(start)), heads(self.k(placed)), heads(self.v(values))
        y = self.o(merged((q @ k.transpose(-1, -2) / math.sqrt(EACH)).softmax(-1) @ v))
        y = self.box(F.relu(self.hidden(self.norm(self.start + y))))
        return F.relu(y).sigmoid() if self.slip == "relu last" else y.sigmoid()


SUBJECTS = (Vit, Gpt, Llama, Bert, Swin, Detr)
