"""The shares of nodes in an output's error, as data."""

from dataclasses import dataclass

from onnxsurgeon_lite.shown import Shown


@dataclass(frozen=True)
class BlamedNode:
    """The share of one node in the error of an output.

    Attributes:
        value: what it makes. share: 1 is the whole error; below 0, it cancels the error of others.
        place: the module, class and source line of the node.
    """

    id: str
    name: str
    op_type: str
    value: str
    share: float
    place: str

    @property
    def title(self) -> str:
        """The node as messages name it."""
        return (
            f"{self.op_type} {self.name!r} ({self.id})"
            if self.name
            else f"{self.op_type} {self.id}"
        )


@dataclass(frozen=True)
class Blame(Shown):
    """Nodes by their share in the error of one output, the largest first.

    Attributes:
        output: its name. output_db: its SQNR in decibels.
        explained: the sum of all shares; far from 1, the errors are too large for a first order, or shares are missing.
        left_out: what has no share, and why.
    """

    output: str
    output_db: float
    nodes: list[BlamedNode]
    explained: float
    left_out: list[str]

    def sentence(self, node: BlamedNode) -> str:
        """Return a node's share in words."""
        verb = "comes from" if node.share >= 0 else "is canceled by"
        return f"{abs(node.share):.0%} of the error of {self.output!r} {verb} {node.title}"
