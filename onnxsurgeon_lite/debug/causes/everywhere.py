"""The same mistake at other nodes: the attribute, the operator or the number that is wrong at one node."""

import math
import time
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, product
from typing import Literal

import numpy as np

from onnxsurgeon_lite.debug.causes.hypothesis import Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.place import Place, selected, who
from onnxsurgeon_lite.debug.causes.windows import touched
from onnxsurgeon_lite.debug.causes.wiring import parts_of
from onnxsurgeon_lite.graph import GraphIndex, constant
from onnxsurgeon_lite.graph.selecting.select import select_node
from onnxsurgeon_lite.names import counted
from onnxsurgeon_lite.passes import Pass, Rewire, SetAttr, SetConstant, SetOp
from onnxsurgeon_lite.passes.protocol import key

_SAID = 3  # places of one mistake that are named
MANY = 64
"""Nodes of a region that may have several layers."""
_SOON = 2.0  # seconds
_LARGEST = 1 << 28  # bytes of numbers that are kept of one family
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


def with_those_alike(place: Place, hypotheses: Hypotheses) -> Hypotheses:
    """Yield hypotheses, and those about the same mistake together: at all nodes, and at nodes with the same neighbors.

    People repeat a mistake in each layer, and no edit of one layer alone makes the last output right. In a large region
    those of some seconds are gathered, and these come first: they are few.
    """
    alike = dict[Hashable, list[tuple[Hypothesis, set[int]]]]()
    done = set[Hashable]()
    gathered = list[Hypothesis]()
    left = _LARGEST
    until = time.monotonic() + _SOON
    for hypothesis in hypotheses:
        if len(place.nodes) > MANY and left > 0:
            gathered.append(hypothesis)
        else:
            yield hypothesis
        arrays = (s.numbers for s in hypothesis.edits if isinstance(s, SetConstant))
        left -= sum(np.asarray(numbers).nbytes for numbers in arrays)
        if hypothesis.mistake and not hypothesis.unknowns and left > 0:
            nodes, places = _places(place, hypothesis)
            for where in places:
                alike.setdefault((key(hypothesis.mistake), where), []).append((hypothesis, nodes))
        if gathered and time.monotonic() > until:
            yield from chain(_together(place, alike.values(), done), gathered)
            gathered.clear()
            until = time.monotonic() + _SOON
    yield from chain(_together(place, alike.values(), done), gathered)


def _together(
    place: Place, alike: Iterable[list[tuple[Hypothesis, set[int]]]], done: set[Hashable]
) -> Hypotheses:
    """Yield the hypotheses of each mistake as one, unless it is done already; of several edits of a node the first."""
    for several in alike:
        taken = set[int]()
        some = list[Hypothesis]()
        for hypothesis, nodes in several:
            some += [hypothesis] if taken.isdisjoint(nodes) else []
            taken |= nodes
        if len(some) > 1:
            whole = _as_one(place, some)
            if key(whole.edits) not in done:
                done.add(key(whole.edits))
                yield whole


def _places(place: Place, hypothesis: Hypothesis) -> tuple[set[int], list[Hashable]]:
    """Return (the nodes that a hypothesis touches, what they may have in common with others)."""
    index = place.index
    nodes, values = touched(place, hypothesis.edits)

    def operators(positions: Iterable[int]) -> tuple[str, ...]:
        return tuple(sorted(index.nodes[position].op_type for position in positions))

    def makers(names: Iterable[str]) -> tuple[str, ...]:
        return operators({index.producer[name] for name in names if name in index.producer})

    own, before = operators(nodes), makers(values)
    around = makers(index.read_by(nodes)), operators(set(index.next_to(index.made_by(nodes))))
    made = {index.producer[name] for name in values if name in index.producer}
    # nodes are put in where two operators meet, behind one and those before it, or behind all of a kind
    behind = "behind", before, makers(index.read_by(made))
    edges: list[Hashable] = [()]  # else it is the mistake alone
    if hypothesis.length[1]:
        edges = [("between", before, own), behind, behind[:2]]
    # branches side by side read one value
    beside = own, frozenset(n for n in index.read_by(nodes) if not place.is_constant(n))
    return nodes, edges + [(own, around), beside]


def _as_one(place: Place, several: Sequence[Hypothesis]) -> Hypothesis:
    """Return hypotheses about the same mistake as one."""
    first, edits = several[0], merged(chain.from_iterable(h.edits for h in several))
    own, every = (set(edited(place.index, steps)) for steps in (first.edits, edits))
    others = who(place.sites[n] for n in sorted(every - own))
    # nodes that are put in have no titles yet
    said = first.wrong if others else ", and ".join(each.wrong for each in several[:_SAID])
    others = others or counted(len(several[_SAID:]), "other place") * (len(several) > _SAID)
    sentence = f"{said}{f', the same at {others}' * bool(others)}; {first.right}"
    fixed = any(each.fixed for each in several)
    parts = tuple(several)
    return replace(first, sentence=sentence, edits=tuple(edits), fixed=fixed, parts=parts)
