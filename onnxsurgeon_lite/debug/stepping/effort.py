"""Find nodes that may take long: each runs alone, so that an interruption can name it."""

import math

from onnx import TypeProto

from onnxsurgeon_lite.graph.index import GraphIndex

_MUCH = 1e10  # multiplications: a tenth of a second and more
_CONTRACTIONS = {
    "MatMul", "Gemm", "Einsum", "MatMulInteger", "Conv", "ConvTranspose", "ConvInteger",
}  # fmt: skip


def takes_long(index: GraphIndex, position: int) -> bool:
    """Return True for a node that contracts large tensors, as far as types tell.

    The multiplications of A [m, k] and B [k, n] are the root of |A| |B| |AB|; a convolution's are a few times as many.
    """
    node = index.nodes[position]
    if node.op_type not in _CONTRACTIONS:
        return False
    operands = (*node.input[:2], *node.output[:1])
    return math.prod(_elements(index.types.get(name)) for name in operands) > _MUCH**2


def _elements(kind: TypeProto | None) -> int:
    """The number of elements of a tensor, 0 where it is not known."""
    if kind is None or not kind.tensor_type.HasField("shape"):
        return 0
    return math.prod(dim.dim_value for dim in kind.tensor_type.shape.dim)
