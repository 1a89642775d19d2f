"""Derive verdicts from the evidence about one culprit, each with its reason."""

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

_GAIN = 3.0  # growth of an error, in units of the tolerance, from which it counts as amplified
_NOISE = 4.0  # errors within this many times the expected rounding are rounding
_CHANNEL = 4  # any scale and offset fit channels with fewer elements
_TIES = {"TopK", "ArgMax", "ArgMin", "NonMaxSuppression"}
_MOST_AXES = 5


@dataclass
class Evidence:
    """Measurements of one culprit, at its mismatching value.

    Attributes:
        nodes: the nodes of the region; the last one produces the value.
        actual, reference: the value.
        inputs: inputs of the region: name -> (actual, reference or None).
        constants: shapes of the initializers in the region, by name.
        changed: initializers that differ from those of the other model.
        local: the value computed from reference inputs, if all have one.
        varies: True when a second run gave another result.
        exact_local, exact: the value in float64, computed from reference and from actual inputs.
        rounding: the elementwise change of the result when the reference inputs are rounded.
        selected: for a node that returns indices, (actual, reference) of the values at the indices.
        quantum: the size of one quantization step.
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
        """Return whether two tensors agree within the tolerance of the value's dtypes."""
        own = default_tolerance(self.actual.dtype, self.reference.dtype)
        return agrees(a, b, self.tolerance or own)


def judge(evidence: Evidence) -> list[Finding]:
    """Return the verdicts that hold, in the order of triage."""
    return in_order(
        Finding(verdict, because)
        for verdict, criterion in _CRITERIA.items()
        if (because := criterion(evidence))
    )


def _random(e: Evidence) -> str:
    return "two runs of the node on the same inputs differ" if e.varies else ""


def _non_finite(e: Evidence) -> str:
    """Report the first non-finite element where the reference is finite, with its operands."""
    if e.actual.shape != e.reference.shape or e.actual.dtype.kind in "OUS":
        return ""
    bad = ~np.isfinite(_wide(e.actual)) & np.isfinite(_wide(e.reference))
    if not bad.any():
        return ""
    at = tuple(map(int, np.unravel_index(int(bad.argmax()), bad.shape)))
    made = operands({name: actual for name, (actual, _) in e.inputs.items()}, at, e.actual)
    return f"{e.actual[at]} at {list(at)} where the reference is {e.reference[at]:.6g}; computed from {made}"


def operands(inputs: Mapping[str, RunValue], at: tuple[int, ...], result: Array) -> str:
    """Describe the operands of one element of a result."""
    texts = (_operand(name, value, at, result) for name, value in inputs.items())
    return ", ".join(filter(None, texts))


def _operand(name: str, value: RunValue, at: tuple[int, ...], result: Array) -> str:
    """Describe the element of an elementwise operand, else the range of the operand."""
    if not isinstance(value, np.ndarray) or value.dtype.kind in "OUS" or not value.size:
        return ""
    try:
        element = np.broadcast_to(value, result.shape)[at]
    except ValueError:
        wide = _wide(value)
        finite = wide[np.isfinite(wide)]
        reach = f"{finite.min():.6g} to {finite.max():.6g}" if finite.size else "no finite element"
        return f"{name!r} ({reach}, {int((~np.isfinite(wide)).sum())} not finite)"
    return f"{name!r} = {element:.6g}"


def _layout(e: Evidence) -> str:
    """Detect the same numbers in another arrangement."""
    actual = e.actual if e.local is None else e.local
    if actual.size != e.reference.size or actual.size < 2:
        return ""
    if actual.dtype.kind in "OUS" or e.agree(actual, e.reference):
        return ""
    if not e.agree(np.sort(actual, axis=None), np.sort(e.reference, axis=None)):
        return ""
    if e.agree(actual.reshape(-1), e.reference.reshape(-1)):
        return f"the same data with shape {list(actual.shape)} instead of {list(e.reference.shape)}"
    return next(_arrangements(e, actual, e.reference), "the same numbers at other positions")


def _arrangements(e: Evidence, actual: Array, reference: Array) -> Iterator[str]:
    if actual.ndim <= _MOST_AXES:
        for axes in itertools.permutations(range(actual.ndim)):
            moved = actual.transpose(axes)
            if moved.shape == reference.shape and e.agree(moved, reference):
                yield f"the same data transposed: permuting its axes by {list(axes)} gives the reference"
            elif moved.size == reference.size and e.agree(moved.reshape(-1), reference.reshape(-1)):
                yield f"the same data transposed by {list(axes)} and reshaped to {list(reference.shape)}"
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
    return "the indices differ, but the selected values agree"


def _rounding(e: Evidence) -> str:
    if e.actual.shape != e.reference.shape or e.actual.dtype.kind in "OUS":
        return ""
    error = np.abs(_wide(e.actual) - _wide(e.reference))
    if not np.isfinite(error).all():
        return ""
    if e.quantum is not None and (error <= e.quantum * (1 + 1e-3)).all():
        return f"no error exceeds one quantization step ({e.quantum:.6g})"
    if e.rounding is not None and (error <= _NOISE * e.rounding).all():
        return f"every error is within {_NOISE:g} times the effect of rounding the operands"
    return ""


def _kernel(e: Evidence) -> str:
    """Detect a result that agrees with the reference in float64 but not in the runtime."""
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
            f"{how}; a wrong constant ({names}) has this effect"
            for how in _per_channel(e, e.local, sizes)
        ),
        "",
    )


def _per_channel(e: Evidence, result: Array, sizes: set[int]) -> Iterator[str]:
    """Yield descriptions of a scale and offset per channel that turn the local result into the reference."""
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
                yield f"the reference is {what} of the result{where}, in {int(changed.sum())} of {channels} channels"


def _tight(e: Evidence) -> Tolerance:
    """Return a tighter tolerance, since a fit removes part of the error."""
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
    """Detect a node that is wrong on reference inputs."""
    if not _own_error(e):
        return ""
    if e.exact_local is None:
        return (
            "on reference inputs the result differs from the reference (float64 was not evaluated)"
        )
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
    return f"correct on reference inputs; the errors of its inputs grow {gain:.3g}-fold, in float64 too"


def _gradual(e: Evidence) -> str:
    if not _propagated(e):
        return ""
    return (
        "correct on reference inputs: errors of many nodes add up to more than the tolerance here"
    )


def _own_error(e: Evidence) -> bool:
    return e.local is not None and not e.agree(e.local, e.reference)


def _propagated(e: Evidence) -> bool:
    return e.local is not None and e.agree(e.local, e.reference)


def _gain(e: Evidence) -> float:
    """Return the growth of the error from inputs to output, in units of the tolerance."""
    before = [
        _share(a, r, e.tolerance)
        for a, r in e.inputs.values()
        if isinstance(a, np.ndarray) and isinstance(r, np.ndarray)
    ]
    after = _share(e.actual, e.reference, e.tolerance)
    largest = max(before, default=0.0)
    return after / largest if largest else 0.0


def _share(actual: Array, reference: Array, tolerance: Tolerance | None) -> float:
    """Return the worst error relative to its allowed error."""
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
