"""Mistakes in constants: transposed, permuted, rounded, another layer's, off by one, another mask."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from onnxsurgeon_lite.debug.causes.attributes import EPSILONS, text
from onnxsurgeon_lite.debug.causes.hypothesis import MISTAKES, Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.linear import Linear, linears
from onnxsurgeon_lite.debug.causes.place import Constant, Place, RegionNode, but
from onnxsurgeon_lite.debug.causes.solving import described, shifted, shrinks
from onnxsurgeon_lite.model.messages import integer
from onnxsurgeon_lite.names import joined
from onnxsurgeon_lite.passes import Pass, Rewire
from onnxsurgeon_lite.tensors.dtypes import Array, Wide, has_floats, wide

Order = NDArray[np.intp]
Variant = tuple[str, str, Array]
"""(kind of mistake, what is wrong and what was done about it, the right numbers)."""
Ordering = Iterator[tuple[str, Order]]
"""(what is wrong with an axis and how it is taken, the order)."""

_SMALL = 1 << 16  # elements of a constant; every variant of a smaller one is run
_CHUNKS = (3, 4, 2)  # parts that people order differently: Q K V, gates, halves
_MOST_PARTS = 64  # divisors that are tried as a number of heads
_FEW = 8  # elements of a constant whose elements are tried one by one
_HUGE = 2.0**31  # a larger index means the end
_KERNELS = ("Conv", "ConvTranspose")
_SCALED = ("transposed constant", "flipped kernel")  # kinds that a scale by output may hide
_EXCHANGED = {tuple(axes): words for words, axes in MISTAKES["kernels"].items()}
"""Axes -> the words for a kernel that is stored in their order."""
_FUNCTIONS: Mapping[str, Callable[[Wide], Wide]] = {
    "is the square root of itself; squared": np.square,
    "is the square of itself; its root": np.sqrt,
    "is the reciprocal of itself; turned over": np.reciprocal,
}
_MASKING = -1e3  # a smaller number masks
_WIDEST = 64  # positions of a window of attention that was forgotten
_MASKS = MISTAKES["scalars"]["masks"]


def weights(place: Place) -> Hypotheses:
    """Yield hypotheses about weights of linear nodes that give what is wanted in some rows: they need few runs."""
    # numpy shows which variants can fit, in a few rows and outputs
    for view in linears(place):
        constant = view.constant
        for kind, how, right in variants(constant):
            # a normalization that was folded into the weight scales its outputs
            factor = _factor(view, kind, right)
            solved = (0, 0)
            if factor is not None:
                right = np.asarray(view.stored(wide(view.matrix(right)) * factor))
                how = f"{how}, behind a scale by output that was solved for,"
                solved = (view.wanted[:, 0].size, view.wanted.size)
            if factor is not None or view.close(right):
                mistake = (kind, constant.site.op_type, constant.slot, how)
                yield Hypothesis(
                    kind, f"{constant} {how}", (constant.edit(right),), mistake, *solved
                )


def _factor(view: Linear, kind: str, right: Array) -> Wide | None:
    """Return the factor with which a rearranged weight fits: a normalization was folded into it."""
    if kind not in _SCALED and not (view.groups > 1 and kind == "permuted constant"):
        return None
    factor = view.factor(right)
    is_kernel = view.groups == 1 and right.ndim == 4 and right.shape[0] == right.shape[1]
    return view.factor_of_channels(right) if factor is None and is_kernel else factor


def scalars(place: Place) -> Hypotheses:
    """Yield single numbers: an epsilon, a factor, a mask's value."""
    for constant in place.constants():
        if constant.is_single and constant.is_float:
            yield from _of_constant(constant)


