"""What tensors hold, in a few numbers: their range, what is odd in them, and how their numbers are distributed."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from onnxsurgeon_lite.shown import Shown
from onnxsurgeon_lite.tensors.comparison import largest_of
from onnxsurgeon_lite.tensors.dtypes import (
    Array,
    RunValue,
    Shape,
    data_type_of_numpy,
    dtype_name,
    is_array,
    wide,
)

_BINS = 32
_QUANTILES = (0.5, 0.9, 0.99, 0.999)
_OUTLYING = 6  # standard deviations from the mean
_LARGEST = 3

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Statistics:
    """Statistics of a tensor; min, max and mean are over its finite elements, None without any."""

    name: str
    dtype: str
    shape: Shape
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    nan: int = 0
    inf: int = 0


@dataclass(frozen=True)
class Element:
    """One element of a tensor."""

    index: Shape
    value: float


@dataclass(frozen=True)
class Distribution(Statistics):
    """How a tensor's finite elements are distributed.

    Attributes:
        std: standard deviation.
        zeros: elements that are 0.
        quantiles: share of the elements -> the absolute value that they do not exceed.
        outliers: elements more than 6 standard deviations away from the mean.
        largest: the elements of the largest absolute values.
        counts: elements in 32 bins of equal width between min and max.
    """

    std: float | None = None
    zeros: int = 0
    quantiles: dict[str, float] = field(default_factory=dict)
    outliers: int = 0
    largest: tuple[Element, ...] = ()
    counts: Shape = ()


class Distributions(Shown, list[Distribution]):
    """The distributions of several tensors."""

    def contract(self) -> object:
        """Return a plain list."""
        return list(self)


def statistics(name: str, value: RunValue) -> list[Statistics]:
    """Return a value's statistics; for a sequence, those of each of its tensors."""
    return [_range(part, array) for part, array in _tensors(name, value)]


def distributions(name: str, value: RunValue) -> list[Distribution]:
    """Return how a value's numbers are distributed; for a sequence, those of each of its tensors."""
    return [_distribution(part, array) for part, array in _tensors(name, value)]


def magnitude(value: object) -> float:
    """Return the largest finite magnitude of a tensor of real numbers; 0.0 where there is none."""
    if not is_array(value) or value.dtype.kind in "OUSc":
        return 0.0
    return largest_of(value)


def _tensors(name: str, value: RunValue) -> Iterator[tuple[str, Array | None]]:
    if isinstance(value, list):
        for number, part in enumerate(value):
            yield from _tensors(f"{name}[{number}]", part)
    else:
        yield name, value


def _range(name: str, array: Array | None) -> Statistics:
    if array is None:
        return Statistics(name, "none", ())
    dtype = dtype_name(data_type_of_numpy(array.dtype))
    if array.dtype.kind in "OUSc" or not array.size:
        return Statistics(name, dtype, array.shape)  # text and complex numbers have no range
    numbers = wide(array)
    finite = numbers[np.isfinite(numbers)]
    nan, inf = int(np.isnan(numbers).sum()), int(np.isinf(numbers).sum())
    if not finite.size:
        return Statistics(name, dtype, array.shape, nan=nan, inf=inf)
    low, high, mean = float(finite.min()), float(finite.max()), float(finite.mean())
    return Statistics(name, dtype, array.shape, low, high, mean, nan, inf)


def _distribution(name: str, array: Array | None) -> Distribution:
    known = _range(name, array)
    if array is None or known.min is None:
        return Distribution(**vars(known))
    numbers = wide(array)
    finite = numbers[np.isfinite(numbers)]
    sizes = np.abs(finite)
    largest = float(sizes.max()) or 1.0
    scaled = finite / largest  # so that no square overflows
    std = float(scaled.std())
    quantiles = np.quantile(sizes, _QUANTILES).tolist()
    return Distribution(
        **vars(known),
        std=std * largest,
        zeros=int((finite == 0).sum()),
        quantiles=dict(zip(map(str, _QUANTILES), quantiles, strict=True)),
        outliers=int((np.abs(scaled - scaled.mean()) > _OUTLYING * std).sum()),
        largest=tuple(_largest(numbers)),
        counts=_counts(scaled),
    )


def _largest(numbers: Floats) -> Iterator[Element]:
    sizes = np.where(np.isfinite(numbers), np.abs(numbers), -1)  # largest first; each is taken out
    for _ in range(min(_LARGEST, int((sizes >= 0).sum()))):
        index = np.unravel_index(sizes.argmax(), sizes.shape)
        yield Element(tuple(map(int, index)), float(numbers[index]))
        sizes[index] = -1


def _counts(numbers: Floats) -> Shape:
    """Count by hand: `np.histogram` refuses numbers that lie too close together for its bins."""
    low, high = numbers.min(), numbers.max()
    # all equal: one bin
    places = (numbers - low) * (_BINS / (high - low)) if high > low else np.zeros(numbers.size)
    bins = places.astype(np.int64).clip(max=_BINS - 1)
    return tuple(np.bincount(bins, minlength=_BINS).tolist())
