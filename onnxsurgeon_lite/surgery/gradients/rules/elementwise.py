"""Operators on each element by itself; what was broadcast is summed again by the engine."""

import math

from onnx import TensorProto

from onnxsurgeon_lite.surgery.gradients.step import GradientStep, Rule, is_float
from onnxsurgeon_lite.surgery.gradients.tape import Term

_SQRT2 = math.sqrt(2)
_PDF = 1 / math.sqrt(2 * math.pi)
_GELU_C, _GELU_K = math.sqrt(2 / math.pi), 0.044715


def _where_positive(s: GradientStep, slope: float | Term) -> Term:
    return (s.a > 0).where(s.dy, s.dy * slope)


def _elu(s: GradientStep) -> Term:
    alpha = s.number("alpha")
    return _where_positive(s, s.a.function("Exp") * alpha)


def _selu(s: GradientStep) -> Term:
    gamma, alpha = s.number("gamma"), s.number("alpha")
    return (s.a > 0).where(s.dy * gamma, s.dy * s.a.function("Exp") * (gamma * alpha))


def _hard_sigmoid(s: GradientStep) -> Term:
    inside = (s.y > 0).where((s.y < 1).where(s.dy, 0), 0)
    return inside * s.number("alpha")


def _hard_swish(s: GradientStep) -> Term:
    inner = (s.a < 3).where(s.dy * (s.a / 3 + 0.5), s.dy)
    return (s.a > -3).where(inner, 0)


def _mish(s: GradientStep) -> Term:
    soft = s.a.function("Softplus").function("Tanh")
    return s.dy * (soft + s.a * s.a.function("Sigmoid") * (1 - soft * soft))


def _swish(s: GradientStep) -> Term:
    alpha = s.number("alpha", 1.0)
    gate = (s.a * alpha).function("Sigmoid")
    return s.dy * (gate + s.y * (1 - gate) * alpha)


def _gelu(s: GradientStep) -> Term:
    if s.text("approximate", "none") == "tanh":
        cube = s.a * s.a * s.a
        inner = ((s.a + cube * _GELU_K) * _GELU_C).function("Tanh")
        slope = (s.a * s.a * (3 * _GELU_K) + 1) * _GELU_C
        return s.dy * ((inner + 1) * 0.5 + s.a * (1 - inner * inner) * slope * 0.5)
    below = ((s.a / _SQRT2).function("Erf") + 1) * 0.5
    return s.dy * (below + s.a * (s.a * s.a * -0.5).function("Exp") * _PDF)


def _bound(s: GradientStep) -> Term:
    """Return the gradient of a bound of Clip: of all elements that it replaced."""
    replaced = s.y.equals(s.a).where(s.dy.of(0), s.y.equals(s.x).where(s.dy, 0))
    return s.tape.summed_to(replaced, s.x, s.tape.shape(s.a.name))


def _cast(s: GradientStep) -> Term:
    return s.dy.cast(s.a.dtype)


def _power_base(s: GradientStep) -> Term:
    exponent = s.b.cast(s.a.dtype)
    slope = s.tape.op("Pow", s.a, exponent - 1)
    return s.dy * exponent * exponent.equals(0).where(s.a.of(0), slope)


def _power_exponent(s: GradientStep) -> Term | None:
    if not is_float(s.b.dtype):
        return None
    positive = s.a > 0
    logarithm = positive.where(s.a, 1).function("Log")
    return (s.dy * s.y * positive.where(logarithm, 0)).cast(s.b.dtype)


def _remainder(s: GradientStep) -> Term:
    quotient = s.a / s.b
    if s.integer("fmod"):
        whole = (quotient < 0).where(quotient.function("Ceil"), quotient.function("Floor"))
    else:
        whole = quotient.function("Floor")
    return -(s.dy * whole)


def _chosen(s: GradientStep) -> Term:
    """Return the gradient of one of several inputs of Max or Min: equal ones share it."""
    terms = [s.input(slot) for slot in range(len(s.node.input))]
    hits = [term.equals(s.y).cast(s.y.dtype) for term in terms]
    share = s.dy if len(hits) == 1 else s.dy / s.tape.total(hits)
    return hits[s.slot] * share


def _dropout(s: GradientStep) -> Term:
    training = s.numbers(2) if s.has(2) else None
    if s.has(2) and training is None:
        raise s.refused("training_mode is computed when the model runs")
    if training is None or not bool(training):
        return s.dy
    if len(s.node.output) < 2:
        raise s.refused(
            "it draws random numbers and its mask is not an output: onnxdbg edit inference"
        )
    kept = Term(s.tape, s.node.output[1], TensorProto.BOOL).where(s.dy, 0)
    return kept / (1 - s.b.cast(s.dy.dtype)) if s.has(1) else kept * 2


