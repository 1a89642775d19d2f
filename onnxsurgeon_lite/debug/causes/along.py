"""What is computed along axes, as ONNX text: a normalization or a reduction that is missing, or another one."""

import re
from collections.abc import Iterator
from functools import partial
from itertools import chain, combinations

import numpy as np

from onnxsurgeon_lite.debug.causes.hypothesis import MISTAKES, Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.operations import composed, edges, put_in, spans
from onnxsurgeon_lite.debug.causes.place import Ints, Place, RegionNode, who
from onnxsurgeon_lite.passes import Pass
from onnxsurgeon_lite.tensors.dtypes import Array, has_floats

_LUMINANCE = 0.299, 0.587, 0.114  # ITU-R BT.601, of red, green and blue
_AXES_READ = 18  # the opset since which reductions read their axes
_ALONG = re.compile("Reduce|Softmax|Normalization|Pool|Gather|Slice")
_BROADCASTING = {"Add", "Sub", "Mul", "Div"}
_MOST = np.iinfo(np.int64).max
_PARTS = {
    "first": [0],
    "second": [1],
    "end": [-1],
    "most": [_MOST],
    "begin": [-_MOST],
    "back": [-1],
}
_REDUCTION = re.compile(r"(Reduce\w+)\((\w+), (\w+)\)")


def missing_along(place: Place) -> Hypotheses:
    """Yield what is missing along axes, after the last node or between a value and what reads it."""
    last = [(place.value, place.actual, list[RegionNode]())] if has_floats(place.actual) else []
    for name, array, readers in chain(last, edges(place)):
        # a reduced value fits where it is broadcast
        steps = [(*step, array) for step in _kept(array)]
        joins = readers and _BROADCASTING.issuperset(reader.op_type for reader in readers)
        for axis in range(array.ndim) if joins else ():
            first = np.take(array, [0], axis)
            steps += ((*step, first) for step in _choices(array, first) if first.size < array.size)
        where = f"between {name!r} and {who(readers)}" if readers else f"behind {place.maker}"
        for title, nodes, axes, made in steps:
            computed = partial(_computed, place, nodes=nodes, axes=axes, given=array, made=made)
            edits = put_in(name, computed, place.those(readers), not readers)
            sentence = f"{title} is missing {where}; with it"
            yield Hypothesis("missing operation", sentence, edits, ("along", title, axes))


def other_along(place: Place) -> Hypotheses:
    """Yield other normalizations and reductions in place of what computes a value from another one alone."""
    for start, end, operators in spans(place):
        if not any(map(_ALONG.search, operators)):
            continue
        given, made = place.values[start], place.values[end]
        for title, nodes, axes in _choices(given, made):
            edit = _computed(place, start, end, nodes, axes, given, made)
            sentence = f"what computes {end!r} from {start!r} is not {title}; with that"
            yield Hypothesis("operation", sentence, (edit,), ("along", title, axes))


def _choices(given: Array, made: Array) -> Iterator[tuple[str, str, Ints]]:
    """Yield (title, nodes, axes) of what can make a value of the shape of another."""
    if given.shape == made.shape:
        yield from _kept(given)
        return
    axes, keeps = _reduced_axes(given.shape, made.shape)
    for title, nodes in MISTAKES["reduced"].items() if axes else ():
        sizes = [given.shape[axis] for axis in axes]
        if ("colors" not in nodes or sizes == [3]) and ("Slice" not in nodes or len(axes) == 1):
            # a reduction keeps its axes unless it says that it does not
            whole = nodes if keeps else f"{nodes.replace('y =', 'k =')} y = Reshape(k, shape)"
            yield f"{title} along {_axes(axes)}", whole, axes


def _kept(array: Array) -> Iterator[tuple[str, str, Ints]]:
    """Yield (title, nodes, axes) of what keeps the shape of a value."""
    every = tuple(range(array.ndim))
    several = [every[first:] for first in (1, 2) if len(every) > first + 1]
    for axes in [(axis,) for axis in reversed(every) if array.shape[axis] > 1] + several:
        for title, nodes in MISTAKES["along"].items():
            if len(axes) == 1 or not re.search(r"\{axis}|back", nodes):
                yield f"{title} along {_axes(axes)}", nodes, axes
    if array.ndim > 1 and 1 < array.shape[-1] == array.shape[-2]:
        yield from ((title, nodes, every[-2:]) for title, nodes in MISTAKES["square"].items())


def _axes(axes: Ints) -> str:
    return f"axis {axes[0]}" if len(axes) == 1 else f"axes {list(axes)}"


def _reduced_axes(given: Ints, made: Ints) -> tuple[Ints, bool]:
    """Return (the axes along which a shape is reduced to another, whether they are kept); () for none."""
    rank = len(given)
    for number in (1, 2, 3):
        for axes in combinations(range(rank), number):
            if tuple(1 if a in axes else size for a, size in enumerate(given)) == made:
                return axes, True
            if tuple(size for a, size in enumerate(given) if a not in axes) == made:
                return axes, False
    return (), False


def _computed(
    place: Place, start: str, end: str, nodes: str, axes: Ints, given: Array, made: Array
) -> Pass:
    """Return the edit that computes a value from another by nodes."""
    rank, dtype = given.ndim, given.dtype
    shape = [-1 if a in axes else 1 for a in range(rank)]
    integers = {"axes": axes, "last": [rank - 1], "shape": made.shape} | _PARTS
    floats = {
        **MISTAKES["numbers"],
        "colors": np.reshape(_LUMINANCE, shape) if "colors" in nodes else 0.0,
    }
    numbers = {name: np.array(value, np.int64) for name, value in integers.items()}
    perm = [*range(rank - 2), rank - 1, rank - 2]
    text = nodes.format(axis=axes[0], axes=list(axes), perm=perm)
    if place.opset < _AXES_READ:

        def attribute(found: re.Match[str]) -> str:
            operator, value, named = found.groups()
            if operator == "ReduceSum" and place.opset >= 13:
                return found[0]
            return f"{operator} <axes = {numbers[named].tolist()}> ({value})"

        text = _REDUCTION.sub(attribute, text)
    numbers |= {name: np.asarray(value, dtype) for name, value in floats.items()}
    return composed(place, start, end, given, text, numbers, result=made)
