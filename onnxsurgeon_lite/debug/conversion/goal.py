"""What a converted model must reach: a limit on an error of its outputs."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

import numpy as np

from onnxsurgeon_lite.errors import FeedsError, SurgeonError, UsageError
from onnxsurgeon_lite.matching.judge import Metric, MetricFunction, Pairs, Values
from onnxsurgeon_lite.tensors.comparison import compare
from onnxsurgeon_lite.tensors.dtypes import Array, RunValue, Wide, has_floats, is_array, wide
from onnxsurgeon_lite.tensors.metrics import Limit

_NAMES = {"max_abs": "max abs error", "sqnr": "SQNR"}


class _NotFiniteError(SurgeonError):
    """Outputs that are not finite."""


@dataclass(frozen=True)
class Goal:
    """A limit on the error of outputs.

    Attributes:
        limit: of a metric of each output; None where a function decides.
        metric: the function.
    """

    limit: Limit | None = None
    metric: Metric | None = None

    @classmethod
    def of(
        cls, tolerance: float | None, min_sqnr: float | None, metric: "str | MetricFunction | None"
    ) -> "Goal | None":
        """Return the goal that is asked for; None if there is none.

        Raises:
            UsageError: there are two, or a limit is missing or no number.
        """
        if min_sqnr is not None and not (tolerance is None and metric is None):
            raise UsageError("there are two goals", "give --tolerance or --min-sqnr")
        # two ways to say it: --min-sqnr, or --tolerance for the largest error
        if metric is None:
            worst, metric = (tolerance, "max_abs") if min_sqnr is None else (min_sqnr, "sqnr")
            if worst is None:
                return None
            tolerance = worst
        if tolerance is not None and not (
            abs(tolerance) < inf and (tolerance >= 0 or metric == "sqnr")
        ):
            raise UsageError(f"{tolerance} is no limit", "write --tolerance 0.01 or --min-sqnr 40")
        # a metric of ours has a limit; any other name is a function of the user's
        if isinstance(metric, str) and (limit := Limit.of(metric, tolerance)) is not None:
            return cls(limit)
        if tolerance is None:
            raise UsageError("a metric needs a limit", "give it as --tolerance")
        return cls(metric=Metric.of(metric, tolerance))

    def worst(self, pairs: Pairs) -> tuple[float, float]:
        """Return (the error of all samples as a multiple of the limit, the measured number).

        Outputs that are not finite where their references are have (Inf, NaN).
        """
        try:
            # a metric of all samples together (accuracy), or the worst of each sample and output
            if self.metric is not None and self.metric.whole:
                return self._excess(self.metric.of_all(_finite(pairs)))
            found = [each for pair in _finite(pairs) for each in self._measured(*pair)]
        except _NotFiniteError:
            return inf, float("nan")
        return max(found, key=lambda each: each[0], default=(0.0, 0.0))

    def _measured(self, reference: Values, actual: Values) -> Iterator[tuple[float, float]]:
        """Yield what the metric says of each output, or of all."""
        if self.limit is None:
            yield self._excess(self.metric.of_sample(reference, actual) if self.metric else 0.0)
            return
        for name, value in _numbers(reference).items():
            found = compare(_wide(actual[name]), _wide(value), metrics=[self.limit.metric])
            yield self._excess(found.metric(self.limit.metric))

    def _excess(self, found: float) -> tuple[float, float]:
        if self.limit is not None:
            return self.limit.excess(found), found
        limit = self._limit
        # a limit of 0 allows no error at all
        return (found / limit if limit else inf if found else 0.0), found

    @property
    def _limit(self) -> float:
        return self.limit.worst if self.limit else self.metric.limit if self.metric else 0.0

    def scale(self, reference: Array) -> float:
        """Return by how much an output's error is divided, so that errors of several can be added."""
        if self.limit is not None and self.limit.metric == "max_abs":
            return 1.0
        return float(np.linalg.norm(_wide(reference))) or 1.0

    def judged(self, excess: float, measured: float) -> tuple[bool, str]:
        """Return whether the goal is reached, and what was."""
        text = self.text(measured)
        return excess <= 1, text if excess <= 1 else f"the best reached is {text}"

    def text(self, measured: float) -> str:
        """Return what was measured, and the limit."""
        name = self.limit.metric if self.limit else self.metric.name if self.metric else ""
        what = _NAMES.get(name, name)
        if np.isnan(measured):
            return f"outputs that are not finite ({what}, limit {self._limit:g})"
        unit = " dB" if name in ("sqnr", "psnr") else ""
        return f"{what} {measured:.3g}{unit} (limit {self._limit:g})"


def require_finite(reference: Values) -> None:
    """Raise `FeedsError` if the original itself gives what is not finite."""
    for name, value in _floats(reference).items():
        # -Inf is what masks are made of, and is allowed
        if np.isnan(_wide(value)).any() or np.isposinf(_wide(value)).any():
            raise FeedsError(
                f"output {name!r} is not finite in float32 already, with these feeds",
                "find out why: onnxdbg bisect MODEL --find nan; or give other feeds",
            )


def _numbers(values: Values) -> dict[str, Array]:
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
    return wide(np.asarray(value))
