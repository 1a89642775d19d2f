"""Mistakes in wiring: operands exchanged, a node that reads another value."""

from collections.abc import Iterator
from itertools import combinations, islice

from onnxsurgeon_lite.debug.causes.hypothesis import Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.place import Place
from onnxsurgeon_lite.passes import Rewire
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
        edits = (*reading(place, a, b), *reading(place, b, a))
        if len(edits) > 1:
            sentence = f"{a!r} and {b!r} are exchanged; swapped back"
            yield Hypothesis("exchanged values", sentence, edits)


def exchanged_operands(place: Place) -> Hypotheses:
    """Yield nodes whose operands are in the wrong order: two of them exchanged, or all turned around."""
    for site in place.sites:
        if site.op_type in _ALIKE | _UNLIKE:
            continue
        several, wrong = min(_OPERANDS, len(site.input)), f"{site.title} reads"
        for a, b in combinations(range(several), 2):
            one, two = site.input[a], site.input[b]
            read, other = place.operand(one), place.operand(two)
            if one == two or read is None or other is None or read.dtype != other.dtype:
                continue
            edits = Rewire(one, two, site.only, a), Rewire(two, one, site.only, b)
            sentence = f"{wrong} {one!r} and {two!r} in the wrong order; exchanged"
            mistake = ("exchanged", site.op_type, a, b)
            yield Hypothesis("exchanged operands", sentence, edits, mistake)
        if several > 3 and site.op_type == "Concat":
            turned = enumerate(zip(site.input, site.input[::-1], strict=True))
            every = tuple(Rewire(a, b, site.only, k) for k, (a, b) in turned if a != b)
            sentence = f"{wrong} its operands in the wrong order; turned around"
            yield Hypothesis("exchanged operands", sentence, every, ("turned", site.op_type))


def _other_values(place: Place) -> Hypotheses:
    """Yield values of the same shape that a node could read instead."""
    for site in place.sites:
        for slot, old in enumerate(site.input):
            if not place.is_constant(old):
                for new in _like(place, old):
                    edit = Rewire(old, new, site.only, slot)
                    sentence = f"{site.title} reads {old!r}; with {new!r}"
                    yield Hypothesis("wrong input", sentence, (edit,))


def _like(place: Place, old: str) -> Iterator[str]:
    """Yield the other values of a value's shape and dtype."""
    known = {**place.nearby, **_data(place)}
    if old in known:
        kind = (known[old].shape, known[old].dtype)
        alike = (name for name, value in known.items() if (value.shape, value.dtype) == kind)
        yield from (name for name in alike if name != old)


def _others_everywhere(place: Place) -> Hypotheses:
    """Yield values that several nodes of the region could read instead: all that read one, or keys and values alone."""
    for old in _data(place):
        every = [n for n in dict.fromkeys(place.consumers.get(old, ())) if n in place.leading]
        least = 2 if len(every) <= _READERS else len(every)
        for size in range(len(every), least - 1, -1):
            for to in combinations(every, size):
                for new in _like(place, old):
                    edit = Rewire(old, new, place.those(to))
                    sentence = f"{' and '.join(map(place.title, to))} read {old!r}; with {new!r}"
                    yield Hypothesis("wrong input", sentence, (edit,))


def _other_outputs(place: Place) -> Hypotheses:
    """Yield nodes whose operands all are the same output of their makers, and should be another one."""
    known, producer = {**place.nearby, **place.values}, place.whole.producer
    for site in place.sites:
        read = [name for name in site.input if name in producer]
        if not len(read) == len(site.input) > 1:
            continue
        made = [list(place.whole.nodes[producer[name]].output) for name in read]
        slots = {outputs.index(name) for outputs, name in zip(made, read, strict=True)}
        for slot in range(min(map(len, made))) if len(slots) == 1 else ():
            new = [outputs[slot] for outputs in made]
            if slot in slots or not known.keys() >= set(new):
                continue
            pairs = enumerate(zip(read, new, strict=True))
            edits = tuple(Rewire(a, b, site.only, at) for at, (a, b) in pairs)
            reads, others = (", ".join(map(repr, names)) for names in (read, new))
            sentence = f"{site.title} reads {reads}; with {others}"
            yield Hypothesis("wrong inputs", sentence, edits)


def _other_constants(place: Place) -> Hypotheses:
    """Yield constants of the same shape that a node could read instead: another layer's."""
    for constant in place.constants():
        site, old = constant.site, constant.name
        if constant.array.size == 1 or constant.slot == 0 and len(site.input) == 1:
            continue
        for new in place.beside:
            shape = tuple(place.index.initializers[new].dims)
            if shape == constant.array.shape and new != old:
                edit = Rewire(old, new, site.only, constant.slot)
                sentence = f"{site.title} reads constant {old!r}; with {new!r}"
                yield Hypothesis("another layer's constant", sentence, (edit,))


def _data(place: Place) -> dict[str, Array]:
    """Return the values of a region but for sizes."""
    return {name: v for name, v in place.values.items() if not place.sizes(v, name)}


def reading(place: Place, old: str, new: str) -> Iterator[Rewire]:
    """Yield the edits that make all nodes that read one value read another one."""
    for site in dict.fromkeys(place.readers(old)):
        for slot, name in enumerate(site.input):
            if name == old:
                yield Rewire(old, new, site.only, slot)
