"""Pair the nodes of two graphs.

Nodes with equal upstream and downstream are paired first, then nodes with one of the two equal, so that a change does
not unpair everything below it. From these pairs matching spreads along the edges to the nodes around the changes:
the same node first, then the same operator, then another operator with the same wiring. Names only break ties.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.matching.nodes.labels import (
    InitialLabels,
    Key,
    Labeler,
    Labels,
    Leaves,
    common,
    keys,
)
from onnxsurgeon_lite.matching.nodes.scope import NamedGraph
from onnxsurgeon_lite.model.calls import call_key
from onnxsurgeon_lite.search.grouping import groups, unique_pairs


@dataclass
class NodeAlignment:
    """The pairs of nodes and of values of two graphs.

    Attributes:
        nodes: position in the first graph -> position in the second, for paired nodes.
        values: name in the first graph -> name in the second; without initializers.
    """

    first: NamedGraph
    second: NamedGraph
    nodes: dict[int, int] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)

    @property
    def removed(self) -> list[int]:
        """Unpaired nodes of the first graph."""
        return [i for i in range(len(self.first.reads)) if i not in self.nodes]

    @property
    def added(self) -> list[int]:
        """Unpaired nodes of the second graph."""
        paired = set(self.nodes.values())
        return [i for i in range(len(self.second.reads)) if i not in paired]


def align(
    first: NamedGraph,
    second: NamedGraph,
    outside: Mapping[str, str] | None = None,
    known: Iterable[tuple[int, int]] = (),
) -> NodeAlignment:
    """Pair the nodes and values of two graphs, in about the time that indexing them takes.

    Args:
        outside: for subgraphs, the values of the enclosing graphs that correspond.
        known: pairs of positions that are the same node.
    """
    matcher = _Matcher(NodeAlignment(first, second))
    matcher.pair_ends(outside or {})
    for pair in known:
        matcher.pair(*pair)
    matcher.match()
    return matcher.result


def same_nodes(
    a: GraphIndex, b: GraphIndex, values: Iterable[tuple[str, str]]
) -> list[tuple[int, int]]:
    """Pair positions of nodes with equal operators that make values which are the same, each at most once."""
    found = dict[int, int]()
    taken = set[int]()
    # a node is known by any of its outputs, and has one partner
    for name, value in values:
        a.require(name)
        b.require(value)
        one, other = a.producer.get(name), b.producer.get(value)
        if one is None or other is None:
            continue
        node, twin = a.nodes[one], b.nodes[other]
        same_slot = list(node.output).index(name) == list(twin.output).index(value)
        fits = same_slot and call_key(node) == call_key(twin)
        if fits and one not in found and other not in taken:
            found[one] = other
            taken.add(other)
    return list(found.items())


class _Matcher:
    def __init__(self, result: NodeAlignment) -> None:
        self.result = result
        self.sides = (result.first, result.second)
        self.labeler = Labeler(result.first.model.files.keys() & result.second.model.files.keys())
        self.signatures = [self.labeler.signatures(side) for side in self.sides]
        self.ends: tuple[Leaves, Leaves] = ({}, {})
        self.free = [dict.fromkeys(range(len(side.reads))) for side in self.sides]
        self.free_inputs = list[dict[str, None]]()
        self.back = dict[str, str]()  # name in the second graph -> name in the first
        self.spreading = False
        self.frontier = list[tuple[str, str]]()  # paired values, in the order found
        self.seen = set[tuple[str, str]]()

    def pair_ends(self, outside: Mapping[str, str]) -> None:
        """Pair inputs by name (in a body by position), and values of enclosing graphs."""
        inputs = [s.index.required_inputs for s in self.sides]
        inner = self.sides[0].positional
        for name, other in chain(outside.items(), common(*inputs, by_place=inner)):
            # one label for both names: what is computed from them gets equal labels
            self._pair_end(name, other, f"end {name}")
        self.free_inputs = [
            dict.fromkeys(n for n in names if n not in ends)
            for names, ends in zip(inputs, self.ends, strict=True)
        ]
        # inputs without a partner share one label; names would make every label below differ
        for names, ends in zip(self.free_inputs, self.ends, strict=True):
            ends.update(dict.fromkeys(names, self.labeler.label("another input")))
        if all(self.free_inputs):
            self._pair_inputs_by_use()

    def match(self) -> None:
        """Pair the nodes, the most certain pairs first."""
        # from certain to doubtful: each step only pairs nodes that are still free
        alike, above, below, own = keys(self._label_whole())
        # equal in both directions, then upstream alone, then downstream alone
        for key in (alike, above, below):
            self._pair_unique(key)
        # a weight that occurs once identifies its reader
        self._pair_unique(self._with_constants(own))
        # from the pairs so far, outwards along the edges
        self._start_spreading()
        self._spread(own)
        if all(self.free):
            # the same labels for the rest, with the paired nodes as leaves and without the contents of
            # constants
            alike_but, above_but, below_but, own_but = keys(self._label_rest())
            levels = (own, own_but, self._operator)
            self._pair_unique(alike_but)
            self._spread(*levels)
            # nodes that are equal in every respect: any choice is right, names decide
            for key in (alike, alike_but, above_but, below_but):
                self._pair_ties(key, levels)
            # then names alone, then another operator with the same inputs
            self._pair_unique(self._named)
            self._spread(*levels)
            wired = self._wired()
            self._pair_unique(wired)
            self._spread(*levels, wired)
        # inputs that nothing distinguishes pair in their order
        if len(self.free_inputs[0]) == len(self.free_inputs[1]):
            self.result.values.update(zip(*self.free_inputs, strict=True))

    def _pair_inputs_by_use(self) -> None:
        """Pair renamed inputs whose downstream is the same."""
        # nodes are labelled by all that follows from them, with the contents of constants
        labels = self._label_whole()

        # a key for an input: its users, by all that follows from them, and the slots that read it
        def users(side: int, name: str) -> Hashable:
            users = self.sides[side].uses.get(name, {}).items()
            return tuple(
                sorted((labels[side].down[u], slot) for u, slots in users for slot in slots)
            )

        mine, theirs = (
            groups((users(side, name), name) for name in self.free_inputs[side]) for side in (0, 1)
        )
        for used, names in mine.items():
            for name, other in zip(names, theirs.get(used, ()), strict=False):
                self._pair_end(name, other, f"renamed end {name}")
                del self.free_inputs[0][name], self.free_inputs[1][other]

    def _label_whole(self) -> tuple[Labels, Labels]:
        """Label all nodes, contents of constants included."""
        first, second = (
            self.labeler.label_nodes(
                side,
                side.index.order,
                InitialLabels(signatures, ends, self.labeler.outputs(side)),
                self.labeler.constants(side, contents=True),
            )
            for side, signatures, ends in zip(self.sides, self.signatures, self.ends, strict=True)
        )
        return first, second

    def _label_rest(self) -> tuple[Labels, Labels]:
        """Label unpaired nodes relative to paired ones; constants by dtype and shape alone."""
        # paired nodes are leaves, the same number on both sides
        numbers = [
            {a: number for number, a in enumerate(self.result.nodes)},
            {b: number for number, b in enumerate(self.result.nodes.values())},
        ]
        values: list[Leaves] = [{}, {}]
        for name, other in self.result.values.items():
            values[0][name] = values[1][other] = self.labeler.label(("paired", name))
        rest = []
        for i, side in enumerate(self.sides):
            uses = self.labeler.outputs(side)
            for node in self.free[i]:
                for name in filter(None, side.makes[node]):
                    # a paired consumer is known by its pair: a negative label, which no other use has
                    uses[name] += [
                        (-2 - numbers[i][user], slot)
                        for user, slots in side.uses.get(name, {}).items()
                        if user in numbers[i]
                        for slot in slots
                    ]
            initial = InitialLabels(self.signatures[i], {**self.ends[i], **values[i]}, uses)
            nodes = [node for node in side.index.order if node in self.free[i]]
            constants = self.labeler.constants(side, contents=False)
            rest.append(self.labeler.label_nodes(side, nodes, initial, constants))
        return rest[0], rest[1]

    def _pair_end(self, name: str, other: str, label: str) -> None:
        self.ends[0][name] = self.ends[1][other] = self.labeler.label(label)
        self._same_value(name, other)

    def _same_value(self, name: str, other: str) -> None:
        self.result.values[name] = other
        self.back[other] = name

    def pair(self, a: int, b: int) -> None:
        """Pair two nodes and the values that they produce."""
        del self.free[0][a], self.free[1][b]
        self.result.nodes[a] = b
        first, second = self.sides
        for name, other in zip(first.makes[a], second.makes[b], strict=False):
            if name and other:
                self._same_value(name, other)
        if self.free_inputs[0]:
            mine, theirs = self.free_inputs
            for name, other in zip(first.reads[a], second.reads[b], strict=False):
                if name in mine and other in theirs:
                    del mine[name], theirs[other]
                    self._same_value(name, other)
        # matching goes on at the values around a new pair
        if self.spreading:
            for name, other in chain(
                zip(first.reads[a], second.reads[b], strict=False),
                zip(first.makes[a], second.makes[b], strict=False),
            ):
                self._reach(name, other)

    def _pair_unique(self, key: Key) -> None:
        """Pair free nodes whose key is unique in both graphs."""
        mine, theirs = ([(key(side, n), n) for n in self.free[side]] for side in (0, 1))
        for a, b in unique_pairs(mine, theirs):
            self.pair(a, b)

    def _pair_ties(self, key: Key, levels: Sequence[Key]) -> None:
        """Pair nodes with equal keys: equal names first, then in the order of the inputs that read them.

        Each pair spreads before the next.
        """
        mine, theirs = (groups((key(side, n), n) for n in self.free[side]) for side in (0, 1))
        for found, group in mine.items():
            others = theirs.get(found)
            if not others:
                continue
            # names decide among equal nodes, then the order in which they are read
            named = {self._named(1, b): b for b in others}
            same_name = [(a, named[self._named(0, a)]) for a in group if self._named(0, a) in named]
            for a, b in same_name:
                self._pair_and_spread(a, b, levels)
            left = (self._in_order_of_use(side, each) for side, each in ((0, group), (1, others)))
            for a, b in zip(*left, strict=False):
                self._pair_and_spread(a, b, levels)

    def _in_order_of_use(self, side: int, nodes: Iterable[int]) -> list[int]:
        """Return those of equal nodes that are free, first what others read as their first input."""
        uses, makes = self.sides[side].uses, self.sides[side].makes
        free = [node for node in nodes if node in self.free[side]]
        if len(free) < 2:
            return free

        def slots(node: int) -> list[list[tuple[int, ...]]]:
            return [sorted(uses.get(name, {}).values()) for name in makes[node]]

        return sorted(free, key=slots)

    def _pair_and_spread(self, a: int, b: int, levels: Sequence[Key]) -> None:
        if a in self.free[0] and b in self.free[1]:
            start = len(self.frontier)
            self.pair(a, b)
            self._spread(*levels, start=start)

    def _start_spreading(self) -> None:
        """Collect the paired values around unpaired nodes."""
        self.spreading = True
        first, second = self.sides
        # the ends of both graphs, then all pairs beside nodes that are free
        outputs = [list(side.index.outputs) for side in self.sides]
        for name, other in common(*outputs, by_place=first.positional):
            self._reach(name, other)
        for a in self.free[0]:
            for name in first.needs(a):
                self._reach(name, self.result.values.get(name, ""))
            for name in first.makes[a]:
                for user, slots in first.uses.get(name, {}).items():
                    if user in self.result.nodes:
                        reads = second.reads[self.result.nodes[user]]
                        for slot in slots:
                            self._reach(name, reads[slot] if slot < len(reads) else "")

    def _reach(self, name: str, other: str) -> None:
        if name and other and (name, other) not in self.seen:
            self.seen.add((name, other))
            self.frontier.append((name, other))

    def _spread(self, *levels: Key, start: int = 0) -> None:
        """Pair neighbors of paired nodes; try a looser key only after the stricter ones find nothing."""
        # each level has its own place in the frontier, and goes back to the strictest after a pair
        done = [start] * len(levels)
        level = 0
        while level < len(levels) and all(self.free):
            if done[level] == len(self.frontier):
                level += 1
                continue
            name, other = self.frontier[done[level]]
            done[level] += 1
            if self._pair_around(name, other, levels[level]):
                level = 0

    def _pair_around(self, name: str, other: str, key: Key) -> bool:
        """Pair the producers of two paired values, and their consumers with unique keys."""
        first, second = self.sides
        before = len(self.result.nodes)
        a, b = first.index.producer.get(name), second.index.producer.get(other)
        if a in self.free[0] and b in self.free[1] and a is not None and b is not None:
            # the node that makes the value must make it at the same output
            same_slot = first.makes[a].index(name) == second.makes[b].index(other)
            if same_slot and key(0, a) == key(1, b) is not None:
                self.pair(a, b)
        mine, theirs = (
            [
                ((own, slots), user)
                for user, slots in side.uses.get(value, {}).items()
                if user in self.free[i] and (own := key(i, user)) is not None
            ]
            for i, side, value in ((0, first, name), (1, second, other))
        )
        for user, match in unique_pairs(mine, theirs):
            self.pair(user, match)
        return len(self.result.nodes) > before

    def _operator(self, side: int, node: int) -> Hashable:
        return call_key(self.sides[side].index.nodes[node])

    def _named(self, side: int, node: int) -> Hashable:
        return (self._operator(side, node), *self.sides[side].makes[node])

    def _with_constants(self, own: Key) -> Key:
        """Return the `local` key of nodes that read constants, None for the others."""
        constants = [side.index.initializers.keys() for side in self.sides]

        def key(side: int, node: int) -> Hashable:
            reads = self.sides[side].reads[node]
            return own(side, node) if not constants[side].isdisjoint(reads) else None

        return key

    def _wired(self) -> Key:
        """Key a node by its inputs where all are paired; the operator may differ."""
        constants = [self.labeler.constants(side, contents=False) for side in self.sides]

        def key(side: int, node: int) -> Hashable:
            # inputs as side a names them; constants by their dtype and shape
            wires = list[Hashable]()
            for name in self.sides[side].reads[node]:
                value = name if side == 0 else self.back.get(name, name and None)
                if name in constants[side]:
                    wires.append(constants[side][name])
                elif value is not None and (not value or value in self.result.values):
                    wires.append(value)
                else:
                    return None
            return tuple(wires) or None

        return key