def epsilons(place: Place) -> Hypotheses:
    """Yield other epsilons: numbers that are added to what a root is taken of."""
    for constant in place.constants():
        array, site = constant.array, constant.site
        is_number = constant.is_single and constant.is_float and array.item() > 0
        # `sqrt(variance + epsilon)`, written as several nodes
        if site.op_type != "Add" or not is_number or not any(map(_is_root, site.readers)):
            continue
        for value in EPSILONS:
            right = np.full(array.shape, value).astype(array.dtype)
            if right.item() != array.item():
                was = f"epsilon {constant.name!r} of {site.title} is {text(array.item())}"
                edits, mistake = (constant.edit(right),), ("epsilon", value)
                yield Hypothesis("epsilon", f"{was}; with {text(value)}", edits, mistake)


def _is_root(site: RegionNode) -> bool:
    power = site.constant(1) if site.op_type == "Pow" else None
    is_power = power is not None and power.is_single and abs(power.array.item()) == 0.5
    return is_power or site.op_type == "Sqrt"


def constants(place: Place) -> Hypotheses:
    """Yield hypotheses about one constant, then about constants that share a permutation."""
    # weights of linear nodes are tried by `weights`, sizes at the end, single numbers by `scalars`
    known = {
        (view.constant.site, view.constant.slot) for view in linears(place) if view.groups == 1
    }
    for constant in sorted(place.constants(), key=lambda found: found.array.dtype.kind in "iu"):
        single = constant.is_single and constant.is_float
        other = (constant.site, constant.slot) not in known and not _is_of_sizes(constant)
        if other and constant.array.size <= _SMALL and not single:
            yield from _of_constant(constant)
    yield from together(place, orders)


def _is_of_sizes(constant: Constant) -> bool:
    site, place = constant.site, constant.site.place
    return (
        site.made is not None and site.output != place.value and place.sizes(site.made, site.output)
    )


def folded(place: Place) -> Hypotheses:
    """Yield constants that an export has computed and that the references show with other numbers."""
    for constant, (step, value) in itertools.product(place.constants(), place.lacking.items()):
        array = constant.array
        if not constant.is_float or value.size != array.size or array.size < 2:
            continue
        # axes of one element may differ
        if [n for n in value.shape if n > 1] == [n for n in array.shape if n > 1]:
            right = value.reshape(array.shape).astype(array.dtype)
            how = described(constant.numbers, wide(right))
            moved = shifted(constant.numbers, wide(right))
            if moved is not None:
                how = f"is off by {('one', 'two')[abs(moved[1]) - 1]} along axis {moved[0]}"
            seen = "" if how == "differs" else f", it {how}"
            sentence = f"{constant} is not the references' {step!r}{seen}; with that"
            yield Hypothesis("folded constant", sentence, (constant.edit(right),))


def _of_constant(constant: Constant) -> Hypotheses:
    for kind, how, right in variants(constant):
        mistake = (kind, constant.site.op_type, constant.slot, how)
        vague = kind == "number" and shrinks(constant.array, right)
        edits, site = (constant.edit(right),), constant.site
        fixed = site.op_type == "Trilu" and site.place.is_open(site.output, -1)
        yield Hypothesis(kind, f"{constant} {how}", edits, mistake, vague=vague, fixed=fixed)


def variants(constant: Constant) -> Iterator[Variant]:
    """Yield the right numbers of a constant that would be known mistakes."""
    array, op_type = constant.array, constant.site.op_type
    if array.dtype.kind in "OUS":
        return
    # what the numbers mean, then how they are stored
    if array.size == 1:
        yield from _scalars(constant)
    elif array.dtype.kind == "b" or _are_flags(array) or _masks(array):
        yield from _masking(array)
    elif array.dtype.kind in "iu":
        yield from _integers(array)
        yield from _evenly(constant) if op_type == "Gather" else ()
    if array.size > 1 and array.dtype.kind not in "iu" or array.size > _FEW:
        for moved in _moved(array, op_type in _KERNELS):
            if not np.array_equal(moved[2], array):
                yield moved
    if array.size > 1 and constant.is_float:
        yield from _rounded(array)
        yield from _functions(array)
    yield from _of_shape(constant)


