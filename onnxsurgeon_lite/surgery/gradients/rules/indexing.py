"""Operators that take or place elements by their indices."""

import numpy as np
from onnx import TensorProto

from onnxsurgeon_lite.surgery.gradients.rules.shapes import moved
from onnxsurgeon_lite.surgery.gradients.step import Rule, Step
from onnxsurgeon_lite.surgery.gradients.tape import Term
from onnxsurgeon_lite.tensors import dtypes


def _taken_out(s: Step) -> Term:
    """Return the gradient of a scattering's target: nothing where it is overwritten."""
    reduction = s.text("reduction", "none")
    if reduction == "add":
        return s.dy
    if reduction != "none":
        raise s.refused(f"reduction is {reduction!r}")
    updates = s.input(2)
    nothing = s.tape.zeros(s.tape.dims(updates), s.dy.dtype)
    return s.again(1, s.dy, s.b, nothing)[0]


def _element_updates(s: Step) -> Term:
    _require_plain(s)
    return s.tape.op("GatherElements", s.dy, s.b, axis=s.integer("axis"))


def _slice_updates(s: Step) -> Term:
    _require_plain(s)
    return s.tape.op("GatherND", s.dy, s.b)


def _require_plain(s: Step) -> None:
    if s.text("reduction", "none") not in ("none", "add"):
        raise s.refused(f"reduction is {s.text('reduction')!r}")


def _top(s: Step) -> Term:
    given = len(s.node.output) > 1 and s.node.output[1]
    name = s.node.output[1] if given else s.again(2, s.a, s.b)[1].name
    indices = Term(s.tape, name, TensorProto.INT64)
    places = s.tape.op("GatherElements", s.tape.places(s.a), indices, axis=s.axis())
    return s.tape.scattered(places, s.dy, s.a)


def _one_hot(s: Step) -> Term:
    """Return the gradient of the two values: of the elements that are off, and of those that are on."""
    t = s.tape
    pair = t.array(np.array([0, 1], dtypes.numpy_dtype(s.x.dtype)))
    marks = s.again(1, s.a, s.b, pair, dtype=s.x.dtype)[0]
    sums = [t.op("ReduceSum", s.dy * part, keepdims=0) for part in (1 - marks, marks)]
    return t.concat(*(t.op("Unsqueeze", term, t.integers([0])) for term in sums))


def _unique(s: Step) -> Term:
    given = len(s.node.output) > 1 and s.node.output[1]
    name = s.node.output[1] if given else s.again(4, s.a)[1].name
    indices = Term(s.tape, name, TensorProto.INT64)
    if "axis" in s.attributes:
        indices = s.tape.op("Gather", s.tape.places(s.a), indices, axis=s.axis())
    return s.tape.scattered(indices, s.dy, s.a)


RULES: dict[str, Rule] = {
    "Gather": (moved,),
    "GatherElements": (moved,),
    "GatherND": (moved,),
    "Scatter": (_taken_out, lambda s: None, _element_updates),
    "ScatterElements": (_taken_out, lambda s: None, _element_updates),
    "ScatterND": (_taken_out, lambda s: None, _slice_updates),
    "TopK": (_top,),
    "Unique": (_unique,),
    "OneHot": (lambda s: None, lambda s: None, _one_hot),
}
