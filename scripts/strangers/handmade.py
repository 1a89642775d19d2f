"""Networks written by hand, and the mistakes of people who write them again: a second set."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from subjects import Subject


class SegUNet(Subject):
    """U-Net with group norm, one reflecting convolution and bilinear upsampling."""

    SLIPS = {
        "concat_order": "the skip comes first",
        "corners": "upsampling with align_corners",
        "avgpool": "pooling by the mean",
        "zeros": "the first convolution pads with zeros",
        "skip_late": "the skip is taken before the activation",
        "groups": "group norm with half the groups",
        "softmax_axis": "softmax over rows",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        mode = "zeros" if slip == "zeros" else "reflect"
        groups = 2 if slip == "groups" else 4
        self.stem = nn.Conv2d(3, 8, 3, padding=1, padding_mode=mode)
        self.n0 = nn.GroupNorm(groups, 8)
        self.down1 = nn.Conv2d(8, 16, 3, padding=1)
        self.n1 = nn.GroupNorm(4, 16)
        self.down2 = nn.Conv2d(16, 16, 3, padding=1)
        self.up1 = nn.Conv2d(32, 8, 3, padding=1)
        self.up0 = nn.Conv2d(16, 8, 3, padding=1)
        self.head = nn.Conv2d(8, 5, 1)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.rand(1, 3, 32, 40),)

    def grow(self, x: Tensor) -> Tensor:
        corners = self.slip == "corners"
        return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=corners)

    def shrink(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(x, 2) if self.slip == "avgpool" else F.max_pool2d(x, 2)

    def join(self, up: Tensor, skip: Tensor) -> Tensor:
        return torch.cat([skip, up] if self.slip == "concat_order" else [up, skip], 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.n0(self.stem(x))
        b = F.relu(a)
        skip0 = a if self.slip == "skip_late" else b
        c = F.relu(self.n1(self.down1(self.shrink(b))))
        d = F.relu(self.down2(self.shrink(c)))
        u = F.relu(self.up1(self.join(self.grow(d), c)))
        u = F.relu(self.up0(self.join(self.grow(u), skip0)))
        return self.head(u).softmax(2 if self.slip == "softmax_axis" else 1)


class Coupling(nn.Module):
    def __init__(self, width: int, slip: str, flip: bool) -> None:
        super().__init__()
        self.slip, self.flip = slip, flip
        self.bias = nn.Parameter(torch.zeros(width))
        self.logs = nn.Parameter(torch.zeros(width))
        self.mix = nn.Parameter(torch.eye(width))
        self.net = nn.Sequential(nn.Linear(width // 2, 24), nn.SiLU(), nn.Linear(24, width))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = (x + self.bias) * self.logs.exp()
        x = x @ (self.mix.T if self.slip == "mix_transposed" else self.mix)
        a, b = x.chunk(2, -1)
        if self.flip and self.slip != "same_half":
            a, b = b, a
        s, t = self.net(a).chunk(2, -1)
        if self.slip == "interleaved":
            s, t = self.net(a)[..., 0::2], self.net(a)[..., 1::2]
        if self.slip != "no_tanh":
            s = torch.tanh(s)
        b = (b - t) * torch.exp(-s) if self.slip == "inverse" else b * torch.exp(s) + t
        out = torch.cat([b, a] if self.flip and self.slip != "same_half" else [a, b], -1)
        det = s.sum(-1) if self.slip == "no_actnorm_det" else s.sum(-1) + self.logs.sum()
        return out, det


class RealNvp(Subject):
    """Normalizing flow with actnorm, an invertible mix and affine couplings: z and the log density."""

    SLIPS = {
        "mix_transposed": "the mixing matrix is not transposed back",
        "same_half": "the second coupling changes the same half",
        "interleaved": "scale and shift are interleaved",
        "no_tanh": "the log scale is not bounded",
        "inverse": "the couplings run backwards",
        "no_actnorm_det": "the determinant lacks actnorm",
        "density": "the log density lacks the half",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.steps = nn.ModuleList(Coupling(8, slip, flip=bool(i % 2)) for i in range(3))

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(6, 8),)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        total = torch.zeros(x.shape[0])
        for step in self.steps:
            x, det = step(x)
            total = total + det
        half = 1.0 if self.slip == "density" else 0.5
        prior = -half * (x * x).sum(-1) - 0.5 * 8 * 1.8378770664
        return x, prior + total


class GatReadout(Subject):
    """Graph convolution on a dense directed graph, attention between neighbours, readout over real nodes."""

    SLIPS = {
        "row_norm": "the adjacency is normalized by rows",
        "no_loops": "no loops of one's own",
        "adj_transposed": "edges point the other way",
        "slope": "leaky ReLU with PyTorch's slope",
        "softmax_axis": "softmax over receivers",
        "plain_mean": "the readout counts padding nodes",
        "heads_mean": "heads are averaged and repeated, not concatenated",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.lin = nn.Linear(6, 16)
        self.proj = nn.Linear(16, 24, bias=False)
        self.src = nn.Parameter(torch.randn(3, 8))
        self.dst = nn.Parameter(torch.randn(3, 8))
        self.out = nn.Linear(24, 4)

    def inputs(self) -> tuple[Tensor, ...]:
        adj = (torch.rand(2, 10, 10) > 0.6).float()
        mask = torch.ones(2, 10)
        mask[1, 7:] = 0
        return torch.randn(2, 10, 6), adj * mask[:, :, None] * mask[:, None, :], mask

    def forward(self, x: Tensor, adj: Tensor, mask: Tensor) -> Tensor:
        if self.slip == "adj_transposed":
            adj = adj.transpose(1, 2)
        if self.slip != "no_loops":
            adj = (adj + torch.eye(10)).clamp(max=1.0)
        deg = adj.sum(-1).clamp(min=1.0)
        if self.slip == "row_norm":
            norm = adj / deg[..., None]
        else:
            norm = deg.rsqrt()[..., None] * adj * deg.rsqrt()[:, None, :]
        h = F.elu(self.lin(norm @ x))
        p = self.proj(h).view(2, 10, 3, 8)
        e = (p * self.dst).sum(-1)[:, :, None] + (p * self.src).sum(-1)[:, None]
        e = F.leaky_relu(e, 0.01 if self.slip == "slope" else 0.2)
        e = e.masked_fill((adj == 0)[..., None], -1e9)
        w = e.softmax(1 if self.slip == "softmax_axis" else 2)
        h = torch.einsum("bijh,bjhd->bihd", w, p)
        if self.slip == "heads_mean":
            h = h.mean(2, keepdim=True).expand(2, 10, 3, 8)
        h = F.elu(h.reshape(2, 10, 24))
        pooled = (
            h.mean(1)
            if self.slip == "plain_mean"
            else (h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        )
        return self.out(pooled)


class TcnLayer(nn.Module):
    def __init__(self, cin: int, cout: int, dilation: int, slip: str) -> None:
        super().__init__()
        self.slip, self.pad = slip, 2 * dilation
        self.a = nn.Conv1d(cin, cout, 3, dilation=dilation)
        self.b = nn.Conv1d(cout, cout, 3, dilation=dilation)
        self.skip = nn.Conv1d(cin, cout, 1)

    def causal(self, x: Tensor) -> Tensor:
        if self.slip == "symmetric":
            return F.pad(x, (self.pad // 2, self.pad // 2))
        return F.pad(x, (0, self.pad) if self.slip == "future" else (self.pad, 0))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.a(self.causal(x)))
        y = F.relu(self.b(self.causal(y)))
        y = y + self.skip(x)
        return y if self.slip == "no_last_relu" else F.relu(y)


class CausalTcn(Subject):
    """Temporal convolution for a forecast, with instance scaling that is undone at the end."""

    SLIPS = {
        "symmetric": "padding at both ends",
        "future": "padding at the wrong end",
        "no_last_relu": "no ReLU after the residual",
        "dilation": "the last layer's dilation is not doubled",
        "first_step": "the forecast is read from the first step",
        "unbiased": "the scale is the unbiased deviation",
        "no_denorm_mean": "the mean is not added back",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        last = 2 if slip == "dilation" else 4
        sizes = [(3, 12, 1), (12, 12, 2), (12, 16, last)]
        self.layers = nn.Sequential(*(TcnLayer(*size, slip) for size in sizes))
        self.head = nn.Linear(16, 3)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(2, 3, 20).cumsum(-1) + 5,)

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        std = torch.sqrt(x.var(-1, keepdim=True, unbiased=self.slip == "unbiased") + 1e-5)
        y = self.layers((x - mean) / std)
        y = self.head(y[..., 0 if self.slip == "first_step" else -1])
        y = y * std[..., 0]
        return y if self.slip == "no_denorm_mean" else y + mean[..., 0]


class LstmNer(Subject):
    """Tags of words: embeddings, characters by convolution, two directions of an LSTM, emission scores."""

    SLIPS = {
        "gate_order": "gates loaded in the order of ONNX",
        "no_hidden_bias": "the second bias is dropped",
        "forget_one": "TensorFlow's forget bias is added",
        "directions": "backward comes before forward",
        "pad_row": "the padding word has a vector",
        "char_mean": "characters are pooled by the mean",
        "scale": "embeddings are scaled by the root of the width",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.words = nn.Embedding(30, 12)
        self.chars = nn.Embedding(20, 6)
        self.conv = nn.Conv1d(6, 8, 3, padding=1)
        self.lstm = nn.LSTM(20, 10, batch_first=True, bidirectional=True)
        self.tags = nn.Linear(20, 5)

    def prepare(self) -> None:
        with torch.no_grad():
            if self.slip != "pad_row":
                self.words.weight[0] = 0
            for end in ("", "_reverse"):
                ih, hh = f"bias_ih_l0{end}", f"bias_hh_l0{end}"
                if self.slip == "gate_order":
                    for name in (f"weight_ih_l0{end}", f"weight_hh_l0{end}", ih, hh):
                        i, f, g, o = getattr(self.lstm, name).clone().chunk(4)
                        getattr(self.lstm, name).copy_(torch.cat([i, o, f, g]))
                if self.slip == "no_hidden_bias":
                    getattr(self.lstm, hh).zero_()
                if self.slip == "forget_one":
                    getattr(self.lstm, ih)[10:20] += 1

    def inputs(self) -> tuple[Tensor, ...]:
        words = torch.randint(1, 30, (2, 7))
        words[1, 5:] = 0
        return words, torch.randint(0, 20, (2, 7, 6))

    def forward(self, words: Tensor, chars: Tensor) -> Tensor:
        w = self.words(words)
        if self.slip == "scale":
            w = w * 12**0.5
        c = self.conv(self.chars(chars).view(14, 6, 6).transpose(1, 2))
        c = (c.mean(-1) if self.slip == "char_mean" else c.amax(-1)).view(2, 7, 8)
        h, _ = self.lstm(torch.cat([w, c], -1))
        if self.slip == "directions":
            h = torch.cat([h[..., 10:], h[..., :10]], -1)
        return self.tags(h)


class PointCloud(Subject):
    """PointNet: a learned transform, shared layers, a global maximum, scores per point."""

    SLIPS = {
        "no_identity": "the learned transform lacks the identity",
        "transform_side": "the transform is applied transposed",
        "mean_pool": "the global feature is a mean",
        "concat_order": "the global feature comes first",
        "not_centred": "the cloud is not centred",
        "radius_axis": "each point is scaled by its own radius",
        "bn_eps": "batch norm with Keras's epsilon",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        eps = 1e-3 if slip == "bn_eps" else 1e-5
        self.t1 = nn.Conv1d(3, 16, 1)
        self.t2 = nn.Linear(16, 9)
        self.c1 = nn.Conv1d(3, 16, 1)
        self.b1 = nn.BatchNorm1d(16, eps=eps)
        self.c2 = nn.Conv1d(16, 32, 1)
        self.b2 = nn.BatchNorm1d(32, eps=eps)
        self.head = nn.Conv1d(48, 4, 1)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(2, 3, 24) * 2 + 1,)

    def forward(self, x: Tensor) -> Tensor:
        if self.slip != "not_centred":
            x = x - x.mean(2, keepdim=True)
        radius = x.norm(dim=1, keepdim=True)
        x = x / (radius if self.slip == "radius_axis" else radius.amax(2, keepdim=True))
        t = self.t2(F.relu(self.t1(x)).amax(2)).view(2, 3, 3)
        if self.slip != "no_identity":
            t = t + torch.eye(3)
        x = (t if self.slip == "transform_side" else t.transpose(1, 2)) @ x
        local = F.relu(self.b1(self.c1(x)))
        h = self.b2(self.c2(local))
        g = h.mean(2, keepdim=True) if self.slip == "mean_pool" else h.amax(2, keepdim=True)
        g = g.expand(2, 32, 24)
        joined = torch.cat([g, local] if self.slip == "concat_order" else [local, g], 1)
        return self.head(joined)


class DeepFm(Subject):
    """Click rate: fields in one table by offsets, factorization machine, pairwise products, deep part."""

    SLIPS = {
        "no_half": "the second order lacks its half",
        "offset": "field offsets are off by one",
        "triangle": "pairs are taken from the lower triangle",
        "no_log": "counts are not logged",
        "log2": "counts are logged to base two",
        "bag_sum": "the history is summed, not averaged",
        "sigmoid_twice": "the score is squashed twice",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        shift = 1 if slip == "offset" else 0
        self.register_buffer("offsets", torch.tensor([0, 10, 25, 30]) + shift, persistent=False)
        self.table = nn.Embedding(45, 8)
        self.first = nn.Embedding(45, 1)
        self.items = nn.Embedding(20, 8)
        self.dense = nn.Linear(4, 8)
        self.deep = nn.Sequential(nn.Linear(48 + 15, 32), nn.ReLU(), nn.Linear(32, 1))

    def inputs(self) -> tuple[Tensor, ...]:
        sizes = torch.tensor([10, 15, 5, 14])
        fields = (torch.rand(3, 4) * sizes).long()
        return fields, torch.randint(0, 20, (3, 5)), torch.rand(3, 4) * 40

    def forward(self, fields: Tensor, history: Tensor, counts: Tensor) -> Tensor:
        index = fields + self.offsets
        v = self.table(index)
        past = self.items(history)
        past = past.sum(1) if self.slip == "bag_sum" else past.mean(1)
        if self.slip == "no_log":
            counts = counts / 40
        elif self.slip == "log2":
            counts = torch.log2(1 + counts)
        else:
            counts = torch.log1p(counts)
        all_ = torch.cat([v, past[:, None], self.dense(counts)[:, None]], 1)
        second = (all_.sum(1).square() - all_.square().sum(1)).sum(1, keepdim=True)
        if self.slip != "no_half":
            second = 0.5 * second
        gram = all_ @ all_.transpose(1, 2)
        if self.slip == "triangle":
            rows, cols = torch.tril_indices(6, 6, -1)
        else:
            rows, cols = torch.triu_indices(6, 6, 1)
        pairs = gram[:, rows, cols]
        deep = self.deep(torch.cat([all_.flatten(1), pairs], 1))
        y = torch.sigmoid(0.05 * (self.first(index).sum(1) + second + deep))
        return torch.sigmoid(y) if self.slip == "sigmoid_twice" else y


class SuperRes(Subject):
    """EDSR: mean shift, scaled residual blocks, pixel shuffle, a bicubic skip."""

    SLIPS = {
        "shuffle": "pixel shuffle with the depth first",
        "res_scale": "residuals are not scaled",
        "bgr": "channels are blue first",
        "mean_sign": "the mean is added twice",
        "bilinear": "the skip is bilinear",
        "prelu_shared": "one slope for all channels",
        "clamp": "the picture is cut at one",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.head = nn.Conv2d(3, 12, 3, padding=1)
        self.a = nn.ModuleList(nn.Conv2d(12, 12, 3, padding=1) for _ in range(2))
        self.b = nn.ModuleList(nn.Conv2d(12, 12, 3, padding=1) for _ in range(2))
        self.act = nn.PReLU(12)
        self.tail = nn.Conv2d(12, 12, 3, padding=1)
        self.register_buffer("mean", torch.tensor([0.45, 0.44, 0.40]).view(1, 3, 1, 1), False)

    def prepare(self) -> None:
        if self.slip == "prelu_shared":
            with torch.no_grad():
                self.act.weight.fill_(self.act.weight.mean())

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.rand(1, 3, 12, 16),)

    def forward(self, x: Tensor) -> Tensor:
        if self.slip == "bgr":
            x = x.flip(1)
        mode = "bilinear" if self.slip == "bilinear" else "bicubic"
        base = F.interpolate(x, scale_factor=2, mode=mode, align_corners=False)
        h = self.head(x + self.mean if self.slip == "mean_sign" else x - self.mean)
        y = h
        for a, b in zip(self.a, self.b, strict=True):
            scale = 1.0 if self.slip == "res_scale" else 0.1
            y = y + scale * b(self.act(a(y)))
        y = self.tail(y + h)
        if self.slip == "shuffle":
            n, c, r, w = y.shape
            y = y.view(n, 2, 2, c // 4, r, w).permute(0, 3, 4, 1, 5, 2)
            y = y.reshape(n, c // 4, 2 * r, 2 * w)
        else:
            y = F.pixel_shuffle(y, 2)
        y = y + self.mean + base
        return y.clamp(0, 1) if self.slip == "clamp" else y


SUBJECTS = (SegUNet, RealNvp, GatReadout, CausalTcn, LstmNer, PointCloud, DeepFm, SuperRes)
