"""Find the one change that makes a wrong region give its reference: an operation less or more, another operator."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Literal

import numpy as np
from onnx import AttributeProto, ModelProto, NodeProto, helper

from onnxsurgeon_lite.debug.bisection.step import step_between
from onnxsurgeon_lite.errors import RuntimeFailure, SurgeonError
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.tensors.comparison import Tolerance, agrees, compare
from onnxsurgeon_lite.tensors.dtypes import Array, RunValue, is_float, type_of
from onnxsurgeon_lite.tensors.references import ReferenceSet

_TRIED = 96  # changes of one region
_SOURCES = 32  # other values that a region may read
_AXES = 4  # dimensions whose permutations are tried
KINDS = (
    ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow"),
    (
        *("Relu", "Sigmoid", "Tanh", "Gelu", "Erf", "Exp", "Log", "Sqrt"),
        *("Neg", "Abs", "Identity", "Sin", "Cos"),
    ),
    ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceProd"),
    ("MaxPool", "AveragePool"),
    ("GlobalMaxPool", "GlobalAveragePool"),
    ("Softmax", "LogSoftmax"),
    ("Floor", "Ceil", "Round"),
    ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"),
    ("And", "Or", "Xor"),
)
"""Operators that one may stand in place of another."""
_OTHER: Mapping[str, tuple[int | float | str, ...]] = {
    "axis": tuple(range(-1, 4)),
    "epsilon": (1e-5, 1e-6, 1e-12, 1e-3),
    "approximate": ("none", "tanh"),
    "transA": (0, 1),
    "transB": (0, 1),
}
"""Attribute -> values to try."""

Change = Literal["extra", "missing", "other"]


@dataclass(frozen=True)
class Explained:
    """A change that makes a region give its reference.

    Attributes:
        change: an operation that is too many, one that is missing, or another operator, attribute or input.
        node: the node that the change is made at, or that reads what is changed.
        value: of a missing operation, its value in the references.
    """

    change: Change
    because: str
    node: int | None = None
    value: str = ""


@dataclass(frozen=True)
class Region:
    """The nodes of a wrong region, which can run with one change at a time.

    Attributes:
        positions: its nodes, in the order of the graph. own: those that may be at fault.
        given: the references of its inputs, by name. expected: that of its value.
    """

    observer: Observer
    positions: Sequence[int]
    own: Sequence[int]
    value: str
    given: Mapping[str, RunValue]
    expected: Array
    tolerance: Tolerance | None

    def explained(self, references: ReferenceSet, lacking: Sequence[str]) -> Explained | None:
        """Return a change that gives the reference, of several the closest; None if there is none."""
        found = self._from_other_inputs(references, lacking)
        if found is not None:
            return found
        right = filter(None, itertools.islice(self._changed(), _TRIED))
        closest = min(right, key=itemgetter(0), default=(0.0, None))[1]
        return closest or self._from_sums(references)

    def _changed(self) -> Iterator[tuple[float, Explained] | None]:
        """Yield, for each change of a node that is tried, how far it is from the reference that it gives."""
        for position in self.own:
            place = self.positions.index(position)
            for change, because, alter in _changes(self.observer.index.nodes[position]):
                part = self._part()
                alter(part.graph.node[place])
                distance = self._distance(part, self.given)
                right = Explained(change, because, position)
                yield None if distance is None else (distance, right)

    def _from_other_inputs(
        self, references: ReferenceSet, lacking: Sequence[str]
    ) -> Explained | None:
        """Try the references that the model lacks, then others of the same shape, in place of each input."""
        part = self._part()
        for name, value in self.given.items():
            if not isinstance(value, np.ndarray) or not value.size:
                continue
            for other in self._sources(name, value, references, lacking):
                instead = _read(references, other, value)
                if instead is None:
                    continue
                if self._distance(part, {**self.given, name: instead}) is None:
                    continue
                reader = self._reader(name)
                if other not in lacking:
                    because = f"reading {other!r} in place of {name!r} gives the reference"
                    return Explained("other", because, reader)
                near = self._near(name, value, references)
                what = step_between(
                    value,
                    instead,
                    ((n, v) for n in near if (v := _read(references, n, value)) is not None),
                )
                because = f"{what} is missing behind {name!r}: reading the references' {other!r} gives the reference"
                return Explained("missing", because, reader, other)
        return None

    def _from_sums(self, references: ReferenceSet) -> Explained | None:
        """Try each input with a reference added: a sum that is missing may have no reference of its own."""
        part = self._part()
        for name, value in self.given.items():
            if not isinstance(value, np.ndarray) or not value.size or not is_float(value.dtype):
                continue
            for other in self._near(name, value, references):
                added = _read(references, other, value)
                if added is None:
                    continue
                if self._distance(part, {**self.given, name: np.add(value, added)}) is not None:
                    because = f"Add of {other!r} is missing behind {name!r}: it gives the reference"
                    return Explained("missing", because, self._reader(name), other)
        return None

    def _reader(self, name: str) -> int | None:
        return next((p for p in self.own if name in self.observer.index.reads[p]), None)

    def _sources(
        self, name: str, value: Array, references: ReferenceSet, lacking: Sequence[str]
    ) -> list[str]:
        """Return the references that may stand for an input: those that the model lacks, then the nearest ones."""
        nearest = self._near(name, value, references) if len(self.own) == 1 else []
        return list(dict.fromkeys([*lacking, *nearest]))

    def _near(self, name: str, value: Array, references: ReferenceSet) -> list[str]:
        """Return the nearest references of an input's shape that were recorded before the value, the last one first."""
        before = itertools.takewhile(lambda other: other != self.value, references)
        fitting = [
            other
            for other in before
            if other != name and references.entries[other].shape in (value.shape, None)
        ]
        return fitting[: -_SOURCES - 1 : -1]

    def _part(self) -> ModelProto:
        types = {name: type_of(value) for name, value in self.given.items() if value is not None}
        return self.observer.part(self.positions, types, [self.value])

    def _distance(self, part: ModelProto, given: Mapping[str, RunValue]) -> float | None:
        """Return the largest difference from the reference, None where they do not agree."""
        try:
            found = self.observer.run_part(part, given, [self.value])[self.value]
        except RuntimeFailure:
            return None  # it has other attributes, dtypes or shapes
        if not isinstance(found, np.ndarray) or not agrees(found, self.expected, self.tolerance):
            return None
        return compare(found, self.expected, self.tolerance).max_abs or 0.0


