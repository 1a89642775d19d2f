"""Merge equal nodes."""

from collections.abc import Container, Iterable, Mapping, MutableSequence
from dataclasses import dataclass
from typing import ClassVar

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from onnxsurgeon_lite.graph.index import GraphIndex, call_key, function_key
from onnxsurgeon_lite.graph.schemas import RANDOM, constant_of, require_schemas
from onnxsurgeon_lite.model import Model, walk
from onnxsurgeon_lite.model.messages import copied, drop_at
from onnxsurgeon_lite.model.model import is_external
from onnxsurgeon_lite.model.wire import LARGE
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.surgery.edits import (
    defined,
    drop_declarations,
    rename_parameters,
    rename_uses,
    trained,
)
from onnxsurgeon_lite.tensors import dtypes

_OWN = ("", "ai.onnx", "ai.onnx.ml")
Key = tuple[object, ...]
_Alike = Mapping[str, bytes]  # small constant -> its content


@dataclass(frozen=True)
class _Known:
    """A node that equal ones are merged into.

    Attributes:
        names: the values that it reads and makes.
    """

    outputs: tuple[str, ...]
    names: frozenset[str]


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
        result = model.copy()
        index = GraphIndex.of(result)
        require_schemas(index)
        merging = _Merging(result.proto)
        merging.graph(result.proto.graph, index.order)
        for function in result.proto.functions:
            merging.nodes(function.node, range(len(function.node)), set(function.output), {}, {})
        changes = [f"merged {merging.count} nodes into equal ones"] if merging.count else []
        return PassResult.of(model, result, changes)


class _Merging:
    """Merges the nodes of graphs and functions, in their order."""

    def __init__(self, proto: ModelProto) -> None:
        self.count = 0
        self.trained = trained(proto)
        self.functions = {
            function_key(function)
            for function in proto.functions
            if all(_is_pure(node) for node in walk.with_inner(function.node))
        }

    def graph(
        self,
        graph: GraphProto,
        order: Iterable[int] | None = None,
        outer: Mapping[Key, _Known] | None = None,
        outer_alike: _Alike | None = None,
    ) -> None:
        """Merge the nodes of a graph, and of its bodies, with each other and with those outside."""
        local = set(defined(graph))
        inputs = {value.name for value in graph.input} | self.trained
        alike = {
            name: content for name, content in (outer_alike or {}).items() if name not in local
        }
        alike |= {
            t.name: _content(t) for t in graph.initializer if _is_small(t) and t.name not in inputs
        }
        seen = {k: known for k, known in (outer or {}).items() if local.isdisjoint(known.names)}
        kept = {value.name for value in graph.output}
        kept.update(annotation.tensor_name for annotation in graph.quantization_annotation)
        names = self.nodes(
            graph.node, range(len(graph.node)) if order is None else order, kept, seen, alike
        )
        rename_parameters(graph, names)
        drop_declarations(graph, names)

    def nodes(
        self,
        nodes: MutableSequence[NodeProto],
        order: Iterable[int],
        kept: Container[str],
        seen: dict[Key, _Known],
        alike: dict[str, bytes],
    ) -> dict[str, str]:
        """Merge nodes; return the values that are gone, and those that took their places."""
        names: dict[str, str] = {}
        gone = []
        for position in order:
            node = nodes[position]
            if names:
                rename_uses([node], names)
            tensor = constant_of(node)
            if tensor is not None and _is_small(tensor):
                alike[node.output[0]] = _content(tensor)
            for _, body in walk.bodies(node) if node.attribute else ():
                self.graph(body, None, seen, alike)
            if not self._is_mergeable(node):
                continue
            outputs = tuple(node.output[:])
            key = _key(node, alike)
            known = seen.setdefault(key, _Known(outputs, frozenset((*node.input[:], *outputs))))
            if known.outputs is not outputs and not any(name in kept for name in outputs):
                names.update(zip(outputs, known.outputs, strict=True))
                gone.append(position)
        drop_at(nodes, gone)
        self.count += len(gone)
        names.pop("", None)
        return names

    def _is_mergeable(self, node: NodeProto) -> bool:
        if call_key(node) in self.functions:
            return True
        return node.domain in _OWN and _is_pure(node) and not (node.attribute and walk.bodies(node))


def _is_pure(node: NodeProto) -> bool:
    return node.op_type not in RANDOM and node.op_type != "Dropout"


def _key(node: NodeProto, alike: _Alike) -> Key:
    """Return a key that is equal for nodes which compute the same: names and documentation do not matter."""
    attributes = sorted(_bare(attribute) for attribute in node.attribute)
    reads = tuple(alike.get(name, name) for name in node.input[:])
    domain = node.domain.removeprefix("ai.onnx") if node.domain == "ai.onnx" else node.domain
    made = tuple(map(bool, node.output[:]))
    return node.op_type, domain, node.overload, tuple(attributes), reads, made


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
