"""Reductions over axes, and running sums."""

import math

import numpy as np

from onnxsurgeon_lite.surgery.gradients.step import GradientStep, Rule
from onnxsurgeon_lite.surgery.gradients.tape import Term


def _mean(s: GradientStep) -> Term:
    sizes = [s.tape.static(term) for term in (s.a, s.y)]
    if sizes[0] is not None and sizes[1] is not None:
        count = s.dy.of(math.prod(sizes[0]) // max(math.prod(sizes[1]), 1))
    else:
        whole, left = (s.tape.size(term).cast(s.dy.dtype) for term in (s.a, s.y))
        count = s.tape.op("Squeeze", whole / left)
    return s.expanded(s.dy / count)


def running_product(s: GradientStep) -> list[Term]:
    """Write CumProd as a product over all elements, with 1 for those after each element."""
    t, known = s.tape, s.numbers(1)
    if known is None:
        raise s.refused("the axis is computed when the model runs")
    axis = s.at(int(np.ravel(known)[0]))
    order = [*(i for i in range(s.rank) if i != axis), axis]
    rows = t.op("Unsqueeze", t.transposed(s.a, order), [-2])
    size = t.op("Squeeze", t.dim(s.a, axis))
    place = t.op("Range", size.of(0), size, size.of(1))
    ends = t.op("Unsqueeze", place, [1])
    one, other = (ends, place) if not s.integer("reverse") else (place, ends)
    behind = one < other if not s.integer("exclusive") else t.op("Not", other < one)
    filled = behind.where(rows.of(1), rows)
    axes = {"axes": [-1]} if t.opset < 18 else {}
    given = [] if axes else [[-1]]
    made = t.op("ReduceProd", filled, *given, keepdims=0, **axes)
    return [t.transposed(made, [int(i) for i in np.argsort(order)])]


RULES: dict[str, Rule] = {
    "ReduceMean": (_mean,),
}
