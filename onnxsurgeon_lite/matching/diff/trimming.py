"""Trim an original and its edited copy to the surroundings of their differences.

Nodes with equal bytes, names of values included, are the same node. Nodes that touch no difference are dropped; their
outputs become inputs of the trimmed graph.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice
from operator import ne
from typing import TypeVar

from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto

from onnxsurgeon_lite.graph.table import NodeTable, every_read
from onnxsurgeon_lite.matching.nodes import NamedGraph
from onnxsurgeon_lite.model import Model, walk
from onnxsurgeon_lite.model.messages import take_fields
from onnxsurgeon_lite.model.wire import Messages

_Named = TypeVar("_Named", TensorProto, ValueInfoProto)
_MOST_DIFFERENT = 64  # differing nodes or values; each value is searched in all nodes


@dataclass(frozen=True)
class Trimmed:
    """Two trimmed graphs, with their equal nodes (positions) and initializers (names)."""

    scopes: tuple[NamedGraph, NamedGraph]
    pairs: list[tuple[int, int]]
    constants: set[str] = field(default_factory=set)


# 1. What is cheap to count comes first: a large edit ends there.
# 2. The parts that differ: what the nodes of one side make, and the inputs and initializers of one side.
# 3. Folding: an initializer on one side that is computed from initializers on the other is no difference to readers.
# 4. Equal nodes that read what differs are kept, too: the diff pairs the differing nodes by their neighbors.
# 5. What kept nodes read and none of them makes becomes an input of both trimmed graphs.
# 6. Pairs are places in the trimmed graphs.
def trim(first: Model, second: Model) -> Trimmed | None:
    """Trim the main graphs; None when they differ in too many places."""
    mine, theirs = first.graph, second.graph
    counts = zip(
        (len(mine.node), len(mine.value_info)),
        (len(theirs.node), len(theirs.value_info)),
        strict=True,
    )
    many = any(abs(count - other) > _MOST_DIFFERENT for count, other in counts)
    if many or _differ_much(mine.value_info, theirs.value_info):
        return None
    one, two = _TrimmedGraph(first), _TrimmedGraph(second)
    redeclared = {info.name for info in _unequal(mine.value_info, theirs.value_info)}
    if len(redeclared) > _MOST_DIFFERENT:
        return None
    same = _Same.of(one.encoded, two.encoded)  # the nodes that only one side has
    one.kept = [i for i in same.mine if i not in same.moved]
    moved = set(same.moved.values())
    two.kept = [i for i in same.theirs if i not in moved]
    if max(len(one.kept), len(two.kept)) > _MOST_DIFFERENT:
        return None
    made = set(walk.outputs(one.left + two.left))
    leaves = {name for _, name in one.leaves ^ two.leaves}
    if len(made | leaves | redeclared) > _MOST_DIFFERENT:
        return None
    folded = leaves & (one.computed() | two.computed())  # each reader reads the same as before
    others = made - folded | redeclared
    touched = {i for i in one.encoded.mentioning(others | leaves) if i in same}
    touched = _thin_readers(one, touched, leaves - others, others)
    one.kept = sorted(touched.union(one.kept))
    two.kept = sorted({same[i] for i in touched}.union(two.kept))
    needed = one.needs | two.needs
    outer = needed - one.own - two.own
    unequal = {t.name for t in _unequal(one.graph.initializer, two.graph.initializer)}
    constants = {n for kind, n in one.leaves & two.leaves if kind == "initializer" and n in needed}
    needed |= unequal
    scopes = one.scope(needed, outer), two.scope(needed, outer)
    places = {position: place for place, position in enumerate(two.kept)}
    pairs = [(place, places[same[i]]) for place, i in enumerate(one.kept) if i in same]
    return Trimmed(scopes, pairs, constants - unequal)


@dataclass(frozen=True)
class _Same:
    """Which nodes have equal bytes: position in the first graph -> in the second.

    Attributes:
        mine, theirs: the positions between equal beginnings and equal ends.
        moved: the equal ones among these.
    """

    mine: range
    theirs: range
    moved: dict[int, int]

    @classmethod
    def of(cls, mine: Messages, theirs: Messages) -> "_Same":
        head, tail = mine.same(theirs)
        # `moved` has equal bytes at another position; only what lies between the equal ends can move
        between, others = (range(head, len(side) - tail) for side in (mine, theirs))
        where = {theirs[i]: i for i in others}
        moved = {i: where[mine[i]] for i in between if mine[i] in where}
        return cls(between, others, moved)

    def __contains__(self, position: int) -> bool:
        return position not in self.mine or position in self.moved

    def __getitem__(self, position: int) -> int:
        if position in self.mine:
            return self.moved[position]
        # after the differing range, positions are shifted by the difference of the lengths
        return position + (self.theirs.stop - self.mine.stop if position >= self.mine.stop else 0)


def _differ_much(mine: Iterable[_Named], theirs: Iterable[_Named]) -> bool:
    """Return whether more than `_MOST_DIFFERENT` entries of one name and position differ."""
    pairs = zip(mine, theirs, strict=False)
    changed = (one for one, two in pairs if one != two and one.name == two.name)
    return len(list(islice(changed, _MOST_DIFFERENT + 1))) > _MOST_DIFFERENT


def _unequal(mine: Sequence[_Named], theirs: Sequence[_Named]) -> Iterator[_Named]:
    """Yield the messages of only one side."""
    if len(mine) == len(theirs):  # usually in one order and mostly equal
        pairs = [pair for pair in zip(mine, theirs, strict=True) if ne(*pair)]
        mine, theirs = [one for one, _ in pairs], [two for _, two in pairs]
    sides = [{message.SerializeToString(): message for message in side} for side in (mine, theirs)]
    for side, other in (sides, reversed(sides)):
        yield from (message for encoded, message in side.items() if encoded not in other)


def _thin_readers(
    side: "_TrimmedGraph", touched: set[int], leaves: set[str], others: set[str]
) -> set[int]:
    """Drop most readers of a leaf with many: an equal node is no difference by itself."""
    if len(touched) <= _MOST_DIFFERENT:
        return touched
    # a few readers of each leaf show what became of it; nodes with attributes may read it in a body
    readers = {name: list[int]() for name in leaves}
    for place, names in enumerate(side.table.reads):
        for name in leaves.intersection(names):
            readers[name].append(place)
    first = set(chain.from_iterable(found[:_MOST_DIFFERENT] for found in readers.values()))
    attributed = (place for place, node in enumerate(side.nodes) if node.attribute)
    # whatever reads a differing value itself stays in any case
    more = first.union(attributed, side.encoded.mentioning(others))
    return touched - (set(chain.from_iterable(readers.values())) - more)


class _TrimmedGraph:
    def __init__(self, model: Model) -> None:
        self.model = model
        self.graph = model.graph
        self.nodes = self.graph.node
        self.table = NodeTable.of(self.graph)
        self.encoded = self.table.encoded
        self.kept = list[int]()

    @property
    def left(self) -> list[NodeProto]:
        return [self.nodes[position] for position in self.kept]

    def computed(self) -> set[str]:
        """Return what the kept nodes make of initializers alone."""
        # an omitted input ("") is known; an input with a default may be fed, so its value is not
        known = {""}.union(name for kind, name in self.leaves if kind == "initializer")
        known -= {name for kind, name in self.leaves if kind == "input"}
        found = set[str]()
        for node in self.left:
            if node.input and known.union(found).issuperset(every_read(node)):
                found.update(filter(None, node.output))
        return found

    @cached_property
    def leaves(self) -> set[tuple[str, str]]:
        """(kind, name) of inputs and initializers."""
        return {
            *(("input", value.name) for value in self.graph.input),
            *(("initializer", tensor.name) for tensor in self.graph.initializer),
            *(("initializer", sparse.values.name) for sparse in self.graph.sparse_initializer),
        }

    @property
    def own(self) -> set[str]:
        """Outputs of kept nodes, inputs and initializers."""
        return set(walk.outputs(self.left)) | {name for _, name in self.leaves}

    @property
    def needs(self) -> set[str]:
        """Values that kept nodes read, and graph outputs."""
        read = set(chain.from_iterable(map(every_read, self.left))) - {""}
        return read | {value.name for value in self.graph.output}

    def scope(self, needed: Set[str], outer: Set[str]) -> NamedGraph:
        """Build the graph of the kept nodes; `outer` are outputs of dropped ones, now inputs."""
        proto = ModelProto()
        graph = proto.graph
        names = {field.name for field in graph.DESCRIPTOR.fields}
        take_fields(graph, self.graph, names - {"node", "initializer", "value_info"})
        graph.node.extend(self.left)
        for name in sorted(outer):
            graph.input.add(name=name)
        wanted = needed | {value.name for value in graph.input}
        graph.initializer.extend(t for t in self.graph.initializer if t.name in wanted)
        made = set(walk.outputs(graph.node))
        graph.value_info.extend(v for v in self.graph.value_info if v.name in made | wanted)
        return NamedGraph.of(self.model.with_proto(proto), self.kept)
