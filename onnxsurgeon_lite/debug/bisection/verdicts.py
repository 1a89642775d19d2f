"""Derive verdicts from the evidence about one culprit, each with its reason."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto

from onnxsurgeon_lite.debug.bisection.structure import Explained
from onnxsurgeon_lite.debug.result import OWN, Finding, Verdict, in_order
from onnxsurgeon_lite.matching.judge import SELECTED, largest_of
from onnxsurgeon_lite.model import walk
from onnxsurgeon_lite.tensors.comparison import Tolerance, agrees, compare, default_tolerance
from onnxsurgeon_lite.tensors.dtypes import (
    Array,
    RunValue,
    RunValues,
    Shape,
    by_channel,
    eps,
    has_floats,
    is_array,
    is_float,
    peak,
    rms,
    wide,
)
from onnxsurgeon_lite.tensors.grid import is_biased

Wide = NDArray[Any]
"""Numbers widened for arithmetic: float64 or complex128."""

_GAIN = 3.0  # growth of an error, in units of the tolerance, from which it counts as amplified
_NOISE = 4.0  # errors within this many times the expected rounding are rounding
_LAST = 2.0**13  # last places of a float that arithmetic may lose, in quanta
_LOST = 1e-2  # share of the result from which rounding the operands counts as a cancellation
_DEVIATIONS = 6  # standard deviations of what is drawn that are no chance
_CHANNEL = 4  # any scale and offset fit channels with fewer elements
TIES = {"TopK", "ArgMax", "ArgMin", "NonMaxSuppression", "Unique"}
_MOST_AXES = 5
_RUNS = 6  # runs of channels in a sentence

# operator -> the input that multiplies, or shifts, the result
_SCALES = dict.fromkeys(
    ("MatMul", "Gemm", "Conv", "ConvTranspose", "LayerNormalization", "BatchNormalization"), 1
)
_SHIFTS = dict.fromkeys(
    ("Gemm", "Conv", "ConvTranspose", "LayerNormalization", "BatchNormalization"), 2
)
_EITHER = ("Add", "Sub", "Mul", "Div", "Constant", "Identity")


@dataclass
class Evidence:
    """Measurements of one culprit, at its mismatching value.

    Attributes:
        nodes: the nodes of the region; the last one produces the value.
        actual, reference: the value.
        inputs: inputs of the region: name -> (actual, reference or None).
        constants: shapes of the initializers in the region, by name. read: reads one of them.
        changed: initializers that differ from those of the other model.
        local: the value computed from reference inputs, if all have one.
        varies: True when a second run gave another result.
        exact_local, exact: the value in float64, computed from reference and from actual inputs.
        rounding: the elementwise change of the result when the reference inputs are rounded.
        is_constant: True when the nodes read nothing but what they make.
        explained: a change of the nodes or of what they read that gives the reference.
        selected: for a node that returns indices, (actual, reference) of the values at the indices.
        flips: True when moving the reference inputs within their tolerance changes what differs.
        quantum: the size of a quantization step for each element (broadcast), if the nodes quantize.
        stirred: `local` with other last places of what is dequantized; None of optimized nodes.
        sides: what computed the reference and what the value, where both ran the same model.
    """

    nodes: Sequence[NodeProto]
    actual: Array
    reference: Array
    tolerance: Tolerance | None
    inputs: Mapping[str, tuple[RunValue, RunValue]]
    constants: Mapping[str, Shape] = field(default_factory=dict)
    read: Callable[[str], Array] = lambda _: np.empty(0)
    changed: Sequence[str] = ()
    local: Array | None = None
    varies: bool = False
    exact_local: Array | None = None
    exact: Array | None = None
    rounding: Wide | None = None
    explained: Explained | None = None
    is_constant: bool = False
    selected: tuple[Array, Array] | None = None
    flips: bool = False
    quantum: Wide | None = None
    stirred: RunValue = None
    sides: tuple[str, ...] = ()

    def agree(self, a: Array, b: Array) -> bool:
        """Return whether two tensors agree within the tolerance of the value's dtypes."""
        own = default_tolerance(self.actual.dtype, self.reference.dtype)
        return agrees(a, b, self.tolerance or own)


def judge(evidence: Evidence) -> list[Finding]:
    """Return the verdicts that hold, in the order of triage.

    Where one model ran on two sides, a node that is wrong is one side's error: no edit repairs the model.
    """
    criteria = ((verdict, criterion(evidence)) for verdict, criterion in _CRITERIA.items())
    found = [Finding(verdict, because) for verdict, because in criteria if because]
    if evidence.sides and any(finding.verdict in OWN for finding in found):
        found = [finding for finding in found if finding.verdict not in OWN]
        found.append(Finding("kernel", _who_errs(evidence, evidence.sides)))
    return in_order(found)


