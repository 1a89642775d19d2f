"""Mistakes in constants: transposed, permuted, rounded, another layer's, off by one, another mask."""

import itertools
import math
from collections.abc import Callable, Container, Iterator, Sequence

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from onnxsurgeon_lite.debug.causes.attributes import EPSILONS, text
from onnxsurgeon_lite.debug.causes.hypothesis import Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.linear import Linear, fitted, linears, wanted_at
from onnxsurgeon_lite.debug.causes.place import Place, Wide, small, wide
from onnxsurgeon_lite.debug.causes.solving import described, dwarfed
from onnxsurgeon_lite.passes import Pass, SetConstant
from onnxsurgeon_lite.tensors.dtypes import Array, is_array, is_float

Order = NDArray[np.intp]
Variant = tuple[str, str, Array]
"""(kind of mistake, what is wrong and what was done about it, the right numbers)."""

AS_FOLDED = "as by another folded normalization (epsilon, variance or scale)"
_ROWS = 64  # rows that a factor is computed from
_SMALL = 1 << 16  # elements of a constant; every variant of a smaller one is run
_CHUNKS = (3, 4, 2)  # parts that people order differently: Q K V, gates, halves
_MOST_PARTS = 64  # divisors that are tried as a number of heads
_FEW = 8  # elements of a constant whose elements are tried one by one
_HUGE = 2.0**31  # a larger index means the end
_KERNELS = ("Conv", "ConvTranspose")
_EXCHANGED: dict[tuple[int, ...], str] = {
    (1, 0, 2, 3): "in and out channels exchanged",
    (0, 1, 3, 2): "height and width exchanged",
    (2, 3, 1, 0): "axes laid out as HWIO",
    (0, 2, 3, 1): "axes laid out as OHWI",
}
"""Axes -> the words for a kernel that is stored in their order."""
_MASKING = -1e3  # a smaller number masks
_HALF = 0.5  # the power that is a root
_SAME = 1e-5  # of the largest result: a smaller error is that of the runtime
_ZERO_POINTS = {"uint8": (128, 127, 255), "int8": (-128, -127)}
_SCALARS = (
    *(1e-5, 1e-6, 1e-12, 1e-3, 1e-8, 1e-7, 0.0, 1.0, -1.0, 2.0, 0.5, 1 / 255, 255.0, 0.044715, 1.702),
    *(math.sqrt(2), math.sqrt(0.5), math.sqrt(2 / math.pi), 1 / 6, 3.0, 6.0, 0.2, 0.01, 0.1, 1 / 3, 1e-4),
)  # fmt: skip
_WINDOW = (
    *((step, 0) for step in (1, -1, 2, -2)),
    *((0, step) for step in (1, -1)),
    (1, 1),
    (-1, -1),
)
"""By how much the ends of a window of attention are off."""
_WIDEST = 64  # positions of a window of attention that was forgotten
_MASKS = (-np.inf, float(np.finfo(np.float32).min), -1e9, -1e4, -65504.0, -1e30, -1e5, 0.0)


def weights(place: Place) -> Hypotheses:
    """Yield hypotheses about weights of linear nodes that give what is wanted in some rows: they need few runs."""
    for view in linears(place):
        op_type, title = place.nodes[view.number].op_type, place.title(view.number)
        for kind, how, right in variants(place, view.number, view.array):
            factor = _factor(view, kind, right)
            if factor is not None:
                scaled = np.asarray(view.stored(wide(view.matrix(right)) * factor))
                right = scaled.astype(right.dtype)
                how = f"{how}, behind a scale by output that was solved for,"
            if factor is not None or view.close(right):
                edits = (SetConstant(view.name, right, (place.node(view.number),)),)
                sentence = f"constant {view.name!r} of {title} {how}"
                solved = (0, 0) if factor is None else (len(view.wanted.T), view.wanted.size)
                yield Hypothesis(kind, sentence, edits, (kind, op_type, view.slot, how), *solved)


def _factor(view: Linear, kind: str, right: Array) -> Wide | None:
    """Return the factor with which a rearranged weight fits: a normalization was folded into it."""
    if kind not in ("transposed constant", "flipped kernel"):
        return None
    factor = view.factor(right)
    is_kernel = right.ndim == 4 and right.shape[0] == right.shape[1]
    return view.factor_of_channels(right) if factor is None and is_kernel else factor


