"""Mistakes in wiring: operands exchanged, another value, the parts of a value (Q, K and V, gates) in another order."""

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, combinations, islice, permutations

import numpy as np

from onnxsurgeon_lite.debug.causes.arrangement import taken
from onnxsurgeon_lite.debug.causes.constants import Order, fused_orders, together
from onnxsurgeon_lite.debug.causes.hypothesis import Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.place import Place, RegionNode, who
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.schemas import COMMUTATIVE
from onnxsurgeon_lite.passes import Insert, Pass, Rewire
from onnxsurgeon_lite.search.grouping import groups
from onnxsurgeon_lite.tensors.dtypes import Array, has_floats

_LAYER = re.compile(r"(?<=[._])\d+(?=[._])")  # its number in a name, as of a cache
_OPERANDS = 6  # of a node, which are exchanged
_AROUND = 3  # nodes, one before the other, by which a value's place in its layer is known
_READERS = 4  # of a value; some of them are to read another one
_PAIRS = 32  # pairs of values that are exchanged
_UNLIKE = {"Slice", "Reshape", "Expand", "Unsqueeze", "Squeeze", "Pad", "Clip", "Range", "Tile"}
"""Operators whose operands no one exchanges."""
_CUTTING = ("Slice", "Gather")
_TWO = 2  # parts that are exchanged
_MOST = 4  # parts


def wiring(place: Place) -> Hypotheses:
    """Yield hypotheses about what nodes read."""
    yield from _other_values(place)
    yield from _other_outputs(place)
    yield from _other_constants(place)


def caches_of_layers(place: Place) -> Hypotheses:
    """Yield the inputs of another layer, all of them together, where a node reads those of one: keys and values."""
    known = {**place.nearby, **place.values}
    numbers = sorted(set(chain.from_iterable(map(_LAYER.findall, known))))
    for site in place.sites:
        # the inputs of a layer that it reads, by slot
        read = dict[int, str]()
        for slot, name in enumerate(site.input):
            if name in place.index.inputs and _LAYER.search(name):
                read[slot] = name
        for number in numbers if len(read) >= _TWO else ():
            every = {slot: _LAYER.sub(number, name) for slot, name in read.items()}
            new = {slot: name for slot, name in every.items() if name != read[slot]}
            if new and known.keys() >= set(every.values()):
                yield rereading(site, new)


def rereading(site: RegionNode, new: Mapping[int, str]) -> Hypothesis:
    """Return the hypothesis that a node should read other values at some slots, all of them together."""
    old = {slot: site.name(slot) for slot in new}
    edits = tuple(Rewire(old[slot], name, site.only, slot) for slot, name in new.items())
    now, then = (" and ".join(map(repr, dict.fromkeys(read.values()))) for read in (old, new))
    return Hypothesis("wrong inputs", f"{site.title} reads {now}; with {then}", edits)


def exchanged_values(place: Place) -> Hypotheses:
    """Yield pairs of values that are swapped at all nodes of the region: first what is computed side by side."""
    values = _data(place)
    shapes = groups((array.shape, name) for name, array in values.items())
    pairs = chain.from_iterable(combinations(names, 2) for names in shapes.values())
    # keys and values, both halves of a gate: in every layer the same two
    kinds = {pair: _side_by_side(place, *pair) for pair in pairs}
    likely = [pair for pair, kind in kinds.items() if kind]
    for a, b in chain(likely, islice((pair for pair, kind in kinds.items() if not kind), _PAIRS)):
        # both ways at once: one alone would make two values the same
        edits = tuple(reading(place, a, b)) + tuple(reading(place, b, a))
        if len(edits) > 1:
            sentence, kind = f"{a!r} and {b!r} are exchanged; swapped back", kinds[a, b]
            mistake = ("exchanged values", kind) if kind else ()
            yield Hypothesis("exchanged values", sentence, edits, mistake)


def _side_by_side(place: Place, *names: str) -> tuple[str, ...]:
    """Return the operators of nodes that read two values, if one operator makes both of the same; () otherwise."""
    made = list(map(place.site_of, names))
    # behind a bias there is a product
    for number, site in enumerate(made):
        if site is not None and site.op_type == "Add" and len(site.computed) == 1:
            made[number] = place.site_of(site.computed[0]) or site
    one, two = made
    if one is None or two is None or (one.op_type, one.computed) != (two.op_type, two.computed):
        return ()
    return tuple(site.op_type for name in names for site in place.readers(name)[:1])


