"""Why a value is wrong: evidence about one culprit -> verdicts in fixed words, each with what it rests on."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto

from onnxsurgeon_lite.debug.bisection.result import Finding, Verdict, in_order
from onnxsurgeon_lite.tensors.comparison import Tolerance, agrees, compare, default_tolerance
from onnxsurgeon_lite.tensors.dtypes import Array, RunValue

Wide = NDArray[Any]
"""Numbers widened for arithmetic: float64 or complex128."""

_GAIN = 3.0  # an error that grows more than this, in units of what is allowed, is amplified
_NOISE = 4.0  # errors within this many times the expected rounding are rounding
_CHANNEL = 4  # a channel of fewer elements fits any scale and offset
_TIES = {"TopK", "ArgMax", "ArgMin", "NonMaxSuppression"}
_MOST_AXES = 5


@dataclass
class Evidence:
    """What was measured about one culprit, at its mismatching value.

    Attributes:
        nodes: of the region, the one that produces the value last.
        actual, reference: the value.
        inputs: what enters the region: name -> (actual, reference where there is one).
        constants: shapes of the initializers in the region, by name.
        changed: initializers that differ from those of the other model, where there is one.
        local: the value computed from reference inputs, where all of them have a reference.
        varies: whether the same came out otherwise when it was computed again.
        exact_local, exact: the same from reference and from actual inputs, in float64.
        rounding: how far the result moves when the reference inputs are rounded, elementwise.
        selected: of a node that selects: (actual, reference) of the values that the indices select.
        quantum: what one step of a quantised value is worth.
    """

    nodes: Sequence[NodeProto]
    actual: Array
    reference: Array
    tolerance: Tolerance | None
    inputs: Mapping[str, tuple[RunValue, RunValue]]
    constants: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    changed: Sequence[str] = ()
    local: Array | None = None
    varies: bool = False
    exact_local: Array | None = None
    exact: Array | None = None
    rounding: Wide | None = None
    selected: tuple[Array, Array] | None = None
    quantum: float | None = None

    def agree(self, a: Array, b: Array) -> bool:
        """Whether two tensors agree as far as the value's own dtypes promise."""
        own = default_tolerance(self.actual.dtype, self.reference.dtype)
        return agrees(a, b, self.tolerance or own)


def judge(evidence: Evidence) -> list[Finding]:
    """The verdicts that hold, in the order of triage."""
    return in_order(
        Finding(verdict, because)
        for verdict, criterion in _CRITERIA.items()
        if (because := criterion(evidence))
    )


def _random(e: Evidence) -> str:
    return "two runs of it on the same inputs differ" if e.varies else ""


def _non_finite(e: Evidence) -> str:
    """The first element that is not finite, where the reference is, with what made it."""
    if e.actual.shape != e.reference.shape or e.actual.dtype.kind in "OUS":
        return ""
    bad = ~np.isfinite(_wide(e.actual)) & np.isfinite(_wide(e.reference))
    if not bad.any():
        return ""
    at = tuple(map(int, np.unravel_index(int(bad.argmax()), bad.shape)))
    made = operands({name: actual for name, (actual, _) in e.inputs.items()}, at, e.actual)
    return (
        f"{e.actual[at]} at {list(at)} where the reference is {e.reference[at]:.6g}; made of {made}"
    )


def operands(inputs: Mapping[str, RunValue], at: tuple[int, ...], result: Array) -> str:
    """What one element of a result was made of."""
    told = (_operand(name, value, at, result) for name, value in inputs.items())
    return ", ".join(filter(None, told))


def _operand(name: str, value: RunValue, at: tuple[int, ...], result: Array) -> str:
    """An elementwise operand's element; of others the range."""
    if not isinstance(value, np.ndarray) or value.dtype.kind in "OUS" or not value.size:
        return ""
    try:
        element = np.broadcast_to(value, result.shape)[at]
    except ValueError:
        wide = _wide(value)
        finite = wide[np.isfinite(wide)]
        reach = f"{finite.min():.6g} to {finite.max():.6g}" if finite.size else "nothing finite"
        return f"{name!r} ({reach}, {int((~np.isfinite(wide)).sum())} not finite)"
    return f"{name!r} = {element:.6g}"


