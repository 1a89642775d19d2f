"""Find the nodes of a quantized model whose error rounding does not explain."""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
from onnx import ModelProto

from onnxsurgeon_lite.debug.bisection.quantized.expanding import is_bias_scale
from onnxsurgeon_lite.debug.bisection.quantized.grids import (
    Parameter,
    UnlikeBias,
    parameters_of,
    saturations,
    scale_of,
    steps_to,
    unlike_biases,
    unlike_pairs,
    unlike_weights,
)
from onnxsurgeon_lite.debug.bisection.quantized.isolated import FloatValues, Isolated
from onnxsurgeon_lite.debug.bisection.quantized.shaking import Errors, shaken, shifted
from onnxsurgeon_lite.debug.result import Finding, Verdict
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.quantizers import DEQUANTIZE, QUANTIZE
from onnxsurgeon_lite.passes.set_constant import SetConstant
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.shown import Progress
from onnxsurgeon_lite.tensors.comparison import OWN, Tolerance
from onnxsurgeon_lite.tensors.dtypes import Array, Stored, Wide, is_array, peak, rms, wide
from onnxsurgeon_lite.tensors.grid import Grid

_RUNS = 8  # with noise
_CHANNELED = {"Conv", "ConvTranspose"}  # their channels are axis 1
_BELOW = 0.1  # quanta that do not matter
_CLOSE = 0.05  # errors that differ by a smaller share do not distinguish scales
_SPARSE = 0.1  # a channel's correction below this share of the largest is noise


@dataclass
class Fault:
    """A value that is wrong although what it is computed from is right.

    Attributes:
        position: the node that is wrong.
        findings: why; empty if no scale and no zero point explains it.
        pair: another node that may be the wrong one.
    """

    value: str
    position: int
    findings: list[Finding] = field(default_factory=list)
    pair: int | None = None


@dataclass
class Floor:
    """What rounding makes of a value.

    Attributes:
        noise: measures of the differences that rounding makes, one for each run.
        shifts: what zero points that are one off make of it. largest: the largest difference.
        allowed: an error of the runtime's own arithmetic.
    """

    shifts: list[Wide] = field(default_factory=list)
    noise: list[Errors] = field(default_factory=list)
    largest: float = 0.0
    allowed: float = 0.0


