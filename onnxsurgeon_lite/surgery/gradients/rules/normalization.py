"""Normalizations."""

from collections.abc import Sequence

from onnxsurgeon_lite.surgery.gradients.step import GradientStep, Rule
from onnxsurgeon_lite.surgery.gradients.tape import Term


def _standard(s: GradientStep, axes: Sequence[int], centered: bool = True) -> tuple[Term, Term]:
    """Return the normalized input, and the inverse of its deviation."""
    t, epsilon = s.tape, s.number("epsilon")
    shifted = s.a - t.mean(s.a, s.a, axes) if centered else s.a
    inverse = 1 / (t.mean(shifted * shifted, s.a, axes) + epsilon).function("Sqrt")
    return shifted * inverse, inverse


def _through(s: GradientStep, scaled: Term, axes: Sequence[int], centered: bool = True) -> Term:
    """Return the gradient of the input from that of the normalized input."""
    t = s.tape
    normal, inverse = _standard(s, axes, centered)
    left = scaled - normal * t.mean(scaled * normal, s.a, axes)
    return (left - t.mean(scaled, s.a, axes) if centered else left) * inverse


def _last(s: GradientStep) -> list[int]:
    return list(range(s.axis(), s.rank))


def _layer_x(s: GradientStep) -> Term:
    return _through(s, s.dy * s.b, _last(s))


def _layer_scale(s: GradientStep) -> Term:
    return _summed(s, s.dy * _standard(s, _last(s))[0])


def _rms_scale(s: GradientStep) -> Term:
    return _summed(s, s.dy * _standard(s, _last(s), centered=False)[0])


def _summed(s: GradientStep, term: Term) -> Term:
    return s.tape.summed_to(term, s.x, s.tape.shape(s.a.name))


def _by_channel(s: GradientStep, slot: int) -> Term:
    """Return an input with a number for each channel such that it broadcasts to the first input."""
    return s.tape.op("Reshape", s.input(slot), [-1, *[1] * (s.rank - 2)])


def _spatial(s: GradientStep) -> list[int]:
    return list(range(2, s.rank))


def _over_batch(s: GradientStep, term: Term) -> Term:
    return s.tape.sum(term, [0, *_spatial(s)])


def _instance_x(s: GradientStep) -> Term:
    return _through(s, s.dy * _by_channel(s, 1), _spatial(s))


def _instance_scale(s: GradientStep) -> Term:
    return _over_batch(s, s.dy * _standard(s, _spatial(s))[0])


def _batch_axes(s: GradientStep) -> list[int]:
    return [0, *_spatial(s)]


def _batch_inverse(s: GradientStep) -> Term:
    return 1 / (_by_channel(s, 4) + s.number("epsilon")).function("Sqrt")


def _batch_x(s: GradientStep) -> Term:
    if s.integer("training_mode"):
        return _through(s, s.dy * _by_channel(s, 1), _batch_axes(s))
    return s.dy * (_by_channel(s, 1) * _batch_inverse(s))


def _batch_scale(s: GradientStep) -> Term:
    if s.integer("training_mode"):
        return _over_batch(s, s.dy * _standard(s, _batch_axes(s))[0])
    return _over_batch(s, s.dy * (s.a - _by_channel(s, 3)) * _batch_inverse(s))


def _batch_mean(s: GradientStep) -> Term | None:
    if s.integer("training_mode"):
        return None
    return -_over_batch(s, _batch_x(s))


def _batch_variance(s: GradientStep) -> Term | None:
    if s.integer("training_mode"):
        return None
    inverse = _batch_inverse(s)
    slope = (s.a - _by_channel(s, 3)) * (_by_channel(s, 1) * inverse * inverse * inverse) * -0.5
    return _over_batch(s, s.dy * slope)


def _local_response(s: GradientStep) -> Term:
    """Y = X * base^-beta, where base sums the squares of the neighboring channels."""
    size = s.integer("size")
    alpha, beta, bias = s.number("alpha"), s.number("beta"), s.number("bias")
    base = _window(s, s.a * s.a, (size - 1) // 2, size // 2) * (alpha / size) + bias
    inner = _window(s, s.dy * s.y / base, size // 2, (size - 1) // 2)
    return s.dy * base ** (-beta) - s.a * inner * (2 * alpha * beta / size)


def _window(s: GradientStep, term: Term, before: int, after: int) -> Term:
    """Return the sums over neighboring channels."""
    t, rank = s.tape, s.rank
    pads = [0] * (2 * rank)
    pads[1], pads[rank + 1] = before, after
    padded = t.op("Pad", term, pads)
    channels = t.dim(s.a, 1)
    parts = [t.op("Slice", padded, [at], channels + at, [1]) for at in range(before + after + 1)]
    return t.total(parts)


def _unit_length(s: GradientStep) -> Term:
    """Y = X / norm(X) along an axis."""
    t, axis = s.tape, [s.axis()]
    if s.integer("p", 2) == 1:
        norm = t.sum(s.a.function("Abs"), axis, True)
        pull = s.a.function("Sign")
    else:
        norm = t.sum(s.a * s.a, axis, True).function("Sqrt")
        pull = s.y
    left = s.dy - pull * t.sum(s.dy * s.y, axis, True)
    return norm.equals(0).where(s.dy.of(0), left / norm)


RULES: dict[str, Rule] = {
    "LayerNormalization": (_layer_x, _layer_scale, lambda s: _summed(s, s.dy)),
    "RMSNormalization": (lambda s: _through(s, s.dy * s.b, _last(s), centered=False), _rms_scale),
    "InstanceNormalization": (_instance_x, _instance_scale, lambda s: _over_batch(s, s.dy)),
    "BatchNormalization": (
        _batch_x,
        _batch_scale,
        lambda s: _over_batch(s, s.dy),
        _batch_mean,
        _batch_variance,
    ),
    "LRN": (_local_response,),
    "LpNormalization": (_unit_length,),
}
