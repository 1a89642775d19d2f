"""The models that faults are planted in: exports of small architectures, in three precisions, with their references."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch

import onnxsurgeon_lite as osl

sys.path.append(str(Path(__file__).parents[1] / "matching"))

from architectures import ARCHITECTURES, Output, built
from exporting import export, silence
from onnxsurgeon_lite.recording.torch_recorder import record_module

NAMES = [*ARCHITECTURES]
EVERY = 7
"""Partial references hold each value of so many."""


@dataclass(frozen=True)
class Subject:
    """One right model.

    Attributes:
        references: kind -> where the references are.
        shapes: the shapes of the float values that the feeds go into.
    """

    name: str
    model: Path
    references: dict[str, Path]
    shapes: dict[str, tuple[int, ...]]


def subjects(name: str, folder: Path) -> Iterator[Subject]:
    """Yield the exports of an architecture in every precision."""
    module, given, output = built(name, small=True, noisy=True)
    _liven(module)
    wrapped = Output(module, output)
    np.savez(folder / "feeds.npz", given=given.numpy())
    record_module(wrapped, (given,), folder=folder / "modules", input_names=["given"])
    for exporter in ("torchscript", "dynamo"):
        path = folder / f"{exporter}.onnx"
        if export(wrapped, given, path, exporter) is None:
            continue
        full = _recorded(path, folder, exporter)
        partial = _thinned(full, path, folder / f"{exporter}.partial.npz")
        references = {"full": full, "partial": partial, "modules": folder / "modules"}
        yield Subject(f"{name}, {exporter}", path, references, _shapes(full))
        if exporter == "torchscript":
            yield from precisions(name, path, folder, references)


def precisions(
    name: str, path: Path, folder: Path, references: dict[str, Path]
) -> Iterator[Subject]:
    half = folder / "half.onnx"
    _halved(path, half)
    of = {"float32": references["full"], "full": _recorded(half, folder, "half")}
    yield Subject(f"{name}, float16", half, of, _shapes(of["full"]))
    quantized = folder / "quantized.onnx"
    _quantized(path, quantized, folder / "feeds.npz")
    full = _recorded(quantized, folder, "quantized")
    of = {"full": full, "partial": _thinned(full, quantized, folder / "quantized.partial.npz")}
    yield Subject(f"{name}, QDQ", quantized, of | {"float32": references["full"]}, _shapes(full))


def _liven(module: torch.nn.Module) -> None:
    """Give an untrained network a signal: norms and batch norms are near zero or one."""
    for part in module.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(part.weight, 0.5, 1.5)
            torch.nn.init.uniform_(part.bias, -0.2, 0.2)
        elif isinstance(part, torch.nn.Linear):
            torch.nn.init.normal_(part.weight, std=part.in_features**-0.5)


def _recorded(model: Path, folder: Path, name: str) -> Path:
    osl.record(model, folder / f"{name}.npz", feeds=folder / "feeds.npz")
    return folder / f"{name}.npz"


def _thinned(full: Path, model: Path, path: Path) -> Path:
    """Keep the inputs, the outputs and some values in between."""
    stored = np.load(full)
    graph = onnx.load(model, load_external_data=False).graph
    ends = {value.name for value in (*graph.input, *graph.output)}
    made = [name for node in graph.node for name in node.output if name in stored.files]
    kept = [*made[::EVERY], *(name for name in stored.files if name in ends)]
    np.savez(path, **{name: stored[name] for name in dict.fromkeys(kept)})
    return path


def _shapes(full: Path) -> dict[str, tuple[int, ...]]:
    stored = np.load(full)
    return {
        n: stored[n].shape
        for n in stored.files
        if stored[n].dtype.kind == "f" and stored[n].size > 1
    }


def _halved(path: Path, to: Path) -> None:
    from onnxruntime.transformers.float16 import convert_float_to_float16

    half = convert_float_to_float16(onnx.load(path), keep_io_types=True)
    osl.save(osl.sort(half).model, to)


def _quantized(path: Path, to: Path, feeds: Path) -> None:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    class Feeds(CalibrationDataReader):
        def __init__(self) -> None:
            self.samples = iter([dict(np.load(feeds))])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.samples, None)

    with silence():
        quantize_static(path, to, Feeds(), quant_format=QuantFormat.QDQ)
