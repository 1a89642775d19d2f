"""What a diff gives: differences, each a line; and what is no difference but worth knowing."""

from dataclasses import dataclass, field
from typing import Literal

from onnxsurgeon_lite.shown import Shown
from onnxsurgeon_lite.tensors.comparison import Comparison

Kind = Literal[
    "node", "initializer", "input", "output", "value", "function", "opset", "metadata", "model"
]


@dataclass(frozen=True)
class Change:
    """One thing that is another in the second model; '' where a side lacks it."""

    what: str
    before: str = ""
    after: str = ""


@dataclass(frozen=True)
class TensorDifference:
    """How the contents of two tensors of one dtype and shape differ.

    Attributes:
        differing: elements of another value, of `elements`; 0 when only the bytes differ (-0.0, kinds of NaN).
        max_abs: the largest difference of finite elements.
        exceeding: elements over the tolerance; None where none was given.
    """

    elements: int
    differing: int
    max_abs: float
    exceeding: int | None = None

    def __str__(self) -> str:
        if not self.differing:
            return "other bytes for the same values"
        counted = f"{self.differing} of {self.elements} elements differ, max abs {self.max_abs:.6g}"
        return counted + (f", {self.exceeding} over the tolerance" if self.exceeding else "")


@dataclass(frozen=True)
class Difference:
    """One thing that was added, removed or changed.

    Attributes:
        subject: what it is, as people read it: `Conv 'Conv_6' (@6)`.
        place: the module, its class and the source line of a node, as its exporter wrote them.
        before, after: ids of nodes, names of values, in the first and the second model; '' where it is not.
    """

    status: Literal["added", "removed", "changed"]
    kind: Kind
    subject: str
    before: str = ""
    after: str = ""
    changes: tuple[Change, ...] = ()
    contents: TensorDifference | None = None
    place: str = ""


@dataclass(repr=False)
class ModelDiff(Shown):
    """Two models side by side.

    Attributes:
        same: no difference was found, and where both were run their outputs match.
        renamed: names that differ, first -> second: of inputs and outputs, and how many of nodes and values.
        notes: what does not count, a sentence each.
        outputs: by name in the first model, where both were run.
    """

    same: bool
    differences: list[Difference]
    renamed: dict[str, dict[str, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    outputs: dict[str, Comparison] = field(default_factory=dict)
