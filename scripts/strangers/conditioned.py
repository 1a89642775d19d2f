"""Networks written by hand that scale one sample by numbers of its own, and mistakes in how they do it."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from subjects import Subject


class EdmDenoiser(Subject):
    """A diffusion network with preconditioning: what goes in and comes out is scaled by the noise's level."""

    SLIPS = {
        "no_root": "the input is scaled by the variance",
        "no_log": "the level is given as it is, not as a quarter of its logarithm",
        "sigma_data": "the data's deviation is one",
        "no_skip": "the noisy picture is not added",
        "c_out": "the output is scaled by the level alone",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.level = nn.Linear(1, 8)
        self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 3, 3, padding=1)

    def inputs(self) -> tuple[Tensor, ...]:
        sigma = torch.rand(1) * 3 + 0.3
        return torch.randn(1, 3, 10, 10) * (1 + sigma), sigma

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        slip = self.slip
        data = 1.0 if slip == "sigma_data" else 0.5
        s = sigma.view(-1, 1, 1, 1)
        total = s**2 + data**2
        inner = x / total if slip == "no_root" else x / total.sqrt()
        level = sigma if slip == "no_log" else sigma.log() / 4
        h = self.a(inner) + self.level(level[:, None])[..., None, None]
        out = self.b(F.silu(h)) * (s if slip == "c_out" else s * data / total.sqrt())
        return out if slip == "no_skip" else out + x * data**2 / total


class KeywordSpotter(Subject):
    """Words from a waveform of mean nought and deviation one, with preemphasis and energies in decibels."""

    SLIPS = {
        "no_normalize": "the waveform is taken as it is",
        "peak": "the waveform is divided by its peak",
        "emphasis": "preemphasis of 0.95",
        "natural_log": "nepers instead of decibels",
        "top_db": "energies are not cut 40 decibels below the largest",
        "hann": "the window is symmetric, not periodic",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        window = torch.hann_window(16, periodic=slip != "hann")
        k = torch.arange(9)[:, None] * torch.arange(16)[None] * (2 * torch.pi / 16)
        bank = torch.stack([k.cos() * window, k.sin() * window]).reshape(18, 1, 16)
        self.register_buffer("bank", bank, persistent=False)
        self.c = nn.Conv1d(9, 12, 3, padding=1)
        self.out = nn.Linear(12, 5)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(1, 160) * (torch.rand(1, 1) * 0.5 + 0.1) + 0.05,)

    def forward(self, x: Tensor) -> Tensor:
        slip = self.slip
        if slip == "peak":
            x = x / x.abs().amax(1, keepdim=True)
        elif slip != "no_normalize":
            mean = x.mean(1, keepdim=True)
            x = (x - mean) / (((x - mean) ** 2).mean(1, keepdim=True) + 1e-7).sqrt()
        p = 0.95 if slip == "emphasis" else 0.97
        x = torch.cat([x[:, :1], x[:, 1:] - p * x[:, :-1]], 1)
        f = F.conv1d(x[:, None], self.bank, stride=8)
        e = f[:, :9] ** 2 + f[:, 9:] ** 2
        d = (e + 1e-6).log() if slip == "natural_log" else 10 * (e + 1e-6).log10()
        if slip != "top_db":
            d = torch.maximum(d, d.amax((1, 2), keepdim=True) - 40)
        return self.out(F.relu(self.c(d / 10)).mean(2))


class FaceEmbed(Subject):
    """A picture standardized by its own statistics; a descriptor of length one; cosines to the known."""

    SLIPS = {
        "no_standard": "the picture is not standardized",
        "min_max": "the picture is scaled to nought to one by its extremes",
        "no_feature_norm": "the descriptor keeps its length",
        "l1": "the descriptor is divided by the sum of its absolutes",
        "margin": "the training margin stays in",
        "per_channel": "statistics by channel",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.a = nn.Conv2d(3, 8, 3, 2, padding=1)
        self.act = nn.PReLU(8)
        self.b = nn.Linear(8 * 36, 16)
        self.known = nn.Parameter(torch.randn(6, 16))

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.rand(1, 3, 12, 12) * (torch.rand(1) * 200 + 40),)

    def forward(self, x: Tensor) -> Tensor:
        slip = self.slip
        axes = (2, 3) if slip == "per_channel" else (1, 2, 3)
        if slip == "min_max":
            low, high = x.amin(axes, True), x.amax(axes, True)
            x = (x - low) / (high - low)
        elif slip != "no_standard":
            mean = x.mean(axes, keepdim=True)
            x = (x - mean) / ((x - mean) ** 2).mean(axes, keepdim=True).sqrt()
        e = self.b(self.act(self.a(x)).flatten(1))
        if slip == "l1":
            e = e / e.abs().sum(1, keepdim=True)
        elif slip != "no_feature_norm":
            e = e / e.square().sum(1, keepdim=True).sqrt()
        c = e @ F.normalize(self.known, dim=1).T
        return 30 * (c - 0.35 if slip == "margin" else c)


class RevForecast(Subject):
    """A forecast of one series by two linear parts (trend and season) of the series scaled by itself."""

    SLIPS = {
        "no_scale": "the series is centred, not scaled",
        "mean_scale": "the series is scaled by its mean",
        "window": "the trend is a mean of seven, not of five",
        "pad_zeros": "the trend's ends are padded with zeros",
        "affine_order": "the learned scale is undone before the shift",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.gain, self.shift = nn.Parameter(torch.ones(1)), nn.Parameter(torch.zeros(1))
        self.trend, self.season = nn.Linear(24, 6), nn.Linear(24, 6)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(1, 24).cumsum(1) * (torch.rand(1) * 4 + 1) + 30,)

    def forward(self, x: Tensor) -> Tensor:
        slip = self.slip
        mean = x.mean(1, keepdim=True)
        std = (((x - mean) ** 2).mean(1, keepdim=True) + 1e-5).sqrt()
        if slip == "no_scale":
            std = torch.ones_like(std)
        if slip == "mean_scale":
            mean, std = torch.zeros_like(mean), mean
        n = (x - mean) / std * self.gain + self.shift
        half = 3 if slip == "window" else 2
        mode = "constant" if slip == "pad_zeros" else "replicate"
        t = F.avg_pool1d(F.pad(n[:, None], (half, half), mode=mode), 2 * half + 1, 1)[:, 0]
        y = self.trend(t) + self.season(n - t)
        y = y / self.gain - self.shift if slip == "affine_order" else (y - self.shift) / self.gain
        return y * std + mean


SUBJECTS = (EdmDenoiser, KeywordSpotter, FaceEmbed, RevForecast)
