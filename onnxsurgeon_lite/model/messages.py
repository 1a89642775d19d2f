"""Copy protobuf messages, and delete some of the repeated ones."""

from collections.abc import Callable, Iterable, MutableSequence
from typing import TypeVar

from google.protobuf.message import Message

M = TypeVar("M", bound=Message)


def copied(message: M) -> M:
    """Return a copy of a message."""
    copy: M = type(message)()
    copy.CopyFrom(message)
    return copy


def drop(messages: MutableSequence[M], unwanted: Callable[[M], object]) -> int:
    """Delete the messages that match; return how many."""
    places = [place for place, message in enumerate(messages) if unwanted(message)]
    drop_at(messages, places)
    return len(places)


def drop_at(messages: MutableSequence[M], places: Iterable[int]) -> None:
    """Delete the messages at some places."""
    for place in sorted(places, reverse=True):
        del messages[place]
