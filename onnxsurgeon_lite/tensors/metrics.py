"""The metrics of a comparison: each is a class that is given two tensors block by block, and a line of `METRICS`."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.tensors.dtypes import Array, is_float, wide

Numbers = NDArray[np.inexact]

_BOX = 4  # numbers of a box
_INTEGERS: dict[int, type[np.signedinteger]] = {2: np.int16, 4: np.int32, 8: np.int64}


class Block:
    """A part of two tensors, flat.

    Attributes:
        start: the place of its first element.
        raw: (actual, reference) as they are.
        x, y: both in float64 or complex128, 0 where one is not finite.
        bad: where only one is finite, or both are not and differ; None where all are finite.
        counts: NaN in actual and reference, Inf in actual and reference.
        finite: how many elements are finite on both sides.
        row: the size of the last axis.
        power: the sum of squares of (x, y).
    """

    def __init__(self, start: int, raw: tuple[Array, Array], row: int) -> None:
        wide = np.complex128 if any(side.dtype.kind == "c" for side in raw) else np.float64
        self.start = start
        self.raw = raw
        self.row = row
        self.x, self.y = (side.astype(wide) for side in raw)
        self.bad, self.counts, self.finite = None, [0] * 4, self.x.size
        self.power = self._power()
        # only where something is not finite: the usual case costs one sum
        if not math.isfinite(sum(self.power)):
            # count that, and put 0 in its place
            x, y = self.x, self.y
            finite = np.isfinite(x) & np.isfinite(y)
            self.finite = int(finite.sum())
            self.counts = [
                int(hits.sum()) for hits in chain(map(np.isnan, (x, y)), map(np.isinf, (x, y)))
            ]
            # both Inf of one sign, or both NaN, are equal
            self.bad = ~finite & ~((x == y) | (np.isnan(x) & np.isnan(y)))
            # 0 on both sides is no difference
            self.x = np.where(finite, x, 0.0)
            self.y = np.where(finite, y, 0.0)
            self.power = self._power()

    def _power(self) -> list[float]:
        return [float(np.vdot(side, side).real) for side in (self.x, self.y)]

    @cached_property
    def error(self) -> Numbers:
        """The magnitude of each difference."""
        return np.asarray(np.abs(self.x - self.y))

    @cached_property
    def size(self) -> Numbers:
        """The magnitude of each reference."""
        return np.abs(self.y)

    @cached_property
    def noise(self) -> float:
        """The sum of the squares of the differences."""
        return float(self.error @ self.error)

    def rows(self) -> list[Numbers]:
        """Return (x, y) as matrices: each row is one of the last axis."""
        return [side.reshape(-1, self.row) for side in (self.x, self.y)]

    def ulps(self) -> NDArray[np.uint64] | None:
        """Return the distances in representable numbers; None for dtypes without, 0 where one is not finite."""
        actual, reference = self.raw
        integers = _INTEGERS.get(actual.dtype.itemsize)
        # not for complex numbers, and not for float8
        if actual.dtype != reference.dtype or integers is None or not is_float(actual.dtype):
            return None
        # floats as integers on one line
        lines = [_number_line(side.view(integers)) for side in self.raw]
        apart = np.maximum(*lines).astype(np.uint64) - np.minimum(*lines).astype(np.uint64)
        if self.finite < self.x.size:
            apart[~np.isfinite(actual) | ~np.isfinite(reference)] = 0
        return apart


def _number_line(bits: NDArray[np.signedinteger]) -> NDArray[np.int64]:
    """Return integers that are adjacent for adjacent floats."""
    # Bits of positive floats grow with the float; those of negative floats grow the other way.
    wide = bits.astype(np.int64)
    lowest = -1 << 8 * bits.itemsize - 1
    return np.where(wide < 0, lowest - wide, wide)


class Measuring(Protocol):
    """A metric at work: it is made for one comparison, and given each block once."""

    def add(self, block: Block) -> None:
        """Take the next block into account."""

    def result(self) -> float | None:
        """Return the number for all blocks; None if it means nothing for these dtypes."""


@dataclass
class MaxAbs:
    """The largest difference."""

    value: float = 0.0

    def add(self, block: Block) -> None:
        self.value = max(self.value, float(block.error.max()))

    def result(self) -> float:
        return self.value


@dataclass
class MaxRel(MaxAbs):
    """The largest difference as a share of the reference's element."""

    def add(self, block: Block) -> None:
        if block.noise:
            error, size = block.error, block.size
            # 0 where the reference is 0
            relative = np.divide(error, size, out=np.zeros_like(error), where=size > 0)
            self.value = max(self.value, float(relative.max()))