def _scalars(constant: Constant) -> Iterator[Variant]:
    """Yield numbers that people mistake for each other, and those that sizes of the node suggest."""
    array = constant.array
    old = array.reshape(-1)[0]
    # masks and usual numbers of floats, neighbors and zero points of integers
    values, named = list[float](), dict[float, str]()
    if constant.is_float:
        may_mask = constant.site.op_type != "Clip" and not 0 < float(old) < -_MASKING
        named = dict(_sizes(constant.site))
        known = MISTAKES["scalars"]
        usual = known["usual"] + known["of"].get(constant.site.op_type, [])
        values = _MASKS * may_mask + usual + list(named)
    elif array.dtype.kind in "iu" and abs(int(old)) < _HUGE:
        near = (int(old) + step for step in (1, -1, 2, -2))
        zeros = MISTAKES["zero_points"].get(array.dtype.name, ())
        values = list(itertools.chain(near, range(4), zeros))
        made = constant.site.made
        if constant.site.op_type == "Trilu" and made is not None:  # the keys of a cache come first
            values.append(made.shape[-1] - made.shape[-2])
    for value in dict.fromkeys(values):
        if value == old or (array.dtype.kind == "u" and value < 0):
            continue
        right = np.full(array.shape, value).astype(array.dtype)
        masks = value in _MASKS and value < _MASKING
        kind, verb = ("mask value", "masks with") if masks else ("number", "is")
        yield kind, f"{verb} {text(old.item())}; with {text(value)}{named.get(value, '')}", right


def _sizes(site: RegionNode) -> Iterator[tuple[float, str]]:
    """Yield factors that follow from dimensions, and what they are: 1/sqrt(d), sqrt(d), 1/d, d."""
    # the sizes of what the node reads, of what its makers read, and of what enters
    read, place = list(site.input), site.place
    for slot in range(len(site.input)):
        maker = site.maker(slot)
        read += maker.input if maker is not None else []
    values = itertools.chain(map(place.operand, read), place.entering.values())
    shapes = (value.shape for value in values if value is not None)
    for size in dict.fromkeys(itertools.chain.from_iterable(shapes)):
        if size > 1:
            yield size**-0.5, f" = 1/sqrt({size})"
            yield size**0.5, f" = sqrt({size})"
            yield 1 / size, f" = 1/{size}"
            yield float(size), ""


def _integers(array: Array) -> Iterator[Variant]:
    """Yield indices that are off by one, and the sizes of a shape in another order."""
    # all indices that do not mean the end, then each of a few
    small = np.abs(wide(array)) < _HUGE
    for step in (1, -1):
        moved = np.where(small, array.astype(np.int64) + step * small, array).astype(array.dtype)
        yield "off by one", f"is off by one; with {step:+d} everywhere", moved
        for at in np.flatnonzero(small)[:_FEW]:
            right = array.copy()
            right.reshape(-1)[at] = moved.reshape(-1)[at]
            how = f"is off by one at [{at}]; with {right.reshape(-1)[at]} there"
            yield "off by one", how, right
    # a shape with two sizes exchanged
    pairs = itertools.combinations(range(array.size), 2) if array.ndim == 1 else ()
    for a, b in pairs if array.size <= _FEW else ():
        if array[a] != array[b] and min(array[a], array[b]) > 0:
            right = array.copy()
            right[[a, b]] = right[[b, a]]
            yield "order of sizes", f"is {array.tolist()}; with {right.tolist()}", right


