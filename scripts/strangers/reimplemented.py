"""Networks of many trades, written a second time for export, and what went wrong in it."""

import math
import types

import torch
import torch.nn.functional as F
import transformers as hf
from rewritten import EAGER, Rewritten
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from subjects import Subject


class DdimSampler(Subject):
    """Three steps of a DDIM sampler around a small noise predictor, guided by a class."""

    SLIPS = {
        "guidance": "the two predictions change places in the guidance",
        "no_root": "the clean picture is divided by the cumulative alpha, not by its root",
        "no_clip": "the clean picture is not cut to -1..1",
        "last": "the last step ends at the first alpha of the table, not at one",
        "offset": "time steps are counted from nought where the network was trained from one",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.kinds, self.times = nn.Embedding(5, 8), nn.Embedding(24, 8)
        self.a, self.b = nn.Conv2d(2, 8, 3, padding=1), nn.Conv2d(8, 2, 3, padding=1)
        bars = (1 - torch.linspace(0.01, 0.2, 20)).cumprod(0)
        self.register_buffer("bars", bars, persistent=False)

    def inputs(self) -> tuple[Tensor, ...]:
        return torch.randn(1, 2, 8, 8), torch.randint(0, 4, (1,))

    def predict(self, x: Tensor, time: int, kind: Tensor) -> Tensor:
        t = time + (0 if self.slip == "offset" else 1)
        e = self.kinds(kind) + self.times(torch.full_like(kind, t))
        return self.b(F.silu(self.a(x) + e[:, :, None, None]))

    def forward(self, x: Tensor, kind: Tensor) -> Tensor:
        slip, bars = self.slip, self.bars
        for time, later in ((15, 10), (10, 5), (5, -1)):
            free, bound = (
                self.predict(x, time, torch.full_like(kind, 4)),
                self.predict(x, time, kind),
            )
            if slip == "guidance":
                free, bound = bound, free
            noise = free + 3.0 * (bound - free)
            bar = bars[time]
            end = bars[0] if slip == "last" else torch.ones(())
            after = bars[later] if later >= 0 else end
            clean = (x - (1 - bar).sqrt() * noise) / (bar if slip == "no_root" else bar.sqrt())
            if slip != "no_clip":
                clean = clean.clamp(-1, 1)
            x = after.sqrt() * clean + (1 - after).sqrt() * noise
        return x


class SacActor(Subject):
    """A policy for control: observations by running statistics, a squashed Gaussian, its log density."""

    SLIPS = {
        "no_cut": "observations are not cut at five deviations",
        "deviation": "the log deviation is cut to its range instead of squashed into it",
        "span": "the action is scaled by the whole range, not by half of it",
        "middle": "the middle of the range is not added",
        "density": "the log density lacks the term of the squashing",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.register_buffer("mean", torch.linspace(-1, 1, 6), persistent=False)
        self.register_buffer("var", torch.linspace(0.05, 2, 6), persistent=False)
        self.register_buffer("low", torch.tensor([-1.0, 0.0, -2.0]), persistent=False)
        self.register_buffer("high", torch.tensor([1.0, 3.0, 0.5]), persistent=False)
        self.a, self.norm, self.b = nn.Linear(6, 24), nn.LayerNorm(24), nn.Linear(24, 24)
        self.mu, self.rho = nn.Linear(24, 3), nn.Linear(24, 3)

    def inputs(self) -> tuple[Tensor, ...]:
        return torch.randn(2, 6) * 2.5, torch.randn(2, 3)

    def forward(self, seen: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        slip = self.slip
        x = (seen - self.mean) / (self.var + 1e-8).sqrt()
        if slip != "no_cut":
            x = x.clamp(-5, 5)
        x = F.relu(self.b(torch.tanh(self.norm(self.a(x)))))
        rho = self.rho(x)
        rho = rho.clamp(-4, 0) if slip == "deviation" else -4 + 2 * (torch.tanh(rho) + 1)
        raw = self.mu(x) / 2 + rho.exp() * noise
        y = torch.tanh(raw)
        scale = (self.high - self.low) / (1 if slip == "span" else 2)
        middle = 0 if slip == "middle" else (self.high + self.low) / 2
        log = -0.5 * noise**2 - rho - 0.5 * math.log(2 * math.pi)
        if slip != "density":
            log = log - (scale * (1 - y**2) + 1e-6).log()
        return y * scale + middle, log.sum(1, keepdim=True)


class DiagonalSpace(Subject):
    """A state space with a complex diagonal (S4D), held between samples, run as a recurrence, gated."""

    SLIPS = {
        "euler": "the input matrix is made discrete by the step alone",
        "no_double": "the conjugate half of the states is forgotten",
        "softplus": "the decay is a softplus, not an exponential",
        "late": "the output is read before the state is renewed",
        "no_direct": "the input does not reach the output directly",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.enter = nn.Linear(2, 6)
        self.step = nn.Parameter(torch.linspace(-2, -0.5, 6)[:, None])
        self.decay = nn.Parameter(torch.full((6, 4), math.log(0.5)))
        self.turn = nn.Parameter(math.pi * torch.arange(4.0).expand(6, 4).clone())
        self.c_re, self.c_im = nn.Parameter(torch.randn(6, 4)), nn.Parameter(torch.randn(6, 4))
        self.direct = nn.Parameter(torch.ones(6))
        self.leave = nn.Linear(6, 12)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(1, 14, 2),)

    def forward(self, x: Tensor) -> Tensor:
        slip = self.slip
        u = self.enter(x)
        dt = self.step.exp()
        a_re = -(F.softplus(self.decay) if slip == "softplus" else self.decay.exp())
        a_im = self.turn
        size = (dt * a_re).exp()
        d_re, d_im = size * (dt * a_im).cos(), size * (dt * a_im).sin()
        if slip == "euler":
            b_re, b_im = dt.expand_as(d_re), torch.zeros_like(d_im)
        else:
            n_re, n_im, square = d_re - 1, d_im, a_re**2 + a_im**2
            b_re = (n_re * a_re + n_im * a_im) / square
            b_im = (n_im * a_re - n_re * a_im) / square
        s_re = s_im = torch.zeros_like(d_re)[None]
        out = []
        for k in range(u.shape[1]):
            now = u[:, k, :, None]
            old = s_re, s_im
            s_re, s_im = (
                d_re * s_re - d_im * s_im + b_re * now,
                d_re * s_im + d_im * s_re + b_im * now,
            )
            r_re, r_im = old if slip == "late" else (s_re, s_im)
            out.append((self.c_re * r_re - self.c_im * r_im).sum(-1))
        y = torch.stack(out, 1) * (1 if slip == "no_double" else 2)
        if slip != "no_direct":
            y = y + self.direct * u
        return F.glu(self.leave(F.gelu(y)), -1)


class MixtureDensity(Subject):
    """A mixture density network: the mean and variance of what comes, and the log density of what came."""

    SLIPS = {
        "mean_of_logs": "log densities are averaged by the shares, not densities",
        "spread": "the variance lacks the distances between the components' means",
        "halved": "the square in the density is not halved",
        "layout": "the head's numbers are taken by component, not by kind",
        "exp": "deviations are exponentials, not ELU plus one",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.a, self.b, self.head = nn.Linear(5, 16), nn.Linear(16, 16), nn.Linear(16, 12)

    def inputs(self) -> tuple[Tensor, ...]:
        return torch.randn(2, 5) * 1.5, torch.randn(2, 1)

    def forward(self, x: Tensor, came: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        slip = self.slip
        h = self.head(torch.tanh(self.b(torch.tanh(self.a(x)))))
        if slip == "layout":
            share, mean, wide = h.view(-1, 4, 3).unbind(2)
        else:
            share, mean, wide = h.view(-1, 3, 4).unbind(1)
        std = wide.exp() if slip == "exp" else F.elu(wide) + 1 + 1e-3
        logs = F.log_softmax(share, 1)
        p = logs.exp()
        middle = (p * mean).sum(1, keepdim=True)
        var = (p * std**2).sum(1, keepdim=True)
        if slip != "spread":
            var = var + (p * (mean - middle) ** 2).sum(1, keepdim=True)
        z = (came - mean) / std
        each = -(1.0 if slip == "halved" else 0.5) * z**2 - std.log() - 0.5 * math.log(2 * math.pi)
        if slip == "mean_of_logs":
            density = (p * each).sum(1, keepdim=True)
        else:
            density = torch.logsumexp(logs + each, 1, keepdim=True)
        return middle, var, density


class AnchorFree(Subject):
    """Detection without anchors: distances to the sides as the mean of bins, two levels, the best eight."""

    SLIPS = {
        "corner": "distances are measured from a cell's corner",
        "bins_last": "the sides and the bins of the head change places",
        "one_stride": "both levels use the finer stride",
        "grid_axes": "rows and columns of the grid are exchanged",
        "outside": "boxes may leave the picture",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.a = nn.Conv2d(3, 12, 3, 4, padding=1)
        self.b = nn.Conv2d(12, 12, 3, 2, padding=1)
        self.boxes = nn.ModuleList([nn.Conv2d(12, 4 * 6, 1), nn.Conv2d(12, 4 * 6, 1)])
        self.kinds = nn.ModuleList([nn.Conv2d(12, 3, 1), nn.Conv2d(12, 3, 1)])

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.rand(1, 3, 32, 32) * 2 - 0.5,)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        slip = self.slip
        fine = F.silu(self.a(x))
        boxes, scores = [], []
        for k, (f, stride, n) in enumerate(((fine, 4, 8), (F.silu(self.b(fine)), 8, 4))):
            bins = self.boxes[k](f).flatten(2)
            bins = (
                bins.view(1, 6, 4, -1).transpose(1, 2)
                if slip == "bins_last"
                else bins.view(1, 4, 6, -1)
            )
            d = (bins.softmax(2) * torch.arange(6.0).view(1, 1, 6, 1)).sum(2)
            line = torch.arange(float(n)) + (0 if slip == "corner" else 0.5)
            rows, columns = torch.meshgrid(line, line, indexing="ij")
            if slip == "grid_axes":
                rows, columns = columns, rows
            cx, cy = columns.flatten(), rows.flatten()
            box = torch.stack([cx - d[:, 0], cy - d[:, 1], cx + d[:, 2], cy + d[:, 3]], 2)
            boxes.append(box * (4 if slip == "one_stride" else stride))
            scores.append(self.kinds[k](f).flatten(2).transpose(1, 2).sigmoid())
        box, score = torch.cat(boxes, 1), torch.cat(scores, 1)
        if slip != "outside":
            box = box.clamp(0, 32)
        best, at = score.amax(2).topk(8, 1)
        return box.gather(1, at[..., None].expand(-1, -1, 4)), best


class EdgePoints(Subject):
    """Points as a graph of nearest neighbours, found anew for each layer (DGCNN)."""

    SLIPS = {
        "farthest": "the farthest points are taken for the nearest",
        "no_self": "a point is not among its own neighbours",
        "absolute": "neighbours are given as they are, not relative to the point",
        "fixed": "the second layer uses the first one's neighbours",
        "averaged": "edges are averaged, the largest is not taken",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.a, self.b = nn.Conv2d(6, 12, 1, bias=False), nn.Conv2d(24, 16, 1, bias=False)
        self.na, self.nb = nn.BatchNorm2d(12), nn.BatchNorm2d(16)
        self.out = nn.Linear(32, 5)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(1, 3, 20),)

    def near(self, x: Tensor) -> Tensor:
        square = (x**2).sum(1)
        far = square[:, :, None] + square[:, None] - 2 * x.transpose(1, 2) @ x
        if self.slip == "no_self":
            return far.topk(6, 2, largest=False).indices[:, :, 1:]
        return far.topk(5, 2, largest=self.slip == "farthest").indices

    def edges(self, x: Tensor, at: Tensor) -> Tensor:
        b, c, n = x.shape
        k = at.shape[2]
        other = x.gather(2, at.reshape(b, 1, n * k).expand(-1, c, -1)).view(b, c, n, k)
        own = x[..., None].expand(-1, -1, -1, k)
        return torch.cat([other if self.slip == "absolute" else other - own, own], 1)

    def layer(self, x: Tensor, at: Tensor, conv: nn.Module, norm: nn.Module) -> Tensor:
        e = F.leaky_relu(norm(conv(self.edges(x, at))), 0.2)
        return e.mean(3) if self.slip == "averaged" else e.amax(3)

    def forward(self, x: Tensor) -> Tensor:
        at = self.near(x)
        h = self.layer(x, at, self.a, self.na)
        h = self.layer(h, at if self.slip == "fixed" else self.near(h), self.b, self.nb)
        return self.out(torch.cat([h.amax(2), h.mean(2)], 1))


class InterestNet(Subject):
    """What a user clicks (DIN): each earlier item weighs by how it meets the candidate; Dice activations."""

    SLIPS = {
        "shares": "the weights of earlier items are made to add up to one",
        "no_mask": "padding among the earlier items counts",
        "by_length": "the sum over items is divided by their number",
        "turned": "the difference is the earlier item less the candidate",
        "plain_dice": "Dice takes the sigmoid of a number that is not normalized",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.items = nn.Embedding(30, 8)
        self.a, self.b = nn.Linear(32, 12), nn.Linear(12, 1)
        self.c, self.d = nn.Linear(24, 12), nn.Linear(12, 1)
        self.norm = nn.BatchNorm1d(12, affine=False)
        self.slope = nn.Parameter(torch.full((12,), 0.25))

    def inputs(self) -> tuple[Tensor, ...]:
        past = torch.randint(1, 30, (2, 7))
        past[0, 5:] = 0
        past[1, 3:] = 0
        return past, torch.randint(1, 30, (2,))

    def forward(self, past: Tensor, wanted: Tensor) -> Tensor:
        slip = self.slip
        h, t = self.items(past), self.items(wanted)
        each = t[:, None].expand(-1, 7, -1)
        less = h - each if slip == "turned" else each - h
        w = self.b(torch.sigmoid(self.a(torch.cat([each, h, less, each * h], 2))))
        real = (past > 0)[..., None]
        if slip == "shares":
            w = w.masked_fill(~real, -1e9).softmax(1)
        elif slip != "no_mask":
            w = w * real.float()
        v = (w * h).sum(1)
        if slip == "by_length":
            v = v / real.float().sum(1)
        z = self.c(torch.cat([v, t, v * t], 1))
        p = torch.sigmoid(z if slip == "plain_dice" else self.norm(z))
        return self.d(p * z + (1 - p) * self.slope * z)


def resblock(self: nn.Module, x: Tensor, slip: str) -> Tensor:
    for a, b in zip(self.convs1, self.convs2, strict=True):
        h = F.leaky_relu(x, self.leaky_relu_slope)
        kept = h if slip == "residual" else x
        h = F.conv1d(h, a.weight, a.bias, padding="same") if slip == "dilation" else a(h)
        x = b(F.leaky_relu(h, self.leaky_relu_slope)) + kept
    return x


class Vocoder(Rewritten):
    """A HiFi-GAN: a spectrogram becomes a waveform."""

    SLIPS = {
        "slope": "the last activation has the slope of the others",
        "summed": "the blocks of a level are added up, not averaged",
        "stats": "the spectrogram is scaled by its statistics before it is centred",
        "residual": "the shortcut leaves after the activation",
        "dilation": "the first convolutions of the blocks are not dilated",
    }

    def build(self) -> nn.Module:
        net = hf.SpeechT5HifiGan(
            hf.SpeechT5HifiGanConfig(
                model_in_dim=8,
                upsample_initial_channel=16,
                upsample_rates=[2, 2],
                upsample_kernel_sizes=[4, 4],
                resblock_kernel_sizes=[3, 5],
                resblock_dilation_sizes=[[1, 3], [1, 3]],
            )
        )
        with torch.no_grad():
            net.mean.copy_(torch.linspace(-2, -0.5, 8))
            net.scale.copy_(torch.linspace(0.8, 2, 8))
        return net

    def rewrite(self) -> None:
        slip = self.slip

        def block(module: nn.Module, x: Tensor) -> Tensor:
            return resblock(module, x, slip)

        def whole(net: nn.Module, x: Tensor) -> Tensor:
            x = x / net.scale - net.mean if slip == "stats" else (x - net.mean) / net.scale
            x = net.conv_pre(x.transpose(1, 2))
            for i, up in enumerate(net.upsampler):
                x = up(F.leaky_relu(x, 0.1))
                x = net.resblocks[2 * i](x) + net.resblocks[2 * i + 1](x)
                x = x if slip == "summed" else x / 2
            x = net.conv_post(F.leaky_relu(x, 0.1 if slip == "slope" else 0.01))
            return torch.tanh(x).squeeze(1)

        self.net.forward = types.MethodType(whole, self.net)
        for each in self.net.resblocks:
            each.forward = types.MethodType(block, each)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(1, 12, 8) - 1,)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class BeitLabels(Rewritten):
    """BEiT with relative places in each layer; the mean of the patches is labelled."""

    SLIPS = {
        "relative_turned": "places are relative to the key, not to the query",
        "gamma": "the MLP's branch lacks its learned scale",
        "with_class": "the class token is in the mean",
        "pixels": "pixels are normalized as for ImageNet, not to -1..1",
        "norm_after": "the norms come after attention and MLP",
    }

    def build(self) -> nn.Module:
        net = hf.BeitForImageClassification(
            hf.BeitConfig(
                hidden_size=16,
                num_hidden_layers=2,
                num_attention_heads=2,
                intermediate_size=32,
                image_size=16,
                patch_size=4,
                use_relative_position_bias=True,
                layer_scale_init_value=0.4,
                num_labels=5,
                **EAGER,
            )
        )
        slip = self.slip

        def bias(module: nn.Module, *_: object, **__: object) -> Tensor:
            at = module.generate_relative_position_index((4, 4)).clone()
            if slip == "relative_turned":
                at[1:, 1:] = at[1:, 1:].T.clone()
            return (
                module.relative_position_bias_table[at.flatten()]
                .view(17, 17, -1)
                .permute(2, 0, 1)[None]
            )

        for layer in net.beit.layers:
            each = layer.relative_position_bias
            nn.init.normal_(each.relative_position_bias_table, std=1.5)
            each.forward = types.MethodType(bias, each)
        return net

    def rewrite(self) -> None:
        slip = self.slip

        def block(layer: nn.Module, x: Tensor, *_: object, **__: object) -> Tensor:
            mask = layer.relative_position_bias()
            if slip == "norm_after":
                x = x + layer.lambda_1 * layer.layernorm_before(
                    layer.attention(x, attention_mask=mask)[0]
                )
                return x + layer.lambda_2 * layer.layernorm_after(layer.mlp(x))
            x = (
                x
                + layer.lambda_1
                * layer.attention(layer.layernorm_before(x), attention_mask=mask)[0]
            )
            h = layer.mlp(layer.layernorm_after(x))
            return x + (h if slip == "gamma" else layer.lambda_2 * h)

        for layer in self.net.beit.layers:
            layer.forward = types.MethodType(block, layer)
        if slip == "with_class":

            def pool(pooler: nn.Module, x: Tensor) -> Tensor:
                return pooler.layernorm(x.mean(1))

            pooler = self.net.beit.pooler
            pooler.forward = types.MethodType(pool, pooler)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.rand(1, 3, 16, 16),)

    def forward(self, x: Tensor) -> Tensor:
        if self.slip == "pixels":
            mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
            x = (x - mean.view(1, 3, 1, 1)) / std.view(1, 3, 1, 1)
        else:
            x = (x - 0.5) / 0.5
        return self.net(x).logits


def turned(x: Tensor, cos: Tensor, sin: Tensor, slip: str) -> Tensor:
    if slip == "halves":
        a, b = x.chunk(2, -1)
        cos, sin = (torch.cat([t[..., ::2], t[..., ::2]], -1) for t in (cos, sin))
        return x * cos + torch.cat([-b, a], -1) * sin
    return x * cos + torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2) * sin


def attend_by_groups(layer: nn.Module, x: Tensor, places: tuple, slip: str) -> Tensor:
    n = x.shape[1]
    q = layer.q_proj(x).view(1, n, 4, 4).transpose(1, 2)
    k, v = (f(x).view(1, n, 2, 4).transpose(1, 2) for f in (layer.k_proj, layer.v_proj))
    cos, sin = (t[:, None] for t in places)
    q, k = turned(q, cos, sin, slip), turned(k, cos, sin, slip)
    order = [0, 1, 0, 1] if slip == "tiled" else [0, 0, 1, 1]
    k, v = k[:, order], v[:, order]
    mask = torch.full((n, n), -1e9).triu(1)
    w = (q @ k.transpose(2, 3) / 2 + mask).softmax(-1)
    return layer.o_proj((w @ v).transpose(1, 2).reshape(1, n, 16))


class CohereText(Rewritten):
    """A decoder whose attention and MLP work side by side, with rotations of neighbouring pairs."""

    SLIPS = {
        "halves": "rotations pair the halves of a head, not neighbours",
        "one_by_one": "the MLP works on what attention left",
        "scores": "the scores are not multiplied by the model's factor",
        "root_mean": "the norms do not take off the mean",
        "tiled": "key heads are repeated as a row, not each beside itself",
    }

    def build(self) -> nn.Module:
        net = hf.CohereForCausalLM(
            hf.CohereConfig(
                vocab_size=32,
                hidden_size=16,
                intermediate_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                max_position_embeddings=64,
                logit_scale=0.25,
                rope_parameters={"rope_type": "default", "rope_theta": 100.0},
                bos_token_id=1,
                eos_token_id=2,
                **EAGER,
            )
        )

        def rotary(module: nn.Module, _: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
            f = position_ids[..., None].float() * module.inv_freq
            f = torch.stack([f, f], -1).flatten(
                -2
            )  # repeat_interleave gets another shape in the export
            return f.cos(), f.sin()

        net.model.rotary_emb.forward = types.MethodType(rotary, net.model.rotary_emb)
        return net

    def rewrite(self) -> None:
        slip = self.slip

        def block(
            layer: nn.Module, x: Tensor, *_: object, position_embeddings: tuple, **__: object
        ) -> Tensor:
            h = layer.input_layernorm(x)
            y = x + attend_by_groups(layer.self_attn, h, position_embeddings, slip)
            return y + layer.mlp(layer.input_layernorm(y) if slip == "one_by_one" else h)

        def norm(module: nn.Module, x: Tensor) -> Tensor:
            return module.weight * x * (x.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt()

        model = self.net.model
        for layer in model.layers:
            layer.forward = types.MethodType(block, layer)
        if slip == "root_mean":
            for each in (*(layer.input_layernorm for layer in model.layers), model.norm):
                each.forward = types.MethodType(norm, each)
        if slip == "scores":
            self.net.logit_scale = 1.0

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randint(3, 32, (1, 9)),)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x, attention_mask=torch.ones_like(x), use_cache=False).logits


class WhisperLanguage(Rewritten):
    """Whisper's encoder as a classifier, from powers in mel bands."""

    SLIPS = {
        "each_frame": "each frame is cut below its own loudest band, not the recording's",
        "not_lifted": "four is not added before the division by four",
        "interleaved": "sines and cosines of the places alternate",
        "scaled_twice": "queries are scaled, and then the products again",
        "stem": "the second convolution has no activation",
    }

    def build(self) -> nn.Module:
        return hf.WhisperForAudioClassification(
            hf.WhisperConfig(
                vocab_size=32,
                num_mel_bins=8,
                d_model=16,
                encoder_layers=2,
                encoder_attention_heads=2,
                encoder_ffn_dim=32,
                decoder_layers=1,
                decoder_attention_heads=2,
                decoder_ffn_dim=32,
                max_source_positions=12,
                classifier_proj_size=8,
                num_labels=5,
                pad_token_id=0,
                bos_token_id=1,
                eos_token_id=2,
                decoder_start_token_id=3,
                **EAGER,
            )
        )

    def rewrite(self) -> None:
        slip = self.slip

        def attend(
            layer: nn.Module, hidden_states: Tensor, *_: object, **__: object
        ) -> tuple[Tensor, None]:
            b, n, c = hidden_states.shape
            q = layer.q_proj(hidden_states) * layer.scaling
            q, k, v = (
                t.view(b, n, 2, -1).transpose(1, 2)
                for t in (q, layer.k_proj(hidden_states), layer.v_proj(hidden_states))
            )
            scores = q @ k.transpose(2, 3)
            if slip == "scaled_twice":
                scores = scores * layer.scaling
            return layer.out_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, c)), None

        def encode(net: nn.Module, x: Tensor, **_: object) -> BaseModelOutput:
            x = net.conv2(F.gelu(net.conv1(x)))
            if slip != "stem":
                x = F.gelu(x)
            places = net.embed_positions.weight
            if slip == "interleaved":
                places = torch.stack(places.chunk(2, 1), 2).flatten(1)
            x = x.transpose(1, 2) + places
            for layer in net.layers:
                x = layer(x, None)
            return BaseModelOutput(last_hidden_state=net.layer_norm(x))

        encoder = self.net.encoder
        encoder.forward = types.MethodType(encode, encoder)
        for layer in encoder.layers:
            layer.self_attn.forward = types.MethodType(attend, layer.self_attn)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.exp(torch.randn(1, 8, 24) * 4 + torch.randn(1, 1, 24) * 5),)

    def forward(self, power: Tensor) -> Tensor:
        slip = self.slip
        x = power.clamp(min=1e-10).log10()
        loudest = x.amax(1, keepdim=True) if slip == "each_frame" else x.amax((1, 2), keepdim=True)
        x = torch.maximum(x, loudest - 4)
        x = x / 4 if slip == "not_lifted" else (x + 4) / 4
        return self.net(x).logits


