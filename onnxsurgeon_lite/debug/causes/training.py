"""Nodes that compute what they do in training, as `check` finds them: their mode is wrong, not a number."""

import numpy as np
from onnx import helper

from onnxsurgeon_lite.debug.causes.hypothesis import Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.place import Place, RegionNode
from onnxsurgeon_lite.graph.lint import trains
from onnxsurgeon_lite.passes import Pass, Replace, SetConstant
from onnxsurgeon_lite.tensors.dtypes import Array, is_array, is_float

_FEWEST = 32  # elements that tell a draw from a coincidence
_NEAR = 0.25  # between shares of elements that are drawn alike


def in_training(place: Place) -> Hypotheses:
    """Yield that each node, or all nodes together, should compute what they do in evaluation."""
    sites = [site for site in place.sites if trains(place.index, site.node)]
    for some in [*([site] for site in sites), *([sites] if len(sites) > 1 else ())]:
        titles = " and ".join(site.title for site in some)
        sentence = f"{titles} {'is' if len(some) == 1 else 'are'} in training mode; in evaluation"
        edits = tuple(map(_evaluating, some))
        yield Hypothesis("training mode", sentence, edits, ("training mode",))


def _evaluating(site: RegionNode) -> Pass:
    if site.op_type == "Dropout":
        return SetConstant(site.input[2], np.array(False), site.only)
    known = ((a.name, helper.get_attribute_value(a)) for a in site.node.attribute)
    kept = tuple((name, value) for name, value in known if name != "training_mode")
    # in evaluation it has one output
    return Replace(tuple(site.input), (site.output,), "BatchNormalization", kept)


def dropped(place: Place) -> str:
    """Say that a reference is an input of the region behind a Dropout that draws; '' if none is."""
    for name, made in {place.value: place.wanted, **place.lacking}.items():
        for source in place.inputs.values():
            if is_array(source) and (share := _dropped_share(source, made)):
                return (
                    f"not the model: Dropout was active when the references were recorded ({name!r} is 0 in "
                    f"{share:.0%} of the elements, the others are scaled): record again in eval()"
                )
    return ""


def _dropped_share(source: Array, made: Array) -> float:
    """Return the share of elements that a Dropout set to 0, of both signs; 0 if it cannot have made the array."""
    if source.shape != made.shape or not (is_float(source.dtype) and is_float(made.dtype)):
        return 0.0
    live = source != 0
    lost = live & (made == 0)
    if live.sum() < _FEWEST or not lost.any() or not (kept := live & ~lost).any():
        return 0.0
    negative = np.signbit(source.astype(np.float64))
    shares = [float(lost[s].mean()) for s in (live & negative, live & ~negative) if s.any()]
    factors = made[kept].astype(np.float64) / source[kept]
    factor, share = float(np.median(factors)), float(lost[live].mean())
    drawn = abs(factor * (1 - share) - 1) < _NEAR and max(shares) - min(shares) < _NEAR
    return share if drawn and factor > 1 and np.allclose(factors, factor, rtol=1e-3) else 0.0
