"""Convert a model to another ONNX opset version."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    defs,
    helper,
)

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.native import RejectedError, convert
from onnxsurgeon_lite.model import Model, walk
from onnxsurgeon_lite.model.messages import copied
from onnxsurgeon_lite.passes.protocol import PassResult


@dataclass(frozen=True)
class Opset:
    """Convert the main graph and its bodies to another opset version of the ONNX domain, with the official converter.

    Nodes that the converter does not change keep their bytes; changed nodes keep documentation and metadata.
    Functions import their own opsets and do not change.

    Attributes:
        version: the opset version to convert to.

    Example:
        >>> osl.opset("whole_model.onnx", 21).changes
        ('opset 17 -> 21: 0 nodes changed',)
    """

    version: int
    name: ClassVar[str] = "opset"

    def apply(self, model: Model) -> PassResult:
        """Convert.

        Raises:
            EditError: the conversion fails, or the version does not exist.
        """
        imports = [o for o in model.proto.opset_import if o.domain in ("", "ai.onnx")]
        old = imports[0].version if imports else 0
        if old == self.version or not imports:
            return PassResult(model, changed=False)
        if not 1 <= self.version <= defs.onnx_opset_version():
            raise EditError(
                f"opset {self.version} does not exist",
                f"versions are 1 to {defs.onnx_opset_version()}",
            )
        result = model.copy()
        changed = 0
        if self._touches(model.proto, old):
            changed = _take_over(result.proto.graph, self._converted(model, old).graph)
        for imported in result.proto.opset_import:
            if imported.domain in ("", "ai.onnx"):
                imported.version = self.version
        notes = []
        needed = helper.find_min_ir_version_for(
            list(result.proto.opset_import), ignore_unknown=True
        )
        if result.proto.ir_version < needed:
            notes.append(f"IR version {result.proto.ir_version} -> {needed}, which the opset needs")
            result.proto.ir_version = needed
        change = f"opset {old} -> {self.version}: {changed} nodes changed"
        return PassResult.of(model, result, [change], notes)

    def _touches(self, proto: ModelProto, old: int) -> bool:
        """Return whether the versions define any used operator differently."""
        return any(
            domain in ("", "ai.onnx") and self._redefines(operator, old)
            for graph in walk.graphs(proto)
            for domain, operator in {(node.domain, node.op_type) for node in graph.node}
        )

    def _redefines(self, operator: str, old: int) -> bool:
        try:
            one, two = (defs.get_schema(operator, v, "") for v in (old, self.version))
        except defs.SchemaError:
            return True
        return bool(one.since_version != two.since_version)

    def _converted(self, model: Model, old: int) -> ModelProto:
        part = copied(model.structure())
        del part.functions[:]
        if part.graph.sparse_initializer:  # the converter does not support them
            index = GraphIndex.of(model)
            names = (sparse.values.name for sparse in part.graph.sparse_initializer)
            part.graph.input.extend(map(index.value_info, names))
            del part.graph.sparse_initializer[:]
        try:
            return convert(part, self.version)
        except RejectedError as error:
            reason = str(error).strip().splitlines()[0]
            raise EditError(
                f"the converter cannot convert the graph from opset {old} to {self.version}: {reason}",
                "convert in smaller steps to find the failing version: onnxdbg edit opset MODEL VERSION",
            ) from error


def _take_over(graph: GraphProto, converted: GraphProto) -> int:
    """Replace a graph's nodes by converted ones, keep equal ones, and return how many changed."""
    others, left = _unlike(graph.node, converted.node)
    originals = {name: node for node in left for name in node.output if name}
    changed = 0
    for node in others:
        original = next((originals[name] for name in node.output if name in originals), None)
        changed += original is None or _restore(node, original)
    known = {tensor.name for tensor in graph.initializer}
    if others or left:
        del graph.node[:]
        graph.node.extend(converted.node)
    graph.initializer.extend(t for t in converted.initializer if t.name not in known)
    return changed


def _unlike(
    nodes: Iterable[NodeProto], converted: Iterable[NodeProto]
) -> tuple[list[NodeProto], list[NodeProto]]:
    """Return the converted nodes without an equal original, and the originals without an equal converted node."""
    others, left = [], []
    rest = iter(nodes)
    original = next(rest, None)
    for node in converted:
        if node == original:
            original = next(rest, None)
            continue
        others.append(node)
        if original is not None and not set(original.output).isdisjoint(node.output):
            left.append(original)
            original = next(rest, None)
    left += [] if original is None else [original, *rest]
    return others, left


def _restore(node: NodeProto, original: NodeProto) -> bool:
    """Restore fields that the converter drops; return whether the node differs from the original."""
    if node == original:
        return False
    bodies = {a.name: a for a in original.attribute if a.type == AttributeProto.GRAPH}
    inner = 0
    for attribute in node.attribute:
        body = bodies.get(attribute.name)
        if body is not None:
            kept = copied(body.g)
            inner += _take_over(kept, attribute.g)
            attribute.g.CopyFrom(kept)
    if not inner and _same(node, original):
        node.CopyFrom(original)
        return False
    for field in ("name", "doc_string", "overload"):
        if original.HasField(field):
            setattr(node, field, getattr(original, field))
    del node.metadata_props[:]
    node.metadata_props.extend(original.metadata_props)
    return True


def _same(node: NodeProto, original: NodeProto) -> bool:
    """Return whether two nodes are equal in all that affects a run."""
    if node.op_type != original.op_type or node.domain != original.domain.replace("ai.onnx", ""):
        return False
    if _trimmed(node.input) != _trimmed(original.input):
        return False
    one, two = ({a.name: a for a in n.attribute} for n in (node, original))
    return one.keys() == two.keys() and all(
        one[name].type == two[name].type and _payload(one[name]) == _payload(two[name])
        for name in one
    )


def _trimmed(names: "list[str]") -> list[str]:
    """Return names without trailing omitted ones."""
    kept = list(names)
    while kept and not kept[-1]:
        kept.pop()
    return kept


def _payload(attribute: AttributeProto) -> object:
    if attribute.type == AttributeProto.GRAPH:
        return None  # bodies are compared node by node
    return helper.get_attribute_value(attribute)
