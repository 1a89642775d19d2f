"""Convert a model to a graphsurgeon graph, and back without losing what graphsurgeon does not support.

Each graphsurgeon object is stored with the message that it was imported from. On the way back, an unchanged object
gives its original message, and a changed object changes only its own fields of the message.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import onnx_graphsurgeon as gs
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, ValueInfoProto
from onnx_graphsurgeon.exporters.onnx_exporter import OnnxExporter
from onnx_graphsurgeon.importers.onnx_importer import OnnxImporter
from onnx_graphsurgeon.ir.tensor import LazyValues
from onnx_graphsurgeon.logger import G_LOGGER

from onnxsurgeon_lite.model import Model, assign, by_name, copied, drop, is_standard, walk
from onnxsurgeon_lite.surgery import defined, describe_like
from onnxsurgeon_lite.surgery.edits import rename_beside
from onnxsurgeon_lite.tensors.dtypes import Array

State = tuple[object, ...]

G_LOGGER.severity = G_LOGGER.ERROR  # it warns of what is kept here all the same


class _LazyWeights(LazyValues):  # type: ignore[misc]
    """Tensor values that are read from the model on first use."""

    def __init__(self, tensor: TensorProto, model: Model) -> None:
        super().__init__(tensor)
        self.model = model

    def load(self) -> Array:
        return np.array(self.model.array(self.tensor))


@dataclass
class _ImportedGraph:
    """An imported graph, its message, and its own tensors by their original names."""

    graph: gs.Graph
    proto: GraphProto
    tensors: dict[str, gs.Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.defined = set(defined(self.proto))
        self.constants = {tensor.name for tensor in self.proto.initializer}


class Bridge:
    """Imports a model's graph for graphsurgeon (`graph`) and exports it again (`back`); functions stay in the model."""

    def __init__(self, model: Model) -> None:
        self._model = model
        proto = model.copy().proto  # graphsurgeon modifies the tensors that it imports
        self.graph: gs.Graph = OnnxImporter.import_graph(
            proto.graph,
            opset=OnnxImporter.get_opset(proto),
            import_domains=list(proto.opset_import),
            producer_name=proto.producer_name,
            producer_version=proto.producer_version,
            ir_version=proto.ir_version,
        )
        # a script may change the opset: then so does the model
        self._opset = self.graph.opset
        # id of an object -> (the object, which keeps its id from being reused, its state at import, its
        # message)
        self._nodes = dict[int, tuple[gs.Node, State, NodeProto]]()
        self._tensors = dict[int, tuple[gs.Tensor, State]]()
        self._scopes = dict[int, _ImportedGraph]()
        # (graph, its message, the scopes around it, outermost first)
        pending: list[tuple[gs.Graph, GraphProto, list[_ImportedGraph]]] = [
            (self.graph, model.graph, [])
        ]
        while pending:
            graph, source, outer = pending.pop()
            scopes = outer + [_ImportedGraph(graph, source)]
            self._remember(scopes)
            for node, message in zip(graph.nodes, source.node, strict=True):
                bodies = walk.bodies(message) if message.attribute else ()
                pending += [(node.attrs[n], b, scopes) for n, b in bodies if n in node.attrs]

    def back(self, edited: object) -> Model:
        """Return the model with the edited graph: the one that the user's code returned, else `graph`."""
        graph = edited if isinstance(edited, gs.Graph) else self.graph
        result = self._model.copy()
        proto = result.proto
        proto.graph.CopyFrom(self._graph(graph, set()))
        graphs = (graph, *graph.subgraphs(recursive=True))
        used = {node.domain or "" for node in chain.from_iterable(one.nodes for one in graphs)}
        # domains that the script's new nodes need
        for domain in sorted(used - {opset.domain for opset in proto.opset_import} - {"ai.onnx"}):
            proto.opset_import.add(domain=domain, version=1)
        for opset in proto.opset_import:
            if is_standard(opset) and graph.opset != self._opset:
                opset.version = graph.opset
        proto.functions.extend(map(OnnxExporter.export_function, graph.functions))
        return result

    def _remember(self, scopes: list[_ImportedGraph]) -> None:
        scope = scopes[-1]
        self._scopes[id(scope.graph)] = scope
        for node, message in zip(scope.graph.nodes, scope.proto.node, strict=True):
            for value in node.attrs.values():
                if isinstance(value, gs.Constant):
                    self._make_lazy(value)
            self._nodes[id(node)] = node, _node_state(node), message
        for name, tensor in scope.graph.tensors().items():
            # a tensor belongs to the innermost graph that defines its name
            owner = next((s for s in reversed(scopes) if name in s.defined), scope)
            owner.tensors.setdefault(name, tensor)
            self._make_lazy(tensor)
            self._tensors.setdefault(id(tensor), (tensor, _tensor_state(tensor)))

    def _make_lazy(self, tensor: gs.Tensor) -> None:
        values: object = getattr(tensor, "_values", None)
        # graphsurgeon would read external data from its own folder
        if isinstance(values, LazyValues) and isinstance(values.tensor, TensorProto):
            tensor._values = _LazyWeights(values.tensor, self._model)

    def _graph(self, graph: gs.Graph, outer: set[int]) -> GraphProto:
        """Export a graph; `outer` are the tensors of enclosing graphs."""
        scope = self._scopes.get(id(graph)) or _ImportedGraph(graph, GraphProto(name=graph.name))
        present: dict[str, gs.Tensor] = graph.tensors()
        # tensors that this graph or one around it has
        visible = outer | {id(tensor) for tensor in present.values()}
        # those that only bodies read are alive, too
        alive = visible.union(
            id(t) for inner in graph.subgraphs(recursive=True) for t in inner.tensors().values()
        )
        # old name -> the name that the script gave it
        names = {old: t.name for old, t in scope.tensors.items() if id(t) in alive}
        gone = scope.tensors.keys() - names.keys()
        result = copied(scope.proto)
        # all that graphsurgeon represents is written anew; the rest of the message stays
        for kind in ("node", "input", "output", "value_info", "initializer"):
            result.ClearField(kind)
        if graph.name != scope.proto.name:
            result.name = graph.name
        if (graph.doc_string or "") != scope.proto.doc_string:
            result.doc_string = graph.doc_string or ""
        result.node.extend(self._node(node, visible) for node in graph.nodes)
        result.initializer.extend(self._initializers(scope, present, gone, outer))
        result.input.extend(self._declared(scope, graph.inputs))
        defaults = {tensor.name for tensor in result.initializer}
        for place, info in enumerate(scope.proto.input):
            name = names.get(info.name, info.name)
            if info.name in scope.constants and name in defaults:
                result.input.insert(place, info)  # graphsurgeon drops inputs with a default
                result.input[place].name = name
        result.output.extend(self._declared(scope, graph.outputs))
        result.value_info.extend(self._value_info(scope, present, gone, outer))
        _follow(result, names, gone)
        return result

    def _node(self, node: gs.Node, visible: set[int]) -> NodeProto:
        state = _node_state(node)
        _, known, original = self._nodes.get(id(node), (node, (), NodeProto()))
        bodies = any(isinstance(value, gs.Graph) for value in node.attrs.values())
        # unchanged: the original message; a body has to be exported to know
        if state == known and not bodies:
            return original
        result = copied(original)
        result.op_type = node.op
        for field_name, value in (("name", node.name), ("domain", node.domain)):
            if (value or "") != getattr(result, field_name):
                setattr(result, field_name, value or "")
        result.input[:] = [tensor.name for tensor in node.inputs]
        result.output[:] = [tensor.name for tensor in node.outputs]
        # the last part of a state is the attributes
        before: dict[str, object] = dict(known[-1]) if known else {}  # type: ignore[call-overload]
        kept = by_name(original.attribute)
        for name in before.keys() - node.attrs.keys():
            del kept[name]
        for name, value in node.attrs.items():
            if isinstance(value, gs.Graph):
                body = kept.get(name, AttributeProto(name=name, type=AttributeProto.GRAPH))
                kept[name] = copied(body)
                kept[name].g.CopyFrom(self._graph(value, visible))
            elif name not in before or before[name] != _frozen(value):
                kept[name] = OnnxExporter.export_attributes({name: value})[0]
        assign(result.attribute, kept.values())
        return result

    def _initializers(
        self, scope: _ImportedGraph, present: dict[str, gs.Tensor], gone: set[str], outer: set[int]
    ) -> Iterator[TensorProto]:
        """Yield the original constants in their order, then the new ones."""
        for original in scope.proto.initializer:
            tensor = scope.tensors.get(original.name)
            if tensor is None:
                yield original  # no node read it
            elif original.name not in gone and isinstance(tensor, gs.Constant):
                yield self._constant(tensor, original)
        for tensor in present.values():
            # a tensor that the script added has no state
            _, state = self._tensors.get(id(tensor), (tensor, ("new",)))
            was_constant = state[0] == "constant"
            if isinstance(tensor, gs.Constant) and not was_constant and id(tensor) not in outer:
                yield _exported(tensor)

    def _constant(self, tensor: gs.Constant, original: TensorProto) -> TensorProto:
        values = tensor._values
        same = _tensor_state(tensor) == self._tensors[id(tensor)][1]
        # the script loaded it and may have changed it
        if not same and not isinstance(values, LazyValues):
            stored = self._model.array(original)
            same = stored.dtype == values.dtype and np.array_equal(stored, values)
        result = copied(original) if same else _exported(tensor)
        if same:
            result.name = tensor.name
        else:
            describe_like(result, original)
        return result

    def _declared(
        self, scope: _ImportedGraph, tensors: Sequence[gs.Tensor]
    ) -> Iterator[ValueInfoProto]:
        """Yield declarations of inputs or outputs."""
        proto = scope.proto
        known = by_name(chain(proto.value_info, proto.output, proto.input))
        # name by which a tensor was imported
        old_names = {id(tensor): name for name, tensor in scope.tensors.items()}
        for tensor in tensors:
            yield self._info(tensor, known.get(old_names.get(id(tensor), "")))

    def _info(self, tensor: gs.Tensor, original: ValueInfoProto | None) -> ValueInfoProto:
        if original is None:
            exported: ValueInfoProto = OnnxExporter.export_value_info_proto(tensor, False)
            return exported
        result = copied(original)
        result.name = tensor.name
        if _tensor_state(tensor) != self._tensors[id(tensor)][1]:
            result.type.CopyFrom(OnnxExporter.export_value_info_proto(tensor, False).type)
        return result

    def _value_info(
        self, scope: _ImportedGraph, present: dict[str, gs.Tensor], gone: set[str], outer: set[int]
    ) -> Iterator[ValueInfoProto]:
        ends = {id(tensor) for tensor in chain(scope.graph.inputs, scope.graph.outputs)}
        declared = set(ends)
        for info in scope.proto.value_info:
            tensor = scope.tensors.get(info.name)
            if tensor is None:
                yield info
            # an end of the graph is declared there, unless the original had both
            elif info.name not in gone and (id(tensor) not in ends or _ends(scope.proto, info)):
                declared.add(id(tensor))
                yield self._info(tensor, info)
        for tensor in present.values():
            if id(tensor) in declared or id(tensor) in outer or not isinstance(tensor, gs.Variable):
                continue
            known = self._tensors.get(id(tensor))
            # a new variable, or one whose type the script set
            changed = known is None or known[1] != _tensor_state(tensor)
            if changed and tensor.dtype is not None:
                yield self._info(tensor, None)


