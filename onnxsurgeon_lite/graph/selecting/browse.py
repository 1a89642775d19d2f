"""Navigate a graph: values, their producers and consumers, neighbors, and paths."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import overload

from onnxsurgeon_lite.errors import UnknownNameError, UsageError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.scopes.origins import joined
from onnxsurgeon_lite.graph.selecting.select import required, select_node, select_nodes, unknown
from onnxsurgeon_lite.graph.text import attribute_texts, type_text
from onnxsurgeon_lite.names import first, fitting, glob, shown

_SHOWN = 4  # consumers on a line
_LISTED = 40  # nodes in a listing


@dataclass(frozen=True)
class Value:
    """A value of the main graph."""

    graph: "Graph"
    name: str

    @property
    def type(self) -> str:
        """The type, as `float [1, 3]`."""
        return self.graph.type_text(self.name)

    @property
    def kind(self) -> str:
        """`produced`, `input` or `initializer`."""
        if self.name in self.graph.index.producer:
            return "produced"
        return "initializer" if self.name in self.graph.index.initializers else "input"

    @property
    def is_output(self) -> bool:
        """True for an output of the graph."""
        return self.name in self.graph.index.outputs

    @property
    def producer(self) -> "Node | None":
        """The node that produces it."""
        position = self.graph.index.producer.get(self.name)
        return None if position is None else Node(self.graph, position)

    @property
    def consumers(self) -> "Nodes":
        """The nodes that read it."""
        return Nodes(self.graph, self.graph.index.users(self.name))

    @property
    def scope(self) -> str:
        """The place in the source program."""
        return self.producer.scope if self.producer is not None else ""

    def __repr__(self) -> str:
        source = self.producer.title if self.producer is not None else self.kind
        positions = self.graph.index.users(self.name)
        users = first(list(map(self.graph.index.describe, positions)), _SHOWN)
        ends = ", ".join(filter(None, (users, "output" if self.is_output else "")))
        return shown(f"value {self.name!r} {self.type}: {source} -> {ends or 'nothing'}")


@dataclass(frozen=True)
class Node:
    """A node of the main graph."""

    graph: "Graph"
    position: int

    @property
    def id(self) -> str:
        """`@12`."""
        return f"@{self.position}"

    @property
    def name(self) -> str:
        """The name in the file; '' if it has none."""
        return str(self.graph.index.nodes[self.position].name)

    @property
    def op_type(self) -> str:
        """The operator type."""
        return str(self.graph.index.nodes[self.position].op_type)

    @property
    def title(self) -> str:
        """`Conv 'name' (@12)`."""
        return self.graph.index.describe(self.position)

    @property
    def attributes(self) -> dict[str, str]:
        """Attributes by name, as text."""
        return attribute_texts(self.graph.index.nodes[self.position])

    @property
    def inputs(self) -> list[Value]:
        """The values that it reads, captured values included."""
        return [Value(self.graph, name) for name in self.graph.index.reads[self.position]]

    @property
    def outputs(self) -> list[Value]:
        """The values that it produces."""
        made = self.graph.index.nodes[self.position].output
        return [Value(self.graph, name) for name in made if name]

    @property
    def scope(self) -> str:
        """The place in the source program: `convs3.1 (Conv2d), model.py:17`."""
        return str(self.graph.index.origins[self.position])

    def __repr__(self) -> str:
        reads, made = (", ".join(v.name for v in side) for side in (self.inputs, self.outputs))
        scope = f"  [{self.scope}]" if self.scope else ""
        return shown(f"{self.title}: {reads} -> {made}{scope}")


class Nodes(Sequence[Node]):
    """Nodes of the main graph; they print one a line, up to a limit."""

    def __init__(self, graph: "Graph", positions: Sequence[int]) -> None:
        self._graph = graph
        self.positions = positions

    def __len__(self) -> int:
        return len(self.positions)

    @overload
    def __getitem__(self, place: int) -> Node: ...
    @overload
    def __getitem__(self, place: slice) -> "Nodes": ...
    def __getitem__(self, place: int | slice) -> "Node | Nodes":
        if isinstance(place, slice):
            return Nodes(self._graph, self.positions[place])
        return Node(self._graph, self.positions[place])

    def __repr__(self) -> str:
        lines = [repr(node) for node in self[:_LISTED]]
        more = len(self) - _LISTED
        return "\n".join(chain(lines, [f"and {more:,} more"] if more > 0 else [])) or "no nodes"


class Graph:
    """The main graph of a model: values, nodes, and what lies around and between them.

    Example:
        >>> graph["22"]
        value '22' float [1, 3, 20, 20]: Conv 'Conv_1' (@1) -> Conv 'Conv_2' (@2)
        >>> graph["22"].producer.attributes["dilations"]
        '[1, 1]'
        >>> graph["23"].consumers[1].scope
        'convs3.0'
        >>> graph.find(op="Conv", scope="convs2.*")
        Conv 'Conv_3' (@3): 23, convs2.0.weight, convs2.0.bias -> 24  [convs2.0]
        Conv 'Conv_4' (@4): 24, convs2.1.weight, convs2.1.bias -> 25  [convs2.1]
        >>> graph.around("28")  # radius=2: two edges away
        Add 'Add_7' (@7): 25, 27 -> 28
        Conv 'Conv_8' (@8): 28, convs4.0.weight, convs4.0.bias -> 29  [convs4.0]
        >>> [node.name for node in graph.path("22", "28")]
        ['Conv_2', 'Conv_3', 'Conv_4', 'Add_7']
    """

    def __init__(self, index: GraphIndex) -> None:
        self.index = index

    def __len__(self) -> int:
        return len(self.index.nodes)

    def __getitem__(self, name: str) -> Value | Node:
        """Return a value, or the node with a name or id.

        Raises:
            UnknownNameError: there is no such value or node.
            AmbiguousNameError: the name fits several nodes.
        """
        index = self.index
        exact = required(name).removeprefix("name:")
        if exact in index:
            return Value(self, exact)
        try:
            return Node(self, select_node(index, name))
        except UnknownNameError as error:
            raise unknown(index, name, error) from error

    def __repr__(self) -> str:
        index = self.index
        inputs = ", ".join(index.required_inputs)
        ends = f"{inputs} -> {', '.join(index.outputs)}"
        return shown(f"graph {index.graph.name!r}: {len(self):,} nodes, {ends}")

    def type_text(self, name: str) -> str:
        """Return a value's type as text."""
        if name not in self.index.types:
            self.index.learn_types(self.index.producer)  # all at once: one by one is slow
        return type_text(self.index.types.get(name))

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.index.values())

    def find(
        self, op: str = "*", scope: str = "", name: str = "*", cls: str = "", src: str = ""
    ) -> Nodes:
        """Return the nodes with this operator, module, name, class and source line; all of them are patterns.

        Raises:
            UnknownNameError: there is no such module, class or source line.
        """
        index = self.index
        places = (("scope", scope), ("class", cls), ("src", src))
        chosen = [select_nodes(index, f"{kind}:{text}") for kind, text in places if text]
        if op != "*":
            ops = filter(glob(op), index.operators)
            chosen.append(joined(index.operators[each] for each in ops))
        if name != "*":
            chosen.append(joined(index.named[each] for each in fitting(index.node_names, name)))
        if not chosen:
            return Nodes(self, range(len(index.nodes)))
        # those that all criteria have; the shortest list is walked
        fewest, *others = sorted(chosen, key=len)
        for other in others:
            fewest = [position for position in fewest if _has(other, position)]
        return Nodes(self, fewest)

    def around(self, name: str, radius: int = 1) -> Nodes:
        """Return the nodes at most `radius` edges away, in topological order; shared constants do not connect nodes.

        The nodes at the ends of a value are one edge away from it.
        """
        index = self.index
        near = set(self._ends(name, backwards=True)) | set(self._ends(name, backwards=False))
        edge = near
        # the nodes at a value's ends are one edge away already
        for _ in range(radius - (name in index)):
            values = set(chain(index.inputs_of(edge), index.outputs_of(edge)))
            values -= index.initializers.keys()
            edge = set(chain.from_iterable(map(self._neighbors, values))) - near
            near |= edge
        return Nodes(self, index.in_order(near))

    def path(self, start: str, end: str) -> Nodes:
        """Return the nodes of a shortest path between two values or nodes, along the edges.

        Raises:
            UsageError: there is no path.
        """
        index = self.index
        goals = set(self._ends(end, backwards=True))
        path = index.shortest(self._ends(start, backwards=False), goals)
        if path:
            return Nodes(self, path)
        raise UsageError(
            f"there is no path '{start} -> {end}' in graph {index.graph.name!r}",
            f"a path leads from producers to consumers: try graph.path({end!r}, {start!r})",
        )

    def _ends(self, name: str, backwards: bool) -> list[int]:
        """Return the node itself, or a value's producer (backwards) or consumers."""
        found = self[name]
        if isinstance(found, Node):
            return [found.position]
        near = self._neighbors(found.name)
        producer = self.index.producer.get(found.name)
        return [p for p in near if (p == producer) == backwards]

    def _neighbors(self, name: str) -> list[int]:
        """Return the nodes that produce or read a value."""
        producer = self.index.producer.get(name)
        users = self.index.users(name)
        return users if producer is None else [producer] + users


def _has(ordered: Sequence[int], position: int) -> bool:
    place = bisect_left(ordered, position)  # bisection: the list is sorted
    return place < len(ordered) and ordered[place] == position
