"""What edits leave unchecked for now: between the steps of a pipeline, and while they are only tried."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from onnx import TypeProto

UNSETTLED: ContextVar[set[str] | None] = ContextVar("UNSETTLED", default=None)
"""Between the steps of a pipeline: the values whose types do not fit so far. With None a misfit is an error."""
TRIED: ContextVar[Mapping[str, TypeProto] | None] = ContextVar("TRIED", default=None)
"""The types of a graph whose edits are judged by what they compute: nothing is inferred for these. None elsewhere."""


@contextmanager
def settling_later(unsettled: set[str] | None) -> Iterator[None]:
    """Let edits add values whose types do not fit to a set, instead of an error; None ends that."""
    token = UNSETTLED.set(unsettled)
    try:
        yield
    finally:
        UNSETTLED.reset(token)


@contextmanager
def tried(types: Mapping[str, TypeProto]) -> Iterator[None]:
    """Let edits of a graph with these types check and correct no types: whoever tries them does."""
    token = TRIED.set(types)
    try:
        yield
    finally:
        TRIED.reset(token)