Alter = Callable[[NodeProto], None]


def _changes(node: NodeProto) -> Iterator[tuple[Change, str, Alter]]:
    """Yield (what it is, the reason if it helps, the change) for one node."""
    kind = next((operators for operators in KINDS if node.op_type in operators), ())
    for op_type in kind:
        if op_type != node.op_type and op_type != "Identity":
            because = f"{op_type} gives the reference, {node.op_type} does not"
            yield "other", because, _as_operator(op_type)
    for number, attribute in enumerate(node.attribute):
        for other in _others(attribute):
            made = helper.make_attribute(attribute.name, other)
            because = f"{attribute.name}={other!r} gives the reference"
            yield "other", because, _with_attribute(number, made)
    if node.op_type != "Constant":
        because = f"without this {node.op_type} the reference follows"
        for slot in range(len(node.input)):
            yield "extra", because, _as_identity(slot)


def _others(attribute: AttributeProto) -> Iterator[int | float | str | tuple[int, ...]]:
    """Yield other values of an attribute."""
    if attribute.name == "perm" and len(attribute.ints) <= _AXES:
        yield from (p for p in itertools.permutations(range(len(attribute.ints))))
    yield from _OTHER.get(attribute.name, ())


def _as_operator(op_type: str) -> Alter:
    def alter(node: NodeProto) -> None:
        node.op_type = op_type

    return alter


def _with_attribute(number: int, attribute: AttributeProto) -> Alter:
    def alter(node: NodeProto) -> None:
        node.attribute[number].CopyFrom(attribute)

    return alter


def _as_identity(slot: int) -> Alter:
    def alter(node: NodeProto) -> None:
        node.input[:] = [node.input[slot]]
        node.op_type, node.domain = "Identity", ""
        del node.attribute[:]

    return alter


def _read(references: ReferenceSet, name: str, like: Array) -> Array | None:
    """Return a reference in the shape and dtype of another value, None if it has another size."""
    try:
        value = references.read(name)
    except SurgeonError:
        return None
    if not isinstance(value, np.ndarray) or value.size != like.size or value.dtype.kind in "OUS":
        return None
    return value.reshape(like.shape).astype(like.dtype, copy=False)
