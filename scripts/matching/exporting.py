"""What exporters, the runtime's optimizer and simplifiers make of a module."""

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper

import onnxsurgeon_lite as osl
from architectures import Output, Version, built
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.runtime.session import Runtime, RuntimeOptions

EXPORTERS = ("torchscript", "dynamo")
SIMPLIFIERS = ("onnxslim", "onnxsim")


def export(
    module: torch.nn.Module, given: torch.Tensor, path: Path, exporter: str
) -> GraphIndex | None:
    """The exported model; None where the exporter cannot."""
    options = {"opset_version": 18, "external_data": False, "verbose": False}
    try:
        with silence():
            torch.onnx.export(
                module.eval(), (given,), path, dynamo=exporter == "dynamo", input_names=["given"], **options
            )  # fmt: skip
    except torch.onnx.errors.OnnxExporterError:
        return None
    return index_of(path)


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Exporters print whole graphs, one of them from C++."""
    sys.stdout.flush()
    kept = [os.dup(stream) for stream in (1, 2)]
    with open(os.devnull, "wb") as nowhere:
        for stream in (1, 2):
            os.dup2(nowhere.fileno(), stream)
    try:
        yield
    finally:
        sys.stdout.flush()
        for stream, own in zip((1, 2), kept, strict=True):
            os.dup2(own, stream)
            os.close(own)


def exported(
    name: str, folder: Path, version: Version, small: bool, noisy: bool
) -> dict[str, GraphIndex]:
    """By exporter, those that can."""
    found = {}
    for exporter in EXPORTERS:
        module, given, output = built(name, small, noisy)
        path = folder / f"{exporter}.{version.__name__}.onnx"
        index = export(Output(version(module, given), output), given, path, exporter)
        if index is not None:
            found[exporter] = index
    return found


def index_of(path: Path) -> GraphIndex:
    return GraphIndex.of(osl.load(path))


def optimized(index: GraphIndex, path: Path) -> GraphIndex:
    with Runtime(RuntimeOptions(opt="all")) as runtime:
        runtime.open(index.model, optimized=path)
    return index_of(path)


def simplified(index: GraphIndex, path: Path, tool: str) -> GraphIndex | None:
    try:
        library = importlib.import_module(tool)
    except ImportError:
        return None
    proto = onnx.load(index.model.path)
    made = library.slim(proto) if tool == "onnxslim" else library.simplify(proto)[0]
    onnx.save(made, path)
    return index_of(path)


def neutral(index: GraphIndex, path: Path) -> GraphIndex:
    """The version with one more layer, that layer an identity."""
    proto = onnx.load(index.model.path)
    extra = next(t for t in proto.graph.initializer if t.name.endswith("extra.weight"))
    extra.CopyFrom(numpy_helper.from_array(np.ones(tuple(extra.dims), np.float32), extra.name))
    onnx.save(proto, path)
    return index_of(path)