def _who_errs(e: Evidence, sides: Sequence[str]) -> str:
    """Say which of two sides computes the same nodes wrongly: float64 decides."""
    # the reference is what `theirs` made, the local result what `ours` made of the same inputs
    theirs, ours = sides
    what = e.nodes[-1].op_type
    like = f"; {e.explained.because}" if e.explained else ""
    if e.exact_local is None or e.local is None:
        return f"{ours} and {theirs} compute {what} otherwise; who is right is not known without float64"
    right, wrong = e.agree(e.local, e.exact_local), not e.agree(e.reference, e.exact_local)
    if right and wrong:
        return f"{theirs} computes {what} wrongly (float64 agrees with {ours}{like})"
    if not right and not wrong:
        return f"{ours} computes {what} wrongly (float64 agrees with {theirs})"
    return f"{ours} and {theirs} compute {what} otherwise; float64 agrees with {'both' if right else 'neither'}"


def _random(e: Evidence) -> str:
    """Report numbers that are drawn anew; not of a Dropout that drops what the reference has."""
    drops = any(node.op_type == "Dropout" for node in e.nodes)
    made = e.reference if e.local is None else e.local
    # The reference has many more numbers than this run: it was made without dropping, which chance does not explain.
    # The count of what is dropped has a standard deviation of at most sqrt(size) / 2.
    more = np.count_nonzero(e.reference) - np.count_nonzero(made)
    if drops and more > _DEVIATIONS * e.reference.size**0.5 / 2:
        return ""
    return "two runs of the node on the same inputs differ" if e.varies else ""


def _overflow(e: Evidence) -> str:
    """Detect infinities where the reference is finite, and beyond what the dtype holds."""
    largest = largest_of(e.actual.dtype)
    if largest is None or e.actual.shape != e.reference.shape or e.reference.dtype.kind in "OUSb":
        return ""
    magnitudes = np.abs(_wide(e.reference))
    over = np.isinf(_wide(e.actual)) & np.isfinite(magnitudes) & (magnitudes > largest)
    if not over.any():
        return ""
    at = np.unravel_index(int(np.where(over, magnitudes, 0).argmax()), over.shape)
    where = f"the largest at {list(map(int, at))}"
    return f"{magnitudes[at]:.6g} > {largest:.6g} in {int(over.sum())} of {over.size} elements, {where}"


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


def operands(inputs: RunValues, at: Shape, result: Array) -> str:
    """Describe the operands of one element of a result."""
    texts = (_operand(name, value, at, result) for name, value in inputs.items())
    return ", ".join(filter(None, texts))


def _operand(name: str, value: RunValue, at: Shape, result: Array) -> str:
    """Describe the element of an elementwise operand, else the range of the operand."""
    if not is_array(value) or value.dtype.kind in "OUS" or not value.size:
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
    if actual.dtype.kind in "OUS" or e.agree(actual, e.reference) or _tie(e):
        return ""
    # the same numbers in any order? only then is the arrangement searched
    if not e.agree(np.sort(actual, axis=None), np.sort(e.reference, axis=None)):
        return ""
    if e.agree(actual.ravel(), e.reference.ravel()):
        return f"the same data with shape {list(actual.shape)} instead of {list(e.reference.shape)}"
    return next(_arrangements(e, actual, e.reference), "the same numbers at other positions")


def _arrangements(e: Evidence, actual: Array, reference: Array) -> Iterator[str]:
    if actual.ndim <= _MOST_AXES:
        # at most 5 axes: 120 permutations
        for axes in itertools.permutations(range(actual.ndim)):
            moved = actual.transpose(axes)
            if moved.shape == reference.shape and e.agree(moved, reference):
                yield f"the same data transposed: permuting its axes by {list(axes)} gives the reference"
            elif moved.size == reference.size and e.agree(moved.ravel(), reference.ravel()):
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
    """Detect an order that flips among values that are within the tolerance of each other."""
    if not any(node.op_type in TIES for node in e.nodes):
        return ""
    # other indices, but of the same values: [3, 1] and [1, 3] of two equal numbers
    if e.selected is not None and agrees(*e.selected, e.tolerance):
        return SELECTED
    if e.nodes[-1].op_type in TIES and _propagated(e) and all(map(_near, e.inputs.values())):
        return "it gives the reference on reference inputs, and its inputs agree: near values change places"
    return (
        "its inputs agree, and moving them within the tolerance changes the same" if e.flips else ""
    )


