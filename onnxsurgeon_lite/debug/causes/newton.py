"""Small constants that are solved for by Levenberg-Marquardt steps: variances, the biases of recurrent nodes."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from onnxsurgeon_lite.debug.causes.cells import BIAS, GATES, equations
from onnxsurgeon_lite.debug.causes.hypothesis import Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.place import Place, Wide, wide
from onnxsurgeon_lite.debug.causes.solving import described, solved_constant, unchanged
from onnxsurgeon_lite.debug.causes.trying import Bench, OutOfTime, sampled
from onnxsurgeon_lite.debug.causes.units import (
    described_in,
    free_biases,
    settled,
    solved_units,
    states_are_known,
)
from onnxsurgeon_lite.errors import RuntimeFailure
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.model import copied
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.surgery.edits import rename_uses
from onnxsurgeon_lite.tensors.dtypes import Array, RunValue, is_array, is_float, type_of

_Run = Callable[[Mapping[str, RunValue]], dict[str, RunValue]]

_MOST = 64  # numbers
_MOST_RECURRENT = 512
_SECONDS = 8.0  # for what is recurrent
_FREE = "free\x02"  # the input that stands for the constant
_LOOKED_AT = 4096  # numbers of the reference, or as many times the unknowns:
_EACH = 8
_ROUNDS = 12
_STEP = 1e-2  # of a difference, relative to the largest number
_DAMPED = (1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3)
"""Below which share of the largest singular value the directions of a step count less."""
_MUCH = 0.5  # times the error, at most, with a step by slopes that serve once more
_BETTER = 0.9  # times the error, at least, with each step
_NOISE = 1e-7  # an error, relative to the reference, that no step makes smaller
_CLOSE = 1e-3  # one that is worth a run


def solved_recurrent(place: Place) -> Hypotheses:
    """Yield constants of recurrent nodes: unit by unit, else the biases of those whose states are not known."""
    for hypothesis in solved_units(place):
        yield hypothesis
        if hypothesis.proves:
            return
    until = time.monotonic() + _SECONDS
    for number, node in enumerate(place.nodes):
        array = place.constant(node.input[BIAS]) if len(node.input) > BIAS else None
        known = node.op_type not in GATES or array is None or not is_float(array.dtype)
        if array is None or known or states_are_known(place, number):
            continue
        free = free_biases(array, node.op_type)
        if free.sum() > min(_MOST_RECURRENT, place.wanted.size):
            continue
        solving = _Solving(place, number, node.input[BIAS], array, free, until)
        try:
            solved = solving.solved()
        except OutOfTime:
            return
        if solved is not None:
            solved = settled(wide(array), solved, BIAS)
            said, where = described_in(wide(array), solved, BIAS)
            yield replace(solving.told(solved, said + where), vague=said == "differs")


def solved_small(place: Place, bench: Bench) -> Hypotheses:
    """Yield small constants with the numbers at which the error is the smallest."""
    for number, slot, name, array in place.constants():
        if slot < 0 or array.size < 2 or not is_float(array.dtype):
            continue
        zero = array == 0
        for free in (zero, np.ones_like(zero)) if zero.any() else (~zero,):
            if not 1 < free.sum() <= _MOST:
                continue
            solving = _Solving(place, number, name, array, free, bench.until)
            solved = solving.solved()
            if solved is not None:
                solved = np.where(unchanged(wide(array), solved), array, solved)
                yield solving.told(solved, described(wide(array), solved))


class _Solving:
    """Solves for one constant, where it is free."""

    def __init__(
        self, place: Place, number: int, name: str, array: Array, free: Array, until: float
    ) -> None:
        self.place, self.number, self.until = place, number, until
        self.name, self.array, self.free = name, array, free
        self.every = max(1, sampled(place.wanted).size // max(_LOOKED_AT, _EACH * int(free.sum())))
        self.wanted = np.nan_to_num(self._some(place.wanted))
        self.scale = float(np.sqrt(np.mean(np.square(self.wanted)))) or 1.0
        self.slopes = np.zeros((self.wanted.size, 0))

    def told(self, solved: Wide, how: str) -> Hypothesis:
        """Return the hypothesis that the constant should have these numbers."""
        right, unknowns = solved.astype(self.array.dtype), int(self.free.sum())
        known, _ = equations(self.slopes, self.wanted / self.scale)
        return solved_constant(self.place, self.number, self.name, right, how, unknowns, known)

    def solved(self) -> Wide | None:
        """Return the numbers at which the error is the smallest; None where the steps lead nowhere."""
        actual = self.place.actual
        if actual is None or actual.shape != self.place.wanted.shape or not is_float(actual.dtype):
            return None
        try:
            with self._opened() as run:
                return self._descended(run, self._some(actual))
        except RuntimeFailure:
            return None

    def _descended(self, run: _Run, made: Wide) -> Wide | None:
        """Return the numbers at which the steps end, if they are worth a run.

        The slopes serve as long as the steps by them take most of the error back.
        """
        numbers, best, slopes = wide(self.array), self._error(made), 0
        serve = False
        while slopes < _ROUNDS and best > _NOISE:
            if not serve:
                slopes += 1
                if not self._learned(run, numbers, made):
                    break
            tried = [numbers + step for step in self._steps(made)]
            found = self._made(run, tried)
            errors = list(map(self._error, found))
            least = min(errors, default=np.inf)
            if not least < _BETTER * best and not serve:
                break
            serve = least < _MUCH * best
            if least < best:
                at = errors.index(least)
                numbers, made, best = tried[at], found[at], least
        return numbers if best <= _CLOSE else None

    def _learned(self, run: _Run, numbers: Wide, made: Wide) -> bool:
        """Compute how the place changes with each number; return whether that is known."""
        width = _STEP * (float(np.abs(numbers).max()) or 1.0)
        self.moves = np.eye(numbers.size).reshape(-1, *numbers.shape)[self.free.ravel()]
        moved = self._made(run, [numbers + width * each for each in self.moves])
        if len(moved) < len(self.moves) or not np.isfinite([made, *moved]).all():
            return False
        self.slopes = (np.array(moved) - made).T / width
        self.parts = np.linalg.svd(self.slopes, full_matrices=False)
        return True

    def _steps(self, made: Wide) -> list[Wide]:
        """Return steps that would take error back if the place were linear, the boldest first."""
        left, sizes, right = self.parts
        along = left.T @ (self.wanted - made)
        damped = (sizes**2 + np.square(share * sizes.max(initial=0.0)) for share in _DAMPED)
        changes = (right.T @ (along * sizes / each) for each in damped if each.all())
        return [np.tensordot(change, self.moves, 1) for change in changes]

    def _error(self, made: Wide) -> float:
        """Return the root mean square error: a step that makes it smaller may make the largest one larger."""
        with np.errstate(all="ignore"):
            error = float(np.sqrt(np.mean(np.square(made - self.wanted)))) / self.scale
        return error if np.isfinite(error) else np.inf

    def _some(self, array: Array) -> Wide:
        return wide(sampled(array)[:: self.every])

    @contextmanager
    def _opened(self) -> Iterator[_Run]:
        """Open the place with the constant as an input of the node, so that all numbers run in one session."""
        place = self.place
        proto = copied(place.index.model.proto)
        rename_uses([proto.graph.node[self.number]], {self.name: _FREE})
        proto.graph.input.add(name=_FREE, type=type_of(self.array))
        observer = Observer(GraphIndex.of(place.index.model.with_proto(proto)), place.runtime)
        inputs = {**place.inputs, **place.nearby, _FREE: self.array}
        types = {name: type_of(value) for name, value in inputs.items() if value is not None}
        part = observer.part(range(len(proto.graph.node)), types, [place.value])
        with observer.opened(part, inputs, [place.value]) as run:
            yield run

    def _made(self, run: _Run, variants: list[Wide]) -> list[Wide]:
        """Compute the place's value with each of several numbers."""
        found = []
        for numbers in variants:
            if time.monotonic() > self.until:
                raise OutOfTime
            made = run({_FREE: numbers.astype(self.array.dtype)})[self.place.value]
            if is_array(made) and made.shape == self.place.wanted.shape:
                found.append(self._some(made))
        return found
