"""Networks written by hand whose statistics or conditions make numbers of a sample, and mistakes in them."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from subjects import Subject


class DiffusionBlock(Subject):
    """A residual block of a diffusion network: the time in sines, scale and shift, attention to a text."""

    SLIPS = {
        "sin_first": "sines come before cosines",
        "freq_shift": "frequencies end one step late",
        "plain_scale": "scaled by s, not by 1 + s",
        "shift_first": "shift and scale are exchanged where they are split",
        "no_time_act": "the time's embedding is not activated before its projection",
        "period": "longest period one thousand",
        "no_skip_conv": "the skip is scaled by the root of a half",
        "cross_scale": "cross attention is not scaled",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.t1, self.t2 = nn.Linear(16, 32), nn.Linear(32, 32)
        self.emb = nn.Linear(32, 32)
        self.n1, self.c1 = nn.GroupNorm(4, 8), nn.Conv2d(8, 16, 3, padding=1)
        self.n2, self.c2 = nn.GroupNorm(4, 16), nn.Conv2d(16, 16, 3, padding=1)
        self.skip = nn.Conv2d(8, 16, 1)
        self.q, self.k, self.v = nn.Linear(16, 16), nn.Linear(12, 16), nn.Linear(12, 16)
        self.o = nn.Linear(16, 16)

    def inputs(self) -> tuple[Tensor, ...]:
        return torch.randn(1, 8, 8, 8), torch.rand(1) * 900 + 50, torch.randn(1, 5, 12)

    def forward(self, x: Tensor, t: Tensor, text: Tensor) -> Tensor:
        slip = self.slip
        period = 1e3 if slip == "period" else 1e4
        steps = torch.arange(8) / (7 if slip == "freq_shift" else 8)
        a = t[:, None] * torch.exp(-torch.log(torch.tensor(period)) * steps)
        e = [a.sin(), a.cos()] if slip == "sin_first" else [a.cos(), a.sin()]
        e = self.t2(F.silu(self.t1(torch.cat(e, -1))))
        e = self.emb(e if slip == "no_time_act" else F.silu(e))[..., None, None]
        scale, shift = e.chunk(2, 1)
        if slip == "shift_first":
            scale, shift = shift, scale
        h = self.n2(self.c1(F.silu(self.n1(x))))
        h = h * (scale if slip == "plain_scale" else 1 + scale) + shift
        h = self.c2(F.silu(h)) + self.skip(x)
        if slip == "no_skip_conv":
            h = h * 0.5**0.5
        flat = h.flatten(2).transpose(1, 2)
        q = self.q(flat).view(1, 64, 2, 8).transpose(1, 2)
        k = self.k(text).view(1, 5, 2, 8).transpose(1, 2)
        v = self.v(text).view(1, 5, 2, 8).transpose(1, 2)
        w = q @ k.transpose(2, 3)
        w = (w if slip == "cross_scale" else w * 8**-0.5).softmax(-1)
        y = self.o((w @ v).transpose(1, 2).reshape(1, 64, 16)) + flat
        return y.transpose(1, 2).reshape(1, 16, 8, 8)


class StyleConv(Subject):
    """A style network's layer: a mapped latent modulates and demodulates a convolution; noise, gain, skip."""

    SLIPS = {
        "no_demod": "no demodulation",
        "no_pixel_norm": "the latent is not normalized",
        "gain": "the activation lacks its gain",
        "slope": "leaky ReLU with PyTorch's slope",
        "style_bias": "the style's bias starts at nought",
        "demod_eps": "the demodulation sums the squares without the style",
        "noise": "the noise is scaled by channel position",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.map = nn.Linear(12, 12)
        self.style = nn.Linear(12, 8)
        self.conv = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.bias = nn.Parameter(torch.zeros(8))
        self.rgb = nn.Conv2d(8, 3, 1)
        self.strength = nn.Parameter(torch.tensor(0.3))

    def inputs(self) -> tuple[Tensor, ...]:
        return torch.randn(1, 12), torch.randn(1, 8, 10, 10), torch.randn(1, 1, 10, 10)

    def forward(self, z: Tensor, x: Tensor, noise: Tensor) -> Tensor:
        slip = self.slip
        if slip != "no_pixel_norm":
            z = z * (z.square().mean(1, keepdim=True) + 1e-8).rsqrt()
        slope = 0.01 if slip == "slope" else 0.2
        s = self.style(F.leaky_relu(self.map(z), slope))
        if slip != "style_bias":
            s = s + 1
        y = self.conv(x * s[..., None, None])
        if slip != "no_demod":
            w = self.conv.weight[None]
            if slip != "demod_eps":
                w = w * s[:, None, :, None, None]
            y = y * (w.square().sum((2, 3, 4)) + 1e-8).rsqrt()[..., None, None]
        added = self.strength * noise
        if slip == "noise":
            added = added * torch.linspace(0, 1, 8).view(1, 8, 1, 1)
        y = F.leaky_relu(y + added + self.bias.view(1, 8, 1, 1), slope)
        return self.rgb(y if slip == "gain" else y * 2**0.5)


class SqueezeNet(Subject):
    """Inverted residual with squeeze and excitation, then attention over places, on one picture."""

    SLIPS = {
        "se_max": "the squeeze takes the maximum",
        "se_hard": "the excitation is a hard sigmoid",
        "se_relu": "the excitation lacks its inner activation",
        "se_before": "the squeeze reads what is in front of the activation",
        "spatial_order": "mean and maximum are exchanged for the attention over places",
        "gem": "pooling by the mean, not by the generalized mean",
        "l2_axis": "the descriptor is normalized over the batch",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.up = nn.Conv2d(3, 16, 1)
        self.dw = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.down, self.wide = nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1)
        self.project = nn.Conv2d(16, 12, 1)
        self.place = nn.Conv2d(2, 1, 7, padding=3)
        self.last = nn.Linear(12, 8)

    def prepare(self) -> None:
        with torch.no_grad():
            self.wide.weight.mul_(4)
            self.down.weight.mul_(4)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.rand(2, 3, 16, 16) * 3,)

    def forward(self, x: Tensor) -> Tensor:
        slip = self.slip
        a = self.dw(F.silu(self.up(x)))
        h = F.silu(a)
        read = a if slip == "se_before" else h
        s = read.amax((2, 3), True) if slip == "se_max" else read.mean((2, 3), True)
        s = self.down(s)
        s = self.wide(s if slip == "se_relu" else F.silu(s))
        h = h * (F.hardsigmoid(s) if slip == "se_hard" else s.sigmoid())
        h = self.project(h)
        both = [h.mean(1, True), h.amax(1, True)]
        m = self.place(torch.cat(both[::-1] if slip == "spatial_order" else both, 1)).sigmoid()
        h = h * m
        g = (
            h.clamp(min=1e-06).mean((2, 3))
            if slip == "gem"
            else h.clamp(min=1e-06).pow(3).mean((2, 3)).pow(1 / 3)
        )
        g = self.last(g)
        return F.normalize(g, dim=0 if slip == "l2_axis" else 1)


