"""Networks on their way to phones, browsers and servers, and what people most often get wrong on that way."""

import math
from unittest.mock import patch

import torch
import torch.nn.functional as F
import transformers as hf
from ported import calm, conv, heads, positions
from rewritten import EAGER, MEAN, STD, Rewritten, imagenet
from torch import Tensor, nn
from transformers.models.gpt_neox import modeling_gpt_neox

from subjects import Subject


class DecoupledHead(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = conv(width, 16, 1, 1, 1e-3)
        self.kind, self.place = conv(16, 16, 3, 1, 1e-3), conv(16, 16, 3, 1, 1e-3)
        self.kinds, self.box = nn.Conv2d(16, 4, 1), nn.Conv2d(16, 4, 1)
        self.objectness = nn.Conv2d(16, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.stem(x))
        kind, place = F.silu(self.kind(x)), F.silu(self.place(x))
        return torch.cat((self.box(place), self.objectness(place), self.kinds(kind)), 1)


class YoloX(Subject):
    """A detector without anchors: slices of pixels in, a head of two branches, corners and scores out."""

    SLIPS = {
        "rgb": "pixels stay in the order of RGB, the network was trained on BGR",
        "black": "the picture is filled up with black, not with the grey 114",
        "focus_order": "the four slices of pixels are joined row by row, not column by column",
        "grid_axes": "rows and columns of the cells are exchanged where boxes are decoded",
        "no_objectness": "scores of classes are not multiplied by the one of there being an object",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.a, self.b = conv(12, 12, 3, 1, 1e-3), conv(12, 16, 3, 2, 1e-3)
        self.c, self.d = conv(16, 16, 3, 2, 1e-3), conv(16, 24, 3, 2, 1e-3)
        self.narrow, self.wide = conv(24, 12, 1, 1, 1e-3), conv(36, 24, 1, 1, 1e-3)
        self.fine, self.coarse = DecoupledHead(16), DecoupledHead(24)

    def prepare(self) -> None:
        calm(self)
        with torch.no_grad():
            self.a[1].running_var.mul_(3e4)

    def inputs(self) -> tuple[Tensor, ...]:
        tint = torch.tensor((255.0, 190.0, 120.0)).view(1, 3, 1, 1)
        return ((torch.rand(1, 3, 48, 64) * tint).round(),)

    def focus(self, x: Tensor) -> Tensor:
        above, below = x[:, :, ::2], x[:, :, 1::2]
        corners = [above[..., ::2], below[..., ::2], above[..., 1::2], below[..., 1::2]]
        if self.slip == "focus_order":
            corners[1], corners[2] = corners[2], corners[1]
        return torch.cat(corners, 1)

    def decoded(self, y: Tensor, stride: int) -> tuple[Tensor, Tensor]:
        rows, columns = y.shape[2:]
        down, right = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        cells = (down, right) if self.slip == "grid_axes" else (right, down)
        y = y.flatten(2).transpose(1, 2)
        centre = (y[..., :2] + torch.stack(cells, -1).view(-1, 2)) * stride
        half = y[..., 2:4].exp() * stride / 2
        scores = y[..., 5:].sigmoid()
        if self.slip != "no_objectness":
            scores = scores * y[..., 4:5].sigmoid()
        return torch.cat((centre - half, centre + half), -1), scores

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = x if self.slip == "rgb" else x[:, [2, 1, 0]]
        x = F.pad(x, (0, 0, 0, 16), value=0.0 if self.slip == "black" else 114.0)
        fine = F.silu(self.c(F.silu(self.b(F.silu(self.a(self.focus(x)))))))
        y = F.silu(self.narrow(F.silu(self.d(fine))))
        pooled = (F.max_pool2d(y, size, 1, size // 2) for size in (3, 5))
        coarse = F.silu(self.wide(torch.cat((y, *pooled), 1)))
        levels = self.decoded(self.fine(fine), 8), self.decoded(self.coarse(coarse), 16)
        boxes, scores = zip(*levels, strict=True)
        return torch.cat(boxes, 1), torch.cat(scores, 1)


class BlazeBlock(nn.Module):
    def __init__(self, slip: str, cin: int, cout: int, stride: int) -> None:
        super().__init__()
        self.slip, self.stride, self.more = slip, stride, cout - cin
        self.deep = nn.Conv2d(cin, cin, 5, stride, 2 if stride == 1 else 0, groups=cin)
        self.thin = nn.Conv2d(cin, cout, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = x
        if self.stride == 2:
            y = F.pad(x, (2, 2, 2, 2) if self.slip == "symmetric" else (1, 2, 1, 2))
            x = F.max_pool2d(x, 2)
        new = (self.more, 0) if self.slip == "channel_pad" else (0, self.more)
        return F.relu(self.thin(self.deep(y)) + F.pad(x, (0, 0, 0, 0, *new)))


class BlazeFace(Subject):
    """Faces for a phone, with weights of TFLite: blocks that add channels of zeros, boxes about fixed anchors."""

    SLIPS = {
        "range": "pixels are scaled to 0..1, not to -1..1",
        "symmetric": "strided convolutions pad both ends alike, SAME pads the end more",
        "channel_pad": "the zeros of a block's new channels come before the old ones",
        "other_scale": "offsets are divided by the picture's size of the larger model",
        "box_axes": "boxes are left as y, x, y, x",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.stem = nn.Conv2d(3, 8, 5, 2)
        self.blocks = nn.ModuleList(
            BlazeBlock(slip, *size)
            for size in ((8, 8, 1), (8, 12, 2), (12, 16, 2), (16, 16, 1), (16, 24, 2))
        )
        self.scores = nn.ModuleList((nn.Conv2d(16, 2, 1), nn.Conv2d(24, 4, 1)))
        self.places = nn.ModuleList((nn.Conv2d(16, 16, 1), nn.Conv2d(24, 32, 1)))

    def prepare(self) -> None:
        with torch.no_grad():
            for block in self.blocks:
                block.thin.weight.mul_(0.5)
            for part in self.places:
                part.weight.mul_(4)

    def inputs(self) -> tuple[Tensor, ...]:
        return ((torch.rand(1, 64, 64, 3) * 255).round(),)

    def anchors(self) -> Tensor:
        found = []
        for cells, count in ((8, 2), (4, 4)):
            steps = (torch.arange(cells) + 0.5) / cells
            down, right = torch.meshgrid(steps, steps, indexing="ij")
            found.append(torch.stack((right, down), -1).view(-1, 2).repeat_interleave(count, 0))
        return torch.cat(found)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = x.permute(0, 3, 1, 2)
        x = x / 255 if self.slip == "range" else x / 127.5 - 1
        x = F.pad(x, (2, 2, 2, 2) if self.slip == "symmetric" else (1, 2, 1, 2))
        x = F.relu(self.stem(x))
        for block in self.blocks[:-1]:
            x = block(x)
        levels = x, self.blocks[-1](x)
        raw = torch.cat(
            [
                p(y).permute(0, 2, 3, 1).reshape(1, -1, 8)
                for p, y in zip(self.places, levels, strict=True)
            ],
            1,
        )
        scores = torch.cat(
            [
                s(y).permute(0, 2, 3, 1).reshape(1, -1)
                for s, y in zip(self.scores, levels, strict=True)
            ],
            1,
        )
        raw = raw / (128 if self.slip == "other_scale" else 64)
        anchors = self.anchors()
        centre, half = raw[..., :2] + anchors, raw[..., 2:4] / 2
        boxes = torch.cat((centre - half, centre + half), -1)
        if self.slip == "box_axes":
            boxes = boxes[..., [1, 0, 3, 2]]
        points = raw[..., 4:].unflatten(-1, (2, 2)) + anchors[:, None]
        return boxes, points, scores.clamp(-100, 100).sigmoid()


class DeformableLayer(nn.Module):
    """Attention among queries, then to a few points of each level, which the query itself chooses."""

    def __init__(self, slip: str) -> None:
        super().__init__()
        self.slip = slip
        self.qk, self.v, self.out = nn.Linear(24, 48), nn.Linear(24, 24), nn.Linear(24, 24)
        self.value, self.project = nn.Linear(24, 24), nn.Linear(24, 24)
        self.offsets, self.weights = nn.Linear(24, 16), nn.Linear(24, 8)
        self.wide, self.thin = nn.Linear(24, 48), nn.Linear(48, 24)
        self.norms = nn.ModuleList(nn.LayerNorm(24) for _ in range(3))

    def sampled(self, x: Tensor, centre: Tensor, levels: tuple[Tensor, ...]) -> Tensor:
        offsets = self.offsets(x).view(6, 2, 2, 2, 2)  # query, head, level, point, (x, y)
        weights = self.weights(x)
        if self.slip == "softmax_points":
            weights = weights.view(6, 2, 2, 2).softmax(-1)
        else:
            weights = weights.view(6, 2, 4).softmax(-1).view(6, 2, 2, 2)
        total = 0
        for number, level in enumerate(levels):
            rows, columns = level.shape[2:]
            value = self.value(level.flatten(2).transpose(1, 2))
            value = value.transpose(1, 2).reshape(2, 12, rows, columns)
            size = (rows, columns) if self.slip == "offset_axes" else (columns, rows)
            place = centre[0, :, None, None] + offsets[:, :, number] / torch.tensor(size)
            grid = (place * 2 - 1).transpose(0, 1)
            corners = self.slip == "corners"
            seen = F.grid_sample(value, grid, "bilinear", "zeros", align_corners=corners)
            total = total + (seen * weights[:, :, number].transpose(0, 1)[:, None]).sum(-1)
        return self.project(total.reshape(1, 24, 6).transpose(1, 2))

    def forward(self, x: Tensor, where: Tensor, centre: Tensor, levels: tuple) -> Tensor:
        q, k = (heads(part, 2) for part in self.qk(x + where).chunk(2, -1))
        seen = (q @ k.transpose(2, 3) / math.sqrt(12)).softmax(-1) @ heads(self.v(x), 2)
        x = self.norms[0](x + self.out(seen.transpose(1, 2).flatten(2)))
        x = self.norms[1](x + self.sampled(x + where, centre, levels))
        return self.norms[2](x + self.thin(F.relu(self.wide(x))))


class DeformableDecoder(Subject):
    """A detector of queries with deformable attention: corners in pixels and scores, for each query."""

    SLIPS = {
        "corners": "points are sampled with align_corners",
        "offset_axes": "offsets are divided by height and width, they are along width and height",
        "softmax_points": "weights are shares of the points of a level, not of all levels",
        "no_inverse": "the reference is added as it is, not by the inverse of the sigmoid",
        "target_sizes": "corners are multiplied by height and width, not by width and height",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.a, self.b = conv(3, 8, 3, 2), conv(8, 16, 3, 2)
        self.c, self.d = conv(16, 24, 3, 2), conv(24, 24, 3, 2)
        self.queries = nn.Parameter(torch.randn(2, 1, 6, 24))
        self.reference = nn.Linear(24, 2)
        self.layers = nn.ModuleList(DeformableLayer(slip) for _ in range(2))
        self.wide, self.box, self.kinds = nn.Linear(24, 24), nn.Linear(24, 4), nn.Linear(24, 5)

    def prepare(self) -> None:
        calm(self)
        with torch.no_grad():
            self.box.weight.mul_(0.3)
            for layer in self.layers:
                layer.offsets.weight.mul_(0.8)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.rand(1, 3, 64, 48),)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = F.relu(self.c(F.relu(self.b(F.relu(self.a(imagenet(x)))))))
        levels = x, F.relu(self.d(x))
        y, where = self.queries
        centre = self.reference(where).sigmoid()
        for layer in self.layers:
            y = layer(y, where, centre, levels)
        found = self.box(F.relu(self.wide(y)))
        start = centre if self.slip == "no_inverse" else (centre / (1 - centre)).log()
        found = torch.cat((found[..., :2] + start, found[..., 2:]), -1).sigmoid()
        middle, half = found[..., :2], found[..., 2:] / 2
        size = (64, 48, 64, 48) if self.slip == "target_sizes" else (48, 64, 48, 64)
        boxes = torch.cat((middle - half, middle + half), -1) * torch.tensor(size)
        return boxes, self.kinds(y).sigmoid()


class SuperPoint(Subject):
    """Points that pictures are matched by: a score for each pixel, and descriptors at points that are given."""

    SLIPS = {
        "dustbin": "the number for no point is dropped before the softmax, not after",
        "grey": "grey is the mean of the colours, not their weighted sum",
        "cell_order": "the pixels of a cell are taken column by column",
        "half_cell": "points are scaled to the map without taking half a cell off",
        "no_length": "descriptors are not brought to length one after they are interpolated",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.layers = nn.ModuleList(
            nn.Conv2d(*size, 3, padding=1) for size in ((1, 8), (8, 16), (16, 24), (24, 24))
        )
        self.find, self.describe = nn.Conv2d(24, 32, 3, 1, 1), nn.Conv2d(24, 32, 3, 1, 1)
        self.scores, self.vectors = nn.Conv2d(32, 65, 1), nn.Conv2d(32, 16, 1)

    def prepare(self) -> None:
        with torch.no_grad():
            for part in self.layers:
                part.weight.mul_(0.7)
            self.scores.weight.mul_(0.4)

    def inputs(self) -> tuple[Tensor, ...]:
        tint = torch.rand(1, 3, 1, 1) * 0.7 + 0.3
        points = torch.rand(1, 6, 2) * torch.tensor((47.0, 39.0))
        return torch.rand(1, 3, 40, 48) * tint, points

    def pixels(self, y: Tensor) -> Tensor:
        """Return the score of each pixel, nought where a neighbour has a larger one."""
        y = y[:, :-1].softmax(1) if self.slip == "dustbin" else y.softmax(1)[:, :-1]
        y = y.permute(0, 2, 3, 1).unflatten(-1, (8, 8))
        y = y.transpose(3, 4) if self.slip == "cell_order" else y
        y = y.transpose(2, 3).reshape(1, 1, 40, 48)
        return torch.where(y == F.max_pool2d(y, 5, 1, 2), y, torch.zeros_like(y))[:, 0]

    def at(self, y: Tensor, points: Tensor) -> Tensor:
        if self.slip == "half_cell":
            share = points / torch.tensor((47.0, 39.0))
        else:
            share = (points - 3.5) / torch.tensor((43.5, 35.5))
        y = F.grid_sample(y, (share * 2 - 1)[:, None], "bilinear", align_corners=True)[:, :, 0]
        return y if self.slip == "no_length" else F.normalize(y, dim=1)

    def forward(self, x: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
        grey = torch.tensor((0.299, 0.587, 0.114)).view(1, 3, 1, 1)
        x = x.mean(1, keepdim=True) if self.slip == "grey" else (x * grey).sum(1, keepdim=True)
        for number, layer in enumerate(self.layers):
            x = F.relu(layer(x))
            x = F.max_pool2d(x, 2) if number < 3 else x
        vectors = F.normalize(self.vectors(F.relu(self.describe(x))), dim=1)
        return self.pixels(self.scores(F.relu(self.find(x)))), self.at(vectors, points)


class TimeDelay(nn.Module):
    def __init__(self, slip: str, cin: int, cout: int, size: int = 1, dilation: int = 1) -> None:
        super().__init__()
        self.slip, self.pad = slip, size // 2 * dilation
        self.layer, self.norm = nn.Conv1d(cin, cout, size, dilation=dilation), nn.BatchNorm1d(cout)

    def forward(self, x: Tensor) -> Tensor:
        mode = "constant" if self.slip == "zero_pad" else "reflect"
        y = self.layer(F.pad(x, (self.pad, self.pad), mode) if self.pad else x)
        return F.relu(self.norm(y)) if self.slip == "norm_first" else self.norm(F.relu(y))


class SpeakerBlock(nn.Module):
    """Chunks of channels, each convolved with what came of the one before; squeeze and excitation."""

    def __init__(self, slip: str, dilation: int) -> None:
        super().__init__()
        self.slip = slip
        self.first, self.last = TimeDelay(slip, 24, 24), TimeDelay(slip, 24, 24)
        self.chunks = nn.ModuleList(TimeDelay(slip, 6, 6, 3, dilation) for _ in range(3))
        self.squeeze, self.excite = nn.Conv1d(24, 8, 1), nn.Conv1d(8, 24, 1)

    def forward(self, x: Tensor) -> Tensor:
        still, *parts = self.first(x).chunk(4, 1)
        found = [still]
        for number, (layer, part) in enumerate(zip(self.chunks, parts, strict=True)):
            chained = number and self.slip != "no_chain"
            found.append(layer(part + found[-1] if chained else part))
        y = self.last(torch.cat(found, 1))
        gate = self.excite(F.relu(self.squeeze(y.mean(2, keepdim=True)))).sigmoid()
        return x + y * gate


class EcapaSpeaker(Subject):
    """A voice's embedding from a spectrogram: time-delay layers, statistics weighted by attention."""

    SLIPS = {
        "zero_pad": "convolutions pad with zeros, the network was trained with reflections",
        "norm_first": "batch norm comes before the activation, not after it",
        "no_mean": "the mean over time is not taken off the spectrogram",
        "no_chain": "chunks are convolved each by itself, without the one before",
        "unbiased": "deviations are by std as it stands, which divides by one frame less",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.stem = TimeDelay(slip, 20, 24, 5)
        self.blocks = nn.ModuleList(SpeakerBlock(slip, dilation) for dilation in (2, 3))
        self.join, self.tell = TimeDelay(slip, 48, 32), TimeDelay(slip, 96, 12)
        self.weigh = nn.Conv1d(12, 32, 1)
        self.norm, self.head = nn.BatchNorm1d(64), nn.Linear(64, 16)

    def prepare(self) -> None:
        calm(self)

    def inputs(self) -> tuple[Tensor, ...]:
        slope = torch.linspace(0, -3, 20)
        return (torch.randn(1, 14, 20) * 1.5 + slope + torch.randn(1, 1, 1),)

    def deviation(self, x: Tensor, mean: Tensor) -> Tensor:
        if self.slip == "unbiased":
            return x.std(2, keepdim=True)
        return (x - mean).pow(2).mean(2, keepdim=True).clamp(min=1e-12).sqrt()

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.slip == "no_mean" else x - x.mean(1, keepdim=True)
        x, seen = self.stem(x.transpose(1, 2)), []
        for block in self.blocks:
            x = block(x)
            seen.append(x)
        x = self.join(torch.cat(seen, 1))
        mean = x.mean(2, keepdim=True)
        around = torch.cat((mean, self.deviation(x, mean)), 1).expand(-1, -1, x.shape[2])
        share = self.weigh(self.tell(torch.cat((x, around), 1)).tanh()).softmax(2)
        mean = (x * share).sum(2)
        spread = ((x - mean[..., None]).pow(2) * share).sum(2).clamp(min=1e-12).sqrt()
        return F.normalize(self.head(self.norm(torch.cat((mean, spread), 1))), dim=1)


class VoiceDetector(Subject):
    """Speech or not, chunk by chunk: a spectrum by convolution, an LSTM whose state the caller keeps."""

    SLIPS = {
        "gates": "the gates are loaded in ONNX's order, input, output, forget, cell",
        "state_order": "the two parts of the kept state are exchanged",
        "no_context": "the last samples of the chunk before are not passed on, they are noughts",
        "centred": "the sound is padded at both ends, not at its end alone",
        "one_bias": "the LSTM's second bias is not loaded",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        angles = torch.arange(17)[:, None] * torch.arange(32) * (math.tau / 32)
        basis = torch.cat((angles.cos(), -angles.sin())) * torch.hann_window(32)
        self.register_buffer("basis", basis[:, None], persistent=False)
        self.a, self.b = nn.Conv1d(17, 24, 3, padding=1), nn.Conv1d(24, 16, 3, 2, 1)
        self.lstm, self.head = nn.LSTM(16, 16, batch_first=True), nn.Linear(16, 1)

    def prepare(self) -> None:
        with torch.no_grad():
            self.head.weight.mul_(4)
            if self.slip == "one_bias":
                self.lstm.bias_hh_l0.zero_()
            if self.slip == "gates":
                for tensor in self.lstm.parameters():
                    tensor.copy_(torch.cat([tensor.chunk(4)[i] for i in (0, 3, 1, 2)]))

    def inputs(self) -> tuple[Tensor, ...]:
        time = torch.arange(144) / 144
        tone = (time * torch.randint(60, 300, (1, 1))).sin() * 0.4
        return tone + torch.randn(1, 144) * 0.1, torch.randn(2, 1, 16) * 0.5

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        if self.slip == "no_context":
            x = F.pad(x[:, 16:], (16, 0))
        ends = (8, 8) if self.slip == "centred" else (0, 16)
        y = F.conv1d(F.pad(x[:, None], ends, "reflect"), self.basis, stride=16)
        real, imaginary = y.chunk(2, 1)
        y = (real.pow(2) + imaginary.pow(2) + 1e-9).sqrt()
        y = F.relu(self.b(F.relu(self.a(y)))).transpose(1, 2)
        turned = self.slip == "state_order"
        hidden, cell = state.flip(0).split(1) if turned else state.split(1)
        y, (hidden, cell) = self.lstm(y, (hidden, cell))
        share = self.head(F.relu(y)).sigmoid().mean(1)
        return share, torch.cat((cell, hidden) if turned else (hidden, cell))


class NerfRays(Subject):
    """Colours of rays through a scene that a small network knows: encoded places, samples added up."""

    SLIPS = {
        "pi": "the frequencies of the encoding are multiplied by pi, as the paper has it",
        "encoding_order": "all sines come first, then all cosines, not in turn for each frequency",
        "inclusive": "light is dimmed by the sample itself, not only by those before it",
        "skip_order": "where the place enters again, it is joined behind the features",
        "direction": "the view's direction is encoded without bringing it to length one",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.a, self.b, self.c = nn.Linear(27, 48), nn.Linear(48, 48), nn.Linear(75, 48)
        self.density, self.features = nn.Linear(48, 1), nn.Linear(48, 32)
        self.view, self.colour = nn.Linear(47, 24), nn.Linear(24, 3)

    def prepare(self) -> None:
        with torch.no_grad():
            self.density.bias.add_(0.8)
            self.colour.weight.mul_(2)

    def inputs(self) -> tuple[Tensor, ...]:
        start = torch.tensor((0.0, 0.0, 2.0)) + torch.randn(1, 3) * 0.1
        seen = torch.rand(10, 2) * 1.6 - 0.8
        return start.expand(10, 3).clone(), F.pad(seen, (0, 1), value=-1.0)

    def encoded(self, x: Tensor, count: int) -> Tensor:
        scale = math.pi if self.slip == "pi" else 1.0
        angles = [x * 2**power * scale for power in range(count)]
        if self.slip == "encoding_order":
            waves = [a.sin() for a in angles] + [a.cos() for a in angles]
        else:
            waves = [wave for a in angles for wave in (a.sin(), a.cos())]
        return torch.cat((x, *waves), -1)

    def forward(self, start: Tensor, direction: Tensor) -> tuple[Tensor, Tensor]:
        far = torch.linspace(1.0, 4.0, 16)
        place = self.encoded(start[:, None] + direction[:, None] * far[:, None], 4)
        view = direction if self.slip == "direction" else F.normalize(direction, dim=-1)
        view = self.encoded(view, 2)[:, None].expand(-1, 16, -1)
        y = F.relu(self.b(F.relu(self.a(place))))
        y = torch.cat((y, place) if self.slip == "skip_order" else (place, y), -1)
        y = F.relu(self.c(y))
        step = (far[1] - far[0]) * direction.norm(dim=-1, keepdim=True)
        thick = F.relu(self.density(y))[..., 0] * step
        colour = F.relu(self.view(torch.cat((self.features(y), view), -1)))
        colour = self.colour(colour).sigmoid()
        passed = thick.cumsum(1)
        passed = passed if self.slip == "inclusive" else passed - thick
        weight = (1 - (-thick).exp()) * (-passed).exp()
        seen = weight.sum(1, keepdim=True)
        return (weight[..., None] * colour).sum(1) + 1 - seen, (weight * far).sum(1)


class Dlrm(Subject):
    """A recommender for advertisements: counts, categories, a bag of them, products of all pairs."""

    FIELDS = ("C1", "C2", "C10")
    SLIPS = {
        "no_log": "counts enter as they are, not as logarithms",
        "triangle": "products of pairs are read from the upper triangle, in another order",
        "bag_mean": "the vectors of a bag are averaged, not summed",
        "last_relu": "the last layer for the counts has no activation",
        "table_names": "tables are loaded in the order of their names: C1, C10, C2",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.below = nn.ModuleList((nn.Linear(5, 16), nn.Linear(16, 8)))
        self.tables = nn.ModuleDict({name: nn.Embedding(12, 8) for name in self.FIELDS})
        self.bag = nn.Embedding(20, 8)
        self.top, self.head = nn.Linear(18, 24), nn.Linear(24, 1)

    def prepare(self) -> None:
        with torch.no_grad():
            for table in (*self.tables.values(), self.bag):
                table.weight.mul_(0.5)
            self.head.weight.mul_(0.5)
            if self.slip == "table_names":
                weights = [self.tables[name].weight.clone() for name in sorted(self.FIELDS)]
                for name, weight in zip(self.FIELDS, weights, strict=True):
                    self.tables[name].weight.copy_(weight)

    def inputs(self) -> tuple[Tensor, ...]:
        there = torch.arange(5) < torch.randint(2, 6, (6, 1))
        bag = torch.randint(1, 20, (6, 5)) * there
        return torch.randint(0, 60, (6, 5)).float(), torch.randint(0, 12, (6, 3)), bag

    def forward(self, counts: Tensor, kinds: Tensor, bag: Tensor) -> Tensor:
        first, last = self.below
        x = last(F.relu(first(counts if self.slip == "no_log" else (counts + 1).log())))
        x = x if self.slip == "last_relu" else F.relu(x)
        there = (bag > 0).float()[..., None]
        words = (self.bag(bag) * there).sum(1)
        words = words / there.sum(1) if self.slip == "bag_mean" else words
        found = [self.tables[name](kinds[:, i]) for i, name in enumerate(self.FIELDS)]
        rows = torch.stack((x, *found, words), 1)
        pairs = (rows @ rows.transpose(1, 2)).flatten(1)
        if self.slip == "triangle":
            places = [i * 5 + j for i in range(5) for j in range(i + 1, 5)]
        else:
            places = [i * 5 + j for i in range(5) for j in range(i)]
        return self.head(F.relu(self.top(torch.cat((x, pairs[:, places]), 1)))).sigmoid()


def turned_in_pairs(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Rotate neighbours, as GPT-J does, where GPT-NeoX rotates halves."""
    width = cos.shape[-1]
    cos, sin = (part[:, None, :, : width // 2].repeat_interleave(2, -1) for part in (cos, sin))

    def turned(x: Tensor) -> Tensor:
        across = torch.stack((-x[..., 1:width:2], x[..., :width:2]), -1).flatten(-2)
        return torch.cat((x[..., :width] * cos + across * sin, x[..., width:]), -1)

    return turned(q), turned(k)


class Pythia(Rewritten):
    """A decoder of the kind GPT-NeoX: a part of each head is rotated, attention and MLP are in parallel."""

    SLIPS = {
        "qkv_blocks": "the packed matrix is read as all of q, k and v in turn, it is packed by head",
        "full_rotary": "whole heads are rotated, not the half that the settings name",
        "sequential": "the MLP reads what attention has added to, not what it began with",
        "neighbours": "neighbours are rotated, not halves",
        "one_norm": "the MLP reads the norm of attention, it has one of its own",
    }

    def build(self) -> nn.Module:
        share = 1.0 if self.slip == "full_rotary" else 0.5
        config = hf.GPTNeoXConfig(
            vocab_size=50,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=48,
            max_position_embeddings=16,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 10000.0,
                "partial_rotary_factor": share,
            },
            use_parallel_residual=self.slip != "sequential",
            **EAGER,
        )
        return hf.GPTNeoXForCausalLM(config)

    def prepare(self) -> None:
        with torch.no_grad():
            for layer in self.net.gpt_neox.layers:
                packed = layer.attention.query_key_value
                if self.slip == "qkv_blocks":
                    for tensor in (packed.weight, packed.bias):
                        parts = tensor.unflatten(0, (3, 4, 8)).transpose(0, 1)
                        tensor.copy_(parts.flatten(0, 2).clone())
                if self.slip == "one_norm":
                    layer.post_attention_layernorm = layer.input_layernorm

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randint(0, 50, (1, 10)),)

    def forward(self, ids: Tensor) -> Tensor:
        steps = torch.arange(10)
        mask = torch.zeros(1, 1, 10, 10).masked_fill(steps[:, None] < steps, -1e9)
        given = {"attention_mask": mask, "position_ids": steps[None], "use_cache": False}
        if self.slip == "neighbours":
            with patch.object(modeling_gpt_neox, "apply_rotary_pos_emb", turned_in_pairs):
                return self.net(input_ids=ids, **given).logits
        return self.net(input_ids=ids, **given).logits


class Llava(Subject):
    """A language model that sees: patches of CLIP, projected to the width of the words and put among them."""

    SLIPS = {
        "last_layer": "features are those of the tower's last layer, not of the one before it",
        "class_token": "the class token is not left out",
        "post_norm": "the tower's last norm is applied to the features",
        "statistics": "pixels are normalized by ImageNet's statistics, not by CLIP's",
        "quick": "the projector has the tower's quick GELU",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        size = {"num_attention_heads": 4, "intermediate_size": 48}
        vision = hf.CLIPVisionConfig(
            hidden_size=32, num_hidden_layers=3, image_size=28, patch_size=7, **size, **EAGER
        )
        text = hf.LlamaConfig(
            vocab_size=40,
            hidden_size=24,
            num_hidden_layers=2,
            num_key_value_heads=2,
            max_position_embeddings=32,
            **size,
            **EAGER,
        )
        self.tower, self.net = hf.CLIPVisionModel(vision), hf.LlamaForCausalLM(text)
        self.wide, self.thin = nn.Linear(32, 24), nn.Linear(24, 24)

    def inputs(self) -> tuple[Tensor, ...]:
        return torch.rand(1, 3, 28, 28), torch.randint(0, 40, (1, 7))

    def seen(self, x: Tensor) -> Tensor:
        if self.slip == "statistics":
            mean, std = MEAN, STD
        else:
            mean = (0.48145466, 0.4578275, 0.40821073)
            std = (0.26862954, 0.26130258, 0.27577711)
        x = (x - torch.tensor(mean).view(1, 3, 1, 1)) / torch.tensor(std).view(1, 3, 1, 1)
        y = self.tower.pre_layrnorm(self.tower.embeddings(x))
        layers = self.tower.encoder.layers
        for layer in layers if self.slip == "last_layer" else layers[:-1]:
            y = layer(y, attention_mask=None)
        y = self.tower.post_layernorm(y) if self.slip == "post_norm" else y
        y = self.wide(y if self.slip == "class_token" else y[:, 1:])
        return self.thin(y * (1.702 * y).sigmoid() if self.slip == "quick" else F.gelu(y))

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        words = self.net.model.embed_tokens(ids)
        y = torch.cat((words[:, :3], self.seen(x), words[:, 3:]), 1)
        steps = torch.arange(y.shape[1])
        later = steps[:, None] < steps
        mask = torch.zeros(1, 1, *later.shape).masked_fill(later, -1e9)
        given = {"attention_mask": mask, "position_ids": steps[None], "use_cache": False}
        return self.net(inputs_embeds=y, **given).logits[:, -4:]


class ModernBertLabels(Rewritten):
    """Labels of texts by ModernBERT: every third layer sees all, the others a window; rotary positions."""

    SLIPS = {
        "one_theta": "all layers rotate by the base of those that see all",
        "all_global": "all layers see the whole text",
        "window": "the window's width is taken for how far it reaches to each side",
        "glu_halves": "the activation is on the second half of the packed layer, not on the first",
        "first_norm": "the first layer's attention has a norm like the others, it has none",
    }

    def build(self) -> nn.Module:
        near = 160000.0 if self.slip == "one_theta" else 10000.0
        config = hf.ModernBertConfig(
            vocab_size=60,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=4,
            num_attention_heads=2,
            max_position_embeddings=32,
            local_attention=4,
            rope_parameters={
                "full_attention": {"rope_type": "default", "rope_theta": 160000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": near},
            },
            num_labels=5,
            pad_token_id=0,
            bos_token_id=1,
            cls_token_id=1,
            eos_token_id=2,
            sep_token_id=2,
            **EAGER,
        )
        return hf.ModernBertForSequenceClassification(config)

    def rewrite(self) -> None:
        if self.slip == "first_norm":
            self.net.model.layers[0].attn_norm = nn.LayerNorm(32, elementwise_affine=False)

    def prepare(self) -> None:
        with torch.no_grad():
            for layer in self.net.model.layers:
                if self.slip == "glu_halves":
                    first, second = layer.mlp.Wi.weight.chunk(2)
                    layer.mlp.Wi.weight.copy_(torch.cat((second, first)))

    def inputs(self) -> tuple[Tensor, ...]:
        mask = torch.arange(12) < torch.randint(8, 13, (2, 1))
        return torch.randint(3, 60, (2, 12)) * mask, mask.long()

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        steps = torch.arange(12)
        reach = {"all_global": 12, "window": 4}.get(self.slip, 2)
        hidden = (mask == 0)[:, None, None]
        far = (steps[:, None] - steps).abs() > reach
        none = torch.zeros(2, 1, 12, 12)
        masks = {
            "full_attention": none.masked_fill(hidden, -1e9),
            "sliding_attention": none.masked_fill(hidden | far, -1e9),
        }
        y = self.net.model(input_ids=ids, attention_mask=masks, position_ids=steps[None])
        return self.net.classifier(self.net.head(y.last_hidden_state[:, 0])).softmax(-1)


class AdaptiveBlock(nn.Module):
    """A layer of a transformer whose norms are moved and scaled by what it is conditioned on."""

    def __init__(self, slip: str) -> None:
        super().__init__()
        self.slip = slip
        self.change, self.qkv, self.out = nn.Linear(32, 192), nn.Linear(32, 96), nn.Linear(32, 32)
        self.wide, self.thin = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x: Tensor, given: Tensor) -> Tensor:
        first, gate, second, other = self.change(F.silu(given))[:, None].split((64, 32, 64, 32), -1)
        y = changed(self.slip, x, first)
        q, k, v = (heads(part, 4) for part in self.qkv(y).chunk(3, -1))
        y = (q @ k.transpose(2, 3) / math.sqrt(8)).softmax(-1) @ v
        x = x + gate * self.out(y.transpose(1, 2).flatten(2))
        y = self.wide(changed(self.slip, x, second))
        return x + other * self.thin(F.gelu(y, approximate="tanh"))


def changed(slip: str, x: Tensor, by: Tensor) -> Tensor:
    shift, scale = by.chunk(2, -1)
    if slip == "scale_first":
        shift, scale = scale, shift
    y = F.layer_norm(x, (32,), eps=1e-6)
    return y * (scale if slip == "no_one" else 1 + scale) + shift


class DitDenoiser(Subject):
    """A diffusion transformer: patches of a latent, conditioned on time and class; noise and its variance."""

    SLIPS = {
        "sines_first": "the time's encoding has the sines first, it was trained with cosines first",
        "scale_first": "scales come before shifts where the condition's numbers are split",
        "no_one": "norms are multiplied by the scale, not by one and the scale",
        "unpatchify": "a token's numbers are read as channel, row, column; the channel is last",
        "grid_axes": "rows and columns are exchanged in the encoding of places",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        steps = positions(4, 16).unflatten(1, (8, 2)).transpose(1, 2).flatten(1)
        rows = steps[:, None].expand(4, 4, 16)
        columns = steps[None].expand(4, 4, 16)
        axes = (rows, columns) if slip == "grid_axes" else (columns, rows)
        self.register_buffer("places", torch.cat(axes, -1).view(16, 32), persistent=False)
        self.patches, self.kinds = nn.Conv2d(4, 32, 2, 2), nn.Embedding(6, 32)
        self.time = nn.Sequential(nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 32))
        self.blocks = nn.ModuleList(AdaptiveBlock(slip) for _ in range(2))
        self.change, self.head = nn.Linear(32, 64), nn.Linear(32, 32)

    def prepare(self) -> None:
        with torch.no_grad():
            for part in (self.change, *(block.change for block in self.blocks)):
                part.weight.mul_(0.4)

    def inputs(self) -> tuple[Tensor, ...]:
        return torch.randn(1, 4, 8, 8), torch.randint(0, 1000, (1,)), torch.randint(0, 6, (1,))

    def forward(self, x: Tensor, time: Tensor, kind: Tensor) -> tuple[Tensor, Tensor]:
        slow = torch.exp(-math.log(10000) * torch.arange(16) / 16)
        angles = time[:, None].float() * slow
        waves = (angles.cos(), angles.sin())
        waves = waves[::-1] if self.slip == "sines_first" else waves
        given = self.time(torch.cat(waves, -1)) + self.kinds(kind)
        y = self.patches(x).flatten(2).transpose(1, 2) + self.places
        for block in self.blocks:
            y = block(y, given)
        y = self.head(changed(self.slip, y, self.change(F.silu(given))[:, None]))
        if self.slip == "unpatchify":
            y = y.view(1, 4, 4, 8, 2, 2).permute(0, 3, 1, 4, 2, 5)
        else:
            y = y.view(1, 4, 4, 2, 2, 8).permute(0, 5, 1, 3, 2, 4)
        noise, spread = y.reshape(1, 8, 8, 8).chunk(2, 1)
        return noise, spread


SUBJECTS = (
    YoloX,
    BlazeFace,
    DeformableDecoder,
    SuperPoint,
    EcapaSpeaker,
    VoiceDetector,
    NerfRays,
    Dlrm,
    Pythia,
    Llava,
    ModernBertLabels,
    DitDenoiser,
)
