"""What a profile holds: the executed nodes, summed up by operator and module, and what is in memory at the peak."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from onnxsurgeon_lite.shown import Shown


@dataclass
class Cost:
    """What something takes in one run.

    Attributes:
        seconds: the median over the runs.
        macs: multiply-accumulates of the nodes whose shapes are known; `unknown` counts the others.
        parameter_bytes, moved_bytes: of the weights that are read; of all that is read and written.
    """

    seconds: float = 0.0
    macs: int = 0
    unknown: int = 0
    parameter_bytes: int = 0
    moved_bytes: int = 0

    @property
    def intensity(self) -> float:
        """Return arithmetic operations (two for a multiply-accumulate) for each byte moved."""
        return 2 * self.macs / self.moved_bytes if self.moved_bytes else 0.0

    @property
    def gflops(self) -> float:
        """Return billions of arithmetic operations in a second."""
        return 2e-9 * self.macs / self.seconds if self.seconds else 0.0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.seconds + other.seconds,
            self.macs + other.macs,
            self.unknown + other.unknown,
            self.parameter_bytes + other.parameter_bytes,
            self.moved_bytes + other.moved_bytes,
        )


@dataclass
class ProfiledNode:
    """A node of the graph that the runtime runs.

    Attributes:
        name, op_type: its own; of a fused node they are the runtime's.
        covers: ids of the model's nodes that it stands for; none for what the runtime added.
        place: module, class and source line, when known.
        modules: paths of the modules that it lies in, the outermost first.
        times: how often it ran in a run.
        live_bytes: of all tensors in memory while it runs, weights left out.
    """

    name: str
    op_type: str
    provider: str
    covers: list[str] = field(default_factory=list)
    place: str = ""
    modules: list[str] = field(default_factory=list)
    times: int = 1
    cost: Cost = field(default_factory=Cost)
    live_bytes: int = 0


@dataclass
class HeldTensor:
    """A tensor in memory at the peak."""

    value: str
    bytes: int


@dataclass
class Profile(Shown):
    """What each node of a model costs.

    Attributes:
        runs: how many were timed, after one that was not.
        seconds: of a run, the median.
        nodes: as the runtime runs them, in its order.
        held: the tensors in memory where most of it is taken, the largest first, weights left out; each is counted
            from the node that makes it to the last that reads it, as if the runtime reused nothing in place.
        peak: number of the node that runs there.
        provider: the one that was asked for.

    Example:
        >>> profile = osl.profile("whole_model.onnx", runs=2)
        >>> sum(node.cost.macs for node in profile.nodes)
        324000
    """

    model: str
    runs: int
    seconds: float
    nodes: list[ProfiledNode]
    held: list[HeldTensor] = field(default_factory=list)
    peak: int = 0
    provider: str = ""

    @property
    def total(self) -> Cost:
        """Return what all nodes take."""
        return sum((node.cost for node in self.nodes), Cost())

    def by_operator(self) -> dict[str, Cost]:
        """Return executed operator -> its cost, the longest first."""
        return _summed((node.op_type, node.cost) for node in self.nodes)

    def by_module(self) -> dict[str, Cost]:
        """Return module path -> the cost of all in it, parents before children; '' is the whole model."""
        # a node counts for each module that it lies in
        pairs = [(path, node.cost) for node in self.nodes for path in chain([""], node.modules)]
        found = _summed(pairs)
        return {path: found[path] for path, _ in pairs}

    @property
    def fell_back(self) -> list[ProfiledNode]:
        """Return the nodes that another provider ran than the one that was asked for."""
        return [node for node in self.nodes if node.provider != self.provider]


@dataclass
class TimeChange:
    """What something took before and takes after; None where it is only in one."""

    name: str
    before: float | None
    after: float | None

    @property
    def difference(self) -> float:
        """Return seconds after minus seconds before."""
        return (self.after or 0.0) - (self.before or 0.0)


@dataclass
class ProfileComparison(Shown):
    """Two profiles, side by side.

    Attributes:
        operators, modules: seconds of each, what changed most first.
    """

    before: Profile
    after: Profile
    operators: list[TimeChange] = field(default_factory=list)
    modules: list[TimeChange] = field(default_factory=list)

    @classmethod
    def of(cls, before: Profile, after: Profile) -> "ProfileComparison":
        """Put two profiles side by side."""
        return cls(
            before,
            after,
            _changes(before.by_operator(), after.by_operator()),
            _changes(before.by_module(), after.by_module()),
        )


def _changes(before: Mapping[str, Cost], after: Mapping[str, Cost]) -> list[TimeChange]:
    seconds = [{name: cost.seconds for name, cost in side.items()} for side in (before, after)]
    names = dict.fromkeys(chain(before, after))
    # None for what is on one side alone
    found = [TimeChange(name, seconds[0].get(name), seconds[1].get(name)) for name in names]
    return sorted(found, key=lambda change: -abs(change.difference))


def _summed(costs: Iterable[tuple[str, Cost]]) -> dict[str, Cost]:
    found = defaultdict[str, Cost](Cost)
    for name, cost in costs:
        found[name] += cost
    return dict(sorted(found.items(), key=lambda item: -item[1].seconds))
