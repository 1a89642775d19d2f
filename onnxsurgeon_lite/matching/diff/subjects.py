"""Describe the subjects of differences."""

from typing import Literal

from onnx import NodeProto, SparseTensorProto, TensorProto

from onnxsurgeon_lite.matching.diff.result import Change, Difference
from onnxsurgeon_lite.matching.nodes import NamedGraph
from onnxsurgeon_lite.tensors.dtypes import dtype_name

Initializer = TensorProto | SparseTensorProto


def unpaired(scope: NamedGraph, position: int, status: Literal["added", "removed"]) -> Difference:
    """Describe an unpaired node, with the values around it."""
    reads = ", ".join(map(repr, scope.needs(position)))
    makes = ", ".join(map(repr, filter(None, scope.makes[position])))
    around = tuple(
        Change(f"{what} {names}") for what, names in (("reads", reads), ("makes", makes)) if names
    )
    node = scope.node_id(position)
    ids = (node, "") if status == "removed" else ("", node)
    place = place_of(scope, position)
    return Difference(status, "node", scope.describe(position), *ids, around, place=place)


def place_of(scope: NamedGraph, position: int) -> str:
    """Return the node's origin if the exporter recorded a class or line, else ''."""
    origin = scope.index.origins[position]
    return str(origin) if origin.modules or origin.frames else ""


def named(
    status: str, kind: Literal["input", "output", "initializer"], subject: str, name: str, text: str
) -> Difference:
    """Describe an input, output or initializer of only one graph."""
    if status == "removed":
        return Difference("removed", kind, f"{subject} ({text})", before=name)
    return Difference("added", kind, f"{subject} ({text})", after=name)


def operator_text(node: NodeProto) -> str:
    """Return `domain::op_type::overload` without empty parts."""
    return "::".join(filter(None, (node.domain, node.op_type, node.overload)))


def producer_text(scope: NamedGraph, name: str) -> str:
    """Describe the producer of a value, or the value itself."""
    position = scope.index.producer.get(name)
    return repr(name) if position is None else scope.describe(position)


def leaf_kind(scope: NamedGraph, name: str) -> str:
    """Return the kind of a value without a producer."""
    if name not in scope.index.initializers:
        return "input"
    return "input with a default" if name in scope.index.inputs else "initializer"


def tensor_kind(tensor: Initializer) -> str:
    if isinstance(tensor, SparseTensorProto):
        return f"sparse {list(tensor.dims)}"
    return f"{dtype_name(tensor.data_type)} {list(tensor.dims)}"


def quoted(name: str) -> str:
    """Quote a name; '' for an omitted value."""
    return repr(name) if name else ""
