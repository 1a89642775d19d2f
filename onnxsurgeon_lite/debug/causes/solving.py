"""Numbers that are solved for: one number, a number per channel, a weight by least squares."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from onnxsurgeon_lite.debug.causes.attributes import changed, numbers, text
from onnxsurgeon_lite.debug.causes.hypothesis import Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.linear import Linear, linears, stacked, wanted_at
from onnxsurgeon_lite.debug.causes.operations import as_size
from onnxsurgeon_lite.debug.causes.place import Attribute, Indices, Place, Wide, small, titled, wide
from onnxsurgeon_lite.debug.causes.trying import Bench
from onnxsurgeon_lite.graph.schemas import schema_of
from onnxsurgeon_lite.passes.set_constant import SetConstant
from onnxsurgeon_lite.tensors.dtypes import Array, is_float

_ROWS = 8  # rows of a weight that may be wrong one by one
_PART = 64  # rows and outputs whose error tells whether few rows can explain it
_EXACT = 2e-6  # a smaller error, relative to the largest result, is noise
_LEAST = 1e-4  # a smaller change, relative to the largest number, is none
_WIDEST = 1024  # inputs of a weight that is solved for as a whole
_SEVERAL = 6  # numbers in a sentence
_STEPS = (-1, 1, -2, 2)  # by which the rows of a table are off
_LEAST_ROWS = 4  # rows of it for each that is not known
_FEW = 16  # integers that are shown
_SMALL = 1 << 16  # elements of a constant that is scaled
_NO_EPSILON = 0.25  # a larger number is none
_TINY = 1 / 16  # of the number that it stands for
_DIGITS = (1, 2, 3, 5)  # of a number that is solved for
_ROUNDED = 0.04  # of the largest number: more is lost by no rounding
_LEVELS = 256  # different numbers in a channel of int8
_ENOUGH = 16  # numbers whose common step is none by chance
_TO_INT8 = "looks rounded to int8"
_DETERMINED = (
    1e-6  # of the largest eigenvalue: smaller ones leave the noise of floats in what is solved for
)
_EVEN = 3**-0.5  # root mean square of numbers that are spread evenly up to one
_ABOUT = 0.05
_FACTORS = {"Mul", "Div"}
_ARRANGING = {"Concat", "Reshape", "Slice", "Transpose", "Cast", "Unsqueeze", "Squeeze"}
_FOLDING = ("Conv", "ConvTranspose", "Gemm")
_FOLDED = (
    "into which a normalization is folded: its mean, its bias or the bias before it is another"
)
_BIASED = (
    *("Conv", "Gemm", "ConvTranspose", "LayerNormalization", "BatchNormalization"),
    *("InstanceNormalization", "GroupNormalization"),
)  # fmt: skip


def solved_numbers(place: Place, bench: Bench) -> Hypotheses:
    """Yield single numbers at which the region agrees: an attribute, a constant, a missing factor."""
    for number, name, known in numbers(place):
        yield from _solved_number(place, bench, partial(_attribute, place, number, name, known))
    for number, _, name, array in place.constants():
        if array.size == 1 and is_float(array.dtype) and float(array.reshape(-1)[0]):
            yield from _solved_number(place, bench, partial(_constant, place, number, name, array))
        elif 1 < array.size <= _SMALL and is_float(array.dtype):
            yield from _solved_number(place, bench, partial(_scaled, place, number, name, array))


def _solved_number(place: Place, bench: Bench, make: Callable[[float], Hypothesis]) -> Hypotheses:
    """Yield the number with which the error is the smallest, with few digits first."""
    found = bench.solve(make)
    for digits in () if found is None else (*_DIGITS, 8):
        yield replace(make(float(f"{found:.{digits}g}")), unknowns=1, equations=place.wanted.size)


def made_constant(place: Place) -> Hypotheses:
    """Yield the reference of a value that is a constant."""
    array = place.constant(place.value)
    if array is None or array.shape != place.wanted.shape or array.dtype.kind in "OUS":
        return
    how = f"{described(wide(array), wide(place.wanted))}; with the numbers of the reference"
    if not is_float(array.dtype) and array.size <= _FEW:
        how = f"is {array.tolist()}; with {place.wanted.tolist()}, as the reference has it,"
    elif array.size == 1:
        right = float(place.wanted.item())
        shown = text(right) if right.is_integer() else as_size(right)[0]
        how = f"is {text(array.item())}; with {shown}, as the reference has it,"
    edit = SetConstant(place.value, place.wanted.astype(array.dtype))
    sentence = f"constant {place.value!r} of {place.maker}{_role(place)} {how}"
    yield Hypothesis("constant", sentence, (edit,))


def _role(place: Place) -> str:
    """Return what the nodes that read a constant call it: `, the pads of Pad '/Pad',`; '' if each has another name."""
    index, names, titles = place.whole, set[str](), []
    for position in dict.fromkeys(index.consumers.get(place.value, [])):
        value, readers = place.value, [position]
        while len(readers) == 1 and index.nodes[readers[0]].op_type in _ARRANGING:
            value = index.nodes[readers[0]].output[0]
            readers = index.consumers.get(value, [])
        reader = readers[0] if readers else position
        node = index.nodes[reader]
        if value not in node.input:
            return ""  # a body of the node reads it
        schema, slot = schema_of(index, node), [*node.input].index(value)
        formal = schema.inputs[min(slot, len(schema.inputs) - 1)].name if schema else ""
        names.add("a factor" if node.op_type in _FACTORS else f"the {formal}" if formal[1:] else "")
        titles.append(titled(index, reader))
    return f", {names.pop()} of {' and '.join(titles)}," if len(names) == 1 and all(names) else ""


def _attribute(
    place: Place, number: int, name: str, known: Mapping[str, Attribute], value: float
) -> Hypothesis:
    return changed(place, number, {name: value}, known)


def _constant(place: Place, number: int, name: str, array: Array, value: float) -> Hypothesis:
    value *= float(np.sign(wide(array).flat[0]))
    right = np.full(array.shape, value).astype(array.dtype)
    sentence = f"constant {name!r} of {place.title(number)} is {text(array.reshape(-1)[0].item())}; with {text(value)}"
    edits = (SetConstant(name, right, place.only(number)),)
    return Hypothesis("number", sentence, edits, vague=dwarfed(array, right))


def dwarfed(old: Array, right: Array) -> bool:
    """Return whether a number that is no epsilon should be tiny or zero: what fits then may be a limit of something."""
    was, new = float(np.abs(wide(old)).max()), float(np.abs(wide(right)).max())
    return is_float(old.dtype) and was > _NO_EPSILON and new <= _TINY * was


def _scaled(place: Place, number: int, name: str, array: Array, factor: float) -> Hypothesis:
    right = (wide(array) * factor).astype(array.dtype)
    how = f"is scaled by {text(1 / factor)}; scaled back"
    edit = SetConstant(name, right, place.only(number))
    return Hypothesis(
        "scaled constant", f"constant {name!r} of {place.title(number)} {how}", (edit,)
    )


def solved_weights(place: Place, _: Bench) -> Hypotheses:
    """Yield weights that are solved for by least squares."""
    for view in linears(place):
        every = stacked(place, view)
        yield from _some_rows(place, every)
        yield from _some_outputs(place, every)


def sparse_weights(place: Place) -> Hypotheses:
    """Yield weights in which a few rows or outputs differ, where the references prove it."""
    for view in linears(place):
        every = stacked(place, view)
        found = (*_some_rows(place, every), *_some_outputs(place, every, 0.5))
        yield from (hypothesis for hypothesis in found if hypothesis.proves)


@dataclass(frozen=True)
class Operand:
    """A constant that a node adds to its result or multiplies it by, channel by channel."""

    number: int
    name: str
    array: Array
    sign: float  # of what is added; 0 for a factor
    other: Wide  # what it is added to or multiplied by


def elementwise(place: Place) -> Hypotheses:
    """Yield constants of additions, multiplications and normalizations."""
    for number in range(len(place.nodes)):
        wanted = wanted_at(place, number)
        made = place.values.get(place.nodes[number].output[0])
        if wanted is None or made is None:
            continue
        for operand in _operands(place, number, wide(made)):
            yield from _solved_operand(place, operand, wanted)


def _operands(place: Place, number: int, made: Wide) -> Iterator[Operand]:
    """Yield the constants of a node that its result depends on linearly, each channel by itself."""
    node = place.nodes[number]
    constants = {slot: place.constant(name) for slot, name in enumerate(node.input)}
    known = {s: a for s, a in constants.items() if a is not None and is_float(a.dtype)}
    others = {s: place.operand(name) for s, name in enumerate(node.input) if s not in known}
    for slot, array in known.items():
        name, right = node.input[slot], wide(array)
        channels = _channels(place, number, slot, made)
        match node.op_type, slot:
            case ("Add", _) | ("Sub", _):
                sign = -1.0 if node.op_type == "Sub" and slot else 1.0
                yield Operand(number, name, array, sign, made - sign * right)
            case ("Mul", _) if (other := others.get(1 - slot)) is not None:
                yield Operand(number, name, array, 0.0, wide(other))
            case _, 2 if channels and node.op_type in _BIASED:
                yield Operand(number, name, array, 1.0, made - right.reshape(channels))
            case ("BatchNormalization", 3) if channels and 4 in known and 1 in known:
                factor = wide(known[1]) / np.sqrt(wide(known[4]) + 1e-5)
                if factor.all():
                    slope = np.broadcast_to(-factor.reshape(channels), made.shape)
                    yield Operand(number, name, array, 0.0, slope)


def _channels(place: Place, number: int, slot: int, made: Wide) -> tuple[int, ...] | None:
    """Return the shape in which a constant of a node meets its result; None if it has another form."""
    node, array = place.nodes[number], place.constant(place.nodes[number].input[slot])
    if array is None or array.ndim != 1 or made.ndim < 2:
        return None
    axis = made.ndim - 1 if node.op_type in ("LayerNormalization", "Gemm") else 1
    if made.shape[axis] != array.size:
        return None
    return tuple(array.size if a == axis else 1 for a in range(made.ndim))


def _solved_operand(place: Place, operand: Operand, wanted: Wide) -> Hypotheses:
    """Solve for a constant, element by element of it, over all that it is broadcast to."""
    array, number = operand.array, operand.number
    node, shape, old = place.nodes[number], array.shape, wide(array)
    if node.op_type not in ("Add", "Sub", "Mul"):
        slot = list(node.input).index(operand.name)
        shape = _channels(place, number, slot, wanted) or shape
    if wanted.shape != np.broadcast_shapes(wanted.shape, shape):
        return
    lead = (1,) * (wanted.ndim - len(shape)) + shape
    axes = tuple(a for a, size in enumerate(lead) if size == 1)
    per = wanted.size // max(1, int(np.prod(lead)))
    with np.errstate(all="ignore"):
        if operand.sign:
            right = operand.sign * (wanted - operand.other).mean(axis=axes, keepdims=True)
        elif node.op_type == "BatchNormalization":
            made = place.values[node.output[0]].astype(np.float64)
            delta = (wanted - made).mean(axis=axes, keepdims=True)
            factor = operand.other.mean(axis=axes, keepdims=True)
            right = old.reshape(lead) + delta / factor
        else:
            other = np.broadcast_to(operand.other, wanted.shape)
            power = (other * other).sum(axis=axes, keepdims=True)
            products = (other * wanted).sum(axis=axes, keepdims=True)
            out = old.reshape(lead).copy()
            right = np.divide(products, power, out=out, where=power > 0)
    solved = right.reshape(array.shape)
    same = unchanged(old, solved)
    if not np.isfinite(solved).all() or same.all():
        return
    if 2 * same.sum() > same.size:  # else a few are alike by chance
        solved = np.where(same, old, solved)
    shifted = _shifted(old, solved)
    if shifted is not None:
        how, solved, unknowns = shifted
        equations = solved.size * per
    else:
        solved, unknowns = _tied(old, solved)
        how = borrowed(place, operand.name, array) or described(old, solved)
        if how == "differs" and _is_folded(place, operand):
            how = f"differs, {_FOLDED}"
        equations = int((solved != old).sum()) * per  # what the other numbers give was right before
    right = solved.astype(array.dtype)
    yield solved_constant(place, number, operand.name, right, how, unknowns, equations)


def _is_folded(place: Place, operand: Operand) -> bool:
    """Return whether a constant is the bias of a node into which an exporter folded a normalization behind it."""
    node = place.nodes[operand.number]
    is_bias = node.op_type in _FOLDING and operand.name in node.input[2:]
    return is_bias and "BatchNorm" in place.module and node.output[0] == place.value


def _tied(old: Wide, solved: Wide) -> tuple[Wide, int]:
    """Return (right numbers, unknowns): those that are the same all along an axis are one."""
    unknowns = int((solved != old).sum())
    for axis, size in enumerate(solved.shape):
        mean = np.broadcast_to(solved.mean(axis=axis, keepdims=True), solved.shape)
        if size > 1 and unchanged(mean, solved).all():
            solved, unknowns = mean, -(-unknowns // size)
    return solved, unknowns


def unchanged(old: Wide, solved: Wide) -> NDArray[np.bool_]:
    """Return which numbers are the same, but for noise."""
    largest = max(float(np.abs(old).max()), float(np.abs(solved).max()))
    return np.asarray(np.abs(solved - old) <= _LEAST * largest)


def solved_constant(
    place: Place, number: int, name: str, right: Array, how: str, unknowns: int, equations: int
) -> Hypothesis:
    """Return the hypothesis that a node's constant should have other numbers, which were solved for."""
    with_ = " solved for," if ";" in how else "; solved for"
    sentence = f"constant {name!r} of {place.title(number)} {how}{with_}"
    edits = (SetConstant(name, right, place.only(number)),)
    vague = how == "differs"
    return Hypothesis("solved constant", sentence, edits, (), unknowns, equations, vague=vague)


