"""Change the batch size of a model."""

from dataclasses import dataclass
from typing import ClassVar

from onnx import TensorShapeProto

from onnxsurgeon_lite.errors import ShapeError, require_known
from onnxsurgeon_lite.graph import GraphIndex, dims_of, known_size, shape_text
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.names import split
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.passes.set_shape import resized


@dataclass(frozen=True)
class Rebatch:
    """Set the batch dimension of inputs to a size or a name; see `SetShape`.

    Attributes:
        to: a number for a fixed size, a name for an open one.
        inputs: the inputs with the batch dimension; all by default.
        axis: the index of the batch dimension.
        second: an export of the same network at another size, or its path; constants that differ are derived from it.

    Example:
        >>> osl.rebatch("frozen_batch.onnx").proof
        ('agrees with the original at N = 2; N = 1; N = 3; N = 7',)
    """

    to: int | str = "N"
    inputs: tuple[str, ...] = ()
    axis: int = 0
    second: Model | str | None = None
    name: ClassVar[str] = "rebatch"

    def apply(self, model: Model) -> PassResult:
        """Change the declarations and the constants.

        Raises:
            ShapeError: a node prevents the change, or the inputs differ in batch size.
            UnknownNameError: the model has no such input.
        """
        return resized(model, self.shapes(GraphIndex.of(model)), self.second)

    def shapes(self, index: GraphIndex) -> dict[str, tuple[int | str, ...]]:
        """Return the new shapes of the inputs."""
        names = split(self.inputs, index.inputs)
        require_known(names, index.inputs, "the model", "input")
        names = names or index.required_inputs
        # equal symbols or equal sizes: one batch
        found = {name: self._dimension(index, name) for name in names}
        if len(set(found.values())) > 1:
            shown = ", ".join(f"{name!r} {size}" for name, size in found.items())
            raise ShapeError(
                f"the inputs differ in dimension {self.axis}: {shown}",
                "name the inputs with the batch dimension: --inputs NAME,NAME",
            )
        return {name: self._shape(index, name) for name in names}

    def _dimension(self, index: GraphIndex, name: str) -> int | str:
        kind = index.inputs[name].type
        dims = dims_of(kind)
        if not -len(dims) <= self.axis < len(dims):
            raise ShapeError(
                f"input {name!r} is {shape_text(kind)} and has no dimension {self.axis}",
                "name the inputs with the batch dimension: --inputs NAME,NAME",
            )
        return _size(dims[self.axis])

    def _shape(self, index: GraphIndex, name: str) -> tuple[int | str, ...]:
        dims = dims_of(index.inputs[name].type)
        sizes = [_size(dim) for dim in dims]
        sizes[self.axis] = self.to
        return tuple(sizes)


def _size(dim: TensorShapeProto.Dimension) -> int | str:
    size = known_size(dim)
    return str(dim.dim_param) if size is None else size
