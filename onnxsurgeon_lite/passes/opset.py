"""Convert a model to another ONNX opset version."""

from dataclasses import dataclass
from typing import ClassVar

from onnx import ModelProto, defs, helper

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.model import Model, walk
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.surgery.conversion import convert_graph, redefined


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
            changed = convert_graph(model, result, old, self.version)
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
            domain in ("", "ai.onnx") and redefined(domain, operator, old, self.version)
            for graph in walk.graphs(proto)
            for domain, operator in {(node.domain, node.op_type) for node in graph.node}
        )