def _shifted(old: Wide, solved: Wide) -> tuple[str, Wide, int] | None:
    """Return (what is wrong, right numbers, unknowns) of a constant whose rows are off by a few; None if not."""
    for axis, step in itertools.product(range(old.ndim), _STEPS):
        size = old.shape[axis]
        at = [size if a == axis else 1 for a in range(old.ndim)]
        rows = np.arange(size)
        fresh = (rows < step if step > 0 else rows >= size + step).reshape(at)
        moved = np.where(fresh, solved, np.roll(old, step, axis))
        if size > _LEAST_ROWS * abs(step) and unchanged(moved, solved).all():
            how = (
                f"is off by {abs(step)} along axis {axis}; moved by {step}, with what enters there"
            )
            return how, moved, abs(step) * old.size // size
    return None


def _some_rows(place: Place, view: Linear) -> Hypotheses:
    """Yield weights in which a few rows differ: those that explain most of the error, one after the other."""
    if _is_of_many_rows(view):
        return
    error = view.wanted - view.rows @ view.weight
    power = np.square(view.rows).sum(0)
    chosen: list[int] = []
    left = error
    if not np.isfinite(error).all():
        return
    for _ in range(min(_ROWS, len(power))):
        gain = np.divide(
            np.square(view.rows.T @ left).sum(1), power, out=np.zeros(len(power)), where=power > 0
        )
        gain[chosen] = 0
        chosen.append(int(gain.argmax()))
        inputs = view.rows[:, chosen]
        change = np.linalg.lstsq(inputs, error, rcond=None)[0]
        left = error - inputs @ change
        right = view.weight.copy()
        right[chosen] += change
        if small(left, view.wanted):
            yield _weight(place, view, right, len(chosen), _wrong(view, error))
            return


