"""Replace ONNX's own operators by those of onnxruntime."""

from dataclasses import dataclass
from typing import ClassVar

from onnxsurgeon_lite.graph import GraphIndex, require_schemas
from onnxsurgeon_lite.graph.patterns.rule import shipped
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.passes.rewrite import Rewrite

_RULES = tuple(name for name in shipped() if name.startswith("contrib-"))


@dataclass(frozen=True)
class Fuse:
    """Replace parts by onnxruntime's operators, so that an export has a package's kernels; `standardize` undoes it.

    The rules of `rewrite` that apply are those whose names begin with `contrib-`: normalizations, with a residual sum
    or without, activations, rotary embeddings, products with weights in blocks, and attention, around which `simplify`
    joins what puts heads side by side and apart again. Keys and values that an export repeats for each head of queries
    are those of groups, where `simplify` came before. Where the nodes of a rule are there, and something else keeps it
    from matching, a note says what.

    Example:
        >>> graph = "g (float[4] x) => (float[4] y) { y = Gelu (x) }"
        >>> osl.fuse(osl.build(f'<ir_version: 10, opset_import: ["" : 21]> {graph}')).changes
        ('contrib-gelu: Gelu @0 -> Gelu',)
    """

    name: ClassVar[str] = "fuse"

    def apply(self, model: Model) -> PassResult:
        """Fuse.

        Raises:
            UnknownNameError: the model's opset lacks an operator of a replacement.
        """
        index = GraphIndex.of(model)
        require_schemas(index)
        return Rewrite(_RULES).edit(index, explains=False)
