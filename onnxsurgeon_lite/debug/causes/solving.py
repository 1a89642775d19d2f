"""Numbers that are solved for: one number, a number per channel, a weight by least squares; and what they say."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from onnxsurgeon_lite.debug.causes.attributes import changed, text
from onnxsurgeon_lite.debug.causes.hypothesis import Edits, Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.linear import Linear, fitted, linears, some, stacked
from onnxsurgeon_lite.debug.causes.operations import as_size
from onnxsurgeon_lite.debug.causes.place import (
    CHANNELS_SECOND,
    Constant,
    Place,
    RegionNode,
    but,
    small,
    titled,
)
from onnxsurgeon_lite.debug.causes.trying import Bench
from onnxsurgeon_lite.graph.schemas import schema_of
from onnxsurgeon_lite.passes import SetConstant
from onnxsurgeon_lite.tensors.dtypes import Array, Wide, has_floats, peak, rms, wide

Flags = NDArray[np.bool_]

_ROWS = 8  # rows of a weight that may be wrong one by one
_PART = 64  # rows and outputs whose error shows whether few rows can explain it
_EXACT = 2e-6  # a smaller error, relative to the largest result, is noise
_LEAST = 1e-4  # a smaller change, relative to the largest number, is none
_WIDEST = 1024  # inputs of a weight that is solved for as a whole
_SEVERAL = 6  # numbers in a sentence
_STEPS = (-1, 1, -2, 2)  # by which the rows of a table are off
_ROWS_OF_A_SCALE = 256  # rows that show how a weight is scaled
_LEAST_ROWS = 4  # rows of it for each that is not known
_FEW = 16  # integers that are shown
_SMALL = 1 << 16  # elements of a constant that is scaled
_NO_EPSILON = 0.25  # a larger number is none
_TINY = 1 / 16  # of the number that it stands for
_DIGITS = (1, 2, 3, 5, 8)  # of a number that is solved for
_ROUNDED = 0.04  # of the largest number: more is lost by no rounding
_LEVELS = 256  # different numbers in a channel of int8
_ENOUGH = 16  # numbers whose common step is none by chance
_SAME = 1e-5  # of the largest result: a smaller error is that of the runtime
_TO_INT8 = "looks rounded to int8"
_USED = 1e-9  # of the largest eigenvalue: along smaller ones nothing is solved for
_DETERMINED = 1e-6  # of it: smaller ones leave the noise of floats in what is solved for
_EVEN = 3**-0.5  # root mean square of numbers that are spread evenly up to one
_ABOUT = 0.05
_SOLVED = ("epsilon", "alpha", "beta", "scale")  # attributes
_ARRANGING = {"Concat", "Reshape", "Slice", "Transpose", "Cast", "Unsqueeze", "Squeeze"}
_FOLDING = ("Conv", "ConvTranspose", "Gemm")
_FOLDED = (
    "into which a normalization is folded: its mean, its bias or the bias before it is another"
)
AS_FOLDED = "as by another folded normalization (epsilon, variance or scale)"
_LAST = ("LayerNormalization", "Gemm")  # their channels are the last axis


def solved_numbers(place: Place, bench: Bench) -> Hypotheses:
    """Yield single numbers at which the region agrees, with few digits first: an attribute, a constant, a factor."""
    for make in _numbers(place):
        found = bench.solve(make)
        for digits in _DIGITS if found is not None else ():
            hypothesis = make(float(f"{found:.{digits}g}"))
            yield replace(hypothesis, unknowns=1, equations=place.wanted.size)


def _numbers(place: Place) -> Iterator[Callable[[float], Hypothesis]]:
    """Yield functions from a number to the hypothesis that it is the right one."""
    for site in place.sites:
        for name, old in site.attributes.items():
            if name in _SOLVED and isinstance(old, float) and np.isfinite(old):
                yield partial(_with_attribute, site, name)
    for constant in place.constants():
        size = constant.array.size if constant.is_float else 0
        if size == 1:
            for sign in (1.0, -1.0):  # one that was left out is 0, and has none
                yield partial(_with_number, constant, sign)
        elif 1 < size <= _SMALL:
            yield partial(_scaled_by, constant)


def _with_attribute(site: RegionNode, name: str, value: float) -> Hypothesis:
    return changed(site, {name: value})


def _with_number(constant: Constant, sign: float, value: float) -> Hypothesis:
    old = constant.array
    right = np.full(old.shape, value * sign).astype(old.dtype)
    how = f"is {text(old.item())}; with {text(float(right.item()))}"
    return Hypothesis(
        "number", f"{constant} {how}", (constant.edit(right),), vague=shrinks(old, right)
    )


def _scaled_by(constant: Constant, factor: float) -> Hypothesis:
    sentence = f"{constant} is scaled by {text(1 / factor)}; scaled back"
    return Hypothesis("scaled constant", sentence, (constant.edit(constant.numbers * factor),))


def made_up_elsewhere(place: Place, edits: Edits) -> Hypotheses:
    """Yield the change of one constant at the others of a region: a node may make up for the mistake of another."""
    every = [constant for constant in place.constants() if constant.is_float]
    for edit, mine in itertools.product(edits[:1] * (len(edits) == 1), every):
        if not isinstance(edit, SetConstant) or edit.value != mine.name:
            continue
        old, new = mine.numbers, wide(np.asarray(edit.numbers))
        for change, by in ((np.multiply, new / old), (np.multiply, old / new), (np.add, new - old)):
            same = unchanged(by, by.flat[0] + 0 * by).all() and np.isfinite(by).all()
            for other in every:
                # one number is likelier wrong than all of a weight
                if other.name == mine.name or old.size == 1 < other.array.size:
                    continue
                if same or by.shape == other.array.shape:
                    right = np.asarray(change(other.numbers, by.flat[0] if same else by))
                    how = f"{described(other.numbers, right)}; changed back"
                    yield Hypothesis("constant", f"{other} {how}", (other.edit(right),))


def shrinks(old: Array, right: Array) -> bool:
    """Return whether a number that is no epsilon should be tiny or zero: what fits then may be a limit of something."""
    was, new = peak(wide(old)), peak(wide(right))
    return has_floats(old) and was > _NO_EPSILON and new <= _TINY * was


def made_constant(place: Place) -> Hypotheses:
    """Yield the reference of a value that is a constant."""
    # the reference is a constant's right number only where the shapes are the same
    array, wanted = place.constant(place.value), place.wanted
    if array is None or array.shape != wanted.shape or array.dtype.kind in "OUS":
        return
    # a few integers are shown, a number as people write it, others are described
    constant = Constant(place.sites[place.producer[place.value]], -1, place.value, array)
    how = f"{described(wide(array), wide(wanted))}; with the numbers of the reference"
    if not has_floats(array) and array.size <= _FEW:
        how = f"is {array.tolist()}; with {wanted.tolist()}, as the reference has it,"
    elif array.size == 1:
        right = float(wanted.item())
        shown = text(right) if right.is_integer() else as_size(right)[0]
        how = f"is {text(array.item())}; with {shown}, as the reference has it,"
    yield Hypothesis("constant", f"{constant}{_role(place)} {how}", (constant.edit(wanted),))


def _role(place: Place) -> str:
    """Return what the nodes that read a constant call it: `, the pads of Pad '/Pad',`; '' if each has another name."""
    # what each reader calls the constant, by its schema
    index, names, titles = place.whole, set[str](), []
    for position in index.users(place.value):
        # follow the constant through nodes that only arrange it
        value, readers = place.value, [position]
        while len(readers) == 1 and index.nodes[readers[0]].op_type in _ARRANGING:
            value = index.nodes[readers[0]].output[0]
            readers = index.users(value)
        reader = readers[0] if readers else position
        node = index.nodes[reader]
        if value not in node.input:
            return ""  # a body of the node reads it
        schema, slot = schema_of(index, node), list(node.input).index(value)
        formal = schema.inputs[min(slot, len(schema.inputs) - 1)].name if schema else ""
        is_factor = node.op_type in ("Mul", "Div")
        names.add("a factor" if is_factor else f"the {formal}" if formal[1:] else "")
        titles.append(titled(index, reader))
    return f", {names.pop()} of {' and '.join(titles)}," if len(names) == 1 and all(names) else ""


def solved_weights(place: Place, _: Bench) -> Hypotheses:
    """Yield weights that are solved for by least squares."""
    yield from _least_squares(place)


def sparse_weights(place: Place) -> Hypotheses:
    """Yield weights in which a few rows or outputs differ, or kernels of groups, where the references prove it."""
    yield from (hypothesis for hypothesis in _least_squares(place, 0.5) if hypothesis.proves)


def _least_squares(place: Place, most: float = 1.0) -> Hypotheses:
    """Yield weights with a few other rows, then with other outputs: of one group at most this share of them."""
    for view in linears(place):
        if view.taken is None:
            every = stacked(place, view)
            yield from _some_rows(every)
            yield from _some_outputs(every, most if view.groups == 1 else 1.0)


def scaled_weights(place: Place) -> Hypotheses:
    """Yield weights and tables that are scaled: as a whole, by output, or with a shifted bias, as by folding."""
    for view in linears(place):
        yield from _scaled(view)


def _scaled(view: Linear) -> Hypotheses:
    """Yield a weight with the factor, and the shift of its bias, that give what is wanted."""
    constant, bias = view.constant, view.constant.site.constant(2)
    rows = some(view.wanted.shape[1], _ROWS_OF_A_SCALE)
    made, wanted = view.times(view.weight, rows), view.wanted[:, rows]
    # one factor for all, then one for each output, then a shift of each output as well
    for axis, shifts in ((None, False), (1, False), (1, True)):
        factor, shift = fitted(made, wanted, axis, shifts)
        left = made * factor + shift - wanted
        same = view.taken is None and bool((np.abs(factor - 1) < 1e-5).all())
        if same or not small(left, wanted) or (shifts and bias is None and view.taken is None):
            continue
        right = view.weight * factor
        ends = [1 / number for number in (factor.max(), factor.min()) if number]
        by = " to ".join(dict.fromkeys(f"{number:.4g}" for number in ends))
        how = f"is scaled{' by output' * (axis == 1)}, by {by}; scaled back"
        more: Edits = ()
        if view.taken is not None:
            right = right + shift
            by_column = " by column" * (axis == 1)
            how = f"is scaled{' and shifted' * shifts}{by_column}; with what was solved for"
        elif bias is not None and shifts:
            more = (bias.edit(bias.numbers + shift.reshape(bias.array.shape)),)
            how = f"is scaled by output, and its bias shifted, {AS_FOLDED}, by {by}; scaled back"
        edits = (constant.edit(view.stored(right)),) + more
        unknowns, known = factor.size * (1 + shifts), view.wanted.size
        yield Hypothesis("scaled constant", f"{constant} {how}", edits, (), unknowns, known)
        if view.taken is not None or peak(left) <= _SAME * peak(wanted):
            return  # what has more unknowns says no more


def elementwise(place: Place) -> Hypotheses:
    """Yield constants of additions, multiplications and normalizations, solved for channel by channel."""
    for constant in place.constants():
        wanted = constant.site.wanted
        slope = _slope(constant) if constant.is_float and wanted is not None else None
        if wanted is not None and slope is not None:
            yield from _solved_elements(constant, slope, wanted)


def _slope(constant: Constant) -> Wide | None:
    """Return how the result of a node changes with a constant, channel by channel; None where it is not linear."""
    site, slot = constant.site, constant.slot
    channels = _channels(constant)
    # linear in what is added, in a factor, in a bias, in a mean; all else is left to steps
    match site.op_type, slot:
        case "Add", _:
            return np.ones(())
        case "Sub", _:
            return np.ones(()) * (-1 if slot else 1)
        case "Mul", _ if (other := site.operand(1 - slot)) is not None:
            both = site.constant(1 - slot) is not None and has_floats(other)
            return None if both else wide(other)
        case _, 2 if channels and site.op_type in _LAST + CHANNELS_SECOND:
            return np.ones(())
        case "BatchNormalization", 3 if channels:
            scale, variance = site.constant(1), site.constant(4)
            if scale is not None and variance is not None and scale.array.all():
                slope = -scale.numbers / np.sqrt(variance.numbers + 1e-5)
                return slope.reshape(channels)
    return None


def _channels(constant: Constant) -> tuple[int, ...] | None:
    """Return the shape in which a constant of a node meets its result; None if it has another form."""
    site, array = constant.site, constant.array
    if site.op_type in ("Add", "Sub", "Mul"):
        return array.shape
    if array.ndim != 1 or site.made is None or site.made.ndim < 2:
        return None
    shape = [1] * site.made.ndim
    axis = -1 if site.op_type in _LAST else 1
    shape[axis] = array.size
    return tuple(shape) if site.made.shape[axis] == array.size else None


def _solved_elements(constant: Constant, slope: Wide, wanted: Wide) -> Hypotheses:
    """Solve for a constant, element by element of it, over all that it is broadcast to."""
    old, made, shape = constant.numbers, constant.site.made, _channels(constant)
    if made is None or shape is None or wanted.shape != np.broadcast_shapes(wanted.shape, shape):
        return
    shape = (1,) * (wanted.ndim - len(shape)) + shape
    axes = tuple(axis for axis, size in enumerate(shape) if size == 1)
    # least squares of one unknown: slope * change = what is lacking
    every = np.broadcast_to(slope, wanted.shape)
    power = np.square(every).sum(axis=axes, keepdims=True)
    products = (every * (wanted - wide(made))).sum(axis=axes, keepdims=True)
    change = np.divide(products, power, out=np.zeros_like(power), where=power > 0)
    solved = old + change.reshape(old.shape)
    same = unchanged(old, solved)
    if not np.isfinite(solved).all() or same.all():
        return
    if 2 * same.sum() > same.size:  # else a few are alike by chance
        solved = np.where(same, old, solved)
    per = wanted.size // max(1, old.size)
    moved = shifted(old, solved, _LEAST_ROWS)
    if moved is not None:
        axis, step, solved = moved
        how = f"is off by {abs(step)} along axis {axis}; moved by {step}, with what enters there"
        unknowns, equations = abs(step) * old.size // old.shape[axis], old.size * per
    else:
        solved, unknowns = _tied(old, solved)
        how = different(constant, solved)
        equations = int((solved != old).sum()) * per  # what the other numbers give was right before
    yield solved_constant(constant, solved, how, unknowns, equations)


def _is_folded(constant: Constant) -> bool:
    """Return whether a constant is the bias of a node into which an exporter folded a normalization after it."""
    site = constant.site
    is_bias = site.op_type in _FOLDING and constant.slot > 1
    return is_bias and "BatchNorm" in site.place.module and site.output == site.place.value


def _tied(old: Wide, solved: Wide) -> tuple[Wide, int]:
    """Return (right numbers, unknowns): those that are the same all along an axis are one."""
    unknowns = int((solved != old).sum())
    for axis, size in enumerate(solved.shape):
        mean = np.broadcast_to(solved.mean(axis=axis, keepdims=True), solved.shape)
        if size > 1 and unchanged(mean, solved).all():
            solved, unknowns = mean, -(-unknowns // size)
    return solved, unknowns


def unchanged(old: Wide, solved: Wide) -> Flags:
    """Return which numbers are the same, but for noise."""
    return np.asarray(np.abs(solved - old) <= _LEAST * max(peak(old), peak(solved)))


def different(constant: Constant, right: Wide) -> str:
    """Say how a constant differs from the right numbers."""
    how = borrowed(constant) or described(constant.numbers, right)
    return f"differs, {_FOLDED}" if how == "differs" and _is_folded(constant) else how


def solved_constant(
    constant: Constant, right: Wide, how: str, unknowns: int, equations: int
) -> Hypothesis:
    """Return the hypothesis that a node's constant should have other numbers, which were solved for."""
    with_ = " solved for," if ";" in how else "; solved for"
    edits, vague = (constant.edit(right),), how == "differs"
    sentence = f"{constant} {how}{with_}"
    return Hypothesis("solved constant", sentence, edits, (), unknowns, equations, vague=vague)


