"""Operators that take or place elements by their indices."""

import numpy as np
from numpy.typing import NDArray

from onnxsurgeon_lite.surgery.gradients.rules.formulas import Words, rules
from onnxsurgeon_lite.surgery.gradients.step import GradientStep
from onnxsurgeon_lite.surgery.gradients.tape import Term


def _taken_out(s: GradientStep) -> Term:
    """Return the gradient of a scattering's target: nothing where it is overwritten."""
    reduction = s.text("reduction", "none")
    # added updates leave the gradient of the target as it is; overwritten elements have none
    if reduction == "add":
        return s.dy
    if reduction != "none":
        raise s.refused(f"reduction is {reduction!r}")
    updates = s.input(2)
    nothing = s.tape.zeros(s.tape.dims(updates), s.dy.dtype)
    return s.again(1, s.dy, s.b, nothing)[0]


def _updates(s: GradientStep) -> Term:
    """Return the gradient of what is scattered: what stands where it was put."""
    reduction = s.text("reduction", "none")
    if reduction not in ("none", "add"):
        raise s.refused(f"reduction is {reduction!r}")
    if s.node.op_type == "ScatterND":  # the update of each index is where the index says
        return s.tape.op("GatherND", s.dy, s.b)
    return s.tape.op("GatherElements", s.dy, s.b, axis=s.integer("axis"))


def _image_blocks(s: GradientStep) -> Term:
    """Return what stands at the place of each element of a block, in the padded image."""
    t = s.tape
    image, block = s.numbers(1), s.numbers(2)
    if image is None or block is None:
        raise s.refused("the sizes of the image and of its blocks are not known")
    count = len(block)
    pads = s.integers("pads") or [0] * 2 * count  # begin of each axis, then end of each axis
    strides = s.integers("strides") or [1] * count
    dilations = s.integers("dilations") or [1] * count
    # the number of each element of a block in the padded image, axis by axis
    padded = [int(n) + pads[i] + pads[i + count] for i, n in enumerate(image)]
    at: NDArray[np.int64] = np.zeros((1, 1), np.int64)
    for size, length, stride, step in zip(padded, block, strides, dilations, strict=True):
        inner = np.arange(int(length)) * step
        outer = np.arange((size - (int(length) - 1) * step - 1) // stride + 1) * stride
        line = inner[:, None] + outer
        # One axis more: [elements of the block so far, blocks so far] times this axis.
        at = at[:, None, :, None] * size + line[None, :, None, :]
        at = at.reshape(at.shape[0] * at.shape[1], -1)
    # the gradient of the image with its padding, and each block's elements taken from it
    whole = t.op("Pad", s.dy, [0, 0] + pads[:count] + [0, 0] + pads[count:])
    flat = t.op("Reshape", whole, [0, 0, -1])
    return t.reshaped(t.op("Gather", flat, t.array(at), axis=2), s.a)


_TABLE = """
Scatter         | taken_out() | None | updates()
ScatterElements | taken_out() | None | updates()
ScatterND       | taken_out() | None | updates()
TopK            | scattered(GatherElements(places(a), second(2, a, b), axis=axis()), dy, a)
Unique          | scattered(Gather(places(a), second(4, a), axis=axis()) if "axis" in attributes \
                  else second(4, a), dy, a)
Col2Im          | blocks()
"""
_WORDS: Words = {
    "taken_out": _taken_out,
    "updates": _updates,
    "blocks": _image_blocks,
}
RULES = rules(_TABLE, _WORDS)
