"""Compare two arrays: what they may differ by (`Tolerance`), and what was found (`Comparison`).

`compare` measures everything; `agrees` returns only the verdict, and `surely_agrees` reads tensors that lie elsewhere.
"""

import functools
import math
import os
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Protocol

import numpy as np

from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.names import few
from onnxsurgeon_lite.shown import Shown, hidden
from onnxsurgeon_lite.tensors.dtypes import Array, DType, Shape, as_array, is_array, is_float, wide
from onnxsurgeon_lite.tensors.in_file import InFile, Rows, whole
from onnxsurgeon_lite.tensors.metrics import METRICS, SHOWN, Block, Limit, Numbers, number_text

_BLOCK = (
    1 << 13
)  # elements compared at a time: they stay in the cache, and numpy sums them in one thread
_PIECE = 1 << 19  # bytes of each side that are compared at a time where they are read in pieces

_FAST: "dict[DType, np.finfo[Any]]" = {
    np.dtype(n): np.finfo(n) for n in ("float32", "float64", "complex64", "complex128")
}
_LOOSE = 1e30  # above it, products of tolerances may overflow in float32
_MASK, _GAP = 1e3, 1e-2  # a mask is at least _MASK, and no other element is above _GAP times it
_COLUMNS = 256  # the most columns of an output that mixes units: detectors have fewer, hidden states have more
_UNITS = 10.0  # the least ratio between columns of two units
_FILLED = (
    4  # the fewest elements of a column that are not zero: with fewer it may be small by chance
)

KINDS = ("atol", "rtol", "ulp", "allow")
SMALLEST_SCALE = 1e-6  # a tensor that is smaller everywhere is compared as if it were zero


@dataclass(frozen=True)
class Tolerance:
    """`|actual - reference| <= atol + rtol * |reference|`.

    Attributes:
        atol: absolute, in the unit of the value.
        rtol: relative to the reference element.
        scaled: multiply `atol` by the largest magnitude of the reference, masks excluded, at least `SMALLEST_SCALE`:
            the rounding error of a sum follows its largest terms, not its result.
        ulp: elements may also be so many units in the last place apart.
        allow: the share of elements that may be off by more, 0 to 1.
        limit: a metric that decides instead.
        own: use `atol`, `rtol` and `scaled` of the compared dtypes (`DEFAULTS`) instead of those here.
        columns: where the columns of the last axis differ by orders of magnitude, `atol` is scaled for each column.
        named: (name or glob, tolerance) of tensors that have their own; the first that fits counts.

    Example:
        >>> print(osl.Tolerance(1e-5, 1e-3))
        atol=1e-05 + rtol=0.001 * |reference|
    """

    atol: float = 0.0
    rtol: float = 0.0
    scaled: bool = False
    ulp: int = 0
    allow: float = 0.0
    limit: Limit | None = None
    own: bool = hidden(False)
    columns: bool = hidden(False)
    named: "tuple[tuple[str, Tolerance], ...]" = hidden(())

    def of(self, name: str) -> "Tolerance":
        """Return the tolerance of the tensor with this name."""
        # an exact name, although it may look like a glob
        fits = (each for glob, each in self.named if name == glob or fnmatchcase(name, glob))
        return next(fits, self)

    def resolved(self, *dtypes: DType) -> "Tolerance":
        """Return the tolerance with the numbers for these dtypes filled in, if it has none of its own."""
        if not self.own:
            return self
        usual = default_tolerance(*dtypes)  # of several dtypes, the coarsest decides
        return replace(self, atol=usual.atol, rtol=usual.rtol, scaled=usual.scaled, own=False)

    @property
    def plain(self) -> bool:
        """Whether each element is judged alone, by `atol` and `rtol`."""
        return not (self.ulp or self.allow or self.limit or self.columns)

    def absolute(self, scale: float) -> float:
        """Return `atol` for a reference whose largest finite magnitude is `scale`."""
        return self.atol * max(SMALLEST_SCALE, scale) if self.scaled else self.atol

    def __str__(self) -> str:
        scale = " * max|reference|" if self.scaled else ""
        text = f"atol={self.atol:g}{scale} + rtol={self.rtol:g} * |reference|"
        text += f", or {self.ulp} ULP" if self.ulp else ""
        return text + (f", in all but {100 * self.allow:g}%" if self.allow else "")


