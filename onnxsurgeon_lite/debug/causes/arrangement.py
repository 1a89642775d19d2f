"""Mistakes in arrangement: channels, heads or halves of a value in another order."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, islice, product

import numpy as np
from onnx import NodeProto

from onnxsurgeon_lite.debug.causes.constants import Order, orders, rotary_orders
from onnxsurgeon_lite.debug.causes.hypothesis import Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.place import Place, wide
from onnxsurgeon_lite.passes import Insert, Pass, Replace, Rewire, SetConstant
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


def arrangement(place: Place) -> Hypotheses:
    """Yield other orders of what a region computes, of the parts that it takes, and of several inputs together."""
    for number, node in enumerate(place.nodes):
        if node.op_type == "Slice" and len(node.input) > 2:
            yield from _slices_of_any_size(place, number, node)
    yield from _results(place)
    yield from _slices(place)
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
                edit = _taken(place.value, axis, order, before=True)
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
    alike: dict[tuple[int, ...], list[str]] = {}
    for name, value in given.items():
        alike.setdefault(value.shape, []).append(name)
    for shape, names in alike.items():
        for how, order in orders(shape[-1]) if len(names) > _PAIR else ():
            if "interleaved" in how:
                yield _several(place, names, len(shape) - 1, how, order)
    repeated = [n.output[0] for n in place.nodes if n.op_type in _REPEATING]
    values = {n: place.values[n] for n in repeated if n in place.values}
    values = {n: v for n, v in values.items() if v.ndim > _HEADS + 1}
    for together in (*_alike(values), *((name,) for name in values)):
        for how, order in orders(values[together[0]].shape[_HEADS]):
            if "interleaved" in how:
                yield _several(place, together, _HEADS, how, order)


def _alike(values: Mapping[str, Array]) -> Iterator[tuple[str, str]]:
    pairs = combinations(values, 2)
    return ((a, b) for a, b in pairs if values[a].shape == values[b].shape)


def _several(place: Place, names: Sequence[str], axis: int, how: str, order: Order) -> Hypothesis:
    edits = tuple(_taken(name, axis, order) for name in names)
    values, each = " and ".join(map(repr, names)), "each" if len(names) > 1 else "it"
    sentence = f"the order of {values} is another: {each} {how.format(axis=axis)}"
    fixed = place.is_open(names[0], axis)
    return Hypothesis("order of values", sentence, edits, ("order of values", how), fixed=fixed)


def rolled_values(place: Place) -> Hypotheses:
    """Yield values that several nodes roll along an axis, as `torch.roll` is exported."""
    values = {**place.values, **place.inputs}
    for node in place.nodes:
        cut = [place.producer.get(name, -1) for name in node.input]
        made, first = place.values.get(node.output[0]), values.get(next(iter(node.input), ""))
        if node.op_type != "Concat" or made is None or not is_array(first):
            continue
        slices = (place.nodes[n] for n in cut if n >= 0)
        read = {n.input[0] if n.op_type == "Slice" else "" for n in slices}
        start, axis = next(iter(read), ""), place.attributes(node).get("axis", 0)
        given = values.get(start)
        if len(read) > 1 or not is_array(given) or not isinstance(axis, int):
            continue
        step = first.shape[axis]  # what was at the end comes first
        if given.shape == made.shape and np.array_equal(np.roll(given, step, axis), made):
            back = min(step, step - given.shape[axis], key=abs)
            end = node.output[0]
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
                sentence, edit = f"{name!r} {how.format(axis=axis)}", _taken(name, axis, order)
                fixed = place.is_open(name, axis)
                yield Hypothesis("order of an input", sentence, (edit,), fixed=fixed)


def rolled(place: Place) -> Hypotheses:
    """Yield images that are moved along height and width at once, as shifted windows are."""
    for name, value in place.values.items():
        readers = [place.nodes[n].op_type for n in place.consumers.get(name, ())]
        behind = name == place.value
        read = behind or (readers and {*readers} <= {*_CUTTING})
        if value.ndim != _IMAGE or not is_float(value.dtype) or not read:
            continue
        for axes, by in product(((1, 2), (2, 3)), range(1, _FARTHEST + 1)):
            for step in (by, -by) if all(value.shape[a] > by for a in axes) else ():
                orders_of = [np.roll(np.arange(value.shape[a]), step) for a in axes]
                there = f"{name}_rolled"
                first, second = (
                    _taken(v, a, o, before=behind)
                    for v, a, o in zip(
                        (name, name if behind else there), axes, orders_of, strict=True
                    )
                )
                edits = (replace(first, output=None if behind else there), second)
                fixed = any(place.is_open(name, a) for a in axes)
                sentence = (
                    f"{name!r} is off by {by} along axes {axes[0]} and {axes[1]}; moved by {step}"
                )
                yield Hypothesis("rolled", sentence, edits, ("rolled", axes, step), fixed=fixed)


def _taken(value: str, axis: int, order: Order, before: bool = False) -> Insert:
    """Return the edit that takes a value's elements in an order."""
    return Insert(
        value,
        "Gather",
        attributes=(("axis", axis),),
        constants=(("order", np.asarray(order, np.int64)),),
        before=before,
    )


