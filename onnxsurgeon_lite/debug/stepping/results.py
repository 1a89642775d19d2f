"""The results of a debugger: where it stopped, and what it read there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from onnxsurgeon_lite.tensors.comparison import Comparison
from onnxsurgeon_lite.tensors.dtypes import RunValue
from onnxsurgeon_lite.tensors.statistics import Statistics


@dataclass(frozen=True)
class Reading:
    """A value that was looked at.

    Attributes:
        producer: the node that makes it, as a message shows it, or what it is instead.
        comparisons: with its reference; one, or one for each tensor of a sequence; empty where there is none.
        value: the numbers, where they were asked for.
    """

    name: str
    producer: str
    statistics: Sequence[Statistics]
    comparisons: Mapping[str, Comparison] = field(default_factory=dict)
    value: RunValue = None

    @property
    def match(self) -> bool:
        """True unless a comparison mismatches."""
        return all(comparison.match for comparison in self.comparisons.values())


@dataclass(frozen=True)
class Stop:
    """A place where stepping stopped: after a node.

    Attributes:
        reason: `start`, `breakpoint`, `step`, `over` (a body that it cannot go into), `returned` (from one) or `end`.
        node: the node that was computed last, as a message shows it; '' at the start and the end.
        origin: its place in the source program.
        readings: what it made; at the end the model's outputs.
        watched: the values that are watched, those that are there already.
        breakpoints: numbers of those that stopped it.
        unhit: at the end, the breakpoints that never stopped it.
    """

    reason: str
    node: str = ""
    origin: str = ""
    readings: Sequence[Reading] = ()
    watched: Sequence[Reading] = ()
    breakpoints: Sequence[int] = ()
    unhit: Sequence[str] = ()


@dataclass(frozen=True)
class Level:
    """A frame as `where` shows it.

    Attributes:
        graph: the frame's path; '' is the main graph.
        node: what was computed last, or runs the next frame.
        passed, nodes: how far it is.
        chosen: names are resolved in it, although another frame is being run.
    """

    graph: str
    node: str
    origin: str
    passed: int
    nodes: int
    chosen: bool


class Readings(list[Reading]):
    """Values that were looked at together."""


class Listing(list[str]):
    """Lines of nodes in the order in which they are computed; `end` is the place after the last."""

    end = 0


class Stack(list[Level]):
    """The frames, the main graph first."""
