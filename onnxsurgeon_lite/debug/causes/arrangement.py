"""Mistakes in arrangement: channels, heads or halves of a value in another order."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, islice, product

import numpy as np

from onnxsurgeon_lite.debug.causes.constants import Order, orders, rotary_orders
from onnxsurgeon_lite.debug.causes.hypothesis import Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.place import Ints, Place, RegionNode, wide
from onnxsurgeon_lite.passes import Insert, Pass, Replace, Rewire
from onnxsurgeon_lite.tensors.dtypes import Array, is_array, is_float

_LONGEST = 4096  # elements of an axis that is arranged
_ORDERS = 64  # orders of an input
_PAIR = 2
_HEADS = 1  # the axis of heads
_REPEATING = ("Tile", "Expand", "Concat", "Gather", "Reshape")
_TO_THE_END = np.iinfo(np.int64).max
_HUGE = 2.0**31  # a larger index means the end
_OFF = (1, -1, 2, -2)  # elements by which a slice is off
_IMAGE = 4  # axes
_CUTTING = ("Reshape", "Slice", "Add", "Concat")  # of an image to windows
_FARTHEST = 4  # pixels by which an image is moved


def taken(
    value: str,
    axis: int,
    order: Order,
    to: tuple[str, ...] = (),
    before: bool = False,
    output: str | None = None,
) -> Insert:
    """Return the edit that takes a value's elements in an order."""
    numbers = (("order", np.asarray(order, np.int64)),)
    along = (("axis", axis),)
    return Insert(value, "Gather", (), along, "", to, before, output, constants=numbers)


def arrangement(place: Place) -> Hypotheses:
    """Yield other orders of what a region computes, of the parts that it takes, and of several inputs together."""
    slices = [site for site in place.sites if site.op_type == "Slice" and len(site.input) > 2]
    for site in slices:
        yield from _slices_of_any_size(site)
    yield from _results(place)
    yield from _slices(slices)
    yield from _pairs(place)


def _results(place: Place) -> Hypotheses:
    """Yield orders in which the wrong value is the wanted one."""
    actual = place.actual
    if actual is None or actual.shape != place.wanted.shape or not is_float(actual.dtype):
        return
    for axis, size in enumerate(actual.shape):
        for how, order in orders(size) if size <= _LONGEST else ():
            at = list(place.spread)
            at[axis] = order[at[axis]]
            if place.close(wide(actual[tuple(at)])):
                edit = taken(place.value, axis, order, before=True)
                sentence = f"the result of {place.maker} {how.format(axis=axis)}"
                mistake, fixed = ("order", how, axis), place.is_open(place.value, axis)
                yield Hypothesis("order of the result", sentence, (edit,), mistake, fixed=fixed)


def _pairs(place: Place) -> Hypotheses:
    """Yield layouts of rotary embeddings, and of heads that are repeated: several values in the same other order."""
    given = {n: v for n, v in place.inputs.items() if is_array(v) and v.ndim > 2}
    for one, other in _alike(given):
        axis = given[one].ndim - 1
        for how, order in rotary_orders(given[one].shape[axis]):
            yield _several(place, (one, other), axis, how, order)
    alike: dict[Ints, list[str]] = {}
    for name, value in given.items():
        alike.setdefault(value.shape, []).append(name)
    for shape, names in alike.items():
        if len(names) > _PAIR:
            yield from _interleaved(place, names, len(shape) - 1, shape)
    repeated = {s.output: s.made for s in place.sites if s.op_type in _REPEATING}
    values = {n: v for n, v in repeated.items() if v is not None and v.ndim > _HEADS + 1}
    for together in (*_alike(values), *((name,) for name in values)):
        yield from _interleaved(place, together, _HEADS, values[together[0]].shape)


def _interleaved(place: Place, names: Sequence[str], axis: int, shape: Ints) -> Hypotheses:
    """Yield values that are interleaved along an axis, all in the same way."""
    for how, order in orders(shape[axis]):
        if "interleaved" in how:
            yield _several(place, names, axis, how, order)


def _alike(values: Mapping[str, Array]) -> Iterator[tuple[str, str]]:
    pairs = combinations(values, 2)
    return ((a, b) for a, b in pairs if values[a].shape == values[b].shape)


def _several(place: Place, names: Sequence[str], axis: int, how: str, order: Order) -> Hypothesis:
    edits = tuple(taken(name, axis, order) for name in names)
    values, each = " and ".join(map(repr, names)), "each" if len(names) > 1 else "it"
    sentence = f"the order of {values} is another: {each} {how.format(axis=axis)}"
    fixed = place.is_open(names[0], axis)
    return Hypothesis("order of values", sentence, edits, ("order of values", how), fixed=fixed)


