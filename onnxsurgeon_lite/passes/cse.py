"""Merge equal nodes."""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from onnxsurgeon_lite.graph.index import GraphIndex, call_key, function_key
from onnxsurgeon_lite.graph.schemas import RANDOM, checked, constant_of
from onnxsurgeon_lite.graph.table import Row, rows_of
from onnxsurgeon_lite.model import Model, walk
from onnxsurgeon_lite.model.messages import copied, drop_at
from onnxsurgeon_lite.model.model import is_external
from onnxsurgeon_lite.model.wire import LARGE
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.surgery.edits import (
    drop_declarations,
    rename_parameters,
    rename_uses,
    sources,
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
        needs: as in `Row`.
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
        model, result = index.model, index.model.copy()
        merging = _Merging(result.proto)
        merging.graph(result.proto.graph, index.rows, index.order)
        for function in result.proto.functions:
            rows = rows_of(function.node)
            merging.nodes(function.node, rows, range(len(rows)), set(function.output), {}, {})
        changes = [f"merged {merging.count} nodes into equal ones"] if merging.count else []
        return PassResult.of(model, result, changes, is_told=True)


class _Merging:
    """Merges the nodes of graphs and functions, in their order."""

    def __init__(self, proto: ModelProto) -> None:
        self.count = 0
        self.trained = trained(proto)
        self.functions = {
            function_key(function)
            for function in proto.functions
            if not any(node.op_type in _IMPURE for node in walk.with_inner(function.node))
        }

    def graph(
        self,
        graph: GraphProto,
        rows: Sequence[Row],
        order: Iterable[int],
        outer: "Mapping[Shallow, list[_Known]] | None" = None,
        outer_alike: _Alike | None = None,
    ) -> None:
        """Merge the nodes of a graph, and of its bodies, with each other and with those outside."""
        local = {*sources(graph), *(name for row in rows for name in row.outputs)}
        inputs = {value.name for value in graph.input} | self.trained
        alike = {
            name: content for name, content in (outer_alike or {}).items() if name not in local
        }
        alike |= {
            t.name: _content(t) for t in graph.initializer if _is_small(t) and t.name not in inputs
        }
        if outer is None and _all_differ(graph.node, rows, alike):
            return
        seen = {
            key: visible
            for key, several in (outer or {}).items()
            if (visible := [known for known in several if local.isdisjoint(known.names)])
        }
        kept = {value.name for value in graph.output}
        kept.update(annotation.tensor_name for annotation in graph.quantization_annotation)
        names = self.nodes(graph.node, rows, order, kept, seen, alike)
        rename_parameters(graph, names)
        drop_declarations(graph, names)

    def nodes(
        self,
        nodes: MutableSequence[NodeProto],
        rows: Sequence[Row],
        order: Iterable[int],
        kept: Container[str],
        seen: "dict[Shallow, list[_Known]]",
        alike: dict[str, bytes],
    ) -> dict[str, str]:
        """Merge nodes; return the values that are gone, and those that took their places."""
        names: dict[str, str] = {}
        gone = []
        every = list(nodes)
        for position in order:
            node, row = every[position], rows[position]
            if names and not names.keys().isdisjoint(row.needs):
                rename_uses([node], names)
                row = row._replace(needs=[names.get(name, name) for name in row.needs])
            if row.op_type == "Constant":
                tensor = constant_of(node)
                if tensor is not None and _is_small(tensor):
                    alike[row.outputs[0]] = _content(tensor)
            for _, body in walk.bodies(node) if row.attributed else ():
                inner = rows_of(body.node)
                self.graph(body, inner, range(len(inner)), seen, alike)
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
        drop_at(nodes, gone)
        self.count += len(gone)
        names.pop("", None)
        return names

    def _is_mergeable(self, node: NodeProto, row: Row) -> bool:
        if self.functions and call_key(node) in self.functions:
            return True
        known = row.domain in _OWN and row.op_type not in _IMPURE
        return known and not (row.attributed and walk.bodies(node))


def _all_differ(nodes: Sequence[NodeProto], rows: Sequence[Row], alike: _Alike) -> bool:
    """Return whether no two nodes do the same to the same values, and none has a body."""
    times = Counter(alike.values())
    twins = {name: content for name, content in alike.items() if times[content] > 1}
    reads: list[Sequence[str | bytes]] = (
        [[twins.get(name, name) for name in row.needs] for row in rows]
        if twins
        else [row.needs for row in rows]
    )
    keys = {(row.op_type, row.domain, *read) for row, read in zip(rows, reads, strict=True)}
    nested = (row.attributed and walk.bodies(nodes[place]) for place, row in enumerate(rows))
    return len(keys) == len(rows) and not any(nested)


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
        bare.raw_data = tensor.raw_data or dtypes.encode(dtypes.to_array(tensor))
    return bytes(bare.SerializeToString(deterministic=True))
