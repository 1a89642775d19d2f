"""One fault behind a fork: the culprits whose regions overlap are one, at the nodes that they share."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from difflib import SequenceMatcher

from onnxsurgeon_lite.debug.bisection.diagnose import place_of
from onnxsurgeon_lite.debug.result import Culprit
from onnxsurgeon_lite.debug.search_space import Space
from onnxsurgeon_lite.graph.config import ATTENDING
from onnxsurgeon_lite.graph.quantizers import QUANTIZERS
from onnxsurgeon_lite.tensors.dtypes import is_float, numpy_dtype

_BRANCH = 3  # nodes of a branch of a fork: more of them may hold a mistake of their own
_SAME = 0.7  # the share of the operators that two layers have in common
_MEASURES = ("Shape", "Size")  # they read no numbers of their input


def one_for_each_fault(culprits: Sequence[Culprit], space: Space) -> list[Culprit]:
    """Return the culprits, those of one fork as one: the fewest places that explain every mismatching value.

    The culprit of a fork keeps the values of the one with the smallest region; the others are `seen`. Those that may
    have one mistake each, as layers do, stay apart.
    """
    left, found = list(culprits), list[Culprit]()
    # Greedy set cover: take the node that the most culprits share, join these, go on with the rest.
    regions = {id(culprit): _computing(culprit, space) for culprit in left}
    while left:
        counts = Counter(node for culprit in left for node in sorted(regions[id(culprit)]))
        shared = max(counts, key=counts.__getitem__)
        fork = [culprit for culprit in left if shared in regions[id(culprit)]]
        left = [culprit for culprit in left if shared not in regions[id(culprit)]]
        layers = dict[tuple[str, ...], list[Culprit]]()  # by what they are alike to
        for culprit in fork:
            # each of two twins has the other in its key, so their keys differ and they stay apart; others share `()`
            twins = tuple(other.value for other in fork if _alike(culprit, other, space))
            layers.setdefault(twins, []).append(culprit)
        found += [_merged(layer, space) for layer in layers.values()]
    return found


def _alike(one: Culprit, other: Culprit, space: Space) -> bool:
    """Return whether two culprits are as likely the same mistake, made twice, as one in the nodes that they share.

    One is computed from the other, and their own nodes are about the same operators in the same order: two layers. Or
    what they share computes only masks and sizes: no float enters it, or no more than its shape has a say.
    """
    # short branches cannot hold the same mistake twice, but an attention has as many settings as a long one
    own, others = _operators(one, other, space), _operators(other, one, space)
    attends = not set(ATTENDING).isdisjoint(own) and not set(ATTENDING).isdisjoint(others)
    if min(len(own), len(others)) <= _BRANCH and not attends:
        return False
    in_a_row = other.value in space.below(one.outputs) or one.value in space.below(other.outputs)
    alike = SequenceMatcher(None, own, others).ratio() >= _SAME
    if alike or not in_a_row:
        return in_a_row
    return not _takes_floats(_telling(one, space) & _telling(other, space), space)


def _telling(culprit: Culprit, space: Space) -> set[str]:
    """Return the nodes of a region, without those that compute shapes and those whose shape alone is read."""
    index = space.index
    region = {int(node[1:]) for node in culprit.region}
    left = set[int]()
    # from the end to the start: a node counts if its result is read outside, or by a node that counts
    for position in reversed(index.in_order(region)):
        node = index.nodes[position]
        users = region.intersection(index.next_to(node.output))
        if node.op_type not in _MEASURES and (not users or not users.isdisjoint(left)):
            left.add(position)
    return {f"@{position}" for position in left}


def _takes_floats(nodes: Collection[str], space: Space) -> bool:
    """Return whether a float enters some nodes, or a value of unknown type."""
    types = map(space.index.element_of, space.entering([int(n[1:]) for n in nodes]))
    return any(not kind or is_float(numpy_dtype(kind)) for kind in types)


def _operators(culprit: Culprit, other: Culprit, space: Space) -> list[str]:
    """Return the operators of a region, in order, without those of another, constants and quantizers."""
    alone = set(culprit.region).difference(other.region)
    positions = (int(node[1:]) for node in alone if not _is_constant(node, space))
    order = space.index.in_order(positions)
    found = (space.index.nodes[position].op_type for position in order)
    return [op_type for op_type in found if op_type not in QUANTIZERS]


def _computing(culprit: Culprit, space: Space) -> set[str]:
    """Return the nodes of a region that the feeds go into, what is missing before it, the scale of a quantizer.

    Culprits may share other constants without being one.
    """
    # names of values and node ids in one set: they only have to be equal between culprits
    missing = culprit.lacking[:1] if culprit.misses else []
    node = space.index.nodes[culprit.position]
    scale = node.input[1:2] if node.op_type in QUANTIZERS else []
    computing = (n for n in culprit.region if not _is_constant(n, space))
    return {culprit.id, *missing, *scale, *computing}


def _is_constant(node: str, space: Space) -> bool:
    return space.stored.issuperset(filter(None, space.index.nodes[int(node[1:])].output))


def _merged(fork: Sequence[Culprit], space: Space) -> Culprit:
    """Return the culprit of the nodes that all regions share; the last one of them stands for it."""
    if len(fork) == 1:
        return fork[0]
    # the smallest region is closest to the fault; what its culprit is called becomes the last shared node
    first = min(fork, key=lambda culprit: (len(culprit.region), space.number[culprit.value]))
    seen = [culprit.value for culprit in fork if culprit is not first]
    merged = replace(first, seen=sorted(seen, key=space.number.__getitem__))
    shared = set.intersection(*(set(culprit.region) for culprit in fork))
    order = space.index.in_order(int(node[1:]) for node in shared)
    computing = [p for p in order if not _is_constant(f"@{p}", space)]
    if not computing:  # they share a scale, or what is missing before them
        return merged
    region = order if len(computing) > 1 else computing
    return replace(merged, **place_of(space, computing[-1], region))


def first_to_blame(culprits: Collection[Culprit], space: Space) -> list[Culprit]:
    """Sort culprits: those that err by themselves, what lies before another before it, then by the error they make."""
    below = {id(c): space.below([n for n in c.outputs if n in space.number]) for c in culprits}

    def key(culprit: Culprit) -> tuple[bool, int, float]:
        # how many culprits lie upstream, apart from those that only inherit their error
        before = sum(
            culprit.value in below[id(c)] and c.inherits <= culprit.inherits for c in culprits
        )
        return culprit.inherits, before, -(culprit.healed or 0.0)

    return sorted(culprits, key=key)
