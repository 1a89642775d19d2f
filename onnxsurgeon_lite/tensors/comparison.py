"""Two arrays side by side: tolerance, metrics, verdict."""

import functools
import math
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.shown import Shown
from onnxsurgeon_lite.tensors.dtypes import Array, as_array

_BLOCK = 1 << 13  # elements compared at a time: they stay in the cache, sums of them in a thread

_PIECE = 1 << 19  # bytes of each side that are compared at a time where they are read in pieces

SMALLEST_SCALE = 1e-6  # a tensor that is smaller everywhere is compared as if it were zero

_FAST: "dict[np.dtype[np.generic], np.finfo[Any]]" = {
    np.dtype(n): np.finfo(n) for n in ("float32", "float64", "complex64", "complex128")
}
_LOOSE = 1e30
_MASK, _GAP = 1e3, 1e-2  # a mask is at least _MASK, and no other element is above _GAP times it

Numbers = NDArray[np.inexact]


@dataclass(frozen=True)
class Tolerance:
    """`|actual - reference| <= atol + rtol * |reference|`.

    Attributes:
        atol: absolute, in the unit of the value.
        rtol: relative to the reference element.
        scaled: multiply `atol` by the largest magnitude of the reference, masks excluded, at least `SMALLEST_SCALE`:
            the rounding error of a sum follows its largest terms, not its result.

    Example:
        >>> print(osl.Tolerance(1e-5, 1e-3))
        atol=1e-05 + rtol=0.001 * |reference|
    """

    atol: float
    rtol: float
    scaled: bool = False

    def absolute(self, scale: float) -> float:
        """Return `atol` for a reference whose largest finite magnitude is `scale`."""
        return self.atol * max(SMALLEST_SCALE, scale) if self.scaled else self.atol

    def __str__(self) -> str:
        scale = " * max|reference|" if self.scaled else ""
        return f"atol={self.atol:g}{scale} + rtol={self.rtol:g} * |reference|"


EXACT = Tolerance(0.0, 0.0)

# The allowed difference of correct kernels after a chain of operators; integers, booleans and strings must be equal.
DEFAULTS: dict[str, Tolerance] = {
    "float64": Tolerance(1e-9, 1e-7, scaled=True),
    "float32": Tolerance(1e-5, 1e-4, scaled=True),
    "float16": Tolerance(1e-2, 1e-2, scaled=True),
    "bfloat16": Tolerance(5e-2, 5e-2, scaled=True),
    "complex64": Tolerance(1e-5, 1e-4, scaled=True),
    "complex128": Tolerance(1e-9, 1e-7, scaled=True),
    "float8_e4m3fn": Tolerance(0.125, 0.125, scaled=True),
    "float8_e4m3fnuz": Tolerance(0.125, 0.125, scaled=True),
    "float8_e5m2": Tolerance(0.25, 0.25, scaled=True),
    "float8_e5m2fnuz": Tolerance(0.25, 0.25, scaled=True),
    "float4_e2m1fn": Tolerance(0.5, 0.5, scaled=True),
}


@functools.cache
def default_tolerance(*dtypes: np.dtype[np.generic]) -> Tolerance:
    """Return the widest default tolerance of the dtypes: a result is as precise as its coarsest part."""
    return max((DEFAULTS.get(dtype.name, EXACT) for dtype in dtypes), key=lambda t: t.rtol)


Number = float | str
"""An element as text and JSON show it: complex numbers as text, integers exact."""


@dataclass(frozen=True)
class Worst:
    """The element that exceeds its tolerance most."""

    index: tuple[int, ...]
    actual: Number
    reference: Number
    difference: float
    allowed: float


@dataclass(repr=False)
class Comparison(Shown):
    """The result of comparing an actual tensor with its reference.

    Attributes:
        match: every element is within its tolerance, and non-finite elements are at the same positions.
        reason: of a mismatch: `shape`, `dtype`, `non-finite` or `values`; '' for a match.
        exceeding: the number of elements over their tolerance, of `elements`.
        allowed: the allowance of the element that exceeds its own most; in a match, of the one with the largest error.
        max_abs, max_rel, rmse: over the positions where both are finite.
        cosine: cosine similarity. sqnr_db: signal-to-quantization-noise ratio in decibels. NaN and -Inf where an
            element is finite on one side only.
        ulp: the largest distance in units in the last place of the actual dtype; None for dtypes without.
        nan, inf: (actual, reference) counts.
        non_finite: the first position where the two differ in a non-finite element.

    Example:
        >>> osl.compare(np.ones(3), np.zeros(3)).exceeding
        3
    """

    tolerance: Tolerance
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    dtypes: tuple[str, str]
    match: bool = False
    reason: str = ""
    elements: int = 0
    exceeding: int = 0
    allowed: float = 0.0
    max_abs: float = 0.0
    max_rel: float = 0.0
    rmse: float = 0.0
    cosine: float = 1.0
    sqnr_db: float = float("inf")
    ulp: int | None = None
    nan: tuple[int, int] = (0, 0)
    inf: tuple[int, int] = (0, 0)
    non_finite: tuple[int, ...] | None = None
    worst: Worst | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def share_over(self) -> float:
        """Return the share of the elements that exceed their tolerance, 0 to 1."""
        return self.exceeding / self.elements if self.elements else 0.0