EXACT = Tolerance()

OWN = Tolerance(own=True, columns=True)
"""The default tolerance of an output: that of its dtype, for each column where they mix units."""

# The allowed difference of correct kernels after a chain of operators; integers, booleans and strings must be equal.
DEFAULTS = {
    name: Tolerance(atol, rtol, scaled=True)
    for name, atol, rtol in (
        ("float64", 1e-9, 1e-7),
        ("float32", 1e-5, 1e-4),
        ("float16", 1e-2, 1e-2),
        ("bfloat16", 5e-2, 5e-2),
        ("complex64", 1e-5, 1e-4),
        ("complex128", 1e-9, 1e-7),
        ("float8_e4m3fn", 0.125, 0.125),
        ("float8_e4m3fnuz", 0.125, 0.125),
        ("float8_e5m2", 0.25, 0.25),
        ("float8_e5m2fnuz", 0.25, 0.25),
        ("float4_e2m1fn", 0.5, 0.5),
    )
}


@functools.cache
def default_tolerance(*dtypes: DType) -> Tolerance:
    """Return the widest default tolerance of the dtypes: a result is as precise as its coarsest part."""
    return max((DEFAULTS.get(dtype.name, EXACT) for dtype in dtypes), key=lambda t: t.rtol)


def tolerance_of(
    said: Mapping[str, Mapping[str, float | str]], limit: Limit | None
) -> Tolerance | None:
    """Return the tolerance that a user gave; None if none was given.

    Args:
        said: name or glob (`*` for all) -> `rtol`, `atol`, `ulp`, `allow`; of `rtol` and `atol` the one left out is 0.
        limit: decides for all that have no numbers of their own.

    Raises:
        UsageError: a number is negative or no number.
    """
    made = {}
    for glob, given in said.items():
        # in the order of `KINDS`
        atol, rtol, ulp, allow = (_number(kind, given.get(kind, 0)) for kind in KINDS)
        # with nothing but `allow`, the numbers are those of the dtypes
        made[glob] = Tolerance(atol, rtol, ulp=int(ulp), allow=allow, own=given.keys() <= {"allow"})
    rest = made.pop("*", OWN)  # `*`, or the default for all that are not named
    return replace(rest, limit=limit, named=tuple(made.items())) if said or limit else None


def _number(kind: str, given: float | str) -> float:
    """Return a number of a tolerance; a share may be written as `0.1%`."""
    text = str(given).strip()
    try:
        found = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        found = -1.0  # fails the test below
    if not 0 <= found < (1 if kind == "allow" else math.inf) or isinstance(given, bool):
        example = {"allow": "0.1%", "ulp": "4"}.get(kind, "1e-3")
        raise UsageError(
            f"{kind} of a tolerance is no number, 0 or more: {given!r:.40}",
            f"write --{kind} {example} or NAME:{example}",
        )
    return found


def require_used(tolerance: Tolerance | None, names: Collection[str]) -> None:
    """Raise `UsageError` if a tolerance fits none of the tensors that were compared: its name is misspelled."""
    for glob, _ in () if tolerance is None else tolerance.named:
        if not any(name == glob or fnmatchcase(name, glob) for name in names):
            raise UsageError(
                f"no tensor is called {glob!r}, as a tolerance says",
                f"compared were {few(list(names))}",
            )


Number = float | str
"""An element as text and JSON show it: complex numbers as text, integers exact."""


@dataclass(frozen=True)
class Worst:
    """The element that exceeds its tolerance most."""

    index: Shape
    actual: Number
    reference: Number
    difference: float
    allowed: float


