"""Indexing a graph in the background, while its user reads and types."""

import contextlib
import sys
import threading
from collections.abc import Callable

from onnxsurgeon_lite.errors import GraphError, RuntimeFailure
from onnxsurgeon_lite.graph.complete import Completions
from onnxsurgeon_lite.graph.selecting.browse import Graph

_LARGE = 5_000  # nodes from which on a look does not wait for all types
_TURN = 0.0005  # seconds that a busy thread may keep the others waiting: a key needs some ten turns


class PreparedGraph(Graph):
    """A graph to look at while another process still infers its types."""

    learning = False

    def type_text(self, name: str) -> str:
        """A value's type as text, without waiting for it."""
        if self.learning and name not in self.index.types:
            return "type not inferred yet"
        return super().type_text(name)


class Preparation:
    """Indexes what the first look around a session's graph would wait for; again when it was edited."""

    def __init__(self, current: Callable[[], tuple[PreparedGraph, Completions]]) -> None:
        self._current = current
        self._graph: PreparedGraph | None = None

    def begin(self, delay: float = 0.0) -> None:
        """Some seconds from now, unless it was begun before; what another process does, at once."""
        graph, names = self._current()
        if graph is self._graph:
            return
        self._graph = graph
        graph.learning = len(graph) >= _LARGE
        if graph.learning:
            # reading what the other process answers is busy work in this one
            sys.setswitchinterval(_TURN)
        start(lambda: _learn(graph), 0.0 if graph.learning else delay)
        start(lambda: _look(names), delay)


def start(work: Callable[[], object], delay: float) -> None:
    """Do something in the background, some seconds from now."""
    timer = threading.Timer(delay, work)
    timer.daemon = True
    timer.start()


def _learn(graph: PreparedGraph) -> None:
    index = graph.index
    try:
        index.learn_types(index.producer)
    except (GraphError, RuntimeFailure):
        pass  # a look that meets it says so
    finally:
        graph.learning = False


def _look(names: Completions) -> None:
    """Index what the quickest questions need first."""
    index = names.index
    with contextlib.suppress(GraphError):
        # each of these is kept by the index once it was asked for
        _ = names.of("ops", ""), index.inner_bodies, names.nodes(""), index.consumers, names.every
        _ = names.of("scopes", ""), index.rank
