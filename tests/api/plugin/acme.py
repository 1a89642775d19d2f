"""What another package brings: a runtime, a pass, a hypothesis and a reader of references."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from onnx import ModelProto

from onnxsurgeon_lite import Model, PassResult, SetAttr
from onnxsurgeon_lite.debug.causes.hypothesis import Hypothesis
from onnxsurgeon_lite.debug.causes.place import Place
from onnxsurgeon_lite.runtime.protocol import Abilities


class Runtime:
    """Computes chains of Neg, and takes each value of them."""

    abilities = Abilities(version="1", faithful=True)

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.sign = np.float32(settings.get("sign", -1))

    def open(self, model: ModelProto, opt: str, threads: int) -> None:
        self.nodes = list(model.graph.node)
        if any(node.op_type != "Neg" for node in self.nodes):
            raise ValueError("acme knows Neg alone")

    def run(self, feeds: Mapping, fetch: Sequence[str]) -> Mapping:
        values = dict(feeds)
        for node in self.nodes:
            values[node.output[0]] = self.sign * values[node.input[0]]
        return {name: values[name] for name in fetch}


@dataclass(frozen=True)
class Tag:
    """Write who made the model.

    Attributes:
        version: Its version.
    """

    producer: str
    version: str = ""
    name: ClassVar[str] = "acme-tag"

    def apply(self, model: Model) -> PassResult:
        result = model.copy()
        result.proto.producer_name = f"{self.producer} {self.version}".strip()
        return PassResult(result, changed=result.proto != model.proto)


def old_hard_sigmoid(place: Place) -> Iterator[Hypothesis]:
    for number, node in enumerate(place.index.nodes):
        if node.op_type == "HardSigmoid":
            right = (("alpha", 0.37), ("beta", 0.21))
            edit = SetAttr((place.node(number),), right)
            yield Hypothesis("acme", "it is Acme's; with its alpha and beta", (edit,))


def read(path: Path) -> Mapping[str, np.ndarray]:
    stored = json.loads(path.read_text())
    return {name: np.array(numbers, np.float32) for name, numbers in stored.items()}
