"""Decide whether a value agrees with its reference: the rule of every command, and a user's own metric."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from math import inf, isfinite, isnan
from typing import Self, cast

import numpy as np
from onnx import NodeProto

from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.graph import GraphIndex, Quantizers
from onnxsurgeon_lite.graph.half import coarse_values
from onnxsurgeon_lite.model.messages import attributes_of
from onnxsurgeon_lite.names import calling, function_at
from onnxsurgeon_lite.runtime.session import Held
from onnxsurgeon_lite.tensors.comparison import OWN, Comparison, Tolerance, agrees, compare
from onnxsurgeon_lite.tensors.dtypes import (
    Array,
    DType,
    RunValue,
    RunValues,
    Stored,
    arrays_in,
    is_array,
    is_float,
    largest,
)
from onnxsurgeon_lite.tensors.grid import Grid, is_biased
from onnxsurgeon_lite.tensors.metrics import SHOWN
from onnxsurgeon_lite.tensors.references import ReferenceSet

LARGEST = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float8e4m3fn": 448.0}
_END = (
    0.99  # of the largest number of a dtype: from there on it may mean Inf, also with a score added
)
_ABSENT = np.empty((0,), dtype=object)
_SELECT = ("TopK", "ArgMax", "ArgMin", "NonMaxSuppression")
Values = RunValues
Pairs = Iterable[tuple[Values, Values]]
MetricFunction = (
    Callable[[Values, Values], float] | Callable[[Iterator[tuple[Values, Values]]], float]
)
"""(reference outputs, outputs) -> error; or with one parameter, an iterator of these of all samples -> error."""


@cache
def largest_of(dtype: DType) -> float | None:
    """Return the largest number of a dtype that overflows early."""
    return LARGEST.get(dtype.name)


@dataclass
class ValueRule:
    """The rule that decides whether a value agrees with its reference. Its mappings go by the name of the value.

    Attributes:
        tolerance: the user's, for all values or by name; None for the dtypes' own.
        coarse: value computed from half precision -> that dtype: it cannot be more precise.
        outputs: value that is compared in full, masks included -> its comparison, which a search keeps.
        quanta: value that a quantizer reads -> the quantizer's grid: being rounded to the other neighbor is no error.
        noise: value -> the error that was measured between two correct runs, which is allowed.
        share: the part of the tolerance of half precision that is allowed, 0 to 1.
        grids: quantized value -> its grid: both sides are rounded to the numbers of the grid before they are compared.
        selecting: value that holds indices -> the node that selects them.
        read: reads another value of the same run; returns None if there is none.
    """

    tolerance: Tolerance | None = None
    coarse: Mapping[str, DType] = field(default_factory=dict)
    outputs: dict[str, Comparison | None] = field(default_factory=dict)
    quanta: Mapping[str, Grid] = field(default_factory=dict)
    noise: Mapping[str, float] = field(default_factory=dict)
    share: float = 1.0
    grids: Mapping[str, Grid] = field(default_factory=dict)
    selecting: Mapping[str, NodeProto] = field(default_factory=dict)
    read: Callable[[str], RunValue] = lambda _: None

    @classmethod
    def of(cls, index: GraphIndex, tolerance: Tolerance | None = None) -> Self:
        """Return the rule for the values of a model."""
        outputs: dict[str, Comparison | None] = dict.fromkeys(index.outputs)
        # indices are the last output of these: TopK has values and indices, the others one output
        selecting = {n.output[-1]: n for n in index.nodes if n.op_type in _SELECT}
        grids = Quantizers.of(index).grids
        return cls(tolerance, coarse_values(index), outputs, grids, selecting=selecting)

    def for_references(self, references: ReferenceSet) -> Self:
        """Return the rule for these references, whose own half precision is allowed for, too."""
        theirs = {
            name: entry.computed_in
            for name, entry in references.entries.items()
            if entry.computed_in
        }
        return replace(self, coarse={**theirs, **self.coarse})

    def allowed(self, name: str, actual: RunValue | Held) -> Tolerance | None:
        """Return the tolerance of a value; None for that of its dtypes."""
        # what the user asked for decides, unless it asks for the dtypes' own tolerances
        asked = None if self.tolerance is None else self.tolerance.of(name)
        if asked is not None and not asked.own:
            return asked
        # what was measured comes before what is usual
        if (error := self.noise.get(name)) is not None:
            return replace(asked or OWN, atol=error, rtol=0.0, own=False, columns=False)
        # columns of an output may differ by orders of magnitude: then each has an `atol` of its own
        own = replace(asked or OWN, columns=name in self.outputs)
        # only a float that half precision went into gets the tolerance of half precision
        coarse = self.coarse.get(name)
        if (
            coarse is None
            or not isinstance(actual, np.ndarray | Held)
            or not is_float(actual.dtype)
        ):
            return own if asked or own.columns else None
        usual = own.resolved(actual.dtype, coarse)
        return replace(usual, atol=usual.atol * self.share, rtol=usual.rtol * self.share)

    def agrees(self, name: str, actual: RunValue, reference: Stored) -> bool:
        """Return the verdict alone."""
        pairs = self._pairs(name, actual, reference)
        return all(agrees(a, r, self.allowed(name, a)) for a, r in pairs)

    def each(
        self,
        name: str,
        actual: RunValue,
        reference: RunValue,
        metrics: tuple[str, ...] = SHOWN,
    ) -> dict[str, Comparison]:
        """Compare a tensor, or each tensor of a sequence; an absent optional equals only another absent one."""
        pairs = self._pairs(name, actual, reference)
        single = is_array(actual) and is_array(reference)
        found = {}
        for number, (a, r) in enumerate(pairs or [(_ABSENT, _ABSENT)]):
            full = name if single or not pairs else f"{name}[{number}]"
            one = found[full] = compare(a, r, self.allowed(name, a), metrics)
            self._judge_in_quanta(name, one, a, r)
            self._judge_selected(name, one, a, r)
            same = _all_alike(r) if one.match and name in self.outputs else ""
            if same:
                one.notes.append(f"{same}{PROVES_LITTLE}")
        return found

    def compared(
        self,
        name: str,
        actual: RunValue,
        reference: Stored,
        metrics: tuple[str, ...] = SHOWN,
    ) -> Comparison:
        """Compare a tensor; of a sequence return a mismatching element's comparison."""
        found = self.each(name, actual, reference, metrics)
        return min(found.values(), key=lambda comparison: comparison.match)

    def seen(self, name: str, value: RunValue) -> RunValue:
        """Return a value as it is compared: of a quantized one, the nearest numbers that it can be."""
        grid = self.grids.get(name)
        if grid is None or not is_array(value) or not grid.fits(value.shape):
            return value
        return grid.rounded(value).astype(np.float32)

    def _pairs(self, name: str, actual: RunValue, reference: RunValue) -> list[tuple[Array, Array]]:
        """Pair the tensors to compare; what only one side has is paired with nothing."""
        # `seen` puts values on their grid, so that two numbers of one quantum are equal
        ours, theirs = (arrays_in(self.seen(name, value)) for value in (actual, reference))
        count = max(len(ours), len(theirs))
        sides = [side + ([_ABSENT] * (count - len(side))) for side in (ours, theirs)]
        pairs = [(a, _in_range_of(a, r)) for a, r in zip(*sides, strict=True)]
        return pairs if name in self.outputs else [(a, _masked_as(a, r)) for a, r in pairs]

    def _judge_in_quanta(
        self, name: str, comparison: Comparison, actual: Array, stored: Array
    ) -> None:
        """Say how far a value is off after its quantizer; one quantum without a bias is rounding."""
        grid = self.quanta.get(name)
        if grid is None or comparison.reason != "values" or not grid.fits(stored.shape):
            return
        # the reference is on the grid already: rounding explains no difference
        if grid.holds(stored):
            return
        # both sides in quanta: integers, so `off` counts steps of the quantizer
        off = grid.integers(actual) - grid.integers(stored)
        far = int((np.abs(off) > 1).sum())
        cut = int(grid.outside(stored).sum())
        said = (
            f"after the quantizer: off by at most {np.abs(off).max():g} of its quanta, {off.mean():+.3g} on average, "
            f"{far} of {off.size} elements by more than one; {cut} saturated ({100 * cut / off.size:.3g}%)"
        )
        # rounding to a neighbor is accepted only without a tolerance of the user's, saturation or a bias
        asked = self.tolerance is not None and not self.tolerance.of(name).own
        if not asked and not far and not cut and not is_biased(off):
            # two numbers that are rounded to neighbors are less than two quanta apart
            comparison.clear(said, 2 * float(grid.quantum(stored.shape).max()))
        else:
            comparison.notes.append(said)

    def _judge_selected(
        self, name: str, comparison: Comparison, actual: Array, stored: Array
    ) -> None:
        """Let indices differ where the values that they select agree."""
        node = self.selecting.get(name)
        if node is None or comparison.reason != "values":
            return
        source = selected_from(node)
        pair = selected(node, self.read(source), actual, stored)
        if pair is not None and agrees(*pair, self.allowed(source, pair[0])):
            comparison.clear(SELECTED, comparison.max_abs)


