"""More small networks that can be built with a mistake: of speech, of T5, ConvNeXt, DenseNet and a tagger."""

import math

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS, LENGTH = 32, 4, 40
_ACTIVATIONS = {
    "silu": F.silu,
    "mish": F.mish,
    "relu": F.relu,
    "tanh": lambda x: F.gelu(x, approximate="tanh"),
    "quick": lambda x: x * torch.sigmoid(1.702 * x),
}


def activated(x: torch.Tensor, bug: str) -> torch.Tensor:
    return _ACTIVATIONS.get(bug, F.gelu)(x)


class SpeechLayer(nn.Module):
    def __init__(self, bug: str) -> None:
        super().__init__()
        self.bug = bug
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH, bias=n != 1) for n in range(3))
        self.out, self.up, self.down = (
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, 2 * WIDTH),
            nn.Linear(2 * WIDTH, WIDTH),
        )

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        shape = (len(x), -1, HEADS, WIDTH // HEADS)
        if self.bug == "head_layout":
            shape = (len(x), -1, WIDTH // HEADS, HEADS)
            return x.view(shape).permute(0, 3, 1, 2)
        return x.view(shape).transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        k = self.q(y) if self.bug == "key_of_query" else self.k(y)
        q, k, v = self.heads(self.q(y)), self.heads(k), self.heads(self.v(y))
        if self.bug == "query_key":
            q, k = k, q
        scale = {"scale_width": WIDTH**-0.5}.get(self.bug, (WIDTH // HEADS) ** -0.5)
        made = ((q * scale) @ k.transpose(2, 3)).softmax(-1) @ v
        made = made if self.bug == "unmerged" else made.transpose(1, 2)
        y = self.out(made.reshape(x.shape))
        x = y if self.bug == "first_residual" else x + y
        y = self.down(activated(self.up(self.second(x)), self.bug))
        return y if self.bug == "second_residual" else x + y


class Speech(nn.Module):
    """Two convolutions over time, a table of positions, a layer of attention."""

    def __init__(self, bug: str = "") -> None:
        super().__init__()
        self.bug = bug
        self.conv1 = nn.Conv1d(12, WIDTH, 3, padding=1)
        self.conv2 = nn.Conv1d(WIDTH, WIDTH, 3, stride=2, padding=1)
        angles = torch.arange(LENGTH // 2)[:, None] / 100 ** (torch.arange(WIDTH // 2) / 16)
        table = torch.cat([angles.sin(), angles.cos()], 1)
        if bug == "table_halves":
            table = torch.cat([angles.cos(), angles.sin()], 1)
        if bug == "table_interleaved":
            table = torch.stack([angles.sin(), angles.cos()], 2).flatten(1)
        self.register_buffer("table", table, persistent=False)
        self.layers = nn.ModuleList([SpeechLayer(bug), SpeechLayer("")])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 9)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        x = self.conv1(given)
        x = x if self.bug == "first_activation" else F.gelu(x)
        if self.bug == "padded_left":
            x = F.conv1d(F.pad(x, (2, 0)), self.conv2.weight, self.conv2.bias, stride=2)
        else:
            x = self.conv2(x)
        x = F.gelu(x).transpose(1, 2)
        if self.bug == "table_scaled":
            x = x * math.sqrt(WIDTH) + self.table
        elif self.bug != "table_missing":
            x = x + (self.table.roll(1, 0) if self.bug == "table_shift" else self.table)
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        if self.bug == "first_step":
            return self.head(x[:, 0])
        return self.head(x.sum(1) if self.bug == "summed" else x.mean(1))


class RootNorm(nn.Module):
    def __init__(self, bug: str = "") -> None:
        super().__init__()
        self.bug, self.weight = bug, nn.Parameter(torch.rand(WIDTH) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x - x.mean(-1, keepdim=True) if self.bug == "centered" else x
        power = y.pow(2).mean(-1, keepdim=True)
        eps = 1e-1 if self.bug == "root_eps" else 1e-6
        if self.bug == "eps_outside":
            return self.weight * (y / (power.sqrt() + 0.1))
        if self.bug == "one_more":
            return (1 + self.weight) * (y * torch.rsqrt(power + eps))
        return self.weight * (y * torch.rsqrt(power + eps))


class T5Layer(nn.Module):
    def __init__(self, bug: str) -> None:
        super().__init__()
        self.bug = bug
        self.first, self.second = RootNorm(bug), RootNorm(bug)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(WIDTH, 48, bias=False) for _ in range(2))
        self.down = nn.Linear(48, WIDTH, bias=False)

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        q, k, v = (
            m(y).view(len(y), -1, HEADS, WIDTH // HEADS).transpose(1, 2)
            for m in (self.q, self.k, self.v)
        )
        scores = q @ k.transpose(2, 3)
        if self.bug == "scaled_scores":
            scores = scores / math.sqrt(WIDTH // HEADS)
        if self.bug == "bias_turned":
            bias = bias.transpose(2, 3)
        if self.bug == "bias_heads":
            bias = bias.flip(1)
        scores = scores if self.bug == "relative_missing" else scores + bias
        x = x + self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        y = self.second(x)
        gate = activated(self.gate(y), self.bug)
        return x + self.down(gate if self.bug == "ungated" else gate * self.up(y))


class T5(nn.Module):
    """Root mean square norms made of single operators, a bias of relative positions, a gated linear unit."""

    def __init__(self, bug: str = "") -> None:
        super().__init__()
        self.bug = bug
        self.embed = nn.Embedding(97, WIDTH)
        self.bias = nn.Parameter(torch.randn(1, HEADS, LENGTH, LENGTH))
        self.layers = nn.ModuleList([T5Layer(bug), T5Layer("")])
        self.norm, self.head = RootNorm(), nn.Linear(WIDTH, 20, bias=False)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        x = self.embed(given)
        for layer in self.layers:
            x = layer(x, self.bias)
        x = self.norm(x)
        return self.head(x if self.bug == "head_scale" else x * WIDTH**-0.5)


class NextBlock(nn.Module):
    def __init__(self, bug: str) -> None:
        super().__init__()
        self.bug = bug
        self.deep = nn.Conv2d(
            16,
            16,
            5,
            padding=2,
            groups=16,
            padding_mode="circular" if bug == "circular" else "zeros",
        )
        self.norm = nn.LayerNorm(16, eps=1e-2 if bug == "next_eps" else 1e-6)
        self.up, self.down = nn.Linear(16, 48), nn.Linear(48, 16)
        self.gamma = nn.Parameter(torch.rand(16) + 0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = (
            self.deep(x).permute(0, 3, 2, 1)
            if self.bug == "wh"
            else self.deep(x).permute(0, 2, 3, 1)
        )
        y = self.norm(y)
        y = self.down(activated(self.up(y), self.bug))
        y = y if self.bug == "gamma_missing" else y * self.gamma
        y = y.permute(0, 3, 1, 2)
        return y if self.bug == "next_residual" else x + y


class Next(nn.Module):
    """ConvNeXt: patches, depthwise convolutions, channels last, a scale of the layer."""

    def __init__(self, bug: str = "") -> None:
        super().__init__()
        self.bug = bug
        self.stem, self.start = (
            nn.Conv2d(3, 16, 2, stride=2),
            nn.GroupNorm(4 if bug == "start_groups" else 1, 16),
        )
        self.blocks = nn.Sequential(NextBlock(bug if bug == "wh" else ""), NextBlock(bug))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 7)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        if self.bug == "half_range":
            given = given * 0.5 + 0.5
        x = self.stem(given)
        x = self.blocks(x if self.bug == "start_norm" else self.start(x))
        if self.bug == "norm_first":
            return self.head(self.norm(x.permute(0, 2, 3, 1)).mean((1, 2)))
        x = x.amax((2, 3)) if self.bug == "next_max" else x.mean((2, 3))
        return self.head(x if self.bug == "last_norm" else self.norm(x))


class Dense(nn.Module):
    """Normalization before convolution, features that are put together, pooling between."""

    def __init__(self, bug: str = "") -> None:
        super().__init__()
        self.bug = bug
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8, eps=0.1 if bug == "dense_eps" else 1e-5)
        self.bn2, self.bn3 = nn.BatchNorm2d(16), nn.BatchNorm2d(24)
        step = (2, 2) if bug == "dense_dilation" else (1, 1)
        self.conv1 = nn.Conv2d(8, 8, 3, padding=step[0], dilation=step[1], bias=False)
        self.conv2 = nn.Conv2d(16, 8, 3, padding=1, bias=False)
        self.pool = nn.AvgPool2d(3, 2, 1, count_include_pad=bug != "count_pad")
        self.last = nn.Conv2d(24, 6, 1)
        self.fc = nn.Linear(6 * 64, 5)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        x = self.stem(given)
        if self.bug == "norm_behind":
            y = self.bn1(F.relu(x))
        elif self.bug == "dense_relu":
            y = self.bn1(x)
        else:
            y = F.relu(self.bn1(x))
        y = self.conv1(y)
        x = torch.cat([y, x] if self.bug == "dense_order" else [x, y], 1)
        x = torch.cat([x, self.conv2(F.relu(self.bn2(x)))], 1)
        x = F.max_pool2d(x, 3, 2, 1) if self.bug == "dense_max" else self.pool(x)
        x = F.relu(self.bn3(x))
        x = self.last(x)
        x = x.transpose(2, 3) if self.bug == "dense_flat" else x
        return self.fc(x.flatten(1))


class Tagger(nn.Module):
    """Two layers of LSTM in both directions, normalized, a tag for each step."""

    def __init__(self, bug: str = "") -> None:
        super().__init__()
        self.bug = bug
        self.lstm = nn.LSTM(10, 8, num_layers=2, batch_first=True, bidirectional=True)
        self.norm, self.fc = nn.LayerNorm(16), nn.Linear(16, 6)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        out, (state, cell) = self.lstm(given)
        if self.bug == "backward_first":
            out = torch.cat([out[..., 8:], out[..., :8]], 2)
        out = self.norm(out)
        end = cell if self.bug == "cell" else state
        last = {"first_layer": end[:2], "one_direction": end[[2, 2]]}.get(self.bug, end[2:])
        last = last.transpose(0, 1).flatten(1)[:, None]
        scores = self.fc(out if self.bug == "last_unused" else out + last)
        return scores if self.bug == "log_missing" else scores.log_softmax(-1)


class Looking(nn.Module):
    """Attention of one sequence to another, normalized behind the addition."""

    def __init__(self, bug: str) -> None:
        super().__init__()
        self.bug = bug
        self.q, self.kv = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
        self.o = nn.Linear(WIDTH, WIDTH)
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(
        self, x: torch.Tensor, table: torch.Tensor | None, memory: torch.Tensor
    ) -> torch.Tensor:
        asked = x if table is None or self.bug == "asks_without" else x + table
        k, v = self.kv(memory).chunk(2, -1)
        if self.bug == "chunks":
            k, v = v, k
        q, k, v = (
            t.view(len(t), -1, HEADS, WIDTH // HEADS).transpose(1, 2) for t in (self.q(asked), k, v)
        )
        scores = (
            q
            @ k.transpose(2, 3)
            / (1.0 if self.bug == "unscaled_look" else (WIDTH // HEADS) ** 0.5)
        )
        y = self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        y = self.first(y) if self.bug == "unadded" else self.first(x + y)
        if self.bug == "before_norm":
            return y + self.down(F.relu(self.up(self.second(y))))
        z = self.down(activated(self.up(y), self.bug) if self.bug == "tanh" else F.relu(self.up(y)))
        return self.second(y + z)


class Detector(nn.Module):
    """An image's features with a table of positions, and queries that look at them."""

    def __init__(self, bug: str = "") -> None:
        super().__init__()
        self.bug = bug
        self.stem = nn.Conv2d(3, WIDTH, 4, stride=4)
        self.table = nn.Parameter(torch.randn(1, 36, WIDTH))
        self.mark = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.queries = nn.Parameter(torch.randn(1, 10, WIDTH))
        self.encoder, self.decoder = (
            Looking("" if bug in ("asks_without", "chunks") else bug),
            Looking(bug),
        )
        self.norm, self.box = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        x = self.stem(given).flatten(2).transpose(1, 2)
        x = x if self.bug == "no_table" else x + self.table
        if self.bug == "table_twice":
            x = x + self.table
        x = x if self.bug == "no_mark" else torch.cat([self.mark.expand(len(x), -1, -1), x], 1)
        memory = self.encoder(x, None, x)
        start = torch.zeros_like(self.queries).expand(len(x), -1, -1)
        memory = start + self.queries if self.bug == "own_memory" else memory
        made = self.decoder(
            start if self.bug == "start_zero" else start + self.queries, self.queries, memory
        )
        boxes = self.box(made if self.bug == "unnormed" else self.norm(made))
        if self.bug == "box_tanh":
            return boxes.tanh()
        return boxes if self.bug == "box_plain" else boxes.sigmoid()


class Mixing(nn.Module):
    def __init__(self, bug: str) -> None:
        super().__init__()
        self.bug = bug
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.across, self.back = nn.Linear(36, 36), nn.Linear(36, 36)
        self.up, self.down = nn.Linear(WIDTH, 48), nn.Linear(48, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.back(F.gelu(self.across(self.first(x).transpose(1, 2))))
        x = x + (y.reshape(x.shape) if self.bug == "untransposed" else y.transpose(1, 2))
        y = self.first(x) if self.bug == "same_norm" else self.second(x)
        return x + self.down(F.gelu(self.up(y)))


class Mixer(nn.Module):
    """Patches with a table of positions, mixed along both axes."""

    def __init__(self, bug: str = "") -> None:
        super().__init__()
        self.bug = bug
        self.patch = nn.Conv2d(3, WIDTH, 4, stride=4)
        self.table = nn.Parameter(torch.randn(1, 36, WIDTH))
        self.mixing, self.last = Mixing(bug), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 6)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        x = self.patch(given).flatten(2).transpose(1, 2)
        x = self.mixing(x if self.bug == "mixer_table" else x + self.table)
        return self.head(self.last(x).mean(1))


class Folded(nn.Module):
    """Pixels that become channels, all features in one row."""

    def __init__(self, bug: str = "") -> None:
        super().__init__()
        self.bug = bug
        self.stem, self.conv = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(16, 6, 3, padding=1)
        self.grown, self.fc = nn.Conv2d(6, 8, 1), nn.Linear(2 * 16 * 16, 5)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        x = self.stem(given)
        if self.bug == "pixels":
            x = x.view(-1, 4, 8, 2, 8, 2).permute(0, 3, 5, 1, 2, 4).reshape(-1, 16, 8, 8)
        else:
            x = F.pixel_unshuffle(x, 2)
        y = self.grown(F.relu(self.conv(x)))
        if self.bug == "depth":
            y = y.view(-1, 2, 2, 2, 8, 8).permute(0, 3, 4, 1, 5, 2).reshape(-1, 2, 16, 16)
        else:
            y = F.pixel_shuffle(y, 2)
        return self.fc((y.permute(0, 2, 3, 1) if self.bug == "flat_head" else y).flatten(1))


def _queries_shifted(model: nn.Module) -> None:
    model.queries.copy_(model.queries.roll(1, 1))


def _table_flipped(model: nn.Module) -> None:
    model.table.copy_(model.table.view(1, 6, 6, WIDTH).transpose(1, 2).reshape(1, 36, WIDTH))


def _backward_gates(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if name.endswith("_l0_reverse"):
            i, f, g, o = parameter.chunk(4)
            parameter.copy_(torch.cat([i, f, o, g]))


def _directions_exchanged(model: nn.Module) -> None:
    known = dict(model.lstm.named_parameters())
    for name, parameter in known.items():
        if name.endswith("l1"):
            other = known[f"{name}_reverse"]
            both = parameter.clone(), other.clone()
            parameter.copy_(both[1])
            other.copy_(both[0])


def _second_layer(model: nn.Module) -> None:
    model.lstm.weight_hh_l1.copy_(model.lstm.weight_hh_l0)


def _deep_turned(model: nn.Module) -> None:
    weight = model.blocks[1].deep.weight
    weight.copy_(weight.transpose(2, 3).clone())


def _gamma_one(model: nn.Module) -> None:
    model.blocks[1].gamma.fill_(1)


def _key_zero(model: nn.Module) -> None:
    model.layers[0].v.bias.zero_()


def _running_mean(model: nn.Module) -> None:
    model.bn2.running_mean.zero_()


def _deviation(model: nn.Module) -> None:
    model.bn2.running_var.sqrt_()


def _exported_half(model: nn.Module) -> None:
    layer = model.layers[0].down
    layer.weight.copy_(layer.weight.half().float())


def _table_row(model: nn.Module) -> None:
    model.embed.weight.copy_(model.embed.weight.roll(1, 0))


MISTAKES = {
    "backward_gates": _backward_gates,
    "directions_exchanged": _directions_exchanged,
    "second_layer": _second_layer,
    "deep_turned": _deep_turned,
    "gamma_one": _gamma_one,
    "value_bias": _key_zero,
    "running_mean": _running_mean,
    "deviation": _deviation,
    "exported_half": _exported_half,
    "table_row": _table_row,
    "queries_shifted": _queries_shifted,
    "table_flipped": _table_flipped,
}
NETWORKS = {
    "speech": (Speech, lambda: torch.randn(8, 12, LENGTH)),
    "t5": (T5, lambda: torch.randint(0, 97, (2, LENGTH))),
    "next": (Next, lambda: torch.rand(8, 3, 24, 24) * 2 - 0.7),
    "dense": (Dense, lambda: torch.rand(2, 3, 16, 16) * 2 - 0.7),
    "detector": (Detector, lambda: torch.rand(3, 3, 24, 24) * 2 - 0.7),
    "folded": (Folded, lambda: torch.rand(40, 3, 16, 16) * 2 - 0.7),
    "mixer": (Mixer, lambda: torch.rand(3, 3, 24, 24) * 2 - 0.7),
    "tagger": (Tagger, lambda: torch.randn(24, 7, 10)),
}
