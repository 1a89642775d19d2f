"""Fourier transforms: linear, so each one's gradient is another."""

from onnx import TensorProto

from onnxsurgeon_lite.surgery.gradients.step import GradientStep, Rule
from onnxsurgeon_lite.surgery.gradients.tape import Term

_AXIS_AS_INPUT = 20  # opset of DFT


def _dft(s: GradientStep) -> Term:
    """Return the transform back: what the input lacks of its length was zeros, a single number is real."""
    t = s.tape
    axis = _axis(s)
    inverse, onesided = s.integer("inverse"), s.integer("onesided")
    parts = (t.shape(s.a.name) or [None])[-1]
    if not isinstance(parts, int):
        raise s.refused("its last size is not known")
    # The inverse of all bins is linear, too: its gradient is the transform in the other direction.
    if inverse and onesided:
        return _onesided_back(s, axis)
    given = t.dim(s.a, axis)
    length = t.op("Reshape", s.b, [1]) if s.has(1) else given
    # a transform in the other direction, of all bins
    full = _grown(s.dy, axis, length - t.dim(s.y, axis), s.rank) if onesided else s.dy
    made = transformed(full, length, axis, s.rank, 1 - inverse)
    # the inverse divides by the length, the transform does not
    count = t.op("Squeeze", length).cast(made.dtype)
    made = made / count if inverse else made * count
    # a length that is given cuts the input off, or fills it up with zeros
    if s.has(1):
        kept = t.op("Slice", made, [0], given, [axis])
        made = _grown(kept, axis, t.op("Max", given - length, 0), s.rank)
    # a real input has no imaginary part
    return t.op("Slice", made, [0], [1], [-1]) if parts == 1 else made


def _onesided_back(s: GradientStep, axis: int) -> Term:
    """Return the onesided transform: all numbers but the first, and the middle one, stand for two."""
    t = s.tape
    length = s.tape.dim(s.y, axis)
    made = transformed(s.dy, length, axis, s.rank, onesided=1)
    size = t.op("Squeeze", length)
    # A bin stands for its mirror image too, except the first, and the middle one of an even length.
    bins = (size / 2 + 1).up_to()
    alone = t.op("Or", bins.equals(0), (bins * 2).equals(size))
    twice = alone.where(made.of(1), 2) / size.cast(made.dtype)
    shape = [-1 if place == axis else 1 for place in range(s.rank)]
    return _grown(
        made * t.op("Reshape", twice, shape),
        axis,
        t.dim(s.a, axis) - (length / 2 + 1),
        s.rank,
    )


def _axis(s: GradientStep) -> int:
    if not s.has(2):
        return s.at(s.integer("axis", 1 if s.tape.opset < _AXIS_AS_INPUT else -2))
    known = s.numbers(2)
    if known is None:
        raise s.refused("the axis is computed when the model runs")
    return s.at(int(known))


def transformed(
    term: Term, length: Term, axis: int, rank: int, inverse: int = 0, onesided: int | None = None
) -> Term:
    """Return a DFT of a list's length."""
    t = term.tape
    size = term.tape.op("Squeeze", length)
    # the axis was an attribute; as an input it counts from the end, whatever the rank
    if t.opset < _AXIS_AS_INPUT:
        return t.op("DFT", term, size, axis=axis, inverse=inverse, onesided=onesided)
    place = t.number(axis - rank, TensorProto.INT64)
    return t.op("DFT", term, size, place, inverse=inverse, onesided=onesided)


def _grown(term: Term, axis: int, count: Term, rank: int) -> Term:
    """Return a term with so many zeros behind it."""
    t = term.tape
    # pads: begin of each axis, then end of each axis; only the end of this one is not 0
    pads = [0] * (rank + axis), count, [0] * (rank - 1 - axis)
    return t.op("Pad", term, t.concat(*pads[: 3 if axis < rank - 1 else 2]))


RULES: dict[str, Rule] = {"DFT": (_dft,)}
