"""What makes a value good: it agrees with its reference, or it is free of what is looked for."""

from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.tensors.comparison import Comparison, Tolerance, agrees, compare
from onnxsurgeon_lite.tensors.dtypes import Array, RunValue
from onnxsurgeon_lite.tensors.references import ReferenceSet
from onnxsurgeon_lite.tensors.references.sets import Stored

_LARGEST = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float8e4m3fn": 448.0}


class Judge(Protocol):
    """Tells good values from bad ones."""

    def tells(self, name: str) -> bool:
        """Whether it can say anything of a value."""

    def size(self, name: str) -> int:
        """The bytes that the value takes, about; 0 where that is not known."""

    def prepare(self, names: Sequence[str]) -> None:
        """These are asked about next."""

    def good(self, name: str, actual: RunValue) -> bool:
        """Whether the value is good; asked from several threads at a time."""


@dataclass
class AgainstReferences:
    """Good is what lies within its tolerance of the reference.

    Attributes:
        outputs: values that are measured in full when they are first judged, with what that gave.
    """

    references: ReferenceSet
    tolerance: Tolerance | None = None
    outputs: dict[str, Comparison | None] = field(default_factory=dict)
    _reading: Lock = field(default_factory=Lock, repr=False)

    def only(self, names: Container[str]) -> "AgainstReferences":
        """The same judge, who knows these values alone."""
        entries = {name: e for name, e in self.references.entries.items() if name in names}
        return replace(self, references=replace(self.references, entries=entries))

    def tells(self, name: str) -> bool:
        """Whether there is a reference."""
        return name in self.references

    def size(self, name: str) -> int:
        """As stored."""
        return self.references.entries[name].size

    def prepare(self, names: Sequence[str]) -> None:
        """Have references that must be computed first computed together."""
        self.references.prefetch(names)

    def good(self, name: str, actual: RunValue) -> bool:
        """The verdict alone, without metrics, unless it is an output."""
        with self._reading:
            reference = self.references.read(name)
        if name in self.outputs and self.outputs[name] is None:
            comparison = self.outputs[name] = self.compared(actual, reference)
            return comparison is None or comparison.match
        return all(agrees(a, r, self.tolerance) for a, r in _pairs(actual, reference))

    def compared(self, actual: RunValue, reference: Stored) -> Comparison | None:
        """In full; of a sequence's elements a mismatching one, if there is one. None for two empty sequences."""
        comparisons = (compare(a, r, self.tolerance) for a, r in _pairs(actual, reference))
        return min(comparisons, key=lambda c: c.match, default=None)


@dataclass(frozen=True)
class Finds:
    """Good is what holds nothing of a kind: `nan`, `inf`, or magnitudes that overflow a dtype."""

    nan: bool = False
    inf: bool = False
    largest: float = float("inf")

    @classmethod
    def of(cls, kind: str) -> "Finds":
        """`nan`, `inf`, `overflow:float16`.

        Raises:
            UsageError: nothing of that name can be looked for.
        """
        what, _, dtype = kind.partition(":")
        if what == "overflow" and dtype in _LARGEST:
            return cls(largest=_LARGEST[dtype])
        if kind in ("nan", "inf"):
            return cls(nan=kind == "nan", inf=kind == "inf")
        raise UsageError(
            f"{kind!r} cannot be looked for",
            f"write nan, inf, or overflow: with {', '.join(_LARGEST)}",
        )

    def tells(self, name: str) -> bool:
        """Always."""
        return True

    def size(self, name: str) -> int:
        """Unknown before the value is there."""
        return 0

    def prepare(self, names: Sequence[str]) -> None:
        """Nothing is needed."""

    def good(self, name: str, actual: RunValue) -> bool:
        """Whether it holds none."""
        return all(self._clean(a) for a in (actual if isinstance(actual, list) else [actual]))

    def hits(self, array: Array) -> NDArray[np.bool_]:
        """Where it is what is looked for."""
        numbers: NDArray[Any] = array if array.dtype.kind in "fc" else array.astype(np.float64)
        if self.nan:
            return np.asarray(np.isnan(numbers))
        magnitudes = np.abs(numbers)
        return np.asarray(np.isinf(magnitudes) if self.inf else magnitudes > self.largest)

    def _clean(self, array: Array | None) -> bool:
        if array is None or array.dtype.kind in "OUSb" or not array.size:
            return True
        return not self.hits(array).any()


def _pairs(actual: RunValue, reference: Stored) -> list[tuple[Array, Array]]:
    """Tensors to compare; sequences element by element, one of another length as a mismatch of shapes."""
    if isinstance(actual, np.ndarray) and isinstance(reference, np.ndarray):
        return [(actual, reference)]
    if isinstance(actual, list) and isinstance(reference, list) and len(actual) == len(reference):
        return list(zip(actual, reference, strict=True))
    return [(np.empty((0, 1)), np.empty((0, 2)))]
