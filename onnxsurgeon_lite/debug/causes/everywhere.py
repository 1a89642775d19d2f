"""The same mistake at other nodes: the attribute, the operator or the number that is wrong at one node."""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, combinations, islice, product
from typing import Literal

import numpy as np

from onnxsurgeon_lite.debug.causes.attributes import attributes
from onnxsurgeon_lite.debug.causes.constants import epsilons, scalars
from onnxsurgeon_lite.debug.causes.hypothesis import Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.operations import missing_factors
from onnxsurgeon_lite.debug.causes.operators import extra_operations, other_operators
from onnxsurgeon_lite.debug.causes.place import Place, selected, who
from onnxsurgeon_lite.debug.causes.rotary import missing_rotary, rotary
from onnxsurgeon_lite.debug.causes.wiring import parts_of
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.schemas import constant
from onnxsurgeon_lite.graph.selecting.select import select_node
from onnxsurgeon_lite.passes import Pass, Rewire, SetAttr, SetConstant, SetOp
from onnxsurgeon_lite.passes.protocol import key
from onnxsurgeon_lite.search.grouping import groups

_ALIKE = 16  # hypotheses about one mistake; each pair of them is tried
_MOST = 1024  # pairs
_FAMILIES = (
    rotary,
    missing_rotary,
    missing_factors,
    extra_operations,
    other_operators,
    attributes,
)


_Several = Iterable[Callable[[Place], Iterable[Hypothesis]]]
How = Literal["alike", "wired", "named"]


def everywhere(index: GraphIndex, steps: Sequence[Pass], how: How = "alike") -> tuple[Pass, ...]:
    """Return edits of attributes, operators, single numbers and parts at all nodes that have the same; () for others.

    Args:
        how: `wired`: only at nodes whose operators around are the same, too. `named`: an attribute, at any operator
            that has it so: norms with and without a residual have one epsilon.
    """
    found = [list(_repeated(index, step, how)) for step in steps]
    return tuple(merged(chain.from_iterable(found))) if all(found) else ()


def edited(index: GraphIndex, steps: Iterable[Pass]) -> list[int]:
    """Return the nodes whose attributes, operator, numbers or inputs are edited."""
    tokens = chain.from_iterable(map(_tokens, steps))
    return sorted({select_node(index, token) for token in tokens})


def merged(steps: Iterable[Pass]) -> list[Pass]:
    """Return edits without repeated ones, and those that make the same of several nodes as one."""
    # edits that are equal but for their nodes become one of all these nodes
    found = dict[Hashable, Pass]()
    every = list(steps)
    changed = set(chain.from_iterable(step.nodes for step in every if isinstance(step, SetOp)))
    for step in every:
        made = key(step)
        if isinstance(step, SetAttr) and changed.isdisjoint(step.nodes):  # else the order counts
            made = key(replace(step, nodes=()))
            known = _tokens(found[made]) if made in found else ()
            step = replace(step, nodes=tuple(dict.fromkeys(known + step.nodes)))
        elif isinstance(step, SetConstant):
            made = key(replace(step, to=()))
            known = _tokens(found[made]) if made in found else step.to
            to = known + step.to if known and step.to else ()  # none stands for all
            step = replace(step, to=tuple(dict.fromkeys(to)))
        found[made] = step
    return list(found.values())


def _tokens(step: Pass) -> tuple[str, ...]:
    """Return what selects the nodes that an edit changes."""
    match step:
        case SetAttr(nodes=nodes) | SetOp(nodes=nodes) | SetConstant(to=nodes) | Rewire(to=nodes):
            return nodes
    return ()


def _repeated(index: GraphIndex, step: Pass, how: How) -> Iterator[Pass]:
    """Yield an edit at all nodes that have what it changes."""
    if isinstance(step, Rewire):
        yield from _parts(index, step)
        return
    # what the edited node has: its attributes, numbers and operators around
    here, slots = edited(index, [step]), list[int]()
    if isinstance(step, SetConstant):
        if _single(index, step.value) is None or np.asarray(step.numbers).size != 1:
            return
        slots = sorted({list(index.nodes[position].input).index(step.value) for position in here})
    # every node that has the same
    kinds = {_kind(index, position, step, slots, how) for position in here}
    every = range(len(index.nodes))
    alike = [n for n in every if _kind(index, n, step, slots, how) in kinds]
    tokens = tuple(selected(index, position) for position in alike)
    if isinstance(step, SetAttr | SetOp):
        yield replace(step, nodes=tokens)
    elif isinstance(step, SetConstant):
        # a number for each node: they may read constants of different names and shapes
        right = np.asarray(step.numbers).reshape(())
        for (position, token), slot in product(zip(alike, tokens, strict=True), slots):
            name = index.nodes[position].input[slot]
            shape = () if (old := constant(index, name)) is None else tuple(old.dims)
            yield SetConstant(name, np.full(shape, right, right.dtype), (token,))


