"""Networks that servers, cars and browsers run today, and what people most often get wrong in bringing them there."""

import math
from unittest.mock import patch

import torch
import torch.nn.functional as F
import transformers as hf
from ported import conv, heads
from rewritten import EAGER, MEAN, STD, Rewritten
from torch import Tensor, nn
from transformers.models.phi3 import modeling_phi3

from subjects import Subject


def fit(net: nn.Module, size: float = 1.0, gain: float = 1.4) -> None:
    """Give convolutions the size that the statistics after them were taken at, of variances about `size`."""
    with torch.no_grad():
        for part in net.modules():
            if isinstance(part, nn.Sequential) and hasattr(part[1], "running_var"):
                part[1].running_var.mul_(20 * size)
                weight = part[0].weight
                weight.mul_(gain * math.sqrt(size) / weight.flatten(1).norm(dim=1).mean())


class Slim(nn.Module):
    """A convolution as TensorFlow's slim has it: no bias, a norm with its own epsilon, ReLU."""

    def __init__(self, slip: str, cin: int, cout: int, size: int | tuple, **how: int) -> None:
        super().__init__()
        eps = 1e-5 if slip == "eps" else 1e-3
        self.layer = nn.Sequential(
            nn.Conv2d(cin, cout, size, bias=False, **how), nn.BatchNorm2d(cout, eps)
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.layer(x))


class InceptionBlock(nn.Module):
    """Branches of three by three, or of rows and columns of five, and one of averages."""

    def __init__(self, slip: str, cin: int, long: bool) -> None:
        super().__init__()
        self.slip = slip
        self.one, self.pooled = Slim(slip, cin, 8, 1), Slim(slip, cin, 8, 1)
        self.narrow, self.thin = Slim(slip, cin, 6, 1), Slim(slip, cin, 6, 1)
        if long:
            self.near = Slim(slip, 6, 8, (1, 5), padding=(0, 2))
            self.far = nn.Sequential(
                Slim(slip, 6, 8, (5, 1), padding=(2, 0)), Slim(slip, 8, 12, (1, 5), padding=(0, 2))
            )
        else:
            self.near = Slim(slip, 6, 8, 5, padding=2)
            self.far = nn.Sequential(
                Slim(slip, 6, 8, 3, padding=1), Slim(slip, 8, 12, 3, padding=1)
            )

    def forward(self, x: Tensor) -> Tensor:
        counted = self.slip == "pool_pad"
        pooled = self.pooled(F.avg_pool2d(x, 3, 1, 1, count_include_pad=counted))
        near, far = self.near(self.narrow(x)), self.far(self.thin(x))
        return torch.cat((self.one(x), near, far, pooled), 1)


