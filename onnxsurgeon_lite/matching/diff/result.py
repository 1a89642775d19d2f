"""The result of a diff: differences, and notes on what does not count as one."""

from dataclasses import dataclass, field
from typing import Literal

from onnxsurgeon_lite.shown import HIDDEN, Shown
from onnxsurgeon_lite.tensors.comparison import Comparison

Status = Literal["added", "removed", "changed"]
Kind = Literal[
    "node", "initializer", "input", "output", "value", "function", "opset", "metadata", "model"
]


@dataclass(frozen=True)
class Change:
    """One changed property; '' where a model lacks it."""

    what: str
    before: str = ""
    after: str = ""


@dataclass(frozen=True)
class TensorDifference:
    """The difference in contents of two tensors with one dtype and shape.

    Attributes:
        differing: the number of different elements; 0 when only bytes differ (-0.0, NaN payloads).
        max_abs: the largest absolute difference of finite elements.
        exceeding: the number of elements over the tolerance; None without a tolerance.
    """

    elements: int
    differing: int
    max_abs: float
    exceeding: int | None = None

    def __str__(self) -> str:
        if not self.differing:
            return "different bytes, equal values"
        counted = f"{self.differing} of {self.elements} elements differ, max abs {self.max_abs:.6g}"
        return counted + (f", {self.exceeding} over the tolerance" if self.exceeding else "")


@dataclass(frozen=True)
class Difference:
    """One addition, removal or change.

    Attributes:
        subject: a readable name: `Conv 'Conv_6' (@6)`.
        place: module, class and source line of a node, from its exporter.
        before, after: node id or value name in the first and second model; '' where missing.
    """

    status: Status
    kind: Kind
    subject: str
    before: str = ""
    after: str = ""
    changes: tuple[Change, ...] = ()
    contents: TensorDifference | None = None
    place: str = ""


@dataclass(repr=False)
class ModelDiff(Shown):
    """The diff of two models.

    Attributes:
        same: True when there is no difference, and the outputs match if both models were run.
        renamed: kind -> names that differ, first -> second.
        notes: what does not count as a difference, one sentence each.
        outputs: comparisons by name in the first model, if both models were run.
        pairs: positions of the nodes of the main graphs that are the same.

    Example:
        >>> osl.diff("whole_model.onnx", "whole_model.onnx").same
        True
    """

    same: bool
    differences: list[Difference]
    renamed: dict[str, dict[str, str]]
    notes: list[str]
    outputs: dict[str, Comparison] = field(default_factory=dict)
    pairs: list[tuple[int, int]] = field(default_factory=list, metadata=HIDDEN)
