"""Merge equal nodes."""

from collections.abc import (
    Callable,
    Collection,
    Container,
    Iterable,
    Iterator,
    Mapping,
    MutableSequence,
    Sequence,
)
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import ClassVar

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from onnxsurgeon_lite.graph import RANDOM, GraphIndex, NodeRow, NodeTable, checked, constant_of
from onnxsurgeon_lite.model import Model, call_key, copied, drop_at, function_key, is_external, walk
from onnxsurgeon_lite.model.wire import LARGE
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.surgery import (
    defined,
    drop_declarations,
    rename_parameters,
    rename_uses,
    trained,
)
from onnxsurgeon_lite.tensors import dtypes

_OWN = ("", "ai.onnx.ml")
_IMPURE = RANDOM | {"Dropout"}
Key = tuple[object, ...]
Shallow = tuple[str, str, tuple[object, ...]]
"""What two nodes have in common that may be equal: operator, domain, values read."""
_Alike = Mapping[str, bytes]  # small constant -> its content


@dataclass(slots=True)
class _Known:
    """A node that equal ones are merged into: what it reads and makes.

    Attributes:
        needs: as in `NodeRow`.
    """

    node: NodeProto
    outputs: list[str]
    needs: list[str]

    @property
    def names(self) -> Iterator[str]:
        """The values that it reads and makes."""
        return chain(self.needs, self.outputs)

    def same_of(self, others: "Iterable[_Known]", alike: _Alike) -> "_Known | None":
        """Return the one of several nodes that computes the same."""
        content = self.content(alike)
        return next((other for other in others if other.content(alike) == content), None)

    def content(self, alike: _Alike) -> Key:
        """Return a key that is equal for nodes which compute the same: names and documentation do not matter."""
        reads = tuple(alike.get(name, name) for name in self.node.input[:])
        attributes = tuple(sorted(map(_bare, self.node.attribute)))
        # which outputs are omitted counts, their names do not
        return self.node.overload, attributes, reads, tuple(map(bool, self.outputs))


@dataclass(frozen=True)
class Cse:
    """Keep one of several nodes that compute the same of the same inputs; bodies read outer ones.

    Nodes that are random, have a body, or are of a domain that is not ONNX's own stay; calls of functions without such
    nodes are merged too. Graph outputs and annotated values keep their nodes. No weight is read.

    Example:
        >>> osl.cse("whole_model.onnx").changed
        False
    """

    name: ClassVar[str] = "cse"

    def apply(self, model: Model) -> PassResult:
        """Merge them.

        Raises:
            GraphError: the graph has a cycle.
            EditError: a node lacks what its operator takes.
        """
        return self.edit(checked(model))

    def edit(self, index: GraphIndex) -> PassResult:
        """Merge the nodes of an indexed model."""
        model = index.model
        result = index.model.copy()
        merging = _Merging(result.proto)
        merging.main(index)
        for function in result.proto.functions:
            rows = NodeTable(function.node).rows
            # functions have no index: their nodes are looked at in file order, which is sorted
            every = _Walk(rows.__getitem__, range(len(rows)))
            merging.nodes(function.node, every, set(function.output), {}, {})
        changes = [f"merged {merging.count} nodes into equal ones"] if merging.count else []
        return PassResult.of(model, result, changes, is_told=True)


@dataclass
class _Walk:
    """The nodes of a graph to look at, in order.

    Attributes:
        row: a node as plain data.
    """

    row: Callable[[int], NodeRow]
    order: Iterable[int]

    def __iter__(self) -> Iterator[int]:
        return iter(self.order)

    def merged(self, values: Sequence[str]) -> None:
        """Look at what reads merged values, too: every node is looked at."""


class _Twins(_Walk):
    """The nodes of a main graph that may equal another one, and those that come to do so as their inputs merge."""

    def __init__(self, index: GraphIndex, positions: Collection[int]) -> None:
        super().__init__(index.rows.__getitem__, ())
        self.index = index
        # value -> its readers, which may become equal when values merge
        self.readers = index.readers(index.made_by(positions))
        # a heap of places in topological order, so that inputs merge before what reads them
        self.pending = [index.places[position] for position in positions]
        heapify(self.pending)

    def __iter__(self) -> Iterator[int]:
        seen = set[int]()
        while self.pending:
            place = heappop(self.pending)
            if place not in seen:
                seen.add(place)
                yield self.index.order[place]

    def merged(self, values: Sequence[str]) -> None:
        """Look at what reads merged values, too: these nodes may be equal now."""
        for value in filter(None, values):
            if value not in self.readers:
                self.readers |= self.index.readers([value])
            for position in self.readers[value]:
                heappush(self.pending, self.index.places[position])