def _slices(place: Place) -> Hypotheses:
    """Yield slices that take contiguous parts instead of every n-th element, or the other way, or another part."""
    several: list[Pass] = []
    layouts: dict[str, None] = {}
    for number, node in enumerate(place.nodes):
        if node.op_type == "Slice" and len(node.input) > 2:
            for how, edits, layout in _slicings(place, number, node):
                several += edits if layout else ()
                layouts |= {layout: None} if layout else {}
                sentence, fixed = f"{place.title(number)} {how}", _is_open(place, node)
                yield Hypothesis("slice", sentence, tuple(edits), ("slice", how), fixed=fixed)
    if several:
        sentence = f"slices take {' and '.join(layouts)}; changed"
        yield Hypothesis("slices", sentence, tuple(several))
    yield from _moved_slices(place)


def _slices_of_any_size(place: Place, number: int, node: NodeProto) -> Hypotheses:
    """Yield slices of an axis of any size that take another part, counted from its begin or from its end."""
    given = place.operand(node.input[0])
    known = [place.constant(name) if name else None for name in node.input[1:]]
    steps = known[3] if len(known) > 3 else None
    single = all(array is None or array.size == 1 for array in known)
    if given is None or known[0] is None or known[1] is None or not single:
        return
    if not _is_open(place, node):
        return
    now = [int(array.reshape(-1)[0]) if array is not None else 1 for array in (*known[:2], steps)]
    size, limits = given.shape[_axis(place, node)], np.iinfo(str(known[0].dtype))
    taken = range(size)[slice(*now)]
    end, count = limits.max, len(taken)
    ends = [(0, end, 1), (1, end, 1), (0, -1, 1), (0, 1, 1), (-1, end, 1), (-count, end, 1)]
    ends += [(2, end, 1), (0, -2, 1), (0, 2, 1), (-2, end, 1)]
    if steps is not None:
        ends += [(0, end, 2), (1, end, 2), (-1, limits.min, -1)]
    for other in ends:
        if range(size)[slice(*other)] != taken:
            changed = zip((1, 2, 4), other, now, strict=True)
            edits = [_read(place, number, s, np.array([n])) for s, n, was in changed if n != was]
            part = _part(*other)
            sentence = f"{place.title(number)} takes {_part(*now)} of axis {_axis(place, node)}; with {part}"
            yield Hypothesis("slice", sentence, tuple(edits), ("slice", part))


def _part(begin: int, end: int, step: int) -> str:
    """Return a slice as Python writes it."""
    first = "" if begin == (0 if step > 0 else -1) else str(begin)
    last = "" if abs(end) > _HUGE else str(end)
    return f"[{first}:{last}{f':{step}' if step != 1 else ''}]"