def rolled_values(place: Place) -> Hypotheses:
    """Yield values that several nodes roll along an axis, as `torch.roll` is exported."""
    for site in place.sites:
        made, first, axis = site.made, site.operand(0), site.attributes.get("axis", 0)
        if site.op_type != "Concat" or made is None or first is None or not isinstance(axis, int):
            continue
        makers = [site.maker(slot) for slot in range(len(site.input))]
        read = {m.input[0] for m in makers if m is not None and m.op_type == "Slice"}
        cut = all(maker is None or maker.op_type == "Slice" for maker in makers)
        start = read.pop() if cut and len(read) == 1 else ""
        given = place.values.get(start)
        if given is None or given.shape != made.shape:
            continue
        step = first.shape[axis]  # what was at the end comes first
        if np.array_equal(np.roll(given, step, axis), made):
            back, end = min(step, step - given.shape[axis], key=abs), site.output
            sentence = f"{end!r} is {start!r} rolled by {back} along axis {axis}; not rolled"
            edit = Replace((start,), (end,), op_type="Identity")
            yield Hypothesis("rolled", sentence, (edit,), ("rolled", axis, back))


def order_of_inputs(place: Place) -> Hypotheses:
    """Yield other orders of what a region reads."""
    for name, value in place.inputs.items():
        if not is_array(value) or name in place.whole.inputs:
            continue
        for axis in dict.fromkeys((value.ndim - 1, 1)) if value.ndim > 1 else ():
            for how, order in islice(orders(value.shape[axis]), _ORDERS):
                sentence, edit = f"{name!r} {how.format(axis=axis)}", taken(name, axis, order)
                fixed = place.is_open(name, axis)
                yield Hypothesis("order of an input", sentence, (edit,), fixed=fixed)


def rolled(place: Place) -> Hypotheses:
    """Yield images that are moved along height and width at once, as shifted windows are."""
    for name, value in place.values.items():
        readers, is_wrong = {site.op_type for site in place.readers(name)}, name == place.value
        read = is_wrong or (readers and readers <= set(_CUTTING))
        if value.ndim != _IMAGE or not is_float(value.dtype) or not read:
            continue
        for (one, two), by in product(((1, 2), (2, 3)), range(1, _FARTHEST + 1)):
            for step in (by, -by) if min(value.shape[one], value.shape[two]) > by else ():
                there = None if is_wrong else f"{name}_rolled"
                orders_of = (np.roll(np.arange(value.shape[axis]), step) for axis in (one, two))
                first = taken(name, one, next(orders_of), before=is_wrong, output=there)
                second = taken(there or name, two, next(orders_of), before=is_wrong)
                fixed = place.is_open(name, one) or place.is_open(name, two)
                sentence = f"{name!r} is off by {by} along axes {one} and {two}; moved by {step}"
                mistake, edits = ("rolled", (one, two), step), (first, second)
                yield Hypothesis("rolled", sentence, edits, mistake, fixed=fixed)


def _slices(slices: Sequence[RegionNode]) -> Hypotheses:
    """Yield slices that take contiguous parts instead of every n-th element, or the other way, or another part."""
    several: list[Pass] = []
    layouts: dict[str, None] = {}
    for site in slices:
        for how, edits, layout in _slicings(site):
            several += edits if layout else ()
            layouts |= {layout: None} if layout else {}
            mistake, fixed = ("slice", how), _is_open(site)
            yield Hypothesis("slice", f"{site.title} {how}", tuple(edits), mistake, fixed=fixed)
    if several:
        sentence = f"slices take {' and '.join(layouts)}; changed"
        yield Hypothesis("slices", sentence, tuple(several))
    # all slices off by as much: those of height and width
    for step in _OFF if len(slices) > 1 else ():
        moved = (_moved_slice(site, step) for site in slices)
        edits = [edit for found in moved if found is not None for edit in found[1]]
        titles = " and ".join(site.title for site in slices)
        sentence = f"{titles} are off by {abs(step)}; moved by {step}"
        fixed = any(map(_is_open, slices))
        yield Hypothesis("slices", sentence, tuple(edits), ("slices", step), fixed=fixed)


def _numbers(site: RegionNode) -> tuple[int, int, int, int] | None:
    """Return the (begin, end, axis, step) of a slice of one axis; None for others."""
    found = [0, 0, 0, 1]
    for slot, name in enumerate(site.input[1:]):
        constant = site.constant(slot + 1)
        if name and (constant is None or constant.array.size != 1):
            return None
        if constant is not None:
            found[slot] = int(constant.array.item())
    return found[0], found[1], found[2], found[3]


