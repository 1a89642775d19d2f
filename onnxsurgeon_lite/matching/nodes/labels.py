"""Colours of nodes: two nodes of one colour are alike, by what they are computed from or by what is computed from them.

Colours are small numbers for exact keys, so nothing ever collides. A node's `up` colour stands for everything it is
computed from, its `down` colour for everything that is computed from it: one change alters the first of what lies
below and the second of what lies above, never both of one node beside it.
"""

from collections import defaultdict
from collections.abc import Container, Hashable, Sequence
from dataclasses import dataclass, field

from onnx import AttributeProto, NodeProto, SparseTensorProto, TensorProto

from onnxsurgeon_lite.graph.index import call_key
from onnxsurgeon_lite.matching.nodes.scope import NamedGraph
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.model.model import is_external

_SAMPLE = 64  # bytes at the start, the middle and the end of a large tensor tell it from others
_TENSORS = (AttributeProto.TENSOR, AttributeProto.TENSORS)
_GRAPHS = (AttributeProto.GRAPH, AttributeProto.GRAPHS)

Leaves = dict[str, int]
"""Name -> colour of what no node of a scope produces."""


@dataclass
class Labels:
    """Per node: of itself and the constants it reads, of what it is computed from, of what is computed from it."""

    local: list[int]
    up: list[int]
    down: list[int]


@dataclass
class InitialLabels:
    """What colours start from.

    Attributes:
        signatures: per node, of operator and attributes.
        sources: of values that the nodes read and none of them makes.
        uses: of what else uses the values that the nodes make: (colour, slot), by value.
    """

    signatures: list[int]
    sources: Leaves
    uses: defaultdict[str, list[tuple[int, int]]]


