"""Pad the ragged outputs of one image to a fixed length."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import ClassVar

from onnx import TensorProto, helper

from onnxsurgeon_lite.errors import ShapeError, UsageError, require_known
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.names import split
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.passes.ragged import (
    COUNT,
    Appender,
    is_ragged,
    padded_type,
    ragged_type,
    require_length,
)
from onnxsurgeon_lite.surgery import fresh, rename_values, value_names


@dataclass(frozen=True)
class PadOutputs:
    """Pad dimension 0 (the detections) of outputs to a fixed length, and add an output that counts the valid rows.

    Detections beyond `most` are dropped. The outputs keep their names; the unpadded values get `<name>.ragged`.

    Attributes:
        most: the padded length.
        outputs: the outputs to pad; by default every output with an open dimension 0.
        fill: the padding value by output, 0 by default.
        count: the name of the output with the number of detections, `int64 [1]`.

    Example:
        >>> osl.pad_outputs("detector.onnx", 100, "boxes").changes
        ("padded output 'boxes' to 100", "'num_detections' counts 'boxes'")
    """

    most: int
    outputs: tuple[str, ...] = ()
    fill: Mapping[str, float] = field(default_factory=dict)
    count: str = COUNT
    name: ClassVar[str] = "pad-outputs"

    def apply(self, model: Model) -> PassResult:
        """Pad the outputs.

        Raises:
            UnknownNameError: the model has no such output.
            ShapeError: an output has no dimension 0, or none is ragged.
            UsageError: `most` is not positive, the name `count` exists already, or a fill does not fit.
        """
        index = GraphIndex.of(model)
        names = split(self.outputs, index.outputs)
        require_known(chain(names, self.fill), index.outputs, "the model", "output")
        require_length(self.most)
        names = names or [name for name in index.outputs if is_ragged(index, name)]
        if not names:
            raise ShapeError(
                "no output has an open dimension 0", "name the outputs to pad: --outputs NAME,NAME"
            )
        if self.count in index:
            raise UsageError(f"value {self.count!r} exists already", "choose another --count")
        kinds = {name: ragged_type(index, name) for name in names}

        # unpadded values make room for padded ones, which have the names of the outputs
        result = model.copy()
        graph = result.graph
        taken = value_names(index)
        # outputs that a node makes; one that is an input of the graph keeps its name
        ragged = {n: fresh(f"{n}.ragged", taken) for n in names if n in index.producer}
        rename_values(result.proto, graph, ragged)  # frees the names for the padded values
        # unpadded value -> the output's name
        owner = {ragged.get(name, name): name for name in names}
        appender = Appender(result)
        # all outputs have the detections of one image, so the first is counted
        appender.length(ragged.get(names[0], names[0]), self.most, self.count)
        # pad each output, and declare its new length
        for info in graph.output:
            if info.name not in owner:
                continue
            name = owner[info.name]
            graph.value_info.add(name=info.name, type=kinds[name])
            # an output that is an input gives way to a padded copy of another name
            target = name if name in ragged else fresh(f"{name}.padded", appender.taken)
            fill = self.fill.get(name, 0.0)
            info.name = appender.padded(info.name, kinds[name], self.most, fill, target)
            info.type.CopyFrom(padded_type(kinds[name], [self.most]))
        graph.output.append(helper.make_tensor_value_info(self.count, TensorProto.INT64, [1]))
        changes = [f"padded output {name!r} to {self.most}" for name in names]
        return PassResult.of(model, result, changes + [f"{self.count!r} counts {names[0]!r}"])