def _slices_of_any_size(site: RegionNode) -> Hypotheses:
    """Yield slices of an axis of any size that take another part, counted from its begin or from its end."""
    given, numbers = site.operand(0), _numbers(site)
    if given is None or numbers is None or not _is_open(site):
        return
    begin, end, axis, step = numbers
    now, size, first = (begin, end, step), given.shape[axis], site.constant(1)
    limits = np.iinfo(str(first.array.dtype) if first is not None else "int64")
    everything = range(size)[slice(*now)]
    last, count = limits.max, len(everything)
    ends = [(0, last), (1, last), (0, -1), (0, 1), (-1, last), (-count, last)]
    ends += [(2, last), (0, -2), (0, 2), (-2, last)]
    others = [(*each, 1) for each in ends]
    if len(site.input) > 4:
        others += [(0, last, 2), (1, last, 2), (-1, limits.min, -1)]
    for other in others:
        if range(size)[slice(*other)] != everything:
            changed = zip((1, 2, 4), other, now, strict=True)
            edits = [_read(site, slot, np.array([new])) for slot, new, was in changed if new != was]
            part = _part(*other)
            sentence = f"{site.title} takes {_part(*now)} of axis {axis}; with {part}"
            yield Hypothesis("slice", sentence, tuple(edits), ("slice", part))


def _part(begin: int, end: int, step: int) -> str:
    """Return a slice as Python writes it."""
    first = "" if begin == (0 if step > 0 else -1) else str(begin)
    last = "" if abs(end) > _HUGE else str(end)
    return f"[{first}:{last}{f':{step}' if step != 1 else ''}]"


def _is_open(site: RegionNode) -> bool:
    """Return whether the axis that a slice cuts is of any size."""
    axes = site.constant(3)
    return site.place.is_open(site.input[0], 0 if axes is None else int(axes.array.flat[0]))


def _moved_slice(site: RegionNode, step: int) -> tuple[str, list[Pass]] | None:
    """Return (begin and end, edits) of a slice whose begin and end are off together."""
    # an end that means the end stays; one that would wrap around means the end
    starts, ends = site.constant(1), site.constant(2)
    if starts is None or ends is None:
        return None
    begin, moved = starts.array + step, ends.numbers + step
    stays, last = np.abs(moved) > _HUGE, (ends.numbers < 0) & (moved >= 0)
    end = np.where(stays, ends.array, np.where(last, _TO_THE_END, ends.array + step))
    return f"{begin.tolist()} .. {end.tolist()}", [_read(site, 1, begin), _read(site, 2, end)]


def _read(site: RegionNode, slot: int, numbers: Array) -> Pass:
    """Return the edit that makes a node read other numbers at one slot; its constant may be read at two."""
    constant = site.constant(slot)
    if constant is None or site.input.count(constant.name) > 1:
        return Rewire(site.input[slot], str(numbers.tolist()), site.only, slot)
    return constant.edit(numbers)


def _slicings(site: RegionNode) -> Iterator[tuple[str, list[Pass], str]]:
    """Yield (what is wrong, edits, the layout if it is the same part in the other one) of a slice of one axis."""
    for by in _OFF:
        moved = _moved_slice(site, by)
        if moved is not None:
            yield f"is off by {abs(by)}; with {moved[0]}", moved[1], ""
    given, made, numbers = site.operand(0), site.made, _numbers(site)
    if given is None or made is None or numbers is None or len(site.input) < 5:
        return
    start, _, axis, step = numbers
    size, length = given.shape[axis], made.shape[axis]
    if length == size or not length or size % length:
        return
    # the part that is taken now, in one of two layouts
    parts = size // length
    strided = step == parts
    part = start if strided else start // length
    was = f"every {parts}. element from {start}" if strided else f"from {start} on"
    layout = "split parts instead of interleaved ones"
    if strided:
        layout = "interleaved parts instead of split ones"
    for other, strides in product(range(parts), (True, False)):
        if (other, strides) == (part, strided):
            continue
        begin, end, by = other * length, (other + 1) * length, 1
        which = f"[{begin}:{end}]"
        if strides:
            begin, end, by = other, _TO_THE_END, parts
            which = f"every {parts}. element from {begin}"
        edits = [_read(site, s, np.array([n])) for s, n in ((1, begin), (2, end), (4, by))]
        yield f"takes {was}; with {which}", edits, layout if other == part else ""