@dataclass
class Comparison(Shown):
    """The result of comparing an actual tensor with its reference.

    Attributes:
        match: every element is within its tolerance, and non-finite elements are at the same positions.
        reason: of a mismatch: `shape`, `dtype`, `non-finite`, `values` or `metric`; '' for a match.
        exceeding: the number of elements over their tolerance, of `elements`.
        allowed: the allowance of the element that exceeds its own most; in a match, of the one with the largest error.
        max_abs: over the positions where both are finite.
        metrics: name in `METRICS` -> what it says of these positions. Of tensors where an element is finite on one
            side only, cosine is NaN and a signal to noise -Inf; ULP is None for dtypes without.
        nan, inf: (actual, reference) counts.
        non_finite: the first position where the two differ in a non-finite element.

    Example:
        >>> osl.compare(np.ones(3), np.zeros(3)).exceeding
        3
    """

    tolerance: Tolerance
    shapes: tuple[Shape, Shape]
    dtypes: tuple[str, str]
    match: bool = False
    reason: str = ""
    elements: int = 0
    exceeding: int = 0
    allowed: float = 0.0
    max_abs: float = 0.0
    metrics: dict[str, float | None] = field(default_factory=dict)
    nan: tuple[int, int] = (0, 0)
    inf: tuple[int, int] = (0, 0)
    non_finite: Shape | None = None
    worst: Worst | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def share_over(self) -> float:
        """Return the share of the elements that exceed their tolerance, 0 to 1."""
        return self.exceeding / self.elements if self.elements else 0.0

    def metric(self, name: str) -> float:
        """Return what a metric says; its best where it says nothing."""
        found = self.metrics.get(name)
        return METRICS[name].best if found is None else found

    @property
    def excess(self) -> float:
        """Return the largest multiple of what is allowed; Inf for another shape, dtype or non-finite element."""
        if self.reason in ("shape", "dtype", "non-finite"):
            return math.inf
        if (limit := self.tolerance.limit) is not None:
            return limit.excess(self.metric(limit.metric))
        gap = self.max_abs if self.worst is None else self.worst.difference
        return gap / self.allowed if self.allowed else math.inf if gap else 0.0

    def clear(self, note: str, allowed: float) -> None:
        """Let the two match although elements exceed their tolerance, and say why."""
        self.notes.append(note)
        # no element counts as wrong now
        self.match = True
        self.reason = ""
        self.exceeding = 0
        self.worst = None
        self.allowed = allowed


def agrees(actual: Array, reference: Array, tolerance: Tolerance | None = None) -> bool:
    """Return the verdict alone, without metrics, as fast as possible."""
    if actual.shape != reference.shape:
        return False
    same_dtype = actual.dtype == reference.dtype
    # a fast test that can only say yes, then the whole comparison
    if same_dtype and actual.dtype.kind != "O" and actual.size:
        a, r = actual.ravel(), reference.ravel()
        error = np.empty(min(a.size, _BLOCK), a.dtype)
        starts = range(0, a.size, _BLOCK)
        pieces = ([a[i : i + _BLOCK], r[i : i + _BLOCK], error[: a.size - i]] for i in starts)
        if _surely_within(
            pieces, a.dtype, (tolerance or _PLAIN).resolved(actual.dtype, reference.dtype)
        ):
            return True
    return compare(actual, reference, tolerance, ()).match


def apart(one: object, other: object) -> float:
    """Return the largest difference of two tensors; Inf if they cannot be compared."""
    if not is_array(one) or not is_array(other):
        return math.inf
    found = compare(one, other, EXACT, ())
    # strings, and integers above 2 ** 53, differ without a distance
    no_distance = found.exceeding and not found.max_abs
    return math.inf if no_distance or found.reason in ("shape", "dtype") else found.max_abs


class Readable(Protocol):
    """A tensor elsewhere, in another process or a file, whose elements lie there as in memory."""

    @property
    def shape(self) -> Shape: ...

    @property
    def dtype(self) -> DType: ...

    def fill(self, start: int, target: memoryview) -> None:
        """Read the bytes from `start` on; raise `OSError` where there are too few."""


class Scratch(threading.local):
    """Memory of each thread to compare pieces in: allocating it each time would cost more than the comparison."""

    def __init__(self) -> None:
        self.pieces = [np.empty(_PIECE, np.uint8) for _ in range(3)]


def surely_agrees(
    actual: Readable, reference: Readable, tolerance: Tolerance | None, scratch: Scratch
) -> bool:
    """Return True only if `agrees` does; read both tensors once, piece by piece, and keep neither."""
    if (actual.shape, actual.dtype) != (reference.shape, reference.dtype):
        return False
    dtype, size = actual.dtype, math.prod(actual.shape) * actual.dtype.itemsize

    def pieces() -> Iterator[list[Array]]:
        for start in range(0, size, _PIECE):
            # the last piece is shorter
            raw = [piece[: size - start] for piece in scratch.pieces]
            actual.fill(start, raw[0].data)
            reference.fill(start, raw[1].data)
            yield [piece.view(dtype) for piece in raw]

    return _surely_within(pieces(), dtype, (tolerance or _PLAIN).resolved(dtype))