def _near(pair: tuple[RunValue, RunValue]) -> bool:
    """Return whether an input agrees with its reference."""
    a, r = pair
    if not is_array(a) or not is_array(r) or a.dtype.kind in "OUS":
        return False
    return agrees(a, r, default_tolerance(a.dtype, r.dtype))


def _rounding(e: Evidence) -> str:
    if e.actual.shape != e.reference.shape or e.actual.dtype.kind in "OUS":
        return ""
    error = np.abs(_wide(e.actual) - _wide(e.reference))
    if not np.isfinite(error).all():
        return ""
    # quantized: an element may round to the neighbor, if as many go up as down
    if e.quantum is not None:
        steps = (_wide(e.actual) - _wide(e.reference)) / e.quantum
        if (np.abs(steps) <= 1 + 1e-3).all() and not is_biased(steps) and _only_flips(e):
            largest = float(e.quantum.max())
            return f"no error exceeds one quantum ({largest:.6g}), and there is no bias"
    if _is_noise(e) and not _cancels(e):
        return f"every error is within {_NOISE:g} times the effect of rounding the operands"
    return ""


def _only_flips(e: Evidence) -> bool:
    """Return whether no more elements are rounded to the other neighbor than last places bring over the border."""
    if e.local is None or not is_array(e.stirred):
        return True
    # rms in quanta: a share p of elements that are one quantum off gives sqrt(p), and a single one size**-0.5
    error, usual = (rms((_wide(v) - _wide(e.local)) / e.quantum) for v in (e.reference, e.stirred))
    return bool(error <= 2 * max(usual, last_places(e.local) ** 0.5, e.local.size**-0.5))


def last_places(value: RunValue) -> float:
    """Return the share of a quantum that the arithmetic of a value may lose."""
    numbers = value.dtype if is_array(value) else np.dtype(np.float32)
    return min(1.0, _LAST * (eps(numbers) if is_float(numbers) else 2.0**-23))


def _is_noise(e: Evidence) -> bool:
    """Return whether every error is within what rounding the operands makes."""
    # `rounding` is the change of each element when the operands change in their last place
    if e.rounding is None or e.actual.shape != e.reference.shape:
        return False
    with np.errstate(invalid="ignore"):  # infinities are no noise
        error = np.abs(_wide(e.actual) - _wide(e.reference))
    return bool((error <= _NOISE * e.rounding).all())


def _cancels(e: Evidence) -> bool:
    """Return whether the last places of the operands are a good part of the result."""
    if not _is_noise(e):
        return False
    # 0.1 + 1e8 - 1e8: rounding the operands costs a good part of a small result
    return _lost(e) > max(_LOST, 8 * eps(e.actual.dtype))


def _lost(e: Evidence) -> float:
    """Return the typical error, as a share of the typical magnitude."""
    size = rms(_wide(e.reference))
    return rms(_wide(e.actual) - _wide(e.reference)) / size if size else 0.0


def _kernel(e: Evidence) -> str:
    """Detect a result that agrees with the reference in float64 but not in the runtime."""
    # float64 must give the reference, and the runtime must not, from the same inputs; cancellation and overflow are no
    # fault of a kernel
    wrong = e.actual if e.local is None else e.local
    if (
        e.exact is None
        or _overflow(e)
        or _cancels(e)
        or not e.agree(e.exact, e.reference)
        or e.agree(wrong, e.reference)
    ):
        return ""
    return "on the same inputs float64 gives the reference, the runtime does not"


def _change(e: Evidence, kind: str) -> str:
    return e.explained.because if e.explained and e.explained.change == kind else ""


def _wrong_constant(e: Evidence) -> str:
    if e.is_constant:
        return _constant_error(e)
    # in training mode the statistics are those of the batch: a factor says nothing of a constant
    attributes = chain.from_iterable(node.attribute for node in e.nodes)
    trains = any(a.name == "training_mode" and a.i for a in attributes)
    if trains or not _own_error(e) or e.explained:
        return ""
    if e.changed:
        return f"initializer {', '.join(map(repr, e.changed[:3]))} differs from that of the references' model"
    if not e.constants or e.local is None or e.local.dtype.kind not in "fV":
        return ""
    if not all(np.isfinite(_wide(array)).all() for array in (e.local, e.reference)):
        return ""  # which no factor and no shift explains
    # a constant can only have an effect for each channel if the axis has as many as it has elements
    shapes = e.constants.values()
    sizes = {1}.union(chain.from_iterable(shapes), map(math.prod, shapes))
    return next(filter(None, (_amount(e, fit) for fit in _per_channel(e, e.local, sizes))), "")