def agrees(actual: Array, reference: Array, tolerance: Tolerance | None = None) -> bool:
    """Return the verdict alone, without metrics, as fast as possible."""
    if actual.shape != reference.shape:
        return False
    same_dtype = actual.dtype == reference.dtype
    if same_dtype and actual.dtype.kind != "O" and _same_bytes(actual, reference):
        return True
    if not same_dtype or actual.dtype not in _FAST:
        return compare(actual, reference, tolerance).match
    allowed = tolerance or default_tolerance(actual.dtype)
    atol = allowed.absolute(_scale(reference)) if allowed.scaled else allowed.atol
    sides = actual.reshape(-1), reference.reshape(-1), atol, allowed.rtol
    return _clearly_agrees(*sides) or not _any_exceeds(*sides)


class Readable(Protocol):
    """A tensor elsewhere, in another process or a file, whose elements lie there as in memory."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[np.generic]: ...

    def fill(self, start: int, target: memoryview) -> None:
        """Read the bytes from `start` on; raise `OSError` where there are too few."""


class Scratch(threading.local):
    """Memory to compare pieces in, of each thread: to get it anew each time costs more than the comparison."""

    def __init__(self) -> None:
        self.pieces = [np.empty(_PIECE, np.uint8) for _ in range(3)]


def surely_agrees(
    actual: Readable, reference: Readable, tolerance: Tolerance | None, scratch: Scratch
) -> bool:
    """Return True only if `agrees` does; read both tensors once, piece by piece, and keep neither."""
    if (actual.shape, actual.dtype) != (reference.shape, reference.dtype):
        return False
    dtype, size = actual.dtype, math.prod(actual.shape) * actual.dtype.itemsize
    allowed = tolerance or default_tolerance(dtype)
    top, excess = 0.0, -math.inf
    for start in range(0, size, _PIECE):
        raw = [piece[: size - start] for piece in scratch.pieces]
        actual.fill(start, raw[0].data)
        reference.fill(start, raw[1].data)
        words = [piece.view(f"u{math.gcd(dtype.itemsize, 8)}") for piece in raw]
        if (words[0] == words[1]).all():
            continue
        if dtype.kind != "f" or dtype not in _FAST or _is_loose(allowed.atol, allowed.rtol):
            return False
        x, y, error = (piece.view(dtype) for piece in raw)
        with np.errstate(all="ignore"):
            np.subtract(x, y, out=error)
            top, most = max(top, _reach(y)), _reach(error)
            if most >= _safe_atol(dtype, allowed.absolute(top), allowed.rtol):
                np.abs(y, out=y)
                y *= allowed.rtol * _safe(dtype)
                most = float(np.subtract(np.abs(error, out=error), y, out=error).max())
        if not (math.isfinite(most) and top < _MASK / 2):  # a mask elsewhere would be the scale
            return False
        excess = max(excess, most)
    return excess < _safe_atol(dtype, allowed.absolute(top), allowed.rtol)


def _reach(numbers: Array) -> float:
    """Return the largest magnitude; NaN if there is a NaN."""
    return max(float(numbers.max()), -float(numbers.min()))


def _any_exceeds(actual: Array, reference: Array, atol: float, rtol: float) -> bool:
    """Compare in float64, up to the first block with an element over its tolerance."""
    with np.errstate(all="ignore"):
        for _, x, y in _blocks(actual, reference):
            same = (x == y) | (np.isnan(x) & np.isnan(y))
            within = np.abs(x - y) <= atol + rtol * np.abs(y)
            finite = np.isfinite(x) & np.isfinite(y)
            if not np.where(finite, within, same).all():
                return True
    return False


def _clearly_agrees(actual: Array, reference: Array, atol: float, rtol: float) -> bool:
    """Compare in the dtype's own arithmetic, which is fast; return False where its rounding could decide."""
    if _is_loose(atol, rtol):
        return False
    atol, safe = _safe_atol(actual.dtype, atol, rtol), _safe(actual.dtype)
    with np.errstate(all="ignore"):
        for start in range(0, actual.size, _BLOCK):
            x, y = actual[start : start + _BLOCK], reference[start : start + _BLOCK]
            error = np.subtract(x, y)
            np.abs(error, out=error)
            # strictly below: an infinite error is not below an infinite tolerance
            if (error < atol).all():
                continue
            if not (error < atol + rtol * safe * np.abs(y)).all():
                return False
    return True


