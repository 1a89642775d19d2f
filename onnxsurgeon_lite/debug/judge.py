"""Predicates of a search: a value is good when it agrees with its reference, or is free of NaN, Inf or overflow."""

from collections.abc import Container, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cache
from threading import Lock
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto

from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.runtime.session import Held
from onnxsurgeon_lite.tensors.comparison import (
    Comparison,
    Distance,
    Scratch,
    Tolerance,
    agrees,
    compare,
    default_tolerance,
    distance,
    surely_agrees,
)
from onnxsurgeon_lite.tensors.dtypes import Array, RunValue, is_float, numpy_dtype
from onnxsurgeon_lite.tensors.grid import Grid
from onnxsurgeon_lite.tensors.narrow import largest
from onnxsurgeon_lite.tensors.references import ReferenceSet
from onnxsurgeon_lite.tensors.references.sets import InFile, Stored

_Value = TypeVar("_Value", Stored, RunValue)

HALF = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
_END = 0.99  # of the largest number of a dtype: it stands for Inf, also with a score added
LARGEST = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float8e4m3fn": 448.0}


@cache
def largest_of(dtype: np.dtype[np.generic]) -> float | None:
    """Return the largest number of a dtype that overflows early."""
    return LARGEST.get(dtype.name)


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
class AgainstReferences:
    """A value is good when it lies within the tolerance of its reference.

    Attributes:
        coarse: values that half precision went into -> its dtype: they are as precise as that.
        share: of the tolerance of these values that counts.
        grids: values that are quantized -> the numbers that they can be; both sides are rounded to these.
        errors: values -> an error that is none.
        outputs: values to compare in full when they are first judged, with their comparisons.
    """

    references: ReferenceSet
    tolerance: Tolerance | None = None
    coarse: Mapping[str, np.dtype[np.generic]] = field(default_factory=dict)
    share: float = 1.0
    grids: Mapping[str, Grid] = field(default_factory=dict)
    errors: Mapping[str, float] = field(default_factory=dict)
    outputs: dict[str, Comparison | None] = field(default_factory=dict)
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
        with self._reading:
            reference = self.references.read(name)
        if name in self.outputs and self.outputs[name] is None:
            comparison = self.outputs[name] = self.compared(name, actual, reference)
            return comparison is None or comparison.match
        allowed = self.allowed(name, actual)
        return all(agrees(a, r, allowed) for a, r in self._pairs(name, actual, reference))

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

    def allowed(self, name: str, actual: RunValue | Held) -> Tolerance | None:
        """Return the tolerance of a value; None takes that of its dtypes."""
        if name in self.errors and self.tolerance is None:
            return Tolerance(self.errors[name], 0.0)
        coarse = self.coarse.get(name)
        if (
            self.tolerance is not None
            or coarse is None
            or not isinstance(actual, np.ndarray | Held)
        ):
            return self.tolerance
        if not is_float(actual.dtype):
            return None
        usual = default_tolerance(actual.dtype, coarse)
        return replace(usual, atol=usual.atol * self.share, rtol=usual.rtol * self.share)

    def compared(self, name: str, actual: RunValue, reference: Stored) -> Comparison | None:
        """Compare with all metrics; for sequences return a mismatching element's, None for two empty ones."""
        allowed = self.allowed(name, actual)
        pairs = self._pairs(name, actual, reference)
        return min((compare(a, r, allowed) for a, r in pairs), key=lambda c: c.match, default=None)

    def distance(
        self, name: str, actual: RunValue, reference: Stored
    ) -> Distance | Comparison | None:
        """Compare without metrics; see `compared`."""
        allowed = self.allowed(name, actual)
        found = (distance(a, r, allowed) for a, r in self._pairs(name, actual, reference))
        return min(found, key=lambda each: each.match, default=None)

    def seen(self, name: str, value: RunValue) -> RunValue:
        """Return a value as it is compared: of a quantized one, the nearest numbers that it can be."""
        grid = self.grids.get(name)
        if grid is None or not isinstance(value, np.ndarray) or not grid.fits(value.shape):
            return value
        return grid.rounded(value).astype(np.float32)

    def _pairs(self, name: str, actual: RunValue, reference: Stored) -> list[tuple[Array, Array]]:
        pairs = _pairs(*(self.seen(name, value) for value in (actual, reference)))
        pairs = [(one, _in_range_of(one, other)) for one, other in pairs]
        return pairs if name in self.outputs else [(one, _masked_as(one, o)) for one, o in pairs]


