"""The numbers that a quantized tensor can hold, and other numbers seen through them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onnxsurgeon_lite.tensors.dtypes import Array, Shape, Wide, rms, wide

_SURE = 6.0  # standard deviations of a mean


@dataclass(frozen=True)
class Grid:
    """The numbers `(integer - zero) * scale`, with integers from `low` to `high`.

    Attributes:
        scale, zero: for the whole tensor, for each channel of `axis`, or for each block of `block` elements on it.

    Example:
        >>> grid = Grid(np.array(0.5), np.array(0.0), -128, 127)
        >>> grid.rounded(np.array([0.7, 90.0])).tolist()
        [0.5, 63.5]
    """

    scale: Wide
    zero: Wide
    low: int
    high: int
    axis: int = 1
    block: int = 0

    def fits(self, shape: Shape) -> bool:
        """Return whether a tensor of this shape can be quantized so."""
        if not self.scale.ndim:
            return True
        axis = self.axis + len(shape) * (self.axis < 0)
        if self.block:
            # a scale for each block: as many axes as the tensor
            return self.scale.ndim == len(shape)
        return 0 <= axis < len(shape) and self.scale.shape == (shape[axis],)

    def quantum(self, shape: Shape) -> Wide:
        """Return the distance of two neighbors, for each element of a tensor (broadcast)."""
        return self._spread(self.scale, shape)

    def origin(self, shape: Shape) -> Wide:
        """Return the integer of the number 0, for each element of a tensor (broadcast)."""
        return self._spread(self.zero, shape)

    def range(self, shape: Shape) -> tuple[Wide, Wide]:
        """Return the smallest and the largest number, for each element of a tensor (broadcast)."""
        scale, zero = self.quantum(shape), self.origin(shape)
        return (self.low - zero) * scale, (self.high - zero) * scale

    def clipped(self, array: Array) -> Wide:
        """Return the numbers with those out of range at its ends."""
        return np.clip(wide(array), *self.range(array.shape))

    def rounded(self, array: Array) -> Wide:
        """Return the nearest numbers of the grid: what a QuantizeLinear and a DequantizeLinear make."""
        return self.numbers(self.integers(array))

    def holds(self, array: Array) -> bool:
        """Return whether a tensor is what a quantizer makes, and not all 0."""
        if not self.fits(array.shape) or not array.any():
            return False
        return bool(np.allclose(self.rounded(array), array, rtol=1e-6, atol=0))

    def integers(self, array: Array) -> Wide:
        """Return what a QuantizeLinear makes."""
        with np.errstate(all="ignore"):
            steps = np.rint(wide(array) / self.quantum(array.shape))
            return np.clip(steps + self.origin(array.shape), self.low, self.high)

    def numbers(self, integers: Array) -> Wide:
        """Return what a DequantizeLinear makes."""
        return (wide(integers) - self.origin(integers.shape)) * self.quantum(integers.shape)

    def outside(self, array: Array) -> NDArray[np.bool_]:
        """Return a mask of the numbers that are more than half a quantum out of range."""
        quantum = self.quantum(array.shape)
        low, high = self.range(array.shape)
        numbers = wide(array)
        # half a quantum is rounding, and a little for float32
        return np.asarray((numbers < low - 0.501 * quantum) | (numbers > high + 0.501 * quantum))

    def _spread(self, parameter: Wide, shape: Shape) -> Wide:
        if not parameter.ndim or not parameter.size:
            return parameter
        axis = self.axis + len(shape) * (self.axis < 0)
        if self.block:
            repeated = np.repeat(parameter, self.block, axis).swapaxes(axis, -1)
            # the last block may be shorter
            return repeated[..., : shape[axis]].swapaxes(axis, -1)
        return parameter.reshape([-1 if number == axis else 1 for number in range(len(shape))])


def is_biased(steps: Wide) -> bool:
    """Return whether differences have a mean that rounding does not make."""
    if not steps.size:
        return False
    # the mean of n differences has a deviation of rms / sqrt(n)
    return bool(abs(steps.mean()) > _SURE * rms(steps) / steps.size**0.5)