def exchanged_operands(place: Place) -> Hypotheses:
    """Yield nodes whose operands are in the wrong order: two of them exchanged, or all moved."""
    for site in place.sites:
        if site.op_type in COMMUTATIVE | _UNLIKE:
            continue
        # two operands of one dtype exchanged; which shapes fit, the runtime says
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
        if several > 2 and site.op_type == "Concat":
            # parts of other sizes have no order that an axis alone tells
            now = list(site.input)
            orders = {
                "turned around": now[::-1],
                "the last one first": now[-1:] + now[:-1],
                "the first one last": now[1:] + now[:1],
            }
            for how, right in orders.items():
                pairs = enumerate(zip(now, right, strict=True))
                every = tuple(Rewire(a, b, site.only, k) for k, (a, b) in pairs if a != b)
                sentence = f"{wrong} its operands in the wrong order; {how}"
                yield Hypothesis("exchanged operands", sentence, every, (how, site.op_type))


def _other_values(place: Place) -> Hypotheses:
    """Yield values of the same shape that nodes could read instead: one node, all that read one, or keys and values."""
    reads = list[tuple[Sequence[RegionNode], str, int | None]]()
    for site in place.sites:
        read = enumerate(site.input)
        reads += [([site], name, slot) for slot, name in read if not place.is_constant(name)]
    # several readers of one value: all of them first, then fewer
    for old in _data(place):
        every = [s for s in place.readers(old) if s.number in place.leading]
        least = 2 if len(every) <= _READERS else len(every)
        for size in range(len(every), least - 1, -1):
            reads += [(to, old, None) for to in combinations(every, size)]
    for to, old, slot in reads:
        for new in _like(place, old):
            sentence = f"{who(to)} read{'s' * (len(to) == 1)} {old!r}; with {new!r}"
            edit = Rewire(old, new, place.those(to), slot)
            yield Hypothesis("wrong input", sentence, (edit,))


def other_layers(place: Place) -> Hypotheses:
    """Yield the value at the same place of another layer, for nodes that have nothing like them there."""
    whole = place.whole
    for old in _data(place):
        made = _made(whole, old)
        for new in _like(place, old) if made else ():
            there = {whole.nodes[position].op_type for position in whole.users(new)}
            to = [site for site in place.readers(old) if site.op_type not in there]
            if to and _made(whole, new) == made:
                sentence = f"{who(to)} read{'s' * (len(to) == 1)} {old!r}; with {new!r}, the same of another layer,"
                edit = Rewire(old, new, place.those(to))
                yield Hypothesis("wrong input", sentence, (edit,))


def _made(index: GraphIndex, name: str, depth: int = _AROUND) -> tuple[Hashable, ...]:
    """Return the operators that make a value, as deep as a layer shows itself; () of what no node makes."""
    number = index.producer.get(name, -1)
    if number < 0 or not depth:
        return ()
    node = index.nodes[number]
    return (node.op_type,) + tuple(_made(index, read, depth - 1) for read in node.input)


def _like(place: Place, old: str) -> Iterator[str]:
    """Yield the other values of a value's shape and dtype."""
    known = {**place.nearby, **_data(place)}
    kinds = {name: (value.shape, value.dtype) for name, value in known.items()}
    yield from (n for n in kinds if n != old and kinds[n] == kinds.get(old))


def _other_outputs(place: Place) -> Hypotheses:
    """Yield nodes whose operands all are the same output of their makers, and should be another one."""
    known, producer = {**place.nearby, **place.values}, place.whole.producer
    for site in place.sites:
        # operands that all are the first output of their makers, say
        if len(site.input) < _TWO or not producer.keys() >= set(site.input):
            continue
        made = [list(place.whole.nodes[producer[name]].output) for name in site.input]
        slots = {outputs.index(name) for outputs, name in zip(made, site.input, strict=True)}
        for slot in range(min(map(len, made))) if len(slots) == 1 else ():
            new = dict(enumerate(outputs[slot] for outputs in made))
            if slot not in slots and known.keys() >= set(new.values()):
                yield rereading(site, new)


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
    """Return the values of a region but for sizes and constants."""
    return {
        name: value
        for name, value in place.values.items()
        if not (place.holds_constant(name) or place.sizes(value, name))
    }


def reading(place: Place, old: str, new: str) -> Iterator[Rewire]:
    """Yield the edits that make all nodes that read one value read another one."""
    for site in place.readers(old):
        for slot, name in enumerate(site.input):
            if name == old:
                yield Rewire(old, new, site.only, slot)


def parts_of(index: GraphIndex, name: str) -> tuple[str, ...]:
    """Return the parts of a value, one of them with this name, in the order of a Split or of the nodes; () for none."""
    maker = index.producer.get(name)
    if maker is None:
        return ()
    # the outputs of a Split, else all that is cut out of the same value in the same way
    node = index.nodes[maker]
    if node.op_type == "Split":
        return tuple(node.output)
    whole = node.input[0] if node.op_type in _CUTTING else ""
    readers = (index.nodes[n] for n in index.users(whole))
    alike = (n for n in readers if n.op_type == node.op_type and n.input[0] == whole)
    return tuple(n.output[0] for n in alike)