@dataclass
class Labeler:
    """Gives colours; one palette colours both graphs.

    Attributes:
        shared: files that both models keep tensors in: a place in one of them says what a tensor holds, unread.
    """

    shared: Container[str] = ()
    _ids: dict[Hashable, int] = field(default_factory=dict)

    def colour(self, key: Hashable) -> int:
        """The key's colour."""
        return self._ids.setdefault(key, len(self._ids))

    def tensor(self, model: Model, tensor: TensorProto, contents: bool = True) -> int:
        """Of the dtype and shape, and of what identifies the contents without reading a large tensor."""
        kind = (tensor.data_type, *tensor.dims)
        return self.colour((kind, self._contents(model, tensor)) if contents else kind)

    def signatures(self, scope: NamedGraph) -> list[int]:
        """Per node, of operator and attributes; a body counts by what it computes."""
        return [self._signature(scope.model, node) for node in scope.index.nodes]

    def outputs(self, scope: NamedGraph) -> defaultdict[str, list[tuple[int, int]]]:
        """The use that a graph makes of its outputs; by place where that tells them apart."""
        uses = defaultdict[str, list[tuple[int, int]]](list)
        for place, name in enumerate(scope.index.outputs):
            uses[name].append((-1, place if scope.positional else -1))
        return uses

    def constants(self, scope: NamedGraph, contents: bool) -> Leaves:
        """The colours of initializers."""
        return {
            name: self._constant(scope.model, tensor, contents)
            for name, tensor in scope.index.initializers.items()
        }

    def paint(
        self, scope: NamedGraph, nodes: Sequence[int], coats: InitialLabels, constants: Leaves
    ) -> Labels:
        """Colour some nodes of a scope, given in topological order, in O(nodes + edges)."""
        local = [0] * len(scope.reads)
        for node in nodes:
            reads = enumerate(scope.reads[node])
            read = [(slot, constants[name]) for slot, name in reads if name in constants]
            local[node] = (
                self.colour((coats.signatures[node], *read)) if read else coats.signatures[node]
            )
        up = self._upwards(scope, nodes, coats, constants)
        return Labels(local, up, self._downwards(scope, nodes, coats, local))

    def _upwards(
        self, scope: NamedGraph, nodes: Sequence[int], coats: InitialLabels, constants: Leaves
    ) -> list[int]:
        of_value = {"": self.colour("omitted"), **constants, **coats.sources}
        unknown = self.colour("from outside")
        captured = scope.captured
        up = [0] * len(scope.reads)
        for node in nodes:
            key = [coats.signatures[node]]
            key += [of_value.get(name, unknown) for name in scope.reads[node]]
            if node in captured:
                key.append(-1)
                key += sorted(of_value.get(name, unknown) for name in captured[node])
            colour = up[node] = self.colour(tuple(key))
            for slot, name in enumerate(scope.makes[node]):
                if name:
                    of_value[name] = self.colour((colour, slot)) if slot else colour
        return up

    def _downwards(
        self, scope: NamedGraph, nodes: Sequence[int], coats: InitialLabels, local: list[int]
    ) -> list[int]:
        uses = coats.uses
        captured = scope.captured
        down = [0] * len(scope.reads)
        for node in reversed(nodes):
            used = [tuple(sorted(uses.get(name, ()))) for name in scope.makes[node]]
            while used and not used[-1]:
                used.pop()  # an output that nothing uses is as good as none
            colour = down[node] = self.colour((local[node], *used))
            for slot, name in enumerate(scope.reads[node]):
                if name:
                    uses[name].append((colour, slot))
            for name in captured.get(node, ()):
                uses[name].append((colour, -1))
        return down

    def _signature(self, model: Model, node: NodeProto) -> int:
        if not node.attribute:
            return self.colour((*call_key(node),))
        parts = [(a.name, self._attribute(model, a)) for a in node.attribute]
        return self.colour((*call_key(node), *sorted(parts)))

    def _attribute(self, model: Model, attribute: AttributeProto) -> int:
        if attribute.type in _GRAPHS:
            graphs = [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs
            return self.colour(tuple(self._body(NamedGraph.of_body(model, g, "")) for g in graphs))
        if attribute.type in _TENSORS:
            tensors = (
                [attribute.t] if attribute.type == AttributeProto.TENSOR else attribute.tensors
            )
            return self.colour(tuple(self.tensor(model, tensor) for tensor in tensors))
        return self.colour(attribute.SerializeToString(deterministic=True))

    def _body(self, scope: NamedGraph) -> int:
        ends = {name: self.colour(("input", i)) for i, name in enumerate(scope.index.inputs)}
        constants = self.constants(scope, contents=True)
        coats = InitialLabels(self.signatures(scope), ends, self.outputs(scope))
        colours = self.paint(scope, scope.index.order, coats, constants)
        made = sorted(zip(colours.up, colours.down, strict=True))
        return self.colour(("body", len(ends), *made))

    def _constant(
        self, model: Model, tensor: TensorProto | SparseTensorProto, contents: bool
    ) -> int:
        if isinstance(tensor, TensorProto):
            return self.tensor(model, tensor, contents)
        parts = [self.tensor(model, part, contents) for part in (tensor.values, tensor.indices)]
        return self.colour(("sparse", *tensor.dims, *parts))

    def _contents(self, model: Model, tensor: TensorProto) -> Hashable:
        if not is_external(tensor):
            return tuple(tensor.string_data) or _sample(model.raw(tensor))
        file, offset, length = model.span(tensor)
        if str(file.path) in self.shared:
            return str(file.path), offset, length
        if length <= 3 * _SAMPLE:
            return file.read(offset, length)
        starts = (0, length // 2, length - _SAMPLE)
        return b"".join(file.read(offset + start, _SAMPLE) for start in starts)


def _sample(raw: bytes) -> bytes:
    """Of bytes in memory, what is sampled of bytes on disk."""
    if len(raw) <= 3 * _SAMPLE:
        return raw
    middle = len(raw) // 2
    return raw[:_SAMPLE] + raw[middle : middle + _SAMPLE] + raw[-_SAMPLE:]
