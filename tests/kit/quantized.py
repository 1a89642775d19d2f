"""Float models, and copies of them that onnxruntime quantized."""

from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto
from onnxruntime.quantization import CalibrationDataReader, quantize_static

import onnxsurgeon_lite as osl
from kit.bisecting import parsed, random


def attention() -> ModelProto:
    """A block of a transformer: normalization, attention, Gelu, residuals."""
    constants = {f"w{name}": random(16, 16, seed=i) / 4 for i, name in enumerate("qkvo")}
    constants |= {"up": random(16, 32, seed=5) / 4, "down": random(32, 16, seed=6) / 4}
    constants |= {"gamma": 1 + random(16, seed=7) / 10, "beta": random(16, seed=8) / 10}
    text = """net (float[6,16] x) => (float[6,16] y) {
        [n] n = LayerNormalization (x, gamma, beta)
        [q] q = MatMul (n, wq)
        [k] k = MatMul (n, wk)
        [v] v = MatMul (n, wv)
        [t] t = Transpose <perm = [1, 0]> (k)
        [scores] scores = MatMul (q, t)
        [p] p = Softmax (scores)
        [a] a = MatMul (p, v)
        [o] o = MatMul (a, wo)
        [h] h = Add (o, x)
        [u] u = MatMul (h, up)
        [g] g = Gelu (u)
        [d] d = MatMul (g, down)
        [y] y = Add (d, h)
    }"""
    return parsed(text, **constants)


class Samples(CalibrationDataReader):
    def __init__(self, samples: list[dict[str, np.ndarray]]) -> None:
        self.samples = iter(samples)

    def get_next(self):
        return next(self.samples, None)


class Quantized:
    """A float model, copies of it that onnxruntime quantized, and references of the float model."""

    def __init__(self, folder: Path, model: ModelProto) -> None:
        self.folder, self.float = folder, folder / "float.onnx"
        onnx.save(model, self.float)
        shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
        self.samples = [{"x": random(*shape, seed=60 + i)} for i in range(4)]
        self.feeds = self.samples[0]
        osl.record(self.float, folder / "refs", feeds=self.feeds)

    def quantize(self, name: str, **how) -> Path:
        path = self.folder / f"{name}.onnx"
        if not path.exists():
            quantize_static(self.float, path, Samples(self.samples), **how)
        return path

    def bisect(self, model: Path | ModelProto, against: bool = False, **how):
        if isinstance(model, ModelProto):
            onnx.save(model, self.folder / "wrong.onnx")
            model = self.folder / "wrong.onnx"
        if against:
            return osl.bisect(model, against=self.float, feeds=self.feeds, **how)
        return osl.bisect(model, self.folder / "refs", **how)
