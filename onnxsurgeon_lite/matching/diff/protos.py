"""Diff single messages: texts, types, attributes, tensors."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
)

from onnxsurgeon_lite.graph.text import type_text
from onnxsurgeon_lite.matching.diff.result import Change
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.model.messages import copied
from onnxsurgeon_lite.model.wire import unknown_fields
from onnxsurgeon_lite.tensors import dtypes

Described = ModelProto | GraphProto | NodeProto | FunctionProto | TensorProto | ValueInfoProto
"""Messages with a doc string and metadata."""


@dataclass
class DimNames:
    """A one-to-one mapping of symbolic dimension names; consistent renames do not count as changes."""

    forth: dict[str, str] = field(default_factory=dict)
    back: dict[str, str] = field(default_factory=dict)

    def copy(self) -> "DimNames":
        """Return a mapping for two values that are not the same: what it learns tells nothing of others."""
        return DimNames(dict(self.forth), dict(self.back))

    def agree(self, kind: TypeProto, other: TypeProto) -> bool:
        """Return whether two types are equal up to renamed dimensions."""
        while kind.WhichOneof("value") == other.WhichOneof("value") == "sequence_type":
            kind, other = kind.sequence_type.elem_type, other.sequence_type.elem_type
        if not kind.HasField("tensor_type") or not other.HasField("tensor_type"):
            return kind == other
        mine, theirs = kind.tensor_type, other.tensor_type
        if mine.elem_type != theirs.elem_type or mine.HasField("shape") != theirs.HasField("shape"):
            return False
        if len(mine.shape.dim) != len(theirs.shape.dim):
            return False
        return all(
            self._same_name(d.dim_param, e.dim_param) if d.dim_param and e.dim_param else d == e
            for d, e in zip(mine.shape.dim, theirs.shape.dim, strict=True)
        )

    def _same_name(self, name: str, other: str) -> bool:
        return (
            self.forth.setdefault(name, other) == other
            and self.back.setdefault(other, name) == name
        )


def type_change(kind: TypeProto, other: TypeProto, names: DimNames) -> list[Change]:
    """Return the change of a declared type."""
    if names.agree(kind, other):
        return []
    return [Change("type", type_text(kind), type_text(other))]


def text_changes(first: Described, second: Described) -> list[Change]:
    """Return changes of the doc string, the metadata and fields unknown to this onnx version."""
    changes = []
    if first.doc_string != second.doc_string:
        changes.append(Change("doc string", first.doc_string, second.doc_string))
    if first.metadata_props or second.metadata_props:
        mine, theirs = (
            {entry.key: entry.value for entry in proto.metadata_props} for proto in (first, second)
        )
        changes += entry_changes("metadata", mine, theirs)
    if unknown_fields(first) != unknown_fields(second):
        changes.append(Change("fields unknown to this onnx version"))
    return changes


def entry_changes(what: str, mine: Mapping[str, str], theirs: Mapping[str, str]) -> list[Change]:
    """Return changes of a table; an empty entry shows quotes, a missing one does not."""
    return [
        Change(
            f"{what} {key!r}",
            repr(mine[key]) if key in mine else "",
            repr(theirs[key]) if key in theirs else "",
        )
        for key in dict.fromkeys((*mine, *theirs))
        if mine.get(key) != theirs.get(key)
    ]


def attribute_key(attribute: AttributeProto) -> bytes:
    """Return the attribute's bytes without its doc string."""
    if not attribute.doc_string:
        return bytes(attribute.SerializeToString(deterministic=True))
    plain = copied(attribute)
    plain.ClearField("doc_string")
    return bytes(plain.SerializeToString(deterministic=True))


def tensor_changes(tensor: TensorProto, other: TensorProto) -> list[Change]:
    """Return changes of two tensors apart from their contents."""
    changes = text_changes(tensor, other)
    if tensor.data_type != other.data_type:
        names = map(dtypes.dtype_name, (tensor.data_type, other.data_type))
        changes.append(Change("dtype", *names))
    if tensor.dims != other.dims:
        changes.append(Change("shape", str(list(tensor.dims)), str(list(other.dims))))
    return changes


def tensor_text(model: Model, tensor: TensorProto) -> str:
    """Return a small tensor's numbers as text."""
    return str(model.array(tensor).tolist())
