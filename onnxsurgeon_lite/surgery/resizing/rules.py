"""Operators that hold sizes: the constants that they need for the sizes of their inputs."""

import math
from collections.abc import Sequence
from itertools import chain

import numpy as np

from onnxsurgeon_lite.errors import ShapeError
from onnxsurgeon_lite.model import integers
from onnxsurgeon_lite.surgery.resizing.inference import State
from onnxsurgeon_lite.surgery.resizing.plan import Entry
from onnxsurgeon_lite.surgery.resizing.sizes import Refolding, Size, constant, product, varies
from onnxsurgeon_lite.surgery.resizing.visit import Visit, level_aligned

_END = np.iinfo(np.int64).max
_KEEPING = ("Concat", "Unsqueeze", "Expand", "Cast", "Identity")
"""What the first column of an index passes through."""
_RECURRENT = ("LSTM", "GRU", "RNN")
_NEEDED = "a consumer needs the changed size"


def _reshape(visit: Visit) -> None:
    state = visit.read(0)
    sizes = visit.sizes(0)
    literals = visit.elements(1)
    # A shape in an attribute (opset 4 and older) cannot be computed: 0 and -1 may do.
    held = integers(visit.node, "shape")
    if sizes is not None and held and any(map(varies, sizes)) and {0, -1}.isdisjoint(held):
        raise _held(visit, "shape")
    if state is None or sizes is None or literals is None or not state.follows:
        return
    copies = not visit.attribute("allowzero", 0)
    # What the operand means at each trial, and which factors of the input end up in each of its axes.
    present = [_resolved(sizes, literals, trial, copies) for trial in range(visit.trials)]
    own = [literal[0] for literal in literals]
    free = own.index(-1) if -1 in own else None
    axes = [axis for axis in state.axes or () if axis is not None]
    target = present[0]
    whole = {symbol.sizes for symbol in visit.plan.symbols}
    refolded = Refolding(axes, target, free, whole, visit.trials).axes() if target else None
    if refolded is None:
        # at some trial the numbers do not fit: one axis that changes would be cut in parts
        if target and None in present and 0 not in target:
            raise visit.blocked(
                f"it splits a dimension that changes: {visit.shown(sizes)} to {own}"
            )
        return
    visit.axes = refolded
    effect = [product(axis) for axis in refolded]  # the sizes that the output must have
    visit.note_kept(1, own, effect)
    # the operand is right at every trial
    if all(at is not None and at == [s[t] for s in effect] for t, at in enumerate(present)):
        return
    fixed = [visit.plan.fixed(size) for size in effect]
    # which sizes a 0 would copy from the same place of the input
    zeros = [copies and i < len(sizes) and sizes[i] == size for i, size in enumerate(effect)]
    visit.refill(1, effect, f"its input is {visit.shown(sizes)}", _literals(own, fixed, zeros))


def _resolved(
    sizes: Sequence[Size], literals: Sequence[Size], trial: int, copies: bool
) -> list[int] | None:
    """Return the shape that a Reshape's operand means at a trial; None if it is invalid."""
    shape = [
        sizes[i][trial] if literal[trial] == 0 and copies and i < len(sizes) else literal[trial]
        for i, literal in enumerate(literals)
    ]
    total = math.prod(size[trial] for size in sizes)
    if -1 in shape:
        # all known entries; the -1 in it makes the product negative
        rest = -math.prod(shape)
        if not rest or total % rest:
            return None
        shape[shape.index(-1)] = total // rest
    return shape if math.prod(shape) == total else None


def _literals(own: Sequence[int], fixed: Sequence[Entry], zeros: Sequence[bool]) -> list[Entry]:
    """Return sizes as a Reshape's operand: -1 for a symbolic size, 0 for a size that it copies from the input."""
    entries: list[Entry] = list(fixed)
    free = own.index(-1) if -1 in own else None
    # As the operand is written: a 0 that copies stays, the -1 stays. Else a symbolic size becomes a 0 or the -1, of
    # which there may be one; only what is left must be computed.
    for i, entry in enumerate(fixed):
        if own[i] == 0 and zeros[i]:
            entries[i] = 0
        elif i == free:
            entries[i] = -1
        elif not isinstance(entry, int) and zeros[i] and free is not None:
            entries[i] = 0
    still = [i for i, entry in enumerate(entries) if not isinstance(entry, int)]
    # the -1 stands for a number: write that number, and let a symbolic size have the -1
    if free is not None and still and isinstance(fixed[free], int):
        entries[free] = fixed[free]
        free = None
    for i in still:
        if free is None:
            entries[i], free = -1, i
        elif zeros[i]:
            entries[i] = 0
    return entries


