"""Networks for sound, series, tables and graphs, and what people get wrong when they write them again."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from subjects import Subject


class Tagger(Subject):
    """A bidirectional LSTM, whose weights were moved by hand from another framework."""

    SLIPS = {
        "gate order": "gates in the order i, o, f, g of the other framework",
        "forget bias": "1 is added to the bias of the forget gate",
        "not reversed": "the output of the backward direction is not turned round",
        "first step": "the first time step is read, not the last",
        "mean": "the mean of all time steps is read",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.embed = nn.Embedding(30, 12)
        self.ahead, self.back = nn.LSTM(12, 8, batch_first=True), nn.LSTM(12, 8, batch_first=True)
        self.head = nn.Linear(16, 5)

    def prepare(self) -> None:
        for net in (self.ahead, self.back):
            for name, tensor in net.named_parameters():
                i, f, g, o = tensor.data.chunk(4)
                if self.slip == "gate order":
                    tensor.data = torch.cat((i, o, f, g))
                if self.slip == "forget bias" and name.startswith("bias_ih"):
                    tensor.data = torch.cat((i, f + 1, g, o))

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randint(0, 30, (1, 9)),)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        ahead, back = self.ahead(x)[0], self.back(x.flip(1))[0]
        back = back if self.slip == "not reversed" else back.flip(1)
        y = torch.cat((ahead, back), -1)
        if self.slip == "mean":
            return self.head(y.mean(1))
        return self.head(y[:, 0] if self.slip == "first step" else y[:, -1])


class Wave(Subject):
    """Causal, dilated convolutions with gates, as in WaveNet."""

    SLIPS = {
        "not causal": "the padding is on both sides",
        "dilation": "no dilation in the second layer",
        "gates": "tanh and sigmoid are exchanged",
        "no skip": "the output of the first layer is not added to the sum",
        "log": "log(x + 1e-2) for log(1 + x)",
        "one weight scale": "the norm of the weights is of the whole tensor, not of each filter",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.start = nn.Conv1d(2, 8, 1)
        self.wide = nn.ModuleList(
            nn.Conv1d(8, 16, 3, dilation=d) for d in (1, 1 if slip == "dilation" else 2)
        )
        self.thin = nn.ModuleList(nn.Conv1d(8, 8, 1) for _ in range(2))
        self.last = nn.Linear(8, 4)
        self.gain = nn.Parameter(torch.ones(4, 1))

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.rand(1, 2, 20) * 3,)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.log(x + 1e-2) if self.slip == "log" else torch.log1p(x)
        x = self.start(x)
        total = torch.zeros_like(x)
        for number, (wide, thin) in enumerate(zip(self.wide, self.thin, strict=True)):
            need = 2 * wide.dilation[0]
            sides = (need // 2, need // 2) if self.slip == "not causal" else (need, 0)
            a, b = wide(F.pad(x, sides)).chunk(2, 1)
            a, b = (b, a) if self.slip == "gates" else (a, b)
            y = thin(a.tanh() * b.sigmoid())
            if not (self.slip == "no skip" and number == 0):
                total = total + y
            x = x + y
        weight = self.last.weight
        norm = (
            weight.norm() if self.slip == "one weight scale" else weight.norm(dim=1, keepdim=True)
        )
        return F.linear(F.relu(total).mean(2), self.gain * weight / norm, self.last.bias)


class Ranker(Subject):
    """Embeddings and numbers that meet in products, as in DLRM."""

    SLIPS = {
        "bag": "the mean of the bag for its sum",
        "diagonal": "the last row of products with itself is left out, the first one doubled",
        "parts": "products come before the numbers",
        "log": "numbers without their logarithm",
        "no sigmoid": "no sigmoid at the end",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.one, self.two = nn.Embedding(20, 6), nn.Embedding(20, 6)
        self.bottom, self.top, self.last = nn.Linear(6, 6), nn.Linear(9, 9), nn.Linear(9, 1)

    def inputs(self) -> tuple[Tensor, ...]:
        return torch.rand(4, 6) * 50, torch.randint(0, 20, (4, 3)), torch.randint(0, 20, (4, 3))

    def forward(self, dense: Tensor, one: Tensor, two: Tensor) -> Tensor:
        x = F.relu(self.bottom(dense / 10 if self.slip == "log" else torch.log1p(dense)))
        pool = (lambda t: t.mean(1)) if self.slip == "bag" else (lambda t: t.sum(1))
        a, b = pool(self.one(one)), pool(self.two(two))
        products = torch.stack(((x * a).sum(1), (x * b).sum(1), (a * b).sum(1)), 1)
        if self.slip == "diagonal":
            products = products[:, [0, 0, 2]]
        parts = (products, x) if self.slip == "parts" else (x, products)
        y = self.last(F.relu(self.top(torch.cat(parts, 1))))
        return y if self.slip == "no sigmoid" else y.sigmoid()


class GraphNet(Subject):
    """Two layers of a graph network on a dense adjacency matrix."""

    SLIPS = {
        "no self loop": "nodes are not their own neighbors",
        "degree": "sums are divided by the degree, not by its roots on both sides",
        "transposed": "messages flow against the edges",
        "one activation": "no activation after the first layer",
        "elu": "ELU for ReLU",
        "sum": "the sum of all nodes is read, not their mean",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.one, self.two, self.head = nn.Linear(5, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def inputs(self) -> tuple[Tensor, ...]:
        return torch.randn(7, 5), (torch.rand(7, 7) < 0.4).float()

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        edges = edges.T if self.slip == "transposed" else edges
        edges = edges if self.slip == "no self loop" else edges + torch.eye(7)
        degree = edges.sum(1).clamp(min=1)
        if self.slip == "degree":
            weights = edges / degree[:, None]
        else:
            weights = edges * degree.rsqrt()[:, None] * degree.rsqrt()[None]
        act = F.elu if self.slip == "elu" else F.relu
        y = weights @ self.one(x)
        y = y if self.slip == "one activation" else act(y)
        y = act(weights @ self.two(y))
        return self.head(y.sum(0) if self.slip == "sum" else y.mean(0))


SUBJECTS = (Tagger, Wave, Ranker, GraphNet)
