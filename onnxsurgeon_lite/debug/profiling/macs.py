"""How many multiply-accumulate operations an operator takes, from the shapes of what it reads and makes."""

from collections.abc import Callable, Sequence
from math import prod

from onnxsurgeon_lite.tensors.dtypes import Shape

Shapes = Sequence[Shape | None]
Counted = Callable[[Shapes, Shapes], int]

_FIRST_WEIGHT = 3  # input of QLinearConv and QLinearMatMul that holds the weight


def macs(op_type: str, inputs: Shapes, outputs: Shapes, equation: str = "") -> int | None:
    """Return the multiply-accumulates of a node; 0 for an operator without them, None where a shape lacks.

    Args:
        inputs, outputs: shapes; None for what is not given or not known.
        equation: of Einsum.
    """
    if op_type == "Einsum":
        return _einsum(inputs, equation)
    if (count := _COUNTED.get(op_type)) is None:
        return 0
    try:
        return count(inputs, outputs)
    except (TypeError, IndexError, ValueError):  # a shape that is not known, or has another rank
        return None


def _known(shape: Shape | None) -> Shape:
    if shape is None:
        raise TypeError("not known")
    return shape


def _elements(shape: Shape | None) -> int:
    return prod(_known(shape))


def _convolved(weight: int) -> Counted:
    """Each element of the output sums over a filter."""
    # a weight [channels out, channels in / groups, ...]: the filter is all but the first axis
    return lambda inputs, outputs: _elements(outputs[0]) * _elements(_known(inputs[weight])[1:])


def _gemm(inputs: Shapes, outputs: Shapes) -> int:
    # A is [m, k] or [k, m]: its elements by m are k
    rows = _known(outputs[0])[0]
    return _elements(outputs[0]) * (_elements(inputs[0]) // rows) if rows else 0


def _recurrent(inputs: Shapes, outputs: Shapes) -> int:
    """Every step multiplies with both weights, of all gates and directions."""
    length, batch = _known(inputs[0])[:2]
    return length * batch * (_elements(inputs[1]) + _elements(inputs[2]))


def _attention(inputs: Shapes, outputs: Shapes) -> int:
    """Query times key, then that times value."""
    past = inputs[4] if len(inputs) > 4 else None
    # as many keys as the sequence has, and those of the past
    length = _known(inputs[1])[-2] + (past[-2] if past else 0)
    return (_elements(inputs[0]) + _elements(outputs[0])) * length


def _einsum(inputs: Shapes, equation: str) -> int | None:
    """Every combination of the indices takes a multiplication for each operand after the first."""
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    sizes = dict[str, int]()
    for term, shape in zip(terms, inputs, strict=False):
        if shape is None or "." in term or len(term) != len(shape):
            return None
        for index, size in zip(term, shape, strict=True):
            # an index of size 1 broadcasts
            sizes[index] = max(size, sizes.get(index, 1))
    return prod(sizes.values()) * (len(terms) - 1)


_COUNTED: dict[str, Counted] = {
    **dict.fromkeys(("Conv", "FusedConv", "ConvInteger", "DeformConv"), _convolved(1)),
    "QLinearConv": _convolved(_FIRST_WEIGHT),
    "ConvTranspose": lambda read, _: _elements(read[0]) * _elements(_known(read[1])[1:]),
    **dict.fromkeys(
        ("MatMul", "FusedMatMul", "MatMulInteger", "QLinearMatMul", "MatMulNBits"),
        lambda read, made: _elements(made[0]) * _known(read[0])[-1],
    ),
    **dict.fromkeys(("Gemm", "FusedGemm", "QGemm"), _gemm),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent),
    **dict.fromkeys(("Attention", "MultiHeadAttention"), _attention),
}
