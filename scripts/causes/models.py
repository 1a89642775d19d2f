"""Small networks that can be built with a mistake: `GPT("eps")` has one, `GPT()` has none."""

import math

import torch
import varied
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS, LENGTH = 32, 4, 48


class Attention(nn.Module):
    def __init__(self, bug: str, causal: bool) -> None:
        super().__init__()
        self.bug = bug
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        ones = torch.ones(LENGTH + 1, LENGTH + 1)
        shift = {"mask_off": 1, "mask_strict": -1}.get(bug, 0)
        keep = torch.tril(ones, diagonal=shift)
        keep[0, 0] = 1
        mask = keep.bool() if causal and bug != "mask_missing" else ones.bool()
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).split(WIDTH, dim=2)
        if self.bug == "qkv_order":
            q, k, v = q, v, k
        if self.bug == "qk_swapped":
            q, k = k, q
        if self.bug == "kv_swapped":
            k, v = v, k
        q, k, v = (t.view(batch, length, HEADS, -1).transpose(1, 2) for t in (q, k, v))
        size = q.shape[-1]
        scale = {"scale_missing": 1.0, "scale_square": 1 / size}.get(self.bug, 1 / math.sqrt(size))
        scores = (q @ k.transpose(-2, -1)) * scale
        value = -1.0 if self.bug == "mask_value" else -1e9
        scores = scores.masked_fill(~self.mask[:length, :length], value)
        weights = scores.softmax(dim=-2 if self.bug == "softmax_axis" else -1)
        out = weights @ v
        if self.bug != "heads_unmerged":
            out = out.transpose(1, 2)
        return self.proj(out.reshape(batch, length, WIDTH))


class Gelu(nn.Module):
    def __init__(self, bug: str) -> None:
        super().__init__()
        self.bug = bug

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        match self.bug:
            case "gelu_tanh":
                return F.gelu(x, approximate="tanh")
            case "gelu_sigmoid":
                return x * torch.sigmoid(1.702 * x)
            case "gelu_relu":
                return F.relu(x)
            case "activation_missing":
                return x * 1.0
            case "gelu_twice":
                return F.gelu(F.gelu(x))
            case "silu":
                return F.silu(x)
        return F.gelu(x)


