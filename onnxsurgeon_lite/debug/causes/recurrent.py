"""Mistakes in the constants of an LSTM, GRU or RNN: the order of gates, and numbers solved for unit by unit."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from onnxsurgeon_lite.debug.causes.cells import (
    BIAS,
    GATES,
    INPUTS,
    SLOTS,
    STATE,
    Cells,
    Direction,
    Solved,
    sums_of,
)
from onnxsurgeon_lite.debug.causes.hypothesis import MISTAKES, Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.operations import composed
from onnxsurgeon_lite.debug.causes.place import Constant, Ints, Place, RegionNode
from onnxsurgeon_lite.debug.causes.solving import (
    borrowed,
    described,
    is_rounded,
    plain,
    rounding,
    solved_constant,
    unchanged,
)
from onnxsurgeon_lite.model.messages import integer
from onnxsurgeon_lite.names import joined
from onnxsurgeon_lite.tensors.dtypes import Array, Wide, is_array, wide

_SPLITS = 13  # the opset since which Split reads its sizes
_PARTS = MISTAKES["gates"]["together"]

Arranged = tuple[str, str, dict[int, Array]]
"""(kind of mistake, what is wrong, right numbers by slot)."""


_SAMPLES = 8


def _constants(site: RegionNode) -> dict[int, Constant]:
    """Return the weights (slots 1 and 2) and the biases (3) of a recurrent node."""
    found = (site.constant(slot) for slot in (1, 2, 3))
    return {constant.slot: constant for constant in found if constant is not None}


def recurrent(place: Place) -> Hypotheses:
    """Yield other arrangements of the constants of recurrent nodes, and other numbers that their biases begin with."""
    for site in place.sites:
        if site.op_type not in GATES:
            continue
        constants = _constants(site)
        arrays = {slot: constant.array for slot, constant in constants.items()}
        for kind, how, right in _arranged(arrays, GATES[site.op_type]):
            changed = [s for s, array in right.items() if not np.array_equal(array, arrays[s])]
            names = joined(constants[slot].name for slot in changed)
            edits = tuple(constants[slot].edit(right[slot]) for slot in changed)
            if edits:
                sentence = how.format(title=site.title, names=names)
                yield Hypothesis(kind, sentence, edits, (kind, site.op_type, how, changed))


def _arranged(arrays: Mapping[int, Array], count: int) -> Iterator[Arranged]:
    """Yield other orders of gates, of directions, of the halves of the bias; other biases; transposed gates."""
    # gates in another order: of all constants, of some, of one direction
    _, *orders = itertools.permutations(range(count))
    wrong, other = "the gates of {title} are", "in another order in {names}; taken as"
    for order, parts in itertools.product(orders, _PARTS):
        right = {slot: _regated(a, slot, parts, order) for slot, a in arrays.items()}
        yield "gate order", f"{wrong} {other} {list(order)}", right
    if all(len(a) == 2 for a in arrays.values()):
        for way, order in itertools.product(range(2), orders):
            right = {slot: a.copy() for slot, a in arrays.items()}
            for slot, numbers in right.items():
                numbers[way] = _regated(numbers, slot, _PARTS[0], order)[way]
            of_one = f"the gates of direction {way} of {{title}} are {other} {list(order)}"
            yield "gate order", of_one, right
    # numbers of the other direction
    how = "the two directions of {title} are exchanged in {names}; changed back"
    yield "directions", how, {slot: a[::-1].copy() for slot, a in arrays.items()}
    bias, state = arrays.get(3), arrays.get(2)
    # biases: Wb and Rb exchanged, or one gate that begins with another number, as forget gates do
    if bias is not None:
        halves = bias.reshape(len(bias), 2, -1)
        how = "the biases of inputs and state of {title}, {names}, are exchanged; changed back"
        yield "bias halves", how, {3: halves[:, ::-1].reshape(bias.shape)}
        for half, step in itertools.product(range(2 * count), (1.0, -1.0)):
            at = (np.arange(2 * count) == half)[:, None]
            added = bias.reshape(len(bias), 2 * count, -1) + step * at
            how = f"{{names}} of {{title}} lacks {step:+g} at gate {half % count}; added"
            yield "gate bias", how, {3: added.reshape(bias.shape)}
    # each gate's square matrix transposed; as a whole the weight is not square
    if state is not None:
        blocks = state.reshape(len(state), count, -1, state.shape[-1])
        if blocks.shape[2] == blocks.shape[3]:
            how = "each gate of {names} of {title} is transposed; transposed back"
            yield "transposed constant", how, {2: blocks.swapaxes(2, 3).reshape(state.shape)}


def _regated(array: Array, slot: int, parts: Ints, order: Ints) -> Array:
    """Reorder the gates of `[directions, gates * hidden, ...]`; a bias holds two sets of them."""
    sets = 2 if slot == 3 else 1
    right = array.reshape(array.shape[0], sets, len(order), -1).copy()
    for part in range(sets):
        if slot - 1 + part in parts:
            right[:, part] = right[:, part][:, list(order)]
    return right.reshape(array.shape)


def solved_units(place: Place) -> Hypotheses:
    """Yield constants of recurrent nodes whose wanted states are known, with the numbers that give these."""
    for site in place.sites:
        if site.op_type not in GATES or not _is_usual(site):
            continue
        seen = (cells_of(there) for there in _seen_at(site))
        every = next(filter(None, seen), [])
        found = (h for slot in SLOTS if every for h in _of_constant(site.constant(slot), every))
        for hypothesis in found:
            yield hypothesis
            if hypothesis.proves:
                break


def _of_constant(constant: Constant | None, every: Sequence[Cells]) -> Hypotheses:
    """Yield one constant, with other numbers where it is zero, then everywhere."""
    if constant is None or not constant.is_float:
        return
    # a weight that is zero in part has lost that part: fewer unknowns, so it comes first
    slot, zero = constant.slot, constant.array == 0
    for free in (zero, np.ones_like(zero)) if zero.any() and slot != BIAS else (zero | ~zero,):
        masks = [_by_unit(f, c, slot) for f, c in zip(free, every, strict=True)]
        width = max(int(mask.sum(axis=(1, 2)).max()) for mask in masks)
        # what could not be proved is not solved for, unless it is plainly wrong
        proves = Hypothesis("", "", (), (), width, every[0].rows).proves
        if proves or plain(constant, rounding(constant.numbers)):
            solved = [cells.solved(slot, mask) for cells, mask in zip(every, masks, strict=True)]
            yield from _repaired(constant, every[0].kind, solved)


def ends_of_directions(place: Place) -> Hypotheses:
    """Yield the last step of the first half, the first one of the other, where one step of both directions is taken."""
    if not any(node.op_type in GATES for node in place.whole.nodes):
        return
    for site in place.sites if place.opset >= _SPLITS else ():
        read, made, step = site.operand(0), site.made, site.constant(1)
        if site.op_type != "Gather" or read is None or made is None or not made.ndim:
            continue
        # one step alone, of values that have both directions side by side
        axis, halves = integer(site.node, "axis") % read.ndim, made.shape[-1] // 2
        if step is None or step.array.ndim or axis == read.ndim - 1 or made.shape[-1] % 2:
            continue
        # a backward pass ends at the first step
        nodes = f"f = Gather <axis = {axis}> (x, last) b = Gather <axis = {axis}> (x, first)"
        nodes += " s, t = Split <axis = -1> (f, halves) u, v = Split <axis = -1> (b, halves)"
        numbers = {"last": np.array(-1), "first": np.array(0), "halves": np.array([halves] * 2)}
        ends = site.input[0], site.output, read
        edit = composed(
            place, *ends, f"{nodes} y = Concat <axis = -1> (s, v)", numbers, result=made
        )
        was = f"{site.title} takes one step of both directions"
        sentence = f"{was}; with the last of the first half and the first of the other"
        yield Hypothesis("ends of directions", sentence, (edit,), ("ends", axis))


def states_are_known(site: RegionNode) -> bool:
    """Return whether the wanted states of a recurrent node are known."""
    return any(_directions(there) for there in _seen_at(site))


def free_biases(array: Array, kind: str) -> NDArray[np.bool_]:
    """Return which biases may change: only the sum of two halves counts, so the half that is zero, else that of inputs.

    In the last gate of a GRU the two count apart.
    """
    halves = array.reshape(len(array), 2, GATES[kind], -1)
    free = np.zeros(halves.shape, bool)
    for numbers, way in zip(halves, free, strict=True):
        way[int(numbers[0].any() and not numbers[1].any())] = True
        way[:, -1] |= kind == "GRU"
    return free.reshape(array.shape)


def _seen_at(site: RegionNode) -> Iterator[RegionNode]:
    """Yield a node, and in places that end at a value after it for which the model has no reference."""
    yield site
    place = site.place
    # what follows from the states in the region, and references that may be of one of these values
    behind = {site.number} | (place.index.descendants([site.number]) & place.leading)
    later = place.index.made_by(behind)
    values = [name for name in place.values if name in later]
    for (name, array), value in itertools.product(place.lacking.items(), values):
        made = place.values.get(value)
        if made is not None and made.shape == array.shape and value != place.value:
            read = ((sample, sample.recorded(name)) for sample in place.samples[:_SAMPLES])
            known = [replace(s, wanted={value: v}) for s, v in read if is_array(v)]
            yield replace(place, value=value, samples=known).sites[site.number]


def cells_of(site: RegionNode) -> list[Cells]:
    """Return the directions of a recurrent node; none where its states are not known."""
    weight, state, bias = (site.operand(slot) for slot in (INPUTS, STATE, BIAS))
    if weight is None or state is None or (site.name(BIAS) and bias is None):
        return []
    if bias is None:
        bias = np.zeros((len(weight), 2 * weight.shape[1]))
    place, seen = site.place, [_directions(site)]
    seen += (
        _directions(replace(place, samples=[sample], nearby={}).sites[site.number])
        for sample in place.samples[1:_SAMPLES]
    )
    if not all(seen):
        return []
    # one for each direction, with what enters it in each sample
    numbers = (map(wide, three) for three in zip(weight, state, bias, strict=True))
    directions = zip(*seen, strict=True)
    return [
        Cells(site.op_type, (w, r, b), way)
        for (w, r, b), way in zip(numbers, directions, strict=True)
    ]


def _is_usual(site: RegionNode) -> bool:
    """Return whether a node has the functions that it has by default, and steps along its first axis."""
    # the cells are computed in numpy as ONNX defines them by default; other settings are rare
    known, named = site.attributes, site.attributes.get("activations")
    usual = list(map(str.lower, MISTAKES["recurrent"][site.op_type]))
    usual *= 2 if known.get("direction") == "bidirectional" else 1
    rare = any(known.get(name) for name in ("clip", "input_forget", "layout"))
    resets = site.op_type == "GRU" and not known.get("linear_before_reset")
    functions = [str(name).lower() for name in named] if isinstance(named, list) else []
    rare = rare or any(site.input[4:5]) or any(site.input[7:])  # sequence_lens, peepholes
    is_known = functions[: len(usual)] in ([], usual)
    return site.node.domain in ("", "ai.onnx") and is_known and not rare and not resets


def _directions(site: RegionNode) -> list[Direction]:
    """Return the directions of a node in the first sample of a place; none where its states are not known."""
    given, wanted = site.operand(0), site.wanted
    if given is None or wanted is None or wanted.ndim != 4 or len(given) != len(wanted):
        return []
    # what the first step starts from: initial states, or zeros
    none = np.zeros(wanted.shape[1:2] + wanted.shape[2:])
    starts = [site.operand(slot) if site.name(slot) else none for slot in (5, 6)]
    known = [wide(start) for start in starts if start is not None and start.shape == none.shape]
    if len(known) < 2 or not all(np.isfinite(a).all() for a in (given, wanted, *known)):
        return []
    found = []
    # each direction in the order of its own steps: the state before a step is the wanted one
    for way, (state, cell) in enumerate(zip(*known, strict=True)):
        backwards = way == 1 or site.attributes.get("direction") == "reverse"
        step = -1 if backwards else 1
        states = wanted[::step, way]
        before = np.concatenate([state[None], states[:-1]])
        found.append(Direction(wide(given)[::step], before, cell, states))
    return found


def _repaired(constant: Constant, kind: str, solved: Sequence[Solved | None]) -> Hypotheses:
    """Yield a constant with what was solved for in each direction, if that was."""
    there = [found for found in solved if found is not None]
    wrong = [found for found in there if found.unknowns]
    if len(there) < len(solved) or not wrong:
        return
    # the numbers of each direction with their change
    slot, old, right = constant.slot, constant.numbers, constant.numbers.copy()
    for numbers, found in zip(right, there, strict=True):
        change = found.change
        stored = change.swapaxes(0, 1).reshape(-1, change.shape[2])
        numbers += _added(change, numbers, kind) if slot == BIAS else stored
    if unchanged(old, right).all() or not np.isfinite(right).all():
        return
    right = settled(old, right, slot)
    # what that says, and whether it is proved: the direction with the fewest equations to spare decides
    said, where = described_in(old, right, slot)
    lent = borrowed(constant)
    least = min(wrong, key=lambda found: found.equations - found.unknowns)
    how, known = lent or said + where, (least.unknowns, least.equations)
    bounded = all(each.determined for each in wrong) and is_rounded(old, right)
    vague, plainly = not lent and said == "differs", plain(constant, said + where)
    repair = solved_constant(constant, right, how, *known)
    yield replace(repair, vague=vague, bounded=bounded, plain=plainly)


def settled(old: Wide, right: Wide, slot: int) -> Wide:
    """Return numbers without noise where most are as before, in each direction and half: else a few are by chance."""
    same = unchanged(old, right).reshape(len(old), 2 if slot == BIAS else 1, -1)
    mostly = 2 * same.sum(axis=2, keepdims=True) > same.shape[2]
    return np.where((same & mostly).reshape(old.shape), old, right)


def _by_unit(array: NDArray[np.bool_], cells: Cells, slot: int) -> NDArray[np.bool_]:
    """Return [gates * units, features] as [units, gates, features]; of a bias the sums of its halves."""
    if slot == BIAS:
        return np.ones((cells.hidden, len(sums_of(cells.kind, slot)), 1), bool)
    return array.reshape(-1, cells.hidden, array.shape[1]).swapaxes(0, 1)


def _added(change: Wide, bias: Wide, kind: str) -> Wide:
    """Return the change of a bias, of whose halves the references determine but the sum.

    It is that of the half that is zero, unless that of the other half is a plain one.
    """
    # of a GRU the last gate has two sums, of the others all halves are added
    sums, gates = change[..., 0].T, GATES[kind]
    shared = gates - (kind == "GRU")
    # a half of zeros takes the change where it would look arbitrary in the other half
    inputs, state = bias.reshape(2, gates, -1)
    added = np.zeros((2, gates, inputs.shape[1]))
    moved = inputs.copy()
    moved[:shared] += sums[:shared]
    is_all = not unchanged(inputs, moved)[:shared].all()
    at = int(inputs.any() and not state.any() and is_all and described(inputs, moved) == "differs")
    added[at, :shared] = sums[:shared]
    if kind == "GRU":
        added[:, shared] = sums[shared:]
    return added.reshape(-1)


def described_in(old: Wide, right: Wide, slot: int) -> tuple[str, str]:
    """Return (how a constant differs from the right one, in which direction and half)."""
    where = " in its biases" if slot == BIAS else ""
    # the whole, else one direction, else one half of the bias
    if not old.any():
        return "is zero everywhere", where
    wrong = np.flatnonzero((old != right).reshape(len(old), -1).any(axis=1))
    if len(wrong) < len(old):
        way, where = int(wrong[0]), f"{where} in direction {wrong[0]}"
        if np.array_equal(old[0], old[1]):
            return f"has the numbers of direction {1 - way}", where
        old, right = old[way], right[way]
    if slot == BIAS:
        halves = [a.reshape(*a.shape[:-1], 2, -1) for a in (old, right)]
        apart = (halves[0] != halves[1]).reshape(-1, 2, halves[0].shape[-1]).any(axis=(0, 2))
        if apart.sum() == 1:
            half = int(apart.argmax())
            old, right = (a[..., half, :] for a in halves)
            where = where.replace("its biases", f"the bias of the {('inputs', 'state')[half]}")
    return described(old, right), where
