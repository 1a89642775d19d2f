"""Diff single messages: texts, types, attributes, tensors."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cache
from itertools import chain

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from onnx import AttributeProto, TensorProto, TypeProto

from onnxsurgeon_lite.graph.text import type_text
from onnxsurgeon_lite.matching.diff.result import Change, tensor_kind
from onnxsurgeon_lite.matching.nodes import NamedGraph
from onnxsurgeon_lite.model import copied, entries
from onnxsurgeon_lite.model.wire import unknown_fields
from onnxsurgeon_lite.search.grouping import groups
from onnxsurgeon_lite.tensors import dtypes

_FIELDS = {
    "ModelProto": "graph functions opset_import training_info",
    "GraphProto": """
        name node initializer sparse_initializer input output value_info quantization_annotation""",
    "NodeProto": "name input output op_type domain overload attribute",
    "FunctionProto": """
        name domain overload input output attribute attribute_proto node opset_import value_info""",
    "ValueInfoProto": "name type",
    "AttributeProto": " ".join(
        n for n in AttributeProto.DESCRIPTOR.fields_by_name if n != "doc_string"
    ),
    "TensorProto": """
        name dims data_type raw_data float_data int32_data int64_data double_data uint64_data string_data
        external_data data_location""",
    "SparseTensorProto": "values indices",
}
_BY_MEANING = {message: fields.split() for message, fields in _FIELDS.items()}
"""Message -> the fields that are compared elsewhere, whatever their names, order or storage."""


@dataclass
class DimNames:
    """A one-to-one mapping of symbolic dimension names; consistent renames do not count as changes."""

    forth: dict[str, str] = field(default_factory=dict)
    back: dict[str, str] = field(default_factory=dict)

    def copy(self) -> "DimNames":
        """Return a mapping for two values that are not the same: what it learns says nothing of others."""
        return DimNames(dict(self.forth), dict(self.back))

    def agree(self, kind: TypeProto, other: TypeProto) -> bool:
        """Return whether two types are equal up to renamed dimensions."""
        if list(_denotations(kind)) != list(_denotations(other)):
            return False
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
            # two symbolic names may be a rename; two numbers, or a number and a name, must be equal
            self._same_name(d.dim_param, e.dim_param) if d.dim_param and e.dim_param else d == e
            for d, e in zip(mine.shape.dim, theirs.shape.dim, strict=True)
        )

    def _same_name(self, name: str, other: str) -> bool:
        # the first time that two names meet binds them to each other, in both directions
        return (
            self.forth.setdefault(name, other) == other
            and self.back.setdefault(other, name) == name
        )


def type_change(kind: TypeProto, other: TypeProto, names: DimNames) -> list[Change]:
    """Return the change of a declared type."""
    if names.agree(kind, other):
        return []
    before, after = type_text(kind), type_text(other)
    if before != after:
        return [Change("type", before, after)]
    denoted = [" ".join(_denotations(each)) for each in (kind, other)]
    if denoted[0] != denoted[1]:
        return [Change("denotation", *denoted)]
    # the texts are equal, so a symbolic dimension is bound to another name elsewhere
    params = [dim.dim_param for dim in kind.tensor_type.shape.dim if dim.dim_param]
    return [
        Change(f"dimension {name!r}", f"{names.forth[name]!r} elsewhere", repr(name))
        for name in dict.fromkeys(params)
        if names.forth.get(name, name) != name
    ] or [Change("type", _line(kind), _line(other))]


def _denotations(kind: Message) -> Iterator[str]:
    """Yield the denotations in a type, '-' for dimensions without one."""
    for own, value in kind.ListFields():
        if own.name == "denotation":
            yield value
        elif own.name == "dim":
            yield from (dim.denotation or "-" for dim in value)
        elif isinstance(value, Message):
            yield from _denotations(value)


def text_changes(first: Message, second: Message) -> list[Change]:
    """Return changes of all fields but those that are compared by what they mean, and of unknown fields."""
    changes = []
    for name in _compared_as_they_are(first.DESCRIPTOR):
        mine, theirs = getattr(first, name), getattr(second, name)
        if mine == theirs:
            continue
        if name == "metadata_props":
            changes += entry_changes("metadata", entries(mine), entries(theirs))
        else:
            changes.append(Change(name.replace("_", " "), _line(mine), _line(theirs)))
    if unknown_fields(first) != unknown_fields(second):
        changes.append(Change("fields unknown to this onnx version"))
    return changes


@cache
def _compared_as_they_are(kind: Descriptor) -> list[str]:
    by_meaning = _BY_MEANING.get(kind.name, ())
    return [field.name for field in kind.fields if field.name not in by_meaning]


def _line(value: object) -> str:
    """Return a field's value as text, messages on one line."""
    return value if isinstance(value, str) else " ".join(str(value).split())