def _layout(e: Evidence) -> str:
    """The same numbers in another arrangement."""
    actual = e.actual if e.local is None else e.local
    if actual.size != e.reference.size or actual.size < 2:
        return ""
    if actual.dtype.kind in "OUS" or e.agree(actual, e.reference):
        return ""
    if not e.agree(np.sort(actual, axis=None), np.sort(e.reference, axis=None)):
        return ""
    if e.agree(actual.reshape(-1), e.reference.reshape(-1)):
        return f"the same data as {list(actual.shape)} instead of {list(e.reference.shape)}"
    return next(_arrangements(e, actual, e.reference), "the same numbers at other places")


def _arrangements(e: Evidence, actual: Array, reference: Array) -> Iterator[str]:
    if actual.ndim <= _MOST_AXES:
        for axes in itertools.permutations(range(actual.ndim)):
            moved = actual.transpose(axes)
            if moved.shape == reference.shape and e.agree(moved, reference):
                yield f"the same data transposed: axes {list(axes)} of it give the reference"
            elif moved.size == reference.size and e.agree(moved.reshape(-1), reference.reshape(-1)):
                yield f"the same data transposed and reshaped: axes {list(axes)}, then {list(reference.shape)}"
    if actual.shape != reference.shape:
        return
    for axis, size in enumerate(actual.shape):
        if e.agree(np.flip(actual, axis), reference):
            yield f"the same data reversed along axis {axis}"
        for step in range(1, min(size, 64)):
            if e.agree(np.roll(actual, step, axis), reference):
                yield f"the same data shifted by {step} along axis {axis}"


def _tie(e: Evidence) -> str:
    if e.selected is None or e.nodes[-1].op_type not in _TIES or not e.agree(*e.selected):
        return ""
    return "the indices differ, the values that they select do not"


def _rounding(e: Evidence) -> str:
    if e.actual.shape != e.reference.shape or e.actual.dtype.kind in "OUS":
        return ""
    error = np.abs(_wide(e.actual) - _wide(e.reference))
    if not np.isfinite(error).all():
        return ""
    if e.quantum is not None and (error <= e.quantum * (1 + 1e-3)).all():
        return f"no element is off by more than one quantum, {e.quantum:.6g}"
    if e.rounding is not None and (error <= _NOISE * e.rounding).all():
        return f"every error is within {_NOISE:g} times what rounding the operands alone would make"
    return ""


def _kernel(e: Evidence) -> str:
    """On the actual inputs float64 agrees with the reference, the runtime does not."""
    wrong = e.actual if e.local is None else e.local
    if e.exact is None or not e.agree(e.exact, e.reference) or e.agree(wrong, e.reference):
        return ""
    return "on the same inputs float64 gives the reference, the runtime does not"


def _wrong_constant(e: Evidence) -> str:
    if not _own_error(e):
        return ""
    if e.changed:
        return f"initializer {', '.join(map(repr, e.changed[:3]))} differs from the other model's"
    if not e.constants or e.local is None or e.local.dtype.kind not in "fV":
        return ""
    sizes = {size for shape in e.constants.values() for size in (*shape, int(np.prod(shape)))} | {1}
    names = ", ".join(map(repr, list(e.constants)[:3]))
    return next(
        (
            f"{how}, as one of its constants ({names}) would make"
            for how in _per_channel(e, e.local, sizes)
        ),
        "",
    )


def _per_channel(e: Evidence, result: Array, sizes: set[int]) -> Iterator[str]:
    """How a scale and an offset a channel turn the local result into the reference."""
    local, reference = _wide(result), _wide(e.reference)
    if local.shape != reference.shape or not np.isfinite(local).all():
        return
    for axis in (None, *range(local.ndim)):
        channels = 1 if axis is None else local.shape[axis]
        if channels not in sizes or local.size < _CHANNEL * channels:
            continue
        x, y = (
            a.reshape(1, -1) if axis is None else np.moveaxis(a, axis, 0).reshape(channels, -1)
            for a in (local, reference)
        )
        where = "" if axis is None else f" along axis {axis}"
        for what, scale, offset in _fits(x, y):
            if agrees(x * scale + offset, y, e.tolerance or _tight(e)):
                changed = ~np.isclose(scale, 1, rtol=1e-6) | ~np.isclose(offset, 0, atol=1e-12)
                yield f"the reference is {what} of it{where}, in {int(changed.sum())} of {channels} channels"