@dataclass(frozen=True)
class Fit:
    """The factor and the shift of a result against its reference, for each channel of an axis; None for no axis."""

    axis: int | None
    factor: Wide
    shift: Wide


def _amount(e: Evidence, fit: Fit) -> str:
    """Describe which constant is wrong, and by how much; '' if no constant has this effect."""
    scaled, shifted = ~np.isclose(fit.factor, 1, rtol=1e-5), ~np.isclose(fit.shift, 0, atol=1e-9)
    passed_on = [name for name in e.constants if _passes_on(e, name, fit)]
    # y = (x * w) + b with a wrong w: the shift is b's, and b is right
    if passed_on:  # a right bias behind a wrong weight
        shifted &= False
    # which inputs could have this effect: a factor comes of a weight, a shift of a bias
    slots = [slot for slot, off in ((_SCALES, scaled), (_SHIFTS, shifted)) if off.any()]
    names = [
        node.input[slot[node.op_type]]
        for slot in slots
        for node in e.nodes
        if slot.get(node.op_type, len(node.input)) < len(node.input)
    ]
    either = walk.inputs(node for node in e.nodes if node.op_type in _EITHER)
    names = [name for name in dict.fromkeys(chain(names, either)) if name in e.constants]
    names = [name for name in names if name not in passed_on and has_floats(e.read(name))]
    # a shift by a bias of zeros, or without a bias: it is lost
    bias = names[0] if names and not scaled.any() and not e.read(names[0]).any() else ""
    if not scaled.any() and (bias or (not names and e.nodes[-1].op_type in _SCALES)):
        which = f"the bias {bias!r} is lost: it is zero" if bias else "the bias is lost"
        return f"{which}, the reference has {_range(-fit.shift[shifted], '{:+.4g}')}"
    if not names:
        return ""
    how = [_range(fit.factor[scaled], "x{:.4g}")] if scaled.any() else []
    how += [_range(fit.shift[shifted], "{:+.4g}")] if shifted.any() else []
    # the affected channels, unless all are
    off = np.flatnonzero(scaled | shifted)
    every = fit.axis is None or len(off) == len(fit.factor)
    where = "" if every else f" in channels {_runs(off)} of axis {fit.axis}"
    # what was forgotten, as a factor or a term, has the same effect
    lacks = " and ".join(["a factor"] * bool(scaled.any()) + ["a term"] * bool(shifted.any()))
    which = " or ".join(map(repr, names[:3]))
    return f"{which} is wrong, or {lacks} is missing: the effect is {' and '.join(how)}{where}"


def _constant_error(e: Evidence) -> str:
    """Say by how much a constant differs from its reference."""
    if e.actual.shape != e.reference.shape or e.agree(e.actual, e.reference):
        return ""
    a, r = _wide(e.actual), _wide(e.reference)
    off = ~np.isclose(a, r, rtol=1e-6, atol=0)
    if not off.any():
        return ""
    worst = np.unravel_index(int(np.where(off, np.abs(a - r), 0).argmax()), a.shape)
    where = f" in {int(off.sum())} of {a.size} elements, at {list(map(int, worst))}" * (a.size > 1)
    with np.errstate(all="ignore"):
        factor = float(np.median(a[off] / r[off]))
        times = f", x{factor:.4g}" if np.allclose(a[off], factor * r[off], rtol=1e-4) else ""
    return (
        f"the constant differs{where}: {a[worst]:.6g} where the reference is {r[worst]:.6g}{times}"
    )


def _passes_on(e: Evidence, name: str, fit: Fit) -> bool:
    """Return whether the shift is that of a constant that is added behind the factor: `(1 - factor) * constant`."""
    if e.constants[name] not in ((), (1,), fit.factor.shape) or np.allclose(
        fit.shift, 0, atol=1e-9
    ):
        return False
    # reference = factor * (actual - c) + c = factor * actual + (1 - factor) * c
    expected = (1 - fit.factor) * _wide(e.read(name))
    return bool(np.allclose(fit.shift, expected, rtol=0.02, atol=0.02 * np.abs(fit.shift).max()))


def _range(numbers: Wide, form: str) -> str:
    low, high = (form.format(float(number)) for number in (numbers.min(), numbers.max()))
    return low if low == high else f"{low} to {high}"


def _runs(numbers: NDArray[np.intp]) -> str:
    """Join numbers as `0, 3-5`; of many runs the first ones."""
    cuts = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    runs = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in cuts]
    return ", ".join(runs[:_RUNS]) + (", ..." if len(runs) > _RUNS else "")


