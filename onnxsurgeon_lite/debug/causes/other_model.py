"""Constants and attributes that are others in the model that computed the references."""

from dataclasses import replace

import numpy as np
from onnx import TensorProto

from onnxsurgeon_lite.debug.causes.attributes import changed
from onnxsurgeon_lite.debug.causes.constants import variants
from onnxsurgeon_lite.debug.causes.hypothesis import Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.linear import fitted
from onnxsurgeon_lite.debug.causes.place import Constant, Place, RegionNode, wide
from onnxsurgeon_lite.debug.causes.solving import AS_FOLDED, borrowed, described
from onnxsurgeon_lite.tensors.dtypes import Array

_WITH = "with the other model's numbers"
_SCALED = "is scaled along axis"
_CLOSE = 1e-5  # factors that float32 does not distinguish
_SOLVED = ("number", "rounded constant")  # kinds that say nothing of the numbers held
_WEIGHT = 2  # axes at least
_SMALL = 1 << 20  # elements of a constant that is arranged otherwise


def of_other_model(place: Place) -> Hypotheses:
    """Yield a constant with the other model's numbers, then all those of a node together."""
    several: dict[RegionNode, list[tuple[Hypothesis, str]]] = {}
    for constant in place.constants():
        array, right = constant.array, place.changed.get(constant.name)
        if right is None or constant.slot < 0:
            continue
        if (right.shape, right.dtype) == (array.shape, array.dtype):
            how, edits = _told(constant, right), (constant.edit(right),)
            found = Hypothesis("other model's constant", f"{constant} {how}; {_WITH}", edits)
            several.setdefault(constant.site, []).append((found, f"{constant.name!r} {how}"))
    for site, found_here in several.items():
        yield from (hypothesis for hypothesis, _ in found_here)
        if len(found_here) > 1:
            every = tuple(edit for hypothesis, _ in found_here for edit in hypothesis.edits)
            told = ", ".join(how for _, how in found_here)
            told += f", {AS_FOLDED}" if _SCALED in told else ""
            sentence = f"{len(found_here)} constants of {site.title} differ: {told}; {_WITH}"
            yield replace(found_here[0][0], sentence=sentence, edits=every)


def settings_of_other_model(place: Place) -> Hypotheses:
    """Yield each attribute of a node as the other model has it, then all those of the node together."""
    for site in place.sites:
        right = site.other_settings
        yield from (changed(site, {name: value}) for name, value in right.items())
        if len(right) > 1:
            yield changed(site, right)


def _told(constant: Constant, right: Array) -> str:
    """Say how a constant differs from the other model's."""
    said = borrowed(constant) or _exchanged(constant, right)
    if said or not constant.is_float:
        return said or "differs"
    known = _arranged(constant, right) if right.size <= _SMALL else ""
    return known or _scaled(constant.array, right) or described(constant.numbers, wide(right))


def _arranged(constant: Constant, right: Array) -> str:
    """Say which known mistake makes the numbers of the other model what they are here; '' if none."""
    for kind, how, other in variants(constant):
        what = how.partition("; ")[0]
        if kind not in _SOLVED and np.array_equal(other, right):
            return what
        if kind == "transposed constant" and _differ_by_channel(other, right):
            return f"{what}, behind a scale by channel"
    return ""


def _differ_by_channel(one: Array, other: Array) -> bool:
    """Return whether a factor by output and by input turns one weight to the other: of a folded normalization."""
    if one.shape != other.shape or one.ndim < _WEIGHT or not one.all():
        return False
    # a product of a factor by output and one by input
    factor = (wide(other) / wide(one)).reshape(*one.shape[:2], -1)
    separate = factor[:, :1, :1] * factor[:1, :, :1] / factor[0, 0, 0]
    return bool(np.isfinite(separate).all()) and np.allclose(factor, separate, rtol=1e-3)


def _exchanged(constant: Constant, right: Array) -> str:
    """Name the constant that has its numbers, and the other way; '' for none."""
    place = constant.site.place
    for other, numbers in place.changed.items() if np.ptp(right) else ():
        held = place.whole.initializers.get(other)
        if other != constant.name and np.array_equal(numbers, constant.array):
            now = place.whole.model.array(held) if isinstance(held, TensorProto) else None
            is_same = now is not None and np.array_equal(now, right)
            return f"and {other!r} are exchanged" if is_same else f"is the other model's {other!r}"
    return ""


def _scaled(array: Array, right: Array) -> str:
    """Say by what a constant is scaled along one of its axes; '' if it is not, or by one number."""
    made, wanted = wide(array), wide(right)
    for axis in range(array.ndim if array.ndim > 1 else 0):
        others = tuple(a for a in range(array.ndim) if a != axis)
        factor = fitted(made, wanted, others)[0]
        several = np.ptp(factor) > _CLOSE and factor.all()
        if several and np.allclose(made * factor, wanted, rtol=_CLOSE, atol=0):
            ends = (f"{1 / number:.4g}" for number in (factor.max(), factor.min()))
            return f"{_SCALED} {axis} by {' to '.join(ends)}"
    return ""
