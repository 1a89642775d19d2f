"""Copy protobuf messages, and delete some of the repeated ones."""

from collections.abc import Callable, Iterable, Mapping, MutableSequence
from typing import TypeVar

from google.protobuf.message import Message
from onnx import GraphProto, TypeProto

from onnxsurgeon_lite.model.wire import len_field

M = TypeVar("M", bound=Message)


def copied(message: M) -> M:
    """Return a copy of a message."""
    copy: M = type(message)()
    copy.CopyFrom(message)
    return copy


def declare(graph: GraphProto, types: Mapping[str, TypeProto]) -> None:
    """Append declarations of values, parsed all at once: one by one takes long."""
    encoded = {id(kind): len_field(2, kind.SerializeToString()) for kind in types.values()}
    infos = (len_field(1, name.encode()) + encoded[id(kind)] for name, kind in types.items())
    number = GraphProto.VALUE_INFO_FIELD_NUMBER
    graph.MergeFromString(b"".join(len_field(number, info) for info in infos))


def drop(messages: MutableSequence[M], unwanted: Callable[[M], object]) -> int:
    """Delete the messages that match; return how many."""
    places = [place for place, message in enumerate(messages) if unwanted(message)]
    drop_at(messages, places)
    return len(places)


def drop_at(messages: MutableSequence[M], places: Iterable[int]) -> None:
    """Delete the messages at some places."""
    for place in sorted(places, reverse=True):
        del messages[place]
