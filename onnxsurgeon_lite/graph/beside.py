"""Work in a forked process, while this one goes on."""

import pickle
from collections.abc import Callable
from typing import TypeVar

from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.graph.native import RejectedError, begin_together

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
    # the result crosses as bytes
    answer = begin_together(what, lambda: pickle.dumps(work()), size)

    def wait() -> T:
        try:
            found: T = pickle.loads(answer())
        except (SurgeonError, RejectedError):
            return otherwise()
        return found

    return wait
