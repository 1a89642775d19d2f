"""Change input shapes, and the constants that depend on them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from onnx import TensorShapeProto, TypeProto

from onnxsurgeon_lite.errors import ShapeError
from onnxsurgeon_lite.graph import GraphIndex, has_shape, require_schemas, shape_text
from onnxsurgeon_lite.model import Model, loaded
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.surgery.resizing.follow import follow, symbols_for
from onnxsurgeon_lite.surgery.resizing.rewrite import Resizing


@dataclass(frozen=True)
class SetShape:
    """Set input shapes, and the constants inside that depend on them.

    Constants in bodies change too; a function that contains one is inlined. The result is derived, not proved:
    `matching.prove` runs it.

    Attributes:
        shapes: input -> shape, with a number for a fixed size and a name for an open one.
        second: an export of the same network at other sizes, or its path; constants that differ are derived from it.

    Example:
        >>> osl.set_shape("frozen_batch.onnx", {"x": ("N", 4, 6)}).proof
        ('agrees with the original at N = 2; N = 1; N = 3; N = 7',)
    """

    shapes: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)
    second: Model | str | None = None
    name: ClassVar[str] = "set-shape"

    def apply(self, model: Model) -> PassResult:
        """Change the declarations and the constants.

        Raises:
            ShapeError: a node prevents the change, or a shape does not fit its input.
            UnknownNameError: the model has no such input.
            GraphError: the graph has a cycle, or a function calls itself.
        """
        if not self.shapes:
            raise ShapeError("no input is given a shape", "write INPUT=1,3,224,224")
        return resized(_ranked(model, self.shapes), self.shapes, self.second)


def _ranked(model: Model, shapes: Mapping[str, tuple[int | str, ...]]) -> Model:
    """Return the model with open dimensions for inputs that declare no shape."""
    # places in the list, because the copy has other messages
    named = (place for place, info in enumerate(model.graph.input) if info.name in shapes)
    places = [place for place in named if not has_shape(model.graph.input[place].type)]
    if not places:
        return model
    result = model.copy()
    for info in (result.graph.input[place] for place in places):
        open_dims = (TensorShapeProto.Dimension() for _ in shapes[info.name])
        info.type.tensor_type.shape.dim.extend(open_dims)
    return result


def _require_elements(result: Model, emptied: Mapping[str, TypeProto]) -> None:
    """Raise `ShapeError` if a value has no elements left, as after a window that is larger than what it reads."""
    if not emptied:
        return
    index = GraphIndex.of(result)
    left = emptied.keys() & index.producer.keys()
    if left:
        name = min(left, key=index.rank.__getitem__)
        raise ShapeError(
            f"{index.describe(index.producer[name])} blocks the change: {name!r} would have shape "
            f"{shape_text(emptied[name])}, which has no elements",
            "give a larger size",
        )


def resized(
    model: Model, shapes: Mapping[str, tuple[int | str, ...]], second: Model | str | None
) -> PassResult:
    """Set the input shapes of a model; see `SetShape`."""
    index = GraphIndex.of(model)
    require_schemas(index)
    symbols = symbols_for(index, shapes)
    if not any(symbol.changes for symbol in symbols):
        return PassResult(model, changed=False)
    del index  # it takes memory that is needed now
    other = None if second is None else loaded(second)
    result, plan, inlined = follow(model.copy(), symbols, other)
    changes = [f"inlined function {name!r}: it contains values that change" for name in inlined]
    # the plan was made on a copy whose functions are inlined; now its constants change
    rewriting = Resizing(result, plan)
    changes += rewriting.run()
    _require_elements(result, rewriting.declaring.emptied)
    before = {info.name: info.type for info in model.graph.input}
    for info in result.graph.input:
        if info.type != before[info.name]:
            was, now = map(shape_text, (before[info.name], info.type))
            changes.append(f"input {info.name!r}: {was} -> {now}")
    return PassResult.of(model, result, changes, plan.kept)
