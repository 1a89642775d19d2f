"""Operators that move numbers: each element of the output is one of the input, or a filling."""

import numpy as np

from onnxsurgeon_lite.surgery.gradients.rules.formulas import Words, rules
from onnxsurgeon_lite.surgery.gradients.step import GradientStep
from onnxsurgeon_lite.surgery.gradients.tape import Term, known_sizes


def _moved(s: GradientStep) -> Term:
    """Return the gradient of any move: the same node tells where each element came from."""
    # The node applied to the numbers 0, 1, 2, ... of the elements says where each came from.
    places = s.again(1, s.tape.places(s.a), *s.rest())[0]
    return s.tape.scattered(places, s.dy, s.a)


def _concat(s: GradientStep) -> Term:
    """Return the part of the output that this input is."""
    t = s.tape
    axis = s.axis(0)
    # this input begins where those before it end
    sizes = [t.dim(s.input(slot), axis) for slot in range(s.slot + 1)]
    shapes = [t.shape(s.input(slot).name) for slot in range(s.slot + 1)]
    known = known_sizes([None if shape is None else shape[axis] for shape in shapes])
    if known is not None:
        start, end = t.integers([sum(known[:-1])]), t.integers([sum(known)])
    else:
        start = t.total(sizes[:-1]) if s.slot else t.integers([0])
        end = start + sizes[-1]
    return t.op("Slice", s.dy, start, end, [axis])


def _split(s: GradientStep) -> Term:
    """Return the gradients of the parts in a row; a part that nothing depends on has zeros."""
    t = s.tape
    parts = [
        t.zeros(t.dims(s.output(slot)), s.a.dtype) if term is None else term
        for slot, term in enumerate(s.gradients)
    ]
    return t.concat(*parts, axis=s.axis(0))


def _around(s: GradientStep) -> list[int] | None:
    """Return how many elements a slice leaves out before and behind, by axis."""
    shape = s.tape.shape(s.a.name)
    starts, ends, axes, steps = (s.listed("", slot) for slot in range(1, 5))
    if shape is None or not isinstance(starts, list) or not isinstance(ends, list):
        return None
    if isinstance(axes, Term) or isinstance(steps, Term) or any(n != 1 for n in steps or ()):
        return None
    # what the slice leaves out, as Python counts it
    before, behind = [0] * len(shape), [0] * len(shape)
    for axis, first, last in zip(axes or range(len(starts)), starts, ends, strict=True):
        size = shape[axis]
        if not isinstance(size, int):
            return None
        # as Python clips starts and ends to the size
        start, end, _ = slice(first, last).indices(size)
        before[axis], behind[axis] = start, size - max(start, end)
    return before + behind


def _pad(s: GradientStep) -> Term:
    if s.text("mode", "constant") != "constant":
        return _moved(s)
    pads, axes = s.listed("", 1), s.listed("", 3)
    if isinstance(pads, list) and not isinstance(axes, Term) and min(pads, default=0) >= 0:
        return _inner(s, pads, axes or list(range(len(pads) // 2)))
    # pads that are computed when the model runs
    rest = s.rest(3)
    # a negative Pad removes what was added
    return s.tape.op("Pad", s.dy, -s.b, *([None, *rest] if rest else []))


def _inner(s: GradientStep, pads: list[int], axes: list[int]) -> Term:
    """Return the gradient without that of a padding."""
    count = len(axes)
    # an end of 0 means up to the end
    ends = [-pad or np.iinfo(np.int64).max for pad in pads[count:]]
    return s.tape.op("Slice", s.dy, *map(s.tape.integers, (pads[:count], ends, axes)))


# a slice without steps, whose place is known, has zeros around it; a padding's value is all that is not the input
_TABLE = """
Concat | part() | ...
Split  | parts()
Slice  | moved() if around() is None else Pad(dy, around())
Pad    | inside() | None | reshaped(ReduceSum(dy, keepdims=0) - ReduceSum(inside(), keepdims=0), x)
"""
_WORDS: Words = {
    "part": _concat,
    "parts": _split,
    "moved": _moved,
    "around": _around,
    "inside": _pad,
}
RULES = rules(_TABLE, _WORDS)