def entry_changes(what: str, mine: Mapping[str, str], theirs: Mapping[str, str]) -> list[Change]:
    """Return changes of a table; an empty entry shows quotes, a missing one does not."""
    return [
        Change(
            f"{what} {key!r}",
            repr(mine[key]) if key in mine else "",
            repr(theirs[key]) if key in theirs else "",
        )
        for key in dict.fromkeys(chain(mine, theirs))
        if mine.get(key) != theirs.get(key)
    ]


def attribute_key(attribute: AttributeProto) -> bytes:
    """Return the attribute's bytes without its doc string, and without a tensor or bodies."""
    # the doc string is a text change of its own; tensors and bodies are compared element by element
    plain = attribute
    if any(attribute.HasField(name) for name in ("doc_string", "t", "g")) or attribute.graphs:
        plain = copied(attribute)
        for name in ("doc_string", "t", "g", "graphs"):
            plain.ClearField(name)
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


def left_over(
    scopes: tuple[NamedGraph, NamedGraph], paired: dict[tuple[str, str], None]
) -> Iterator[tuple[str, str]]:
    """Yield pairs: equal names first, then unread initializers of one kind, equal contents first."""
    first, second = (scope.index.initializers for scope in scopes)
    free = first.keys() - {a for a, _ in paired}
    others = second.keys() - {b for _, b in paired}
    common = free & others
    yield from ((name, name) for name in first if name in common)
    candidates = _by_kind(scopes[1], others - common)
    for kind, names in _by_kind(scopes[0], free - common).items():
        yield from _alike(scopes, names, candidates.get(kind, []))


def _by_kind(scope: NamedGraph, names: Set[str]) -> dict[str, list[str]]:
    """Map dtype and shape to the unread initializers, in file order."""
    return groups(
        (tensor_kind(tensor), name)
        for name, tensor in scope.index.initializers.items()
        if name in names and name not in scope.uses
    )


def _alike(
    scopes: tuple[NamedGraph, NamedGraph], names: Sequence[str], others: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield pairs with equal bytes, then the rest in order."""
    left = list(names)
    rest = dict.fromkeys(others)
    # with one name on each side there is nothing to choose, so no data is read for digests
    if rest and len(names) + len(others) > 2:
        holding = groups((_digest(scopes[1], other), other) for other in others)
        left = []
        for name in names:
            same = holding[_digest(scopes[0], name)]
            if same:
                del rest[same[0]]
                yield name, same.pop(0)
            else:
                left.append(name)
    yield from zip(left, rest, strict=False)


def _digest(scope: NamedGraph, name: str) -> str:
    """Return a digest of the contents; '' for strings and sparse tensors, which pair in order."""
    tensor = scope.index.initializers[name]
    if not isinstance(tensor, TensorProto) or tensor.data_type == TensorProto.STRING:
        return ""
    from onnxsurgeon_lite.model.storage.listing import fingerprint  # few diffs need it

    return fingerprint(scope.model, tensor)
