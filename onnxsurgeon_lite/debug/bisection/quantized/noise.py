"""Tell an error from rounding: by its size, its bias and its slope, in the whole tensor and in each channel."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from onnxsurgeon_lite.tensors.grid import Wide

_LIMITS = {"rms": 4.0, "mean": 6.0, "slope": 6.0}
_IN_CHANNEL = 12.0  # a channel has few elements, and there are many channels
_SLOPE = 1e-3  # a smaller slope is no fault
_FEW = 4  # elements of a channel that have no slope of their own


@dataclass(frozen=True)
class Errors:
    """Measures of a tensor's errors: a number for the whole tensor, then one for each channel.

    Attributes:
        rms: the root of the mean square. mean: the bias. slope: the error as a share of the value.
    """

    rms: Wide
    mean: Wide
    slope: Wide

    @classmethod
    def of(cls, error: Wide, value: Wide, axis: int) -> "Errors":
        """Measure an error; channels lie along an axis."""
        whole = _measures(error.reshape(1, -1), value.reshape(1, -1))
        if not error.ndim:
            return cls(*whole)
        channels = error.shape[axis]
        parts = (np.moveaxis(a, axis, 0).reshape(channels, -1) for a in (error, value))
        return cls(*map(np.concatenate, zip(whole, _measures(*parts), strict=True)))

    def excess(self, noise: Iterable["Errors"], allowed: float, size: float) -> float:
        """Return how far the worst measure is above its limit; at most 1 for noise.

        Args:
            noise: measures of errors that rounding alone makes.
            allowed: an error that is none. size: the root mean square of the value.
        """
        noise = list(noise)
        worst = 0.0
        for name, limit in _LIMITS.items():
            own = np.abs(getattr(self, name))
            usual = np.sqrt(np.mean([np.square(getattr(n, name)) for n in noise], axis=0))
            limits = np.full(own.shape, _IN_CHANNEL)
            limits[0] = limit
            least = _SLOPE + allowed / size if name == "slope" and size else allowed
            worst = max(worst, float((own / (limits * usual + least)).max(initial=0.0)))
        return worst


def _measures(error: Wide, value: Wide) -> tuple[Wide, Wide, Wide]:
    """Return root mean square, mean and slope of each row."""
    if not error.shape[1]:
        return np.zeros(len(error)), np.zeros(len(error)), np.zeros(len(error))
    centered = value - value.mean(1, keepdims=True)
    power = (centered * centered).sum(1)
    slope = np.zeros(len(error))
    if error.shape[1] >= _FEW:
        np.divide((error * centered).sum(1), power, out=slope, where=power > 0)
    return np.sqrt((error * error).mean(1)), error.mean(1), slope
