"""Predicates of a search: a value is good when it agrees with its reference, or is free of NaN, Inf or overflow."""

from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.matching.judge import LARGEST, ValueRule
from onnxsurgeon_lite.runtime.session import Held
from onnxsurgeon_lite.tensors.comparison import (
    Scratch,
    surely_agrees,
)
from onnxsurgeon_lite.tensors.dtypes import Array, RunValue, Stored, is_array, wide
from onnxsurgeon_lite.tensors.in_file import InFile
from onnxsurgeon_lite.tensors.references import ReferenceSet

_Value = TypeVar("_Value", Stored, RunValue)


class Judge(Protocol):
    """Decides which values are good."""

    def can_judge(self, name: str) -> bool:
        """Return whether the value can be judged."""

    def size(self, name: str) -> int:
        """Return the approximate bytes of the value, 0 when unknown."""

    def prepare(self, names: Sequence[str]) -> None:
        """Announce the values to be judged next."""

    def good(self, name: str, actual: RunValue | Held) -> bool:
        """Return whether the value is good; called from several threads."""

    def heals(self, name: str, actual: RunValue | Held) -> bool:
        """Return whether the reference surely can take the value's place."""


@dataclass
class AgainstReferences(ValueRule):
    """A value is good when the rule says that it agrees with its reference."""

    references: ReferenceSet = field(default_factory=lambda: ReferenceSet("", {}))
    _reading: Lock = field(default_factory=Lock, repr=False)
    _scratch: Scratch = field(default_factory=Scratch, repr=False)

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

    def good(self, name: str, actual: RunValue | Held) -> bool:
        """Compare a value; with metrics if it is an output."""
        if isinstance(actual, Held):
            if self._surely_good(name, actual):
                return True
            actual = actual.array()
        # several threads judge, but a reference set is read by one at a time
        with self._reading:
            reference = self.references.read(name)
        # an output is compared in full once; the report shows it
        if name in self.outputs and self.outputs[name] is None:
            comparison = self.outputs[name] = self.compared(name, actual, reference)
            return comparison.match
        return self.agrees(name, actual, reference)

    def heals(self, name: str, actual: RunValue | Held) -> bool:
        place = self.references.entries[name].read
        if not isinstance(actual, Held) or not isinstance(place, InFile):
            return False
        return actual.dtype == place.dtype

    def _surely_good(self, name: str, actual: Held) -> bool:
        """Return True only if the value agrees with a reference that can be read piece by piece."""
        place = self.references.entries[name].read
        if name in self.grids or name in self.outputs or not isinstance(place, InFile):
            return False
        try:
            return surely_agrees(actual, place, self.allowed(name, actual), self._scratch)
        except OSError:
            return False  # reading it whole says why


@dataclass(frozen=True)
class Finds:
    """A value is good when it has no NaN, no Inf, or no magnitude that overflows a dtype."""

    nan: bool = False
    inf: bool = False
    largest: float = float("inf")

    def because(self, array: Array) -> str:
        """Say what was found in a value: `68644 > 65504`, or its first NaN or Inf."""
        # the largest of what was found; for NaN and Inf the first
        at = np.unravel_index(
            int(np.abs(np.where(self.hits(array), array, 0)).argmax()), array.shape
        )
        if self.nan or self.inf:
            at = tuple(np.argwhere(self.hits(array))[0])
        more = f" > {self.largest:.6g}" if np.isfinite(self.largest) else ""
        number = f"{array[at]:.6g}"
        number = f"|{number}|" if more and array[at] < 0 else number
        return f"{number}{more} at {list(map(int, at))}"

    @classmethod
    def of(cls, kind: str) -> "Finds":
        """Parse `nan`, `inf` or `overflow:float16`.

        Raises:
            UsageError: the kind is unknown.
        """
        what, _, dtype = kind.partition(":")
        if what == "overflow" and dtype in LARGEST:
            return cls(largest=LARGEST[dtype])
        if kind in ("nan", "inf"):
            return cls(nan=kind == "nan", inf=kind == "inf")
        raise UsageError(
            f"--find {kind!r} is unknown",
            f"write nan, inf or overflow:DTYPE, with DTYPE one of {', '.join(LARGEST)}",
        )

    def can_judge(self, name: str) -> bool:
        return True

    def size(self, name: str) -> int:
        return 0

    def prepare(self, names: Sequence[str]) -> None:
        """Do nothing."""

    def good(self, name: str, actual: RunValue | Held) -> bool:
        if isinstance(actual, Held):
            actual = actual.array()
        return all(self._clean(a) for a in (actual if isinstance(actual, list) else [actual]))

    def heals(self, name: str, actual: RunValue | Held) -> bool:
        return False

    def hits(self, array: Array) -> NDArray[np.bool_]:
        """Return a mask of the elements that it searches for."""
        # bfloat16 and below have no numpy functions of their own: widen
        numbers: NDArray[Any] = array if array.dtype.kind in "fc" else wide(array)
        if self.nan:
            return np.asarray(np.isnan(numbers))
        magnitudes = np.abs(numbers)
        return np.asarray(np.isinf(magnitudes) if self.inf else magnitudes > self.largest)

    def _clean(self, array: Array | None) -> bool:
        if array is None or array.dtype.kind in "OUSb" or not array.size:
            return True
        return not self.hits(array).any()


def cast_like(actual: RunValue, reference: _Value) -> _Value:
    """Cast the reference to the model's dtype."""
    if is_array(actual) and is_array(reference):
        with np.errstate(all="ignore"):
            return reference.astype(actual.dtype, copy=False)
    return reference


def unlike(actual: RunValue, reference: Stored) -> bool:
    """Return whether a reference cannot take a value's place: its shape is another, or the dtype cannot hold it."""
    if not is_array(actual) or not is_array(reference):
        return False
    if actual.shape != reference.shape:
        return True  # what reads the value may refuse it
    if actual.dtype == reference.dtype or actual.dtype.kind in "OUSiub":
        return False
    return bool((np.isinf(cast_like(actual, reference)) & ~np.isinf(reference)).any())
