"""Networks for images, and what people get wrong when they write them again."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from subjects import Subject


class ResNet(Subject):
    """Two residual blocks as in ResNet, with a head."""

    SLIPS = {
        "bn eps": "epsilon 1e-3 of every BatchNorm, as TensorFlow has it, for 1e-5",
        "relu before add": "the second activation comes before the addition",
        "no projection bn": "the BatchNorm of the shortcut was forgotten",
        "ceil pool": "max pooling without its padding, with ceil_mode",
        "bgr": "channels in the order BGR",
        "no mean": "the mean of the images is not subtracted",
        "max head": "the head pools the maximum",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        eps = 1e-3 if slip == "bn eps" else 1e-5
        self.stem, self.bn0 = nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8, eps)
        self.a, self.bn1 = nn.Conv2d(8, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16, eps)
        self.b, self.bn2 = nn.Conv2d(16, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16, eps)
        self.short, self.bn3 = nn.Conv2d(8, 16, 1, 2, bias=False), nn.BatchNorm2d(16, eps)
        self.head = nn.Linear(16, 10)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.rand(1, 3, 32, 32),)

    def forward(self, x: Tensor) -> Tensor:
        if self.slip == "bgr":
            x = x.flip(1)
        x = (x - (0.0 if self.slip == "no mean" else 0.45)) / 0.23
        x = F.relu(self.bn0(self.stem(x)))
        x = (
            F.max_pool2d(x, 3, 2, ceil_mode=True)
            if self.slip == "ceil pool"
            else F.max_pool2d(x, 3, 2, 1)
        )
        short = self.short(x)
        if self.slip != "no projection bn":
            short = self.bn3(short)
        y = self.bn2(self.b(F.relu(self.bn1(self.a(x)))))
        y = F.relu(y) + short if self.slip == "relu before add" else F.relu(y + short)
        y = y.amax((2, 3)) if self.slip == "max head" else y.mean((2, 3))
        return self.head(y)


class MobileNet(Subject):
    """An inverted residual with squeeze and excitation, as in MobileNetV3."""

    SLIPS = {
        "swish": "swish for hard swish",
        "sigmoid gate": "a sigmoid for the hard sigmoid of the gate",
        "relu6": "ReLU for ReLU6",
        "no residual": "the shortcut was forgotten",
        "same pad": "the padding of TensorFlow's SAME: at the end alone",
        "gate first": "the gate is multiplied before the activation",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.stem = nn.Conv2d(3, 8, 3, 2, 0 if slip == "same pad" else 1)
        self.expand, self.bn = nn.Conv2d(8, 24, 1), nn.BatchNorm2d(24)
        self.depth = nn.Conv2d(24, 24, 5, 1, 2, groups=24)
        self.down, self.up = nn.Conv2d(24, 6, 1), nn.Conv2d(6, 24, 1)
        self.project, self.head = nn.Conv2d(24, 8, 1), nn.Linear(8, 5)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(1, 3, 24, 24) * 2,)

    def forward(self, x: Tensor) -> Tensor:
        act = F.silu if self.slip == "swish" else F.hardswish
        gate = torch.sigmoid if self.slip == "sigmoid gate" else F.hardsigmoid
        if self.slip == "same pad":
            x = F.pad(x, (0, 1, 0, 1))
        x = act(self.stem(x))
        y = self.bn(self.expand(x)) * 3
        y = F.relu(y) if self.slip == "relu6" else F.relu6(y)
        y = self.depth(y)
        scale = gate(self.up(F.relu(self.down(y.mean((2, 3), keepdim=True)))) * 2)
        y = act(y * scale) if self.slip == "gate first" else act(y) * scale
        y = self.project(y)
        y = y if self.slip == "no residual" else x + y
        return self.head(y.mean((2, 3)))


class UNet(Subject):
    """An encoder and a decoder with shortcuts."""

    SLIPS = {
        "align corners": "bilinear upsampling with align_corners",
        "nearest": "upsampling takes the nearest pixel",
        "concat order": "the shortcut comes first in the concatenation",
        "late skip": "the shortcut is taken after a second activation, the one of another layer",
        "softmax axis": "softmax over the rows of pixels, not the classes",
        "zero pad": "zeros for the reflected border",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.one, self.two = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 8, 3, padding=1)
        self.three = nn.Conv2d(8, 8, 3, padding=1)
        self.norm = nn.InstanceNorm2d(8, affine=True)
        self.merge, self.out = nn.Conv2d(16, 8, 3, padding=1), nn.Conv2d(8, 4, 1)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(1, 1, 16, 16),)

    def forward(self, x: Tensor) -> Tensor:
        x = F.pad(x, (1, 1, 1, 1), "constant" if self.slip == "zero pad" else "reflect")
        first = self.one(x)
        one = F.elu(first)
        two = F.elu(self.norm(self.two(F.avg_pool2d(one, 2))))
        two = self.three(two)
        if self.slip == "nearest":
            two = F.interpolate(two, scale_factor=2, mode="nearest")
        else:
            aligned = self.slip == "align corners"
            two = F.interpolate(two, size=(16, 16), mode="bilinear", align_corners=aligned)
        if self.slip == "late skip":
            one = first
        parts = (one, two) if self.slip == "concat order" else (two, one)
        y = self.out(F.elu(self.merge(torch.cat(parts, 1))))
        return y.softmax(2 if self.slip == "softmax axis" else 1)


class Detector(Subject):
    """The head of a YOLO: boxes from a grid and anchors, beside scores."""

    SLIPS = {
        "grid axes": "x and y of the grid are exchanged",
        "no sigmoid": "objectness has no sigmoid",
        "exp": "sizes by exp, as in version 3, for (2 sigmoid)^2 of version 5",
        "center": "the half that is subtracted of the center was forgotten",
        "corners": "corners for center and size",
        "stride": "the stride of another level",
        "anchor order": "anchors of the two shapes are exchanged",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.body, self.head = nn.Conv2d(3, 16, 3, 8, 1), nn.Conv2d(16, 2 * 8, 1)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(1, 3, 48, 64) * 2,)

    def forward(self, x: Tensor) -> Tensor:
        p = self.head(F.silu(self.body(x)))
        n, _, h, w = p.shape
        p = p.view(n, 2, 8, h, w).permute(0, 1, 3, 4, 2)
        ys, xs = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        if self.slip == "grid axes":
            xs, ys = ys, xs
        grid = torch.stack((xs, ys), -1).float()
        anchors = torch.tensor([[10.0, 13.0], [30.0, 61.0]])
        if self.slip == "anchor order":
            anchors = anchors.flip(0)
        stride = 16.0 if self.slip == "stride" else 8.0
        half = 0.0 if self.slip == "center" else 0.5
        xy = (p[..., :2].sigmoid() * 2 - half + grid) * stride
        sizes = p[..., 2:4]
        sizes = sizes.exp() if self.slip == "exp" else (sizes.sigmoid() * 2) ** 2
        wh = sizes * anchors[None, :, None, None]
        if self.slip == "corners":
            xy, wh = xy - wh / 2, xy + wh / 2
        score = p[..., 4:5] if self.slip == "no sigmoid" else p[..., 4:5].sigmoid()
        return torch.cat((xy, wh, score, p[..., 5:].sigmoid()), -1).reshape(n, -1, 8)


class Generator(Subject):
    """The generator of a GAN, with a pixel shuffle at its end."""

    SLIPS = {
        "slope": "a slope of 0.01 for 0.2 in the first LeakyReLU",
        "all slopes": "a slope of 0.01 for 0.2 in each LeakyReLU",
        "sigmoid": "a sigmoid at the end for tanh",
        "groups": "four groups of the GroupNorm for two",
        "shuffle": "the pixel shuffle of TensorFlow: channels in another order",
        "transposed pad": "the output padding of the transposed convolution at the other end",
    }

    def __init__(self, slip: str) -> None:
        super().__init__(slip)
        self.fc = nn.Linear(12, 8 * 16)
        self.norm = nn.GroupNorm(4 if slip == "groups" else 2, 8)
        self.up = nn.ConvTranspose2d(8, 8, 3, 2, 1, 1)
        self.mid, self.last = nn.Conv2d(8, 12, 3, 1, 1), nn.Conv2d(3, 3, 3, 1, 1)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(1, 12),)

    def forward(self, z: Tensor) -> Tensor:
        slope = 0.01 if self.slip in ("slope", "all slopes") else 0.2
        other = 0.01 if self.slip == "all slopes" else 0.2
        x = F.leaky_relu(self.fc(z), slope).view(-1, 8, 4, 4)
        x = F.leaky_relu(self.up(self.norm(x)), other)
        if self.slip == "transposed pad":
            x = x.roll((1, 1), (2, 3))
        x = F.leaky_relu(self.mid(x), other)
        n, c, h, w = x.shape
        if self.slip == "shuffle":
            x = (
                x.view(n, 2, 2, c // 4, h, w)
                .permute(0, 3, 4, 1, 5, 2)
                .reshape(n, c // 4, h * 2, -1)
            )
        else:
            x = F.pixel_shuffle(x, 2)
        x = self.last(x)
        return x.sigmoid() if self.slip == "sigmoid" else x.tanh()


SUBJECTS = (ResNet, MobileNet, UNet, Detector, Generator)
