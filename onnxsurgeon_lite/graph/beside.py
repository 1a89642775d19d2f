"""Work in a forked process, while this one goes on."""

import pickle
from collections.abc import Callable
from contextvars import copy_context
from threading import Thread
from typing import TypeVar

from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.graph.native import RejectedError, together

T = TypeVar("T")


def begin(
    what: str, work: Callable[[], T], size: int, otherwise: Callable[[], T]
) -> Callable[[], T]:
    """Start work in a fork; return what waits for its result.

    Args:
        what: what limits call it.
        size: bytes of the models that it works on.
        otherwise: gives a result where the fork has none: it crashed, or reached a limit.
    """
    found: list[T] = []

    def ask() -> None:
        try:
            found.append(pickle.loads(together(what, lambda: pickle.dumps(work()), size)))
        except (SurgeonError, RejectedError):
            return

    thread = Thread(target=copy_context().run, args=(ask,), daemon=True)
    thread.start()

    def wait() -> T:
        thread.join()
        return found[0] if found else otherwise()

    return wait
