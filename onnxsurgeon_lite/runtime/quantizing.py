"""Quantize with onnxruntime's own tools."""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
from google.protobuf.message import Message
from onnx import ModelProto

from onnxsurgeon_lite.errors import RuntimeFailure, RuntimeTimeout
from onnxsurgeon_lite.graph import INTEGERS, opset_versions
from onnxsurgeon_lite.model import Model, by_name, load, save, take_fields
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.script import run_to_end
from onnxsurgeon_lite.tensors.references import save_tensors

CALIBRATIONS = {"minmax": "MinMax", "entropy": "Entropy", "percentile": "Percentile"}
_CHANNELS = 13  # the opset since which DequantizeLinear takes a scale for each channel
_FREE = 4  # the IR version since which an initializer, such as a scale, need not be an input
_SECONDS = 600.0
_TEXT = ("doc_string", "metadata_props")
_MODEL = ("producer_name", "producer_version", "domain", "model_version") + _TEXT
_WORKER = Path(__file__).with_name("quantize_worker.py")


@dataclass
class Quantizing:
    """Quantizations of one model, of any of its nodes.

    Attributes:
        folder: where files may lie meanwhile.
        calibrate: how ranges are found; '' for ranges that each run finds.
    """

    model: Model
    folder: Path
    calibrate: str
    samples: Sequence[Feeds]
    timeout: float | None
    source: Path = field(init=False)
    to: ClassVar[str] = "int8"

    def __post_init__(self) -> None:
        for file in self.model.files.values():
            file.verify()  # the tool reads the numbers
        self.source = self.folder / "float.onnx"
        save(self.model, self.source)
        for number, feeds in enumerate(self.samples):
            save_tensors(
                self.folder / f"{number}.npz",
                {name: np.asarray(value) for name, value in feeds.items()},
            )

    def quantized(self, nodes: Sequence[str]) -> Model:
        """Return the model with these nodes quantized, by name.

        Raises:
            RuntimeFailure: the tool fails.
        """
        if not nodes:  # to the tool, no list is all nodes
            return self.model
        result = self.folder / "quantized.onnx"
        request = {
            "model": str(self.source),
            "result": str(result),
            "nodes": list(nodes),
            "channels": opset_versions(self.model.proto.opset_import)[""] >= _CHANNELS,
            "calibrate": CALIBRATIONS.get(self.calibrate, ""),
            "samples": [str(self.folder / f"{n}.npz") for n in range(len(self.samples))],
            "cache": str(self.folder / "ranges.json"),
        }
        asked = self.folder / "request.json"
        asked.write_text(json.dumps(request), encoding="utf-8")
        command = [sys.executable, "-u", str(_WORKER), str(asked)]
        try:
            code, said = run_to_end(command, self.timeout or _SECONDS)
        except TimeoutError as error:
            raise RuntimeTimeout(
                "onnxruntime's quantizer takes too long", "give it more --timeout"
            ) from error
        if code:
            last = said.decode(errors="replace").strip().splitlines()[-1:]
            raise RuntimeFailure(": ".join(["onnxruntime's quantizer fails"] + last))
        # the tool's file is gone with its folder
        made = load(result).materialize()
        _carry(self.model.proto, made)
        made.ir_version = max(made.ir_version, _FREE)
        return Model(made)


def _carry(source: ModelProto, made: ModelProto) -> None:
    """Give a quantized model what the tool drops: producer, documentation and metadata, also of what it replaced."""
    _describe(source, made, _MODEL)
    _describe(source.graph, made.graph, ("name",) + _TEXT)
    for kind in ("input", "output", "initializer"):
        known = by_name(getattr(source.graph, kind))
        for value in getattr(made.graph, kind):
            # an initializer has the name of its integers now
            if original := known.get(value.name.removesuffix(INTEGERS)):
                _describe(original, value, _TEXT)
    named = by_name(source.graph.node)
    # nodes by their names, or by their outputs
    named |= {name: node for node in source.graph.node for name in node.output if name}
    for node in made.graph.node:
        # "Conv_3_quant" stands for "Conv_3"
        names = (node.name, node.name.removesuffix("_quant"), *node.output)
        if original := next((named[name] for name in names if name and name in named), None):
            _describe(original, node, _TEXT)


def _describe(source: Message, made: Message, fields: Iterable[str]) -> None:
    # the original's text comes first; metadata only where the tool left none
    free = (name for name in fields if name != "metadata_props" or not made.metadata_props)
    take_fields(made, source, list(free))