def _parts(index: GraphIndex, step: Rewire) -> Iterator[Rewire]:
    """Yield an edit that reads another part of a value, at all values that are cut and read alike."""
    parts = parts_of(index, step.old)
    if step.new not in parts:
        return
    # exchanged parts, by operators of these kinds
    old, new = parts.index(step.old), parts.index(step.new)
    operators = {index.nodes[position].op_type for position in edited(index, [step])}
    cuts = dict.fromkeys(parts_of(index, name) for name in index.producer)
    for other in (cut for cut in cuts if _read_by(index, cut) == _read_by(index, parts)):
        for reader in index.users(other[old]):
            node = index.nodes[reader]
            for slot, name in enumerate(node.input if node.op_type in operators else ()):
                if name == other[old]:
                    yield Rewire(name, other[new], (selected(index, reader, True),), slot)


def _read_by(index: GraphIndex, parts: Sequence[str]) -> list[list[str]]:
    """Return the operators that read each part of a value."""
    readers = map(index.users, parts)
    return [sorted(index.nodes[n].op_type for n in each) for each in readers]


def _kind(
    index: GraphIndex, position: int, step: Pass, slots: Sequence[int], how: How
) -> tuple[object, ...]:
    """Return what a node has of what an edit changes, and the operators around it."""
    node = index.nodes[position]
    # the old attributes of the edited names, as bytes: equal where they are written alike
    names = {name for name, _ in step.attributes} if isinstance(step, SetAttr) else ()
    old = sorted(a.SerializeToString() for a in node.attribute if a.name in names)
    if how == "named" and old:
        return tuple(old)
    wired = how == "wired"
    read = [_single(index, node.input[slot]) for slot in slots if slot < len(node.input)]
    makers = [index.producer.get(name) for name in node.input] if wired else []
    readers = sorted(index.next_to(node.output))
    around = makers + (readers if wired or slots else [])
    operators = (None if p is None else index.nodes[p].op_type for p in around)
    return node.op_type, node.domain, *old, *read, len(makers), *operators


def _single(index: GraphIndex, name: str) -> float | None:
    """Return the number of a constant that has one alone."""
    # larger constants are weights, which no two nodes share by mistake
    tensor = constant(index, name)
    is_single = tensor is not None and math.prod(tensor.dims) == 1
    return float(index.model.array(tensor).item()) if tensor is not None and is_single else None


def attributes_of_all(place: Place) -> Hypotheses:
    """Return other attributes and epsilons of all nodes of a region that have the same ones."""
    return _of_all(place, (attributes, epsilons))


def operators_of_all(place: Place) -> Hypotheses:
    """Return other operators and single numbers of all nodes of a region that have the same ones."""
    return _of_all(place, (other_operators, scalars))


def _of_all(place: Place, families: _Several) -> Hypotheses:
    """Yield each mistake at all nodes that have the same, if these are several."""
    index = place.index
    for several in _alike(place, families).values():
        # each set of nodes once, though each of its nodes yields the hypothesis
        done = set[int]()
        for hypothesis in several if len(several) > 1 else ():
            named = edited(index, hypothesis.edits)
            if done.issuperset(named):
                continue
            edits = everywhere(index, hypothesis.edits)
            nodes = edited(index, edits)
            done.update(nodes)
            if len(nodes) > 1:
                others = who(place.sites[n] for n in nodes if n not in named)
                sentence = f"{hypothesis.wrong}, the same at {others}; {hypothesis.right}"
                yield replace(hypothesis, sentence=sentence, edits=edits)


def at_two_nodes(place: Place) -> Hypotheses:
    """Yield each two hypotheses about the same mistake, together."""
    yield from islice(_pairs(place), _MOST)


def _pairs(place: Place) -> Hypotheses:
    for several in _alike(place, _FAMILIES).values():
        for one, other in combinations(several[:_ALIKE], 2):
            sentence = f"{one.wrong}, and {other.sentence}"
            edits, fixed = one.edits + other.edits, one.fixed or other.fixed
            yield Hypothesis(one.name, sentence, edits, one.mistake, fixed=fixed)


def _alike(place: Place, families: _Several) -> dict[Hashable, list[Hypothesis]]:
    """Return the hypotheses about each mistake."""
    every = chain.from_iterable(family(place) for family in families)
    return groups((key(found.mistake), found) for found in every if found.mistake)
