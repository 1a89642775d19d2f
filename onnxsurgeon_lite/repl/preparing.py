"""Indexing a graph in the background, while its user reads and types."""

import threading
from collections.abc import Callable

from onnxsurgeon_lite.errors import GraphError
from onnxsurgeon_lite.graph import GraphIndex

_LARGE = 5_000  # nodes from which on a look does not wait for all types


class Preparation:
    """Indexes what the first look around a session's graph would wait for; again when it was edited."""

    def __init__(self, current: Callable[[], GraphIndex]) -> None:
        self._current = current
        self._index: GraphIndex | None = None

    def begin(self, delay: float = 0.0) -> None:
        """Some seconds from now, unless it was begun before."""
        index = self._current()
        if index is self._index:
            return
        self._index = index
        index.learning = len(index.nodes) >= _LARGE
        timer = threading.Timer(delay, _prepare, [index])
        timer.daemon = True
        timer.start()


def _prepare(index: GraphIndex) -> None:
    try:
        _ = index.origins.scopes, index.consumers, index.node_names, index.rank
        index.learn_types(index.producer)
    except GraphError:
        pass  # a look that meets it says so
    finally:
        index.learning = False