def _expand(visit: Visit) -> None:
    sizes = visit.sizes(0)
    literals = visit.elements(1)
    needs = visit.demanded()
    if sizes is None or literals is None:
        return
    # Align from the right, as broadcasting does.
    rank = max(len(sizes), len(literals))
    one = visit.one
    given = [one] * (rank - len(sizes)) + sizes
    shape = [one] * (rank - len(literals)) + literals
    effect = list[Size]()
    for axis, (size, literal) in enumerate(zip(given, shape, strict=True)):
        if axis in needs and size != needs[axis]:  # a consumer demands this size
            effect.append(needs[axis])
        # the operand repeats the own size, which the input has already: 1 broadcasts
        elif varies(size) and literal not in (size, one) and literal[0] == size[0]:
            effect.append(one)
        else:
            # the operand changes, the input is fixed at the own size: it must be repeated
            if varies(literal) and not varies(size) and literal[0] == size[0] != 1:
                visit.demand(0, axis - rank + len(sizes), literal, broadcasts=True)
            effect.append(literal)
    if effect != shape:
        why = _NEEDED if needs else "its input depends on the change"
        visit.refill(1, effect, why)


def _constant_of_shape(visit: Visit) -> None:
    literals = visit.elements(0)
    needs = visit.demanded()
    if literals is None or not needs:
        return
    effect = [needs.get(axis, literal) for axis, literal in enumerate(literals)]
    visit.refill(0, effect, _NEEDED)


