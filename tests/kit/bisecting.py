"""Right models, altered copies, and what bisect says of them."""

from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, numpy_helper, parser

from onnxsurgeon_lite import load, open_references, save_tensors
from onnxsurgeon_lite.debug.bisection.bisect import Search, bisect
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.runtime.feeds import Recipe, make_feeds
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.runtime.session import Runtime


def parsed(text: str, **constants) -> ModelProto:
    """ONNX text, and its initializers."""
    model = parser.parse_model('<ir_version: 10, opset_import: ["" : 21]>\n' + text)
    model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()
    )
    return model


def altered(model: ModelProto, **constants) -> ModelProto:
    """A copy with other initializers."""
    copy = ModelProto()
    copy.CopyFrom(model)
    for tensor in copy.graph.initializer:
        if tensor.name in constants:
            tensor.CopyFrom(
                numpy_helper.from_array(np.asarray(constants[tensor.name]), tensor.name)
            )
    return copy


class Case:
    """A right model's values as references, and bisections of wrong ones."""

    def __init__(
        self, folder: Path, right: ModelProto, runtime: Runtime, feeds=None, by_node=False
    ) -> None:
        self.folder, self.runtime = folder, runtime
        index = self.index(right, "right.onnx")
        self.feeds = feeds or make_feeds(index, Recipe(seed=5))[0]
        observer = Observer(index, runtime, by_node)
        observer.feed(self.feeds)
        self.values = {**self.feeds, **observer.fetch(list(index.producer))}
        save_tensors(folder / "refs", self.values)

    def index(self, proto: ModelProto, name: str) -> GraphIndex:
        onnx.save(proto, self.folder / name)
        return GraphIndex.of(load(self.folder / name))

    def references(self, **changed):
        if changed:
            save_tensors(self.folder / "changed", {**self.values, **changed})
        return open_references(self.folder / ("changed" if changed else "refs"))

    def bisect(self, wrong: ModelProto, optimized=None, references=None, **search):
        model = self.index(wrong, "wrong.onnx").model
        stored = references or self.references()
        return bisect(model, stored, self.feeds, self.runtime, optimized, Search(**search))


def verdicts(culprit) -> list[str]:
    return [finding.verdict for finding in culprit.findings]


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def half_model(keep_io: bool, scale: float = 1.0) -> tuple[ModelProto, ModelProto]:
    """A float32 model, and its copy in float16, with inputs and outputs of either dtype."""
    body = """h = MatMul (in, w1) a = Add (h, b) square = Mul (a, a) m = MatMul (square, w2)
        p = Softmax (m) out = MatMul (p, w3)"""
    names = {"float": ("x", "y"), "float16": ("x16", "y16") if keep_io else ("x", "y")}
    constants = {f"w{i}": random(16, 16, seed=i) * scale for i in (1, 2, 3)} | {"b": random(16)}
    models = []
    for dtype, (first, last) in names.items():
        lines = body.replace("(in,", f"({first},").replace("out =", f"{last} =")
        if dtype == "float16" and keep_io:
            lines = f"x16 = Cast <to = 10> (x) {lines} y = Cast <to = 1> (y16)"
        io = "float" if keep_io else dtype
        numpy_type = np.float16 if dtype == "float16" else np.float32
        cast = {name: value.astype(numpy_type) for name, value in constants.items()}
        text = f"net ({io}[4,16] x) => ({io}[4,16] y) {{ {lines} }}"
        models.append(parsed(text, **cast))
    return models[0], models[1]