def _surely_within(pieces: Iterable[list[Array]], dtype: DType, allowed: Tolerance) -> bool:
    """Return True only if all pieces are within the tolerance; False where the whole comparison must decide.

    It is fast because it computes in the dtype itself. Its rounding could decide a close case, and a mask in another
    piece would change the scale: then it returns False.

    Args:
        pieces: (actual, reference, memory for their difference).
    """
    top, excess = 0.0, -math.inf
    bits = f"u{math.gcd(dtype.itemsize, 8)}"  # as unsigned integers, so that NaN equals NaN
    for x, y, error in pieces:
        if (x.view(bits) == y.view(bits)).all():  # equal bytes: nothing to compute
            continue
        # the tolerance itself could overflow
        loose = allowed.atol > _LOOSE or allowed.rtol > 0.5 or not allowed.plain
        if dtype.kind != "f" or dtype not in _FAST or loose:
            return False
        with np.errstate(all="ignore"):
            np.subtract(x, y, out=error)
            top = max(top, _reach(y))
            most = _reach(error)
            # some difference is above `atol` alone: subtract what `rtol` allows to each element
            if most >= _safe_atol(dtype, allowed, top):
                size = np.abs(y)
                size *= allowed.rtol * _safe(dtype)
                most = float(np.subtract(np.abs(error, out=error), size, out=error).max())
        # NaN, Inf, or a magnitude at which elements may be masks
        if not (math.isfinite(most) and top < _MASK / 2):
            return False
        excess = max(excess, most)
    # the scale is known only now, when all pieces were seen
    return excess < _safe_atol(dtype, allowed, top)


_PLAIN = Tolerance(own=True)


def _reach(numbers: Array) -> float:
    """Return the largest magnitude; NaN if there is a NaN."""
    return max(float(numbers.max()), -float(numbers.min()))


def _safe(dtype: DType) -> float:
    """Return a factor that makes up for roundings in a dtype's own arithmetic."""
    return 1 - 8 * float(_FAST[dtype].eps)  # room for the roundings of some operations


def _safe_atol(dtype: DType, allowed: Tolerance, scale: float) -> float:
    if dtype not in _FAST:
        return math.inf
    # a product with `rtol` that is subnormal loses digits
    lost = 4 * float(_FAST[dtype].tiny) * bool(allowed.rtol)
    return (allowed.absolute(scale) - lost) * _safe(dtype)


def compare(
    actual: Rows,
    reference: Rows,
    tolerance: Tolerance | None = None,
    metrics: Collection[str] = SHOWN,
) -> Comparison:
    """Compare shape, dtype, then values; different float dtypes are compared in the wider one, with a note.

    Args:
        actual: any array, or what numpy takes for one: a list, a PyTorch tensor. What is in a file is read by parts.
        reference: the array to compare with.
        tolerance: None for the dtype's own.
        metrics: names of those to measure.

    Raises:
        UsageError: what is given is no array; `compare_sets` takes several by name.

    Example:
        >>> found = osl.compare(np.float32([1, 2]), np.float32([1, 2.5]))
        >>> found.match, found.max_abs
        (False, 0.5)
    """
    for given in (actual, reference):
        # what users confuse: a file, a path, a set by name
        if isinstance(given, Mapping | str | os.PathLike) and not isinstance(given, np.generic):
            text = "compare takes two arrays, no files, and not several by name"
            raise UsageError(text, "call compare_sets")
    actual, reference = (
        side if isinstance(side, InFile) else as_array(side, what)
        for side, what in ((actual, "actual"), (reference, "reference"))
    )
    result = Comparison(
        (tolerance or _PLAIN).resolved(actual.dtype, reference.dtype),
        (actual.shape, reference.shape),
        (str(actual.dtype), str(reference.dtype)),
        elements=actual.size,
    )
    if actual.shape != reference.shape:
        result.reason = "shape"
        return result
    strings = [array.dtype.kind in "OUS" for array in (actual, reference)]  # objects, str, bytes
    if actual.dtype != reference.dtype and not all(strings):
        if not (_is_number(actual) and _is_number(reference)):
            result.reason = "dtype"
            return result
        result.notes.append(f"compared across dtypes: {actual.dtype} with {reference.dtype}")
    if all(strings):
        _compare_strings(whole(actual), whole(reference), result)
    else:
        _compare_numbers(actual, reference, result, metrics)
    return result


