"""What the nodes of a graph are, read and make, in lists, because protobuf answers slowly."""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import NamedTuple, TypeVar

from onnx import GraphProto, NodeProto, TensorProto

from onnxsurgeon_lite.model import plain_domain, walk
from onnxsurgeon_lite.model.wire import Messages

_Item = TypeVar("_Item")

FEW = 256
"""Nodes of a graph that is read anew each time."""

_MOST_BYTES = 1 << 26  # of a graph that is serialized with all that is around its nodes


class NodeRow(NamedTuple):
    """A node as plain data.

    Attributes:
        domain: '' for ONNX's own.
        needs: its inputs, with repeats and '', then what its bodies capture.
    """

    op_type: str
    domain: str
    needs: list[str]
    outputs: list[str]


class NodeTable:
    """The nodes of a graph in lists, which are read when they are asked for: before the graph changes."""

    def __init__(
        self, nodes: Sequence[NodeProto], whole: bytes = b"", like: "NodeTable | None" = None
    ) -> None:
        """Begin with nodes.

        Args:
            whole: the serialized graph, if it is known.
            like: the table of another version of it.
        """
        self._nodes, self._whole, self._like = nodes, whole, like

    @classmethod
    def of(cls, graph: GraphProto) -> "NodeTable":
        """Return the table of a graph; the latest ones are known."""
        if len(graph.node) <= FEW:
            return cls(graph.node)
        # large weights: nodes alone, so that the comparison below stays cheap
        if sum(map(TensorProto.ByteSize, graph.initializer)) > _MOST_BYTES:
            graph = GraphProto(node=graph.node)
        whole = graph.SerializeToString()
        known = list(_latest)
        for table in known:
            if table._whole == whole:
                table._nodes = graph.node  # those of another graph may have changed since
                return table
            table._like = None
        # the newest table is probably of the graph before the edit
        found = cls(graph.node, whole, *known[-1:])
        _latest.append(found)
        return found

    @cached_property
    def kinds(self) -> list[tuple[str, str]]:
        """The operator and the domain of each node."""
        return self._each("kinds", attrgetter("op_type", "domain"))

    @cached_property
    def reads(self) -> list[list[str]]:
        """The inputs of each node, '' for one that it leaves out."""
        return self._each("reads", lambda node: node.input[:])

    @cached_property
    def makes(self) -> list[list[str]]:
        """The outputs of each node, '' for one that it leaves out."""
        return self._each("makes", lambda node: node.output[:])

    def _each(self, name: str, of: Callable[[NodeProto], _Item]) -> list[_Item]:
        """Read something of each node, but of those that another version of the graph begins and ends with."""
        # what another version has not read is read here
        like = self._like
        if like is None or name not in vars(like):
            self._nodes = list(self._nodes)  # which protobuf makes once
            return list(map(of, self._nodes))
        known: list[_Item] = getattr(like, name)
        head, tail = self._alike
        between = self._nodes[head : len(self._nodes) - tail]
        return known[:head] + list(map(of, between)) + known[len(known) - tail :]

    @cached_property
    def _alike(self) -> tuple[int, int]:
        """How many nodes another version of the graph begins and ends with, too."""
        return (0, 0) if self._like is None else self.encoded.same(self._like.encoded)

    @cached_property
    def encoded(self) -> Messages:
        """The nodes' bytes."""
        whole = self._whole or GraphProto(node=self._nodes).SerializeToString()
        return Messages(whole, GraphProto.NODE_FIELD_NUMBER)

    @cached_property
    def bodied(self) -> list[int]:
        """The nodes that hold graphs."""
        if not self._whole:
            return [p for p, n in enumerate(self._nodes) if n.attribute and walk.bodies(n)]
        # many nodes: bytes that a body begins with; few other nodes have them
        if not any(kind in self._whole for kind in walk.GRAPH_TYPES):
            return []
        may = self.encoded.containing(walk.GRAPH_TYPES)
        return [p for p in may if walk.bodies(self._node(p))]

    def _node(self, place: int) -> NodeProto:
        return NodeProto.FromString(self.encoded[place]) if self._whole else self._nodes[place]

    @cached_property
    def needs(self) -> list[list[str]]:
        """Per node, its inputs, with repeats and '', then what its bodies capture."""
        found = self.reads.copy()
        for place in self.bodied:
            found[place] = self.reads[place] + captured(self._node(place))
        return found

    @cached_property
    def rows(self) -> list[NodeRow]:
        """Every node as plain data."""
        every = zip(self.kinds, self.needs, self.makes, strict=True)
        return [
            NodeRow(op_type, plain_domain(d), needs, made) for (op_type, d), needs, made in every
        ]

    @cached_property
    def made(self) -> tuple[dict[str, int], list[tuple[str, int]]]:
        """Value -> the first node that makes it; and the values that a node makes once more, with that node."""
        first = dict[str, int]()
        again = list[tuple[str, int]]()
        for place, names in enumerate(self.makes):
            for name in names:
                # a node that has a name twice is no second producer
                if name and first.setdefault(name, place) != place:
                    again.append((name, place))
        return first, again

    @cached_property
    def is_sorted(self) -> bool:
        """Whether the nodes are in topological order, and each value has one producer."""
        first, again = self.made
        if again:
            return False
        producer = first.get
        for place, names in enumerate(self.needs):
            for name in names:
                if producer(name, -1) >= place:  # made later, or by the node itself
                    return False
        return True

    @cached_property
    def operators(self) -> set[str]:
        """The operators of nodes, of any domain."""
        return {operator for operator, _ in self.kinds}

    @cached_property
    def domains(self) -> set[str]:
        """The domains of operators, and '' for ONNX's own."""
        return {""}.union(plain_domain(domain) for _, domain in self.kinds)

    def twins(self, alike: Mapping[str, bytes]) -> list[int]:
        """Return the nodes whose operator and inputs another one has, too.

        Args:
            alike: content of constants; those with one content are one input.
        """
        # names of one content count as one; most constants have a content of their own
        shared = Counter(alike.values())
        same = {name: content for name, content in alike.items() if shared[content] > 1}
        reads: list[tuple[str | bytes, ...]] = list(map(tuple, self.reads))
        if same:
            reads = [tuple([same.get(name, name) for name in names]) for names in self.reads]
        operators = [operator for operator, _ in self.kinds]
        found = list(zip(operators, reads, strict=True))
        counts = Counter(found)
        return [place for place, each in enumerate(found) if counts[each] > 1]


_latest = deque[NodeTable](maxlen=2)


def captured(node: NodeProto) -> list[str]:
    """Return the values of enclosing scopes that a node's subgraphs use, at any depth."""
    return list(chain.from_iterable(map(captured_by, walk.inner([node]))))


def every_read(node: NodeProto) -> list[str]:
    """Return the names that a node reads, then those that its subgraphs capture; with repeats and ''."""
    names: list[str] = node.input[:]
    return names + captured(node) if node.attribute else names


def captured_by(graph: GraphProto) -> list[str]:
    """Return the values of enclosing scopes that a subgraph uses, at any depth."""
    # A name is captured if nothing in the subgraph defines it.
    local = set(walk.sources(graph))
    used = list[str]()
    for inner in graph.node:
        local.update(inner.output)
        used += inner.input
        if inner.attribute:
            used += captured(inner)
    used += (v.name for v in graph.output)
    return [name for name in used if name and name not in local]
