"""The models that faults are planted in: exports of small architectures, in three precisions, with their references."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import torch

import onnxsurgeon_lite as osl

sys.path.append(str(Path(__file__).parents[1] / "matching"))

from architectures import ARCHITECTURES, Output, built
from exporting import export, silence
from onnxsurgeon_lite.errors import RuntimeFailure
from onnxsurgeon_lite.recording.torch_recorder import record_module

NAMES = [*ARCHITECTURES]
EVERY = 7
"""Partial references hold each value of so many."""
NEVER = 1_000_000


@dataclass(frozen=True)
class Subject:
    """One right model.

    Attributes:
        feeds: where the feeds are.
        references: kind -> where the references are: `full`, `partial`, `outputs` of the model itself, `modules` of
            its PyTorch module, `float32` of the float model that it was converted from.
        shapes: the shapes of the float values that the feeds go into.
        precision: the dtype that it computes in.
    """

    name: str
    model: Path
    feeds: Path
    references: dict[str, Path]
    shapes: dict[str, tuple[int, ...]]
    precision: np.dtype = np.dtype(np.float32)


def subjects(name: str, folder: Path) -> Iterator[Subject]:
    """Yield the exports of an architecture in every precision."""
    module, given, output = built(name, small=True, noisy=True)
    _liven(module)
    wrapped = Output(module, output)
    np.savez(folder / "feeds.npz", given=given.numpy())
    record_module(wrapped, (given,), folder=folder / "modules", input_names=["given"])
    first = True
    for exporter in ("torchscript", "dynamo"):
        path = folder / f"{exporter}.onnx"
        if export(wrapped, given, path, exporter) is None:
            continue
        subject = _subject(f"{name}, {exporter}", path, modules=folder / "modules")
        yield subject
        if first:
            yield from precisions(name, subject)
        first = False


def precisions(name: str, right: Subject) -> Iterator[Subject]:
    """Yield a model in half precision, and quantized with a scale for each tensor, or each channel, if it runs so."""
    others = {"float32": right.references["full"], "modules": right.references["modules"]}
    half = right.model.with_name("half.onnx")
    _halved(right.model, half)
    with suppress(RuntimeFailure):  # an index that is computed may overflow
        yield replace(_subject(f"{name}, float16", half, **others), precision=np.dtype(np.float16))
    for kind, per_channel in (("QDQ", False), ("QDQ by channel", True)):
        quantized = right.model.with_name(f"{kind.replace(' ', '_')}.onnx")
        _quantized(right.model, quantized, right.feeds, per_channel)
        with suppress(RuntimeFailure):
            yield _subject(f"{name}, {kind}", quantized, **others)


def _subject(name: str, model: Path, **others: Path) -> Subject:
    feeds = model.with_name("feeds.npz")
    full = model.with_suffix(".npz")
    osl.record(model, full, feeds=feeds)
    own = {
        "full": full,
        "partial": _thinned(full, model, EVERY),
        "outputs": _thinned(full, model, NEVER),
    }
    return Subject(name, model, feeds, own | others, _shapes(full))


def _liven(module: torch.nn.Module) -> None:
    """Give an untrained network a signal: weights are near zero, norms and batch norms near zero or one."""
    for part in module.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(part.weight, 0.5, 1.5)
            torch.nn.init.uniform_(part.bias, -0.2, 0.2)
        elif isinstance(part, torch.nn.Linear):
            torch.nn.init.normal_(part.weight, std=part.in_features**-0.5)
        elif isinstance(part, torch.nn.Conv2d | torch.nn.ConvTranspose2d):
            torch.nn.init.kaiming_normal_(part.weight)


def _thinned(full: Path, model: Path, every: int) -> Path:
    """Keep the inputs, the outputs and each value of so many in between."""
    stored = np.load(full)
    graph = onnx.load(model, load_external_data=False).graph
    ends = [value.name for value in (*graph.input, *graph.output)]
    made = [name for node in graph.node for name in node.output if name in stored.files]
    path = full.with_suffix(f".{every}.npz")
    np.savez(
        path, **{name: stored[name] for name in dict.fromkeys([*made[every - 1 :: every], *ends])}
    )
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


def _quantized(path: Path, to: Path, feeds: Path, per_channel: bool) -> None:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    class Feeds(CalibrationDataReader):
        def __init__(self) -> None:
            self.samples = iter([dict(np.load(feeds))])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.samples, None)

    with silence():
        quantize_static(path, to, Feeds(), quant_format=QuantFormat.QDQ, per_channel=per_channel)
