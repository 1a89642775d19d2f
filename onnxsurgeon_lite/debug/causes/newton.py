"""Small constants that are solved for step by step: variances, the biases of recurrent nodes."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from onnxsurgeon_lite.debug.causes.cells import BIAS, GATES
from onnxsurgeon_lite.debug.causes.hypothesis import Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.linear import Descent, equations, root_mean_square
from onnxsurgeon_lite.debug.causes.place import Constant, Place
from onnxsurgeon_lite.debug.causes.recurrent import (
    described_in,
    free_biases,
    settled,
    solved_units,
    states_are_known,
)
from onnxsurgeon_lite.debug.causes.solving import described, solved_constant, unchanged
from onnxsurgeon_lite.debug.causes.trying import Bench, sampled
from onnxsurgeon_lite.errors import OutOfTime, RuntimeFailure
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.model import copied
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.surgery.edits import rename_uses
from onnxsurgeon_lite.tensors.dtypes import (
    Array,
    RunValue,
    Wide,
    has_floats,
    is_array,
    peak,
    rms,
    type_of,
    types_of,
    wide,
)

_Run = Callable[..., list[dict[str, RunValue]]]

_MOST = 64  # numbers
_MOST_RECURRENT = 512
_SECONDS = 8.0  # for what is recurrent
_FREE = "free\x02"  # the input that stands for the constant
_LOOKED_AT = 4096  # numbers of the reference, or as many times the unknowns:
_EACH = 8
_HELD = 1 << 26  # bytes of what runs together make
_STEP = 1e-2  # of a difference, relative to the largest number
_STEPS = Descent(100, 1e-6, patience=12, enough=1e-7, much=0.5)
"""Slopes cost a run for each number, so they serve as long as steps make errors much smaller."""
_CLOSE = 1e-3  # one that is worth a run


def solved_recurrent(place: Place) -> Hypotheses:
    """Yield constants of recurrent nodes: unit by unit, else the biases of those whose states are not known."""
    for hypothesis in solved_units(place):
        yield hypothesis
        if hypothesis.proves:
            return
    # states that are not known leave the biases, by running the region
    until = time.monotonic() + _SECONDS
    for site in place.sites:
        bias = site.constant(BIAS) if site.op_type in GATES else None
        if bias is None or not bias.is_float or states_are_known(site):
            continue
        free = free_biases(bias.array, site.op_type)
        if free.sum() > min(_MOST_RECURRENT, place.wanted.size):
            continue
        solving = _Solving(bias, free, until)
        try:
            solved = solving.solved()
        except OutOfTime:
            return
        if solved is not None:
            solved = settled(bias.numbers, solved, BIAS)
            said, where = described_in(bias.numbers, solved, BIAS)
            yield replace(solving.hypothesis(solved, said + where), vague=said == "differs")


def solved_small(place: Place, bench: Bench) -> Hypotheses:
    """Yield small constants with the numbers at which the error is the smallest: where they are zero, then all."""
    for constant in place.constants():
        if constant.slot < 0 or constant.array.size < 2 or not constant.is_float:
            continue
        # numbers that are zero may have been reset: they are fewer unknowns
        zero = constant.array == 0
        for free in (zero, np.ones_like(zero)) if zero.any() else (~zero,):
            if not 1 < free.sum() <= _MOST:
                continue
            solving = _Solving(constant, free, bench.until)
            solved = solving.solved()
            if solved is not None:
                old = constant.numbers
                solved = np.where(unchanged(old, solved), old, solved)
                yield solving.hypothesis(solved, described(old, solved))


@dataclass
class _Solving:
    """Solves for one constant, where it is free, by running the place with other numbers."""

    constant: Constant
    free: Array
    until: float

    @property
    def place(self) -> Place:
        return self.constant.site.place

    @cached_property
    def wanted(self) -> Wide:
        """Some of the numbers that the place should make, relative to their size."""
        return np.nan_to_num(self._some(self.place.wanted)) / self.scale

    @cached_property
    def scale(self) -> float:
        return rms(np.nan_to_num(self._some(self.place.wanted))) or 1.0

    def hypothesis(self, solved: Wide, how: str) -> Hypothesis:
        """Return the hypothesis that the constant should have these numbers."""
        known, _ = equations(self.slopes[0], self.wanted)
        return solved_constant(self.constant, solved, how, int(self.free.sum()), known)

    def solved(self) -> Wide | None:
        """Return the numbers at which the error is the smallest; None where the steps lead nowhere."""
        # without floats to compare there is no error to make smaller
        actual = self.place.actual
        if actual is None or actual.shape != self.place.wanted.shape or not has_floats(actual):
            return None
        try:
            # one session serves all steps
            with self._opened() as run:
                self.run = run
                start = np.zeros((1, int(self.free.sum())))
                change = _STEPS(start, self._left, self._slopes)
                error = float(root_mean_square(self._left(change))[0])
        except (RuntimeFailure, ValueError):
            return None
        return self._with(change[0]) if error <= _CLOSE else None

    def _with(self, change: Wide) -> Wide:
        numbers = self.constant.numbers.copy()
        numbers[self.free] += change
        return numbers

    def _left(self, change: Wide) -> Wide:
        """Return what is left of the error [1, numbers]."""
        return (self.wanted - self._made(self._with(change[0]))[0])[None]

    def _slopes(self, change: Wide) -> Wide:
        """Return how the place changes with each number, by differences: [1, numbers, unknowns]."""
        numbers = self._with(change[0])
        width = _STEP * (peak(numbers) or 1.0)
        # a run for each number, moved by itself
        moves = width * np.eye(change.shape[1])
        made, *moved = self._made(numbers, *(self._with(change[0] + move) for move in moves))
        self.slopes = ((np.array(moved) - made).T / width)[None]
        if not np.isfinite(self.slopes).all():
            raise ValueError
        return self.slopes

    def _some(self, array: Array) -> Wide:
        """Return some of an array's elements, spread over it."""
        found = sampled(array)
        most = max(_LOOKED_AT, _EACH * int(self.free.sum()))
        return wide(found[:: max(1, found.size // most)])

    @contextmanager
    def _opened(self) -> Iterator[_Run]:
        """Open the place with the constant as an input of the node, so that all numbers run in one session."""
        # only this node reads the free numbers
        place, array = self.place, self.constant.array
        proto = copied(place.index.model.proto)
        rename_uses([proto.graph.node[self.constant.site.number]], {self.constant.name: _FREE})
        proto.graph.input.add(name=_FREE, type=type_of(array))
        observer = Observer(GraphIndex.of(place.index.model.with_proto(proto)), place.runtime)
        inputs = {**place.inputs, **place.nearby, _FREE: array}
        part = observer.part(range(len(proto.graph.node)), types_of(inputs), [place.value])
        with observer.opened(part, inputs, [place.value]) as run:
            yield run

    def _made(self, *several: Wide) -> list[Wide]:
        """Compute some of the place's value with each of other numbers, relative to the size of what it should be."""
        made = list[Wide]()
        wanted = self.place.wanted
        # runs of small values together
        count = max(1, _HELD // max(1, wanted.nbytes))
        for start in range(0, len(several), count):
            if time.monotonic() > self.until:
                raise OutOfTime
            some = several[start : start + count]
            feeds = ({_FREE: numbers.astype(self.constant.array.dtype)} for numbers in some)
            for values in self.run(*feeds):
                found = values[self.place.value]
                if not is_array(found) or found.shape != wanted.shape:
                    raise ValueError
                made.append(self._some(found) / self.scale)
        return made
