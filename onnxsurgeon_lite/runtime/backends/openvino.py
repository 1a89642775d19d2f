"""OpenVINO: it compiles a model for a device, and fuses what it likes."""

import io
import re
from collections.abc import Mapping, Sequence

import numpy as np
import openvino as ov
from onnx import ModelProto

from onnxsurgeon_lite.errors import RuntimeFailure
from onnxsurgeon_lite.names import few
from onnxsurgeon_lite.runtime.protocol import Abilities
from onnxsurgeon_lite.tensors.dtypes import RunValues

_NO_RULE = re.compile(r"No conversion rule found for operations: .*")
_OF_NODE = re.compile(r"'<Node\((\w+)\): (.*?)>': ")


class OpenVino:
    """OpenVINO's compiler; `provider` is the device, other settings are its properties."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._properties = dict(settings)
        self._device = self._properties.pop("provider", "cpu").upper()
        self._core = ov.Core()
        devices = tuple(self._core.available_devices)
        self.abilities = Abilities(version=ov.__version__, providers=devices)

    def open(self, model: ModelProto, opt: str, threads: int) -> None:  # noqa: ARG002
        own = {"INFERENCE_NUM_THREADS": threads} if threads else {}
        try:
            read = self._core.read_model(io.BytesIO(model.SerializeToString()))
        except RuntimeError as error:
            raise RuntimeError(_reason(str(error))) from error
        try:
            compiled = self._core.compile_model(read, self._device, {**own, **self._properties})
        except RuntimeError as error:
            raise RuntimeFailure(
                f"OpenVINO does not compile the model for {self._device}: {_reason(str(error))}",
                f"it has {few(self.abilities.providers)}; other options than provider and threads are its properties",
            ) from error
        self._compiled = compiled
        self._inputs = {name for port in self._compiled.inputs for name in port.get_names()}

    def run(self, feeds: RunValues, fetch: Sequence[str]) -> RunValues:
        # inputs that the compiled model has no use for are refused
        known = {name: value for name, value in feeds.items() if name in self._inputs}
        found = self._compiled(known)
        return {name: np.array(found[name]) for name in fetch}


def _reason(message: str) -> str:
    """Return what a message says at its end, after the places in OpenVINO's source, and the node that it is about."""
    no_rule = _NO_RULE.search(message)
    if no_rule:
        return no_rule[0]
    log = message.partition("Summary:\n")[0].strip()
    node = _OF_NODE.search(log)
    last = _OF_NODE.split(log.splitlines()[-1])[-1]
    return f"{node[1]} {node[2]!r}: {last}" if node else last