def _dequantized_scale(s: GradientStep) -> Term:
    """Return the sum of the integers: of all of them, or along an axis."""
    t = s.tape
    integers = s.a.cast(s.b.dtype)
    if t.rank(s.b) > 1 or s.integer("block_size"):
        raise s.refused("it has a scale for each block")
    per_axis = t.rank(s.b) == 1 and t.static(s.b) != [1]
    axis = s.axis(1) if per_axis else None
    others = [place for place in range(s.rank) if place != axis]
    if s.has(2):
        zero = s.input(2).cast(s.b.dtype)
        spread = [-1 if place == axis else 1 for place in range(s.rank)]
        integers = integers - (t.op("Reshape", zero, t.integers(spread)) if per_axis else zero)
    return t.reshaped(t.sum(s.dy.cast(s.b.dtype) * integers, others), s.b)


def _range_step(s: GradientStep) -> Term:
    t = s.tape
    count = t.op("Squeeze", t.dim(s.y, 0))
    numbers = t.op("Range", count.of(0), count, count.of(1)).cast(s.dy.dtype)
    return t.op("ReduceSum", s.dy * numbers, keepdims=0)


BROADCAST: dict[str, Rule] = {
    "Add": (lambda s: s.dy, lambda s: s.dy),
    "Sub": (lambda s: s.dy, lambda s: -s.dy),
    "Mul": (lambda s: s.dy * s.b, lambda s: s.dy * s.a),
    "Div": (lambda s: s.dy / s.b, lambda s: -(s.dy * s.y / s.b)),
    "Pow": (_power_base, _power_exponent),
    "Mod": (lambda s: s.dy, _remainder),
    "Max": _chosen,
    "Min": _chosen,
    "Sum": lambda s: s.dy,
    "Mean": lambda s: s.dy / len(s.node.input),
    "Where": (lambda s: None, lambda s: s.a.where(s.dy, 0), lambda s: s.a.where(s.dy.of(0), s.dy)),
    "PRelu": (lambda s: _where_positive(s, s.b), lambda s: (s.a > 0).where(s.dy.of(0), s.dy * s.a)),
}

RULES: dict[str, Rule] = {
    "Abs": (lambda s: s.dy * s.a.function("Sign"),),
    "Acos": (lambda s: -(s.dy / (1 - s.a * s.a).function("Sqrt")),),
    "Acosh": (lambda s: s.dy / (s.a * s.a - 1).function("Sqrt"),),
    "Asin": (lambda s: s.dy / (1 - s.a * s.a).function("Sqrt"),),
    "Asinh": (lambda s: s.dy / (s.a * s.a + 1).function("Sqrt"),),
    "Atan": (lambda s: s.dy / (s.a * s.a + 1),),
    "Atanh": (lambda s: s.dy / (1 - s.a * s.a),),
    "Cast": (_cast,),
    "CastLike": (_cast,),
    "Celu": (lambda s: _where_positive(s, (s.a / s.number("alpha")).function("Exp")),),
    "Clip": (lambda s: s.y.equals(s.a).where(s.dy, 0), _bound, _bound),
    "Cos": (lambda s: -(s.dy * s.a.function("Sin")),),
    "Cosh": (lambda s: s.dy * s.a.function("Sinh"),),
    "DequantizeLinear": (lambda s: None, _dequantized_scale),
    "Dropout": (_dropout,),
    "Elu": (_elu,),
    "Erf": (lambda s: s.dy * (-(s.a * s.a)).function("Exp") * (2 / math.sqrt(math.pi)),),
    "Exp": (lambda s: s.dy * s.y,),
    "Gelu": (_gelu,),
    "HardSigmoid": (_hard_sigmoid,),
    "HardSwish": (_hard_swish,),
    "Identity": (lambda s: s.dy,),
    "LeakyRelu": (lambda s: _where_positive(s, s.number("alpha")),),
    "Log": (lambda s: s.dy / s.a,),
    "Mish": (_mish,),
    "Neg": (lambda s: -s.dy,),
    "Optional": (lambda s: s.dy,),
    "OptionalGetElement": (lambda s: s.dy,),
    "Range": (lambda s: s.tape.op("ReduceSum", s.dy, keepdims=0), lambda s: None, _range_step),
    "Reciprocal": (lambda s: -(s.dy * s.y * s.y),),
    "Relu": (lambda s: (s.y > 0).where(s.dy, 0),),
    "Selu": (_selu,),
    "Shrink": (lambda s: (s.a.function("Abs") > s.number("lambd")).where(s.dy, 0),),
    "Sigmoid": (lambda s: s.dy * s.y * (1 - s.y),),
    "Sin": (lambda s: s.dy * s.a.function("Cos"),),
    "Sinh": (lambda s: s.dy * s.a.function("Cosh"),),
    "Softplus": (lambda s: s.dy * s.a.function("Sigmoid"),),
    "Softsign": (lambda s: s.dy / (s.a.function("Abs") + 1) ** 2,),
    "Sqrt": (lambda s: s.dy / (s.y * 2),),
    "Swish": (_swish,),
    "Tan": (lambda s: s.dy * (s.y * s.y + 1),),
    "Tanh": (lambda s: s.dy * (1 - s.y * s.y),),
    "ThresholdedRelu": (lambda s: (s.a > s.number("alpha")).where(s.dy, 0),),
}