@dataclass
class Floors:
    """Tells errors from what rounding makes of values.

    Attributes:
        of: the floor of each value that was shaken.
    """

    values: FloatValues
    tolerance: Tolerance | None
    of: dict[str, Floor] = field(default_factory=dict)

    def shake(self, part: Isolated, model: ModelProto, actual: Mapping[str, Stored]) -> None:
        """Measure what rounding makes of the values of a part."""
        floors = {name: Floor() for name in part.names}
        # how the value moves if zero points are one off: errors in this direction are measured by themselves
        for constants in (True, False):
            other = next(part.run(shifted(model, self.values.quantizers, constants)))
            for name, floor in floors.items():
                pair = self._moved(name, other[name], actual[name])
                moved = None if pair is None else _difference(*pair)
                if moved is not None and moved.any():
                    floor.shifts.append(moved)
        for other in part.run(*shaken(model, self.values.quantizers, _RUNS)):
            for name, floor in floors.items():
                pair = self._moved(name, other[name], actual[name])
                reference = self.values.read(name)
                if pair is None or not is_array(reference):
                    continue
                moved = _difference(*pair)
                if moved.shape == reference.shape:
                    seen = _finite(_seen(self.values.quantizers.grids.get(name), reference))
                    floor.noise.append(Errors.of(moved, seen, self.axis(name), floor.shifts))
                floor.largest = max(floor.largest, peak(moved))
        self.of |= floors

    def _moved(self, name: str, other: Stored, actual: Stored) -> tuple[Wide, Wide] | None:
        """Return a value that was shaken, and the value; around the reference where only that is in range.

        What is out of range is cut off, and so is what shakes it.
        """
        pair, reference = self.pair(name, other, actual), self.values.read(name)
        grid = self.values.quantizers.grids.get(name)
        if pair is None or grid is None or not is_array(reference):
            return pair
        value, wanted = np.asarray(actual, np.float64), wide(reference)
        if wanted.shape != value.shape:
            return pair
        low, high = grid.range(value.shape)
        # An actual value out of range would hide the noise: both ends of it are cut off. Where the reference is inside,
        # look at the noise around the reference.
        is_out, is_inside = (value < low) | (value > high), (wanted > low) & (wanted < high)
        at = np.where(is_out & is_inside, wanted, value)
        with np.errstate(invalid="ignore"):
            moved = at + np.asarray(other, np.float64) - value
        return grid.clipped(moved), grid.clipped(at)

    def pair(
        self, name: str, one: Stored, other: Stored, grid: Grid | None = None
    ) -> tuple[Wide, Wide] | None:
        """Return two values as they are compared; None if they cannot be."""
        if not is_array(one) or not is_array(other):
            return None
        if one.shape != other.shape or one.dtype.kind in "OUSb":
            return None
        grid = grid or self.values.quantizers.grids.get(name)
        return _seen(grid, one), _seen(grid, other)

    def excess(self, name: str, actual: Stored, grid: Grid | None = None) -> float:
        """Return how far a value is above what rounding makes of it; at most 1 if it is right."""
        expected = self.values.read(name)
        pair = self.pair(name, actual, expected, grid)
        if pair is None:
            return 0.0 if _equal(actual, expected) else float("inf")
        value, reference = pair
        # NaN or Inf on one side alone is no rounding
        if not np.array_equal(np.isfinite(value), np.isfinite(reference)):
            return float("inf")
        error, reference = _difference(value, reference), _finite(reference)
        floor = self.of[name]
        measured = Errors.of(error, reference, self.axis(name), floor.shifts)
        size = rms(reference)
        assert is_array(actual)
        assert is_array(expected)
        floor.allowed = self._allowed(name, actual, expected, size)
        still = Errors.of(np.zeros_like(error), reference, self.axis(name), floor.shifts)
        # nothing quantized: rounding makes nothing, only `allowed` counts
        noise = floor.noise or [still]
        return measured.excess(noise, floor.allowed, size, error.size)

    def _allowed(self, name: str, actual: Array, expected: Array, size: float) -> float:
        """Return an error that is none: one of the runtime's arithmetic, or far below a quantum."""
        tolerance = (self.tolerance or OWN).resolved(actual.dtype, expected.dtype)
        largest = peak(_finite(expected))
        grid = self.values.quantizers.grids.get(name)
        quantum = 0.0 if grid is None else float(np.median(grid.quantum(actual.shape)))
        return max(tolerance.absolute(largest) + tolerance.rtol * size, _BELOW * quantum)

    def axis(self, name: str) -> int:
        """Return the axis of the channels of a value."""
        nodes = self.values.index.nodes
        ops = {nodes[position].op_type for position in self.values.region(name)}
        return 1 if ops & _CHANNELED else -1