def _is_loose(atol: float, rtol: float) -> bool:
    """Return whether the tolerance itself could overflow."""
    return atol > _LOOSE or rtol > 0.5


def _safe(dtype: np.dtype[np.generic]) -> float:
    """Return a factor that makes up for roundings in a dtype's own arithmetic."""
    return 1 - 8 * float(_FAST[dtype].eps)


def _safe_atol(dtype: np.dtype[np.generic], atol: float, rtol: float) -> float:
    if dtype not in _FAST:
        return math.inf
    return (atol - 4 * float(_FAST[dtype].tiny) * bool(rtol)) * _safe(dtype)


def compare(actual: Array, reference: Array, tolerance: Tolerance | None = None) -> Comparison:
    """Compare shape, dtype, then values; different float dtypes are compared in the wider one, with a note.

    Args:
        actual: any array, or what numpy takes for one: a list, a PyTorch tensor.
        reference: the array to compare with.
        tolerance: None for the dtype's own.

    Raises:
        UsageError: what is given is no array; `compare_sets` takes several by name.

    Example:
        >>> found = osl.compare(np.float32([1, 2]), np.float32([1, 2.5]))
        >>> found.match, found.max_abs
        (False, 0.5)
    """
    if isinstance(actual, Mapping) or isinstance(reference, Mapping):
        raise UsageError("compare takes two arrays, not several by name", "call compare_sets")
    actual, reference = as_array(actual, "actual"), as_array(reference, "reference")
    allowed = tolerance or default_tolerance(actual.dtype, reference.dtype)
    result = Comparison(
        allowed, (actual.shape, reference.shape), (str(actual.dtype), str(reference.dtype))
    )
    result.elements = actual.size
    if actual.shape != reference.shape:
        result.reason = "shape"
        return result
    strings = [array.dtype.kind in "OUS" for array in (actual, reference)]
    if actual.dtype != reference.dtype and not all(strings):
        if not (_is_number(actual) and _is_number(reference)):
            result.reason = "dtype"
            return result
        result.notes.append(f"compared across dtypes: {actual.dtype} with {reference.dtype}")
    if all(strings):
        _compare_strings(actual, reference, result)
    else:
        _compare_numbers(actual, reference, result)
    return result


@dataclass(frozen=True)
class Distance:
    """How far two tensors are apart: what a `Comparison` says of that, without other metrics."""

    match: bool
    reason: str
    max_abs: float
    allowed: float


def distance(
    actual: Array, reference: Array, tolerance: Tolerance | None = None
) -> Distance | Comparison:
    """Return how far two tensors are apart, fast where both have finite floats of one dtype."""
    same = (actual.shape, actual.dtype) == (reference.shape, reference.dtype)
    if not same or not actual.size or actual.dtype not in _FAST or actual.dtype.kind == "c":
        return compare(actual, reference, tolerance)
    with np.errstate(all="ignore"):
        x, y = (side.reshape(-1).astype(np.float64) for side in (actual, reference))
        error, size = np.abs(x - y), np.abs(y)
        largest = int(error.argmax())
        if not math.isfinite(error[largest]):
            return compare(actual, reference, tolerance)
        allowed = tolerance or default_tolerance(actual.dtype)
        bounds = allowed.absolute(_scale(reference)) + allowed.rtol * size
        worst = int((error - bounds).argmax())
    match = bool(error[worst] <= bounds[worst])
    at = largest if match else worst
    return Distance(match, "" if match else "values", float(error[largest]), float(bounds[at]))


def _compare_strings(actual: Array, reference: Array, result: Comparison) -> None:
    different = np.asarray(
        [_text(a) != _text(b) for a, b in zip(actual.flat, reference.flat, strict=True)], dtype=bool
    )
    result.exceeding = int(different.sum())
    result.match = not result.exceeding
    if not result.match:
        result.reason = "values"
        first = int(different.argmax())
        index = tuple(map(int, np.unravel_index(first, actual.shape)))
        result.worst = Worst(
            index, _text(actual.flat[first]), _text(reference.flat[first]), 1.0, 0.0
        )


