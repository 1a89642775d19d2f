"""The models that converters are compared on: small ones of their kind, with random weights, each with feeds."""

import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import onnx
import torch
import transformers
from onnx import numpy_helper, parser
from torch import nn

Made = tuple[nn.Module, dict[str, torch.Tensor]]
_WIDTHS = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
_LOOP = """<ir_version: 8, opset_import: ["" : 17]>
steps (float[2,16] x, int64 n) => (float[2,16] y, float[k,2,16] all)
    <bool always = {1}, float big = {40000.0}, float small = {0.00003}> {
    start = MatMul (x, w)
    h, all = Loop (n, always, start) <
        body = b (int64 i, bool go, float[2,16] s) => (bool on, float[2,16] u, float[2,16] o) {
        on = Identity (go)
        m = MatMul (s, v)
        a = Tanh (m)
        one = Constant <value = int64 {1}> ()
        first = Less (i, one)
        c = If (first) <
            then_branch = t () => (float[2,16] p) { q = Mul (a, big) r = Add (q, q) p = Mul (r, small) },
            else_branch = e () => (float[2,16] g) { g = Sigmoid (a) }
        >
        u = Add (c, s)
        o = Identity (u)
    }>
    y = Relu (h)
}"""


class First(nn.Module):
    """The first output of a module, which takes tensors by name."""

    def __init__(self, module: nn.Module, *names: str) -> None:
        super().__init__()
        self.module, self.names = module, names

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.module(**dict(zip(self.names, given, strict=True)))[0]
        return result


class UNet(nn.Module):
    """GroupNorm behind each convolution, SiLU, one step down and up."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(32, 3, 3, padding=1)
        self.down, self.up = nn.Conv2d(16, 32, 3, 2, 1), nn.ConvTranspose2d(32, 16, 2, 2)
        self.middle = nn.Conv2d(32, 32, 3, padding=1)
        self.norms = nn.ModuleList(nn.GroupNorm(n // 4, n) for n in (16, 32, 32, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second, third, last = (nn.Sequential(norm, nn.SiLU()) for norm in self.norms)
        top = first(self.enter(x))
        low = second(self.down(top))
        low = third(self.middle(low)) + low
        result: torch.Tensor = self.leave(torch.cat([last(self.up(low)), top], 1))
        return result


class Loud(nn.Module):
    """A LayerNormalization, written out, whose squares overflow."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.head = nn.Linear(32, 64), nn.Linear(64, 32), nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = normalized(self.one(x) * 400, 1e-5)
        result: torch.Tensor = self.head(torch.relu(self.two(h)))
        return result


class Masked(nn.Module):
    """An epsilon of 1e-12, and a mask of -1e9."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        h = normalized(x, 1e-12)
        scores = self.q(h) @ self.k(h).transpose(1, 2) / 4 + (1 - mask)[:, None, :] * -1e9
        result: torch.Tensor = torch.softmax(scores, -1) @ self.v(h)
        return result


def normalized(x: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Mean 0 and variance 1 along the last axis."""
    centered = x - x.mean(-1, keepdim=True)
    return centered / torch.sqrt((centered**2).mean(-1, keepdim=True) + epsilon)


def resnet() -> Made:
    config = transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32], depths=[2, 2], layer_type="basic"
    )
    module = First(transformers.ResNetForImageClassification(config), "pixel_values")
    return module, {"x": torch.randn(1, 3, 64, 64)}


def vit() -> Made:
    config = transformers.ViTConfig(**_WIDTHS, intermediate_size=128, image_size=64)
    module = First(transformers.ViTForImageClassification(config), "pixel_values")
    return module, {"x": torch.randn(1, 3, 64, 64)}


def _words() -> dict[str, torch.Tensor]:
    mask = torch.ones(2, 16, dtype=torch.int64)
    mask[1, 10:] = 0
    return {"ids": torch.randint(0, 500, (2, 16)), "mask": mask}


def bert() -> Made:
    config = transformers.BertConfig(
        **_WIDTHS, intermediate_size=128, vocab_size=500, attn_implementation="eager"
    )
    return First(transformers.BertModel(config), "input_ids", "attention_mask"), _words()


def gpt2() -> Made:
    config = transformers.GPT2Config(
        n_embd=64, n_layer=2, n_head=4, vocab_size=500, use_cache=False, attn_implementation="eager"
    )
    return First(transformers.GPT2LMHeadModel(config), "input_ids", "attention_mask"), _words()


def whisper() -> Made:
    config = transformers.WhisperConfig(
        **{"d_model": 64, "encoder_layers": 2, "encoder_attention_heads": 4},
        **{"encoder_ffn_dim": 128, "max_source_positions": 50, "vocab_size": 100},
        **{
            "decoder_layers": 1,
            "decoder_attention_heads": 4,
            "pad_token_id": 0,
            "bos_token_id": 0,
            "eos_token_id": 0,
        },
        decoder_start_token_id=0,
    )
    return First(transformers.WhisperModel(config).encoder, "input_features"), {
        "x": torch.randn(1, 80, 100)
    }


def unet() -> Made:
    return UNet(), {"x": torch.randn(1, 3, 32, 32)}


def loud() -> Made:
    return Loud(), {"x": torch.randn(4, 32) * 3}


def masked() -> Made:
    x, mask = torch.randn(2, 6, 16), torch.ones(2, 6)
    x[0, 2] = 0.5 + x[0, 2] * 1e-5
    x[1, 1] *= 1e-4
    mask[1, 4:] = 0
    return Masked(), {"x": x, "mask": mask}


EXPORTED: dict[str, Callable[[], Made]] = {
    each.__name__: each for each in (resnet, vit, bert, gpt2, whisper, unet, loud, masked)
}
NAMES = (*EXPORTED, "loop")


def models(names: Iterable[str], folder: Path) -> dict[str, tuple[Path, dict[str, np.ndarray]]]:
    """Name -> (file, feeds)."""
    return {name: _model(name, folder / f"{name}.onnx") for name in names}


def _model(name: str, path: Path) -> tuple[Path, dict[str, np.ndarray]]:
    torch.manual_seed(0)
    if name == "loop":
        return path, _loop(path)
    module, given = EXPORTED[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(), (*given.values(),), path, input_names=[*given], dynamo=False, opset_version=17
        )  # fmt: skip
    return path, {key: value.numpy() for key, value in given.items()}


def _loop(path: Path) -> dict[str, np.ndarray]:
    rng, proto = np.random.default_rng(0), parser.parse_model(_LOOP)
    for name in "wv":
        array = (rng.normal(size=(16, 16)) / 4).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    del proto.graph.value_info[:]
    onnx.save(proto, path)
    return {"x": rng.normal(size=(2, 16)).astype(np.float32), "n": np.array(3)}
