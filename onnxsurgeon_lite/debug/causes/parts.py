"""Mistakes in what parts of a value are read as: the gates of an own cell, the scale and shift of a modulation."""

from collections.abc import Sequence
from itertools import permutations

from onnxsurgeon_lite.debug.causes.hypothesis import Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.place import Place
from onnxsurgeon_lite.debug.causes.wiring import reading
from onnxsurgeon_lite.graph.index import GraphIndex

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
            how = f"read in another order; taken as {[*order]}"
        sentence = f"the {count} parts of {names} are {how}"
        if edits:
            yield Hypothesis("order of parts", sentence, edits, ("parts", order, len(cuts) > 1))
