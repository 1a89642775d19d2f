"""Pooling, over windows and over whole images."""

import numpy as np
from onnx import TensorProto

from onnxsurgeon_lite.surgery.gradients.step import GradientStep, Rule
from onnxsurgeon_lite.surgery.gradients.tape import Term
from onnxsurgeon_lite.surgery.gradients.windows import Window


def _window(s: GradientStep) -> Window:
    return Window.of(s, s.a, s.y, s.integers("kernel_shape") or [])


def _spread(s: GradientStep, term: Term, window: Window) -> Term:
    """Return each number at every element of its window, summed."""
    t = s.tape
    ones = t.array(np.ones((1, 1, *window.kernel), np.float32)).cast(s.dy.dtype)
    alone = t.op("Reshape", term, t.concat([-1, 1], t.shape_of(s.y, 2)))
    return t.reshaped(window.spread(s, alone, ones, s.a), s.a)


def _average(s: GradientStep) -> Term:
    window = _window(s)
    padding = bool(s.integer("count_include_pad"))
    if s.integer("ceil_mode") and not window.known:
        raise s.refused("ceil_mode is set and the size of the input is not known")
    return _spread(s, s.dy / window.counts(s, s.a, padding), window)


def _max(s: GradientStep) -> Term:
    """Return the gradients at the places of the largest elements, as the operator tells them."""
    named = len(s.node.output) > 1 and s.node.output[1] and not s.integer("storage_order")
    name = s.node.output[1] if named else _indices(s)
    return s.tape.scattered(Term(s.tape, name, TensorProto.INT64), s.dy, s.a)


def _indices(s: GradientStep) -> str:
    """Return the place of each largest element, as the operator tells it without `storage_order`."""
    kept = {"auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides"}
    return s.again(2, s.a, attributes=kept)[1].name


def _norm(s: GradientStep) -> Term:
    window, p = _window(s), s.integer("p", 2)
    return _root(s, _spread(s, s.dy * _weakened(s.y, p), window), p)


def _global_norm(s: GradientStep) -> Term:
    p = s.integer("p", 2)
    return _root(s, s.dy * _weakened(s.y, p), p)


def _weakened(norm: Term, p: int) -> Term:
    """norm^(1 - p), and 0 where the norm is 0."""
    return norm.equals(0).where(norm.of(0), norm ** (1 - p))


def _root(s: GradientStep, term: Term, p: int) -> Term:
    return term * s.a.function("Sign") * s.a.function("Abs") ** (p - 1)


def _unpooled(s: GradientStep) -> Term:
    if s.has(2):
        raise s.refused("output_shape is given, whose indices runtimes read differently")
    t = s.tape
    taken = t.op("GatherElements", t.flat(s.dy), t.flat(s.b))
    return t.reshaped(taken, s.a)


RULES: dict[str, Rule] = {
    "AveragePool": (_average,),
    "MaxPool": (_max,),
    "LpPool": (_norm,),
    "GlobalLpPool": (_global_norm,),
    "MaxUnpool": (_unpooled,),
}