def _per_channel(e: Evidence, result: Array, sizes: set[int]) -> Iterator[Fit]:
    """Yield the scale and offset per channel that turn the local result into the reference."""
    local, reference = _wide(result), _wide(e.reference)
    if local.shape != reference.shape or not np.isfinite(local).all():
        return
    # None first: one factor for the whole tensor is the simplest
    for axis in chain([None], range(local.ndim)):
        channels = 1 if axis is None else local.shape[axis]
        if channels not in sizes or local.size < _CHANNEL * channels:
            continue
        # rows are channels
        x, y = (by_channel(array, axis) for array in (local, reference))
        given = e.tolerance
        allowed = _tight(e) if given is None or given.own else given
        for scale, offset in _fits(x, y):
            if not (scale.all() and agrees(x * scale + offset, y, allowed)):
                continue
            # a scale and a shift fit any two numbers: a third must differ by more than is allowed
            if offset.any() and (scale != 1).any():
                steps = np.diff(np.sort(x)) > allowed.rtol * np.abs(y).max()
                if steps.sum(1).max() < 2:
                    continue
            yield Fit(axis, (1 / scale).ravel(), (-offset / scale).ravel())


def _tight(e: Evidence) -> Tolerance:
    """Return a tighter tolerance, since a fit removes part of the error."""
    allowed = default_tolerance(e.actual.dtype, e.reference.dtype)
    return Tolerance(allowed.atol / 4, allowed.rtol / 4, allowed.scaled)


def _fits(x: Wide, y: Wide) -> Iterator[tuple[Wide, Wide]]:
    """Yield (scale, offset): a multiple, a shift, both."""
    ones, zeros = np.ones((len(x), 1)), np.zeros((len(x), 1))
    # least squares for each row: y = scale * x, y = x + offset, y = scale * x + offset
    power = (x * x).sum(1, keepdims=True)
    scale = np.divide((x * y).sum(1, keepdims=True), power, out=ones.copy(), where=power > 0)
    yield scale, zeros
    yield ones, (y - x).mean(1, keepdims=True)
    mean_x, mean_y = x.mean(1, keepdims=True), y.mean(1, keepdims=True)
    spread = ((x - mean_x) ** 2).sum(1, keepdims=True)
    slope = ((x - mean_x) * (y - mean_y)).sum(1, keepdims=True)
    scale = np.divide(slope, spread, out=ones.copy(), where=spread > 0)
    yield scale, mean_y - scale * mean_x


def _wrong_node(e: Evidence) -> str:
    """Detect a node that is wrong on reference inputs."""
    if not _own_error(e) or e.is_constant or _cancels(e):
        return ""
    if e.explained:
        return f"on reference inputs {e.explained.because}" if e.explained.change == "other" else ""
    # no operator, attribute or edge explains it: say what float64 says
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
    if _cancels(e):
        return f"its operands cancel: rounding them costs {_lost(e):.2g} of the result"
    if not _propagated(e) or e.exact is None or not e.agree(e.actual, e.exact):
        return ""
    # how the error grows from inputs to output, in units of the tolerance
    before = [
        _share(a, r, e.tolerance) for a, r in e.inputs.values() if is_array(a) and is_array(r)
    ]
    after = _share(e.actual, e.reference, e.tolerance)
    largest = max(before, default=0.0)
    gain = after / largest if largest else 0.0
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


def _share(actual: Array, reference: Array, tolerance: Tolerance | None) -> float:
    """Return the worst error relative to its allowed error."""
    # the worst element of a mismatch is known; otherwise estimate from the largest difference
    comparison = compare(actual, reference, tolerance)
    worst = comparison.worst
    if worst is not None and worst.allowed:
        return worst.difference / worst.allowed
    scale = peak(_wide(reference))
    allowed = comparison.tolerance.absolute(scale) + comparison.tolerance.rtol * scale
    return comparison.max_abs / allowed if allowed else 0.0


def _wide(array: Array) -> Wide:
    return array if array.dtype.kind == "c" else wide(array)


# Each criterion returns its reason, or '' where it does not hold. `Verdict` gives the order of triage.
_CRITERIA: Mapping[Verdict, Callable[[Evidence], str]] = {
    "random": _random,
    "overflow": _overflow,
    "non-finite": _non_finite,
    "shape or layout": _layout,
    "tie": _tie,
    "rounding": _rounding,
    "kernel": _kernel,
    "missing node": lambda e: _change(e, "missing"),
    "extra node": lambda e: _change(e, "extra"),
    "wrong constant": _wrong_constant,
    "wrong node": _wrong_node,
    "amplification": _amplification,
    "gradual": _gradual,
}
