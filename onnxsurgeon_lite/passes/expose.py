"""Declare intermediate values as graph outputs."""

from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

from onnxsurgeon_lite.graph import GraphIndex, has_shape
from onnxsurgeon_lite.graph.cut import boundary
from onnxsurgeon_lite.graph.selecting.select import select_parts, select_values, split_names
from onnxsurgeon_lite.model import Model, drop
from onnxsurgeon_lite.names import listed
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.surgery.exposing import expose_inner

_PARTS = ("scope:", "class:", "pattern:")


@dataclass(frozen=True)
class Expose:
    """Declare intermediate values as graph outputs, so that a run returns them.

    A value inside a body (`@12/body/q`) becomes a tensor for a function, and a sequence with one tensor per run of
    the body for a branch or loop. Nested loops, and branches in loops, get another output named after the body
    (`@12/body`) with the iteration of each tensor.

    Attributes:
        values: names, ids, globs, `op:Conv`; a module (`scope:layer.0`), all modules of a class, or the matches of a
            pattern stand for what goes in and comes out.
        all_values: expose every value, or every one of these modules.

    Example:
        >>> exposed = osl.expose("whole_model.onnx", ["23", "op:Add"])
        >>> list(osl.run(exposed.model))
        ['31', '23', '28']
    """

    values: tuple[str, ...] = ()
    all_values: bool = False
    name: ClassVar[str] = "expose"

    def apply(self, model: Model) -> PassResult:
        """Add an output for each value that is not one yet.

        Raises:
            GraphError: the graph has a cycle, or a function calls itself.
            UnknownNameError: the main graph has no such value.
        """
        index = GraphIndex.of(model)
        index.require_sound()
        places = () if self.all_values else split_names(index, self.values)
        # a module, class or pattern -> the values that go in and come out
        around = {place: _around(index, place) for place in places if place.startswith(_PARTS)}
        named = [listed([place]) for place in places if place not in around]
        selection = select_values(index, self.values if self.all_values else named, inner=True)
        # selected values, then those of modules, then every one
        wanted = selection.names + list(chain.from_iterable(around.values()))
        wanted += index.producer if self.all_values and not self.values else ()
        hidden = [value for value in dict.fromkeys(wanted) if value not in index.outputs]
        if not hidden:
            return PassResult(model, changed=False, notes=tuple(selection.notes))

        # values of bodies first: their graphs change
        edited = expose_inner(index, [value for value in hidden if value not in index])
        result = edited.model
        hidden = [value for value in hidden if value in index]
        index.learn_types(hidden)
        declarations = [index.value_info(value) for value in hidden]
        # sequences and iterations, which the edit added
        declarations += [wire.declared(wire.key) for wire in edited.wires]
        result.graph.output.extend(declarations)
        exposed = set(hidden)  # outputs must not be in value_info too
        drop(result.graph.value_info, lambda info: info.name in exposed)
        untyped = [v.name for v in declarations if not (v.HasField("type") and has_shape(v.type))]
        notes = selection.notes + [f"the type of {name!r} is unknown" for name in untyped]
        return PassResult(result, changed=True, notes=tuple(notes))


def _around(index: GraphIndex, place: str) -> list[str]:
    """Return the values that go into the parts of a place and come out of them, the graph's inputs excluded."""
    found = dict[str, None]()
    for nodes in select_parts(index, place):
        inputs, outputs = boundary(index, nodes)
        found |= dict.fromkeys(inputs + outputs)
    return [name for name in found if name not in index.inputs]