def scalars(place: Place) -> Hypotheses:
    """Yield single numbers: an epsilon, a factor, a mask's value."""
    for number, slot, name, array in place.constants():
        if array.size == 1 and is_float(array.dtype):
            yield from _of_constant(place, number, slot, name, array)


def epsilons(place: Place) -> Hypotheses:
    """Yield other epsilons: numbers that are added to what a root is taken of."""
    for number, _, name, array in place.constants():
        made = place.nodes[number].output[0]
        roots = (_is_root(place, n) for n in place.consumers.get(made, []))
        is_number = array.size == 1 and is_float(array.dtype) and array.item() > 0
        if place.nodes[number].op_type != "Add" or not is_number or not any(roots):
            continue
        for value in EPSILONS:
            right = np.full(array.shape, value).astype(array.dtype)
            if right.item() != array.item():
                sentence = f"epsilon {name!r} of {place.title(number)} is {text(array.item())}; with {text(value)}"
                edits = (SetConstant(name, right, place.only(number)),)
                yield Hypothesis("epsilon", sentence, edits, ("epsilon", value))


def _is_root(place: Place, number: int) -> bool:
    node = place.nodes[number]
    power = place.constant(node.input[1]) if node.op_type == "Pow" else None
    is_power = power is not None and power.size == 1 and abs(power.item()) == _HALF
    return is_power or node.op_type == "Sqrt"


def constants(place: Place) -> Hypotheses:
    """Yield hypotheses about one constant, then about constants that share a permutation."""
    known = {(view.number, view.slot) for view in linears(place)}
    indices_last = sorted(place.constants(), key=lambda found: found[-1].dtype.kind in "iu")
    for number, slot, name, array in indices_last:
        single = array.size == 1 and is_float(array.dtype)
        other = (number, slot) not in known and not _is_of_sizes(place, number)
        if other and array.size <= _SMALL and not single:
            yield from _of_constant(place, number, slot, name, array)
    yield from together(place, orders)


def sizes(place: Place) -> Hypotheses:
    """Yield hypotheses about one constant that shapes are computed from: the runtime refuses most of them."""
    for number, slot, name, array in place.constants():
        if _is_of_sizes(place, number) and array.size <= _SMALL:
            yield from _of_constant(place, number, slot, name, array)


def _is_of_sizes(place: Place, number: int) -> bool:
    made = place.nodes[number].output[0]
    return made in place.values and made != place.value and place.sizes(place.values[made], made)


def folded(place: Place) -> Hypotheses:
    """Yield constants that an export has computed and that the references show with other numbers."""
    for (number, slot, name, array), (step, value) in itertools.product(
        place.constants(), place.lacking.items()
    ):
        if not is_float(array.dtype) or value.size != array.size or array.size < 2:
            continue
        if [n for n in value.shape if n > 1] == [n for n in array.shape if n > 1]:
            right = value.reshape(array.shape).astype(array.dtype)
            seen = _off_by(array, right) or described(wide(array), wide(right))
            seen = "" if seen == "differs" else f", it {seen}"
            how = f"is not the references' {step!r}{seen}; with that"
            edits = (SetConstant(name, right, place.only(number) if slot >= 0 else ()),)
            sentence = f"constant {name!r} of {place.title(number)} {how}"
            yield Hypothesis("folded constant", sentence, edits)


def _off_by(array: Array, right: Array) -> str:
    """Say along which axis numbers are moved by one or two; '' if they are not."""
    for (step, word), axis in itertools.product(((1, "one"), (2, "two")), range(array.ndim)):
        one, two = np.moveaxis(wide(array), axis, 0), np.moveaxis(wide(right), axis, 0)
        ahead, behind = one[step:], one[:-step]
        if len(ahead) and (small(ahead - two[:-step], two) or small(behind - two[step:], two)):
            return f"is off by {word} along axis {axis}"
    return ""


def scaled_weights(place: Place) -> Hypotheses:
    """Yield weights and tables that are scaled."""
    views = list(linears(place))
    for view in views:
        yield from _scaled(place, view)
    yield from _scaled_kernels(place, [view.number for view in views])
    for number, node in enumerate(place.nodes):
        if node.op_type == "Gather":
            yield from _scaled_table(place, number)


