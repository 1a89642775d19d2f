"""Copy protobuf messages, and delete some of the repeated ones."""

from collections.abc import Callable, Container, Iterable, Mapping, MutableSequence
from typing import Any, Protocol, TypeVar

from google.protobuf.message import Message
from onnx import GraphProto, NodeProto, StringStringEntryProto, TypeProto, helper

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
    """Append declarations of values."""
    for name, kind in types.items():
        graph.value_info.add(name=name).type.CopyFrom(kind)


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
    """Delete the messages at some places."""
    # from the end: places before stay valid
    for place in sorted(set(places), reverse=True):
        del messages[place]
