"""Tell an error from rounding: by its size, its bias, how it follows the value and what other zero points would do."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onnxsurgeon_lite.tensors.dtypes import Wide

# Limits, in standard deviations of what the same measure gives for rounding alone.
_RMS, _MEAN, _ALONG = 4.0, 8.0, 8.0  # standard deviations, known from few runs
_IN_CHANNEL = 16.0  # a channel has few elements, and there are many channels
_SLOPE = 1e-3  # a smaller share of the value is no fault
_FEW = 4  # elements of a channel that have no trend


@dataclass(frozen=True)
class Errors:
    """Measures of a tensor's errors: a number for the whole tensor, then one for each channel.

    Attributes:
        rms: the root of the mean square. mean: the bias. along: the part of the error that follows the value.
        shifts: the parts that follow given changes of the value.
    """

    rms: Wide
    mean: Wide
    along: Wide
    shifts: tuple[Wide, ...] = ()

    @classmethod
    def of(cls, error: Wide, value: Wide, axis: int, shifts: Sequence[Wide] = ()) -> "Errors":
        """Measure an error; channels lie along an axis, or along the last one of a value without it."""
        # first a row of all elements, then a row for each channel: a fault in one channel is lost in the whole
        given = (error, value, *shifts)
        found = _measures(*(array.reshape(1, -1) for array in given))
        if error.ndim and error.size:
            last = min(axis, error.ndim - 1)
            channels = error.shape[last]
            parts = (np.moveaxis(array, last, 0).reshape(channels, -1) for array in given)
            found = list(map(np.concatenate, zip(found, _measures(*parts), strict=True)))
        rms, mean, along, *others = found
        return cls(rms, mean, along, tuple(others))

    def excess(
        self, noise: Sequence["Errors"], allowed: float, size: float, elements: int
    ) -> float:
        """Return how far the worst measure is above its limit; at most 1 for noise.

        Args:
            noise: measures of errors that rounding alone makes.
            allowed: an error that is none. size: the root mean square of the value. elements: how many it has.
        """
        worst = 0.0
        # `own` and each of `others` hold one measure: [whole, channel 0, channel 1, ...]
        measured = zip(self._all(), *(n._all() for n in noise), strict=True)
        for number, (own, *others) in enumerate(measured):
            limits = np.full(own.shape, _IN_CHANNEL)
            limit = (_RMS, _MEAN, _ALONG)[min(number, 2)]
            # a small tensor has few elements to take the mean of, so the whole gets more room
            limits[0] = limit + (elements**-0.5 * _IN_CHANNEL if elements and number < 3 else 0.0)
            # index 2 is `along`: an error that follows the value by a tiny share is no fault
            least = allowed + _SLOPE * size * (number == 2)
            own, bound = np.abs(own), limits * _usual(np.array(others)) + least
            over = np.divide(own, bound, out=np.where(own > 0, np.inf, 0.0), where=bound > 0)
            worst = max(worst, float(over.max(initial=0.0)))
        return worst

    def _all(self) -> tuple[Wide, ...]:
        return (self.rms, self.mean, self.along) + self.shifts


def _usual(noise: Wide) -> Wide:
    """Return the root mean square of each measure over the runs; of channels, half from all that rounding moves."""
    squares = np.mean(np.square(noise), axis=0)
    # A channel that rounding happens not to move (all its elements are cut off at the end of the range) would allow no
    # error at all: mix each with the median of those that move.
    moved = squares[1:][squares[1:] > 0]  # others are cut off, but may lie at the border
    if moved.size:
        squares[1:] = (squares[1:] + np.median(moved)) / 2
    return np.asarray(np.sqrt(squares))


def _measures(error: Wide, value: Wide, *shifts: Wide) -> list[Wide]:
    """Return root mean square, mean, and the parts that follow the value and each shift, of each row."""
    if not error.shape[1]:
        return [np.zeros(len(error))] * (3 + len(shifts))
    centered = value - value.mean(1, keepdims=True)
    along = [_along(error, direction) for direction in (centered,) + shifts]
    return [np.sqrt((error * error).mean(1)), error.mean(1)] + along


def _along(error: Wide, direction: Wide) -> Wide:
    """Return the part of each row's error in a direction; 0 for short rows, which have no trend."""
    found = np.zeros(len(error))
    if error.shape[1] >= _FEW:
        # the length of the projection of the error on the direction, as a root mean square
        power = np.sqrt((direction * direction).sum(1))
        follows = (error * direction).sum(1) / np.sqrt(error.shape[1])
        np.divide(follows, power, out=found, where=power > 0)
    return found