PROVES_LITTLE = ", which proves little; give other feeds"
SELECTED = "the indices differ, but the selected values agree"


def _all_alike(reference: Array) -> str:
    """Return what a faulty model gives as easily as a right one; '' if it is anything else."""
    if not reference.size:
        return "it has no elements"
    if not is_float(reference.dtype):
        return ""
    if np.isnan(reference.flat[0]) and np.isnan(reference).all():
        return "all numbers are NaN"
    return "" if reference.any() else "all numbers are 0"


def selected_from(node: NodeProto) -> str:
    """Return the value that a node selects from, '' if it selects nothing."""
    if node.op_type not in _SELECT:
        return ""
    name: str = node.input[1 if node.op_type == "NonMaxSuppression" else 0]
    return name


def selected(
    node: NodeProto, data: RunValue, actual: Array, reference: Array
) -> tuple[Array, Array] | None:
    """Return what a node selects from its actual input by the indices of both sides; None of other values."""
    if not is_array(data) or actual.shape != reference.shape:
        return None
    if actual.dtype.kind not in "iu" or reference.dtype.kind not in "iu":
        return None
    try:
        return _taken(node, data, actual), _taken(node, data, reference)
    except IndexError:
        return None


def _taken(node: NodeProto, data: Array, at: Array) -> Array:
    if node.op_type == "NonMaxSuppression":  # rows of batch, class, box
        # each row of `at` is one index into data
        return np.asarray(data[tuple(at.astype(np.int64).T)])
    attributes = attributes_of(node)
    axis = attributes.get("axis", -1 if node.op_type == "TopK" else 0)
    if node.op_type != "TopK" and not attributes.get("keepdims", 1):
        at = np.expand_dims(at, axis)
    return np.take_along_axis(data, at.astype(np.int64), axis)