class Block(nn.Module):
    def __init__(self, bug: str, causal: bool) -> None:
        super().__init__()
        self.bug = bug
        self.ln_1 = nn.LayerNorm(WIDTH, eps=1e-2 if bug in ("eps", "eps_all") else 1e-5)
        self.attn = Attention(bug, causal)
        self.ln_2 = nn.LayerNorm(WIDTH, eps=1e-2 if bug == "eps_all" else 1e-5)
        self.fc = nn.Linear(WIDTH, 2 * WIDTH, bias=bug != "bias_missing")
        self.act = Gelu(bug)
        self.out = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.bug == "residual_missing":
            x = self.attn(self.ln_1(x))
        elif self.bug == "post_norm":
            x = self.ln_1(x + self.attn(x))
        else:
            x = x + self.attn(self.ln_1(x))
        if self.bug == "norm_missing":
            return x + self.out(self.act(self.fc(x)))
        if self.bug == "residual_normed":
            x = self.ln_2(x)
            return x + self.out(self.act(self.fc(x)))
        if self.bug == "activation_late":
            return x + self.act(self.out(self.fc(self.ln_2(x))))
        if self.bug == "half":
            return x + self.out(self.act(self.fc(self.ln_2(x)).half().float()))
        return x + self.out(self.act(self.fc(self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self, bug: str = "", causal: bool = True) -> None:
        super().__init__()
        self.bug = bug
        self.wte, self.wpe = nn.Embedding(97, WIDTH), nn.Embedding(LENGTH + 2, WIDTH)
        self.h = nn.ModuleList(
            [Block(bug, causal), Block(bug if bug in ("eps_all",) else "", causal)]
        )
        self.ln_f = nn.LayerNorm(WIDTH, eps=1e-2 if bug == "eps_all" else 1e-5)
        self.head = nn.Linear(WIDTH, 97, bias=False)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        places = torch.arange(given.shape[1]) + (1 if self.bug == "position_shift" else 0)
        x = self.wte(given) * (WIDTH**0.5 if self.bug == "embedding_scaled" else 1.0)
        if self.bug != "position_missing":
            x = x + self.wpe(places)
        for block in self.h:
            x = block(x)
        return self.head(self.ln_f(x))


class Bert(GPT):
    def __init__(self, bug: str = "") -> None:
        super().__init__(bug, causal=False)
        self.pooler = nn.Linear(WIDTH, WIDTH)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        x = self.wte(given) + self.wpe(torch.arange(given.shape[1]))
        for block in self.h:
            x = block(x)
        pooled = self.pooler(x if self.bug == "last_norm_missing" else self.ln_f(x))
        return pooled if self.bug == "tanh_missing" else torch.tanh(pooled)


class Basic(nn.Module):
    def __init__(self, bug: str, channels: int) -> None:
        super().__init__()
        self.bug = bug
        pad, dilation = {"dilation": (2, 2)}.get(bug, (1, 1))
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=pad, dilation=dilation, bias=False)
        self.bn1 = nn.BatchNorm2d(channels, eps=0.1 if bug in ("bn_eps", "bn_eps_all") else 1e-5)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels, eps=0.1 if bug == "bn_eps_all" else 1e-5)
        self.relu = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv1(x) if self.bug == "bn_missing" else self.bn1(self.conv1(x))
        activation = {"relu6": lambda y: y.clamp(0, 0.5), "relu_missing": nn.Identity()}.get(
            self.bug, self.relu
        )
        y = activation(y)
        y = self.bn2(self.conv2(y))
        if self.bug == "shortcut_missing":
            return self.relu(y)
        return F.relu(y) + x if self.bug == "relu_before" else self.relu(y + x)


class ResNet(nn.Module):
    def __init__(self, bug: str = "") -> None:
        super().__init__()
        self.bug = bug
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        pool = nn.AvgPool2d if bug == "avg_for_max" else nn.MaxPool2d
        self.pool = pool(3, stride=2, padding=1, ceil_mode=bug == "ceil_mode")
        self.layer1, self.layer2 = (
            Basic(bug, 8),
            Basic("bn_eps_all" if bug == "bn_eps_all" else "", 8),
        )
        self.fc = nn.Linear(8, 10)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        if self.bug == "bgr":
            given = given.flip(1)
        if self.bug == "hw":
            given = given.transpose(2, 3)
        if self.bug == "mirrored":
            given = given.flip(3)
        if self.bug == "standardized":
            mean, std = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])
            given = (given - mean[:, None, None]) / std[:, None, None]
        if self.bug == "not_normalized":
            given = given / 255
        x = self.layer2(self.layer1(self.pool(F.relu(self.stem(given)))))
        return self.fc(x.amax((2, 3)) if self.bug == "max_pooled" else x.mean((2, 3)))


