"""Indexing a graph in the background, while its user reads and types."""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterable

from onnx import GraphProto, ModelProto, ValueInfoProto

from onnxsurgeon_lite.errors import GraphError, RuntimeFailure
from onnxsurgeon_lite.graph.complete import Names
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.runtime.child import Child

_LARGE = 5_000  # nodes from which on a look does not wait for all types
_TURN = 0.0005  # seconds that a busy thread may keep the others waiting: a key needs some ten turns


class Preparation:
    """Indexes what the first look around a session's graph would wait for; again when it was edited."""

    def __init__(self, current: Callable[[], Names]) -> None:
        self._current = current
        self._names: Names | None = None

    def begin(self, delay: float = 0.0) -> None:
        """Some seconds from now, unless it was begun before; what another process does, at once."""
        names = self._current()
        if names is self._names:
            return
        self._names, index = names, names.index
        index.learning = len(index.nodes) >= _LARGE
        if index.learning:
            sys.setswitchinterval(_TURN)
        _start(lambda: _learn(index), 0.0 if index.learning else delay)
        _start(lambda: _look(names), delay)


def _start(work: Callable[[], None], delay: float) -> None:
    timer = threading.Timer(delay, work)
    timer.daemon = True
    timer.start()


def _learn(index: GraphIndex) -> None:
    try:
        index.learn_types(index.producer, _infer if index.learning else None)
    except GraphError:
        pass  # a look that meets it says so
    finally:
        index.learning = False


def _look(names: Names) -> None:
    """What the quickest questions need first."""
    index = names.index
    with contextlib.suppress(GraphError):
        _ = names.ops(""), index.inner_bodies, names.nodes(""), index.consumers
        _ = names.scopes(""), index.rank


def _infer(part: ModelProto, data_prop: bool) -> Iterable[ValueInfoProto]:
    """In another process: ONNX's inference lets no other thread of this one go on, and keys would wait for it."""
    model = part.SerializeToString()
    with Child(script="inference.py") as child:
        try:
            reply = child.ask("infer", [model], size=len(model), data_prop=data_prop)
            match reply["size"]:
                case int(size):
                    return list(GraphProto.FromString(child.receive(size)).value_info)
        except RuntimeFailure as error:
            raise ValueError(str(error)) from error
    raise ValueError("no types were sent")
