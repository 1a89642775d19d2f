"""What a converted model must reach: a limit on an error of its outputs."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, isfinite

import numpy as np

from onnxsurgeon_lite.errors import FeedsError, SurgeonError, UsageError
from onnxsurgeon_lite.matching.metric import Metric, MetricFunction, Pairs, Values
from onnxsurgeon_lite.tensors.comparison import compare
from onnxsurgeon_lite.tensors.dtypes import Array, RunValue, has_floats, is_array
from onnxsurgeon_lite.tensors.grid import Wide


class _NotFiniteError(SurgeonError):
    """Outputs that are not finite."""


@dataclass(frozen=True)
class Goal:
    """A limit on the error of outputs.

    Attributes:
        what: `max abs error`, `SQNR`, or the name of a function.
        limit: the largest error; the smallest SQNR, in decibels.
        metric: the function.
    """

    what: str
    limit: float
    metric: Metric

    @classmethod
    def of(
        cls, tolerance: float | None, min_sqnr: float | None, metric: "str | MetricFunction | None"
    ) -> "Goal | None":
        """Return the goal that is asked for; None if there is none.

        Raises:
            UsageError: there are two, or a limit is missing or no number.
        """
        if metric is not None and (tolerance is None or min_sqnr is not None):
            raise UsageError("a metric needs a limit", "give it as --tolerance")
        if tolerance is not None and min_sqnr is not None:
            raise UsageError("there are two goals", "give --tolerance or --min-sqnr")
        limit = tolerance if min_sqnr is None else min_sqnr
        if limit is None:
            return None
        if not isfinite(limit) or (min_sqnr is None and limit < 0):
            raise UsageError(f"{limit} is no limit", "write --tolerance 0.01 or --min-sqnr 40")
        if min_sqnr is not None:
            return cls("SQNR", limit, Metric("SQNR", worst_sqnr))
        if metric is None:
            return cls("max abs error", limit, Metric("max abs error", max_abs))
        given = Metric.of(metric, limit)
        return cls(given.name, limit, given)

    def worst(self, pairs: Pairs) -> tuple[float, float]:
        """Return (the error of all samples as a multiple of the limit, the measured number).

        Outputs that are not finite where their references are have (Inf, NaN).
        """
        try:
            if self.metric.whole:
                return self._excess(self.metric.of_all(_finite(pairs)))
            found = [self._excess(self.metric.of_sample(*pair)) for pair in _finite(pairs)]
        except _NotFiniteError:
            return inf, float("nan")
        return max(found, key=lambda each: each[0])

    def _excess(self, found: float) -> tuple[float, float]:
        if self.what == "SQNR":
            return 10 ** ((self.limit - found) / 20), found
        return (found / self.limit if self.limit else inf if found else 0.0), found

    def scale(self, reference: Array) -> float:
        """Return by how much an output's error is divided, so that errors of several can be added."""
        if self.what == "max abs error":
            return 1.0
        return float(np.linalg.norm(_wide(reference))) or 1.0

    def judged(self, excess: float, measured: float) -> tuple[bool, str]:
        """Return whether the goal is reached, and what was."""
        text = self.text(measured)
        return excess <= 1, text if excess <= 1 else f"the best reached is {text}"

    def text(self, measured: float) -> str:
        """Return what was measured, and the limit."""
        if np.isnan(measured):
            return f"outputs that are not finite ({self.what}, limit {self.limit:g})"
        unit = " dB" if self.what == "SQNR" else ""
        return f"{self.what} {measured:.3g}{unit} (limit {self.limit:g})"


def require_finite(reference: Values) -> None:
    """Raise `FeedsError` if the original itself gives what is not finite."""
    for name, value in _floats(reference).items():
        if np.isnan(_wide(value)).any() or np.isposinf(_wide(value)).any():
            raise FeedsError(
                f"output {name!r} is not finite in float32 already, with these feeds",
                "find out why: onnxdbg bisect MODEL --find nan; or give other feeds",
            )


def max_abs(reference: Values, actual: Values) -> float:
    """Return the largest difference of any element."""
    with np.errstate(all="ignore"):
        gaps = [_wide(actual[n]) - _wide(v) for n, v in _measured(reference).items()]
    return max((float(np.nanmax(np.abs(gap), initial=0.0)) for gap in gaps), default=0.0)


def worst_sqnr(reference: Values, actual: Values) -> float:
    """Return the SQNR of the worst output, in decibels."""
    found = (compare(_wide(actual[n]), _wide(v)).sqnr_db for n, v in _measured(reference).items())
    return min(found, default=inf)


def _measured(values: Values) -> dict[str, Array]:
    """Return the float outputs; a model without has its numbers measured."""
    arrays = ((n, v) for n, v in values.items() if is_array(v))
    return _floats(values) or {name: array for name, array in arrays if array.dtype.kind in "biu"}


def _floats(values: Values) -> dict[str, Array]:
    return {n: v for n, v in values.items() if has_floats(v)}


def _finite(pairs: Pairs) -> Iterator[tuple[Values, Values]]:
    for reference, actual in pairs:
        if not _is_finite(actual, reference):
            raise _NotFiniteError("not finite")
        yield reference, actual


def _is_finite(actual: Values, reference: Values) -> bool:
    """Return whether each element is finite that the reference has finite."""
    for name, value in _floats(reference).items():
        found = actual.get(name)
        if not is_array(found) or found.shape != value.shape:
            return False
        if not (np.isfinite(_wide(found)) | ~np.isfinite(_wide(value))).all():
            return False
    return True


def _wide(value: RunValue) -> Wide:
    return np.asarray(value).astype(np.float64)
