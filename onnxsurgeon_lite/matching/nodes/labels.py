"""Weisfeiler-Lehman labels of nodes: nodes with one label are alike in what they compute from, or in what uses them.

A label is a small number for an exact key, so labels never collide. The `up` label of a node stands for everything
upstream of it, the `down` label for everything downstream. A change alters `up` labels below it and `down` labels
above it, never both labels of a node beside it. In a graph without cycles, one sweep in each direction replaces the
iterations of Weisfeiler & Lehman (1968); see Shervashidze et al., "Weisfeiler-Lehman Graph Kernels", JMLR 2011.
"""

from collections import defaultdict
from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from onnx import AttributeProto, NodeProto, SparseTensorProto, TensorProto

from onnxsurgeon_lite.matching.nodes.scope import NamedGraph
from onnxsurgeon_lite.model import Model, is_external
from onnxsurgeon_lite.model.calls import call_key
from onnxsurgeon_lite.search.grouping import groups

_SAMPLE = 64  # bytes sampled at the start, middle and end of a large tensor
_TENSORS = (AttributeProto.TENSOR, AttributeProto.TENSORS)
_GRAPHS = (AttributeProto.GRAPH, AttributeProto.GRAPHS)

Leaves = dict[str, int]
"""Name -> label of a value that no node of the scope produces."""
H = TypeVar("H", bound=Hashable)
Key = Callable[[int, int], Hashable]
"""(side, node) -> the key that two nodes must share to be paired."""


@dataclass
class Labels:
    """Labels per node: of the node and the constants it reads, of its upstream, of its downstream."""

    local: list[int]
    up: list[int]
    down: list[int]


@dataclass
class InitialLabels:
    """Labels that the sweeps start from.

    Attributes:
        signatures: per node, the label of its operator and attributes.
        sources: labels of values that the nodes read and do not produce.
        uses: other uses of the values that the nodes produce: (label, slot), by value.
    """

    signatures: list[int]
    sources: Leaves
    uses: defaultdict[str, list[tuple[int, int]]]


