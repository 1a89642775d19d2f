"""Another version of ONNX's own operators."""

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
    version_converter,
)
from onnx.shape_inference import InferenceError

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.model import Model, walk
from onnxsurgeon_lite.model.messages import copied
from onnxsurgeon_lite.passes.protocol import PassResult


@dataclass(frozen=True)
class Opset:
    """Convert the main graph and its bodies to an opset version of ONNX's own domain, with the official converter.

    What the converter leaves as it is stays as it was; documentation and metadata follow the nodes that it changes.
    Functions import their own opsets and are not touched.
    """

    version: int
    name: ClassVar[str] = "opset"

    def apply(self, model: Model) -> PassResult:
        """Convert.

        Raises:
            EditError: the converter cannot, or knows no such version.
        """
        imports = [o for o in model.proto.opset_import if o.domain in ("", "ai.onnx")]
        old = imports[0].version if imports else 0
        if old == self.version or not imports:
            return PassResult(model, changed=False)
        if not 1 <= self.version <= defs.onnx_opset_version():
            raise EditError(
                f"there is no opset {self.version}",
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
        """Whether an operator has another definition in the other version: the converter leaves the others alone."""
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
        if part.graph.sparse_initializer:  # the converter knows none
            index = GraphIndex.of(model)
            names = (sparse.values.name for sparse in part.graph.sparse_initializer)
            part.graph.input.extend(map(index.value_info, names))
            del part.graph.sparse_initializer[:]
        try:
            return version_converter.convert_version(part, self.version)
        except (version_converter.ConvertError, InferenceError, RuntimeError, ValueError) as error:
            reason = str(error).strip().splitlines()[0]
            raise EditError(
                f"the converter cannot bring the graph from opset {old} to {self.version}: {reason}",
                "convert in smaller steps to see where it fails: onnxdbg edit opset MODEL VERSION",
            ) from error


def _take_over(graph: GraphProto, converted: GraphProto) -> int:
    """Make a graph's nodes the converted ones, but keep those that are the same; how many are not."""
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
    """The converted nodes that are not the same as their originals, and the originals that are left."""
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
    """Give a converted node what the converter drops; whether it differs from the original."""
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
    """Whether two nodes say the same of all that matters to a run."""
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
    """Names without the omitted ones at their end."""
    kept = list(names)
    while kept and not kept[-1]:
        kept.pop()
    return kept


def _payload(attribute: AttributeProto) -> object:
    if attribute.type == AttributeProto.GRAPH:
        return None  # compared inside
    return helper.get_attribute_value(attribute)
