"""Predicates of a search: a value is good when it agrees with its reference, or is free of NaN, Inf or overflow."""

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
    """Decides which values are good."""

    def can_judge(self, name: str) -> bool:
        """Return whether the value can be judged."""

    def size(self, name: str) -> int:
        """Return the approximate bytes of the value, 0 when unknown."""

    def prepare(self, names: Sequence[str]) -> None:
        """Announce the values to be judged next."""

    def good(self, name: str, actual: RunValue) -> bool:
        """Return whether the value is good; called from several threads."""


@dataclass
class AgainstReferences:
    """A value is good when it lies within the tolerance of its reference.

    Attributes:
        outputs: values to compare in full when they are first judged, with their comparisons.
    """

    references: ReferenceSet
    tolerance: Tolerance | None = None
    outputs: dict[str, Comparison | None] = field(default_factory=dict)
    _reading: Lock = field(default_factory=Lock, repr=False)

    def only(self, names: Container[str]) -> "AgainstReferences":
        """Return the same judge for these values only."""
        entries = {name: e for name, e in self.references.entries.items() if name in names}
        return replace(self, references=replace(self.references, entries=entries))

    def can_judge(self, name: str) -> bool:
        return name in self.references

    def size(self, name: str) -> int:
        return self.references.entries[name].size

    def prepare(self, names: Sequence[str]) -> None:
        """Prefetch the references, so that computed ones are computed together."""
        self.references.prefetch(names)

    def good(self, name: str, actual: RunValue) -> bool:
        """Compare a value; with metrics if it is an output."""
        with self._reading:
            reference = self.references.read(name)
        if name in self.outputs and self.outputs[name] is None:
            comparison = self.outputs[name] = self.compared(actual, reference)
            return comparison is None or comparison.match
        return all(agrees(a, r, self.tolerance) for a, r in _pairs(actual, reference))

    def compared(self, actual: RunValue, reference: Stored) -> Comparison | None:
        """Compare with all metrics; for sequences return a mismatching element's, None for two empty ones."""
        comparisons = (compare(a, r, self.tolerance) for a, r in _pairs(actual, reference))
        return min(comparisons, key=lambda c: c.match, default=None)


@dataclass(frozen=True)
class Finds:
    """A value is good when it has no NaN, no Inf, or no magnitude that overflows a dtype."""

    nan: bool = False
    inf: bool = False
    largest: float = float("inf")

    @classmethod
    def of(cls, kind: str) -> "Finds":
        """Parse `nan`, `inf` or `overflow:float16`.

        Raises:
            UsageError: the kind is unknown.
        """
        what, _, dtype = kind.partition(":")
        if what == "overflow" and dtype in _LARGEST:
            return cls(largest=_LARGEST[dtype])
        if kind in ("nan", "inf"):
            return cls(nan=kind == "nan", inf=kind == "inf")
        raise UsageError(
            f"--find {kind!r} is unknown",
            f"write nan, inf or overflow:DTYPE, with DTYPE one of {', '.join(_LARGEST)}",
        )

    def can_judge(self, name: str) -> bool:
        return True

    def size(self, name: str) -> int:
        return 0

    def prepare(self, names: Sequence[str]) -> None:
        """Do nothing."""

    def good(self, name: str, actual: RunValue) -> bool:
        return all(self._clean(a) for a in (actual if isinstance(actual, list) else [actual]))

    def hits(self, array: Array) -> NDArray[np.bool_]:
        """Return a mask of the elements that it searches for."""
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
    """Pair the tensors to compare; sequences of different lengths give a shape mismatch."""
    if isinstance(actual, np.ndarray) and isinstance(reference, np.ndarray):
        return [(actual, reference)]
    if isinstance(actual, list) and isinstance(reference, list) and len(actual) == len(reference):
        return list(zip(actual, reference, strict=True))
    return [(np.empty((0, 1)), np.empty((0, 2)))]