def exchanged_parts(place: Place) -> Hypotheses:
    """Yield other orders in which the parts of one value are read, then those of all that are cut alike."""
    cuts = dict.fromkeys(parts_of(place.whole, n) for n in place.values if n in place.live)
    several = [parts for parts in cuts if 1 < len(parts) <= _MOST and _alike(place, parts)]
    for parts in several:
        yield from _orders(place, [parts])
    for count in dict.fromkeys(map(len, several)):
        together = [parts for parts in several if len(parts) == count]
        yield from _orders(place, together) if len(together) > 1 else ()


def _alike(place: Place, parts: Sequence[str]) -> bool:
    """Return whether several parts are read, all known here have one shape, and no shape is computed from them."""
    # a single part that is read has nothing to be exchanged with
    if sum(bool(place.whole.consumers.get(name)) for name in parts) < _TWO:
        return False
    known = {name: place.values[name] for name in parts if name in place.values}
    shapes = {(value.shape, value.dtype) for value in known.values()}
    return len(shapes) == 1 and not any(place.sizes(v, name) for name, v in known.items())


def _orders(place: Place, cuts: Sequence[tuple[str, ...]]) -> Hypotheses:
    """Yield the orders of parts but for the one that they have."""
    count = len(cuts[0])
    wholes = (place.whole.nodes[place.whole.producer[parts[0]]].input[0] for parts in cuts)
    names = " and of ".join(map(repr, wholes))
    # each part read where another one is read now
    for order in permutations(range(count)):
        moved = [(parts[k], parts[other]) for parts in cuts for k, other in enumerate(order)]
        edits = tuple(edit for old, new in moved if old != new for edit in reading(place, old, new))
        how = "exchanged; swapped back"
        if count > _TWO:
            how = f"read in another order; taken as {list(order)}"
        sentence = f"the {count} parts of {names} are {how}"
        if edits:
            yield Hypothesis("order of parts", sentence, edits, ("parts", order, len(cuts) > 1))


def fused(place: Place) -> Hypotheses:
    """Yield other orders of the parts that a value is cut into: of the constants that make it, or of values."""
    # values that the region cuts, and into how many parts
    cut = {name: parts for name in place.values if 1 < (parts := _parts(place, name)) <= _MOST}
    for parts in dict.fromkeys(cut.values()):
        yield from together(place, partial(fused_orders, parts=parts))
    # the values themselves, and what enters: there the parts are still one axis, or two
    for name in dict.fromkeys(chain(cut, place.inputs)):
        value = place.values.get(name)
        if not has_floats(value) or name not in place.live:
            continue
        for parts in dict.fromkeys((cut[name],) if name in cut else cut.values()):
            for first in range(max(0, value.ndim - 2), value.ndim):
                size = int(np.prod(value.shape[first:]))
                for how, order in fused_orders(size, parts) if size % parts == 0 else ():
                    yield _reordered(place, name, first, how, order)


def _parts(place: Place, name: str) -> int:
    """Return into how many parts nodes cut a value; 0 for none."""
    # a Split says it; Slices and Gathers of the same value are counted
    readers = place.readers(name)
    split = [len(site.node.output) for site in readers if site.op_type == "Split"]
    cut = (s for s in readers if s.op_type in _CUTTING and s.input[0] == name)
    return split[0] if split else sum(site.computed == [name] for site in cut)


def _reordered(place: Place, name: str, first: int, how: str, order: Order) -> Hypothesis:
    """Return the hypothesis that a value's last axes, from one on, are laid out as one in another order."""
    shape, to = place.values[name].shape, place.those(place.readers(name))
    last = range(first, len(shape))
    edits: tuple[Pass, ...] = (taken(name, first, order, to=to),)
    axes = f"axis {first}"
    # several axes are one, in which the parts are reordered, and several again
    if len(last) > 1:
        flat, ordered = f"{name}_flat", f"{name}_ordered"
        merged, again = (np.array(([0] * first) + list(end)) for end in ([-1], shape[first:]))
        edits = (
            Insert(name, "Reshape", constants=(("flat", merged),), to=to, output=flat),
            taken(flat, first, order, output=ordered),
            Insert(ordered, "Reshape", constants=(("shape", again),)),
        )
        axes = f"axes {first} and {first + 1}"
    fixed = any(place.is_open(name, axis) for axis in last)
    sentence = f"{name!r} {how.replace('axis {axis}', axes)}"
    return Hypothesis("order of parts", sentence, edits, ("order of parts", how), fixed=fixed)
