"""Mistakes in fused projections: Q, K and V, or their heads, in another order."""

from functools import partial

import numpy as np

from onnxsurgeon_lite.debug.causes.arrangement import taken
from onnxsurgeon_lite.debug.causes.constants import Order, fused_orders, together
from onnxsurgeon_lite.debug.causes.hypothesis import Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.place import Place
from onnxsurgeon_lite.passes import Insert, Pass
from onnxsurgeon_lite.tensors.dtypes import is_float

_CUTTING = ("Slice", "Gather")
_MOST = 4  # parts


def fused(place: Place) -> Hypotheses:
    """Yield other orders of the parts that a value is cut into: of the constants that make it, or of values."""
    cut = {name: parts for name in place.values if 1 < (parts := _parts(place, name)) <= _MOST}
    for parts in dict.fromkeys(cut.values()):
        yield from together(place, partial(fused_orders, parts=parts))
    for name in dict.fromkeys((*cut, *place.inputs)):
        value = place.values.get(name)
        if value is None or not is_float(value.dtype) or name not in place.live:
            continue
        for parts in dict.fromkeys((cut[name],) if name in cut else cut.values()):
            for first in range(max(0, value.ndim - 2), value.ndim):
                size = int(np.prod(value.shape[first:]))
                for how, order in fused_orders(size, parts) if size % parts == 0 else ():
                    yield _reordered(place, name, first, how, order)


def _parts(place: Place, name: str) -> int:
    """Return into how many parts nodes cut a value; 0 for none."""
    readers = dict.fromkeys(place.readers(name))
    split = [len(site.node.output) for site in readers if site.op_type == "Split"]
    cut = [
        s for s in readers if s.op_type in _CUTTING and s.input[0] == name == "".join(s.computed)
    ]
    return split[0] if split else len(cut)


def _reordered(place: Place, name: str, first: int, how: str, order: Order) -> Hypothesis:
    """Return the hypothesis that a value's last axes, from one on, are laid out as one in another order."""
    shape, to = place.values[name].shape, place.those(dict.fromkeys(place.readers(name)))
    last = range(first, len(shape))
    edits: tuple[Pass, ...] = (taken(name, first, order, to=to),)
    axes = f"axis {first}"
    if len(last) > 1:
        flat, ordered = f"{name}_flat", f"{name}_ordered"
        merged, again = (np.array([*[0] * first, *end]) for end in ([-1], shape[first:]))
        edits = (
            Insert(name, "Reshape", constants=(("flat", merged),), to=to, output=flat),
            taken(flat, first, order, output=ordered),
            Insert(ordered, "Reshape", constants=(("shape", again),)),
        )
        axes = f"axes {first} and {first + 1}"
    fixed = any(place.is_open(name, axis) for axis in last)
    sentence = f"{name!r} {how.replace('axis {axis}', axes)}"
    return Hypothesis("order of parts", sentence, edits, ("order of parts", how), fixed=fixed)
