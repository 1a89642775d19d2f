"""Models with a mistake and the values of the right ones, to ask bisect for the cause."""

import numpy as np
import onnx
from onnx import parser

import onnxsurgeon_lite as osl


def model(text: str, **weights: np.ndarray) -> onnx.ModelProto:
    """A model of a text, with weights as its initializers."""
    header = '<ir_version: 10, opset_import: ["" : 21, "local" : 1]> '
    proto = parser.parse_model(header + text)
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(w, n) for n, w in weights.items())
    return proto


def references(right: onnx.ModelProto, **feeds: np.ndarray) -> dict[str, np.ndarray]:
    """Every value of the right model, and what it was fed with."""
    names = [name for node in right.graph.node for name in node.output]
    return {**feeds, **osl.run(right, feeds=feeds, fetch=names)}


def found(wrong: onnx.ModelProto, right: onnx.ModelProto, **feeds: np.ndarray) -> osl.BisectResult:
    return osl.bisect(wrong, references(right, **feeds), feeds=feeds)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def said(wrong, right, *keep: str, **feeds: np.ndarray) -> str:
    """The first cause, against some of the right model's values."""
    known = {name: value for name, value in references(right, **feeds).items() if name in keep}
    return osl.bisect(wrong, known, feeds=feeds).culprits[0].causes[0].sentence