def _ends(proto: GraphProto, info: ValueInfoProto) -> bool:
    """Return whether the original graph declares an input or output in value_info too."""
    return any(info.name == value.name for value in chain(proto.input, proto.output))


def _follow(result: GraphProto, names: dict[str, str], gone: set[str]) -> None:
    """Rename and remove sparse initializers and annotations with their tensors."""
    drop(result.sparse_initializer, lambda sparse: sparse.values.name in gone)
    drop(result.quantization_annotation, lambda annotation: annotation.tensor_name in gone)
    rename_beside(result, names)


def _exported(tensor: gs.Constant) -> TensorProto:
    result: TensorProto = copied(OnnxExporter.export_tensor_proto(tensor))
    if result.HasField("raw_data"):
        result.ClearField("data_location")  # the values are inline now
    return result


def _node_state(node: gs.Node) -> State:
    ends = tuple(t.name for t in node.inputs), tuple(t.name for t in node.outputs)
    attributes = tuple((name, _frozen(value)) for name, value in node.attrs.items())
    return node.op, node.name, node.domain, *ends, attributes


def _tensor_state(tensor: gs.Tensor) -> State:
    if isinstance(tensor, gs.Constant):
        return "constant", id(tensor._values)
    shape = None if tensor.shape is None else tuple(tensor.shape)
    return "variable", tensor.dtype, shape, tensor.type


def _frozen(value: object) -> object:
    """Return an immutable snapshot of an attribute's value."""
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, gs.Constant):
        return id(value), id(value._values)
    return id(value) if isinstance(value, gs.Graph) else value
