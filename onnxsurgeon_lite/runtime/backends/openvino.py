"""OpenVINO: it compiles a model for a device, and fuses what it likes."""

import io
from collections.abc import Mapping, Sequence

import numpy as np
import openvino as ov
from onnx import ModelProto

from onnxsurgeon_lite.runtime.protocol import Abilities
from onnxsurgeon_lite.tensors.dtypes import RunValues


class OpenVino:
    """OpenVINO's compiler; `provider` is the device, other settings are its properties."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._properties = dict(settings)
        self._device = self._properties.pop("provider", "cpu").upper()
        self._core = ov.Core()
        devices = tuple(self._core.available_devices)
        self.abilities = Abilities(version=ov.__version__, providers=devices)

    def open(self, model: ModelProto, opt: str, threads: int) -> None:  # noqa: ARG002
        read = self._core.read_model(io.BytesIO(model.SerializeToString()))
        own = {"INFERENCE_NUM_THREADS": threads} if threads else {}
        self._compiled = self._core.compile_model(read, self._device, {**own, **self._properties})
        self._inputs = {name for port in self._compiled.inputs for name in port.get_names()}

    def run(self, feeds: RunValues, fetch: Sequence[str]) -> RunValues:
        known = {name: value for name, value in feeds.items() if name in self._inputs}
        found = self._compiled(known)
        return {name: np.array(found[name]) for name in fetch}