class InceptionV3(Subject):
    """Labels of pictures, with weights of a TensorFlow checkpoint."""

    SLIPS = {
        "statistics": "pixels are normalized by ImageNet's statistics, the network has -1..1",
        "eps": "batch norms have PyTorch's epsilon of 1e-5, not 1e-3",
        "pool_pad": "averages count the padding, TensorFlow's do not",
        "branch_order": "where the map shrinks, the pooled branch is joined first, not last",
        "background": "the last class is dropped, the one for the background is the first",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.stem = nn.Sequential(
            Slim(slip, 3, 8, 3, stride=2),
            Slim(slip, 8, 8, 3),
            Slim(slip, 8, 16, 3, padding=1),
            nn.MaxPool2d(3, 2),
            Slim(slip, 16, 20, 1),
            Slim(slip, 20, 24, 3),
        )
        self.first, self.second = (InceptionBlock(slip, cin, False) for cin in (24, 36))
        self.shrink = Slim(slip, 36, 20, 3, stride=2)
        self.deep = nn.Sequential(
            Slim(slip, 36, 12, 1),
            Slim(slip, 12, 16, 3, padding=1),
            Slim(slip, 16, 20, 3, stride=2),
        )
        self.third, self.fourth = (InceptionBlock(slip, cin, True) for cin in (76, 36))
        self.head = nn.Linear(36, 13)

    def prepare(self) -> None:
        fit(self, 0.05)

    def inputs(self) -> tuple[Tensor, ...]:
        tint = torch.rand(2, 1, 1, 3) * 0.5 + 0.5
        return ((torch.rand(2, 64, 64, 3) * tint * 255).round(),)

    def forward(self, x: Tensor) -> Tensor:
        mean, std = (MEAN, STD) if self.slip == "statistics" else ((0.5,) * 3, (0.5,) * 3)
        x = (x / 255 - torch.tensor(mean)) / torch.tensor(std)
        x = self.second(self.first(self.stem(x.permute(0, 3, 1, 2))))
        parts = [self.shrink(x), self.deep(x), F.max_pool2d(x, 3, 2)]
        if self.slip == "branch_order":
            parts = parts[-1:] + parts[:-1]
        x = self.fourth(self.third(torch.cat(parts, 1)))
        y = self.head(x.mean((2, 3)))
        return (y[:, :-1] if self.slip == "background" else y[:, 1:]).softmax(-1)


class SplitBlock(nn.Module):
    """YOLO's block of two halves, one of which is convolved further; all that came about is joined."""

    def __init__(self, cin: int, cout: int) -> None:
        super().__init__()
        half = cout // 2
        self.split, self.join = conv(cin, cout, 1, 1, 1e-3), conv(3 * half, cout, 1, 1, 1e-3)
        self.a, self.b = conv(half, half, 3, 1, 1e-3), conv(half, half, 3, 1, 1e-3)

    def forward(self, x: Tensor) -> Tensor:
        still, y = F.silu(self.split(x)).chunk(2, 1)
        more = y + F.silu(self.b(F.silu(self.a(y))))
        return F.silu(self.join(torch.cat((still, y, more), 1)))


class YoloSeg(Subject):
    """Boxes and masks without anchors: distances as shares of bins, masks as sums of prototypes."""

    SLIPS = {
        "no_255": "pixels are not divided by 255",
        "half_cell": "distances are from the corners of cells, not from their centres",
        "bins_first": "the numbers of a cell are read as bin and side, not as side and bin",
        "corners": "boxes are centre and size where they are taken for corners",
        "no_sigmoid": "masks are left as sums of prototypes, without the sigmoid",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.a, self.b = conv(3, 8, 3, 2, 1e-3), conv(8, 12, 3, 2, 1e-3)
        self.c, self.d = conv(12, 16, 3, 2, 1e-3), conv(16, 24, 3, 2, 1e-3)
        self.fine, self.coarse = SplitBlock(16, 16), SplitBlock(24, 24)
        self.narrow, self.wide = conv(24, 12, 1, 1, 1e-3), conv(48, 24, 1, 1, 1e-3)
        self.up, self.down = SplitBlock(40, 16), SplitBlock(40, 24)
        self.shrink = conv(16, 16, 3, 2, 1e-3)
        self.heads = nn.ModuleList(
            nn.ModuleList(
                nn.Sequential(conv(cin, 16, 3, 1, 1e-3), nn.SiLU(), nn.Conv2d(16, cout, 1))
                for cout in (32, 5, 6)
            )
            for cin in (16, 24)
        )
        self.proto, self.larger = conv(16, 12, 3, 1, 1e-3), nn.ConvTranspose2d(12, 12, 2, 2)
        self.masks = conv(12, 6, 3, 1, 1e-3)

    def prepare(self) -> None:
        fit(self, gain=1.55)
        with torch.no_grad():
            for part in self.heads.modules():
                if isinstance(part, nn.Conv2d) and part.bias is not None:
                    part.weight.mul_(2)

    def inputs(self) -> tuple[Tensor, ...]:
        tint = torch.rand(1, 3, 1, 1) * 0.6 + 0.4
        return ((torch.rand(1, 3, 48, 64) * tint * 255).round(),)

    def boxes(self, y: Tensor, stride: int) -> Tensor:
        rows, columns = y.shape[2:]
        first = self.slip == "bins_first"
        y = y.view(1, 8, 4, -1).transpose(1, 2) if first else y.view(1, 4, 8, -1)
        away = (y.softmax(2) * torch.arange(8.0).view(1, 1, 8, 1)).sum(2).transpose(1, 2)
        middle = 0.0 if self.slip == "half_cell" else 0.5
        down, right = torch.meshgrid(
            torch.arange(rows) + middle, torch.arange(columns) + middle, indexing="ij"
        )
        cells = torch.stack((right, down), -1).view(-1, 2)
        start, end = cells - away[..., :2], cells + away[..., 2:]
        if self.slip == "corners":
            return torch.cat(((start + end) / 2, end - start), -1) * stride
        return torch.cat((start, end), -1) * stride

    def cut(self, masks: Tensor, boxes: Tensor) -> Tensor:
        """Return the masks with noughts out of their boxes."""
        left, top, right, bottom = (boxes / 4)[..., None, None].unbind(2)
        steps = torch.arange(16.0)
        across, down = steps[None, None, None], steps[None, None, :, None]
        inside = (across >= left) & (across < right) & (down >= top) & (down < bottom)
        return masks * inside.float()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = F.pad(x, (0, 0, 8, 8), value=114.0)
        x = x if self.slip == "no_255" else x / 255
        fine = self.fine(F.silu(self.c(F.silu(self.b(F.silu(self.a(x)))))))
        y = F.silu(self.narrow(self.coarse(F.silu(self.d(fine)))))
        pooled = [y]
        for _ in range(3):
            pooled.append(F.max_pool2d(pooled[-1], 5, 1, 2))
        coarse = F.silu(self.wide(torch.cat(pooled, 1)))
        fine = self.up(torch.cat((F.interpolate(coarse, scale_factor=2.0), fine), 1))
        coarse = self.down(torch.cat((F.silu(self.shrink(fine)), coarse), 1))
        found = [
            (self.boxes(parts[0](y), stride), *(part(y).flatten(2) for part in parts[1:]))
            for parts, y, stride in zip(self.heads, (fine, coarse), (8, 16), strict=True)
        ]
        places, scores, weights = zip(*found, strict=True)
        boxes, scores = torch.cat(places, 1), torch.cat(scores, 2).transpose(1, 2).sigmoid()
        proto = F.silu(self.masks(self.larger(F.silu(self.proto(fine)))))
        masks = torch.cat(weights, 2).transpose(1, 2) @ proto.flatten(2)
        masks = masks if self.slip == "no_sigmoid" else masks.sigmoid()
        return boxes, scores, self.cut(masks.unflatten(2, (16, 16)), boxes)


class Residual(nn.Module):
    """U2-Net's block: a small U of its own, added to what it began with."""

    def __init__(self, slip: str, cin: int, mid: int, cout: int, depth: int) -> None:
        super().__init__()
        self.slip, self.first = slip, conv(cin, cout, 3)
        sizes = [cout] + [mid] * depth
        self.down = nn.ModuleList(conv(sizes[i], mid, 3) for i in range(depth))
        self.deep = conv(mid, mid, 3, padding=2, dilation=2)
        self.up = nn.ModuleList(
            conv(2 * mid, cout if i == depth - 1 else mid, 3) for i in range(depth)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first(x))
        y, seen = x, []
        for number, layer in enumerate(self.down):
            y = F.relu(layer(smaller(self.slip, y) if number else y))
            seen.append(y)
        y = F.relu(self.deep(y))
        for layer, old in zip(self.up, reversed(seen), strict=True):
            y = F.relu(layer(joined(self.slip, y, old)))
        return x + y


def smaller(slip: str, x: Tensor) -> Tensor:
    return F.max_pool2d(x, 2, 2, ceil_mode=slip != "floor")


def larger(slip: str, x: Tensor, size: tuple[int, ...]) -> Tensor:
    return F.interpolate(x, size, mode="bilinear", align_corners=slip == "corners")


def joined(slip: str, new: Tensor, old: Tensor) -> Tensor:
    if new.shape != old.shape:
        new = larger(slip, new, tuple(old.shape[2:]))
    return torch.cat((old, new) if slip == "skip_order" else (new, old), 1)


class U2Net(Subject):
    """What stands before the background: blocks that are U's themselves, sides that are fused."""

    SLIPS = {
        "no_max": "pixels are divided by 255, not by the largest one of the picture",
        "corners": "maps are enlarged with align_corners",
        "floor": "odd sizes are rounded down where maps are pooled, not up",
        "skip_order": "maps from before are joined in front of the enlarged ones",
        "no_stretch": "the mask is not stretched to reach from nought to one",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.a, self.b = Residual(slip, 3, 6, 12, 3), Residual(slip, 12, 6, 16, 2)
        self.c = Residual(slip, 16, 8, 16, 2)
        self.d, self.e = Residual(slip, 32, 6, 12, 2), Residual(slip, 24, 6, 12, 3)
        self.sides = nn.ModuleList(nn.Conv2d(width, 1, 3, padding=1) for width in (12, 12, 16))
        self.fuse = nn.Conv2d(3, 1, 1)

    def prepare(self) -> None:
        fit(self, gain=1.1)
        with torch.no_grad():
            self.fuse.weight.abs_().add_(0.2)
            for side in self.sides:
                side.weight.mul_(0.2)

    def inputs(self) -> tuple[Tensor, ...]:
        light = torch.rand(1, 1, 1, 1) * 100 + 90
        return ((torch.rand(1, 3, 52, 44) * light).round(),)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = x / (255 if self.slip == "no_max" else x.max())
        x = (x - torch.tensor(MEAN).view(1, 3, 1, 1)) / torch.tensor(STD).view(1, 3, 1, 1)
        first = self.a(x)
        second = self.b(smaller(self.slip, first))
        third = self.c(smaller(self.slip, second))
        second = self.d(joined(self.slip, third, second))
        first = self.e(joined(self.slip, second, first))
        sides = [side(y) for side, y in zip(self.sides, (first, second, third), strict=True)]
        sides = [sides[0], *(larger(self.slip, y, (52, 44)) for y in sides[1:])]
        mask = self.fuse(torch.cat(sides, 1)).sigmoid()
        if self.slip != "no_stretch":
            mask = (mask - mask.min()) / (mask.max() - mask.min())
        return mask, sides[0].sigmoid()


class Looking(nn.Module):
    """Attention of SAM's decoder, in fewer numbers than it is given."""

    def __init__(self, inner: int) -> None:
        super().__init__()
        self.size = inner // 4
        self.q, self.k, self.v = (nn.Linear(32, inner) for _ in range(3))
        self.out = nn.Linear(inner, 32)

    def heads(self, x: Tensor) -> Tensor:
        return x.reshape(1, -1, 4, self.size).transpose(1, 2)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = self.heads(self.q(q)), self.heads(self.k(k)), self.heads(self.v(v))
        y = (q @ k.transpose(2, 3) / math.sqrt(self.size)).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(1, -1, 4 * self.size))


class TwoWay(nn.Module):
    def __init__(self, first: bool) -> None:
        super().__init__()
        self.first, self.own = first, Looking(32)
        self.there, self.back = Looking(16), Looking(16)
        self.wide, self.thin = nn.Linear(32, 64), nn.Linear(64, 32)
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(4))

    def forward(self, x: Tensor, seen: Tensor, token: Tensor, place: Tensor) -> tuple:
        q = x if self.first else x + token
        y = self.own(q, q, x)
        x = self.norms[0](y if self.first else x + y)
        x = self.norms[1](x + self.there(x + token, seen + place, seen))
        x = self.norms[2](x + self.thin(F.relu(self.wide(x))))
        return x, self.norms[3](seen + self.back(seen + place, x + token, x))


class SamDecoder(Subject):
    """Masks of what somebody points at, from a picture's embedding, in the size of the picture."""

    SLIPS = {
        "not_scaled": "points are in pixels of the picture as it was, not as it was enlarged",
        "no_half": "points are not moved by half a pixel, to its centre",
        "no_padding": "the point of padding that stands for no box is not added",
        "no_crop": "masks are shrunk to the picture's size without the padding cut off",
        "first_masks": "the first three masks are returned, the first of four is for single answers",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.register_buffer("waves", torch.randn(2, 16))
        self.labels, self.nothing = nn.Embedding(2, 32), nn.Embedding(1, 32)
        self.dense, self.tokens = nn.Embedding(1, 32), nn.Embedding(5, 32)
        self.layers = nn.ModuleList(TwoWay(first) for first in (True, False))
        self.final, self.norm = Looking(16), nn.LayerNorm(32)
        self.up, self.more = nn.ConvTranspose2d(32, 8, 2, 2), nn.ConvTranspose2d(8, 4, 2, 2)
        self.level = nn.LayerNorm(8, eps=1e-6)
        self.makers = nn.ModuleList(
            nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4)) for _ in range(4)
        )
        self.judge = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))

    def inputs(self) -> tuple[Tensor, ...]:
        points = (torch.rand(1, 3, 2) * torch.tensor((96.0, 72.0))).round()
        return torch.randn(1, 32, 8, 8), points, torch.randint(0, 2, (1, 3))

    def encoded(self, share: Tensor) -> Tensor:
        angles = (share * 2 - 1) @ self.waves * math.tau
        return torch.cat((angles.sin(), angles.cos()), -1)

    def prompts(self, points: Tensor, labels: Tensor) -> Tensor:
        points = points if self.slip == "not_scaled" else points * (128 / 96)
        points = points if self.slip == "no_half" else points + 0.5
        if self.slip != "no_padding":
            points = torch.cat((points, torch.zeros(1, 1, 2)), 1)
            labels = torch.cat((labels, torch.full((1, 1), -1)), 1)
        there = (labels >= 0)[..., None].float()
        known = self.encoded(points / 128) + self.labels(labels.clamp(min=0))
        return known * there + self.nothing.weight * (1 - there)

    def forward(self, seen: Tensor, points: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        steps = (torch.arange(8) + 0.5) / 8
        down, right = torch.meshgrid(steps, steps, indexing="ij")
        place = self.encoded(torch.stack((right, down), -1)).view(1, 64, 32)
        token = torch.cat((self.tokens.weight[None], self.prompts(points, labels)), 1)
        x, y = token, seen.flatten(2).transpose(1, 2) + self.dense.weight
        for layer in self.layers:
            x, y = layer(x, y, token, place)
        x = self.norm(x + self.final(x + token, y + place, y))
        y = self.up(y.transpose(1, 2).unflatten(2, (8, 8)))
        y = F.gelu(self.level(y.permute(0, 2, 3, 1)).permute(0, 3, 1, 2))
        y = F.gelu(self.more(y))
        made = torch.stack([make(x[:, i + 1]) for i, make in enumerate(self.makers)], 1)
        masks = (made @ y.flatten(2)).unflatten(2, (32, 32))
        masks = F.interpolate(masks, (128, 128), mode="bilinear", align_corners=False)
        masks = masks if self.slip == "no_crop" else masks[:, :, :96]
        masks = F.interpolate(masks, (72, 96), mode="bilinear", align_corners=False)
        chosen = slice(0, 3) if self.slip == "first_masks" else slice(1, 4)
        return masks[:, chosen], self.judge(x[:, 0])[:, chosen]


class PointPillars(Subject):
    """Boxes from a laser's points: columns of the ground, a picture of them, anchors of two directions."""

    SLIPS = {
        "intensity": "intensities are 0..255 as the sensor has them, not 0..1",
        "scatter_axes": "columns are put at x and y of the picture, not at y and x",
        "mean_of_all": "the mean of a column's points is over all its slots, also the empty ones",
        "no_mask": "empty slots are not set to nought again after offsets were added",
        "size_order": "lengths and widths of boxes are exchanged",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.point, self.norm = nn.Linear(9, 16, bias=False), nn.BatchNorm1d(16, 1e-3)
        self.a, self.b = conv(16, 16, 3, 2, 1e-3), conv(16, 16, 3, 1, 1e-3)
        self.c, self.d = conv(16, 24, 3, 2, 1e-3), conv(24, 24, 3, 1, 1e-3)
        self.near = nn.Sequential(nn.ConvTranspose2d(16, 16, 1), nn.BatchNorm2d(16, 1e-3))
        self.far = nn.Sequential(nn.ConvTranspose2d(24, 16, 2, 2), nn.BatchNorm2d(16, 1e-3))
        self.kinds, self.box = nn.Conv2d(32, 2, 1), nn.Conv2d(32, 14, 1)
        self.turn = nn.Conv2d(32, 4, 1)

    def prepare(self) -> None:
        fit(self)
        with torch.no_grad():
            self.norm.running_var.mul_(10)
            self.box.weight.mul_(0.4)
            self.box.weight.view(2, 7, -1)[:, 3:6].mul_(0.15)
            self.kinds.weight.mul_(2)

    def inputs(self) -> tuple[Tensor, ...]:
        place = torch.randperm(256)[:24]
        cells = torch.stack((place // 16, place % 16), 1)
        corner = cells.flip(1)[:, None] * 0.5 + torch.tensor((0.0, -4.0))
        ground = corner + torch.rand(24, 8, 2) * 0.5
        height = torch.randn(24, 8, 1) * 0.4 - 1
        points = torch.cat((ground, height, (torch.rand(24, 8, 1) * 255).round()), -1)
        count = torch.randint(2, 9, (24,))
        return points * (torch.arange(8) < count[:, None])[..., None], count, cells

    def columns(self, points: Tensor, count: Tensor, cells: Tensor) -> Tensor:
        if self.slip != "intensity":
            points = points / torch.tensor((1.0, 1.0, 1.0, 255.0))
        place, many = points[..., :3], count.view(-1, 1, 1).float()
        total = place.sum(1, keepdim=True)
        mean = total / (8 if self.slip == "mean_of_all" else many)
        centre = (cells.flip(1) + 0.5) * 0.5 + torch.tensor((0.0, -4.0))
        x = torch.cat((points, place - mean, place[..., :2] - centre[:, None]), -1)
        if self.slip != "no_mask":
            x = x * (torch.arange(8) < count[:, None])[..., None].float()
        x = self.norm(self.point(x).transpose(1, 2))
        return F.relu(x).max(2)[0]

    def anchors(self) -> Tensor:
        steps = torch.arange(8) + 0.5
        y, x, turn = torch.meshgrid(steps - 4, steps, torch.arange(2) * 1.57, indexing="ij")
        size = torch.tensor((3.9, 1.6, 1.56)).expand(*x.shape, 3)
        place = torch.stack((x, y, torch.full_like(x, -1.0)), -1)
        return torch.cat((place, size, turn[..., None]), -1).view(-1, 7)

    def decoded(self, y: Tensor, turn: Tensor) -> Tensor:
        y, turn = (part.permute(0, 2, 3, 1).reshape(1, 128, -1) for part in (y, turn))
        anchors = self.anchors()
        size = anchors[:, 3:6]
        wide = size[:, :2].pow(2).sum(-1, keepdim=True).sqrt().expand(-1, 2)
        place = y[..., :3] * torch.cat((wide, size[:, 2:]), -1) + anchors[:, :3]
        size = y[..., 3:6].exp() * size
        size = size[..., [1, 0, 2]] if self.slip == "size_order" else size
        back = (turn[..., 1:] > turn[..., :1]).float() * math.pi
        return torch.cat((place, size, y[..., 6:] + anchors[:, 6:] + back), -1)

    def forward(self, points: Tensor, count: Tensor, cells: Tensor) -> tuple[Tensor, Tensor]:
        x = self.columns(points, count, cells)
        row, column = cells.unbind(1)
        spot = column * 16 + row if self.slip == "scatter_axes" else row * 16 + column
        x = torch.zeros(16, 256).scatter(1, spot.expand(16, 24), x.t()).view(1, 16, 16, 16)
        near = F.relu(self.b(F.relu(self.a(x))))
        far = F.relu(self.d(F.relu(self.c(near))))
        x = torch.cat((F.relu(self.near(near)), F.relu(self.far(far))), 1)
        scores = self.kinds(x).permute(0, 2, 3, 1).reshape(1, 128).sigmoid()
        return self.decoded(self.box(x), self.turn(x)), scores


def film(cin: int, cout: int, size: tuple, stride: tuple = (1, 1, 1)) -> nn.Module:
    pad = tuple(each // 2 for each in size)
    return nn.Sequential(nn.Conv3d(cin, cout, size, stride, pad, bias=False), nn.BatchNorm3d(cout))


class FilmBlock(nn.Module):
    """A residual block over frames."""

    def __init__(self, cin: int, cout: int, time: int, step: int) -> None:
        super().__init__()
        self.a, self.b = film(cin, cout, (time, 1, 1)), film(cout, cout, (1, 3, 3), (1, step, step))
        self.c, self.old = film(cout, cout, (1, 1, 1)), film(cin, cout, (1, 1, 1), (1, step, step))

    def forward(self, x: Tensor) -> Tensor:
        y = self.c(F.relu(self.b(F.relu(self.a(x)))))
        return F.relu(y + self.old(x))


class SlowFast(Subject):
    """Actions in films: few frames with many channels, many frames with few; the scores of two clips."""

    SLIPS = {
        "reshape": "frames and colours change places by a reshape, not by a transposition",
        "every_fourth": "the slow way sees each fourth frame, not four from the first to the last",
        "bgr": "colours are in the order of BGR, the network was trained on RGB",
        "fuse_order": "what comes from the fast way is joined in front of the slow, not behind",
        "mean_first": "the clips' numbers are averaged before the softmax, not after it",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.slow, self.fast = film(3, 12, (1, 5, 5), (1, 2, 2)), film(3, 6, (5, 5, 5), (1, 2, 2))
        self.across = nn.ModuleList(film(cin, 8, (5, 1, 1), (4, 1, 1)) for cin in (6, 8))
        self.slows = nn.ModuleList(
            FilmBlock(*size) for size in ((20, 16, 1, 2), (24, 24, 3, 2), (24, 24, 3, 1))
        )
        self.fasts = nn.ModuleList(
            FilmBlock(*size) for size in ((6, 8, 3, 2), (8, 12, 3, 2), (12, 12, 3, 1))
        )
        self.head = nn.Linear(36, 9)

    def prepare(self) -> None:
        fit(self)
        with torch.no_grad():
            self.head.weight.mul_(2)

    def inputs(self) -> tuple[Tensor, ...]:
        tint = torch.rand(2, 1, 3, 1, 1) * 0.6 + 0.4
        light = torch.rand(2, 16, 1, 1, 1) * 0.5 + 0.5
        return ((torch.rand(2, 16, 3, 24, 24) * tint * light * 255).round(),)

    def fused(self, slow: Tensor, fast: Tensor, number: int) -> Tensor:
        parts = slow, F.relu(self.across[number](fast))
        return torch.cat(parts[::-1] if self.slip == "fuse_order" else parts, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = x[:, :, [2, 1, 0]] if self.slip == "bgr" else x
        x = (x / 255 - 0.45) / 0.225
        x = x.reshape(2, 3, 16, 24, 24) if self.slip == "reshape" else x.transpose(1, 2)
        chosen = [0, 4, 8, 12] if self.slip == "every_fourth" else [0, 5, 10, 15]
        slow, fast = F.relu(self.slow(x[:, :, chosen])), F.relu(self.fast(x))
        for number, (a, b) in enumerate(zip(self.slows, self.fasts, strict=True)):
            slow = self.fused(slow, fast, number) if number < 2 else slow
            slow, fast = a(slow), b(fast)
        y = self.head(torch.cat((slow.mean((2, 3, 4)), fast.mean((2, 3, 4))), 1))
        if self.slip == "mean_first":
            return y.mean(0, keepdim=True).softmax(-1)
        return y.softmax(-1).mean(0, keepdim=True)


class RecurrentLayer(nn.Module):
    """An LSTM and a small net, each added to what it reads; the whole is brought to a length."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.project = nn.LSTM(24, 32, batch_first=True), nn.Linear(32, 24)
        self.wide, self.thin = nn.Linear(24, 48), nn.Linear(48, 24)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.project(self.lstm(x)[0])
        y = self.wide(x)
        x = x + self.thin(y * (y - 1).sigmoid())
        return x * (x.pow(2).mean(-1, keepdim=True) + 0.25).rsqrt()


class Transducer(Subject):
    """The next piece of words at each frame, from sound and the last two pieces."""

    SLIPS = {
        "int16": "samples are -1..1, features were made of 16-bit numbers in training",
        "no_emphasis": "high tones are not emphasized before the spectrum is taken",
        "window": "the window is periodic as torch has it, not symmetrical",
        "magnitude": "bands are sums of magnitudes, not of powers",
        "join_relu": "the two sides are joined by ReLU, not by tanh",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        angles = torch.arange(33)[:, None] * torch.arange(64) * (math.tau / 64)
        window = torch.hann_window(64, periodic=slip == "window")
        basis = torch.cat((angles.cos(), -angles.sin())) * window
        self.register_buffer("basis", basis[:, None], persistent=False)
        ends = torch.linspace(0, 1, 18).pow(1.5) * 32
        rise = (torch.arange(33)[:, None] - ends[:-2]) / (ends[1:-1] - ends[:-2])
        fall = (ends[2:] - torch.arange(33)[:, None]) / (ends[2:] - ends[1:-1])
        bands = torch.minimum(rise, fall).clamp(min=0) + 0.01
        self.register_buffer("bands", bands, persistent=False)
        self.a, self.b = nn.Conv1d(16, 24, 3, padding=1), nn.Conv1d(24, 24, 3, 2, 1)
        self.layers = nn.ModuleList(RecurrentLayer() for _ in range(2))
        self.words, self.context = nn.Embedding(20, 24), nn.Conv1d(24, 24, 2, groups=6)
        self.heard, self.said = nn.Linear(24, 32), nn.Linear(24, 32)
        self.head = nn.Linear(32, 20)

    def prepare(self) -> None:
        with torch.no_grad():
            self.heard.weight.mul_(0.6)
            self.said.weight.mul_(0.6)
            self.head.weight.mul_(2)

    def inputs(self) -> tuple[Tensor, ...]:
        time = torch.arange(704)
        tones = (time * (torch.rand(2, 1) * 0.4 + 0.05)).sin() + (time * torch.rand(2, 1)).cos()
        sound = tones * torch.rand(2, 1) * 0.3 + torch.randn(2, 704) * 0.02
        return sound.clamp(-1, 1), torch.randint(0, 20, (2, 2))

    def features(self, x: Tensor) -> Tensor:
        x = x if self.slip == "int16" else x * 32768
        if self.slip != "no_emphasis":
            x = torch.cat((x[:, :1], x[:, 1:] - 0.97 * x[:, :-1]), 1)
        real, imaginary = F.conv1d(x[:, None], self.basis, stride=32).chunk(2, 1)
        power = real.pow(2) + imaginary.pow(2)
        power = (power + 1e-6).sqrt() if self.slip == "magnitude" else power
        bands = (power.transpose(1, 2) @ self.bands).clamp(min=1e-5).log()
        return (bands - 17) / 4

    def forward(self, x: Tensor, last: Tensor) -> Tensor:
        y = self.features(x).transpose(1, 2)
        y = F.silu(self.b(F.silu(self.a(y)))).transpose(1, 2)
        for layer in self.layers:
            y = layer(y)
        said = F.relu(self.context(self.words(last).transpose(1, 2))).transpose(1, 2)
        both = self.heard(y) + self.said(said)
        both = F.relu(both) if self.slip == "join_relu" else both.tanh()
        return self.head(both).log_softmax(-1)


def repeated_in_turn(x: Tensor, times: int) -> Tensor:
    return x.repeat(1, times, 1, 1)


class Phi4(Rewritten):
    """A decoder of the kind Phi 4, packed as Phi 3: the word after each prompt of a batch filled up at its right."""

    SLIPS = {
        "gate_up": "the packed layer of the MLP is read as value and gate, it is gate and value",
        "repeat": "the few heads of k and v are repeated all in turn, not each beside itself",
        "theta": "the base of the rotation is 10000 as ever, the settings have 250000",
        "tied": "the head has the words' vectors as its weights, it has some of its own",
        "last_place": "the last place is read also where it is padding",
    }

    def build(self) -> nn.Module:
        theta = 10000.0 if self.slip == "theta" else 250000.0
        config = hf.Phi3Config(
            vocab_size=50,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=32,
            original_max_position_embeddings=32,
            rope_parameters={"rope_type": "default", "rope_theta": theta},
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=0,
            **EAGER,
        )
        return hf.Phi3ForCausalLM(config)

    def prepare(self) -> None:
        with torch.no_grad():
            self.net.model.embed_tokens.weight.mul_(2)
            self.net.lm_head.weight.mul_(2)
            if self.slip == "tied":
                self.net.lm_head.weight.copy_(self.net.model.embed_tokens.weight)
            for layer in self.net.model.layers:
                if self.slip == "gate_up":
                    gate, value = layer.mlp.gate_up_proj.weight.chunk(2)
                    layer.mlp.gate_up_proj.weight.copy_(torch.cat((value, gate)))

    def inputs(self) -> tuple[Tensor, ...]:
        mask = torch.arange(10) < torch.tensor((4, 6, 10))[torch.randperm(3), None]
        return torch.randint(3, 50, (3, 10)) * mask, mask.long()

    def logits(self, ids: Tensor, mask: Tensor) -> Tensor:
        steps = torch.arange(10)
        hidden = (steps[:, None] < steps) | (mask == 0)[:, None, None]
        hidden = torch.zeros(3, 1, 10, 10).masked_fill(hidden, -1e9)
        given = {"attention_mask": hidden, "position_ids": steps[None], "use_cache": False}
        return self.net(input_ids=ids, **given).logits

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        if self.slip == "repeat":
            with patch.object(modeling_phi3, "repeat_kv", repeated_in_turn):
                y = self.logits(ids, mask)
        else:
            y = self.logits(ids, mask)
        if self.slip == "last_place":
            return y[:, -1]
        return y[torch.arange(3), mask.sum(1) - 1]


class Splade(Rewritten):
    """A text as weights of the vocabulary's words, for search: the largest of all tokens, as logarithms."""

    SLIPS = {
        "all_tokens": "the padding's tokens are not left out of the largest",
        "padding_seen": "attention sees the padding",
        "summed": "the tokens' weights are summed as in the first version, not the largest taken",
        "no_log": "the logarithm is left out",
        "gamma_beta": "the norms' weights are not found under their old names: they stay one and nought",
    }

    def build(self) -> nn.Module:
        config = hf.DistilBertConfig(
            vocab_size=60,
            dim=32,
            hidden_dim=64,
            n_layers=3,
            n_heads=4,
            max_position_embeddings=16,
            **EAGER,
        )
        return hf.DistilBertForMaskedLM(config)

    def prepare(self) -> None:
        with torch.no_grad():
            for part in self.net.modules():
                if isinstance(part, nn.LayerNorm) and self.slip == "gamma_beta":
                    part.weight.fill_(1)
                    part.bias.zero_()

    def inputs(self) -> tuple[Tensor, ...]:
        mask = torch.arange(10) < torch.randint(4, 10, (3, 1))
        return torch.randint(3, 60, (3, 10)) * mask, mask.long()

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        net = self.net
        hidden = torch.zeros(3, 1, 10, 10)
        if self.slip != "padding_seen":
            hidden = hidden.masked_fill((mask == 0)[:, None, None], -1e9)
        y = net.distilbert.embeddings(ids)
        y = net.distilbert.transformer(y, attention_mask=hidden).last_hidden_state
        y = net.vocab_layer_norm(net.activation(net.vocab_transform(y)))
        y = F.relu(net.vocab_projector(y))
        y = y if self.slip == "no_log" else (1 + y).log()
        y = y if self.slip == "all_tokens" else y * mask[..., None]
        return y.sum(1) if self.slip == "summed" else y.max(1)[0]


class SasLayer(nn.Module):
    def __init__(self, slip: str) -> None:
        super().__init__()
        self.slip = slip
        self.q, self.k, self.v, self.out = (nn.Linear(24, 24) for _ in range(4))
        self.first, self.second = nn.Linear(24, 24), nn.Linear(24, 24)
        self.before, self.between = nn.LayerNorm(24, 1e-8), nn.LayerNorm(24, 1e-8)

    def forward(self, x: Tensor, mask: Tensor, there: Tensor) -> Tensor:
        normed = self.before(x)
        q, k, v = (heads(part, 2) for part in (self.q(normed), self.k(x), self.v(x)))
        share = (q @ k.transpose(2, 3) / math.sqrt(12) + mask).softmax(-1)
        y = self.out((share @ v).transpose(1, 2).flatten(2))
        x = self.between(y + (x if self.slip == "usual_residual" else normed))
        return (x + self.second(F.relu(self.first(x)))) * there


class SasRec(Subject):
    """What somebody buys next: a history that is filled up at its left, and scores of candidates."""

    SLIPS = {
        "not_transposed": "square weights are loaded as TensorFlow has them, not transposed",
        "no_causal": "items see those that came after them",
        "usual_residual": "attention is added to what came before its norm, here it is to the normed",
        "padding_seen": "items see the empty places at the left",
        "candidates_off": "candidates are numbered from nought, though row nought is for empty places",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.items, self.places = nn.Embedding(31, 24), nn.Embedding(10, 24)
        self.layers = nn.ModuleList(SasLayer(slip) for _ in range(2))
        self.norm = nn.LayerNorm(24, 1e-8)

    def prepare(self) -> None:
        with torch.no_grad():
            self.items.weight.mul_(0.5)
            self.items.weight[0].zero_()
            if self.slip == "not_transposed":
                for part in self.layers.modules():
                    if isinstance(part, nn.Linear):
                        part.weight.copy_(part.weight.t().clone())

    def inputs(self) -> tuple[Tensor, ...]:
        there = torch.arange(10) >= torch.randint(1, 6, (4, 1))
        return torch.randint(1, 31, (4, 10)) * there, torch.randint(0, 30, (4, 7))

    def forward(self, items: Tensor, candidates: Tensor) -> Tensor:
        there, steps = items > 0, torch.arange(10)
        seen = (items >= 0 if self.slip == "padding_seen" else there)[:, None, None]
        if self.slip != "no_causal":
            seen = seen & (steps[:, None] >= steps)
        mask = torch.zeros(seen.shape).masked_fill(~seen, -1e9)
        kept = there[..., None].float()
        x = (self.items(items) * math.sqrt(24) + self.places.weight) * kept
        for layer in self.layers:
            x = layer(x, mask, kept)
        rows = candidates if self.slip == "candidates_off" else candidates + 1
        return (self.items(rows) @ self.norm(x)[:, -1, :, None])[..., 0]


class Grn(nn.Module):
    """The fusion transformer's small net: two layers, a gate, a norm of the sum with what it reads."""

    def __init__(self, slip: str, cin: int, cout: int, given: bool = False) -> None:
        super().__init__()
        self.slip = slip
        self.first, self.second = nn.Linear(cin, 16), nn.Linear(16, 16)
        self.given = nn.Linear(16, 16, bias=False) if given else None
        self.skip = nn.Linear(cin, cout) if cin != cout else nn.Identity()
        self.gate = Gate(slip, 16, cout)

    def forward(self, x: Tensor, given: Tensor | None = None) -> Tensor:
        y = self.first(x)
        y = y if given is None else y + self.given(given)[:, None]
        y = F.relu(y) if self.slip == "relu" else F.elu(y)
        return self.gate(self.second(y), self.skip(x))


class Gate(nn.Module):
    def __init__(self, slip: str, cin: int, cout: int) -> None:
        super().__init__()
        self.slip, self.both, self.norm = slip, nn.Linear(cin, 2 * cout), nn.LayerNorm(cout)

    def forward(self, x: Tensor, old: Tensor) -> Tensor:
        y = F.glu(self.both(x), -1)
        return old + self.norm(y) if self.slip == "norm_first" else self.norm(old + y)


class Selection(nn.Module):
    """A vector for each number of a step, and their sum by shares that a small net finds."""

    def __init__(self, slip: str, count: int) -> None:
        super().__init__()
        self.slip = slip
        self.scale, self.base = (nn.Parameter(torch.randn(count, 16) * 0.5) for _ in range(2))
        self.share = Grn(slip, count * 16, count, given=True)
        self.parts = nn.ModuleList(Grn(slip, 16, 16) for _ in range(count))

    def forward(self, x: Tensor, given: Tensor) -> Tensor:
        x = x[..., None] * self.scale + self.base
        share = self.share(x.flatten(2), given).softmax(1 if self.slip == "time_axis" else -1)
        y = torch.stack([part(x[:, :, i]) for i, part in enumerate(self.parts)], 2)
        return (y * share[..., None]).sum(2)


class TemporalFusion(Subject):
    """Quantiles of sales to come: the fusion transformer, series brought to a scale of their own."""

    SLIPS = {
        "not_rescaled": "quantiles are not brought back to the scale of their series",
        "relu": "the small nets have ReLU, not ELU",
        "time_axis": "shares of variables are a softmax over time, not over variables",
        "fresh_state": "the decoder starts from the state of the statics, not where the encoder ended",
        "norm_first": "what the gates let through is normed before it is added, not after",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.kinds = nn.Embedding(6, 16)
        self.statics = nn.ModuleList(Grn(slip, 16, 16) for _ in range(4))
        self.past, self.future = Selection(slip, 3), Selection(slip, 2)
        self.encoder = nn.LSTM(16, 16, batch_first=True)
        self.decoder = nn.LSTM(16, 16, batch_first=True)
        self.after, self.enrich = Gate(slip, 16, 16), Grn(slip, 16, 16, given=True)
        self.q, self.k, self.v = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 8)
        self.out, self.seen = nn.Linear(8, 16, bias=False), Gate(slip, 16, 16)
        self.last, self.end = Grn(slip, 16, 16), Gate(slip, 16, 16)
        self.head = nn.Linear(16, 3)

    def inputs(self) -> tuple[Tensor, ...]:
        level = torch.rand(3, 1, 1) * 40 + 5
        sales = (torch.randn(3, 12, 1).cumsum(1) * 0.2 + 1).abs() * level
        known = torch.randn(3, 16, 2)
        past = torch.cat((sales, known[:, :12]), -1)
        return past, known[:, 12:], torch.randint(0, 6, (3,))

    def attention(self, x: Tensor) -> Tensor:
        """Return what coming steps see of those up to them: heads of their own, values in common."""
        q, k = heads(self.q(x[:, 12:]), 2), heads(self.k(x), 2)
        steps = torch.arange(16)
        mask = torch.zeros(4, 16).masked_fill(steps > steps[12:, None], -1e9)
        share = (q @ k.transpose(2, 3) / math.sqrt(8) + mask).softmax(-1)
        return self.out((share @ self.v(x)[:, None]).mean(1))

    def forward(self, past: Tensor, future: Tensor, kind: Tensor) -> Tensor:
        sales = past[..., :1]
        level = sales.mean(1, keepdim=True)
        spread = (sales - level).pow(2).mean(1, keepdim=True).sqrt() + 1e-5
        kind = self.kinds(kind)
        chosen, hidden, cell, rich = (part(kind) for part in self.statics)
        state = hidden[None], cell[None]
        old = self.past(torch.cat(((sales - level) / spread, past[..., 1:]), -1), chosen)
        new = self.future(future, chosen)
        y, ended = self.encoder(old, state)
        more, _ = self.decoder(new, state if self.slip == "fresh_state" else ended)
        y = self.after(torch.cat((y, more), 1), torch.cat((old, new), 1))
        late = y[:, 12:]
        y = self.enrich(y, rich)
        y = self.last(self.seen(self.attention(y), y[:, 12:]))
        y = self.head(self.end(y, late))
        return y if self.slip == "not_rescaled" else y * spread + level


class Length(nn.Module):
    """The norm by root mean square of queries and keys."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))

    def forward(self, x: Tensor) -> Tensor:
        return x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt() * self.weight


class Stream(nn.Module):
    """The part of a double block that is of pictures alone, or of texts alone."""

    def __init__(self) -> None:
        super().__init__()
        self.change, self.qkv, self.out = nn.Linear(32, 192), nn.Linear(32, 96), nn.Linear(32, 32)
        self.q, self.k = Length(), Length()
        self.wide, self.thin = nn.Linear(32, 64), nn.Linear(64, 32)

    def read(self, x: Tensor, change: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        q, k, v = (two(part) for part in self.qkv(moved(x, *change[:2])).split(32, -1))
        return self.q(q), self.k(k), v

    def written(self, x: Tensor, seen: Tensor, change: tuple[Tensor, ...]) -> Tensor:
        x = x + change[2] * self.out(seen)
        y = self.wide(moved(x, *change[3:5]))
        return x + change[5] * self.thin(F.gelu(y, approximate="tanh"))


def moved(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return F.layer_norm(x, (32,), eps=1e-6) * (1 + scale) + shift


def two(x: Tensor) -> Tensor:
    return x.reshape(1, -1, 2, 16).transpose(1, 2)


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).reshape(1, 2, -1, 16)


def mixed(q: Tensor, k: Tensor, v: Tensor, waves: tuple[Tensor, Tensor]) -> Tensor:
    q, k = turned(q, *waves), turned(k, *waves)
    share = (q @ k.transpose(2, 3) / 4).softmax(-1)
    return (share @ v).transpose(1, 2).reshape(1, -1, 32)


class FluxDenoiser(Subject):
    """A step of a rectified flow: tokens of a picture and a text together, places by rotation."""

    SLIPS = {
        "time_1000": "the time enters as 0..1, not in thousandths",
        "no_guidance": "the strength of guidance is not added to what the blocks are conditioned on",
        "final_order": "the last norm's scale is read before its shift, as another library stores them",
        "pack_order": "a patch is packed as row, column, channel, not as channel, row, column",
        "no_shift": "the latent is divided by its scale for the decoder, but not shifted",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.image, self.text = nn.Linear(16, 32), nn.Linear(24, 32)
        self.time, self.guided, self.pooled = (
            nn.Sequential(nn.Linear(cin, 32), nn.SiLU(), nn.Linear(32, 32)) for cin in (32, 32, 12)
        )
        self.streams = nn.ModuleList(Stream() for _ in range(2))
        self.change, self.first = nn.Linear(32, 96), nn.Linear(32, 160)
        self.q, self.k = Length(), Length()
        self.second = nn.Linear(96, 32)
        self.final, self.head = nn.Linear(32, 64), nn.Linear(32, 16)

    def prepare(self) -> None:
        with torch.no_grad():
            for part in (self.change, self.final, *(each.change for each in self.streams)):
                part.weight.mul_(0.5)

    def inputs(self) -> tuple[Tensor, ...]:
        time = torch.rand(1) * 0.6 + 0.4
        text, pooled = torch.randn(1, 5, 24), torch.randn(1, 12)
        return torch.randn(1, 4, 8, 8), text, pooled, time, torch.rand(1) * 3 + 2

    def encoded(self, number: Tensor) -> Tensor:
        slow = torch.exp(-math.log(10000) * torch.arange(16) / 16)
        number = number if self.slip == "time_1000" else number * 1000
        angles = number[:, None] * slow
        return torch.cat((angles.cos(), angles.sin()), -1)

    def waves(self) -> tuple[Tensor, Tensor]:
        """Return cosines and sines of five words, which have no place, and of the picture's patches."""
        down, right = torch.meshgrid(torch.arange(4.0), torch.arange(4.0), indexing="ij")
        places = torch.stack((torch.zeros(4, 4), down, right), -1).view(16, 3)
        places = torch.cat((torch.zeros(5, 3), places))
        angles = [
            places[:, i : i + 1] / 10000 ** (torch.arange(0, width, 2) / width)
            for i, width in enumerate((4, 6, 6))
        ]
        angles = torch.cat(angles, -1)
        return angles.cos(), angles.sin()

    def packed(self, x: Tensor) -> Tensor:
        order = (0, 2, 4, 3, 5, 1) if self.slip == "pack_order" else (0, 2, 4, 1, 3, 5)
        return x.view(1, 4, 4, 2, 4, 2).permute(*order).reshape(1, 16, 16)

    def unpacked(self, y: Tensor) -> Tensor:
        if self.slip == "pack_order":
            return y.view(1, 4, 4, 2, 2, 4).permute(0, 5, 1, 3, 2, 4).reshape(1, 4, 8, 8)
        return y.view(1, 4, 4, 4, 2, 2).permute(0, 3, 1, 4, 2, 5).reshape(1, 4, 8, 8)

    def forward(self, x: Tensor, text: Tensor, pooled: Tensor, time: Tensor, by: Tensor) -> Tensor:
        given = self.time(self.encoded(time)) + self.pooled(pooled)
        if self.slip != "no_guidance":
            given = given + self.guided(self.encoded(by))
        given, waves = F.silu(given)[:, None], self.waves()
        parts = self.text(text), self.image(self.packed(x))
        changes = [stream.change(given).split(32, -1) for stream in self.streams]
        each = list(zip(self.streams, parts, changes, strict=True))
        read = [stream.read(part, change) for stream, part, change in each]
        q, k, v = (torch.cat(pair, 2) for pair in zip(*read, strict=True))
        seen = mixed(q, k, v, waves).split((5, 16), 1)
        y = torch.cat(
            [s.written(p, y, c) for (s, p, c), y in zip(each, seen, strict=True)],
            1,
        )
        shift, scale, gate = self.change(given).split(32, -1)
        qkv, wide = self.first(moved(y, shift, scale)).split((96, 64), -1)
        q, k, v = (two(part) for part in qkv.split(32, -1))
        seen = mixed(self.q(q), self.k(k), v, waves)
        y = y + gate * self.second(torch.cat((seen, F.gelu(wide, approximate="tanh")), -1))
        shift, scale = self.final(given).split(32, -1)
        if self.slip == "final_order":
            shift, scale = scale, shift
        y = self.unpacked(self.head(moved(y[:, 5:], shift, scale)))
        latent = (x - 0.25 * y) / 0.3611
        return latent if self.slip == "no_shift" else latent + 0.1159


SUBJECTS = (
    InceptionV3,
    YoloSeg,
    U2Net,
    SamDecoder,
    PointPillars,
    SlowFast,
    Transducer,
    Phi4,
    Splade,
    SasRec,
    TemporalFusion,
    FluxDenoiser,
)