@dataclass
class ULP:
    """The largest distance in units in the last place."""

    most: int | None = None

    def add(self, block: Block) -> None:
        apart = block.ulps()
        if apart is not None:
            self.most = max(self.most or 0, int(apart.max()))

    def result(self) -> int | None:
        return self.most


@dataclass
class SQNR:
    """Signal power to error power, in decibels."""

    signal: float = 0.0
    noise: float = 0.0
    count: int = 0

    def add(self, block: Block) -> None:
        self.signal += block.power[1]
        self.noise += block.noise
        self.count += block.finite

    def result(self) -> float:
        return _decibels(self.signal, self.noise)


class RMSE(SQNR):
    """The root of the mean squared difference."""

    def result(self) -> float:
        return math.sqrt(self.noise / self.count) if self.count else 0.0


@dataclass
class PSNR(SQNR):
    """The square of the largest reference to the mean squared difference, in decibels."""

    peak: float = 0.0

    def add(self, block: Block) -> None:
        super().add(block)
        self.peak = max(self.peak, float(block.size.max()))

    def result(self) -> float:
        return _decibels(self.peak * self.peak * self.count, self.noise)


@dataclass
class Cosine:
    """The cosine of the two as vectors."""

    actual: float = 0.0
    reference: float = 0.0
    product: float = 0.0

    def add(self, block: Block) -> None:
        self.actual += block.power[0]
        self.reference += block.power[1]
        self.product += float(np.vdot(block.x, block.y).real)

    def result(self) -> float:
        norm = math.sqrt(self.actual) * math.sqrt(self.reference)
        # both zero: equal; one zero: as different as can be
        cosine = self.product / norm if norm else float(self.actual == self.reference)
        return min(1.0, max(-1.0, cosine)) if math.isfinite(cosine) else math.nan


@dataclass
class Mean:
    """The mean over the rows of the last axis; of nothing, what equal rows have."""

    total: float = 0.0
    count: int = 0
    of_none: float = 1.0

    def take(self, found: Numbers | NDArray[np.bool_]) -> None:
        """Count what was found for rows."""
        self.total += float(found.sum())
        self.count += found.size

    def result(self) -> float:
        return self.total / self.count if self.count else self.of_none


class Top1(Mean):
    """The share of rows whose largest element is at the same place."""

    def add(self, block: Block) -> None:
        x, y = block.rows()
        self.take(x.argmax(1) == y.argmax(1))


@dataclass
class KL(Mean):
    """The divergence of each row from the reference's, in nats: of probabilities, or of the softmax of scores."""

    of_none: float = 0.0

    def add(self, block: Block) -> None:
        q, p = map(_log_probabilities, block.rows())
        # a class of probability 0 adds nothing
        found = np.where(np.isfinite(p), np.exp(p) * (p - q), 0.0)
        self.take(found.sum(1))


class IoU(Mean):
    """The overlap of boxes (rows of 4, two corners); of other tensors, of their positive elements."""

    def add(self, block: Block) -> None:
        if block.row != _BOX:  # segmentation: positive elements are the object
            x, y = block.x > 0, block.y > 0
            self.total += float((x & y).sum())
            self.count += int((x | y).sum())
            return
        one, other = block.rows()
        low, high = np.maximum(one[:, :2], other[:, :2]), np.minimum(one[:, 2:], other[:, 2:])
        shared = np.maximum(high - low, 0).prod(1)  # negative where boxes do not overlap
        areas = [(box[:, 2:] - box[:, :2]).prod(1) for box in (one, other)]
        union = areas[0] + areas[1] - shared
        same = (one == other).all(1)
        # boxes without an area: equal or not
        self.take(np.divide(shared, union, out=wide(same), where=union > 0))