class Rwkv(Rewritten):
    """RWKV: a weighted mean of what was, by a recurrence."""

    SLIPS = {
        "next": "tokens are mixed with the one after, not the one before",
        "no_square": "the rectified keys of the second part are not squared",
        "decay": "the decay is the parameter itself, not its exponential",
        "no_bonus": "the present token has no weight of its own",
        "mixed_up": "the mix gives the present the past's share",
    }

    def build(self) -> nn.Module:
        return hf.RwkvForCausalLM(
            hf.RwkvConfig(
                vocab_size=32,
                context_length=16,
                hidden_size=16,
                intermediate_size=24,
                num_hidden_layers=2,
                rescale_every=0,
                use_cache=False,
            )
        )

    def rewrite(self) -> None:
        slip = self.slip

        def mixed(x: Tensor, share: Tensor) -> Tensor:
            if slip == "next":
                other = torch.cat([x[:, 1:], torch.zeros_like(x[:, :1])], 1)
            else:
                other = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1)
            if slip == "mixed_up":
                x, other = other, x
            return x * share + other * (1 - share)

        def attend(part: nn.Module, hidden: Tensor, **_: object) -> tuple[Tensor, None]:
            k = part.key(mixed(hidden, part.time_mix_key))
            v = part.value(mixed(hidden, part.time_mix_value))
            r = torch.sigmoid(part.receptance(mixed(hidden, part.time_mix_receptance)))
            decay = -part.time_decay.abs() if slip == "decay" else -part.time_decay.exp()
            first = 0 if slip == "no_bonus" else part.time_first
            top = bottom = torch.zeros_like(k[:, 0])
            out = []
            for t in range(hidden.shape[1]):
                now, bonus = k[:, t].exp(), (k[:, t] + first).exp()
                out.append((top + bonus * v[:, t]) / (bottom + bonus))
                top = decay.exp() * top + now * v[:, t]
                bottom = decay.exp() * bottom + now
            return part.output(r * torch.stack(out, 1)), None

        def feed(part: nn.Module, hidden: Tensor, **_: object) -> tuple[Tensor, None]:
            k = F.relu(part.key(mixed(hidden, part.time_mix_key)))
            r = torch.sigmoid(part.receptance(mixed(hidden, part.time_mix_receptance)))
            return r * part.value(k if slip == "no_square" else k**2), None

        for block in self.net.rwkv.blocks:
            block.attention.forward = types.MethodType(attend, block.attention)
            block.feed_forward.forward = types.MethodType(feed, block.feed_forward)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randint(1, 32, (1, 8)),)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x, use_cache=False).logits


SUBJECTS = (
    DdimSampler,
    SacActor,
    DiagonalSpace,
    MixtureDensity,
    AnchorFree,
    EdgePoints,
    InterestNet,
    Vocoder,
    BeitLabels,
    CohereText,
    WhisperLanguage,
    Rwkv,
)
