"""Pairing the nodes of two graphs.

Nodes whose whole surroundings are the same are paired first, then those that agree in what they are computed from, or
in what is computed from them, so that one change does not make everything below it another node. From these pairs
matching spreads along the edges to what is left around the changes: same node first, then same operator, then, where
only the wiring agrees, another operator in the same place. Names decide nothing but ties.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from onnxsurgeon_lite.graph.index import call_key
from onnxsurgeon_lite.matching.nodes.keys import Key, common, groups, keys, unique
from onnxsurgeon_lite.matching.nodes.labels import InitialLabels, Labeler, Labels, Leaves
from onnxsurgeon_lite.matching.nodes.scope import NamedGraph


@dataclass
class Alignment:
    """Two graphs, node by node and value by value.

    Attributes:
        nodes: position in the first graph -> position in the second, for nodes that have a counterpart.
        values: the same for the names of values; initializers, which no node makes, are not among them.
    """

    first: NamedGraph
    second: NamedGraph
    nodes: dict[int, int] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)

    @property
    def removed(self) -> list[int]:
        """The nodes of the first graph without a counterpart."""
        return [i for i in range(len(self.first.reads)) if i not in self.nodes]

    @property
    def added(self) -> list[int]:
        """The nodes of the second graph without a counterpart."""
        paired = set(self.nodes.values())
        return [i for i in range(len(self.second.reads)) if i not in paired]


def align(
    first: NamedGraph,
    second: NamedGraph,
    outside: Mapping[str, str] | None = None,
    known: Iterable[tuple[int, int]] = (),
) -> Alignment:
    """Pair the nodes and values of two graphs, in about the time that it takes to index them.

    Args:
        outside: for subgraphs, the values of the enclosing graphs that correspond.
        known: pairs of positions that are the same node.

    Raises:
        GraphError: a graph has a cycle.
    """
    matcher = _Matcher(Alignment(first, second))
    matcher.pair_ends(outside or {})
    for pair in known:
        matcher.pair(*pair)
    matcher.match()
    return matcher.result


class _Matcher:
    def __init__(self, result: Alignment) -> None:
        self.result = result
        self.sides = (result.first, result.second)
        self.palette = Labeler(result.first.model.files.keys() & result.second.model.files.keys())
        self.signatures = [self.palette.signatures(side) for side in self.sides]
        self.ends: tuple[Leaves, Leaves] = ({}, {})
        self.free = [dict.fromkeys(range(len(side.reads))) for side in self.sides]
        self.free_inputs: list[dict[str, None]] = []
        self.back: dict[str, str] = {}  # the values of the second graph, in the first one's names
        self.spreading = False
        self.frontier: list[tuple[str, str]] = []  # corresponding values, as they were found
        self.seen: set[tuple[str, str]] = set()

    def pair_ends(self, outside: Mapping[str, str]) -> None:
        """Pair inputs by name where both have it (by place in a body), and values from outside."""
        inputs = [[n for n in s.index.inputs if n not in s.index.initializers] for s in self.sides]
        inner = self.sides[0].positional
        for name, other in (*outside.items(), *common(*inputs, by_place=inner)):
            self._pair_end(name, other, f"end {name}")
        self.free_inputs = [
            dict.fromkeys(n for n in names if n not in ends)
            for names, ends in zip(inputs, self.ends, strict=True)
        ]
        for names, ends in zip(self.free_inputs, self.ends, strict=True):
            ends.update(dict.fromkeys(names, self.palette.colour("another input")))
        if all(self.free_inputs):
            self._pair_inputs_by_use()

    def match(self) -> None:
        """Pair the nodes, the surest pairs first."""
        exact = self._paint_whole()
        alike, above, below, own = keys(exact)
        for key in (alike, above, below):
            self._pair_unique(key)
        self._pair_unique(self._with_constants(own))
        self._start_spreading()
        self._spread(own)
        if all(self.free):
            loose = self._paint_rest()
            alike_but, above_but, below_but, own_but = keys(loose)
            levels = (own, own_but, self._operator)
            self._pair_unique(alike_but)
            self._spread(*levels)
            for key in (alike, alike_but, above_but, below_but):
                self._pair_ties(key, levels)
            self._pair_unique(self._named)
            self._spread(*levels)
            wired = self._wired()
            self._pair_unique(wired)
            self._spread(*levels, wired)
        if len(self.free_inputs[0]) == len(self.free_inputs[1]):
            self.result.values.update(zip(*self.free_inputs, strict=True))

    def _pair_inputs_by_use(self) -> None:
        """Pair renamed inputs from which the same is computed."""
        mine, theirs = (
            groups(
                (
                    tuple(
                        sorted(
                            (colours.down[user], slot)
                            for user, slots in side.uses.get(name, {}).items()
                            for slot in slots
                        )
                    ),
                    name,
                )
                for name in names
            )
            for side, colours, names in zip(
                self.sides, self._paint_whole(), self.free_inputs, strict=True
            )
        )
        for used, names in mine.items():
            for name, other in zip(names, theirs.get(used, ()), strict=False):
                self._pair_end(name, other, f"renamed end {name}")
                del self.free_inputs[0][name], self.free_inputs[1][other]

    def _paint_whole(self) -> tuple[Labels, Labels]:
        """Contents of constants included."""
        first, second = (
            self.palette.paint(
                side,
                side.index.order,
                InitialLabels(signatures, ends, self.palette.outputs(side)),
                self.palette.constants(side, contents=True),
            )
            for side, signatures, ends in zip(self.sides, self.signatures, self.ends, strict=True)
        )
        return first, second

    def _paint_rest(self) -> tuple[Labels, Labels]:
        """The nodes that are left, as seen from those that are paired; constants by dtype and shape alone."""
        numbers = [
            {a: number for number, a in enumerate(self.result.nodes)},
            {b: number for number, b in enumerate(self.result.nodes.values())},
        ]
        values: list[Leaves] = [{}, {}]
        for name, other in self.result.values.items():
            values[0][name] = values[1][other] = self.palette.colour(("paired", name))
        rest = []
        for i, side in enumerate(self.sides):
            uses = self.palette.outputs(side)
            for node in self.free[i]:
                for name in filter(None, side.makes[node]):
                    uses[name] += [
                        (-2 - numbers[i][user], slot)
                        for user, slots in side.uses.get(name, {}).items()
                        if user in numbers[i]
                        for slot in slots
                    ]
            coats = InitialLabels(self.signatures[i], {**self.ends[i], **values[i]}, uses)
            nodes = [node for node in side.index.order if node in self.free[i]]
            constants = self.palette.constants(side, contents=False)
            rest.append(self.palette.paint(side, nodes, coats, constants))
        return rest[0], rest[1]

    def _pair_end(self, name: str, other: str, colour: str) -> None:
        self.ends[0][name] = self.ends[1][other] = self.palette.colour(colour)
        self._same_value(name, other)

    def _same_value(self, name: str, other: str) -> None:
        self.result.values[name] = other
        self.back[other] = name

    def pair(self, a: int, b: int) -> None:
        """Two nodes are the same, and so are the values that they make."""
        del self.free[0][a], self.free[1][b]
        self.result.nodes[a] = b
        first, second = self.sides
        for name, other in zip(first.makes[a], second.makes[b], strict=False):
            if name and other:
                self._same_value(name, other)
        if self.free_inputs[0]:
            self._pair_inputs(a, b)
        if self.spreading:
            for name, other in (
                *zip(first.reads[a], second.reads[b], strict=False),
                *zip(first.makes[a], second.makes[b], strict=False),
            ):
                self._reach(name, other)

    def _pair_inputs(self, a: int, b: int) -> None:
        mine, theirs = self.free_inputs
        for name, other in zip(self.sides[0].reads[a], self.sides[1].reads[b], strict=False):
            if name in mine and other in theirs:
                del mine[name], theirs[other]
                self._same_value(name, other)

    def _pair_unique(self, key: Key) -> None:
        """Pair what has a key that no other free node of its graph has."""
        mine, theirs = (unique((key(side, n), n) for n in self.free[side]) for side in (0, 1))
        for found, a in mine.items():
            b = theirs.get(found)
            if a is not None and b is not None and found is not None:
                self.pair(a, b)

    def _pair_ties(self, key: Key, levels: Sequence[Key]) -> None:
        """Pair what has the same key, those of one name first, then in order; each pair spreads before the next."""
        mine, theirs = (groups((key(side, n), n) for n in self.free[side]) for side in (0, 1))
        for found, group in mine.items():
            others = theirs.get(found, [])
            named = {self._named(1, b): b for b in others}
            same_name = [(a, named[self._named(0, a)]) for a in group if self._named(0, a) in named]
            for a, b in same_name:
                self._pair_and_spread(a, b, levels)
            left = [a for a in group if a in self.free[0]]
            for a, b in zip(left, [b for b in others if b in self.free[1]], strict=False):
                self._pair_and_spread(a, b, levels)

    def _pair_and_spread(self, a: int, b: int, levels: Sequence[Key]) -> None:
        if a in self.free[0] and b in self.free[1]:
            start = len(self.frontier)
            self.pair(a, b)
            self._spread(*levels, start=start)

    def _start_spreading(self) -> None:
        """Gather the corresponding values around the nodes that are left."""
        self.spreading = True
        first, second = self.sides
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
        """Pair neighbours of what is paired; a looser key has its turn when no stricter one finds any more."""
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
        """Pair the producers of two corresponding values, and those of their users that have no double."""
        first, second = self.sides
        before = len(self.result.nodes)
        a, b = first.index.producer.get(name), second.index.producer.get(other)
        if a in self.free[0] and b in self.free[1] and a is not None and b is not None:
            same_slot = first.makes[a].index(name) == second.makes[b].index(other)
            if same_slot and key(0, a) == key(1, b) is not None:
                self.pair(a, b)
        mine, theirs = (
            unique(
                ((key(i, user), slots), user)
                for user, slots in side.uses.get(value, {}).items()
                if user in self.free[i]
            )
            for i, side, value in ((0, first, name), (1, second, other))
        )
        for found, user in mine.items():
            match = theirs.get(found)
            if user is not None and match is not None and found[0] is not None:
                self.pair(user, match)
        return len(self.result.nodes) > before

    def _operator(self, side: int, node: int) -> Hashable:
        return call_key(self.sides[side].index.nodes[node])

    def _named(self, side: int, node: int) -> Hashable:
        return (self._operator(side, node), *self.sides[side].makes[node])

    def _with_constants(self, own: Key) -> Key:
        """The node itself, where constants set it apart from others."""
        constants = [side.index.initializers.keys() for side in self.sides]

        def key(side: int, node: int) -> Hashable:
            reads = self.sides[side].reads[node]
            return own(side, node) if not constants[side].isdisjoint(reads) else None

        return key

    def _wired(self) -> Key:
        """What a node reads, where all of that corresponds: another operator may stand in the same place."""
        constants = [self.palette.constants(side, contents=False) for side in self.sides]

        def key(side: int, node: int) -> Hashable:
            wires: list[Hashable] = []
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
