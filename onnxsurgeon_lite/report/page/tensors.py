"""Tensors as a page shows them: small pictures, histograms, and the elements that differ most."""

import math
from base64 import b64encode

import numpy as np
from numpy.typing import NDArray

from onnxsurgeon_lite.report.page.data import Histogram, Picture, TensorPart, WorstElement
from onnxsurgeon_lite.tensors.comparison import Comparison, gap
from onnxsurgeon_lite.tensors.dtypes import RunValue, Shape, is_array, wide

_SIDE = 128  # pixels of a picture
_TILES = 16  # matrices that are shown side by side
_BINS = 40
_WORST = 10
_GAP = float(np.finfo(np.float64).min)  # marks what is between matrices

Numbers = NDArray[np.float64]


def tensor_part(
    node: int,
    name: str,
    actual: RunValue,
    reference: RunValue,
    compared: Comparison | None = None,
) -> TensorPart | None:
    """Return a value as pictures; None for what is empty, a sequence, or no numbers.

    Args:
        node: what makes it, in the first graph; -1 for an input.
    """
    # both pictures have one scale, so that they can be compared by eye
    sides = _numbers(actual), _numbers(reference)
    known = [side for side in sides if side is not None and side.size]
    if not known:
        return None
    low, high = _range(*known)
    error = None
    if len(known) == 2 and known[0].shape == known[1].shape:
        with np.errstate(invalid="ignore"):
            # equal infinities differ by nothing
            error = np.where(known[0] == known[1], 0.0, np.abs(known[0] - known[1]))
    dtype = getattr(reference if actual is None else actual, "dtype", "")
    pictures = [None if side is None else _picture(side, low, high) for side in sides]
    return TensorPart(
        graph=0,
        node=node,
        name=name,
        says=f"{dtype} {list(known[0].shape)}{_gap(error, compared)}",
        shown=_shown(known[0].shape),
        actual=pictures[0],
        reference=pictures[1],
        difference=None if error is None else _picture(error, 0.0, _range(error)[1], largest=True),
        histogram=_histogram(sides, low, high),
        worst=[] if error is None else _worst(error, *known),
    )


def _gap(error: Numbers | None, compared: Comparison | None) -> str:
    """Say how two tensors compare; what a quantized node makes is right for its scale, and far from the reference."""
    if compared is None:
        return ""
    off = 0.0 if error is None else _range(error)[1]
    if compared.match and off > compared.allowed:
        return f", off by up to {off:.4g}"
    notes = [] if compared.match else compared.notes
    return "; ".join([f", {gap(compared)}"] + notes)


def _numbers(value: RunValue) -> Numbers | None:
    if not is_array(value) or value.dtype.kind in "OUSc":
        return None
    return wide(value)


def _range(*arrays: Numbers) -> tuple[float, float]:
    """Return the smallest and the largest finite number."""
    finite = [array[np.isfinite(array)] for array in arrays]
    ends = [(float(part.min()), float(part.max())) for part in finite if part.size]
    return (min(low for low, _ in ends), max(high for _, high in ends)) if ends else (0.0, 0.0)


def _picture(array: Numbers, low: float, high: float, largest: bool = False) -> Picture:
    """Draw a tensor: 0 to 253 for its range, 254 for gaps, 255 for what is not finite."""
    plane = _plane(array, largest)
    # between matrices side by side
    is_gap = plane == _GAP
    is_finite = np.isfinite(plane)
    shares = (np.where(is_finite & ~is_gap, plane, low) - low) / ((high - low) or 1.0)
    pixels = (253 * shares.clip(0, 1)).round().astype(np.uint8)
    pixels[is_gap], pixels[~is_finite] = 254, 255
    return Picture(plane.shape[1], plane.shape[0], low, high, b64encode(pixels.tobytes()).decode())


def _plane(array: Numbers, largest: bool) -> Numbers:
    """Return a matrix that fits a picture: the first matrices side by side, each pooled; a vector in lines."""
    array = array.squeeze()
    if array.ndim < 2:
        lines = math.ceil(array.size / _SIDE)
        wide = math.ceil(array.size / lines)
        padding = (0, lines * wide - array.size)
        return np.pad(array.ravel(), padding, constant_values=_GAP).reshape(lines, wide)
    # all axes but the last two are one
    matrices = array.reshape(-1, *array.shape[-2:])[:_TILES]
    across = math.ceil(math.sqrt(len(matrices)))
    tiles = [_pooled(matrix, largest, _SIDE // across) for matrix in matrices]
    framed = [np.pad(tile, ((0, 1), (0, 1)), constant_values=_GAP) for tile in tiles]
    framed += [np.full_like(framed[0], _GAP)] * (-len(tiles) % across)
    rows = [np.hstack(framed[at : at + across]) for at in range(0, len(framed), across)]
    return np.vstack(rows)[:-1, :-1]


def _pooled(matrix: Numbers, largest: bool, side: int) -> Numbers:
    """Return a matrix of at most so many lines and columns: the mean of each block, or its largest."""
    for axis, size in enumerate(matrix.shape):
        if size > side:
            # `side` blocks of about the same size
            starts = np.arange(side) * size // side
            pool = np.maximum if largest else np.add
            matrix = pool.reduceat(matrix, starts, axis=axis)
            if not largest:
                counts = np.diff(starts, append=size)
                matrix = matrix / (counts if axis else counts[:, None])
    return matrix


def _shown(shape: Shape) -> str:
    """Say how a picture follows from a tensor."""
    sizes = [size for size in shape if size > 1]
    if len(sizes) < 2:
        return "a vector, in lines" if math.prod(shape) > _SIDE else ""
    count = math.prod(sizes[:-2])
    said = []
    if count > 1:
        said.append(
            f"{min(count, _TILES)} of {count} matrices" if count > _TILES else f"{count} matrices"
        )
    side = _SIDE // math.ceil(math.sqrt(min(count, _TILES)))
    if max(sizes[-2:]) > side:
        small = " x ".join(str(min(side, size)) for size in sizes[-2:])
        said.append(
            f"{' x '.join(map(str, sizes[-2:]))} drawn as {small}: means, of the difference the largest"
        )
    return ", ".join(said)


def _histogram(sides: tuple[Numbers | None, ...], low: float, high: float) -> Histogram | None:
    if low == high:
        return None
    edges = np.linspace(low, high, _BINS + 1)
    counts = [
        [] if side is None else np.histogram(side[np.isfinite(side)], edges)[0].tolist()
        for side in sides
    ]
    return Histogram(edges.tolist(), *counts)


def _worst(error: Numbers, actual: Numbers, reference: Numbers) -> list[WorstElement]:
    """Return the elements that differ most; one that is not finite on one side differs more than any."""
    sizes = np.where(np.isfinite(error), error, np.inf).ravel()
    count = min(_WORST, int(np.count_nonzero(sizes)))
    # the largest few without sorting all, then these in order
    first: list[int] = np.argpartition(-sizes, count - 1)[:count].tolist() if count else []
    places = sorted(first, key=lambda place: -sizes[place])
    return [
        WorstElement(
            list(map(int, np.unravel_index(place, error.shape))),
            float(actual.flat[place]),
            float(reference.flat[place]),
            float(error.flat[place]),
        )
        for place in places
    ]
