"""What a conversion gave."""

from dataclasses import dataclass, field

from onnxsurgeon_lite.model import Model, Written, save
from onnxsurgeon_lite.shown import HIDDEN, Shown


@dataclass(frozen=True)
class Kept:
    """A node that stays in float32, and why."""

    id: str
    name: str
    op_type: str
    why: str
    place: str


@dataclass(frozen=True)
class Introduced:
    """What rounding the results and constants of one node does to the outputs, to first order.

    Attributes:
        error: the norm of the outputs' error; None where it is not finite, or inside bodies.
        smallest, largest: the magnitudes of its results, 0 left out; None inside bodies.
    """

    id: str
    name: str
    op_type: str
    error: float | None
    smallest: float | None
    largest: float | None
    kept: bool
    place: str


@dataclass(frozen=True)
class Conversion(Shown):
    """A converted model, and what is known of it.

    Attributes:
        model: it. `save` writes it.
        to: its dtype.
        nodes: how many nodes touch floats. kept: those that stay in float32.
        casts: how many Casts were added.
        share: its bytes, as a share of the original's.
        met: whether the outputs are within the goal; None without a goal.
        measured: what was measured with one rounding per edge, and the limit, as text. ran: as the runtime computes it.
        report: nodes by the error that they introduce alone, the largest first.
        curve: choices that were tried, as (nodes in float, share of the bytes, measured number).

    Example:
        >>> result = osl.convert("whole_model.onnx", "float16")
        >>> result.to, result.nodes, result.kept
        ('float16', 11, [])
    """

    model: Model = field(metadata=HIDDEN)
    to: str
    nodes: int
    kept: list[Kept]
    casts: int
    share: float
    met: bool | None = None
    measured: str = ""
    ran: str = ""
    report: list[Introduced] = field(default_factory=list)
    curve: list[tuple[int, float, float]] = field(default_factory=list)

    @property
    def sentence(self) -> str:
        """What was made, in a sentence."""
        count = len(self.kept)
        extent = f"except {count} of {self.nodes} nodes" if count else f"in {self.nodes} nodes"
        parts = [f"{self.to} everywhere {extent}" if count else f"{self.to} {extent}"]
        parts.append(self.measured or "outputs not compared: --tolerance or --min-sqnr does that")
        return "; ".join(parts + [f"{100 * self.share:.1f}% of the bytes"])

    def save(self, path: str, external: bool | None = None, force: bool = False) -> Written:
        """Write the model; see `onnxsurgeon_lite.save`."""
        return save(self.model, path, external, force=force)