def _text(item: object) -> str:
    return item.decode(errors="replace") if isinstance(item, bytes) else str(item)


@dataclass
class _Sums:
    """The sums behind the metrics, added up block by block."""

    error: float = 0.0
    actual: float = 0.0
    reference: float = 0.0
    product: float = 0.0
    finite: int = 0
    worst_excess: float = -np.inf
    worst_at: int = -1
    largest_size: float = 0.0
    first_non_finite: int = -1
    counts: list[int] = field(default_factory=lambda: [0, 0, 0, 0])


def _compare_numbers(actual: Array, reference: Array, result: Comparison) -> None:
    atol = result.tolerance.absolute(_scale(reference))
    sums = _Sums()
    with np.errstate(all="ignore"):
        for start, x, y in _blocks(actual, reference):
            _add_block(sums, start, x, y, atol, result)
    if actual.dtype.kind in "iu" and reference.dtype.kind in "iu":
        _count_exactly(actual, reference, sums, result)
    result.nan = (sums.counts[0], sums.counts[1])
    result.inf = (sums.counts[2], sums.counts[3])
    _finish(sums, result)
    result.ulp = _ulp(actual, reference, sums.finite == actual.size)
    if sums.first_non_finite >= 0:
        result.non_finite = _index(sums.first_non_finite, actual.shape)
        result.cosine, result.sqnr_db = math.nan, -math.inf  # whatever the other elements say
    result.match = not result.exceeding
    if result.match:
        result.allowed = atol + result.tolerance.rtol * sums.largest_size
        return
    result.reason = "non-finite" if result.non_finite is not None else "values"
    if sums.worst_excess > 0:
        a, r = actual.reshape(-1)[sums.worst_at], reference.reshape(-1)[sums.worst_at]
        size, difference = abs(_wide(r)), abs(_wide(a) - _wide(r))
        allowed = atol + result.tolerance.rtol * size
        index = _index(sums.worst_at, actual.shape)
        result.worst = Worst(index, _shown(a), _shown(r), float(difference), float(allowed))
        result.allowed = result.worst.allowed
        result.max_abs = max(result.max_abs, float(difference))


def _wide(element: np.generic) -> int | float | complex:
    if element.dtype.kind == "c":
        return complex(element)
    return int(element) if element.dtype.kind in "iu" else float(element)


def _shown(element: np.generic) -> Number:
    wide = _wide(element)
    return str(wide) if isinstance(wide, complex) else wide


def _add_block(
    sums: _Sums, start: int, x: Numbers, y: Numbers, atol: float, result: Comparison
) -> None:
    squares = [float(np.vdot(side, side).real) for side in (x, y)]
    count = x.size
    if not math.isfinite(sum(squares)):
        finite = np.isfinite(x) & np.isfinite(y)
        count = int(finite.sum())
        for slot, hits in enumerate((np.isnan(x), np.isnan(y), np.isinf(x), np.isinf(y))):
            sums.counts[slot] += int(hits.sum())
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        bad = ~finite & ~same
        result.exceeding += int(bad.sum())
        if bad.any() and sums.first_non_finite < 0:
            sums.first_non_finite = start + int(bad.argmax())
        x, y = np.where(finite, x, 0.0), np.where(finite, y, 0.0)
        squares = [float(np.vdot(side, side).real) for side in (x, y)]
    error, size = np.abs(x - y), np.abs(y)
    excess = size * result.tolerance.rtol
    excess += atol
    np.subtract(error, excess, out=excess)
    top = int(excess.argmax())
    if excess[top] > 0:
        result.exceeding += int((excess > 0).sum())
    if excess[top] > sums.worst_excess:
        sums.worst_excess, sums.worst_at = float(excess[top]), start + top
    largest = int(error.argmax())
    if not start or error[largest] > result.max_abs:
        result.max_abs, sums.largest_size = float(error[largest]), float(size[largest])
    if error[largest]:
        relative = np.divide(error, size, out=np.zeros_like(error), where=size > 0)
        result.max_rel = max(result.max_rel, float(relative.max()))
    sums.finite += count
    sums.error += float(error @ error)
    sums.actual += squares[0]
    sums.reference += squares[1]
    sums.product += float(np.vdot(x, y).real)


def _count_exactly(actual: Array, reference: Array, sums: _Sums, result: Comparison) -> None:
    """Count integers above 2**53 that differ although their nearest float64 are equal."""
    different = np.flatnonzero(actual.reshape(-1) != reference.reshape(-1))
    if different.size and result.tolerance == EXACT:
        result.exceeding = int(different.size)
        if not result.max_abs:
            sums.worst_at, sums.worst_excess = int(different[0]), 1.0


