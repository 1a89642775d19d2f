"""Copy protobuf messages, and delete some of the repeated ones."""

from collections.abc import Callable, Container, Iterable, Mapping, MutableSequence
from typing import Any, Protocol, TypeVar

from google.protobuf.message import Message
from onnx import GraphProto, NodeProto, StringStringEntryProto, TypeProto, helper

from onnxsurgeon_lite.model.wire import len_field

M = TypeVar("M", bound=Message)


class _Named(Protocol):
    """A message that has a name."""

    name: str


N = TypeVar("N", bound=_Named)


def copied(message: M) -> M:
    """Return a copy of a message."""
    copy: M = type(message)()
    copy.CopyFrom(message)
    return copy


def entries(pairs: Iterable[StringStringEntryProto]) -> dict[str, str]:
    """Return metadata, or where external data is, as a table."""
    return {pair.key: pair.value for pair in pairs}


def operand(node: NodeProto, slot: int) -> str:
    """Return the name that a node reads at a place; '' for one that it leaves out."""
    return node.input[slot] if slot < len(node.input) else ""


def integer(node: NodeProto, name: str, default: int = 0) -> int:
    """Return an attribute that is an integer, or what a node without it has."""
    return next((a.i for a in node.attribute if a.name == name), default)


def integers(node: NodeProto, name: str) -> list[int]:
    """Return an attribute that is a list of integers; [] of a node without it."""
    return next((list(a.ints) for a in node.attribute if a.name == name), [])


def scan_layout(node: NodeProto, kind: str, count: int) -> tuple[list[int], list[int]]:
    """Return the axes of what a Scan takes apart (`input`) or puts together (`output`), and 1 for what is reversed."""
    axes, backwards = (integers(node, f"scan_{kind}_{what}") for what in ("axes", "directions"))
    return axes or [0] * count, backwards or [0] * count


def attributes_of(node: NodeProto) -> dict[str, Any]:
    """Return the attributes of a node by their names."""
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def by_name(messages: Iterable[N]) -> dict[str, N]:
    """Return messages by their names."""
    return {message.name: message for message in messages}


def take_fields(target: Message, source: Message, names: Container[str]) -> None:
    """Give a message those of some fields that another one has set; lists are appended."""
    for field, value in source.ListFields():
        if field.name not in names:
            continue
        if isinstance(value, str | bytes | int):
            setattr(target, field.name, value)
        else:  # lists of messages or of strings
            getattr(target, field.name).extend(value)


def declare(graph: GraphProto, types: Mapping[str, TypeProto]) -> None:
    """Append declarations of values, parsed all at once: one by one takes long."""
    # equal types are shared: each is serialized once
    kinds = {id(kind): kind for kind in types.values()}
    encoded = {key: len_field(2, kind.SerializeToString()) for key, kind in kinds.items()}
    around = dict[tuple[int, int], tuple[bytes, bytes]]()  # a name of some size, with some type
    parts = list[bytes]()
    for text, kind in types.items():
        name, behind = text.encode(), encoded[id(kind)]
        key = len(name), id(kind)
        # only the name differs between declarations of one type and one length of name
        if key not in around:
            whole = len_field(GraphProto.VALUE_INFO_FIELD_NUMBER, len_field(1, name) + behind)
            around[key] = whole.removesuffix(name + behind), behind
        before, behind = around[key]
        parts += (before, name, behind)
    graph.MergeFromString(b"".join(parts))


def assign(messages: MutableSequence[M], others: Iterable[M]) -> None:
    """Put other messages into a field, in place of those that it has."""
    others = list(others)
    del messages[:]
    messages.extend(others)


def drop(messages: MutableSequence[M], unwanted: Callable[[M], object]) -> int:
    """Delete the messages that match; return how many."""
    places = [place for place, message in enumerate(messages) if unwanted(message)]
    drop_at(messages, places)
    return len(places)


def drop_at(messages: MutableSequence[M], places: Iterable[int]) -> None:
    """Delete the messages at some places; those behind move once for each gap."""
    stop = first = 0  # deleting from the end keeps the other places valid
    for place in sorted(set(places), reverse=True):
        if place != first - 1:  # a gap ends: delete the run behind it at once
            del messages[first:stop]
            stop = place + 1
        first = place
    del messages[first:stop]