class _Merging:
    """Merges the nodes of graphs and functions, in their order."""

    def __init__(self, proto: ModelProto) -> None:
        self.count = 0
        self.proto = proto
        self.trained = trained(proto)
        self.functions = {
            function_key(function)
            for function in proto.functions
            # calls of these are as pure as the nodes in them
            if not any(node.op_type in _IMPURE for node in walk.with_inner(function.node))
        }

    def main(self, index: GraphIndex) -> None:
        """Merge the nodes of the main graph, which an index describes, and of its bodies."""
        graph = self.proto.graph
        if index.bodied:  # there every node outside may have an equal one inside
            # with bodies every node is looked at, in order
            self.graph(graph, _Walk(index.rows.__getitem__, index.order))
            return
        alike = self.contents(graph)
        constants = index.operators.get("Constant", ())
        for position in constants:
            alike |= _held(index.nodes[position])
        # only nodes that some other one resembles: most graphs have few
        twins = index.table.twins(alike)
        if twins:
            self.graph(graph, _Twins(index, (*twins, *constants)))

    def contents(self, graph: GraphProto) -> dict[str, bytes]:
        """Return the contents of a graph's small initializers that are constant."""
        # what may be fed or trained is not constant
        inputs = {value.name for value in graph.input} | self.trained
        tensors = (t for t in graph.initializer if _is_small(t) and t.name not in inputs)
        return {tensor.name: _content(tensor) for tensor in tensors}

    def graph(
        self,
        graph: GraphProto,
        looked: _Walk,
        outer: "Mapping[Shallow, list[_Known]] | None" = None,
        outer_alike: _Alike | None = None,
    ) -> None:
        """Merge the nodes of a graph, and of its bodies, with each other and with those outside."""
        seen = dict[Shallow, list[_Known]]()
        alike = dict[str, bytes]()
        if outer or outer_alike:
            # of outer nodes and constants, those that no name of this graph hides
            local = set(defined(graph))
            alike |= {n: content for n, content in (outer_alike or {}).items() if n not in local}
            for key, several in (outer or {}).items():
                if visible := [known for known in several if local.isdisjoint(known.names)]:
                    seen[key] = visible
        alike |= self.contents(graph)
        kept = {value.name for value in graph.output}
        kept.update(annotation.tensor_name for annotation in graph.quantization_annotation)
        names = self.nodes(graph.node, looked, kept, seen, alike)
        rename_parameters(graph, names)
        drop_declarations(graph, names)

    # What a node reads may have merged before: it reads the value that is left.
    # Bodies first see what is before them in the outer graph.
    # A cheap key (operator, domain and values) comes first, the full one only where two nodes share it.
    # The node of a graph output stays: the output must keep its name.
    def nodes(
        self,
        nodes: MutableSequence[NodeProto],
        looked: _Walk,
        kept: Container[str],
        seen: "dict[Shallow, list[_Known]]",
        alike: dict[str, bytes],
    ) -> dict[str, str]:
        """Merge nodes; return the values that are gone, and those that took their places."""
        names = dict[str, str]()
        gone = []
        every = list(nodes)
        for position in looked:
            node, row = every[position], looked.row(position)
            if names and not names.keys().isdisjoint(row.needs):
                rename_uses([node], names)
                row = row._replace(needs=[names.get(name, name) for name in row.needs])
            alike |= _held(node) if row.op_type == "Constant" else {}
            for _, body in walk.bodies(node) if node.attribute else ():
                inner = NodeTable(body.node).rows
                self.graph(body, _Walk(inner.__getitem__, range(len(inner))), seen, alike)
            if not self._is_mergeable(node, row):
                continue
            known = _Known(node, row.outputs, row.needs)
            reads = tuple([alike.get(name, name) for name in row.needs])
            shallow = row.op_type, row.domain, reads or known.content(alike)
            several = seen.get(shallow)
            same = known.same_of(several, alike) if several else None
            if several is None:
                seen[shallow] = [known]
            elif same is None:
                several.append(known)
            elif not any(name in kept for name in row.outputs):
                names.update(zip(row.outputs, same.outputs, strict=True))
                gone.append(position)
                looked.merged(row.outputs + same.outputs)  # readers of both values may be equal now
        drop_at(nodes, gone)
        self.count += len(gone)
        names.pop("", None)  # omitted outputs
        return names

    def _is_mergeable(self, node: NodeProto, row: NodeRow) -> bool:
        if self.functions and call_key(node) in self.functions:
            return True
        known = row.domain in _OWN and row.op_type not in _IMPURE
        return known and not walk.bodies(node)


def _held(node: NodeProto) -> dict[str, bytes]:
    """Return the content of a small Constant, by its name."""
    tensor = constant_of(node)
    return {} if tensor is None or not _is_small(tensor) else {node.output[0]: _content(tensor)}


def _bare(attribute: AttributeProto) -> bytes:
    bare = attribute
    if attribute.doc_string:
        bare = copied(attribute)
        bare.ClearField("doc_string")
    return bytes(bare.SerializeToString(deterministic=True))


def _is_small(tensor: TensorProto) -> bool:
    return not is_external(tensor) and tensor.ByteSize() <= LARGE


def _content(tensor: TensorProto) -> bytes:
    bare = TensorProto(data_type=tensor.data_type, dims=tensor.dims)
    if tensor.data_type == TensorProto.STRING:
        bare.string_data.extend(tensor.string_data)
    else:
        # raw bytes, so that both ways to store numbers are equal
        bare.raw_data = tensor.raw_data or dtypes.encode(dtypes.to_array(tensor))
    return bytes(bare.SerializeToString(deterministic=True))
