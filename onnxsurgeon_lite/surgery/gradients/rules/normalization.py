"""Gradients of normalizations: over a layer, a batch, an instance, or to unit length."""

from collections.abc import Sequence

from onnxsurgeon_lite.surgery.gradients.rules.formulas import Words, rules
from onnxsurgeon_lite.surgery.gradients.step import GradientStep
from onnxsurgeon_lite.surgery.gradients.tape import Term


def _standard(s: GradientStep, axes: Sequence[int], centered: bool = True) -> tuple[Term, Term]:
    """Return the normalized input, and the inverse of its deviation."""
    # y = (x - mean) / deviation
    t = s.tape
    epsilon = s.number("epsilon")
    shifted = s.a - t.mean(s.a, s.a, axes) if centered else s.a
    inverse = 1 / (t.mean(shifted * shifted, s.a, axes) + epsilon).function("Sqrt")
    return shifted * inverse, inverse


def _through(s: GradientStep, scaled: Term, axes: Sequence[int], centered: bool = True) -> Term:
    """Return the gradient of the input from that of the normalized input."""
    t = s.tape
    # dx = (dy' - mean(dy') - normal * mean(dy' * normal)) / deviation; an RMS norm has no mean to subtract
    normal, inverse = _standard(s, axes, centered)
    left = scaled - normal * t.mean(scaled * normal, s.a, axes)
    return (left - t.mean(scaled, s.a, axes) if centered else left) * inverse


# `LpNormalization`: a vector of zeros has no direction, and no gradient.
_TABLE = """
training = integer("training_mode")
last = range(axis(), rank)
spatial = range(2, rank)
batch = [0, *range(2, rank)]
inverse = 1 / Sqrt(channels(4) + epsilon)
centered = a - channels(3)
is_sum = integer("p", 2) == 1
length = sum(Abs(a), [axis()], True) if is_sum else Sqrt(sum(a * a, [axis()], True))
pull = Sign(a) if is_sum else y

LayerNormalization    | through(dy * b, last) | summed_to(dy * standard(last)[0], x, shape(a.name)) \
                      | summed_to(dy, x, shape(a.name))
RMSNormalization      | through(dy * b, last, False) | summed_to(dy * standard(last, False)[0], x, shape(a.name))
InstanceNormalization | through(dy * channels(1), spatial) | sum(dy * standard(spatial)[0], batch) | sum(dy, batch)
BatchNormalization    | through(dy * channels(1), batch) if training else dy * (channels(1) * inverse) \
                      | sum(dy * standard(batch)[0] if training else dy * centered * inverse, batch) \
                      | sum(dy, batch) \
                      | None if training else -sum(dy * (channels(1) * inverse), batch) \
                      | None if training \
                        else sum(dy * (centered * (channels(1) * inverse * inverse * inverse) * -0.5), batch)
LpNormalization       | where(length.equals(0), 0, (dy - pull * sum(dy * y, [axis()], True)) / length)
"""
_WORDS: Words = {
    "through": _through,
    "standard": _standard,
    # a number for each channel, such that it broadcasts to the first input
    "channels": lambda s, slot: s.tape.op("Reshape", s.input(slot), [-1] + [1] * (s.rank - 2)),
}
RULES = rules(_TABLE, _WORDS)