def _finish(sums: _Sums, result: Comparison) -> None:
    if sums.finite:
        result.rmse = float(np.sqrt(sums.error / sums.finite))
    norm = math.sqrt(sums.actual) * math.sqrt(sums.reference)
    cosine = sums.product / norm if norm else float(sums.actual == sums.reference)
    result.cosine = min(1.0, max(-1.0, cosine)) if math.isfinite(cosine) else math.nan
    if sums.error:
        ratio = sums.reference / sums.error
        result.sqnr_db = 10 * math.log10(ratio) if ratio else -math.inf


def _blocks(actual: Array, reference: Array) -> Iterator[tuple[int, Numbers, Numbers]]:
    a, r = actual.reshape(-1), reference.reshape(-1)
    complex_numbers = "c" in actual.dtype.kind + reference.dtype.kind
    wide = np.dtype[np.inexact](np.complex128 if complex_numbers else np.float64)
    for start in range(0, a.size, _BLOCK):
        stop = start + _BLOCK
        yield start, a[start:stop].astype(wide), r[start:stop].astype(wide)


def _ulp(actual: Array, reference: Array, all_finite: bool) -> int | None:
    """Return the largest distance in representable numbers: adjacent floats are adjacent integers, sign folded."""
    integers = {2: np.int16, 4: np.int32, 8: np.int64}.get(actual.dtype.itemsize)
    if actual.dtype != reference.dtype or integers is None or not _is_float(actual):
        return None
    a, r = actual.reshape(-1), reference.reshape(-1)
    most = 0
    for start in range(0, a.size, _BLOCK):
        x, y = a[start : start + _BLOCK], r[start : start + _BLOCK]
        bits = x.view(integers), y.view(integers)
        if all_finite and (bits[0] ^ bits[1]).min() >= 0:  # of one sign: the bits are the line
            apart = bits[0] - bits[1]
            most = max(most, int(apart.max()), -int(apart.min()))
            continue
        finite = np.isfinite(x) & np.isfinite(y)
        lines = [_number_line(part[finite].view(integers)) for part in (x, y)]
        if lines[0].size:
            low, high = np.minimum(*lines), np.maximum(*lines)
            most = max(most, int((high.astype(np.uint64) - low.astype(np.uint64)).max()))
    return most


def _number_line(bits: NDArray[np.signedinteger]) -> Array:
    wide = bits.astype(np.int64)
    lowest = -1 << 8 * bits.itemsize - 1
    return np.where(wide < 0, lowest - wide, wide)


def _scale(reference: Array) -> float:
    """Return the largest finite magnitude, masks excluded.

    A mask (-1e4, -1e9, the lowest number of the dtype) is a few equal magnitudes far above all others; measured
    against it, any difference between the others would look small.
    """
    top = _largest(reference)
    if top < _MASK:
        return top
    flat = reference.reshape(-1)
    magnitudes = np.abs(flat if flat.dtype.kind == "c" else flat.astype(np.float64))
    high = magnitudes >= top * _GAP
    masks = magnitudes[high & np.isfinite(magnitudes)]
    if high.all() or masks.size < 2 or masks.min() < 0.9 * top:
        return top
    return float(magnitudes[~high].max(initial=0.0, where=np.isfinite(magnitudes[~high])))


def _largest(reference: Array) -> float:
    top = 0.0
    flat = reference.reshape(-1)
    with np.errstate(all="ignore"):
        for start in range(0, flat.size, _BLOCK):
            block = flat[start : start + _BLOCK]
            block = np.abs(block) if block.dtype.kind == "c" else block
            high, low = float(block.max()), float(block.min())
            if not (math.isfinite(high) and math.isfinite(low)):
                numbers = block.astype(np.float64)
                finite = numbers[np.isfinite(numbers)]
                high, low = (
                    (float(finite.max()), float(finite.min())) if finite.size else (0.0, 0.0)
                )
            top = max(top, high, -low)
    return top


def _same_bytes(actual: Array, reference: Array) -> bool:
    a, r = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (actual, reference))
    return bool(np.array_equal(a, r))


def _is_float(array: Array) -> bool:
    return array.dtype.kind == "f" or array.dtype.name in DEFAULTS and array.dtype.kind not in "c"


def _is_number(array: Array) -> bool:
    return array.dtype.kind in "fiubc" or "int" in array.dtype.name or "float" in array.dtype.name


def _index(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(int, np.unravel_index(flat, shape)))