def _decibels(signal: float, noise: float) -> float:
    ratio = signal / noise if noise else math.inf
    return 10 * math.log10(ratio) if ratio else -math.inf


def _log_probabilities(rows: Numbers) -> Numbers:
    """Return the logarithm of probabilities, shape [rows, classes]."""
    if rows.size and rows.min() >= 0 and np.allclose(rows.sum(1), 1, atol=1e-3):
        return np.log(rows)
    scores = rows - rows.max(1, keepdims=True)  # softmax of scores, without overflow
    return np.asarray(scores - np.log(np.exp(scores).sum(1, keepdims=True)))


@dataclass(frozen=True)
class ErrorMeasure:
    """A metric in `METRICS`: one number that says how far two tensors are apart.

    Attributes:
        title: of its column.
        make: its class.
        best: its number for equal tensors. If that is 0, a smaller number is better, otherwise a larger one.
        shown: each comparison measures it; others are measured only where they decide (`--metric`).
        rows: its blocks have whole rows of the last axis.
        digits: how many of its number are shown.
    """

    title: str
    make: Callable[[], Measuring]
    best: float = 0.0
    shown: bool = True
    rows: bool = False
    digits: int = 4


METRICS = {
    "max_abs": ErrorMeasure("max abs", MaxAbs, shown=False),
    "max_rel": ErrorMeasure("max rel", MaxRel),
    "rmse": ErrorMeasure("RMSE", RMSE),
    "cosine": ErrorMeasure("cosine", Cosine, best=1.0, digits=6),
    "sqnr": ErrorMeasure("SQNR dB", SQNR, best=math.inf),
    "psnr": ErrorMeasure("PSNR dB", PSNR, best=math.inf),
    "ulp": ErrorMeasure("ULP", ULP),
    "kl": ErrorMeasure("KL", KL, shown=False, rows=True),
    "top1": ErrorMeasure("top 1", Top1, best=1.0, shown=False, rows=True),
    "iou": ErrorMeasure("IoU", IoU, best=1.0, shown=False, rows=True),
}
"""By the names that `--metric` takes, in the order of their columns."""

SHOWN = tuple(name for name, metric in METRICS.items() if metric.shown)


@dataclass(frozen=True)
class Limit:
    """A metric that decides, and the worst value that it may have.

    Attributes:
        metric: its name in `METRICS`.
    """

    metric: str
    worst: float

    @classmethod
    def of(cls, text: str, worst: float | None = None) -> "Limit | None":
        """Parse `cosine>=0.999`, or a name where the limit is given apart; None where it is no name of a metric.

        Raises:
            UsageError: there is no limit, or it is on the wrong side.
        """
        sign = next((sign for sign in (">=", "<=") if sign in text), "")
        name, _, number = text.partition(sign or ">=")
        if name not in METRICS:
            return None
        # a metric whose best is not 0 is the better the larger
        wanted = ">=" if METRICS[name].best else "<="
        try:
            limit = float(number) if sign else math.nan if worst is None else worst
        except ValueError:
            limit = math.nan
        if math.isnan(limit) or sign not in ("", wanted):
            raise UsageError(f"--metric {text!r} has no limit", f"write '{name}{wanted}NUMBER'")
        return cls(name, limit)

    def excess(self, value: float) -> float:
        """Return how far a value is off, as a multiple of what the limit allows: 1 at the limit."""
        if math.isnan(value):
            return math.inf
        best = METRICS[self.metric].best
        if math.isinf(best):
            # decibels: a ratio of magnitudes, as far as a float holds it
            return math.pow(10, min((self.worst - value) / 20, 300))
        allowed, off = abs(best - self.worst), abs(best - value)
        return off / allowed if allowed else math.inf if off else 0.0

    def __str__(self) -> str:
        sign = ">=" if METRICS[self.metric].best else "<="
        return f"{self.metric}{sign}{self.worst:g}"


def number_text(value: float | str | None, digits: int = 6) -> str:
    """Return a number as reports show it; a dash for none."""
    if value is None:
        return "-"
    return f"{value:.{digits}g}" if isinstance(value, float) else repr(value)
