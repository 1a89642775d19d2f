"""Mistakes in arrangement: channels, heads or halves of a value in another order."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, combinations, islice, product

import numpy as np

from onnxsurgeon_lite.debug.causes.constants import (
    Order,
    interleaved_orders,
    orders,
    rotary_orders,
)
from onnxsurgeon_lite.debug.causes.hypothesis import MISTAKES, Edits, Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.place import Place, RegionNode
from onnxsurgeon_lite.passes import Insert, Pass, Rewire, SetAttr
from onnxsurgeon_lite.tensors.dtypes import Array, Shape, has_floats, wide

_LONGEST = 4096  # elements of an axis that is arranged
_ORDERS = 64  # orders of an input
_PAIR = 2
_HEADS = 1  # the axis of heads
_REPEATING = ("Tile", "Expand", "Concat", "Gather", "Reshape")
_TO_THE_END = 2**31 - 1  # the largest index that every dtype of indices holds
_HUGE = 2.0**31  # a larger index means the end
_OFF = (1, -1, 2, -2)  # elements by which a slice is off
_IMAGE = 4  # axes
_CUTTING = ("Reshape", "Slice", "Add", "Concat")  # of an image to windows
_FARTHEST = 4  # pixels by which an image is moved
Bound = int | Array | None
"""The begin, end or step of a part, along each axis that is cut; None where it stays."""


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
    yield from _slices([s for s in place.sites if s.op_type == "Slice" and len(s.input) > 2])
    yield from _split_otherwise(place)
    yield from _results(place)
    yield from _together(place)


def _split_otherwise(place: Place) -> Hypotheses:
    """Yield axes into which another one is split, exchanged where they are put in order: heads and their parts."""
    for site in place.sites:
        maker = site.maker(0) if site.op_type == "Transpose" else None
        sizes = maker.constant(1) if maker is not None and maker.op_type == "Reshape" else None
        if maker is None or sizes is None or len(maker.readers) != 1:
            continue
        # neighbors of other sizes: the result has the same shape as before
        perm, old = site.ints("perm"), sizes.array
        for a in range(min(len(perm), old.size) - 1):
            if old[a] == old[a + 1] or 1 in (old[a], old[a + 1]):
                continue
            right = old.copy()
            right[[a, a + 1]] = old[[a + 1, a]]
            # the same axes of what is split stand at the same places
            order = [{a: a + 1, a + 1: a}.get(axis, axis) for axis in perm]
            was = f"{maker.title} splits into {old.tolist()} before {site.title} puts them in the order {perm}"
            sentence = f"{was}; with {right.tolist()} and {order}"
            edits = sizes.edit(right), SetAttr(site.only, (("perm", order),))
            yield Hypothesis("order of a split", sentence, edits, ("split", a, tuple(perm)))


def _results(place: Place) -> Hypotheses:
    """Yield orders in which the wrong value is the wanted one."""
    actual = place.actual
    if actual is None or actual.shape != place.wanted.shape or not has_floats(actual):
        return
    for axis, size in enumerate(actual.shape):
        # numpy shows at some elements which orders are worth a run
        for how, order in orders(size) if size <= _LONGEST else ():
            at = list(place.spread)
            at[axis] = order[at[axis]]
            if place.close(wide(actual[tuple(at)])):
                edit = taken(place.value, axis, order, before=True)
                sentence = f"the result of {place.maker} {how.format(axis=axis)}"
                mistake, fixed = ("order", how, axis), place.is_open(place.value, axis)
                yield Hypothesis("order of the result", sentence, (edit,), mistake, fixed=fixed)


def _together(place: Place) -> Hypotheses:
    """Yield layouts of rotary embeddings, and of heads that are repeated: several values in the same other order."""
    given = {n: v for n, v in place.entering.items() if v.ndim > 2}
    repeated = {s.output: s.made for s in place.sites if s.op_type in _REPEATING}
    values = {n: v for n, v in repeated.items() if v is not None and v.ndim > _HEADS + 1}
    alike = (tuple(n for n in given if given[n].shape == v.shape) for v in given.values())
    several = [names for names in dict.fromkeys(alike) if len(names) > _PAIR]
    # which values, along which axis, in which orders
    groups = [(names, -1, rotary_orders) for names in _pairs(given)]
    groups += [(names, -1, interleaved_orders) for names in several]
    groups += [(names, _HEADS, interleaved_orders) for names in _pairs(values)]
    groups += [((name,), _HEADS, interleaved_orders) for name in values]
    for names, axis, orders_of in groups:
        shape = {**values, **given}[names[0]].shape
        axis %= len(shape)
        for how, order in orders_of(shape[axis]):
            each = f"{'each' if len(names) > 1 else 'it'} {how.format(axis=axis)}"
            sentence = f"the order of {' and '.join(map(repr, names))} is another: {each}"
            edits = tuple(taken(name, axis, order) for name in names)
            mistake, fixed = ("order of values", how), place.is_open(names[0], axis)
            yield Hypothesis("order of values", sentence, edits, mistake, fixed=fixed)


def _pairs(values: Mapping[str, Array]) -> list[tuple[str, ...]]:
    """Return the pairs of values of one shape."""
    pairs = combinations(values, 2)
    return [pair for pair in pairs if values[pair[0]].shape == values[pair[1]].shape]


def order_of_inputs(place: Place) -> Hypotheses:
    """Yield other orders of what a region reads."""
    for name, value in place.entering.items():
        if name in place.whole.inputs or value.ndim < 2:
            continue
        for axis in dict.fromkeys((value.ndim - 1, 1)):
            for how, order in islice(orders(value.shape[axis]), _ORDERS):
                sentence, fixed = f"{name!r} {how.format(axis=axis)}", place.is_open(name, axis)
                edits = (taken(name, axis, order),)
                yield Hypothesis("order of an input", sentence, edits, fixed=fixed)


def rolled(place: Place) -> Hypotheses:
    """Yield images that are moved along height and width at once, as shifted windows are."""
    for name, value in place.values.items():
        readers, is_wrong = {site.op_type for site in place.readers(name)}, name == place.value
        read = is_wrong or (readers and readers <= set(_CUTTING))
        if value.ndim != _IMAGE or not has_floats(value) or not read:
            continue
        # channels last, then channels first
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
    """Yield slices that take another part: one of them, then all of them in the other layout."""
    several = list[Pass]()
    layouts = dict[str, None]()
    for site in slices:
        yield from _usual_parts(site)
        moved = ((f"is off by {abs(by)}; moved by {by}", *_moved(site, by), "") for by in _OFF)
        for how, begin, end, step, layout in chain(moved, _parts_of_one_size(site)):
            edits = _taking(site, begin, end, step)
            mistake, fixed = ("slice", how), _is_open(site)
            if edits:
                yield Hypothesis("slice", f"{site.title} {how}", edits, mistake, fixed=fixed)
            if layout:
                several += edits
                layouts[layout] = None
    if several:
        sentence = f"slices take {' and '.join(layouts)}; changed"
        yield Hypothesis("slices", sentence, tuple(several))


def _taking(site: RegionNode, *part: Bound) -> Edits:
    """Return the edits that make a slice take another part: its begin, its end, its step."""
    edits = list[Pass]()
    for slot, new in zip((1, 2, 4), part, strict=False):
        constant = site.constant(slot)
        if constant is None or new is None or (constant.array == new).all():
            continue
        right = np.broadcast_to(new, constant.array.shape)
        # its constant may be what another slot reads, too
        shared = site.input.count(constant.name) > 1
        literal = Rewire(constant.name, str(right.tolist()), site.only, slot)
        edits.append(literal if shared else constant.edit(right))
    return tuple(edits)


def _moved(site: RegionNode, step: int) -> tuple[Bound, Bound, Bound]:
    """Return a part whose begin and end are moved together."""
    starts, ends = site.constant(1), site.constant(2)
    if starts is None or ends is None:
        return None, None, None
    # an end that means the end stays; one that would wrap around means the end
    moved = ends.numbers + step
    stays, last = np.abs(moved) > _HUGE, (ends.numbers < 0) & (moved >= 0)
    end = np.where(stays, ends.array, np.where(last, _TO_THE_END, ends.array + step))
    return starts.array + step, end, None


def _numbers(site: RegionNode) -> Shape:
    """Return the (begin, end, axis, step) of a slice of one axis; () for others."""
    found = [0, 0, 0, 1]
    for slot, name in enumerate(site.input[1:]):
        constant = site.constant(slot + 1)
        if name and (constant is None or constant.array.size != 1):
            return ()
        if constant is not None:
            found[slot] = int(constant.array.item())
    return tuple(found)


def _usual_parts(site: RegionNode) -> Hypotheses:
    """Yield slices of an axis of any size that take another part, counted from its begin or from its end."""
    given, numbers = site.operand(0), _numbers(site)
    if given is None or not numbers or not _is_open(site):
        return
    begin, end, axis, step = numbers
    size = given.shape[axis]
    # what Python takes says which parts differ at this size
    now = range(size)[begin:end:step]
    for other in chain([(-len(now), _TO_THE_END, 1)], MISTAKES["slices"]["parts"]):
        has_step = len(site.input) > 4 or other[2] == 1
        if has_step and range(size)[slice(*other)] != now:
            part, was = _part(*other), _part(begin, end, step)
            sentence = f"{site.title} takes {was} of axis {axis}; with {part}"
            yield Hypothesis("slice", sentence, _taking(site, *other), ("slice", part))


def _part(begin: int, end: int, step: int) -> str:
    """Return a slice as Python writes it."""
    first = "" if begin == (0 if step > 0 else -1) else str(begin)
    last = "" if abs(end) >= _TO_THE_END else str(end)
    return f"[{first}:{last}{f':{step}' if step != 1 else ''}]"


def _is_open(site: RegionNode) -> bool:
    """Return whether the axis that a slice cuts is of any size."""
    axes = site.constant(3)
    return site.place.is_open(site.input[0], 0 if axes is None else int(axes.array.flat[0]))


def _parts_of_one_size(site: RegionNode) -> Iterator[tuple[str, int, int, int, str]]:
    """Yield (what is wrong, begin, end, step, the layout if it is the same part in the other one)."""
    given, made, numbers = site.operand(0), site.made, _numbers(site)
    if given is None or made is None or not numbers or len(site.input) < 5:
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
    layout = "interleaved parts instead of split ones"
    if not strided:
        layout = "split parts instead of interleaved ones"
    for other, strides in product(range(parts), (True, False)):
        same = layout if other == part else ""
        begin, end = other * length, (other + 1) * length
        if strides and not (strided and same):
            how = f"takes {was}; with every {parts}. element from {other}"
            yield how, other, _TO_THE_END, parts, same
        elif not strides and (strided or not same):
            yield f"takes {was}; with [{begin}:{end}]", begin, end, 1, same
