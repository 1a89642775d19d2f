"""Tell an error from rounding: by its size, its bias and how it follows the value, overall and by channel."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onnxsurgeon_lite.tensors.grid import Wide

_LIMITS = {"rms": 4.0, "mean": 8.0, "along": 8.0}  # standard deviations, known from few runs
_IN_CHANNEL = 16.0  # a channel has few elements, and there are many channels
_SLOPE = 1e-3  # a smaller share of the value is no fault
_FEW = 4  # elements of a channel that have no trend


@dataclass(frozen=True)
class Errors:
    """Measures of a tensor's errors: a number for the whole tensor, then one for each channel.

    Attributes:
        rms: the root of the mean square. mean: the bias. along: the part of the error that follows the value.
    """

    rms: Wide
    mean: Wide
    along: Wide

    @classmethod
    def of(cls, error: Wide, value: Wide, axis: int) -> "Errors":
        """Measure an error; channels lie along an axis."""
        whole = _measures(error.reshape(1, -1), value.reshape(1, -1))
        if not error.ndim:
            return cls(*whole)
        channels = error.shape[axis]
        parts = (np.moveaxis(a, axis, 0).reshape(channels, -1) for a in (error, value))
        return cls(*map(np.concatenate, zip(whole, _measures(*parts), strict=True)))

    def excess(
        self, noise: Sequence["Errors"], allowed: float, size: float, elements: int
    ) -> float:
        """Return how far the worst measure is above its limit; at most 1 for noise.

        Args:
            noise: measures of errors that rounding alone makes.
            allowed: an error that is none. size: the root mean square of the value. elements: how many it has.
        """
        worst = 0.0
        for name, limit in _LIMITS.items():
            own = np.abs(getattr(self, name))
            usual = _usual(np.array([getattr(n, name) for n in noise]))
            limits = np.full(own.shape, _IN_CHANNEL)
            limits[0] = limit + (elements**-0.5 * _IN_CHANNEL if elements else 0.0)
            least = allowed + _SLOPE * size * (name == "along")
            worst = max(worst, float((own / (limits * usual + least)).max(initial=0.0)))
        return worst


def _usual(noise: Wide) -> Wide:
    """Return the root mean square of each measure over the runs; of channels, half from all that rounding moves."""
    squares = np.mean(np.square(noise), axis=0)
    moved = squares[1:][squares[1:] > 0]  # others are cut off, but may lie at the border
    if moved.size:
        squares[1:] = (squares[1:] + np.median(moved)) / 2
    return np.asarray(np.sqrt(squares))


def _measures(error: Wide, value: Wide) -> tuple[Wide, Wide, Wide]:
    """Return root mean square, mean and the part that follows the value, of each row."""
    if not error.shape[1]:
        return np.zeros(len(error)), np.zeros(len(error)), np.zeros(len(error))
    centered = value - value.mean(1, keepdims=True)
    power = np.sqrt((centered * centered).sum(1))
    along = np.zeros(len(error))
    if error.shape[1] >= _FEW:
        follows = (error * centered).sum(1) / np.sqrt(error.shape[1])
        np.divide(follows, power, out=along, where=power > 0)
    return np.sqrt((error * error).mean(1)), error.mean(1), along
