"""Constants as inputs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from onnx import NodeProto, TensorProto, TypeProto, ValueInfoProto

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph.index import GraphIndex, tensor_type
from onnxsurgeon_lite.graph.select import select_values
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.model.messages import copied
from onnxsurgeon_lite.names import listed
from onnxsurgeon_lite.passes.inverse import recall, remember, remember_types
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.passes.set_constant import constant_tensor
from onnxsurgeon_lite.surgery.constants import is_raw
from onnxsurgeon_lite.surgery.relax import loosen


@dataclass(frozen=True)
class Promote:
    """Make constants (initializers, what Constant nodes make) inputs of the graph, of their dtype and shape.

    With `default` the constant stays as the input's default value. Declared sizes that followed from its numbers are
    unknown then. `Freeze` is the inverse.
    """

    values: tuple[str, ...]
    default: bool = False
    name: ClassVar[str] = "promote"

    def apply(self, model: Model) -> PassResult:
        """Promote.

        Raises:
            UnknownNameError: no such value.
            EditError: a value is no constant, or the format is too old for inputs with a default.
        """
        index = GraphIndex.of(model)
        selection = select_values(index, self.values)
        notes = selection.notes
        if self.default and model.proto.ir_version < 4:
            raise EditError(
                f"in IR version {model.proto.ir_version} every initializer is an input already",
                "leave out --default",
            )
        result = model.copy()
        changes = []
        promoted: dict[str, TensorProto] = {}
        for value in selection.names:
            tensor = constant_tensor(index, value)
            if value in index.inputs and self.default:
                continue
            kind = "constant" if value in index.producer else "initializer"
            self._promote(index, result, value, tensor)
            promoted[value] = tensor
            changes.append(
                f"{kind} {value!r} is an input now" + (", with its default" if self.default else "")
            )
        loosened = loosen(index, result, promoted)
        for declared in result.proto.graph.input:
            if declared.name in promoted:
                remember_types(declared, loosened)
        notes += _said(loosened)
        if self.default and changes:
            notes.append(
                "a constant that can be overridden is not folded by runtimes; to make it one again: "
                f"onnxdbg edit freeze MODEL {listed(selection.names)}"
            )
        return PassResult.of(model, result, changes, notes)

    def _promote(self, index: GraphIndex, result: Model, value: str, tensor: TensorProto) -> None:
        graph = result.proto.graph
        declared = ValueInfoProto(name=value, type=tensor_type(tensor))
        if value in index.producer:
            place = next(p for p, node in enumerate(graph.node) if value in node.output)
            remember(declared, place, _without_payload(graph.node[place]), _is_typed(tensor))
            if self.default:
                default = graph.initializer.add()
                default.CopyFrom(tensor)
                default.name = value
            del graph.node[place]
        elif not self.default:
            place = next(p for p, t in enumerate(graph.initializer) if t.name == value)
            original = recall(graph.initializer[place])
            frozen = original.message(ValueInfoProto) if original is not None else None
            if original is not None and frozen is not None and frozen.name == value:
                del graph.initializer[place]
                graph.input.insert(original.place, frozen)
                return
            remember(declared, place, _bare(graph.initializer[place]), _is_typed(tensor))
            del graph.initializer[place]
        if value not in index.inputs:
            graph.input.append(declared)


def _said(loosened: Mapping[str, TypeProto]) -> list[str]:
    if not loosened:
        return []
    shown = ", ".join(map(repr, list(loosened)[:6])) + (", ..." if len(loosened) > 6 else "")
    return [
        f"sizes that followed from it are declared unknown now, of {len(loosened)} values: {shown}"
    ]


def _is_typed(tensor: TensorProto) -> bool:
    return not is_raw(tensor)


def _bare(tensor: TensorProto) -> TensorProto:
    """All that a tensor says but its numbers."""
    bare = copied(tensor)
    for field, _ in tensor.ListFields():
        if field.name.endswith("_data") or field.name == "data_location":
            bare.ClearField(field.name)
    return bare


def _without_payload(node: NodeProto) -> NodeProto:
    """A Constant node without its numbers."""
    bare = copied(node)
    for attribute in bare.attribute:
        if attribute.HasField("t"):
            attribute.t.CopyFrom(_bare(attribute.t))
        for field in ("f", "i", "s", "floats", "ints", "strings"):
            attribute.ClearField(field)
    return bare
