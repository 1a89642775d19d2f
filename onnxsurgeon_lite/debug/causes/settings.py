"""Mistakes in how a model runs: how its inputs are prepared, and training mode."""

from collections.abc import Iterator, Sequence
from itertools import permutations

import numpy as np

from onnxsurgeon_lite.debug.causes.arrangement import taken
from onnxsurgeon_lite.debug.causes.hypothesis import MISTAKES, Edits, Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.place import Place, RegionNode, who
from onnxsurgeon_lite.graph.lint import trains
from onnxsurgeon_lite.model.messages import attributes_of
from onnxsurgeon_lite.passes import Insert, Pass, Replace, SetConstant
from onnxsurgeon_lite.tensors.dtypes import Array, has_floats, wide

_NAMED = {"Sub": "mean", "Div": "std", "Mul": "factor"}  # what an operator reads
_COLORS = 3
_IMAGE = 4  # axes
_FEWEST = 32  # elements that tell a draw from a coincidence
_NEAR = 0.25  # between shares of elements that are drawn alike


def feeding(place: Place) -> Hypotheses:
    """Yield other preparations of the model's inputs that enter the region."""
    for name, value in place.entering.items():
        if name in place.whole.inputs and value.dtype.kind == "f" and value.ndim > 1:
            for what, edits in _prepared(name, value):
                yield Hypothesis("feeds", f"input {name!r} {what}", edits, ("feeds", what))


def _prepared(name: str, value: Array) -> Iterator[tuple[str, Edits]]:
    """Yield (what is wrong and what is done about it, the edits)."""
    shape, is_image = value.shape, value.ndim == _IMAGE
    for axis in (axis for axis, size in enumerate(shape) if size == _COLORS and is_image):
        for order in permutations(range(_COLORS)):
            what = "has its channels in another order"
            if order == (2, 1, 0):
                what = "is fed in the order BGR"
            if order != (0, 1, 2):
                edit = taken(name, axis, np.array(order))
                yield f"{what}; with its channels taken as {list(order)}", (edit,)
        # a number for each color, broadcast over the image
        along = [_COLORS] + [1] * (value.ndim - axis - 1)
        for what, steps in MISTAKES["channels"].items():
            yield what, _steps(name, steps, along)
    for what, steps in MISTAKES["inputs"].items():
        yield what, _steps(name, steps)
    for axes in permutations(range(value.ndim)):
        if list(axes) != sorted(axes) and tuple(shape[axis] for axis in axes) == shape:
            edit = Insert(name, "Transpose", attributes=(("perm", list(axes)),))
            yield f"has its axes in another order; transposed by {list(axes)}", (edit,)
    for axis in range(2, _IMAGE) if is_image else ():
        edit = taken(name, axis, np.arange(shape[axis])[::-1])
        yield f"is fed mirrored along axis {axis}; mirrored back", (edit,)


def _steps(
    name: str, steps: Sequence[tuple[str, float | list[float]]], shape: Sequence[int] = ()
) -> Edits:
    """Return the edits that insert operators, each with a constant of a shape, one after the other."""
    edits = list[Insert]()
    for number, (op_type, operand) in enumerate(steps, 1):
        new = f"{name}_{number}" if number < len(steps) else None
        constants = ((_NAMED[op_type], np.reshape(operand, shape)),)
        edits.append(Insert(name, op_type, constants=constants, output=new))
        name = new or name
    return tuple(edits)


def in_training(place: Place) -> Hypotheses:
    """Yield that each node, or all nodes together, should compute what they do in evaluation."""
    sites = [site for site in place.sites if trains(place.index, site.node)]
    every = [sites] if len(sites) > 1 else []
    for some in [[site] for site in sites] + every:
        verb = "is" if len(some) == 1 else "are"
        sentence = f"{who(some)} {verb} in training mode; in evaluation"
        edits = tuple(map(_evaluating, some))
        yield Hypothesis("training mode", sentence, edits, ("training mode",))


def _evaluating(site: RegionNode) -> Pass:
    if site.op_type == "Dropout":
        return SetConstant(site.input[2], np.array(False), site.only)
    known = attributes_of(site.node).items()
    kept = tuple((name, value) for name, value in known if name != "training_mode")
    # in evaluation it has one output
    return Replace(tuple(site.input), (site.output,), "BatchNormalization", kept)


def dropped(place: Place) -> str:
    """Say that a reference is an input of the region behind a Dropout that draws; '' if none is."""
    for name, made in {place.value: place.wanted, **place.lacking}.items():
        for source in place.entering.values():
            if share := _dropped_share(source, made):
                return (
                    f"not the model: Dropout was active when the references were recorded ({name!r} is 0 in "
                    f"{share:.0%} of the elements, the others are scaled): record again in eval()"
                )
    return ""


def _dropped_share(source: Array, made: Array) -> float:
    """Return the share of elements that a Dropout set to 0, of both signs; 0 if it cannot have made the array."""
    if source.shape != made.shape or not (has_floats(source) and has_floats(made)):
        return 0.0
    # a Dropout sets a share of each sign to zero and scales the others by 1 / (1 - share)
    live = source != 0
    lost = live & (made == 0)
    if live.sum() < _FEWEST or not lost.any() or not (kept := live & ~lost).any():
        return 0.0
    negative = np.signbit(wide(source))
    shares = [float(lost[s].mean()) for s in (live & negative, live & ~negative) if s.any()]
    factors = wide(made[kept]) / source[kept]
    factor, share = float(np.median(factors)), float(lost[live].mean())
    drawn = abs(factor * (1 - share) - 1) < _NEAR and max(shares) - min(shares) < _NEAR
    return share if drawn and factor > 1 and np.allclose(factors, factor, rtol=1e-3) else 0.0