class ViT(nn.Module):
    def __init__(self, bug: str = "") -> None:
        super().__init__()
        self.bug = bug
        self.patch = nn.Conv2d(3, WIDTH, 4, stride=4)
        self.cls = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.pos = nn.Parameter(torch.randn(1, 37, WIDTH))
        self.blocks = nn.ModuleList([Block(bug, False)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        x = self.patch(given)
        x = (x.transpose(2, 3) if self.bug == "patch_order" else x).flatten(2).transpose(1, 2)
        pos = self.pos.roll(1, 1) if self.bug == "position_shift" else self.pos
        parts = [self.cls.expand(len(x), -1, -1), x]
        x = torch.cat(parts[::-1] if self.bug == "token_last" else parts, 1)
        x = x if self.bug == "position_missing" else x + pos
        for block in self.blocks:
            x = block(x)
        if self.bug == "mean_pooled":
            return self.head(self.norm(x).mean(1))
        return self.head(self.norm(x)[:, 1 if self.bug == "token_off" else 0])


class UNet(nn.Module):
    def __init__(self, bug: str = "") -> None:
        super().__init__()
        self.bug = bug
        self.down, self.mid = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.up, self.last = nn.Conv2d(16, 8, 3, padding=1), nn.Conv2d(8, 1, 1)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        skip = F.relu(self.down(given))
        x = F.leaky_relu(self.mid(skip), 0.2 if self.bug == "slope" else 0.01)
        if self.bug == "cubic":
            x = F.interpolate(x, scale_factor=2.0, mode="bicubic")
        elif self.bug == "nearest":
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
        else:
            corners = self.bug == "align_corners"
            x = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=corners)
        if self.bug == "skip_late":
            skip = self.down(given)
        both = (skip, x) if self.bug == "concat_order" else (x, skip)
        x = F.relu(self.up(torch.cat(both, 1)))
        x = self.last(x)
        if self.bug == "sigmoid_twice":
            x = torch.sigmoid(x)
        return torch.sigmoid(x) if self.bug != "sigmoid_missing" else x


class Recurrent(nn.Module):
    def __init__(self, bug: str = "") -> None:
        super().__init__()
        self.bug = bug
        self.lstm = nn.LSTM(12, 16, batch_first=True)
        self.fc = nn.Linear(16, 5)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        out, _ = self.lstm(given.flip(1) if self.bug == "reversed" else given)
        if self.bug == "averaged":
            return self.fc(out.mean(1))
        return self.fc(out[:, -2] if self.bug == "last_off" else out[:, -1])


class Gated(nn.Module):
    def __init__(self, bug: str = "") -> None:
        super().__init__()
        self.bug = bug
        self.gru = nn.GRU(12, 16, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(32, 5)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        out, _ = self.gru(given)
        if self.bug == "directions":
            out = out[..., torch.arange(32).roll(16)]
        pooled = out.mean(1) if self.bug == "mean_for_max" else out.amax(1)
        return self.fc(pooled).softmax(-1) if self.bug == "softmax_extra" else self.fc(pooled)


class Cross(nn.Module):
    def __init__(self, bug: str) -> None:
        super().__init__()
        self.bug = bug
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: torch.Tensor, memory: torch.Tensor, causal: bool) -> torch.Tensor:
        def heads(t: torch.Tensor) -> torch.Tensor:
            return t.view(t.shape[0], t.shape[1], HEADS, -1).transpose(1, 2)

        q, k, v = heads(self.q(x)), heads(self.k(memory)), heads(self.v(memory))
        if causal:
            q, k = rotated(q, self.bug), rotated(k, self.bug)
        scores = q @ k.transpose(-2, -1) * (WIDTH // HEADS) ** -0.5
        if causal and self.bug != "causal_missing":
            keep = torch.ones(scores.shape[-2:]).tril().bool()
            scores = scores.masked_fill(~keep, -1e9)
        out = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        return self.o(out)


def rotated(x: torch.Tensor, bug: str) -> torch.Tensor:
    """Turn pairs of features by an angle that grows with the position."""
    half, base = x.shape[-1] // 2, 10 if bug == "rotary_base" else 100
    places = torch.arange(x.shape[-2])[:, None] + (1 if bug == "rotary_shift" else 0)
    angles = places / base ** (torch.arange(half)[None] / half)
    cos, sin = angles.cos(), angles.sin()
    if bug == "rotary_sign":
        sin = -sin
    if bug == "rotary":
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Translator(nn.Module):
    def __init__(self, bug: str = "") -> None:
        super().__init__()
        self.bug = bug
        self.embed = nn.Embedding(97, WIDTH)
        self.encoder = Block("", False)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.own, self.cross = Cross(bug), Cross("")
        self.head = nn.Linear(WIDTH, 20)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        memory = self.encoder(self.embed(given))
        x = self.embed(given.flip(1))
        normed = self.norm1(x)
        x = x + self.own(normed, normed, True)
        normed = self.norm1(x) if self.bug == "norm_shared" else self.norm2(x)
        memory = normed if self.bug == "cross_input" else memory
        crossed = self.cross(normed, memory, False)
        x = crossed if self.bug == "cross_residual" else x + crossed
        return self.head(x * 0.5 if self.bug == "factor" else x)


class Grouped(nn.Module):
    """Attention whose keys and values are shared by groups of heads, with rotary positions."""

    def __init__(self, bug: str) -> None:
        super().__init__()
        self.bug = bug
        self.q, self.o = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.k, self.v = (nn.Linear(WIDTH, WIDTH // 2, bias=False) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            m(x).view(batch, length, -1, 8).transpose(1, 2) for m in (self.q, self.k, self.v)
        )
        q, k = rotated(q, ""), rotated(k, self.bug)
        if self.bug == "tiled":
            k, v = k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1)
        else:
            k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        out = F.scaled_dot_product_attention(
            q, k, v, is_causal=self.bug != "not_causal", scale={"unscaled": 1.0}.get(self.bug)
        )
        return self.o(out.transpose(1, 2).flatten(2))


class Gate(nn.Module):
    def __init__(self, bug: str) -> None:
        super().__init__()
        self.bug = bug
        self.gate, self.up = (nn.Linear(WIDTH, 48, bias=False) for _ in range(2))
        self.down = nn.Linear(48, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate(x), self.up(x)
        if self.bug == "gate_swapped":
            gate, up = up, gate
        activation = F.gelu if self.bug == "gate_gelu" else F.silu
        return self.down(
            activation(gate) + up if self.bug == "gate_added" else activation(gate) * up
        )


class Layer(nn.Module):
    def __init__(self, bug: str) -> None:
        super().__init__()
        eps = 1e-1 if bug == "rms_eps" else 1e-6
        norm = nn.LayerNorm if bug == "layer_norm" else nn.RMSNorm
        self.norm1, self.norm2 = norm(WIDTH, eps=eps), norm(WIDTH, eps=eps)
        self.attn, self.mlp = Grouped(bug), Gate(bug)
        self.bug = bug

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + self.attn(self.norm1(x))
        return y + self.mlp(self.norm2(x if self.bug == "parallel" else y))


class Llama(nn.Module):
    def __init__(self, bug: str = "") -> None:
        super().__init__()
        self.bug = bug
        self.embed = nn.Embedding(97, WIDTH)
        inner = "" if bug in ("norm_weight", "last_norm") else bug
        self.layers = nn.ModuleList([Layer(inner), Layer(inner)])
        self.norm = nn.RMSNorm(WIDTH, eps=1e-6)
        self.head = nn.Linear(WIDTH, 20, bias=False)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        x = self.embed(given)
        for layer in self.layers:
            x = layer(x)
        return self.head(x if self.bug == "last_norm" else self.norm(x))


class Excited(nn.Module):
    """A depthwise convolution whose channels are weighted."""

    def __init__(self, bug: str) -> None:
        super().__init__()
        self.bug = bug
        self.deep = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.norm = nn.GroupNorm(2 if bug == "groups" else 4, 16)
        self.squeeze, self.excite = nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = (
            F.relu(self.norm(self.deep(x)))
            if self.bug == "swish"
            else F.hardswish(self.norm(self.deep(x)))
        )
        pooled = (
            y.amax((2, 3), keepdim=True)
            if self.bug == "squeezed_max"
            else y.mean((2, 3), keepdim=True)
        )
        weights = self.excite(F.relu(self.squeeze(pooled)))
        weights = F.sigmoid(weights) if self.bug == "hard" else F.hardsigmoid(weights)
        return x + (y + weights if self.bug == "added" else y * weights)


class Painter(nn.Module):
    """Mobile blocks, then an image twice as large by shuffled pixels and by a transposed convolution."""

    def __init__(self, bug: str = "") -> None:
        super().__init__()
        self.bug = bug
        self.stem = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.first, self.second = Excited(bug), Excited(bug)
        self.shuffled, self.grown = nn.Conv2d(16, 16, 1), nn.ConvTranspose2d(16, 4, 4, 2, 1)
        self.last, self.fc = nn.Conv2d(8, 4, 3), nn.Linear(4 * 24 * 24, 6)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        x = self.second(self.first(self.stem(given)))
        y = self.shuffled(x)
        if self.bug == "shuffle":
            batch, _, height, width = y.shape
            y = y.view(batch, 2, 2, 4, height, width).permute(0, 3, 4, 1, 5, 2)
            y = y.reshape(batch, 4, 2 * height, 2 * width)
        else:
            y = F.pixel_shuffle(y, 2)
        z = torch.cat([y, self.grown(x)], 1)
        z = self.last(
            F.pad(z, (1, 1, 1, 1), mode="replicate" if self.bug == "pad_mode" else "reflect")
        )
        z = z.clamp(-0.1, 0.1) if self.bug == "clamped" else z
        flat = z.permute(0, 2, 3, 1) if self.bug == "flat_last" else z
        return self.fc(flat.flatten(1)).log_softmax(-1)


def _image(size: int) -> torch.Tensor:
    return torch.rand(2, 3, size, size) * 2 - 0.7


def _words() -> torch.Tensor:
    return torch.randint(0, 97, (2, LENGTH))


NETWORKS = {
    "gpt2": (GPT, _words),
    "bert": (Bert, _words),
    "resnet": (ResNet, lambda: _image(32)),
    "vit": (ViT, lambda: _image(24)),
    "unet": (UNet, lambda: _image(16)),
    "lstm": (Recurrent, lambda: torch.randn(24, 9, 12)),
    "gru": (Gated, lambda: torch.randn(24, 9, 12)),
    "translator": (Translator, _words),
    "llama": (Llama, _words),
    "painter": (Painter, lambda: _image(24)),
    **varied.NETWORKS,
}


def network(name: str, bug: str = "") -> tuple[nn.Module, torch.Tensor]:
    """Return a network with or without a mistake, with the same weights, and its input."""
    torch.manual_seed(0)
    make, given = NETWORKS[name]
    right = make()
    for module in right.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_var, 0.2, 2)
            nn.init.normal_(module.running_mean)
        if isinstance(module, nn.LayerNorm | nn.BatchNorm2d | nn.GroupNorm | nn.RMSNorm):
            nn.init.uniform_(module.weight, 0.5, 1.5)
        if isinstance(module, nn.LayerNorm | nn.BatchNorm2d | nn.GroupNorm):
            nn.init.normal_(module.bias, std=0.2)
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.3)
    sample = given()
    if not bug:
        return right.eval(), sample
    wrong = make(bug)
    wrong.load_state_dict(right.state_dict(), strict=False)
    with torch.no_grad():
        MISTAKES.get(bug, lambda _: None)(wrong)
    return wrong.eval(), sample


def _transposed(model: nn.Module) -> None:
    weight = next(
        p for n, p in model.named_parameters() if n.endswith(("proj.weight", "own.o.weight"))
    )
    weight.copy_(weight.T.clone())


def _zero_row(model: nn.Module) -> None:
    weight = next(
        p for n, p in model.named_parameters() if n.endswith(("proj.weight", "fc.weight"))
    )
    weight[7 % len(weight)] = 0


def _int8(model: nn.Module) -> None:
    weight = next(
        p for n, p in model.named_parameters() if n.endswith(("proj.weight", "conv1.weight"))
    )
    step = weight.abs().max() / 15
    weight.copy_((weight / step).round() * step)


def _oihw(model: nn.Module) -> None:
    model.layer1.conv2.weight.copy_(model.layer1.conv2.weight.transpose(0, 1).clone())


def _kernel(model: nn.Module) -> None:
    model.layer1.conv2.weight.copy_(model.layer1.conv2.weight.transpose(2, 3).clone())


def _mean(model: nn.Module) -> None:
    model.layer1.bn1.running_mean.zero_()


def _gates(model: nn.Module) -> None:
    for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
        parameter = getattr(model.lstm, name)
        i, f, g, o = parameter.chunk(4)
        parameter.copy_(torch.cat([i, g, f, o]))


def _bias_zero(model: nn.Module) -> None:
    next(p for n, p in model.named_parameters() if n.endswith(("proj.bias", "stem.bias"))).zero_()


def _other_layer(model: nn.Module) -> None:
    model.h[0].fc.weight.copy_(model.h[1].fc.weight)


def _layer(model: nn.Module) -> nn.Linear:
    """Return a linear layer that the mistakes in weights are made in."""
    return next(
        m for n, m in model.named_modules() if n.endswith(("proj", "own.v", "stem", "down", "fc"))
    )


def _scaled(model: nn.Module) -> None:
    _layer(model).weight.mul_(1.1)


def _bfloat16(model: nn.Module) -> None:
    _layer(model).weight.copy_(_layer(model).weight.bfloat16().float())


def _shifted_bias(model: nn.Module) -> None:
    next(m for n, m in model.named_modules() if n in ("h.0.fc", "stem")).bias.add_(0.1)


def _heads(model: nn.Module) -> None:
    layer = _layer(model)
    layer.weight.copy_(layer.weight.view(WIDTH, HEADS, -1).flip(1).reshape(WIDTH, WIDTH))


def _norm_reset(model: nn.Module) -> None:
    """Leave a normalization as it was made: 1 and 0."""
    norm = next(m for m in model.modules() if isinstance(m, nn.LayerNorm | nn.BatchNorm2d))
    norm.weight.fill_(1)
    norm.bias.zero_()


def _flipped(model: nn.Module) -> None:
    layer = _layer(model)
    layer.weight.copy_(layer.weight.flip(2, 3))


def _swapped_colors(model: nn.Module) -> None:
    layer = _layer(model)
    layer.weight.copy_(layer.weight.flip(1))


def _gru_gates(model: nn.Module) -> None:
    for parameter in model.gru.parameters():
        r, z, n = parameter.chunk(3)
        parameter.copy_(torch.cat([z, r, n]))


def _norm_weight(model: nn.Module) -> None:
    model.layers[0].norm2.weight.fill_(1)


def _groups(model: nn.Module) -> None:
    """Leave the groups of a depthwise convolution in another order."""
    model.first.deep.weight.copy_(
        model.first.deep.weight.view(4, 4, 1, 3, 3).transpose(0, 1).reshape(16, 1, 3, 3)
    )


def _grown(model: nn.Module) -> None:
    model.grown.weight.copy_(model.grown.weight.transpose(2, 3).clone())


def _lstm_bias(model: nn.Module) -> None:
    model.lstm.bias_hh_l0.zero_()


MISTAKES = {
    **varied.MISTAKES,
    "norm_weight": _norm_weight,
    "group_order": _groups,
    "grown_hw": _grown,
    "scaled": _scaled,
    "bfloat16": _bfloat16,
    "bias_shifted": _shifted_bias,
    "heads": _heads,
    "norm_reset": _norm_reset,
    "flipped": _flipped,
    "swapped_colors": _swapped_colors,
    "gru_gates": _gru_gates,
    "recurrent_bias": _lstm_bias,
    "other_layer": _other_layer,
    "transposed": _transposed,
    "zero_row": _zero_row,
    "int8": _int8,
    "oihw": _oihw,
    "kernel_hw": _kernel,
    "bn_mean": _mean,
    "gates": _gates,
    "bias_zero": _bias_zero,
}