def _scaled_table(place: Place, number: int) -> Hypotheses:
    """Yield a table that is scaled or shifted: as a whole, or by column."""
    name, title = place.nodes[number].input[0], place.title(number)
    table, wanted = place.constant(name), wanted_at(place, number)
    made = place.values.get(place.nodes[number].output[0])
    if table is None or made is None or wanted is None:
        return
    if table.ndim != 2 or not is_float(table.dtype) or made.shape[-1:] != table.shape[-1:]:
        return
    x, y = (wide(a).reshape(-1, table.shape[1]) for a in (made, wanted))
    for axis, shifts in ((None, False), (0, False), (0, True)):
        factor, shift = fitted(x, y, axis, shifts)
        if small(x * factor + shift - y, y):
            right = (wide(table) * factor + shift).astype(table.dtype)
            how = f"scaled{' and shifted' * shifts}{' by column' * (axis == 0)}"
            sentence = f"constant {name!r} of {title} is {how}; with what was solved for"
            edits = (SetConstant(name, right, place.only(number)),)
            unknowns = factor.size * (1 + shifts)
            yield Hypothesis("scaled constant", sentence, edits, (), unknowns, y.size)
            return


def _of_constant(place: Place, number: int, slot: int, name: str, array: Array) -> Hypotheses:
    readers = place.only(number) if slot >= 0 else ()
    for kind, how, right in variants(place, number, array):
        sentence = f"constant {name!r} of {place.title(number)} {how}"
        edits = (SetConstant(name, right, readers),)
        mistake = (kind, place.nodes[number].op_type, slot, how)
        vague = kind == "number" and dwarfed(array, right)
        yield Hypothesis(kind, sentence, edits, mistake, vague=vague)


def _scaled(place: Place, view: Linear) -> Hypotheses:
    """Yield a weight that is scaled: as a whole, by output, or with a shifted bias, as by folding."""
    some = np.linspace(0, len(view.rows) - 1, min(_ROWS, len(view.rows))).astype(int)
    made, wanted = view.rows[some] @ view.weight, view.wanted[some]

    def scaled(factor: Wide) -> Array:
        return np.asarray(view.stored(view.weight * factor)).astype(view.array.dtype)

    yield from _fitted(place, view.number, made, wanted, scaled, view.wanted.size)


def _scaled_kernels(place: Place, known: Container[int]) -> Hypotheses:
    """Yield kernels that are scaled, of convolutions in groups, or of one or three axes."""
    for number, node in enumerate(place.nodes):
        weight = place.constant(node.input[1]) if node.op_type == "Conv" else None
        made, wanted = place.values.get(node.output[0]), wanted_at(place, number)
        if number in known or weight is None or made is None or wanted is None:
            continue
        bias = place.constant(node.input[2]) if len(node.input) > 2 else None
        added = np.zeros(len(weight)) if bias is None else wide(bias)
        x, y = (
            np.moveaxis(wide(a), 1, -1).reshape(-1, len(weight)) - added for a in (made, wanted)
        )

        def scaled(factor: Wide, weight: Array = weight) -> Array:
            by_output = factor.reshape(-1, *[1] * (weight.ndim - 1))
            return np.asarray(wide(weight) * by_output).astype(weight.dtype)

        yield from _fitted(place, number, x, y, scaled, y.size)