def _evenly(constant: Constant) -> Iterator[Variant]:
    """Yield other indices at even distances: of frames, say, from the first to the last, or in the middle."""
    array, data = constant.array, constant.site.operand(0)
    steps = np.diff(array) if array.ndim == 1 else np.empty(0)
    if not steps.size or data is None or (steps != steps[0]).any() or steps[0] < 1:
        return
    last = data.shape[integer(constant.site.node, "axis")] - 1
    ends = [np.linspace(0, last, array.size)]
    for step in range(1, last // steps.size + 1):
        reach = step * np.arange(array.size)
        ends += [reach, reach + (last - reach[-1]) // 2, reach + (last - reach[-1])]
    for right in dict.fromkeys(tuple(np.round(each).astype(int).tolist()) for each in ends):
        yield "indices", f"is {array.tolist()}; with {list(right)}", np.array(right, array.dtype)


def _paddings(array: Array) -> Iterator[Variant]:
    """Yield paddings that are as large together, and stand on another side: one of them, all, or half."""
    for a, b in itertools.permutations(range(array.size), 2) if array.size <= _FEW else ():
        for moved in {1, int(array[b]), int(array[b]) // 2} - {0} if array[b] > 0 else ():
            right = array.copy()
            right[a], right[b] = array[a] + moved, array[b] - moved
            yield "padding", f"is {array.tolist()}; with {right.tolist()}", right


def pads(place: Place) -> Hypotheses:
    """Yield other paddings, also of a Pad that reads what exporters compute from constants."""
    for site in place.sites:
        read, constant = site.operand(1), site.constant(1)
        if read is None or site.op_type != "Pad":
            continue
        for kind, how, right in _paddings(read):
            edit: Pass = Rewire(site.name(1), str(right.tolist()), site.only, 1)
            sentence = f"what {site.title} reads as pads {how}"
            if constant is not None:
                edit, sentence = constant.edit(right), f"{constant} {how}"
            # another node may have the same mistake, with other sizes
            moved = np.sign(wide(right) - wide(read)).tobytes(), (right == 0).tobytes()
            yield Hypothesis(kind, sentence, (edit,), (kind,) + moved)


def _of_shape(constant: Constant) -> Iterator[Variant]:
    """Yield the sizes, or the scales, that give the result its shape."""
    site, array, shape = constant.site, constant.array, np.array(constant.site.place.wanted.shape)
    if array.shape != shape.shape or site.output != site.place.value or len(site.input) < 2:
        return
    given, how = site.operand(0), f"is {array.tolist()}; with"
    if array.dtype.kind == "i":
        yield "sizes", f"{how} {shape.tolist()}", shape.astype(array.dtype)
    elif site.op_type == "Resize" and given is not None and given.ndim == shape.size and given.size:
        right = (shape / given.shape).astype(array.dtype)
        yield "scales", f"{how} {right.tolist()}", right


def _functions(array: Array) -> Iterator[Variant]:
    """Yield what is stored as another function of the numbers: variance and deviation, a scale and its reciprocal."""
    # roots and reciprocals of numbers above zero alone have no other meaning
    for how, formula in _FUNCTIONS.items() if array.min() > 0 else ():
        yield "function of a constant", how, formula(wide(array)).astype(array.dtype)


def _masks(array: Array) -> bool:
    """Return whether an array has two different numbers, and one of them masks."""
    if not has_floats(array):
        return False
    numbers = wide(array)
    low, high = numbers.min(), numbers.max()
    return bool(low < -1 and high > low and ((numbers == low) | (numbers == high)).all())


def _are_flags(array: Array) -> bool:
    """Return whether an array of several axes has ones, and zeros at most besides."""
    return array.ndim > 1 and bool(array.any() and ((array == 0) | (array == 1)).all())


def _masking(array: Array) -> Iterator[Variant]:
    """Yield masks with another number, inverted, moved by one, and triangles."""
    # flags keep their two values; numbers that hide get another one
    are_flags = array.dtype.kind == "b" or _are_flags(array)
    low, high = (False, True) if are_flags else (array.min(), array.max())
    for value in () if are_flags else _MASKS:
        right = np.where(array == low, value, array).astype(array.dtype)
        yield "mask value", f"masks with {text(float(low))}; with {text(value)}", right
    inverted = np.where(array == low, high, low).astype(array.dtype)
    yield "mask", "masks what it should keep; inverted", inverted
    if array.ndim < 2:
        return
    # of queries and keys: windows, triangles, one position off
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
        # the window now, and others: a little larger or smaller, open to the past, as narrow as people write them
        first, last = int(kept.min()), int(kept.max())
        ends = [(first + a, last + b) for a, b in MISTAKES["windows"]["ends"]]
        ends.append((int(ahead.min()), last))
        widths = range(_WIDEST) if first == ahead.min() else ()
        ends += [(last - width, last) for width in widths if first < last - width]
        is_band = ((array == keep) == ((ahead >= first) & (ahead <= last))).all()
        for begin, end in ends if is_band else ():
            keeps = np.where((ahead >= begin) & (ahead <= end), keep, drop).astype(array.dtype)
            how = f"is a mask that keeps {first} .. {last} positions ahead; with {begin} .. {end}"
            yield "mask", how, np.broadcast_to(keeps, array.shape).copy()


def _moved(array: Array, is_kernel: bool) -> Iterator[Variant]:
    """Yield the same numbers in another arrangement, or with the other sign."""
    if has_floats(array):
        yield "negated constant", "has the wrong sign; with the other one", np.negative(array)
    # a square weight is transposed; another one has the shape that is wanted, and the layout of the transpose
    if array.ndim == 2:
        if array.shape[0] == array.shape[1]:
            yield "transposed constant", "is transposed; transposed back", array.T.copy()
        else:
            turned = array.reshape(array.shape[::-1]).T.copy()
            yield "transposed constant", "is laid out as its transpose; read that way", turned
    # kernels and batches of matrices, stored with their axes in another order
    for axes in itertools.permutations(range(array.ndim)) if array.ndim in (3, 4, 5) else ():
        laid_out = array.reshape([array.shape[axis] for axis in axes])
        laid_in_order = f"axes laid out in the order {list(axes)}"
        name = _EXCHANGED.get(axes, laid_in_order) if is_kernel else laid_in_order
        if not is_kernel and list(axes[:-2]) == list(range(array.ndim - 2)):
            name = "last two axes exchanged"
        how = f"has its {name}; changed back"
        yield "transposed constant", how, laid_out.transpose(np.argsort(axes)).copy()
    if array.ndim == 4:
        yield "flipped kernel", "has a flipped kernel; flipped back", np.flip(array, (2, 3)).copy()
    for axis, size in enumerate(array.shape):
        for how, order in orders(size):
            yield "permuted constant", how.format(axis=axis), np.take(array, order, axis)


def orders(size: int) -> Ordering:
    """Yield (sentence, order) of the ways in which people arrange an axis."""
    everything = np.arange(size)
    if size < 2:
        return
    # usual arrangements first, shifts last: a shift is one of many
    yield "is reversed along axis {axis}; turned around", everything[::-1]
    yield from _chunks(everything)
    yield from _of_heads(everything)
    yield from interleaved_orders(size)
    yield from rotary_orders(size)
    for step in (1, -1, 2, -2):
        if size > abs(step) + 1:
            how = f"is off by {abs(step)} along axis {{axis}}; moved by {step}"
            yield how, np.roll(everything, step)


def interleaved_orders(size: int) -> Ordering:
    """Yield (sentence, order) of parts that are interleaved instead of one after the other."""
    for parts in [d for d in range(2, size) if size % d == 0][:_MOST_PARTS]:
        how = f"is interleaved along axis {{axis}}; taken as {parts} parts of {size // parts}"
        yield how, np.arange(size).reshape(size // parts, parts).T.reshape(-1)


def fused_orders(size: int, parts: int) -> Ordering:
    """Yield (sentence, order) of the ways in which people fuse a number of projections: Q K V."""
    everything = np.arange(size)
    yield from _chunks(everything, [parts] if parts in _CHUNKS else [])
    yield from _of_heads(everything, [parts])


def rotary_orders(size: int) -> Ordering:
    """Yield (sentence, order) of the ways in which rotary embeddings lay out the halves of every head."""
    for parts in [d for d in range(1, size) if size % (2 * d) == 0 and size // d > 2][:_MOST_PARTS]:
        yield from _halves(np.arange(size), parts)


def _chunks(everything: Order, counts: Sequence[int] = _CHUNKS) -> Ordering:
    """Yield orders of a few parts: Q K V, gates."""
    for parts in counts:
        whole = everything.size % parts == 0
        chunks: Sequence[Order] = list(everything.reshape(parts, -1)) if whole else []
        for order in itertools.permutations(range(len(chunks))):
            if list(order) != sorted(order):
                taken = f"taken as {list(order)}"
                how = f"has its {parts} parts along axis {{axis}} in another order; {taken}"
                yield how, np.concatenate([chunks[part] for part in order])


def _of_heads(everything: Order, counts: Sequence[int] = (3, 2)) -> Ordering:
    """Yield orders of Q K V of several heads: head by head, or part by part."""
    for parts in counts:
        whole = everything.size // parts if everything.size % parts == 0 else 0
        for heads in [d for d in range(2, whole) if whole % d == 0][:_MOST_PARTS]:
            by_part = everything.reshape(parts, heads, -1).swapaxes(0, 1).reshape(-1)
            what = f"has {parts} parts of each of {heads} heads along axis {{axis}}"
            yield f"{what} part by part; taken head by head", by_part
            yield f"{what} head by head; taken part by part", np.argsort(by_part)


def _halves(everything: Order, parts: int) -> Ordering:
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
            right = array.astype(dtype).astype(array.dtype)
            yield "rounded constant", f"is exact; rounded to {dtype.name}", right
    # int8, with one scale for all or one for each channel
    numbers = wide(array)
    for axis in (None, *range(array.ndim)) if array.ndim > 1 else (None,):
        others = None if axis is None else but(array, axis)
        largest = np.abs(numbers).max(axis=others, keepdims=True)
        step = np.where(largest > 0, largest / 127, 1)
        where = "" if axis is None else f" along axis {axis}"
        right = (np.round(numbers / step) * step).astype(array.dtype)
        yield "rounded constant", f"is exact; rounded to int8{where}", right


def together(place: Place, orders: Callable[[int], Ordering]) -> Hypotheses:
    """Yield permutations of all constants of the region along axes of one size: a weight and its bias."""
    found = [c for c in place.constants() if c.is_float and c.array.size > 1]
    shapes = (constant.array.shape for constant in found)
    for size in dict.fromkeys(itertools.chain.from_iterable(shapes)):
        # a weight along an axis, and the vectors of that size: biases, scales
        along = [(c, axis) for c in found if (axis := _axis_of(c.array, size)) is not None]
        # the mean and the deviation of pixels have an order of their own
        lines = [(c, axis) for c, axis in along if c.array.size == size]
        few = sum(c.array.size for c, _ in along) <= 4 * _SMALL
        if size < 3 or not lines or not few:
            continue
        for several in (along, lines) if len(lines) < len(along) else (along,):
            for how, order in orders(size) if len(several) > 1 else ():
                edits = tuple(c.edit(np.take(c.array, order, axis)) for c, axis in several)
                names = joined(constant.name for constant, _ in several)
                how = how.replace("axis {axis}", "the axis that they share")
                yield Hypothesis("permuted constants", f"each of {names} {how}", edits)


def _axis_of(array: Array, size: int) -> int | None:
    """Return the axis of this size: of a vector the only one, of others the last or first; None if there is none."""
    # axes of one element have no order
    long = [axis for axis, length in enumerate(array.shape) if length > 1]
    axes = long if len(long) == 1 else (array.ndim - 1, 0)
    return next((axis for axis in axes if array.shape[axis] == size), None)
