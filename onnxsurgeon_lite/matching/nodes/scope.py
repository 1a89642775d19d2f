"""`NamedGraph`: a graph, subgraph or function as matching reads it."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from onnx import FunctionProto, GraphProto, ModelProto

from onnxsurgeon_lite.graph import (
    GraphIndex,
    described,
    function_model,
    node_id,
)
from onnxsurgeon_lite.model import Model, function_key
from onnxsurgeon_lite.tensors.dtypes import Shape


@dataclass
class NamedGraph:
    """One graph of a model, with the input and output names of its nodes.

    Attributes:
        path: its path as in node ids; '' for the main graph.
        positional: inputs and outputs are identified by position, as in bodies, not by name.
        positions: original positions of the nodes when some were left out; None for a whole graph.
        reads, makes: per node, the names of its inputs and outputs, '' for omitted ones.
    """

    index: GraphIndex
    path: str = ""
    positional: bool = False
    positions: Sequence[int] | None = None
    reads: list[list[str]] = field(default_factory=list)
    makes: list[list[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reads, self.makes = self.index.table.reads, self.index.table.makes

    @classmethod
    def of(cls, model: Model, positions: Sequence[int] | None = None) -> "NamedGraph":
        """Wrap the main graph; `positions` when nodes were left out."""
        return cls(GraphIndex.of(model), positions=positions)

    @classmethod
    def of_body(cls, model: Model, graph: GraphProto, path: str) -> "NamedGraph":
        """Wrap a subgraph."""
        proto = ModelProto()
        proto.graph.CopyFrom(graph)
        return cls(GraphIndex.of(model.with_proto(proto)), path, positional=True)

    @classmethod
    def of_function(cls, model: Model, function: FunctionProto) -> "NamedGraph":
        """Wrap the body of a function."""
        proto = function_model(model.proto, function)
        path = f"fn:{'::'.join(filter(None, function_key(function)))}"
        return cls(GraphIndex.of(model.with_proto(proto)), path, positional=True)

    @property
    def model(self) -> Model:
        """The model that holds the graph."""
        return self.index.model

    @cached_property
    def captured(self) -> dict[int, list[str]]:
        """Per node with subgraphs, the outer values that its bodies use and the node does not read."""
        found = {}
        for position, node in enumerate(self.index.nodes):
            if node.attribute:
                # what a node reads itself is in `reads`; the index has captured values, too
                direct = set(self.reads[position])
                further = [name for name in self.index.reads[position] if name not in direct]
                if further:
                    found[position] = further
        return found

    @cached_property
    def uses(self) -> dict[str, dict[int, Shape]]:
        """Value -> its consumers and their input slots; no slot when only a body uses it."""
        found = defaultdict[str, dict[int, Shape]](dict)
        for position, reads in enumerate(self.reads):
            for slot, name in enumerate(reads):
                if name:
                    found[name][position] = found[name].get(position, ()) + (slot,)
        for position, names in self.captured.items():
            # a consumer whose body alone uses the value has no slot
            for name in names:
                found[name][position] = ()
        return dict(found)

    def needs(self, position: int) -> Iterator[str]:
        """Yield the values that a node needs, captured ones included."""
        yield from filter(None, self.reads[position])
        yield from self.captured.get(position, ())

    def node_id(self, position: int) -> str:
        place = position if self.positions is None else self.positions[position]
        return node_id(self.path, place)

    def describe(self, position: int) -> str:
        """Describe a node: `Conv 'name' (@3)`."""
        return described(self.index.nodes[position], self.node_id(position))