def _is_of_many_rows(view: Linear) -> bool:
    """Return whether no few rows explain a part of the error: they leave at least what they have no rank for.

    Source: Eckart and Young, "The approximation of one matrix by another of lower rank", 1936.
    """
    rows, outputs = (slice(None, None, max(1, size // _PART)) for size in view.wanted.shape)
    error = view.wanted[rows, outputs] - view.rows[rows] @ view.weight[:, outputs]
    if not np.isfinite(error).all():
        return True
    left = np.square(np.linalg.svd(error, compute_uv=False)[_ROWS:]).sum()
    return not small(np.sqrt(left / error.size) / (1 + _LEAST), view.wanted)


def _some_outputs(place: Place, view: Linear, most: float = 1.0) -> Hypotheses:
    """Yield the weight solved for as a whole, at the outputs that are wrong."""
    error = view.wanted - view.rows @ view.weight
    wrong, inputs = _wrong(view, error), view.rows.shape[1]
    few = 0 < wrong.size <= most * error.shape[1]
    if not few or inputs > _WIDEST or not np.isfinite(error).all():
        return
    products = view.rows.T @ view.rows
    sizes, turned = np.linalg.eigh(products)
    kept = turned[:, sizes > 1e-9 * sizes.max(initial=0.0)]
    along = kept.T @ (view.rows.T @ error[:, wrong])
    change = kept @ (along / sizes[sizes > 1e-9 * sizes.max(initial=0.0)][:, None])
    right = view.weight.copy()
    right[:, wrong] += change
    if small(error[:, wrong] - view.rows @ change, view.wanted):
        found = _weight(place, view, right, inputs, wrong)
        only = sizes.min() > _DETERMINED * sizes.max()
        bounded = only and wrong.size == error.shape[1]
        bounded = bounded and is_rounded(wide(view.array), np.asarray(view.stored(right)))
        yield replace(found, bounded=bounded)


def is_rounded(old: Wide, right: Wide) -> bool:
    """Return whether a weight is another one rounded to int8: no number is off by more than half a step.

    The errors of rounding are spread evenly, which those of another mistake are not.
    """
    off = _steps(old) / 2
    if old.size < _ENOUGH or not off.all():
        return False
    share = np.abs(right - old) / off
    is_even = abs(float(np.sqrt(np.mean(np.square(share)))) - _EVEN) <= _ABOUT
    return is_even and float(share.max()) <= 1 + _ABOUT


def _wrong(view: Linear, error: Wide) -> Indices:
    """Return the outputs with an error: only their numbers are solved for, and only their results are equations."""
    scale = float(np.abs(view.wanted).max(initial=0.0))
    return np.flatnonzero(np.abs(error).max(axis=0, initial=0.0) > _EXACT * scale)


def _weight(place: Place, view: Linear, right: Wide, inputs: int, wrong: Indices) -> Hypothesis:
    """Return the hypothesis of a weight, solved for in some inputs of each wrong output.

    Inputs that the rows do not distinguish are unknown nonetheless: other rows may.
    """
    stored = np.asarray(view.stored(right))
    distinct = len(np.unique(np.round(view.rows / (np.abs(view.rows).max() or 1), 4), axis=0))
    how = borrowed(place, view.name, view.array) or described(wide(view.array), stored)
    numbers, unknowns, equations = (
        stored.astype(view.array.dtype),
        inputs * wrong.size,
        distinct * wrong.size,
    )
    found = solved_constant(place, view.number, view.name, numbers, how, unknowns, equations)
    said = plain(place.title(view.number), view.name, wide(view.array), how)
    return replace(found, plain=said)


def plain(title: str, name: str, array: Wide, how: str) -> str:
    """Say what is wrong with a constant whatever the right numbers are; '' if that is not known."""
    if how.startswith(_TO_INT8):
        steps = _steps(array)
        by = " to ".join(dict.fromkeys(f"{n:.3g}" for n in (steps.min(), steps.max())))
        how = f"{_TO_INT8} (step {by})"
    elif not how.startswith("is zero"):
        return ""
    return f"constant {name!r} of {title} {how}"


def borrowed(place: Place, name: str, array: Array) -> str:
    """Say from which other layer a constant is; '' if no other one has these numbers."""
    tensors = ((n, t) for n, t in place.whole.initializers.items() if n != name)
    alike = (
        n
        for n, tensor in tensors
        if isinstance(tensor, TensorProto)
        and tuple(tensor.dims) == array.shape
        and np.array_equal(place.whole.model.array(tensor), array)
    )
    other = next(alike, None) if np.ptp(array) else None
    if other is not None:
        return f"is another layer's: a copy of {other!r}"
    readers = [p for p in place.whole.consumers.get(name, []) if p not in place.positions]
    if array.ndim > 1 and readers:
        return "is another layer's, which reads it too"
    return ""


def described(old: Wide, right: Wide) -> str:
    """Say how a constant differs from the right one."""
    largest = max(float(np.abs(old).max(initial=0.0)), float(np.abs(right).max(initial=0.0))) or 1.0
    looks = rounding(old)
    if looks and np.abs(right - old).max() <= _ROUNDED * largest:
        return f"{looks}differs"
    off = np.abs(right - old) > _LEAST * largest
    for axis, size in enumerate(old.shape):
        others = tuple(a for a in range(old.ndim) if a != axis)
        wrong = np.flatnonzero(off.any(axis=others))
        if 0 < len(wrong) < size and len(wrong) <= max(1, size // 2):
            rest = ["..."] if len(wrong) > _SEVERAL else []
            which = ", ".join([*map(str, wrong[:_SEVERAL]), *rest])
            zero = not np.take(old, wrong, axis).any()
            where = f"[{which}]" if old.ndim == 1 else f"[{which}] of axis {axis}"
            if not zero and not old[off].any():
                return f"is zero at {off.sum()} places in {where}"
            return f"{'is zero' if zero else 'differs only'} at {where}"
    if not old.any():
        return "is zero everywhere"
    if off.any() and not old[off].any():
        return f"is zero at {off.sum()} places"
    if old.size > 1 and np.ptp(old) == 0:
        return f"is {text(float(old.flat[0]))} everywhere"
    factor = float((right * old).sum() / np.square(old).sum())
    if np.allclose(right, factor * old, rtol=1e-3, atol=_LEAST * largest):
        return f"is scaled by {1 / factor:.4g}" if factor else "should be zero"
    if np.ptp(right - old) <= 1e-3 * largest and old.size > 1:
        return f"is shifted by {float((old - right).mean()):.4g}"
    return f"{looks}differs"


def rounding(array: Wide) -> str:
    """Say to what dtype a constant looks rounded."""
    if _steps(array).all():
        return f"{_TO_INT8} and "
    with np.errstate(all="ignore"):
        if (array.astype(np.float32).view(np.uint32) & 0xFFFF == 0).all():
            return "looks rounded to bfloat16 and "
        if (array.astype(np.float16).astype(np.float64) == array).all():
            return "looks rounded to float16 and "
    return ""


def _steps(array: Wide) -> Wide:
    """Return the step that all numbers are small multiples of, or that of each channel along an axis; 0 for none."""
    whole = np.full((1,) * array.ndim, _step(array))
    for axis in range(array.ndim) if array.ndim > 1 and not whole.all() else ():
        each = map(_step, np.moveaxis(array, axis, 0))
        steps = np.array([*itertools.takewhile(bool, each)])  # most have none at once
        if len(steps) == array.shape[axis]:
            return steps.reshape([len(steps) if a == axis else 1 for a in range(array.ndim)])
    return whole


def _step(array: Wide) -> float:
    """Return the largest step that all numbers are small multiples of; 0 if there is none, or it may be chance."""
    largest = float(np.abs(array).max(initial=0.0))
    if array.size < _ENOUGH or not largest:
        return 0.0
    sampled = array.reshape(-1)[:: max(1, array.size // _LEVELS)]
    levels = np.arange(2, _LEVELS // 2)
    counts = sampled / largest * levels[:, None]
    fits = (np.abs(counts - np.round(counts)) < _LEAST * _LEVELS).all(axis=1)
    return largest / float(levels[fits.argmax()]) if fits.any() else 0.0