def _fitted(
    place: Place,
    number: int,
    made: Wide,
    wanted: Wide,
    scaled: Callable[[Wide], Array],
    equations: int,
) -> Hypotheses:
    """Yield the weight of a node with the factor, and the shift of its bias, that give what is wanted."""
    node, title = place.nodes[number], place.title(number)
    bias = place.constant(node.input[2]) if len(node.input) > 2 else None
    for axis, shifts, how in (
        (None, False, "is scaled"),
        (0, False, "is scaled by output"),
        (0, True, f"is scaled by output, and its bias shifted, {AS_FOLDED}"),
    ):
        factor, shift = fitted(made, wanted, axis, shifts)
        left = made * factor + shift - wanted
        if (
            not small(left, wanted)
            or (np.abs(factor - 1) < 1e-5).all()
            or (shifts and bias is None)
        ):
            continue
        token = place.only(number)
        edits: tuple[Pass, ...] = (SetConstant(node.input[1], scaled(factor), token),)
        if bias is not None and shifts:
            moved = (wide(bias) + shift.reshape(bias.shape)).astype(bias.dtype)
            edits = (*edits, SetConstant(node.input[2], moved, token))
        ends = [1 / number for number in (factor.max(), factor.min()) if number]
        by = " to ".join(dict.fromkeys(f"{number:.4g}" for number in ends))
        sentence = f"constant {node.input[1]!r} of {title} {how}, by {by}; scaled back"
        unknowns = factor.size * (1 + shifts)
        yield Hypothesis("scaled constant", sentence, edits, (), unknowns, equations)
        if np.abs(left).max() <= _SAME * np.abs(wanted).max():
            return  # what has more unknowns says no more


def variants(place: Place, number: int, array: Array) -> Iterator[Variant]:
    """Yield the right numbers of a constant that would be known mistakes."""
    if array.dtype.kind in "OUS":
        return
    if array.size == 1:
        yield from _scalars(place, number, array)
    elif array.dtype.kind == "b" or _are_flags(array) or _masks(array):
        yield from _masking(array)
    elif array.dtype.kind in "iu":
        yield from _integers(array)
        yield from _paddings(array) if place.nodes[number].op_type == "Pad" else ()
    if array.size > 1 and array.dtype.kind not in "iu" or array.size > _FEW:
        is_kernel = place.nodes[number].op_type in _KERNELS
        yield from (
            moved for moved in _moved(array, is_kernel) if not np.array_equal(moved[2], array)
        )
    if array.size > 1 and is_float(array.dtype):
        yield from _rounded(array)
        yield from _functions(array)
    yield from _of_shape(place, number, array)


def _scalars(place: Place, number: int, array: Array) -> Iterator[Variant]:
    """Yield numbers that people mistake for each other, and those that sizes of the node suggest."""
    old = array.reshape(-1)[0]
    may_mask = place.nodes[number].op_type != "Clip" and is_float(array.dtype)
    masks = may_mask and not 0 < float(old) < -_MASKING
    values: tuple[float, ...] = _MASKS if masks else ()
    if array.dtype.kind in "iu" and abs(int(old)) < _HUGE:
        near = (int(old) + step for step in (1, -1, 2, -2))
        values = (*near, *range(4), *_ZERO_POINTS.get(array.dtype.name, ()))
    named = dict(_sizes(place, number)) if is_float(array.dtype) else {}
    values = (*values, *(_SCALARS if is_float(array.dtype) else ()), *named)
    for value in dict.fromkeys(values):
        if value == old or (array.dtype.kind == "u" and value < 0):
            continue
        with np.errstate(all="ignore"):
            right = np.full(array.shape, value).astype(array.dtype)
        masks = value in _MASKS and value < _MASKING
        kind, verb = ("mask value", "masks with") if masks else ("number", "is")
        yield kind, f"{verb} {text(old.item())}; with {text(value)}{named.get(value, '')}", right


def _sizes(place: Place, number: int) -> Iterator[tuple[float, str]]:
    """Yield factors that follow from dimensions, and what they are: 1/sqrt(d), sqrt(d), 1/d, d."""
    read = place.nodes[number].input
    makers = (place.producer.get(name, -1) for name in read)
    read = [*read, *(n for maker in makers if maker >= 0 for n in place.nodes[maker].input)]
    shapes = [v.shape for name in read if (v := place.operand(name)) is not None]
    shapes += [v.shape for v in place.inputs.values() if is_array(v)]
    for size in dict.fromkeys(size for shape in shapes for size in shape if size > 1):
        yield size**-0.5, f" = 1/sqrt({size})"
        yield size**0.5, f" = sqrt({size})"
        yield from ((1 / size, f" = 1/{size}"), (float(size), ""))


