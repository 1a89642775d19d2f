"""A user's own metric: how far outputs are from their references, for each sample or for all of them."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import inf, isfinite, isnan
from typing import cast

from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.names import calling, function_at
from onnxsurgeon_lite.tensors.dtypes import RunValues

Values = RunValues
Pairs = Iterable[tuple[Values, Values]]
MetricFunction = (
    Callable[[Values, Values], float] | Callable[[Iterator[tuple[Values, Values]]], float]
)
"""(reference outputs, outputs) -> error; or with one parameter, an iterator of these of all samples -> error."""


@dataclass(frozen=True)
class Metric:
    """An error of outputs, the smaller the better, and the largest that is allowed.

    Attributes:
        whole: the function takes the pairs of all samples, as mAP does; otherwise those of one.
    """

    name: str
    function: Callable[..., object]
    limit: float = 0.0
    whole: bool = False

    @classmethod
    def of(cls, given: "str | MetricFunction", limit: float | None) -> "Metric":
        """Return the metric of a function, or of `FILE.py:function`.

        Raises:
            UsageError: there is no such function, it takes other arguments, or the limit is no number.
        """
        function = function_at(given, "metric") if isinstance(given, str) else given
        name = getattr(function, "__name__", "metric")
        if limit is not None and not (isfinite(limit) and limit >= 0):
            raise UsageError(f"{limit} is no limit", "write --tolerance 0.01")
        with calling(name):
            count = len(inspect.signature(function).parameters)
        if count not in (1, 2):
            raise UsageError(
                f"metric {name!r} takes {count} arguments",
                "write fn(reference, actual) for a sample, or fn(pairs) for all of them",
            )
        return cls(name, function, limit or 0.0, count == 1)

    def of_sample(self, reference: Values, actual: Values) -> float:
        """Return the error of one sample; of a metric of all, as if it were the only one."""
        given = (iter([(reference, actual)]),) if self.whole else (reference, actual)
        with calling(self.name):
            return _error(self.function(*given))

    def of_all(self, pairs: Pairs) -> float:
        """Return the error of all samples: what a metric of all says, else the largest of any."""
        if not self.whole:
            return max((self.of_sample(*pair) for pair in pairs), default=0.0)
        with calling(self.name):
            return _error(self.function(iter(pairs)))


def _error(found: object) -> float:
    """Return what a metric said as a number; NaN is as wrong as can be."""
    error = float(cast(float, found))
    return inf if isnan(error) else error
