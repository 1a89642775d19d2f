"""Mistakes in how a model runs: how its inputs are prepared, and training mode."""

from collections.abc import Iterator, Sequence
from itertools import chain, permutations

import numpy as np

from onnxsurgeon_lite.debug.causes.arrangement import taken
from onnxsurgeon_lite.debug.causes.hypothesis import MISTAKES, Edits, Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.place import Place, RegionNode, who
from onnxsurgeon_lite.graph.lint import trains
from onnxsurgeon_lite.model.messages import attributes_of
from onnxsurgeon_lite.passes import Insert, Pass, Replace, SetConstant
from onnxsurgeon_lite.tensors.dtypes import Array, has_floats, wide

_PREPARED = {
    name: tuple(map(np.asarray, numbers)) for name, numbers in MISTAKES["preparations"].items()
}
"""How an input is prepared -> what is subtracted from it, by what it is divided then."""
_COLORS = 3
_IMAGE = 4  # axes
_FEWEST = 32  # elements that tell a draw from a coincidence
_NEAR = 0.25  # between shares of elements that are drawn alike


def feeding(place: Place) -> Hypotheses:
    """Yield other preparations of the model's inputs that enter the region, or of what a Cast makes of them."""
    inputs = place.whole.inputs
    values = {name: value for name, value in place.entering.items() if name in inputs}
    for site in place.sites:
        if site.op_type == "Cast" and site.input[0] in inputs and site.made is not None:
            values[site.output] = site.made
    for name, value in values.items():
        if has_floats(value) and value.ndim > 1:
            for what, edits in chain(_prepared(name, value), _arranged(name, value)):
                title = f"{'input ' * (name in inputs)}{name!r}"
                yield Hypothesis("feeds", f"{title} {what}", edits, ("feeds", what))


def _prepared(name: str, value: Array) -> Iterator[tuple[str, Edits]]:
    """Yield what turns one usual preparation into another: (what is wrong and what is done about it, the edits)."""
    axes = [axis for axis, size in enumerate(value.shape) if size == _COLORS]
    done = set[bytes]()
    for (wrong, (mean, std)), (right, (center, width)) in permutations(_PREPARED.items(), 2):
        # (x * factor + offset - mean) / std = (x - center) / width
        factor = np.divide(std, width)
        offset = np.subtract(mean, np.multiply(center, factor))
        numbers = np.broadcast_arrays(factor, offset, np.zeros(_COLORS))
        key = np.round(numbers, 6).tobytes()
        by_color = factor.size > 1 or offset.size > 1
        has_colors = axes and value.ndim == _IMAGE
        if key in done or (by_color and not has_colors):
            continue
        done.add(key)
        # a number for each color is broadcast over the image
        along = [_COLORS] + [1] * (value.ndim - axes[0] - 1) if by_color else []
        edits = _steps(name, [("Mul", factor, 1.0), ("Add", offset, 0.0)], along)
        # several pairs may have the same numbers: this one is the most usual
        yield f"is prepared otherwise, for example {wrong} instead of {right}; prepared so", edits


def _arranged(name: str, value: Array) -> Iterator[tuple[str, Edits]]:
    """Yield other orders of channels and axes, and mirrored images."""
    shape = value.shape
    is_image = value.ndim == _IMAGE
    for axis in (axis for axis, size in enumerate(shape) if size == _COLORS and is_image):
        for order in permutations(range(_COLORS)):
            what = "has its channels in another order"
            if order == (2, 1, 0):
                what = "is fed in the order BGR"
            if order != (0, 1, 2):
                edit = taken(name, axis, np.array(order))
                yield f"{what}; with its channels taken as {list(order)}", (edit,)
    for axes in permutations(range(value.ndim)):
        if list(axes) != sorted(axes) and tuple(shape[axis] for axis in axes) == shape:
            edit = Insert(name, "Transpose", attributes=(("perm", list(axes)),))
            yield f"has its axes in another order; transposed by {list(axes)}", (edit,)
    for axis in range(2, _IMAGE) if is_image else ():
        edit = taken(name, axis, np.arange(shape[axis])[::-1])
        yield f"is fed mirrored along axis {axis}; mirrored back", (edit,)


def _steps(name: str, steps: Sequence[tuple[str, Array, float]], shape: Sequence[int]) -> Edits:
    """Return the edits that insert operators, one after the other, each with a constant that changes something."""
    left = [(op_type, numbers) for op_type, numbers, neutral in steps if (numbers != neutral).any()]
    edits = list[Insert]()
    for number, (op_type, numbers) in enumerate(left, 1):
        new = f"{name}_{number}" if number < len(left) else None
        constants = (("by", np.broadcast_to(numbers, shape[:1]).reshape(shape)),)
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
