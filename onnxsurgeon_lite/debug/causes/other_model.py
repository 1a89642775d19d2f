"""Constants that have other numbers in the model that computed the references."""

from dataclasses import replace

import numpy as np
from onnx import TensorProto

from onnxsurgeon_lite.debug.causes.constants import AS_FOLDED, variants
from onnxsurgeon_lite.debug.causes.hypothesis import Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.linear import fitted
from onnxsurgeon_lite.debug.causes.place import Place, wide
from onnxsurgeon_lite.debug.causes.solving import borrowed, described
from onnxsurgeon_lite.passes.set_constant import SetConstant
from onnxsurgeon_lite.tensors.dtypes import Array, is_float

_WITH = "with the other model's numbers"
_SCALED = "is scaled along axis"
_CLOSE = 1e-5  # factors that float32 does not distinguish
_SOLVED = ("number", "rounded constant")  # kinds that say nothing of the numbers held
_WEIGHT = 2  # axes at least
_SMALL = 1 << 20  # elements of a constant that is arranged otherwise


def of_other_model(place: Place) -> Hypotheses:
    """Yield a constant with the other model's numbers, then all those of a node together."""
    several: dict[int, list[tuple[Hypothesis, str]]] = {}
    for number, slot, name, array in place.constants():
        right = place.changed.get(name) if slot >= 0 else None
        if right is None or right.shape != array.shape or right.dtype != array.dtype:
            continue
        how = _told(place, number, name, array, right)
        what = f"constant {name!r} of {place.title(number)} {how}"
        edit = SetConstant(name, right, place.only(number))
        found = Hypothesis("other model's constant", f"{what}; {_WITH}", (edit,))
        several.setdefault(number, []).append((found, f"{name!r} {how}"))
    for number, found_here in several.items():
        yield from (hypothesis for hypothesis, _ in found_here)
        if len(found_here) > 1:
            edits = tuple(edit for hypothesis, _ in found_here for edit in hypothesis.edits)
            told = ", ".join(how for _, how in found_here)
            told += f", {AS_FOLDED}" if _SCALED in told else ""
            sentence = (
                f"{len(found_here)} constants of {place.title(number)} differ: {told}; {_WITH}"
            )
            yield replace(found_here[0][0], sentence=sentence, edits=edits)


def _told(place: Place, number: int, name: str, array: Array, right: Array) -> str:
    """Say how a constant differs from the other model's."""
    said = borrowed(place, name, array) or _exchanged(place, name, array, right)
    if said or not is_float(array.dtype):
        return said or "differs"
    known = _arranged(place, number, array, right) if array.size <= _SMALL else ""
    return known or _scaled(array, right) or described(wide(array), wide(right))


def _arranged(place: Place, number: int, array: Array, right: Array) -> str:
    """Say which known mistake makes the numbers of the other model what they are here; '' if none."""
    for kind, how, other in variants(place, number, array):
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
    factor = (wide(other) / wide(one)).reshape(*one.shape[:2], -1)
    separate = factor[:, :1, :1] * factor[:1, :, :1] / factor[0, 0, 0]
    return bool(np.isfinite(separate).all()) and np.allclose(factor, separate, rtol=1e-3)


def _exchanged(place: Place, name: str, array: Array, right: Array) -> str:
    """Name the constant that has its numbers, and the other way; '' for none."""
    for other, numbers in place.changed.items():
        held = place.whole.initializers.get(other)
        if other != name and np.ptp(right) and np.array_equal(numbers, array):
            same = isinstance(held, TensorProto) and np.array_equal(
                place.whole.model.array(held), right
            )
            return f"and {other!r} are exchanged" if same else f"is the other model's {other!r}"
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
