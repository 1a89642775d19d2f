"""Mistakes in the constants of an LSTM or GRU: the order of gates, halves of the bias, transposed blocks."""

import itertools
from collections.abc import Iterator, Mapping

import numpy as np

from onnxsurgeon_lite.debug.causes.hypothesis import Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.place import Ints, Place
from onnxsurgeon_lite.passes.set_constant import SetConstant
from onnxsurgeon_lite.tensors.dtypes import Array

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_PARTS = ((0, 1, 2, 3), (0, 1), (2, 3), (0, 2), (1, 3))
"""What is ordered together: 0 the weight of inputs, 1 that of the state, 2 and 3 their biases."""


def shared_gates(place: Place) -> Hypotheses:
    """Yield other orders of the gates of several recurrent nodes at once: the layers of one module."""
    for op_type, count in _GATES.items():
        several = [n for n, node in enumerate(place.nodes) if node.op_type == op_type]
        for order in _others_than_now(count) if len(several) > 1 else ():
            edits = tuple(edit for n in several for edit in _regating(place, n, count, order))
            if edits:
                titles = " and ".join(map(place.title, several))
                sentence = f"the gates of {titles} are in another order; taken as {[*order]}"
                yield Hypothesis("gate order", sentence, edits, ("gate order", op_type, order))


def _others_than_now(count: int) -> Iterator[Ints]:
    """Yield the orders of gates but for the one that they have."""
    return itertools.islice(itertools.permutations(range(count)), 1, None)


def _regating(place: Place, number: int, count: int, order: Ints) -> Iterator[SetConstant]:
    """Yield the edits that reorder all gates of a node."""
    for slot, name in enumerate(place.nodes[number].input[1:4]):
        array = place.constant(name)
        if array is not None:
            right = _regated(array, slot, _PARTS[0], count, order)
            if not np.array_equal(right, array):
                yield SetConstant(name, right, place.only(number))


def recurrent(place: Place) -> Hypotheses:
    """Yield other arrangements of the constants of recurrent nodes, and other numbers that their biases begin with."""
    for number, node in enumerate(place.nodes):
        count = _GATES.get(node.op_type, 0)
        names = dict(enumerate(node.input[1:4] if count else ()))
        known = {slot: place.constant(name) for slot, name in names.items()}
        arrays = {slot: array for slot, array in known.items() if array is not None}
        for kind, how, right in _arranged(arrays, count):
            other = [slot for slot, a in right.items() if not np.array_equal(a, arrays[slot])]
            token = place.only(number)
            edits = tuple(SetConstant(names[slot], right[slot], token) for slot in other)
            listed = ", ".join(repr(names[slot]) for slot in other)
            sentence = how.format(title=place.title(number), names=listed)
            if edits:
                yield Hypothesis(kind, sentence, edits, (kind, node.op_type, how))


def _arranged(
    arrays: Mapping[int, Array], count: int
) -> Iterator[tuple[str, str, dict[int, Array]]]:
    """Yield (kind, what is wrong, right numbers by slot)."""
    for order in itertools.permutations(range(count)) if arrays else ():
        for parts in _PARTS:
            how = f"the gates of {{title}} are in another order in {{names}}; taken as {[*order]}"
            right = {s: _regated(a, s, parts, count, order) for s, a in arrays.items()}
            yield "gate order", how, right
    for way in range(2) if arrays and all(len(a) == 2 for a in arrays.values()) else ():
        for order in itertools.permutations(range(count)):
            right = {s: _regated(a, s, _PARTS[0], count, order) for s, a in arrays.items()}
            other = {s: np.where(_at(a, way), right[s], a) for s, a in arrays.items()}
            how = f"the gates of direction {way} of {{title}} are in another order in {{names}}; taken as {[*order]}"
            yield "gate order", how, other
    how = "the two directions of {title} are exchanged in {names}; changed back"
    yield "directions", how, {slot: a[::-1].copy() for slot, a in arrays.items()}
    bias, state = arrays.get(2), arrays.get(1)
    if bias is not None:
        halves = bias.reshape(len(bias), 2, -1)
        how = "the biases of inputs and state of {title}, {names}, are exchanged; changed back"
        yield "bias halves", how, {2: halves[:, ::-1].reshape(bias.shape)}
        for half, step in itertools.product(range(2 * count), (1.0, -1.0)):
            at = np.arange(2 * count).reshape(1, -1, 1) == half
            added = (bias.reshape(len(bias), 2 * count, -1) + step * at).astype(bias.dtype)
            how = f"{{names}} of {{title}} lacks {step:+g} at gate {half % count}; added"
            yield "gate bias", how, {2: added.reshape(bias.shape)}
    if state is not None:
        blocks = state.reshape(len(state), count, -1, state.shape[-1])
        if blocks.shape[2] == blocks.shape[3]:
            turned = blocks.swapaxes(2, 3).reshape(state.shape)
            how = "each gate of {names} of {title} is transposed; transposed back"
            yield "transposed constant", how, {1: turned}


def _at(array: Array, way: int) -> Array:
    """Return which numbers belong to one direction."""
    return np.asarray(np.arange(len(array)).reshape(-1, *[1] * (array.ndim - 1)) == way)


def _regated(array: Array, slot: int, parts: Ints, gates: int, order: Ints) -> Array:
    """Reorder the gates of `[directions, gates * hidden, ...]`; a bias holds two sets of them."""
    sets = 2 if slot == 2 else 1
    right = array.reshape(array.shape[0], sets, gates, -1).copy()
    for part in range(sets):
        if slot + part in parts:
            right[:, part] = right[:, part][:, [*order]]
    return right.reshape(array.shape)
