"""Operators on each element by itself that take more than a formula."""

from onnx import TensorProto

from onnxsurgeon_lite.surgery.gradients.step import GradientStep, Rule
from onnxsurgeon_lite.surgery.gradients.tape import Term


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
        integers = integers - (t.op("Reshape", zero, spread) if per_axis else zero)
    return t.reshaped(t.sum(s.dy.cast(s.b.dtype) * integers, others), s.b)


BROADCAST: dict[str, Rule] = {"Max": _chosen, "Min": _chosen}

RULES: dict[str, Rule] = {
    "DequantizeLinear": (lambda s: None, _dequantized_scale),
    "Dropout": (_dropout,),
}