def _integers(array: Array) -> Iterator[Variant]:
    """Yield indices that are off by one, and the sizes of a shape in another order."""
    small = np.abs(wide(array)) < _HUGE
    for step in (1, -1):
        moved = np.where(small, array.astype(np.int64) + step * small, array).astype(array.dtype)
        yield "off by one", f"is off by one; with {step:+d} everywhere", moved
        for at in np.flatnonzero(small)[:_FEW]:
            right = array.copy()
            right.reshape(-1)[at] = moved.reshape(-1)[at]
            how = f"is off by one at [{at}]; with {right.reshape(-1)[at]} there"
            yield "off by one", how, right
    pairs = itertools.combinations(range(array.size), 2) if array.ndim == 1 else ()
    for a, b in pairs if array.size <= _FEW else ():
        if array[a] != array[b] and min(array[a], array[b]) > 0:
            right = array.copy()
            right[[a, b]] = right[[b, a]]
            yield "order of sizes", f"is {array.tolist()}; with {right.tolist()}", right


def _paddings(array: Array) -> Iterator[Variant]:
    """Yield paddings that are as large together, and stand on another side."""
    for a, b in itertools.permutations(range(array.size), 2) if array.size <= _FEW else ():
        right = array.copy()
        right[a], right[b] = array[a] + 1, array[b] - 1
        if array[b] > 0:
            yield "padding", f"is {array.tolist()}; with {right.tolist()}", right


def _of_shape(place: Place, number: int, array: Array) -> Iterator[Variant]:
    """Yield the sizes, or the scales, that give the result its shape."""
    node, shape = place.nodes[number], np.array(place.wanted.shape)
    if array.shape != shape.shape or node.output[0] != place.value or len(node.input) < 2:
        return
    given = place.operand(node.input[0])
    if array.dtype.kind == "i":
        yield "sizes", f"is {array.tolist()}; with {shape.tolist()}", shape.astype(array.dtype)
    elif node.op_type == "Resize" and given is not None and given.ndim == shape.size and given.size:
        right = (shape / given.shape).astype(array.dtype)
        yield "scales", f"is {array.tolist()}; with {right.tolist()}", right


def _functions(array: Array) -> Iterator[Variant]:
    """Yield what is stored as another function of the numbers: variance and deviation, a scale and its reciprocal."""
    if array.min() > 0:
        for name, how, right in (
            ("square root", "squared", np.square(wide(array))),
            ("square", "its root", np.sqrt(wide(array))),
            ("reciprocal", "turned over", 1 / wide(array)),
        ):
            how = f"is the {name} of itself; {how}"
            yield "function of a constant", how, right.astype(array.dtype)


def _masks(array: Array) -> bool:
    """Return whether an array has two different numbers, and one of them masks."""
    if not is_float(array.dtype):
        return False
    numbers = wide(array)
    low, high = numbers.min(), numbers.max()
    return bool(low < -1 and high > low and ((numbers == low) | (numbers == high)).all())


def _are_flags(array: Array) -> bool:
    """Return whether an array of several axes has ones, and zeros at most besides."""
    return array.ndim > 1 and bool(array.any() and ((array == 0) | (array == 1)).all())


def _masking(array: Array) -> Iterator[Variant]:
    """Yield masks with another number, inverted, moved by one, and triangles."""
    are_flags = array.dtype.kind == "b" or _are_flags(array)
    low, high = (False, True) if are_flags else (array.min(), array.max())
    for value in () if are_flags else _MASKS:
        with np.errstate(all="ignore"):
            right = np.where(array == low, value, array).astype(array.dtype)
        yield "mask value", f"masks with {text(float(low))}; with {text(value)}", right
    inverted = np.where(array == low, high, low).astype(array.dtype)
    yield "mask", "masks what it should keep; inverted", inverted
    if array.ndim < 2:
        return
    rows, columns = np.indices(array.shape[-2:])
    yield from _bands(array, np.asarray(columns - rows), (low, high))
    for step in (0, 1, -1):
        for name, keeps in (("lower", rows + step >= columns), ("upper", rows + step <= columns)):
            for keep, drop in ((high, low), (low, high)):
                triangle = np.where(keeps, keep, drop).astype(array.dtype)
                right = np.broadcast_to(triangle, array.shape).copy()
                yield "mask", f"is another mask; with the {name} triangle moved by {step}", right
    for step, axis in itertools.product((1, -1), (-1, -2)):
        how = f"is off by one; moved by {step} along axis {axis}"
        yield "mask", how, np.roll(array, step, axis)


