"""Turn constants into graph inputs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from onnx import NodeProto, TensorProto, TypeProto, ValueInfoProto

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph import GraphIndex, tensor_type
from onnxsurgeon_lite.graph.selecting.select import select_values
from onnxsurgeon_lite.model import Model, copied, is_external
from onnxsurgeon_lite.names import joined, listed
from onnxsurgeon_lite.passes.inverse import MOST_KEPT, recall, remember, remember_types
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.passes.set_constant import constant_tensor
from onnxsurgeon_lite.passes.targets import initializer_place
from onnxsurgeon_lite.surgery import Taken, clear_bodies, fresh
from onnxsurgeon_lite.surgery.constants import is_raw
from onnxsurgeon_lite.surgery.relax import relax


@dataclass(frozen=True)
class Promote:
    """Turn constants (initializers, outputs of Constant nodes) into graph inputs with their dtype and shape.

    With `default` the constant stays as the input's default. Declared sizes that depend on its numbers become
    unknown. `Freeze` is the inverse: without numbers it brings back those that were there.

    Attributes:
        values: initializers, or outputs of Constant nodes.
        default: keep the constant as the input's default.

    Example:
        >>> osl.promote("whole_model.onnx", "convs1.0.bias").changes
        ("initializer 'convs1.0.bias' is an input now",)
    """

    values: tuple[str, ...]
    default: bool = False
    name: ClassVar[str] = "promote"

    def apply(self, model: Model) -> PassResult:
        """Promote.

        Raises:
            UnknownNameError: no such value.
            EditError: a value is not a constant, or the IR version has no input defaults.
        """
        index = GraphIndex.of(model)
        selection = select_values(index, self.values)
        notes = selection.notes
        if self.default and model.proto.ir_version < 4:
            raise EditError(
                f"IR version {model.proto.ir_version} does not support inputs with a default",
                "leave out --default",
            )
        result = model.copy()
        changes = []
        promoted = dict[str, TensorProto]()
        for value in selection.names:
            tensor = constant_tensor(index, value)
            # an initializer that is an input already has its default
            if value in index.inputs and self.default:
                continue
            kind = "constant" if index.producer.get(value) is not None else "initializer"
            kept = self._promote(index, result, value, tensor)
            if kept:
                notes.append(
                    f"the numbers of {value!r} stay in {kept!r} for freeze; onnxdbg edit clean removes them"
                )
            promoted[value] = tensor
            changes.append(
                f"{kind} {value!r} is an input now" + (", with its default" if self.default else "")
            )
        # sizes that followed from the numbers are open now
        relaxed = relax(index, result, promoted)
        for declared in result.graph.input:
            if declared.name in promoted:
                remember_types(declared, relaxed)
        notes += _relaxed_note(relaxed)
        if self.default and changes:
            notes.append(
                "runtimes do not fold inputs with a default; to make them constants again: "
                f"onnxdbg edit freeze MODEL {listed(selection.names)}"
            )
        return PassResult.of(model, result, changes, notes)

    def _promote(self, index: GraphIndex, result: Model, value: str, tensor: TensorProto) -> str:
        """Promote one value; return the initializer that keeps its numbers, if one does."""
        graph = result.graph
        kept = ""
        told = (info for info in graph.value_info if info.name == value)  # its docs
        declared = copied(next(told, ValueInfoProto(name=value)))
        declared.type.CopyFrom(tensor_type(tensor))
        if index.producer.get(value) is not None:
            # a Constant node: its output becomes the input
            place = next(p for p, node in enumerate(graph.node) if value in node.output)
            kept = self._keep(index, result, declared, place, tensor)
            if self.default:
                default = graph.initializer.add()
                default.CopyFrom(tensor)
                default.name = value
            del graph.node[place]
            clear_bodies(graph.node, {value})  # it comes before them now
        # an initializer goes, unless it stays as the default
        elif not self.default:
            place = initializer_place(graph, value)
            original = recall(graph.initializer[place])
            frozen = original.message(ValueInfoProto) if original is not None else None
            # it was an input once: `Freeze` noted its declaration and its place
            if original is not None and frozen is not None and frozen.name == value:
                del graph.initializer[place]
                graph.input.insert(original.place, frozen)
                return ""
            kept = self._keep(index, result, declared, place, tensor)
            del graph.initializer[place]
        # it was an input with a default, and stays an input
        if value in index.inputs:
            existing = next(info for info in graph.input if info.name == value)
            existing.metadata_props.extend(declared.metadata_props)
        else:
            graph.input.append(declared)
        return kept

    def _keep(
        self,
        index: GraphIndex,
        result: Model,
        declared: ValueInfoProto,
        place: int,
        tensor: TensorProto,
    ) -> str:
        """Note the original, with its numbers unless they are the default; return the initializer that has them."""
        graph = result.graph
        made = index.producer.get(declared.name) is not None
        original = graph.node[place] if made else graph.initializer[place]
        whole = copied(original)
        # a Constant holds its tensor in an attribute
        parts = [a.t for a in whole.attribute] if isinstance(whole, NodeProto) else [whole]
        size = index.model.span(tensor)[2] if is_external(tensor) else tensor.ByteSize()
        # small: the numbers are noted with the message
        if not self.default and size <= MOST_KEPT:
            index.model.fill(filter(is_external, parts))
            remember(declared, place, whole, not is_raw(tensor), kept="")
            return ""
        # large: the message without numbers, which stay in an initializer that nothing reads
        bare = _without_payload(original) if isinstance(original, NodeProto) else _bare(original)
        name = "" if self.default else fresh(f"{declared.name}_promoted", Taken(index))
        remember(declared, place, bare, not is_raw(tensor), name or None)
        if name:
            graph.initializer.append(tensor)
            graph.initializer[-1].name = name
        return name


def _relaxed_note(relaxed: Mapping[str, TypeProto]) -> list[str]:
    if not relaxed:
        return []
    shown = joined(list(relaxed)[:6]) + (", ..." if len(relaxed) > 6 else "")
    return [f"declared sizes that depend on it became unknown, for {len(relaxed)} values: {shown}"]


def _bare(tensor: TensorProto) -> TensorProto:
    """Copy a tensor without its numbers."""
    bare = copied(tensor)
    for field, _ in tensor.ListFields():
        if field.name.endswith("_data") or field.name == "data_location":
            bare.ClearField(field.name)
    return bare


def _without_payload(node: NodeProto) -> NodeProto:
    """Copy a Constant node without its numbers."""
    bare = copied(node)
    for attribute in bare.attribute:
        if attribute.HasField("t"):
            attribute.t.CopyFrom(_bare(attribute.t))
        for field in ("f", "i", "s", "floats", "ints", "strings"):
            attribute.ClearField(field)
    return bare
