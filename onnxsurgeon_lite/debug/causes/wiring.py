"""Mistakes in wiring: operands exchanged, a node that reads another value."""

from collections.abc import Iterator
from itertools import combinations, islice

from onnxsurgeon_lite.debug.causes.hypothesis import Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.place import Place
from onnxsurgeon_lite.passes import Pass, Rewire
from onnxsurgeon_lite.tensors.dtypes import Array

_OPERANDS = 6  # of a node, which are exchanged
_READERS = 4  # of a value; some of them are to read another one
_PAIRS = 32  # pairs of values that are exchanged
_ALIKE = {"Add", "Mul", "Max", "Min", "Sum", "Mean", "And", "Or", "Xor", "Equal"}
_UNLIKE = {"Slice", "Reshape", "Expand", "Unsqueeze", "Squeeze", "Pad", "Clip", "Range", "Tile"}
"""Operators whose operands are all alike, and those whose operands no one exchanges."""


def wiring(place: Place) -> Hypotheses:
    """Yield hypotheses about what nodes read."""
    yield from _other_values(place)
    yield from _others_everywhere(place)
    yield from _other_outputs(place)
    yield from _other_constants(place)


def exchanged_values(place: Place) -> Hypotheses:
    """Yield pairs of values that are swapped at all nodes of the region."""
    values = _data(place)
    alike = ((a, b) for a, b in combinations(values, 2) if values[a].shape == values[b].shape)
    for a, b in islice(alike, _PAIRS):
        edits = [*_reading(place, a, b), *_reading(place, b, a)]
        if len(edits) > 1:
            sentence = f"{a!r} and {b!r} are exchanged; swapped back"
            yield Hypothesis("exchanged values", sentence, tuple(edits))


def exchanged_operands(place: Place) -> Hypotheses:
    """Yield nodes whose operands are in the wrong order: two of them exchanged, or all turned around."""
    for number, node in enumerate(place.nodes):
        several = 0 if node.op_type in _ALIKE or node.op_type in _UNLIKE else len(node.input)
        several = min(_OPERANDS, several)
        token = place.only(number)
        for a, b in combinations(range(several), 2):
            one, two = node.input[a], node.input[b]
            read, other = place.operand(one), place.operand(two)
            if one == two or read is None or other is None or read.dtype != other.dtype:
                continue
            edits = (Rewire(one, two, token, a), Rewire(two, one, token, b))
            title, mistake = place.title(number), ("exchanged", node.op_type, a, b)
            sentence = f"{title} reads {one!r} and {two!r} in the wrong order; exchanged"
            yield Hypothesis("exchanged operands", sentence, edits, mistake)
        if several > 3 and node.op_type == "Concat":
            turned = enumerate(zip(node.input, node.input[::-1], strict=True))
            all_turned = tuple(Rewire(*names, token, k) for k, names in turned if len({*names}) > 1)
            sentence = f"{place.title(number)} reads its operands in the wrong order; turned around"
            yield Hypothesis("exchanged operands", sentence, all_turned, ("turned", node.op_type))


def _other_values(place: Place) -> Hypotheses:
    """Yield values of the same shape that a node could read instead."""
    known = {**place.nearby, **_data(place)}
    for number, node in enumerate(place.nodes):
        for slot, old in enumerate(node.input):
            read = known.get(old)
            if read is None or place.constant(old) is not None:
                continue
            for new, value in known.items():
                if new == old or value.shape != read.shape or value.dtype != read.dtype:
                    continue
                edit = Rewire(old, new, place.only(number), slot)
                sentence = f"{place.title(number)} reads {old!r}; with {new!r}"
                yield Hypothesis("wrong input", sentence, (edit,))


def _others_everywhere(place: Place) -> Hypotheses:
    """Yield values that several nodes of the region could read instead: all that read one, or keys and values alone."""
    known = {**place.nearby, **_data(place)}
    for old, read in _data(place).items():
        readers = dict.fromkeys(place.consumers.get(old, ()))
        every = tuple(n for n in readers if n in place.leading)
        least = 2 if len(every) <= _READERS else len(every)
        sizes = range(len(every), least - 1, -1)
        for to in (to for size in sizes for to in combinations(every, size)):
            for new, value in known.items():
                if new != old and value.shape == read.shape and value.dtype == read.dtype:
                    edit = Rewire(old, new, place.those(to))
                    sentence = f"{' and '.join(map(place.title, to))} read {old!r}; with {new!r}"
                    yield Hypothesis("wrong input", sentence, (edit,))


def _other_outputs(place: Place) -> Hypotheses:
    """Yield nodes whose operands all are the same output of their makers, and should be another one."""
    known, producer = {**place.nearby, **place.values}, place.whole.producer
    for number, node in enumerate(place.nodes):
        read = [n for n in node.input if n in producer]
        makers = [place.whole.nodes[producer[name]] for name in read]
        slots = {[*maker.output].index(name) for maker, name in zip(makers, read, strict=True)}
        alike = len(read) == len(node.input) > 1 == len(slots)
        for slot in range(min(len(maker.output) for maker in makers)) if alike else ():
            new = [maker.output[slot] for maker in makers]
            if slot in slots or not known.keys() >= {*new}:
                continue
            to = place.only(number)
            edits = tuple(
                Rewire(*pair, to, at) for at, pair in enumerate(zip(read, new, strict=True))
            )
            reads, others = (", ".join(map(repr, names)) for names in (read, new))
            sentence = f"{place.title(number)} reads {reads}; with {others}"
            yield Hypothesis("wrong inputs", sentence, edits)


def _other_constants(place: Place) -> Hypotheses:
    """Yield constants of the same shape that a node could read instead: another layer's."""
    for number, slot, old, array in place.constants():
        if array.size == 1 or slot == 0 and len(place.nodes[number].input) == 1:
            continue
        for new in place.beside:
            tensor = place.index.initializers[new]
            if tuple(tensor.dims) == array.shape and new != old:
                edit = Rewire(old, new, place.only(number), slot)
                sentence = f"{place.title(number)} reads constant {old!r}; with {new!r}"
                yield Hypothesis("another layer's constant", sentence, (edit,))


def _data(place: Place) -> dict[str, Array]:
    """Return the values of a region but for sizes."""
    return {name: v for name, v in place.values.items() if not place.sizes(v, name)}


def _reading(place: Place, old: str, new: str) -> Iterator[Pass]:
    for number in place.consumers.get(old, []):
        for slot, name in enumerate(place.nodes[number].input):
            if name == old:
                yield Rewire(old, new, place.only(number), slot)
