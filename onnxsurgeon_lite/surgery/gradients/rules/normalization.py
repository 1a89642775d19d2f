"""Gradients of normalizations: over a layer, a batch, an instance, neighboring channels, or to unit length."""

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


def _local_response(s: GradientStep) -> Term:
    """Y = X * base^-beta, where base sums the squares of the neighboring channels."""
    size = s.integer("size")
    # Y = X / base ** beta, base = bias + alpha / size * (sum of squares of `size` neighbors)
    alpha, beta, bias = s.number("alpha"), s.number("beta"), s.number("bias")
    base = _window(s, s.a * s.a, (size - 1) // 2, size // 2) * (alpha / size) + bias
    inner = _window(s, s.dy * s.y / base, size // 2, (size - 1) // 2)
    return s.dy * base ** (-beta) - s.a * inner * (2 * alpha * beta / size)


def _window(s: GradientStep, term: Term, before: int, after: int) -> Term:
    """Return the sums over neighboring channels."""
    t, rank = s.tape, s.rank
    pads = [0] * (2 * rank)
    pads[1], pads[rank + 1] = before, after  # along the channels
    padded = t.op("Pad", term, pads)
    channels = t.dim(s.a, 1)
    parts = [t.op("Slice", padded, [at], channels + at, [1]) for at in range(before + after + 1)]
    return t.total(parts)


def _unit_length(s: GradientStep) -> Term:
    """Y = X / norm(X) along an axis."""
    t = s.tape
    axis = [s.axis()]
    if s.integer("p", 2) == 1:
        norm = t.sum(s.a.function("Abs"), axis, True)
        pull = s.a.function("Sign")
    else:
        norm = t.sum(s.a * s.a, axis, True).function("Sqrt")
        pull = s.y
    left = s.dy - pull * t.sum(s.dy * s.y, axis, True)
    return norm.equals(0).where(s.dy.of(0), left / norm)  # a vector of zeros has no direction


_TABLE = """
training = integer("training_mode")
last = range(axis(), rank)
spatial = range(2, rank)
batch = [0, *range(2, rank)]
inverse = 1 / Sqrt(channels(4) + epsilon)
centered = a - channels(3)

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
LRN                   | response()
LpNormalization       | unit_length()
"""
_WORDS: Words = {
    "through": _through,
    "standard": _standard,
    # a number for each channel, such that it broadcasts to the first input
    "channels": lambda s, slot: s.tape.op("Reshape", s.input(slot), [-1] + [1] * (s.rank - 2)),
    "response": _local_response,
    "unit_length": _unit_length,
}
RULES = rules(_TABLE, _WORDS)