def coarse_values(index: GraphIndex) -> dict[str, np.dtype[np.generic]]:
    """Map the values that half precision goes into to its dtype, also behind a cast to float32.

    None of a model that computes nothing in half precision: there, a cast to it and back only loses digits.
    """
    found = {
        name: numpy_dtype(tensor.data_type)
        for name, tensor in index.initializers.items()
        if isinstance(tensor, TensorProto) and tensor.data_type in HALF
    }
    for name, declared in index.inputs.items():
        if declared.type.tensor_type.elem_type in HALF:
            found[name] = numpy_dtype(declared.type.tensor_type.elem_type)
    halved = {name for node in index.nodes if _casts_to_half(node) for name in node.output}
    if not any(_computes_with(node, found.keys() | halved) for node in index.nodes):
        return {}
    for position in index.order:
        node = index.nodes[position]
        to = _casts_to_half(node)
        read = [found[name] for name in index.reads[position] if name in found]
        for dtype in [*map(numpy_dtype, to), *read][:1]:
            found.update(dict.fromkeys(node.output, dtype))
    return found


def _casts_to_half(node: NodeProto) -> list[int]:
    """Return the half-precision dtype that a node casts to, [] if it does not."""
    return [
        a.i for a in node.attribute if node.op_type == "Cast" and a.name == "to" and a.i in HALF
    ]


def _computes_with(node: NodeProto, names: Set[str]) -> bool:
    return node.op_type != "Cast" and not names.isdisjoint(node.input)


@dataclass(frozen=True)
class Finds:
    """A value is good when it has no NaN, no Inf, or no magnitude that overflows a dtype."""

    nan: bool = False
    inf: bool = False
    largest: float = float("inf")

    def because(self, array: Array) -> str:
        """Say what was found in a value: `68644 > 65504`, or its first NaN or Inf."""
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
        numbers: NDArray[Any] = array if array.dtype.kind in "fc" else array.astype(np.float64)
        if self.nan:
            return np.asarray(np.isnan(numbers))
        magnitudes = np.abs(numbers)
        return np.asarray(np.isinf(magnitudes) if self.inf else magnitudes > self.largest)

    def _clean(self, array: Array | None) -> bool:
        if array is None or array.dtype.kind in "OUSb" or not array.size:
            return True
        return not self.hits(array).any()


def _in_range_of(actual: Array, reference: Array) -> Array:
    """Return a reference that half precision cannot hold as the end of its range, where the model has that."""
    largest = largest_of(actual.dtype)
    if largest is None or actual.shape != reference.shape or not is_float(reference.dtype):
        return reference
    ends = np.abs(actual) == actual.dtype.type(largest)
    beyond = ends & (np.abs(reference) > largest) & (np.sign(reference) == np.sign(actual))
    return (
        np.where(beyond, actual.astype(reference.dtype), reference) if beyond.any() else reference
    )


def _masked_as(actual: Array, reference: Array) -> Array:
    """Return a reference with the same mask as a value: one exporter masks by Inf, another by the end of the range."""
    same_kind = actual.dtype == reference.dtype and actual.shape == reference.shape
    if not same_kind or actual.dtype.kind != "f":
        return reference
    with np.errstate(all="ignore"):
        if np.isfinite(actual.sum() + reference.sum()):  # no Inf, in the time of reading them
            return reference
    end = _END * largest(actual.dtype)
    ends = (np.abs(actual) >= end) & (np.abs(reference) >= end)
    masked = ends & (np.isinf(actual) != np.isinf(reference))
    return np.where(masked & (np.sign(actual) == np.sign(reference)), actual, reference)


def _pairs(actual: RunValue, reference: RunValue) -> list[tuple[Array, Array]]:
    """Pair the tensors to compare; sequences of different lengths give a shape mismatch."""
    if isinstance(actual, np.ndarray) and isinstance(reference, np.ndarray):
        return [(actual, reference)]
    if isinstance(actual, list) and isinstance(reference, list) and len(actual) == len(reference):
        return list(zip(actual, reference, strict=True))
    return [(np.empty((0, 1)), np.empty((0, 2)))]


def cast_like(actual: RunValue, reference: _Value) -> _Value:
    """Cast the reference to the model's dtype."""
    if isinstance(actual, np.ndarray) and isinstance(reference, np.ndarray):
        with np.errstate(all="ignore"):
            return reference.astype(actual.dtype, copy=False)
    return reference


def unlike(actual: RunValue, reference: Stored) -> bool:
    """Return whether a reference cannot take a value's place: its shape is another, or the dtype cannot hold it."""
    if not isinstance(actual, np.ndarray) or not isinstance(reference, np.ndarray):
        return False
    if actual.shape != reference.shape:
        return True  # what reads the value may refuse it
    if actual.dtype == reference.dtype or actual.dtype.kind in "OUSiub":
        return False
    return bool((np.isinf(cast_like(actual, reference)) & ~np.isinf(reference)).any())