@dataclass
class Examination:
    """Compares each value, computed from the values of the float model, with the reference in its own quantization.

    Attributes:
        theirs: the float model, if it is at hand.
        budget: bytes of values that are computed at once.
        floors: what rounding makes of each examined value.
        notes: quantizers whose range is a little too narrow.
    """

    values: FloatValues
    observer: Observer
    theirs: GraphIndex | None
    tolerance: Tolerance | None
    budget: int
    progress: Progress
    floors: Floors = field(init=False)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.floors = Floors(self.values, self.tolerance)

    def faults(self) -> list[Fault]:
        """Return the faults in topological order; of two that are one, the one that the constants prove."""
        index = self.values.index
        found = list(self._wrong_values())
        # `sure`: faults that constants and references prove without a run, with their reasons
        pairs = {s.value: s for s in unlike_pairs(self.values)}
        sure = [Fault(s.value, s.position, [s.finding], s.pair) for s in pairs.values()]
        saturated = list(self._saturated({fault.value for fault in found}))
        # scales and zero points that a wider range already sets: not to be found again as a bias's fault
        narrow = set(chain.from_iterable(map(_names_set, saturated)))
        for unlike in unlike_biases(self.values):
            sure += self._of_bias(unlike, narrow) if unlike.operands[0] not in pairs else ()
        if self.theirs is not None:
            suspects = unlike_weights(index, self.values, self.theirs)
            sure += [Fault(s.value, s.position, [s.finding]) for s in suspects]
        sure += saturated
        # drop wrong values that a proven fault in their region explains, then join the faults of one node
        by_node = dict[int, Fault]()
        proven = {fault.position for fault in sure}
        # a quantizer that reads a saturated value, or a constant that is set, belongs to a proven fault
        cut = {fault.value for fault in saturated} | narrow
        quantizers = [p for p, node in enumerate(index.nodes) if node.op_type == QUANTIZE]
        proven |= {p for p in quantizers if not cut.isdisjoint(index.nodes[p].input)}
        region = self.values.region
        found = [f for f in found if not proven & region(f.value) - {f.position}]
        for fault in sure + found:
            first = by_node.setdefault(fault.position, fault)
            first.findings += fault.findings if first is not fault else []
        for fault in found:
            # only these need the search for the number that fits: it runs the region many times
            if not by_node[fault.position].findings:
                fault.findings = self._why(fault.value)
        return _one_each(sorted(by_node.values(), key=lambda fault: index.places[fault.position]))

    def _wrong_values(self) -> Iterator[Fault]:
        done = 0
        for names in self._chunks():
            self.progress(f"{done} of {len(self.values.computed)} values compared")
            part = Isolated(self.values, self.observer, names)
            # one part computes as many values as fit into the budget, each from references
            self.values.hold(chain(part.inputs, names))
            actual = next(part.run(part.part()))
            # first the floor of each value: what rounding alone makes; then how far the value is above it
            self.floors.shake(part, part.part(), actual)
            producer = self.values.index.producer
            wrong = [name for name in names if self.floors.excess(name, actual[name]) > 1]
            for name in set(names) - set(wrong):
                self.floors.of[name].shifts = []  # as large as the value
            yield from (Fault(n, producer[n]) for n in wrong if not self._is_right_uncut(n))
            done += len(names)

    def _is_right_uncut(self, name: str) -> bool:
        """Return whether a value is right when nothing is cut off its operands: they are saturated, then."""
        self.values.cuts = False
        try:
            part = Isolated(self.values, self.observer, [name])
            return self.floors.excess(name, next(part.run(part.part()))[name]) <= 1
        finally:
            self.values.cuts = True

    def _chunks(self) -> Iterator[list[str]]:
        names, size = list[str](), 0
        for name in self.values.computed:
            if names and size > self.budget:
                yield names
                names, size = [], 0
            names.append(name)
            size += self.values.references.entries[self.values.known[name]].size
        if names:
            yield names

    def _saturated(self, wrong: Container[str]) -> Iterator[Fault]:
        """Yield quantizers that cut much of the reference off, unless they are of another value; note the others."""
        producer, behind = self.values.index.producer, self.values.quantizers.behind
        little = []
        for found in saturations(self.values):
            if behind.get(found.value, found.value) in wrong:
                continue
            if found.fault:
                # the edits give the quantizer the range that it needs
                numbers = zip(found.node.input[1:], (found.scale, found.zero), strict=False)
                edits = tuple(SetConstant(name, number) for name, number in numbers if name)
                finding = Finding("saturated", found.because, edits)
                made = found.value if found.value in producer else found.node.output[0]
                yield Fault(made, producer[made], [finding])
            else:
                little.append(found)
        if little:
            most = max(little, key=lambda found: found.outside / found.elements)
            count = f"{len(little)} value{'s are' * (len(little) > 1) or ' is'}"
            self.notes.append(f"{count} saturated a little, most {most.value!r}: {most.because}")

    def _of_bias(self, unlike: UnlikeBias, narrow: Container[str]) -> Iterator[Fault]:
        """Yield the fault whose correction brings the node closest to the reference: its weight, bias or input.

        Where it may be an input whose range is too narrow, that is found already.
        """
        index, quantizers = self.values.index, self.values.quantizers
        node = index.nodes[unlike.position]
        x, weight, bias = unlike.operands
        made = node.output[0]
        # The bias's scale is `ratio` times input scale * weight scale. One of the three is wrong: correct each alone,
        # and see which correction leaves the least error.
        factors = {
            x: np.asarray(np.median(unlike.ratio)),
            weight: unlike.ratio,
            bias: 1 / unlike.ratio,
        }
        left = {name: self._left(made, name, factors[name]) for name in (weight, bias)}
        left[x] = self._left(made)  # both its quantizers have the same scale
        least = min(left.values())
        # all that come about as close
        wrong, *others = (
            name
            for name in sorted(left, key=left.__getitem__)
            if left[name] <= (1 + _CLOSE) * least
        )
        position = unlike.position
        # the input's quantizer is at fault, not the node that reads it
        if wrong == x and not others:
            source = quantizers.sources.get(x, x)
            made = source if source in index.producer else x
            position = index.producer[made]
        why = f"fits: the bias of {node.op_type} {node.name!r} was quantized with it"
        parameter = scale_of(index, wrong)
        numbers = parameter.scaled(factors[wrong])
        because, edits = parameter.because(numbers, why), parameter.edit(numbers)
        if wrong == x:  # what quantizes has this scale, too
            edits = (SetConstant(parameter.name, float(np.median(numbers))),)
        if others and scale_of(index, x).name in narrow:
            return
        if others:
            shown = ", ".join(repr(scale_of(index, name).name) for name in (wrong, *others))
            edits = ()
            because = (
                f"the scale of the bias is x{np.median(unlike.ratio):.4g} the product of the others; "
                f"which of {shown} is wrong is not known, as its effect is below the rounding"
            )
        yield Fault(made, position, [Finding("wrong scale", because, edits)])

    def _left(self, name: str, scaled: str = "", factor: Wide | None = None) -> float:
        """Return the error that is left when what one DequantizeLinear makes has another scale.

        It is measured at a value, or at the next one behind it that has a reference.
        """
        position = self.values.index.producer[name]
        # the first value that can be compared, as the value itself may have no reference
        regions = (n for n in self.values.computed if position in self.values.region(n))
        name = next(regions, "")
        if not name:
            return 0.0
        isolated = Isolated(self.values, self.observer, [name])
        part = isolated.part()
        if factor is not None:
            parameter = scale_of(self.values.index, scaled)
            part = parameter.put(part, parameter.scaled(factor))
        pair = self.floors.pair(name, next(isolated.run(part))[name], self.values.read(name))
        return rms(_difference(*pair)) if pair else float("inf")

    def _why(self, name: str) -> list[Finding]:
        """Return the scale or zero point that is wrong, if another one explains the reference."""
        index, floor = self.values.index, self.floors.of[name]
        isolated = Isolated(self.values, self.observer, [name])
        part = isolated.part()
        actual = next(isolated.run(part))[name]
        nodes = [index.nodes[position] for position in isolated.positions]
        dequantizers = [n for n in nodes if n.op_type == DEQUANTIZE or is_bias_scale(n)]
        fits = [
            found
            for parameter in parameters_of(index, dequantizers)
            if (found := self._fit(isolated, part, parameter, name, actual)) is not None
        ]
        self.floors.of[name] = floor
        fits += self._zero_behind(name, actual)
        return [min(fits, key=lambda fit: fit[0])[1]] if fits else []

    def _fit(
        self, isolated: Isolated, part: ModelProto, parameter: Parameter, name: str, actual: Stored
    ) -> tuple[float, Finding] | None:
        """Return (what is left of the error with the fitting numbers, the finding); None if none fit."""

        # one run with the parameter a step further shows in which direction the value moves
        moved = next(isolated.run(parameter.put(part, parameter.moved())))[name]
        pairs = [self.floors.pair(name, other, actual) for other in (self.values.read(name), moved)]
        if pairs[0] is None or pairs[1] is None:
            return None
        assert is_array(actual)
        assert is_array(moved)
        (reference, value), (other, _) = pairs[0], pairs[1]
        # elements at the ends of the range say nothing about the parameter: leave them out
        cut = (value != actual) | (other != moved) | (reference == self._end(name, reference))
        free = [np.where(cut, value, array) for array in (reference, other)]
        steps = steps_to(free[0], value, free[1], parameter.numbers, self.floors.axis(name))
        if steps is None:
            return None
        # the simplest first: one number for all channels, then only the channels that are far off, then all of them. A
        # parameter of one number has only the last.
        sparse = np.where(np.abs(steps) < _SPARSE * np.abs(steps).max(), 0.0, steps)
        common = np.full_like(steps, np.median(steps))
        for some in (common, sparse, steps)[2 * (steps.size == 1) :]:
            numbers = parameter.fitted(some)
            other_part = parameter.put(part, numbers)
            computed = next(isolated.run(other_part))
            self.floors.shake(isolated, other_part, computed)
            excess = self.floors.excess(name, computed[name])
            if excess <= 1:
                verdict: Verdict = "wrong scale" if parameter.is_scale else "wrong zero point"
                because, edit = parameter.because(numbers), parameter.edit(numbers)
                return excess, Finding(verdict, because, edit)
        return None

    def _end(self, name: str, like: Wide) -> Wide | float:
        """Return the lower end of what the quantizer behind a value holds: where a ReLU cuts."""
        grid = self.values.quantizers.grids.get(name)
        return float("nan") if grid is None else grid.range(like.shape)[0]

    def _zero_behind(self, name: str, actual: Stored) -> Iterator[tuple[float, Finding]]:
        """Yield the zero point of the quantizer behind a value with which it cuts off what the reference lacks."""
        index = self.values.index
        grid = self.values.quantizers.grids.get(name)
        users = (index.nodes[position] for position in index.consumers.get(name, ()))
        node = next((node for node in users if node.op_type == QUANTIZE), None)
        if grid is None or node is None or len(node.input) < 3:
            return
        reference = self.values.read(name)
        # a zero point at an end of the range cuts off one sign, as a Relu does
        for zero in {float(grid.low), float(grid.high)}:
            other = replace(grid, zero=np.full(grid.zero.shape, zero))
            if not is_array(reference) or other.outside(reference).any():
                continue  # what the reference has is not to be cut off
            if self.floors.excess(name, actual, other) <= 1:
                own = float(np.atleast_1d(grid.zero)[0])
                because = f"zero point {node.input[2]!r} is {own:g}, {zero:g} fits the reference"
                edit = (SetConstant(node.input[2], zero),)
                yield 0.0, Finding("wrong zero point", because, edit)