def _compare_strings(actual: Array, reference: Array, result: Comparison) -> None:
    different = np.asarray(
        [_text(a) != _text(b) for a, b in zip(actual.flat, reference.flat, strict=True)], dtype=bool
    )
    result.exceeding = int(different.sum())
    result.match = not result.exceeding
    if not result.match:
        result.reason = "values"
        first = int(different.argmax())
        index = _index(first, actual.shape)
        result.worst = Worst(
            index, _text(actual.flat[first]), _text(reference.flat[first]), 1.0, 0.0
        )


def _text(item: object) -> str:
    return item.decode(errors="replace") if isinstance(item, bytes) else str(item)


@dataclass
class _Verdict:
    """The elements that exceed their tolerance, counted block by block.

    Attributes:
        atol: one number for all elements, or one for each (flat).
        exceeding: how many exceed it.
        max_abs: the largest error.
        allowed: what the element with the largest error may differ by.
        worst_at: flat index of the element that exceeds its tolerance most; -1 for none.
        worst_excess: by how much it does.
        worst_allowed: what it may differ by.
        non_finite: flat index of the first element that is finite on one side only; -1 for none.
        counts: of NaN in actual and reference, of Inf in actual and reference.
    """

    tolerance: Tolerance
    atol: float | Numbers
    exceeding: int = 0
    max_abs: float = 0.0
    allowed: float = 0.0
    worst_excess: float = 0.0
    worst_at: int = -1
    worst_allowed: float = 0.0
    non_finite: int = -1
    counts: list[int] = field(default_factory=lambda: [0] * 4)

    def add(self, block: Block) -> None:
        """Compare a block with the tolerance."""
        start, error = block.start, block.error
        self.counts = [sum(pair) for pair in zip(self.counts, block.counts, strict=True)]
        # what is not finite on one side alone exceeds any tolerance
        if block.bad is not None and block.bad.any():
            self.exceeding += int(block.bad.sum())
            if self.non_finite < 0:
                self.non_finite = start + int(block.bad.argmax())
        # what each element may differ by
        atol = self.atol
        atol = atol[start : start + error.size] if isinstance(atol, np.ndarray) else atol
        bound = block.size * self.tolerance.rtol
        bound += atol
        apart = block.ulps() if self.tolerance.ulp else None
        if apart is not None:
            # near enough in units in the last place: allowed, whatever the difference
            bound = np.where(apart <= self.tolerance.ulp, np.maximum(bound, error), bound)
        excess = error - bound
        top, largest = int(excess.argmax()), int(error.argmax())
        if excess[top] > 0:
            self.exceeding += int((excess > 0).sum())
        if excess[top] > self.worst_excess:
            self.worst_excess = float(excess[top])
            self.worst_at = start + top
            self.worst_allowed = float(bound[top])
        # of a match, the element with the largest difference is shown
        if not start or error[largest] > self.max_abs:
            self.max_abs = float(error[largest])
            self.allowed = float(bound[largest])

    def count_exactly(self, actual: Array, reference: Array) -> None:
        """Count integers above 2**53 that differ although their nearest float64 are equal."""
        different = np.flatnonzero(actual.ravel() != reference.ravel())
        # exact comparison only: with a tolerance, float64 is precise enough
        plain = self.tolerance.atol == self.tolerance.rtol == 0
        if different.size and plain:
            self.exceeding = int(different.size)
            self.worst_at = self.worst_at if self.max_abs else int(different[0])


