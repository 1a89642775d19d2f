"""Other sizes for dimensions of the inputs, all the way through."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.text import shape_text
from onnxsurgeon_lite.model import Model, loaded
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.surgery.resizing import follow, symbols_for
from onnxsurgeon_lite.surgery.resizing.rewrite import carry_out


@dataclass(frozen=True)
class SetShape:
    """Give inputs other shapes, and the constants inside that follow their dimensions the values that they must have.

    Bodies are reached; a function that holds what must change is inlined. What is changed is derived, not yet proved:
    `proving.prove` runs it.

    Attributes:
        shapes: input -> its shape, a number for a fixed size, a name for an open one.
        second: an export of the same network at other sizes, or its path; its constants show what follows, too.
    """

    shapes: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)
    second: Model | str | None = None
    name: ClassVar[str] = "set-shape"

    def apply(self, model: Model) -> PassResult:
        """Change the declarations and the constants.

        Raises:
            ShapeError: a node is in the way, or a shape does not fit its input.
            UnknownNameError: the model has no such input.
            GraphError: the graph has a cycle, or a function calls itself.
        """
        return resized(GraphIndex.of(model), self.shapes, self.second)


def resized(
    index: GraphIndex, shapes: Mapping[str, tuple[int | str, ...]], second: Model | str | None
) -> PassResult:
    """The model of an index with other shapes of its inputs; see `SetShape`."""
    model = index.model
    symbols = symbols_for(index, shapes)
    if not any(symbol.changes for symbol in symbols):
        return PassResult(model, changed=False)
    followed = follow(model.copy(), symbols, None if second is None else loaded(second))
    result, plan = followed.model, followed.plan
    changes = [f"inlined function {name!r}: it holds what follows" for name in followed.inlined]
    changes += carry_out(result, plan)
    for info in result.proto.graph.input:
        before = index.inputs[info.name].type
        if info.type != before:
            now = shape_text(info.type)
            changes.append(f"input {info.name!r}: {shape_text(before)} -> {now}")
    return PassResult.of(model, result, changes, plan.kept)
