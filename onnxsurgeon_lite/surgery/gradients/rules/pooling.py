"""Gradients of pooling over windows: means, maxima and norms, and of MaxUnpool."""

from onnxsurgeon_lite.surgery.gradients.step import GradientStep, Rule
from onnxsurgeon_lite.surgery.gradients.tape import Term
from onnxsurgeon_lite.surgery.gradients.windows import Window


def _window(s: GradientStep) -> Window:
    return Window.of(s, s.a, s.y, s.integers("kernel_shape") or [])


def _spread(s: GradientStep, term: Term, window: Window) -> Term:
    """Return each number at every element of its window, summed."""
    # Each channel is a sample of its own: a convolution with a kernel of ones for one channel.
    t = s.tape
    alone = t.op("Reshape", term, t.concat([-1, 1], t.shape_of(s.y, 2)))
    return t.reshaped(window.spread(alone, window.ones(s.dy), s.a), s.a)


def _average(s: GradientStep) -> Term:
    window = _window(s)
    padding = bool(s.integer("count_include_pad"))
    # the number of the windows' elements depends on the size then
    if s.integer("ceil_mode") and not window.known:
        raise s.refused("ceil_mode is set and the size of the input is not known")
    return _spread(s, s.dy / window.counts(s.dy, s.a, padding), window)


def _max(s: GradientStep) -> Term:
    """Return the gradients at the places of the largest elements, as the operator tells them."""
    # `storage_order` counts along columns; without it, indices count in the order of `places`.
    others = s.attributes.keys() - {"storage_order"} if s.integer("storage_order") else None
    return s.tape.scattered(s.second(2, s.a, attributes=others), s.dy, s.a)


def _norm(s: GradientStep) -> Term:
    """Return the gradient of a norm: a * |a|^(p - 2) * y^(1 - p), summed over windows; 0 where the norm is 0."""
    p = s.integer("p", 2)
    weakened = s.y.equals(0).where(0, s.y ** (1 - p))
    spread = _spread(s, s.dy * weakened, _window(s))
    return spread * s.a.function("Sign") * s.a.function("Abs") ** (p - 1)


def _unpooled(s: GradientStep) -> Term:
    if s.has(2):
        raise s.refused("output_shape is given, whose indices runtimes read differently")
    t = s.tape
    # each number went to the place that its index says, and its gradient comes from there
    return t.reshaped(t.op("GatherElements", t.flat(s.dy), t.flat(s.b)), s.a)


RULES: dict[str, Rule] = {
    "AveragePool": (_average,),
    "MaxPool": (_max,),
    "LpPool": (_norm,),
    "MaxUnpool": (_unpooled,),
}
