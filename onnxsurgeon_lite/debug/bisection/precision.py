"""Tell from the errors of all products together that a runtime or a device computed them in fewer bits."""

from collections.abc import Callable, Mapping, Sequence

import ml_dtypes
import numpy as np
from onnx import NodeProto

from onnxsurgeon_lite.debug.result import BisectResult, Culprit, Finding
from onnxsurgeon_lite.graph import GraphIndex, constant
from onnxsurgeon_lite.model.messages import attributes_of
from onnxsurgeon_lite.runtime.float64 import convolve
from onnxsurgeon_lite.tensors.dtypes import Array, Wide, is_array, rms, wide

_ROOM = 1.5  # the result is rounded, too
_EXPLAINED = 0.7  # of the error that is left where rounding the operands explains it
_EQUAL = 1.01  # formats that leave about the same error are not distinguished
_TINY = 1e-30


def _tf32(array: Array) -> Array:
    """Round to 10 bits of mantissa, half to even."""
    bits = array.astype(np.float32).view(np.uint32)
    half = np.uint32(0x0FFF) + ((bits >> 13) & 1)
    return ((bits + half) & np.uint32(0xFFFFE000)).view(np.float32)


_FORMATS: Mapping[str, tuple[float, Callable[[Array], Array]]] = {
    "TF32": (2.0**-10, _tf32),
    "float16": (2.0**-10, lambda array: array.astype(np.float16)),
    "bfloat16": (2.0**-7, lambda array: array.astype(ml_dtypes.bfloat16)),
}
"""Format -> (the largest error of a product, relative to its factors; what rounds to it)."""
_FARTHEST = _ROOM * max(most for most, _ in _FORMATS.values())


def tell_precision(result: BisectResult, index: GraphIndex, sides: Sequence[str]) -> None:
    """Make one culprit of the wrong products, if one side computed them in fewer bits.

    Args:
        sides: what computed the references and what was searched, if both ran the same model.
    """
    # all of several products, or the only one that the model has
    products = [c for c in result.culprits if c.own and c.op_type in _PRODUCTS and not c.covers]
    alone = sum(node.op_type in _PRODUCTS for node in index.nodes) == 1
    if any(len(c.region) > 1 for c in products) or len(products) < 2 - alone:
        return

    # each side is compared with float64, computed from what that side read
    found = [[_errors(culprit, result, index, side) for culprit in products] for side in (0, 1)]
    for side, title in enumerate(sides or ("the references", "the runtime")):
        # `found[side][i]` is (worst error, format -> error left) of product i
        errors = found[side]
        # a product of other numbers is far from this one, however either is rounded
        farthest = max(worst for worst, _ in found[1 - side])
        names = [
            name
            for name, (most, _) in _FORMATS.items()
            if farthest <= _ROOM * most and all(_are_of(name, *each) for each in errors)
        ]
        if names:
            because = (
                f"{title} computed in {' or '.join(names)}: rounding what they read to it gives the errors of all"
                f" {len(errors)} wrong products (at most {max(worst for worst, _ in errors):.2g} of |x| |w|)"
            )
            products[0].findings = [Finding("precision", because)]
            result.culprits = [c for c in result.culprits if c not in products[1:]]
            return


def may_be_rounded(culprit: Culprit, result: BisectResult, index: GraphIndex) -> bool:
    """Return whether a product may turn out to be one of those that were computed in fewer bits."""
    if culprit.op_type not in _PRODUCTS:
        return False
    return all(_errors(culprit, result, index, side)[0] <= _FARTHEST for side in (0, 1))


def _are_of(name: str, worst: float, left: Mapping[str, float]) -> bool:
    """Return whether a format explains errors, as well as any other one."""
    least = min(_EXPLAINED, _EQUAL * min(left.values(), default=0.0))
    return worst <= _ROOM * _FORMATS[name][0] and left.get(name, 1.0) <= least


def _errors(
    culprit: Culprit, result: BisectResult, index: GraphIndex, side: int
) -> tuple[float, dict[str, float]]:
    """Return (the largest error that a side makes relative to |x| |w|, how much is left with what each format rounds).

    No format leaves anything where operands are not known, or the error is larger than that of any format.
    """
    node = index.nodes[culprit.position]
    product, read, left = _PRODUCTS[culprit.op_type], list[Array](), dict[str, float]()
    for name in node.input:
        tensor = constant(index, name)
        stored = result.tensors[name][side] if name in result.tensors else None
        value = stored if tensor is None else index.model.array(tensor)
        if not is_array(value):
            return 0.0, left
        read.append(value)
    made = result.tensors[culprit.value][side]
    # |x| |w| is the scale of rounding errors: each factor is off by a share of itself
    exact = product(node, [wide(array) for array in read])
    scale = product(node, [np.abs(wide(array)) for array in read])
    if not is_array(made) or exact is None or scale is None:
        return 0.0, left
    error = wide(made) - exact
    worst = float((np.abs(error) / np.maximum(scale, _TINY)).max())
    for name, (_, rounded) in _FORMATS.items() if 0 < worst <= _FARTHEST else ():
        # round both factors, not the bias, and see how much of the error that explains
        coarse = [rounded(array) for array in read[:2]] + read[2:]
        again = product(node, [wide(array) for array in coarse])
        assert again is not None
        kept = wide(rounded(again))  # by a device that keeps results so, too
        sizes = [rms(wide(made) - each) for each in (again, kept)]
        left[name] = min(sizes) / rms(error)
    return worst, left


def _conv(node: NodeProto, read: Sequence[Wide]) -> Wide | None:
    made = convolve(node, *read)
    return None if made is None else wide(made)


def _matmul(node: NodeProto, read: Sequence[Wide]) -> Wide:
    """Compute a MatMul, or a Gemm with its attributes."""
    given = attributes_of(node)
    a, b = (
        x.T if given.get(key) else x for key, x in zip(("transA", "transB"), read, strict=False)
    )
    made: Wide = given.get("alpha", 1.0) * np.matmul(a, b)
    return made + given.get("beta", 1.0) * read[2] if len(read) > 2 else made


_PRODUCTS: Mapping[str, Callable[[NodeProto, Sequence[Wide]], Wide | None]] = {
    "Conv": _conv,
    "MatMul": _matmul,
    "Gemm": _matmul,
}