def _compare_numbers(
    actual: Rows, reference: Rows, result: Comparison, metrics: Collection[str]
) -> None:
    allowed = result.tolerance
    scale = _scale(reference) if allowed.scaled else 0.0
    by_column = _by_column(whole(reference), scale) if allowed.columns and allowed.scaled else None
    atol: float | Numbers = allowed.absolute(scale)
    if by_column is not None:
        atol = allowed.atol * np.maximum(by_column, SMALLEST_SCALE)
        result.notes.append(
            "the columns differ by orders of magnitude: atol is of the largest in each group of columns"
        )
    # one pass over both: the verdict and every metric see each block
    verdict = _Verdict(allowed, atol)
    decides = [] if allowed.limit is None else [allowed.limit.metric]
    # the metric that decides is measured even where nobody asked for it
    wanted = [name for name in METRICS if name in metrics or name in decides]
    measuring = {name: METRICS[name].make() for name in wanted}
    with np.errstate(all="ignore"):
        for block in _blocks(actual, reference, any(METRICS[name].rows for name in wanted)):
            verdict.add(block)
            for each in measuring.values():
                each.add(block)
        result.metrics = {name: each.result() for name, each in measuring.items()}
    if actual.dtype.kind in "iu" and reference.dtype.kind in "iu":
        verdict.count_exactly(whole(actual), whole(reference))
    _judge(result, verdict, actual, reference)


def _judge(result: Comparison, verdict: _Verdict, actual: Rows, reference: Rows) -> None:
    """Fill in whether two tensors match, and which element is worst."""
    nan, nan_reference, inf, inf_reference = verdict.counts
    result.nan = nan, nan_reference
    result.inf = inf, inf_reference
    # what was counted, before the metric or the tolerance decides
    result.exceeding = verdict.exceeding
    result.max_abs = verdict.max_abs
    result.allowed = verdict.allowed
    if verdict.worst_at >= 0:
        one = slice(verdict.worst_at, verdict.worst_at + 1)
        a, r = actual.reshape(-1)[one][0], reference.reshape(-1)[one][0]
        difference = float(abs(_wide(a) - _wide(r)))
        index = _index(verdict.worst_at, actual.shape)
        result.worst = Worst(index, _shown(a), _shown(r), difference, verdict.worst_allowed)
        result.allowed = verdict.worst_allowed
        result.max_abs = max(result.max_abs, difference)
    if verdict.non_finite >= 0:
        result.non_finite = _index(verdict.non_finite, actual.shape)
        result.reason = "non-finite"
        # whatever the other elements are, each metric gets its worst: cosine NaN, decibels -Inf
        worse = {1.0: math.nan, math.inf: -math.inf}
        result.metrics = {n: worse.get(METRICS[n].best, v) for n, v in result.metrics.items()}
    elif (limit := result.tolerance.limit) is not None:
        result.reason = "metric" if limit.excess(result.metric(limit.metric)) > 1 else ""
    elif result.exceeding > result.tolerance.allow * result.elements:  # `allow` is a share
        result.reason = "values"
    result.match = not result.reason


def _wide(element: np.generic) -> int | float | complex:
    if element.dtype.kind == "c":
        return complex(element)
    return int(element) if element.dtype.kind in "iu" else float(element)


def _shown(element: np.generic) -> Number:
    wide = _wide(element)
    return str(wide) if isinstance(wide, complex) else wide


