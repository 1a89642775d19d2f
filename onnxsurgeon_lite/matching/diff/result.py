"""The result of a diff: differences, and notes on what does not count as one."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from onnx import NodeProto, SparseTensorProto, TensorProto

from onnxsurgeon_lite.matching.nodes import NamedGraph
from onnxsurgeon_lite.names import joined
from onnxsurgeon_lite.shown import HIDDEN, Shown
from onnxsurgeon_lite.tensors.dtypes import dtype_name

if TYPE_CHECKING:
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


@dataclass
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
    outputs: dict[str, "Comparison"] = field(default_factory=dict)
    pairs: list[tuple[int, int]] = field(default_factory=list, metadata=HIDDEN)


Initializer = TensorProto | SparseTensorProto


def unpaired(scope: NamedGraph, position: int, status: Literal["added", "removed"]) -> Difference:
    """Describe an unpaired node, with the values around it."""
    reads = joined(scope.needs(position))
    makes = joined(filter(None, scope.makes[position]))
    around = tuple(
        Change(f"{what} {names}") for what, names in (("reads", reads), ("makes", makes)) if names
    )
    node = scope.node_id(position)
    ids = (node, "") if status == "removed" else ("", node)
    place = place_of(scope, position)
    return Difference(status, "node", scope.describe(position), *ids, around, place=place)


def place_of(scope: NamedGraph, position: int) -> str:
    """Return the node's origin if the exporter recorded a class or line, else ''."""
    origin = scope.index.origins[position]
    return str(origin) if origin.modules or origin.frames else ""


def named(
    status: str, kind: Literal["input", "output", "initializer"], subject: str, name: str, text: str
) -> Difference:
    """Describe an input, output or initializer of only one graph."""
    if status == "removed":
        return Difference("removed", kind, f"{subject} ({text})", before=name)
    return Difference("added", kind, f"{subject} ({text})", after=name)


def operator_text(node: NodeProto) -> str:
    """Return `domain::op_type::overload` without empty parts."""
    return "::".join(filter(None, (node.domain, node.op_type, node.overload)))


def producer_text(scope: NamedGraph, name: str) -> str:
    """Describe the producer of a value, or the value itself."""
    position = scope.index.producer.get(name)
    return repr(name) if position is None else scope.describe(position)


def leaf_kind(scope: NamedGraph, name: str) -> str:
    """Return the kind of a value without a producer."""
    if name not in scope.index.initializers:
        return "input"
    return "input with a default" if name in scope.index.inputs else "initializer"


def tensor_kind(tensor: Initializer) -> str:
    if isinstance(tensor, SparseTensorProto):
        return f"sparse {list(tensor.dims)}"
    return f"{dtype_name(tensor.data_type)} {list(tensor.dims)}"


def quoted(name: str) -> str:
    """Quote a name; '' for an omitted value."""
    return repr(name) if name else ""