def _bands(array: Array, ahead: Order, numbers: Sequence[bool | float]) -> Iterator[Variant]:
    """Yield windows of attention of another size, and none: a mask that keeps what is near."""
    for drop, keep in itertools.permutations(numbers):
        kept = ahead[(array == keep).reshape(-1, *ahead.shape)[0]]
        if not kept.size:
            continue
        first, last = int(kept.min()), int(kept.max())
        ends = [(first + a, last + b) for a, b in _WINDOW] + [(int(ahead.min()), last)]
        widths = range(_WIDEST) if first == ahead.min() else ()
        ends += [(last - width, last) for width in widths if first < last - width]
        is_band = ((array == keep) == ((ahead >= first) & (ahead <= last))).all()
        for begin, end in ends if is_band else ():
            keeps = np.where((ahead >= begin) & (ahead <= end), keep, drop).astype(array.dtype)
            how = f"is a mask that keeps {first} .. {last} positions ahead; with {begin} .. {end}"
            yield "mask", how, np.broadcast_to(keeps, array.shape).copy()


def _moved(array: Array, is_kernel: bool) -> Iterator[Variant]:
    """Yield the same numbers in another arrangement, or with the other sign."""
    if is_float(array.dtype):
        yield "negated constant", "has the wrong sign; with the other one", np.negative(array)
    if array.ndim == 2:
        if array.shape[0] == array.shape[1]:
            yield "transposed constant", "is transposed; transposed back", array.T.copy()
        else:
            turned = array.reshape(array.shape[::-1]).T.copy()
            yield "transposed constant", "is laid out as its transpose; read that way", turned
    for axes in itertools.permutations(range(array.ndim)) if array.ndim in (3, 4, 5) else ():
        laid_out = array.reshape([array.shape[axis] for axis in axes])
        laid_in_order = f"axes laid out in the order {[*axes]}"
        name = _EXCHANGED.get(axes, laid_in_order) if is_kernel else laid_in_order
        if not is_kernel and [*axes[:-2]] == [*range(array.ndim - 2)]:
            name = "last two axes exchanged"
        how = f"has its {name}; changed back"
        yield "transposed constant", how, laid_out.transpose(np.argsort(axes)).copy()
    if array.ndim == 4:
        yield "flipped kernel", "has a flipped kernel; flipped back", np.flip(array, (2, 3)).copy()
    for axis, size in enumerate(array.shape):
        for how, order in orders(size):
            yield "permuted constant", how.format(axis=axis), np.take(array, order, axis)