def _names_set(fault: Fault) -> list[str]:
    """Return the constants that a fault's edits set, in order."""
    edits = chain.from_iterable(finding.edits for finding in fault.findings)
    return [edit.value for edit in edits if isinstance(edit, SetConstant)]


def _one_each(faults: Iterable[Fault]) -> list[Fault]:
    """Return the faults with those of one scale or zero point as one, the first."""
    found = list[Fault]()
    first = dict[str, Fault]()
    for fault in faults:
        names = _names_set(fault)
        same = next((first[name] for name in names if name in first), fault)
        first |= dict.fromkeys(names, same)
        if same is fault:
            found.append(fault)
        else:
            same.findings += fault.findings
    return found


def _seen(grid: Grid | None, array: Array) -> Wide:
    return wide(array) if grid is None else grid.clipped(array)


def _difference(one: Wide, other: Wide) -> Wide:
    """Return the difference of two tensors where both are finite."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(one) & np.isfinite(other), one - other, 0.0)


def _finite(array: Array) -> Wide:
    numbers = wide(array)
    return np.where(np.isfinite(numbers), numbers, 0.0)


def _equal(actual: Stored, expected: Stored) -> bool:
    if is_array(actual) or is_array(expected):
        return bool(np.array_equal(np.asarray(actual), np.asarray(expected)))
    return len(actual) == len(expected) and all(map(np.array_equal, actual, expected))