def _axis(place: Place, node: NodeProto) -> int:
    """Return the axis of a slice of one axis."""
    axes = place.constant(node.input[3]) if len(node.input) > 3 and node.input[3] else None
    return 0 if axes is None else int(axes.reshape(-1)[0])


def _is_open(place: Place, node: NodeProto) -> bool:
    return place.is_open(node.input[0], _axis(place, node))


def _moved_slices(place: Place) -> Hypotheses:
    """Yield all slices of a region off by as much: those of height and width."""
    nodes = [*enumerate(place.nodes)]
    slices = [(n, node) for n, node in nodes if node.op_type == "Slice" and len(node.input) > 2]
    for step in _OFF if len(slices) > 1 else ():
        moved = [_moved_slice(place, number, node, step) for number, node in slices]
        edits = tuple(edit for found in moved if found is not None for edit in found[1])
        titles = " and ".join(place.title(number) for number, _ in slices)
        sentence = f"{titles} are off by {abs(step)}; moved by {step}"
        fixed = any(_is_open(place, node) for _, node in slices)
        yield Hypothesis("slices", sentence, edits, ("slices", step), fixed=fixed)


def _moved_slice(
    place: Place, number: int, node: NodeProto, step: int
) -> tuple[str, list[Pass]] | None:
    """Return (begin and end, edits) of a slice whose begin and end are off together."""
    starts, ends = (place.constant(name) for name in node.input[1:3])
    if starts is None or ends is None:
        return None
    begin, moved = starts + step, wide(ends) + step
    stays, last = np.abs(moved) > _HUGE, (wide(ends) < 0) & (moved >= 0)
    end = np.where(stays, ends, np.where(last, _TO_THE_END, ends + step))
    edits = [_read(place, number, slot + 1, a) for slot, a in enumerate((begin, end))]
    return f"{begin.tolist()} .. {end.tolist()}", edits


def _read(place: Place, number: int, slot: int, numbers: Array) -> Pass:
    """Return the edit that makes a node read other numbers at one slot; its constant may be read at two."""
    name, to = place.nodes[number].input[slot], place.only(number)
    if list(place.nodes[number].input).count(name) > 1:
        return Rewire(name, str(numbers.tolist()), to, slot)
    return SetConstant(name, numbers, to)


def _slicings(place: Place, number: int, node: NodeProto) -> Iterator[tuple[str, list[Pass], str]]:
    """Yield (what is wrong, edits, the layout if it is the same part in the other one) of a slice of one axis."""
    for by in _OFF:
        moved = _moved_slice(place, number, node, by)
        if moved is not None:
            yield f"is off by {abs(by)}; with {moved[0]}", moved[1], ""
    if len(node.input) < 5:
        return
    given, made = place.operand(node.input[0]), place.values.get(node.output[0])
    known = [place.constant(name) for name in (*node.input[1:3], *node.input[3:5])]
    if given is None or made is None or any(a is None or a.size != 1 for a in known):
        return
    start, _, axis, step = (int(a.reshape(-1)[0]) for a in known if a is not None)
    size, taken = given.shape[axis], made.shape[axis]
    if taken == size or not taken or size % taken:
        return
    parts = size // taken
    strided = step == parts
    part = start if strided else start // taken
    for other in range(parts):
        for strides in (True, False):
            if (other, strides) == (part, strided):
                continue
            begin, end = (other, _TO_THE_END) if strides else (other * taken, (other + 1) * taken)
            numbers = {1: begin, 2: end, 4: parts if strides else 1}
            edits = [_read(place, number, s, np.array([n])) for s, n in numbers.items()]
            which = f"every {parts}. element from {begin}" if strides else f"[{begin}:{end}]"
            was = f"every {parts}. element from {start}" if strided else f"from {start} on"
            ways = ("interleaved", "split") if strided else ("split", "interleaved")
            layout = "{} parts instead of {} ones".format(*ways)
            yield f"takes {was}; with {which}", edits, layout if other == part else ""