def shifted(old: Wide, right: Wide, least: int = 1) -> tuple[int, int, Wide] | None:
    """Return (axis, step, the moved numbers) of a constant whose rows are off by one or two; None if they are not.

    Args:
        least: rows for each by which they are off, at least.
    """
    for axis, step in itertools.product(range(old.ndim), _STEPS):
        # rows that enter at one end have new numbers, all others are moved
        size, rows = old.shape[axis], np.arange(old.shape[axis])
        fresh = rows < step if step > 0 else rows >= size + step
        along = np.expand_dims(fresh, but(old, axis))
        moved = np.where(along, right, np.roll(old, step, axis))
        if size > least * abs(step) and unchanged(moved, right).all():
            return axis, step, moved
    return None


def _some_rows(view: Linear) -> Hypotheses:
    """Yield weights in which a few rows differ: those that explain most of the error, one after the other."""
    if view.groups > 1 or _is_of_many_rows(view):
        return
    rows, weight, wanted = view.rows[0], view.weight[0], view.wanted[0]
    error = wanted - rows @ weight
    if not np.isfinite(error).all():
        return
    # greedy: the row that explains most of what is left, then least squares of all chosen ones
    power, chosen, left = np.square(rows).sum(0), list[int](), error
    for _ in range(min(_ROWS, len(power))):
        explained = np.square(rows.T @ left).sum(1)
        gain = np.divide(explained, power, out=np.zeros(len(power)), where=power > 0)
        gain[chosen] = 0
        chosen.append(int(gain.argmax()))
        inputs = rows[:, chosen]
        change = np.linalg.lstsq(inputs, error, rcond=None)[0]
        left = error - inputs @ change
        if small(left, wanted):
            right = weight.copy()
            right[chosen] += change
            yield _weight(view, right[None], len(chosen), _wrong(view, error[None]))
            return


