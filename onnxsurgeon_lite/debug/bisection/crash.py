"""Find the node that crashes the runtime or never ends, by running ever smaller parts of the model.

The runtime's log does not name the node, so a probe fails when the process died or timed out.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from onnxsurgeon_lite.errors import RuntimeLost
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.tensors.dtypes import Stored, type_of


def crashing_node(
    index: GraphIndex,
    feeds: Feeds,
    runtime: Runtime,
    targets: Sequence[str],
    given: dict[str, Stored],
) -> int | None:
    """Return the first node in topological order at which the runtime crashes; None when it does not crash again.

    Args:
        targets: values whose computation crashes.
        given: values that are replayed instead of computed.
    """
    nodes = index.in_order(index.ancestors(targets, stop=given))
    part = _Prefix(index, feeds, runtime, nodes, given)
    if part.runs(len(nodes)):
        return None
    survives = bisect_left(range(1, len(nodes)), True, key=lambda count: not part.runs(count))
    return nodes[survives]


class _Prefix:
    """Runs the first nodes of a model."""

    def __init__(
        self,
        index: GraphIndex,
        feeds: Feeds,
        runtime: Runtime,
        nodes: Sequence[int],
        given: dict[str, Stored],
    ) -> None:
        self.index, self.feeds, self.runtime = index, feeds, runtime
        self.nodes, self.given = nodes, given
        self._restart()

    def _restart(self) -> None:
        self.runtime.restart()
        self.observer = Observer(self.index, self.runtime)
        self.observer.feed(self.feeds)
        for name, value in self.given.items():
            self.observer.put(name, value, type_of(value))

    def runs(self, count: int) -> bool:
        """Return whether the first `count` nodes run; keep the values that later nodes need."""
        later = set(self._reads(self.nodes[count:]))
        made = [n for p in self.nodes[:count] for n in self.index.nodes[p].output if n]
        read = set(self._reads(self.nodes[:count]))
        ends = [name for name in made if name in later or name not in read]
        try:
            self.observer.fetch([], keep=ends)
        except RuntimeLost:
            self._restart()
            return False
        return True

    def _reads(self, nodes: Iterable[int]) -> Iterable[str]:
        return (name for position in nodes for name in self.index.reads[position])
