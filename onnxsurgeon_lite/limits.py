"""Limits of time and memory: for ONNX's own code, and for child processes."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from onnxsurgeon_lite.remote import WAITING
from onnxsurgeon_lite.system import physical_memory

_SECONDS, _BYTES_A_SECOND = 60.0, 1 << 20  # a minute, and one second more for each MiB
_MEMORY, _COPIES = 1 << 30, 16

_GIVEN: ContextVar[tuple[float | None, int]] = ContextVar("_GIVEN", default=(None, 0))


@contextlib.contextmanager
def limited(seconds: float | None, memory: int) -> Iterator[None]:
    """Limit each request to ONNX's own code or to a server: seconds, and bytes; None and 0 for what is usual."""
    token = _GIVEN.set((seconds, memory))
    waiting = WAITING.set(seconds)
    try:
        yield
    finally:
        WAITING.reset(waiting)
        _GIVEN.reset(token)


def memory_of_children() -> int:
    """Return the bytes that a process beside the runtime's may allocate: those given, or all that the machine has."""
    return _GIVEN.get()[1] or physical_memory()


def memory_of_runtime(provider: str) -> int:
    """Return the bytes that the runtime may allocate: those given, or all that the machine has.

    A provider of another device reserves more addresses than there is memory: it has no limit but a given one.
    """
    return memory_of_children() if provider.startswith(("cpu", "CPU")) else _GIVEN.get()[1]


def allowed(size: int) -> tuple[float, int]:
    """Return the seconds and the bytes that a request may take; usually they grow with the bytes of the structure."""
    seconds, memory = _GIVEN.get()
    if seconds is None:
        seconds = _SECONDS + size / _BYTES_A_SECOND
    return seconds, memory or _MEMORY + _COPIES * size
