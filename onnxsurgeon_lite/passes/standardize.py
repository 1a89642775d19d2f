"""Replace operators of onnxruntime by ONNX's own."""

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from onnx import FunctionProto, NodeProto

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph.index import GraphIndex, opset_versions
from onnxsurgeon_lite.graph.text import node_title
from onnxsurgeon_lite.model import Model, walk
from onnxsurgeon_lite.names import first
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.surgery.contrib import LEAST_OPSET, contrib_function, is_contrib
from onnxsurgeon_lite.surgery.edits import settle
from onnxsurgeon_lite.surgery.expansion import expand

_NAMED = 3  # nodes that a message names


@dataclass(frozen=True)
class Standardize:
    """Replace onnxruntime's operators by ONNX's own, so that any runtime, float64 and gradients take the model.

    Attention over a cache, rotary embeddings, normalizations, activations and products with weights in blocks become
    the nodes that compute them; weights stay as they are. A node that has no standard form stays, and is named.

    Example:
        >>> imports = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>'
        >>> graph = "g (float[4] x) => (float[4] y) { y = com.microsoft.QuickGelu (x) }"
        >>> osl.standardize(osl.build(imports + graph)).changes
        ('1 QuickGelu in standard operators',)
    """

    name: ClassVar[str] = "standardize"

    def apply(self, model: Model) -> PassResult:
        """Standardize it.

        Raises:
            EditError: none of its operators of onnxruntime has a standard form.
        """
        index = GraphIndex.of(model)
        index.require_sound()
        version = opset_versions(model.proto.opset_import).get("", 0)
        if version < LEAST_OPSET and any(map(is_contrib, walk.nodes(walk.graphs(model.proto)))):
            raise EditError(
                f"standard forms need opset {LEAST_OPSET}, the model imports {version}",
                f"onnxdbg edit opset MODEL {LEAST_OPSET}",
            )
        # what has no standard form stays, with the reason as a note
        result, counts, reasons = _standard(model)
        notes = list(reasons.values())
        if not counts and notes:
            raise EditError(f"nothing has a standard form: {first(notes, _NAMED)}")
        if not counts:
            return PassResult(model, False, ("the model has no operator of onnxruntime",))
        settle(index, result)
        changes = [
            f"{count} {operator} in standard operators" for operator, count in counts.items()
        ]
        return PassResult.of(model, result, changes, notes)


def _standard(model: Model) -> tuple[Model, Counter[str], dict[str, str]]:
    """Return (the model in standard operators, how many nodes of each operator went, why others stay)."""
    reasons = dict[str, str]()

    def function_of(part: GraphIndex, node: NodeProto, version: int) -> FunctionProto | None:
        # called for each node: the function that stands for it, None where it stays
        if not is_contrib(node):
            return None
        try:
            # the form depends on the types of the operands
            kinds = [part.type_of(name) if name else None for name in node.input]
            return contrib_function(node, kinds, version)
        except EditError as error:
            reasons[node.output[0]] = f"{node_title(node)} stays: {error.message}"
            return None

    result, counts = expand(model, lambda _: True, function_of)
    # functions are made of others
    found = counts
    while found:
        result, found = expand(result, lambda _: True, function_of)
    return result, counts, reasons
