"""Intermediate values as graph outputs."""

from dataclasses import dataclass
from typing import ClassVar

from onnxsurgeon_lite.graph.index import GraphIndex, has_shape
from onnxsurgeon_lite.graph.select import select_values
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.model.messages import drop
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.surgery.exposing import lift


@dataclass(frozen=True)
class Expose:
    """Declare intermediate values as graph outputs, so that a run returns them.

    A value inside a body (`@12/body/q`) is lifted out: of a function it is a tensor, of a branch or a loop a sequence
    of tensors, one for each time that the body ran. Loops in loops, or branches in loops, get an output
    called after the body (`@12/body`) that says at which iterations these were.
    """

    values: tuple[str, ...] = ()
    all_values: bool = False
    name: ClassVar[str] = "expose"

    def apply(self, model: Model) -> PassResult:
        """Add an output for each value that is none yet.

        Raises:
            GraphError: the graph has a cycle, or a function calls itself.
            UnknownNameError: the main graph has no such value.
        """
        index = GraphIndex.of(model)
        index.require_sound()
        selection = select_values(index, self.values, inner=True)
        wanted = [*selection.names, *(index.producer if self.all_values else ())]
        hidden = [value for value in dict.fromkeys(wanted) if value not in index.outputs]
        if not hidden:
            return PassResult(model, changed=False, notes=tuple(selection.notes))

        lifted = lift(index, [value for value in hidden if value not in index])
        result = lifted.model
        hidden = [value for value in hidden if value in index]
        index.learn_types(hidden)
        declarations = [index.value_info(value) for value in hidden]
        declarations += [wire.declared(wire.key) for wire in lifted.wires]
        result.proto.graph.output.extend(declarations)
        exposed = set(hidden)  # an output is declared once
        drop(result.proto.graph.value_info, lambda info: info.name in exposed)
        untyped = [v.name for v in declarations if not (v.HasField("type") and has_shape(v.type))]
        notes = [*selection.notes, *(f"the type of {name!r} is unknown" for name in untyped)]
        return PassResult(result, changed=True, notes=tuple(notes))