def _in_range_of(actual: Array, reference: Array) -> Array:
    """Return a reference in which numbers that half precision cannot hold agree with the end of its range.

    Only where the model computed the end of the range.
    """
    largest = largest_of(actual.dtype)
    if largest is None or actual.shape != reference.shape or not is_float(reference.dtype):
        return reference
    # the model computed the end of the range where the reference has a larger number of the same sign
    ends = np.abs(actual) == actual.dtype.type(largest)
    beyond = ends & (np.abs(reference) > largest) & (np.sign(reference) == np.sign(actual))
    return (
        np.where(beyond, actual.astype(reference.dtype), reference) if beyond.any() else reference
    )


def _masked_as(actual: Array, reference: Array) -> Array:
    """Return a reference whose masks agree with those of a value.

    One exporter masks by Inf, another by the largest number of the dtype.
    """
    same_kind = actual.dtype == reference.dtype and actual.shape == reference.shape
    if not same_kind or actual.dtype.kind != "f":
        return reference
    with np.errstate(all="ignore"):
        # a sum is finite only if every element is: one pass for the usual case
        if np.isfinite(actual.sum() + reference.sum()):  # no Inf, in the time of reading them
            return reference
    end = _END * largest(actual.dtype)
    ends = (np.abs(actual) >= end) & (np.abs(reference) >= end)
    masked = ends & (np.isinf(actual) != np.isinf(reference))
    return np.where(masked & (np.sign(actual) == np.sign(reference)), actual, reference)


@dataclass(frozen=True)
class Metric:
    """A user's function that measures the error of outputs, and the largest error that is allowed.

    Attributes:
        limit: the largest error that is allowed.
        whole: the function takes the pairs of all samples, as mAP needs; otherwise the outputs of one.
    """

    name: str
    function: Callable[..., object]
    limit: float
    whole: bool = False

    @classmethod
    def of(cls, given: "str | MetricFunction", limit: float | None) -> "Metric":
        """Return the metric of a function, or of `FILE.py:function`.

        Raises:
            UsageError: there is no such function, it takes other arguments, or the limit is no number.
        """
        function = function_at(given, "metric") if isinstance(given, str) else given
        name = getattr(function, "__name__", "metric")
        if limit is not None and not (isfinite(limit) and limit >= 0):
            raise UsageError(f"{limit} is no limit", "write --tolerance 0.01")
        with calling(name):
            count = len(inspect.signature(function).parameters)
        if count not in (1, 2):
            raise UsageError(
                f"metric {name!r} takes {count} arguments",
                "write fn(reference, actual) for a sample, or fn(pairs) for all of them",
            )
        return cls(name, function, limit or 0.0, count == 1)

    def of_sample(self, reference: Values, actual: Values) -> float:
        """Return the error of one sample."""
        # a metric of all samples takes an iterator, here of a single pair
        given = (iter([(reference, actual)]),) if self.whole else (reference, actual)
        with calling(self.name):
            return _error(self.function(*given))

    def of_all(self, pairs: Pairs) -> float:
        """Return the error of all samples: that of their pairs together if `whole`, else the largest of one."""
        if not self.whole:
            return max((self.of_sample(*pair) for pair in pairs), default=0.0)
        with calling(self.name):
            return _error(self.function(iter(pairs)))


def _error(found: object) -> float:
    """Return what a metric said as a number; NaN is as wrong as can be."""
    error = float(cast(float, found))
    return inf if isnan(error) else error
