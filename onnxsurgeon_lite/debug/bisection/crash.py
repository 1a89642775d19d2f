"""Find the node that crashes the runtime or never ends, by running ever smaller parts of the model.

The runtime's log does not name the node, so a probe fails when the process died or timed out.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import NodeProto

from onnxsurgeon_lite.debug.bisection.diagnose import culprit_at
from onnxsurgeon_lite.debug.result import Culprit, Finding
from onnxsurgeon_lite.debug.search_space import Space
from onnxsurgeon_lite.errors import RuntimeLost, RuntimeTimeout
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.tensors.dtypes import RunValue, Stored
from onnxsurgeon_lite.tensors.references import ReferenceSet


# Of a Loop that never ends the trip count says why.
def crash_of(
    error: RuntimeLost,
    space: Space,
    feeds: Feeds,
    runtime: Runtime,
    targets: Sequence[str],
    references: ReferenceSet,
    replay: Sequence[str] = (),
) -> tuple[Culprit, dict[str, tuple[RunValue, RunValue]]]:
    """Return (the node at which the runtime was lost, (reference, actual) of what it reads and makes).

    Args:
        targets: values whose computation crashes.
        replay: references that are replayed instead of computed.

    Raises:
        RuntimeLost: `error`, when it does not happen again.
    """
    index, given = space.index, {name: references.read(name) for name in replay}
    position = crashing_node(index, feeds, runtime, targets, given)
    if position is None:
        raise error
    node = index.nodes[position]
    culprit = culprit_at(space, next(space.number[name] for name in node.output if name))

    before = Observer(index, runtime)  # what it reads is computed without it
    before.feed(feeds)
    for name, value in given.items():
        before.put(name, value)
    # a trip count may be an initializer, which is no input of the culprit
    weights = [name for name in node.input[:1] if name in index.initializers]
    read = before.fetch(culprit.inputs + weights)
    before.forget()
    names = set(read).union(culprit.outputs)
    known = {name: references.read(name) for name in names if name in references}
    tensors = {name: (known.get(name), read.get(name)) for name in names}
    endless = isinstance(error, RuntimeTimeout) and node.op_type == "Loop"
    limit = _limit(node, tensors) if endless else ""
    culprit.findings = [Finding("crash", f"{error.message}{limit}")]
    return culprit, tensors


def _limit(node: NodeProto, tensors: Mapping[str, tuple[RunValue, RunValue]]) -> str:
    """Say what limits the iterations of a Loop."""
    if not node.input[0]:
        ends = next(a.g.output[0].name for a in node.attribute if a.name == "body")
        return f"; it has no trip count: {ends!r} in its body must end it"
    stored, actual = (None if v is None else int(np.ravel(v)[0]) for v in tensors[node.input[0]])
    other = f", the reference {stored}" if stored not in (None, actual) else ""
    return f"; its trip count {node.input[0]!r} is {actual}{other}"


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
    # Binary search for the first prefix that does not run. `range(1, n)`: the whole is known to crash, an empty prefix
    # runs. At index i the prefix has i + 1 nodes, so the first True is the index of the node that crashes.
    survives = bisect_left(range(1, len(nodes)), True, key=lambda count: not part.runs(count))
    return nodes[survives]


@dataclass
class _Prefix:
    """Runs the first nodes of a model."""

    index: GraphIndex
    feeds: Feeds
    runtime: Runtime
    nodes: Sequence[int]
    given: dict[str, Stored]

    def __post_init__(self) -> None:
        self._restart()

    def _restart(self) -> None:
        self.runtime.restart()
        self.observer = Observer(self.index, self.runtime)
        self.observer.feed(self.feeds)
        for name, value in self.given.items():
            self.observer.put(name, value)

    def runs(self, count: int) -> bool:
        """Return whether the first `count` nodes run; keep the values that later nodes need."""
        # keep what the nodes after these read, and results that nothing reads: so all `count` nodes must run
        later = self.index.read_by(self.nodes[count:])
        made = list(self.index.outputs_of(self.nodes[:count]))
        read = self.index.read_by(self.nodes[:count])
        ends = [name for name in made if name in later or name not in read]
        try:
            self.observer.fetch([], keep=ends)
        except RuntimeLost:
            self._restart()
            return False
        return True
