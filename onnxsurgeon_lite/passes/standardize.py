"""Replace operators of onnxruntime by ONNX's own."""

from dataclasses import dataclass
from typing import ClassVar

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.names import first
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.surgery import settle
from onnxsurgeon_lite.surgery.contrib import in_standard

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
            EditError: none of its operators of onnxruntime has a standard form, or the opset is too old for these.
        """
        index = GraphIndex.of(model)
        index.require_sound()
        # what has no standard form stays, with the reason as a note
        result, counts, reasons = in_standard(model)
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
