"""Rename all outputs at once."""

from dataclasses import dataclass
from typing import ClassVar

from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.passes.rename import Rename


@dataclass(frozen=True)
class NameOutputs:
    """Rename the outputs in order: one name per output, or the names of one image, repeated for each image.

    `boxes, labels, scores` for nine outputs gives `boxes.0, labels.0, scores.0, boxes.1` and so on.

    Attributes:
        names: in the order of the outputs.

    Example:
        >>> osl.name_outputs("whole_model.onnx", "out").changes
        ("renamed value '31' to 'out'",)
    """

    names: tuple[str, ...]
    name: ClassVar[str] = "name-outputs"

    def apply(self, model: Model) -> PassResult:
        """Rename the outputs, and their values in all nodes.

        Raises:
            UsageError: the number of outputs is not a multiple of the number of names.
            EditError: a name exists already.
        """
        outputs = list(GraphIndex.of(model).outputs)
        return Rename(tuple(zip(outputs, self._names(len(outputs)), strict=True))).apply(model)

    def _names(self, count: int) -> list[str]:
        if len(set(self.names)) < len(self.names):
            raise UsageError("a name is given twice", "give each output of an image its own name")
        if not self.names or count % len(self.names):
            raise UsageError(
                f"{count} outputs are not a multiple of {len(self.names)} names",
                "give the names of one image's outputs, in order",
            )
        if count == len(self.names):
            return list(self.names)
        # image by image: boxes.0, labels.0, boxes.1, labels.1
        images = range(count // len(self.names))
        return [f"{name}.{image}" for image in images for name in self.names]