@dataclass
class Labeler:
    """Assigns labels; both graphs must use one labeler.

    Attributes:
        shared: data files of both models: a place in one of them identifies a tensor without reading it.
    """

    shared: Container[str]
    _ids: dict[Hashable, int] = field(default_factory=dict)

    def label(self, key: Hashable) -> int:
        return self._ids.setdefault(key, len(self._ids))

    def tensor(self, model: Model, tensor: TensorProto, contents: bool = True) -> int:
        """Label the dtype and shape, and a sample of the contents where asked for."""
        kind = (tensor.data_type, *tensor.dims)
        return self.label((kind, self._contents(model, tensor)) if contents else kind)

    def signatures(self, scope: NamedGraph) -> list[int]:
        """Label each node's operator and attributes; a body by what it computes, not by its names."""
        return [self._signature(scope.model, node) for node in scope.index.nodes]

    def outputs(self, scope: NamedGraph) -> defaultdict[str, list[tuple[int, int]]]:
        """Return the uses of values as graph outputs; a body's outputs differ by position."""
        # slot -1: an output of the graph, not of a consumer; by position where names do not count, as in bodies
        return groups(
            (name, (-1, place if scope.positional else -1))
            for place, name in enumerate(scope.index.outputs)
        )

    def constants(self, scope: NamedGraph, contents: bool) -> Leaves:
        return {
            name: self._constant(scope.model, tensor, contents)
            for name, tensor in scope.index.initializers.items()
        }

    def label_nodes(
        self, scope: NamedGraph, nodes: Sequence[int], initial: InitialLabels, constants: Leaves
    ) -> Labels:
        """Label nodes of a scope, given in topological order, in O(nodes + edges)."""
        local = [0] * len(scope.reads)
        for node in nodes:
            reads = enumerate(scope.reads[node])
            # (slot, label of the constant)
            read = [(slot, constants[name]) for slot, name in reads if name in constants]
            local[node] = (
                self.label((initial.signatures[node], *read)) if read else initial.signatures[node]
            )
        up = self._upwards(scope, nodes, initial, constants)
        return Labels(local, up, self._downwards(scope, nodes, initial, local))

    def _upwards(
        self, scope: NamedGraph, nodes: Sequence[int], initial: InitialLabels, constants: Leaves
    ) -> list[int]:
        of_value = {"": self.label("omitted"), **constants, **initial.sources}
        unknown = self.label("from outside")
        captured = scope.captured
        up = [0] * len(scope.reads)
        for node in nodes:
            key = [initial.signatures[node]]
            key += [of_value.get(name, unknown) for name in scope.reads[node]]
            if node in captured:
                # -1 separates inputs, whose order counts, from captured values, whose order does not
                key.append(-1)
                key += sorted(of_value.get(name, unknown) for name in captured[node])
            label = up[node] = self.label(tuple(key))
            for slot, name in enumerate(scope.makes[node]):
                # the first output has its node's label; others are distinguished by their slot
                if name:
                    of_value[name] = self.label((label, slot)) if slot else label
        return up

    def _downwards(
        self, scope: NamedGraph, nodes: Sequence[int], initial: InitialLabels, local: list[int]
    ) -> list[int]:
        # grows on the way: nodes come in reverse order, so all users of what a node makes are known by then
        uses = initial.uses
        captured = scope.captured
        reads, makes = scope.reads, scope.makes
        down = [0] * len(reads)
        for node in reversed(nodes):
            used = [tuple(sorted(uses.get(name, ()))) for name in makes[node]]
            while used and not used[-1]:
                used.pop()  # an unused output does not distinguish nodes
            label = down[node] = self.label((local[node], *used))
            for slot, name in enumerate(scope.reads[node]):
                if name:
                    uses[name].append((label, slot))
            for name in captured.get(node, ()):
                uses[name].append((label, -1))
        return down

    def _signature(self, model: Model, node: NodeProto) -> int:
        if not node.attribute:
            return self.label(tuple(call_key(node)))
        # sorted, because the order of attributes has no meaning
        parts = [(a.name, self._attribute(model, a)) for a in node.attribute]
        return self.label(call_key(node) + tuple(sorted(parts)))

    def _attribute(self, model: Model, attribute: AttributeProto) -> int:
        if attribute.type in _GRAPHS:
            graphs = [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs
            return self.label(tuple(self._body(NamedGraph.of_body(model, g, "")) for g in graphs))
        if attribute.type in _TENSORS:
            tensors = (
                [attribute.t] if attribute.type == AttributeProto.TENSOR else attribute.tensors
            )
            return self.label(tuple(self.tensor(model, tensor) for tensor in tensors))
        return self.label(attribute.SerializeToString(deterministic=True))

    def _body(self, scope: NamedGraph) -> int:
        # a body's inputs are known by position; its captured values stay unknown here
        ends = {name: self.label(("input", i)) for i, name in enumerate(scope.index.inputs)}
        constants = self.constants(scope, contents=True)
        initial = InitialLabels(self.signatures(scope), ends, self.outputs(scope))
        labels = self.label_nodes(scope, scope.index.order, initial, constants)
        made = sorted(zip(labels.up, labels.down, strict=True))
        return self.label(("body", len(ends), *made))

    def _constant(
        self, model: Model, tensor: TensorProto | SparseTensorProto, contents: bool
    ) -> int:
        if isinstance(tensor, TensorProto):
            return self.tensor(model, tensor, contents)
        parts = [self.tensor(model, part, contents) for part in (tensor.values, tensor.indices)]
        return self.label(("sparse", *tensor.dims, *parts))

    def _contents(self, model: Model, tensor: TensorProto) -> Hashable:
        if not is_external(tensor):
            raw = model.raw(tensor)
            return tuple(tensor.string_data) or _sample(len(raw), lambda at, n: raw[at : at + n])
        file, offset, length = model.span(tensor)
        # the file belongs to both models: its range identifies the contents
        if str(file.path) in self.shared:
            return str(file.path), offset, length
        if file.is_missing:
            return None
        return _sample(length, lambda at, n: file.read(offset + at, n))


def _sample(length: int, read: Callable[[int, int], bytes]) -> bytes:
    """Read bytes, or of many those at the start, in the middle and at the end; `read` takes a place and a count."""
    if length <= 3 * _SAMPLE:
        return read(0, length)
    return b"".join(read(at, _SAMPLE) for at in (0, length // 2, length - _SAMPLE))


def keys(labels: tuple[Labels, Labels]) -> tuple[Key, Key, Key, Key]:
    """Return four keys: both labels, the `up` label, the `down` label, the `local` label."""
    both = [list(zip(side.up, side.down, strict=True)) for side in labels]
    return (
        lambda side, node: both[side][node],
        lambda side, node: labels[side].up[node],
        lambda side, node: labels[side].down[node],
        lambda side, node: labels[side].local[node],
    )


def common(
    names: Sequence[str], others: Sequence[str], *, by_place: bool
) -> Iterable[tuple[str, str]]:
    """Pair equal names, and the last name left on each side; or, with `by_place`, names by position."""
    if by_place:
        return zip(names, others, strict=False)
    mine, theirs = dict.fromkeys(names), dict.fromkeys(others)
    pairs = [(name, name) for name in mine if name in theirs]
    # names that only one side has
    left = [n for n in mine if n not in theirs], [n for n in theirs if n not in mine]
    return pairs + [(left[0][0], left[1][0])] if len(left[0]) == len(left[1]) == 1 else pairs