class StyleTransfer(Subject):
    """Statistics of one picture's features given to another's (AdaIN), and a decoder."""

    SLIPS = {
        "unbiased": "the style's deviation is the unbiased one",
        "over_all": "statistics over channels, too",
        "no_mean": "the style's mean is not added",
        "swapped": "content and style are exchanged",
        "variance": "scaled by the variance instead of the deviation",
        "alpha": "the mix is of other shares",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.enc = nn.Conv2d(3, 12, 3, padding=1)
        self.dec = nn.Conv2d(12, 8, 3, padding=1)
        self.out = nn.Conv2d(8, 3, 3, padding=1)

    def inputs(self) -> tuple[Tensor, ...]:
        return torch.rand(1, 3, 12, 12), torch.rand(1, 3, 12, 12) * 2

    def stats(self, x: Tensor, unbiased: bool = False) -> tuple[Tensor, Tensor]:
        axes = (1, 2, 3) if self.slip == "over_all" else (2, 3)
        var = x.var(axes, unbiased=unbiased, keepdim=True) + 1e-5
        return x.mean(axes, keepdim=True), var if self.slip == "variance" else var.sqrt()

    def forward(self, content: Tensor, style: Tensor) -> Tensor:
        c, s = F.relu(self.enc(content)), F.relu(self.enc(style))
        if self.slip == "swapped":
            c, s = s, c
        (cm, cd), (sm, sd) = self.stats(c), self.stats(s, self.slip == "unbiased")
        t = (c - cm) / cd * sd
        if self.slip != "no_mean":
            t = t + sm
        share = 1.0 if self.slip == "alpha" else 0.8
        t = share * t + (1 - share) * c
        y = F.interpolate(F.relu(self.dec(t)), scale_factor=2, mode="nearest")
        return self.out(y).sigmoid()


class CrnnOcr(Subject):
    """Read a line of text: columns of features, two directions of a GRU, log shares of letters."""

    SLIPS = {
        "height_first": "a column is flattened with the height first",
        "linear_before": "the GRU resets in front of its matrix",
        "softmax": "shares, not logarithms",
        "pool_square": "the second pooling halves the width in time order",
        "grey": "grey by the mean of the channels",
        "batch_axis": "the shares are taken over time",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.c1 = nn.Conv2d(1, 6, 3, padding=1)
        self.c2 = nn.Conv2d(6, 8, 3, padding=1)
        self.gru = nn.GRU(32, 10, bidirectional=True)
        self.out = nn.Linear(20, 7)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.rand(1, 3, 16, 32),)

    def cell(self, x: Tensor, back: bool) -> Tensor:
        end = "_l0_reverse" if back else "_l0"
        wi, wh, bi, bh = (
            getattr(self.gru, n + end) for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        h, found = torch.zeros(x.shape[1], 10), []
        for t in reversed(range(len(x))) if back else range(len(x)):
            ir, iz, i_n = F.linear(x[t], wi, bi).chunk(3, -1)
            hr, hz, _ = F.linear(h, wh, bh).chunk(3, -1)
            r, z = (ir + hr).sigmoid(), (iz + hz).sigmoid()
            n = torch.tanh(i_n + F.linear(r * h, wh[20:], bh[20:]))
            h = (1 - z) * n + z * h
            found.append(h)
        return torch.stack(found[::-1] if back else found)

    def forward(self, x: Tensor) -> Tensor:
        slip = self.slip
        if slip == "grey":
            g = x.mean(1, keepdim=True)
        else:
            g = (x * torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)).sum(1, keepdim=True)
        h = F.max_pool2d(F.relu(self.c1((g - 0.5) / 0.5)), 2)
        h = F.relu(self.c2(h))
        h = F.avg_pool2d(h, (2, 1)) if slip == "pool_square" else F.max_pool2d(h, (2, 1))
        order = (3, 0, 2, 1) if slip == "height_first" else (3, 0, 1, 2)
        s = h.permute(order).reshape(16, 1, 32)
        y = (
            torch.cat([self.cell(s, False), self.cell(s, True)], -1)
            if slip == "linear_before"
            else self.gru(s)[0]
        )
        y = self.out(y)
        if slip == "softmax":
            return y.softmax(-1)
        return y.log_softmax(0 if slip == "batch_axis" else -1)


class PoseHead(Subject):
    """Joints as the expected places in heat maps, in pixels, with a score."""

    SLIPS = {
        "xy": "rows and columns are exchanged",
        "half": "centres of cells lack their half",
        "temperature": "the maps are not sharpened",
        "stride": "half the stride",
        "flip": "the mirrored maps are not mirrored back",
        "score": "the score is the mean of the map",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.up = nn.ConvTranspose2d(6, 8, 4, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.maps = nn.Conv2d(8, 5, 1)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(2, 6, 8, 6),)

    def heat(self, x: Tensor) -> Tensor:
        return self.maps(F.relu(self.norm(self.up(x))))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        slip = self.slip
        mirrored = self.heat(x.flip(-1))
        m = (self.heat(x) + (mirrored if slip == "flip" else mirrored.flip(-1))) / 2
        p = (m if slip == "temperature" else 4 * m).flatten(2).softmax(-1).view_as(m)
        half = 0.0 if slip == "half" else 0.5
        cols, rows = torch.arange(12) + half, torch.arange(16) + half
        px = (p.sum(2) * cols).sum(-1)
        py = (p.sum(3) * rows).sum(-1)
        places = torch.stack([py, px] if slip == "xy" else [px, py], -1)
        score = p.mean((2, 3)) * 10 if slip == "score" else p.amax((2, 3))
        return places * (2 if slip == "stride" else 4), score


SUBJECTS = (DiffusionBlock, StyleConv, SqueezeNet, StyleTransfer, CrnnOcr, PoseHead)