def _blocks(actual: Rows, reference: Rows, in_rows: bool) -> Iterator[Block]:
    """Yield blocks of both; of whole rows of the last axis where that is wanted."""
    a, r = actual.reshape(-1), reference.reshape(-1)
    row = max(1, actual.shape[-1] if actual.ndim else 1)
    # rows stay whole where a metric looks at rows
    size = row * max(1, _BLOCK // row) if in_rows else _BLOCK
    for start in range(0, a.size, size):
        yield Block(start, (a[start : start + size], r[start : start + size]), row)


def _by_column(reference: Array, scale: float) -> Numbers | None:
    """Return the magnitude that each element is measured by, flat, where an output mixes units; None elsewhere.

    Columns are those of the last axis, of the one before it where the last is long. Those a hundred times below the
    largest, with a gap above them, have a unit of their own, such as scores beside boxes; probabilities have not.
    """
    # [..., columns]; [columns, long] as detectors give it: (1, 84, 8400)
    axis = -1 if reference.ndim < 3 or reference.shape[-1] <= _COLUMNS else -2
    if (
        reference.ndim < 2
        or not 2 <= reference.shape[axis] <= _COLUMNS
        or not is_float(reference.dtype)
    ):
        return None
    magnitudes = np.abs(wide(reference))
    magnitudes = np.where(np.isfinite(magnitudes), magnitudes, 0)
    others = tuple(np.delete(np.arange(reference.ndim), axis))  # every axis but that of the columns
    tops = magnitudes.max(others, initial=0.0)
    filled = np.count_nonzero(magnitudes, axis=others) >= _FILLED
    small = filled & (tops <= _GAP * scale)  # a hundred times smaller than the largest column
    above = tops[~small & (tops > 0)]
    # no gap: the columns are of one kind
    if not small.any() or not above.size or above.min() < _UNITS * tops[small].max():
        return None
    # rows that sum to 1 are probabilities: small ones have no unit of their own
    if np.allclose(magnitudes.sum(axis), 1, atol=1e-3):
        return None
    # one magnitude for each column, then for each element
    by_column = np.expand_dims(np.where(small, tops[small].max(), scale), others)
    return np.broadcast_to(by_column, reference.shape).ravel()


def _scale(reference: Rows) -> float:
    """Return the largest finite magnitude, masks excluded.

    A mask (-1e4, -1e9, the lowest number of the dtype) is a few equal magnitudes far above all others; measured
    against it, any difference between the others would look small.
    """
    top = largest_of(reference)
    if top < _MASK:
        return top
    flat = whole(reference).reshape(-1)
    magnitudes = np.abs(flat if flat.dtype.kind == "c" else flat.astype(np.float64))
    finite = np.isfinite(magnitudes)
    high = magnitudes >= top * _GAP
    masks = magnitudes[high & finite]
    # no mask: all are large, one alone is, or the large ones differ
    if high.all() or masks.size < 2 or masks.min() < 0.9 * top:
        return top
    return float(magnitudes[~high & finite].max(initial=0.0))


def largest_of(reference: Rows) -> float:
    """Return the largest finite magnitude; 0 of none."""
    top, flat = 0.0, reference.reshape(-1)
    with np.errstate(all="ignore"):
        for start in range(0, flat.size, _BLOCK):
            block = flat[start : start + _BLOCK]
            sizes = np.abs(block if block.dtype in _FAST else wide(block))
            most = float(sizes.max())
            if not math.isfinite(most):  # Inf or NaN: the largest of the others
                most = float(sizes.max(initial=0.0, where=np.isfinite(sizes)))
            top = max(top, most)
    return top


def _is_number(array: Rows) -> bool:
    return array.dtype.kind in "fiubc" or "int" in array.dtype.name or "float" in array.dtype.name


def _index(flat: int, shape: Shape) -> Shape:
    return tuple(map(int, np.unravel_index(flat, shape)))


def titles(every: bool = False) -> list[str]:
    """Return the titles of the columns: the usual ones, or every one."""
    usual = ["max abs", "allowed", "over"]
    return usual + [METRICS[name].title for name in SHOWN] if every else usual


def texts(comparison: Comparison, every: bool = False) -> list[str]:
    """Return the metrics as text, under `titles`; why there are none where shapes or dtypes differ."""
    c = comparison
    if c.reason in ("shape", "dtype"):
        return [c.reason]
    usual = [number_text(c.max_abs, 4), number_text(c.allowed, 3), f"{100 * c.share_over:.3g}%"]
    more = SHOWN if every else ()
    return usual + [number_text(c.metrics.get(name), METRICS[name].digits) for name in more]


def verdict(comparison: Comparison) -> str:
    """Return the word for one tensor."""
    return "match" if comparison.match else "MISMATCH"


def gap(comparison: Comparison) -> str:
    """Return in a phrase how far two tensors are apart."""
    c = comparison
    if c.reason in ("shape", "dtype"):
        sides = c.shapes if c.reason == "shape" else c.dtypes
        actual, reference = (list(side) if isinstance(side, tuple) else side for side in sides)
        return f"{c.reason} {actual} where the reference has {reference}"
    if c.non_finite is not None:
        (nan, nan_r), (inf, inf_r) = c.nan, c.inf
        return f"{nan} NaN and {inf} Inf where the reference has {nan_r} and {inf_r}"
    if (limit := c.tolerance.limit) is not None:
        return f"{limit.metric} {number_text(c.metrics.get(limit.metric))} where {limit} is wanted"
    if not c.match and not c.max_abs:  # text
        return f"{c.exceeding} of {c.elements} elements differ"
    return f"max abs {c.max_abs:.3g} where {c.allowed:.3g} is allowed"