def _is_of_many_rows(view: Linear) -> bool:
    """Return whether no few rows explain a part of the error: they leave at least what they have no rank for.

    Source: Eckart and Young, "The approximation of one matrix by another of lower rank", 1936.
    """
    rows, outputs = (slice(None, None, max(1, size // _PART)) for size in view.wanted[0].shape)
    error = view.wanted[0][rows, outputs] - view.rows[0][rows] @ view.weight[0][:, outputs]
    if not np.isfinite(error).all():
        return True
    left = np.square(np.linalg.svd(error, compute_uv=False)[_ROWS:]).sum()
    return not small(np.sqrt(left / error.size) / (1 + _LEAST), view.wanted)


def _some_outputs(view: Linear, most: float) -> Hypotheses:
    """Yield the weight solved for as a whole, at the outputs that are wrong: [groups, inputs, outputs]."""
    error, inputs = view.wanted - view.rows @ view.weight, view.rows.shape[2]
    wrong = _wrong(view, error)
    few = 0 < wrong.sum() <= most * wrong.size
    if not few or inputs > _WIDEST or not np.isfinite(error).all():
        return
    # normal equations, along the directions that the rows determine
    columns = view.rows.swapaxes(1, 2)
    sizes, axes = np.linalg.eigh(columns @ view.rows)
    largest = sizes.max(axis=1, initial=0.0, keepdims=True)
    inverse = np.divide(1, sizes, out=np.zeros_like(sizes), where=sizes > _USED * largest)
    error = error * wrong
    change = axes @ (inverse[..., None] * (axes.swapaxes(1, 2) @ (columns @ error)))
    if not small(error - view.rows @ change, view.wanted):
        return
    right = view.weight + change
    found = _weight(view, right, inputs, wrong)
    only = bool((sizes > _DETERMINED * largest).all()) and bool(wrong.all())
    bounded = only and is_rounded(view.constant.numbers, np.asarray(view.stored(right)))
    yield replace(found, bounded=bounded)


def is_rounded(old: Wide, right: Wide) -> bool:
    """Return whether a weight is another one rounded to int8: no number is off by more than half a step.

    The errors of rounding are spread evenly, which those of another mistake are not.
    """
    # half a step, of the whole or of each channel
    off = _steps(old) / 2
    if old.size < _ENOUGH or not off.all():
        return False
    share = np.abs(right - old) / off
    is_even = abs(rms(share) - _EVEN) <= _ABOUT
    return is_even and float(share.max()) <= 1 + _ABOUT


def _wrong(view: Linear, error: Wide) -> Flags:
    """Return the outputs with an error [groups, 1, outputs]: only these are solved for, and are equations."""
    largest = np.abs(error).max(axis=1, initial=0.0, keepdims=True)
    return np.asarray(largest > _EXACT * peak(view.wanted))


def _weight(view: Linear, right: Wide, inputs: int, wrong: Flags) -> Hypothesis:
    """Return the hypothesis of a weight, solved for in some inputs of each wrong output.

    Inputs that the rows do not distinguish are unknown nonetheless: other rows may.
    """
    constant, count = view.constant, int(wrong.sum())
    old, stored = constant.numbers, np.asarray(view.stored(right))
    if view.groups > 1:
        stored = np.where(unchanged(old, stored), old, stored)
    # equal rows say the same: they are one equation
    rounded = np.round(view.rows / (peak(view.rows) or 1), 4)
    distinct = min(len(np.unique(rows, axis=0)) for rows in rounded)
    how = borrowed(constant) or described(old, stored)
    found = solved_constant(constant, stored, how, inputs * count, distinct * count)
    return replace(found, plain=plain(constant, how))


def plain(constant: Constant, how: str) -> str:
    """Say what is wrong with a constant whatever the right numbers are; '' if that is not known."""
    if how.startswith(_TO_INT8):
        steps = _steps(constant.numbers)
        by = " to ".join(dict.fromkeys(f"{n:.3g}" for n in (steps.min(), steps.max())))
        how = f"{_TO_INT8} (step {by})"
    elif not how.startswith("is zero"):
        return ""
    return f"{constant} {how}"


def borrowed(constant: Constant) -> str:
    """Say from which other layer a constant is; '' if no other one has these numbers."""
    place, array = constant.site.place, constant.array
    for name, tensor in place.whole.initializers.items() if np.ptp(array) else ():
        alike = isinstance(tensor, TensorProto) and tuple(tensor.dims) == array.shape
        if (
            name != constant.name
            and alike
            and np.array_equal(place.whole.model.array(tensor), array)
        ):
            return f"is another layer's: a copy of {name!r}"
    readers = set(place.whole.users(constant.name)) - set(place.positions)
    return "is another layer's, which reads it too" if array.ndim > 1 and readers else ""


def described(old: Wide, right: Wide) -> str:
    """Say how a constant differs from the right one."""
    largest = max(peak(old), peak(right)) or 1.0
    looks = rounding(old)
    if looks and peak(right - old) <= _ROUNDED * largest:
        return f"{looks}differs"
    off = np.abs(right - old) > _LEAST * largest
    # only some rows of an axis
    for axis, size in enumerate(old.shape):
        wrong = np.flatnonzero(off.any(axis=but(old, axis)))
        if 0 < len(wrong) < size and len(wrong) <= max(1, size // 2):
            which = ", ".join(map(str, wrong[:_SEVERAL])) + ", ..." * (len(wrong) > _SEVERAL)
            where = f"[{which}]" if old.ndim == 1 else f"[{which}] of axis {axis}"
            zero = not np.take(old, wrong, axis).any()
            if not zero and not old[off].any():
                return f"is zero at {off.sum()} places in {where}"
            return f"{'is zero' if zero else 'differs only'} at {where}"
    # everywhere
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
        steps = np.array(list(itertools.takewhile(bool, each)))  # most have none at once
        if len(steps) == array.shape[axis]:
            return steps.reshape([len(steps) if a == axis else 1 for a in range(array.ndim)])
    return whole


def _step(array: Wide) -> float:
    """Return the largest step that all numbers are small multiples of; 0 if there is none, or it may be chance."""
    largest = peak(array)
    if array.size < _ENOUGH or not largest:
        return 0.0
    sampled = array.reshape(-1)[:: max(1, array.size // _LEVELS)]
    levels = np.arange(2, _LEVELS // 2)
    counts = sampled / largest * levels[:, None]
    fits = (np.abs(counts - np.round(counts)) < _LEAST * _LEVELS).all(axis=1)
    return largest / float(levels[fits.argmax()]) if fits.any() else 0.0
