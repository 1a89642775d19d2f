"""Mistakes in the parts of a value: Q, K and V, their heads, the gates of an own cell, scale and shift."""

from collections.abc import Sequence
from functools import partial
from itertools import permutations

import numpy as np

from onnxsurgeon_lite.debug.causes.arrangement import taken
from onnxsurgeon_lite.debug.causes.constants import Order, fused_orders, together
from onnxsurgeon_lite.debug.causes.hypothesis import Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.place import Place
from onnxsurgeon_lite.debug.causes.wiring import reading
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.passes import Insert, Pass
from onnxsurgeon_lite.tensors.dtypes import is_float

_CUTTING = ("Slice", "Gather")
_TWO = 2  # parts that are exchanged
_MOST = 4  # parts


def parts_of(index: GraphIndex, name: str) -> tuple[str, ...]:
    """Return the parts of a value, one of them with this name, in the order of a Split or of the nodes; () for none."""
    maker = index.producer.get(name)
    if maker is None:
        return ()
    node = index.nodes[maker]
    if node.op_type == "Split":
        return tuple(node.output)
    whole = node.input[0] if node.op_type in _CUTTING else ""
    readers = (index.nodes[n] for n in dict.fromkeys(index.consumers.get(whole, ())))
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
    cut = {name: parts for name in place.values if 1 < (parts := _parts(place, name)) <= _MOST}
    for parts in dict.fromkeys(cut.values()):
        yield from together(place, partial(fused_orders, parts=parts))
    for name in dict.fromkeys((*cut, *place.inputs)):
        value = place.values.get(name)
        if value is None or not is_float(value.dtype) or name not in place.live:
            continue
        for parts in dict.fromkeys((cut[name],) if name in cut else cut.values()):
            for first in range(max(0, value.ndim - 2), value.ndim):
                size = int(np.prod(value.shape[first:]))
                for how, order in fused_orders(size, parts) if size % parts == 0 else ():
                    yield _reordered(place, name, first, how, order)


def _parts(place: Place, name: str) -> int:
    """Return into how many parts nodes cut a value; 0 for none."""
    readers = dict.fromkeys(place.readers(name))
    split = [len(site.node.output) for site in readers if site.op_type == "Split"]
    cut = [
        s for s in readers if s.op_type in _CUTTING and s.input[0] == name == "".join(s.computed)
    ]
    return split[0] if split else len(cut)


def _reordered(place: Place, name: str, first: int, how: str, order: Order) -> Hypothesis:
    """Return the hypothesis that a value's last axes, from one on, are laid out as one in another order."""
    shape, to = place.values[name].shape, place.those(dict.fromkeys(place.readers(name)))
    last = range(first, len(shape))
    edits: tuple[Pass, ...] = (taken(name, first, order, to=to),)
    axes = f"axis {first}"
    if len(last) > 1:
        flat, ordered = f"{name}_flat", f"{name}_ordered"
        merged, again = (np.array([*[0] * first, *end]) for end in ([-1], shape[first:]))
        edits = (
            Insert(name, "Reshape", constants=(("flat", merged),), to=to, output=flat),
            taken(flat, first, order, output=ordered),
            Insert(ordered, "Reshape", constants=(("shape", again),)),
        )
        axes = f"axes {first} and {first + 1}"
    fixed = any(place.is_open(name, axis) for axis in last)
    sentence = f"{name!r} {how.replace('axis {axis}', axes)}"
    return Hypothesis("order of parts", sentence, edits, ("order of parts", how), fixed=fixed)