def orders(size: int) -> Iterator[tuple[str, Order]]:
    """Yield (sentence, order) of the ways in which people arrange an axis."""
    everything = np.arange(size)
    if size < 2:
        return
    yield "is reversed along axis {axis}; turned around", everything[::-1]
    yield from _chunks(everything)
    yield from _of_heads(everything)
    divisors = [d for d in range(2, size) if size % d == 0][:_MOST_PARTS]
    for parts in divisors:
        how = f"is interleaved along axis {{axis}}; taken as {parts} parts of {size // parts}"
        yield how, everything.reshape(size // parts, parts).T.reshape(-1)
    yield from rotary_orders(size)
    for step in (1, -1, 2, -2):
        if size > abs(step) + 1:
            how = f"is off by {abs(step)} along axis {{axis}}; moved by {step}"
            yield how, np.roll(everything, step)


def fused_orders(size: int, parts: int) -> Iterator[tuple[str, Order]]:
    """Yield (sentence, order) of the ways in which people fuse a number of projections: Q K V."""
    everything = np.arange(size)
    yield from _chunks(everything, [parts] if parts in _CHUNKS else [])
    yield from _of_heads(everything, [parts])


def rotary_orders(size: int) -> Iterator[tuple[str, Order]]:
    """Yield (sentence, order) of the ways in which rotary embeddings lay out the halves of every head."""
    for parts in [d for d in range(1, size) if size % (2 * d) == 0 and size // d > 2][:_MOST_PARTS]:
        yield from _halves(np.arange(size), parts)


def _chunks(everything: Order, counts: Sequence[int] = _CHUNKS) -> Iterator[tuple[str, Order]]:
    """Yield orders of a few parts: Q K V, gates."""
    for parts in counts:
        whole = everything.size % parts == 0
        chunks: Sequence[Order] = [*everything.reshape(parts, -1)] if whole else []
        for order in itertools.permutations(range(len(chunks))):
            if [*order] != sorted(order):
                taken = f"taken as {[*order]}"
                how = f"has its {parts} parts along axis {{axis}} in another order; {taken}"
                yield how, np.concatenate([chunks[part] for part in order])


def _of_heads(everything: Order, counts: Sequence[int] = (3, 2)) -> Iterator[tuple[str, Order]]:
    """Yield orders of Q K V of several heads: head by head, or part by part."""
    for parts in counts:
        whole = everything.size // parts if everything.size % parts == 0 else 0
        for heads in [d for d in range(2, whole) if whole % d == 0][:_MOST_PARTS]:
            by_part = everything.reshape(parts, heads, -1).swapaxes(0, 1).reshape(-1)
            what = f"has {parts} parts of each of {heads} heads along axis {{axis}}"
            yield f"{what} part by part; taken head by head", by_part
            yield f"{what} head by head; taken part by part", np.argsort(by_part)


def _halves(everything: Order, parts: int) -> Iterator[tuple[str, Order]]:
    """Yield orders of the two halves of every part: those that a rotary embedding turns together."""
    pairs, halves = everything.reshape(parts, -1, 2), everything.reshape(parts, 2, -1)
    heads = f"of {parts} heads along axis {{axis}}" if parts > 1 else "along axis {axis}"
    yield f"has interleaved halves {heads}; split", pairs.swapaxes(1, 2).reshape(-1)
    yield f"has split halves {heads}; interleaved", halves.swapaxes(1, 2).reshape(-1)
    yield f"has its halves {heads} exchanged; changed back", halves[:, ::-1].reshape(-1)


def _rounded(array: Array) -> Iterator[Variant]:
    """Yield the numbers rounded, where the reference may have been computed with rounded ones."""
    for dtype in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)):
        if array.dtype.itemsize > 2:
            with np.errstate(all="ignore"):
                right = array.astype(dtype).astype(array.dtype)
            yield "rounded constant", f"is exact; rounded to {dtype.name}", right
    numbers = wide(array)
    for axis in (None, *range(array.ndim)) if array.ndim > 1 else (None,):
        others = tuple(a for a in range(array.ndim) if a != axis) if axis is not None else None
        largest = np.abs(numbers).max(axis=others, keepdims=True)
        step = np.where(largest > 0, largest / 127, 1)
        where = "" if axis is None else f" along axis {axis}"
        right = (np.round(numbers / step) * step).astype(array.dtype)
        yield "rounded constant", f"is exact; rounded to int8{where}", right


def together(place: Place, orders: Callable[[int], Iterator[tuple[str, Order]]]) -> Hypotheses:
    """Yield permutations of all constants of the region along axes of one size: a weight and its bias."""
    found = [
        (n, name, a) for n, _, name, a in place.constants() if is_float(a.dtype) and a.size > 1
    ]
    sizes = dict.fromkeys(size for _, _, array in found for size in array.shape if size > 2)
    for size in sizes:
        alike = [(n, name, a, _axis_of(a, size)) for n, name, a in found]
        alike = [each for each in alike if each[-1] is not None]
        lines = [a for _, _, a, _ in alike if a.size == size]
        if len(alike) < 2 or not lines or sum(a.size for _, _, a, _ in alike) > 4 * _SMALL:
            continue
        for how, order in orders(size):
            edits = tuple(
                SetConstant(name, np.take(a, order, axis), place.only(n))
                for n, name, a, axis in alike
            )
            names = ", ".join(repr(name) for _, name, _, _ in alike)
            sentence = f"each of {names} {how.replace('axis {axis}', 'the axis that they share')}"
            yield Hypothesis("permuted constants", sentence, edits)


def _axis_of(array: Array, size: int) -> int | None:
    """Return the axis of this size: of a vector the only one, of others the last or first; None if there is none."""
    long = [axis for axis, length in enumerate(array.shape) if length > 1]
    axes = long if len(long) == 1 else (array.ndim - 1, 0)
    return next((axis for axis in axes if array.shape[axis] == size), None)
