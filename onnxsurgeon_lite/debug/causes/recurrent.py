"""Mistakes in the constants of an LSTM or GRU: the order of gates, halves of the bias, transposed blocks."""

import itertools
from collections.abc import Iterator, Mapping

import numpy as np

from onnxsurgeon_lite.debug.causes.cells import GATES
from onnxsurgeon_lite.debug.causes.hypothesis import Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.place import Constant, Ints, Place, RegionNode
from onnxsurgeon_lite.tensors.dtypes import Array

_PARTS = ((0, 1, 2, 3), (0, 1), (2, 3), (0, 2), (1, 3))
"""What is ordered together: 0 the weight of inputs, 1 that of the state, 2 and 3 their biases."""

Arranged = tuple[str, str, dict[int, Array]]
"""(kind of mistake, what is wrong, right numbers by slot)."""


def _constants(site: RegionNode) -> dict[int, Constant]:
    """Return the weights (slots 1 and 2) and the biases (3) of a recurrent node."""
    found = (site.constant(slot) for slot in (1, 2, 3) if site.op_type in GATES)
    return {constant.slot: constant for constant in found if constant is not None}


def shared_gates(place: Place) -> Hypotheses:
    """Yield other orders of the gates of several recurrent nodes at once: the layers of one module."""
    for op_type, count in GATES.items():
        several = [site for site in place.sites if site.op_type == op_type]
        known = [constant for site in several for constant in _constants(site).values()]
        for order in _others_than_now(count) if len(several) > 1 else ():
            right = [(c, _regated(c.array, c.slot, _PARTS[0], order)) for c in known]
            edits = tuple(c.edit(a) for c, a in right if not np.array_equal(a, c.array))
            if edits:
                titles = " and ".join(site.title for site in several)
                sentence = f"the gates of {titles} are in another order; taken as {[*order]}"
                yield Hypothesis("gate order", sentence, edits, ("gate order", op_type, order))


def _others_than_now(count: int) -> Iterator[Ints]:
    """Yield the orders of gates but for the one that they have."""
    return itertools.islice(itertools.permutations(range(count)), 1, None)


def recurrent(place: Place) -> Hypotheses:
    """Yield other arrangements of the constants of recurrent nodes, and other numbers that their biases begin with."""
    for site in place.sites:
        known = _constants(site)
        arrays = {slot: constant.array for slot, constant in known.items()}
        for kind, how, right in _arranged(arrays, GATES[site.op_type]) if known else ():
            other = [slot for slot, a in right.items() if not np.array_equal(a, arrays[slot])]
            edits = tuple(known[slot].edit(right[slot]) for slot in other)
            listed = ", ".join(repr(known[slot].name) for slot in other)
            if edits:
                sentence = how.format(title=site.title, names=listed)
                yield Hypothesis(kind, sentence, edits, (kind, site.op_type, how))


def _arranged(arrays: Mapping[int, Array], count: int) -> Iterator[Arranged]:
    """Yield other orders of gates, of directions, of the halves of the bias; other biases; transposed gates."""
    orders = [*_others_than_now(count)]
    wrong, other = "the gates of {title} are", "in another order in {names}; taken as"
    for order, parts in itertools.product(orders, _PARTS):
        right = {slot: _regated(a, slot, parts, order) for slot, a in arrays.items()}
        yield "gate order", f"{wrong} {other} {[*order]}", right
    if all(len(a) == 2 for a in arrays.values()):
        for way, order in itertools.product(range(2), orders):
            right = {slot: a.copy() for slot, a in arrays.items()}
            for slot, numbers in right.items():
                numbers[way] = _regated(numbers, slot, _PARTS[0], order)[way]
            of_one = f"the gates of direction {way} of {{title}} are {other} {[*order]}"
            yield "gate order", of_one, right
    how = "the two directions of {title} are exchanged in {names}; changed back"
    yield "directions", how, {slot: a[::-1].copy() for slot, a in arrays.items()}
    bias, state = arrays.get(3), arrays.get(2)
    if bias is not None:
        halves = bias.reshape(len(bias), 2, -1)
        how = "the biases of inputs and state of {title}, {names}, are exchanged; changed back"
        yield "bias halves", how, {3: halves[:, ::-1].reshape(bias.shape)}
        for half, step in itertools.product(range(2 * count), (1.0, -1.0)):
            at = (np.arange(2 * count) == half)[:, None]
            added = bias.reshape(len(bias), 2 * count, -1) + step * at
            how = f"{{names}} of {{title}} lacks {step:+g} at gate {half % count}; added"
            yield "gate bias", how, {3: added.reshape(bias.shape)}
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
            right[:, part] = right[:, part][:, [*order]]
    return right.reshape(array.shape)