def _tile(visit: Visit) -> None:
    sizes = visit.sizes(0)
    literals = visit.elements(1)
    needs = visit.demanded()
    if sizes is None or literals is None or not needs:
        return
    effect = list(literals)
    for axis, size in needs.items():
        if any(n % sizes[axis][0] for n in size):  # whole repeats only
            raise visit.blocked(f"its input has size {sizes[axis][0]} and must become {size}")
        effect[axis] = tuple(n // sizes[axis][0] for n in size)
    visit.refill(1, effect, _NEEDED)


def _slice(visit: Visit) -> None:
    sizes = visit.sizes(0)
    starts = visit.elements(1)
    ends = visit.elements(2)
    # opset 9 and older: start and end are attributes
    if sizes is not None and _holds_an_end(visit, sizes):
        raise _held(visit, "ends")
    if sizes is None or starts is None or ends is None:
        return
    one = visit.one
    axes = visit.elements(3) if visit.read(3) else [(i,) for i in range(len(ends))]
    steps = visit.elements(4) if visit.read(4) else [one] * len(ends)
    if axes is None or steps is None:
        return
    effect = list(ends)
    # from 0 to the own size: the whole axis
    for i, (axis, start, end, step) in enumerate(zip(axes, starts, ends, steps, strict=True)):
        size = sizes[axis[0]]
        whole = start[0] == 0 and step == one and end[0] == size[0]
        if varies(size) and whole and not varies(end):
            effect[i] = size
    if effect != ends:
        entries = [
            # no size, but the largest number: to the end, whatever the size is
            _END if new != old else visit.plan.fixed(old)
            for new, old in zip(effect, ends, strict=True)
        ]
        visit.refill(2, effect, "it keeps the whole of an axis that changes", entries)


def _holds_an_end(visit: Visit, sizes: Sequence[Size]) -> bool:
    """Return whether a Slice of an older opset takes a whole changed axis by its constant end."""
    starts, ends = integers(visit.node, "starts"), integers(visit.node, "ends")
    axes = integers(visit.node, "axes") or range(len(ends))
    return any(
        varies(sizes[axis]) and (start, end) == (0, sizes[axis][0])
        for axis, start, end in zip(axes, starts, ends, strict=True)
    )


def _split(visit: Visit) -> None:
    sizes = visit.sizes(0)
    literals = visit.elements(1)
    if (
        sizes is not None
        and integers(visit.node, "split")
        and varies(sizes[visit.attribute("axis", 0)])
    ):
        raise _held(visit, "split")
    if sizes is None or not literals:
        return
    whole = sizes[visit.attribute("axis", 0)]
    count = len(literals)
    # equal parts, which fill the axis at every trial
    even = all(literal == constant(literals[0][0], visit.trials) for literal in literals)
    fits = literals[0][0] * count == whole[0] and all(n % count == 0 for n in whole)
    if varies(whole) and even and fits:
        part = tuple(n // count for n in whole)
        visit.refill(1, [part] * count, "it splits an axis that changes into equal parts")


def _resize(visit: Visit) -> None:
    sizes = visit.sizes(0)
    literals = visit.elements(3)
    if sizes is None or literals is None:
        return
    axes = integers(visit.node, "axes") or range(len(sizes))
    effect = [  # a target that is the own size of the axis keeps it
        sizes[axis] if literal == constant(sizes[axis][0], visit.trials) else literal
        for axis, literal in zip(axes, literals, strict=True)
    ]
    if effect != literals:
        visit.refill(3, effect, "it keeps the size of an axis that changes")


def _gather(visit: Visit) -> None:
    """Let an index that takes every row of an axis that changes, one after another, take all rows that there are."""
    # An index such as [0, 1, 2, ...] takes all rows of an axis. It becomes a `Ramp` that counts as far as the axis
    # reaches.
    state = visit.read(0)
    nested = visit.node.op_type == "GatherND"
    array = visit.array(visit.node.input[1])
    if state is None or not state.axes or visit.attribute("batch_dims", 0):
        return
    if nested and array is None:
        _take_all_samples(visit, state)
        return
    if array is None or not array.ndim:  # it takes one row
        return
    numbers = array.astype(np.int64)
    rows = state.axes[0 if nested else visit.attribute("axis", 0)]
    # only the outermost factor of the axis may change
    if not rows or not varies(rows[0]) or any(map(varies, rows[1:])):
        return
    # an axis of rows * inner elements: consecutive rows are `inner` apart
    count = rows[0][0]
    inner = math.prod(size[0] for size in rows[1:])
    step = np.zeros([1] * (numbers.ndim - nested) + [numbers.shape[-1]] * nested, np.int64)
    step[..., :1] = inner
    for axis in range(numbers.ndim - nested):
        base = numbers.take([0], axis)
        picked = base[..., :1] if nested else base
        if not ((picked >= 0) & (picked < inner)).all() or numbers.shape[axis] != count:
            continue
        counted = np.arange(count).reshape([-1 if at == axis else 1 for at in range(numbers.ndim)])
        if (numbers == base + step * counted).all():  # a row more at each step along this axis
            visit.count(1, axis, base, step, rows[0])
            return


def _take_all_samples(visit: Visit, state: State) -> None:
    """Let a computed index that takes the only row of an axis along an axis of its own take all rows that there are.

    A mask is indexed so: `mask[arange(batch)[:, None], positions]` of an export with one sample.
    """
    rows, index = state.axes[0] if state.axes else None, visit.sizes(1)
    if index is None or not rows or len(rows) > 1:
        return
    # one sample so far, and any number afterwards
    size = rows[0]
    if size[0] != 1 or not varies(size):
        return
    # the batch is the first axis of what is computed, and has size 1 or is that already
    is_open = len(index) > 1 and index[0] in (visit.one, size)
    columns = index[-1][0]
    if is_open and columns > 1 and _first_is_zero(visit, len(index) - 1):
        # one more in the first column with each sample
        base = np.zeros([1] * (len(index) - 1) + [columns], np.int64)
        step = base.copy()
        step[..., 0] = 1
        visit.count(1, 0, base, step, size, onto=True)


def _first_is_zero(visit: Visit, last: int) -> bool:
    """Return whether the first column of an index is zeros, of whatever size.

    Args:
        last: the axis of the columns.
    """
    name = visit.node.input[1]
    array = visit.array(name)
    # back to the constant that the column was expanded from
    while array is None and (at := visit.scope.producers.get(name)) is not None:
        node = visit.scope.graph.node[at]
        # joined with other columns, not with other rows
        axes = [a.i for a in node.attribute if a.name == "axis"]
        if node.op_type not in _KEEPING or not {-1, last}.issuperset(axes):
            return False
        name = node.input[0]
        array = visit.array(name)
    return array is not None and not array.any()


def _recurrent(visit: Visit) -> None:
    sizes = visit.sizes(0)
    if sizes is None or len(sizes) != 3:
        return
    layout = visit.attribute("layout", 0)
    batch = sizes[0 if layout else 1]
    # Lengths, initial states and cells were made for the own batch size.
    for slot, axis in ((4, 0), (5, 0 if layout else 1), (6, 0 if layout else 1)):
        state = visit.sizes(slot)
        if state and varies(batch) and state[axis] == constant(batch[0], len(batch)):
            visit.demand(slot, axis, batch)


def _flatten(visit: Visit) -> None:
    state, sizes = visit.read(0), visit.sizes(0)
    if state is None or sizes is None or state.axes is None:
        return
    middle = visit.attribute("axis", 1)
    axes = [axis for axis in state.axes if axis is not None]
    one = (visit.one,)
    visit.axes = [  # the factors of the axes in front, then those behind
        tuple(chain.from_iterable(part)) or one for part in (axes[:middle], axes[middle:])
    ]


def _along_axis(visit: Visit) -> None:
    """Let operands have one size at all axes but that along which the node joins, picks or puts."""
    level_aligned(visit, from_right=False, skip=visit.attribute("axis", 0))


def _held(visit: Visit, attribute: str) -> ShapeError:
    """Return the error for a size in an attribute that must change, as in older opsets."""
    return visit.blocked(
        f"its attribute {attribute!r} holds a size that must change",
        hint="turn it into a constant, which can change: onnxdbg edit opset MODEL 13",
    )


RULES = {
    "Reshape": _reshape,
    "Expand": _expand,
    "ConstantOfShape": _constant_of_shape,
    "Tile": _tile,
    "Slice": _slice,
    "Split": _split,
    "Resize": _resize,
    "Gather": _gather,
    "GatherND": _gather,
    "Flatten": _flatten,
    **dict.fromkeys(("Concat", "GatherElements", "ScatterElements"), _along_axis),
    **dict.fromkeys(_RECURRENT, _recurrent),
}