def _tight(e: Evidence) -> Tolerance:
    """A fit has freedom of its own, so it must be good."""
    allowed = default_tolerance(e.actual.dtype, e.reference.dtype)
    return Tolerance(allowed.atol / 4, allowed.rtol / 4, allowed.scaled)


def _fits(x: Wide, y: Wide) -> Iterator[tuple[str, Wide, Wide]]:
    ones, zeros = np.ones((len(x), 1)), np.zeros((len(x), 1))
    power = (x * x).sum(1, keepdims=True)
    scale = np.divide((x * y).sum(1, keepdims=True), power, out=ones.copy(), where=power > 0)
    yield "a multiple", scale, zeros
    yield "a shift", ones, (y - x).mean(1, keepdims=True)
    mean_x, mean_y = x.mean(1, keepdims=True), y.mean(1, keepdims=True)
    spread = ((x - mean_x) ** 2).sum(1, keepdims=True)
    slope = ((x - mean_x) * (y - mean_y)).sum(1, keepdims=True)
    scale = np.divide(slope, spread, out=ones.copy(), where=spread > 0)
    yield "a multiple and a shift", scale, mean_y - scale * mean_x


def _wrong_node(e: Evidence) -> str:
    """On reference inputs the runtime and float64 agree with each other, not with the reference."""
    if not _own_error(e):
        return ""
    if e.exact_local is None:
        return "on reference inputs it does not give the reference (float64 was not evaluated)"
    if e.agree(e.exact_local, e.reference):
        return ""
    if e.local is not None and e.agree(e.local, e.exact_local):
        return "on reference inputs the runtime and float64 agree with each other, not with the reference"
    return "on reference inputs neither the runtime nor float64 gives the reference"


def _amplification(e: Evidence) -> str:
    if not _propagated(e) or e.exact is None or not e.agree(e.actual, e.exact):
        return ""
    gain = _gain(e)
    if gain < _GAIN:
        return ""
    return f"right on reference inputs; in float64 too, its inputs' errors grow {gain:.3g}-fold"


def _gradual(e: Evidence) -> str:
    if not _propagated(e):
        return ""
    return "right on reference inputs: errors of many nodes add up to more than the tolerance here"


def _own_error(e: Evidence) -> bool:
    return e.local is not None and not e.agree(e.local, e.reference)


def _propagated(e: Evidence) -> bool:
    return e.local is not None and e.agree(e.local, e.reference)


def _gain(e: Evidence) -> float:
    """How much nearer to its limit the error is behind the node than before it."""
    before = [
        _share(a, r, e.tolerance)
        for a, r in e.inputs.values()
        if isinstance(a, np.ndarray) and isinstance(r, np.ndarray)
    ]
    after = _share(e.actual, e.reference, e.tolerance)
    largest = max(before, default=0.0)
    return after / largest if largest else 0.0


def _share(actual: Array, reference: Array, tolerance: Tolerance | None) -> float:
    """The worst error, as a share of what is allowed there."""
    comparison = compare(actual, reference, tolerance)
    worst = comparison.worst
    if worst is not None and worst.allowed:
        return worst.difference / worst.allowed
    scale = float(np.abs(_wide(reference)).max(initial=0.0))
    allowed = comparison.tolerance.absolute(scale) + comparison.tolerance.rtol * scale
    return comparison.max_abs / allowed if allowed else 0.0


def _wide(array: Array) -> Wide:
    return array if array.dtype.kind == "c" else array.astype(np.float64)


_CRITERIA: Mapping[Verdict, Callable[[Evidence], str]] = {
    "random": _random,
    "non-finite": _non_finite,
    "shape or layout": _layout,
    "tie": _tie,
    "rounding": _rounding,
    "kernel": _kernel,
    "wrong constant": _wrong_constant,
    "wrong node": _wrong_node,
    "amplification": _amplification,
    "gradual": _gradual,
}
