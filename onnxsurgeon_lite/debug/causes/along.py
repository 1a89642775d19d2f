"""What is computed along axes, as ONNX text: a normalization or a reduction that is missing, or another one."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
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
_PARTS = {"first": [0], "second": [1], "end": [-1], "most": [_MOST], "begin": [-_MOST], "back": [-1]}  # fmt: skip
_REDUCTION = re.compile(r"(Reduce\w+|Squeeze)\((\w+), (\w+)\)")
_ROWS = list(
    chain.from_iterable(MISTAKES[name].values() for name in ("along", "square", "reduced"))
)
"""The nodes of all steps, what people use most first."""


@dataclass(frozen=True, eq=False)
class _AlongAxes:
    """What nodes make of a value along axes.

    Attributes:
        nodes: from `x` to `y`, as ONNX text.
        given: the value. made: one of the shape that it gets.
    """

    place: Place
    title: str
    nodes: str
    axes: Ints
    given: Array
    made: Array

    def __str__(self) -> str:
        if self.nodes in MISTAKES["square"].values():
            return self.title
        along = f"axis {self.axes[0]}" if len(self.axes) == 1 else f"axes {list(self.axes)}"
        return f"{self.title} along {along}"

    @property
    def mistake(self) -> tuple[object, ...]:
        return "along", str(self)

    def edit(self, start: str, end: str) -> Pass:
        """Return the edit that computes one value from another so."""
        given, made, axes = self.given, self.made, self.axes
        rank = given.ndim
        # a reduction keeps its axes unless it says that it does not
        text = (
            self.nodes
            if made.ndim == rank
            else f"{self.nodes.replace('y =', 'k =')} y = Squeeze(k, axes)"
        )
        perm = list(range(rank))
        perm[-2:] = perm[:-3:-1]  # rows and columns exchanged
        text = text.format(axis=axes[0], axes=list(axes), perm=perm)
        integers = {"axes": axes, "last": [rank - 1]} | _PARTS
        numbers = {name: np.array(value, np.int64) for name, value in integers.items()}
        # older reductions have their axes as an attribute
        if self.place.opset < _AXES_READ:

            def attribute(found: re.Match[str]) -> str:
                operator, value, named = found.groups()
                if operator in ("ReduceSum", "Squeeze") and self.place.opset >= 13:
                    return found[0]
                return f"{operator} <axes = {numbers[named].tolist()}> ({value})"

            text = _REDUCTION.sub(attribute, text)
        # numbers in the dtype of the value, so that no Cast is needed
        floats = dict(MISTAKES["numbers"])
        if "colors" in text:
            floats["colors"] = np.reshape(_LUMINANCE, [-1 if a in axes else 1 for a in range(rank)])
        numbers |= {name: np.asarray(value, given.dtype) for name, value in floats.items()}
        return composed(self.place, start, end, given, text, numbers, result=made)


def missing_along(place: Place) -> Hypotheses:
    """Yield normalizations and reductions that are missing after the last node, or before the readers of a value."""
    # every step at every edge, before they are put in order
    found = list[tuple[_AlongAxes, str, list[RegionNode]]]()
    last = [(place.value, place.actual, list[RegionNode]())] if has_floats(place.actual) else []
    for name, array, readers in chain(last, edges(place)):
        found += ((step, name, readers) for step in _kept(place, array))
        # a reduced value fits where it is broadcast
        joins = readers and _BROADCASTING.issuperset(reader.op_type for reader in readers)
        for axis in range(1, array.ndim) if joins else ():
            steps = _choices(place, array, np.take(array, [0], axis))
            found += (
                (step, name, readers) for step in steps if step.nodes.startswith("y = Reduce")
            )
    # what people use most comes first, wherever it may be missing
    for step, name, readers in sorted(found, key=lambda each: _ROWS.index(each[0].nodes)):
        where = f"between {name!r} and {who(readers)}" if readers else f"behind {place.maker}"
        edits = put_in(name, step.edit, place.those(readers), not readers)
        yield Hypothesis(
            "missing operation", f"{step} is missing {where}; with it", edits, step.mistake
        )


def other_along(place: Place) -> Hypotheses:
    """Yield other normalizations and reductions in place of what computes a value from another one alone."""
    for start, end, operators in spans(place):
        if any(map(_ALONG.search, operators)):
            for step in _choices(place, place.values[start], place.values[end]):
                sentence = f"what computes {end!r} from {start!r} is not {step}; with that"
                yield Hypothesis("operation", sentence, (step.edit(start, end),), step.mistake)


def _choices(place: Place, given: Array, made: Array) -> Iterator[_AlongAxes]:
    """Yield what can make a value of the shape of another."""
    # of one shape each step may stand, else what reduces the axes that are gone
    if given.shape == made.shape:
        yield from _kept(place, given)
        return
    axes = _reduced_axes(given.shape, made.shape)
    for title, nodes in MISTAKES["reduced"].items() if axes else ():
        sizes = [given.shape[axis] for axis in axes]
        if ("colors" not in nodes or sizes == [3]) and ("Slice" not in nodes or len(axes) == 1):
            yield _AlongAxes(place, title, nodes, axes, given, made)


def _kept(place: Place, array: Array) -> Iterator[_AlongAxes]:
    """Yield what keeps the shape of a value: along an axis, all of an example, all of a channel."""
    every = tuple(range(array.ndim))
    several = [every[first:] for first in (1, 2) if len(every) > first + 1]
    # neither batches nor heights are normalized alone
    alone = every if array.ndim < 3 else (1, array.ndim - 1)
    for axes in dict.fromkeys([(axis,) for axis in alone if array.shape[axis] > 1] + several):
        for title, nodes in MISTAKES["along"].items():
            if len(axes) == 1 or not re.search(r"\{axis}|back", nodes):
                yield _AlongAxes(place, title, nodes, axes, array, array)
    if array.ndim > 1 and 1 < array.shape[-1] == array.shape[-2]:
        for title, nodes in MISTAKES["square"].items():
            yield _AlongAxes(place, title, nodes, every[-2:], array, array)


def _reduced_axes(given: Ints, made: Ints) -> Ints:
    """Return the axes along which a shape is reduced to another, kept or not; () for none."""
    for number in (1, 2, 3):
        for axes in combinations(range(len(given)), number):
            kept = tuple(1 if a in axes else size for a, size in enumerate(given))
            left = tuple(size for a, size in enumerate(given) if a not in axes)
            if made in (kept, left):
                return axes
    return ()
