"""Small constants that are solved for by Levenberg-Marquardt steps: variances, the biases of recurrent nodes."""

from collections.abc import Iterator

import numpy as np

from onnxsurgeon_lite.debug.causes.hypothesis import Hypothesis
from onnxsurgeon_lite.debug.causes.place import Place, Wide, wide
from onnxsurgeon_lite.debug.causes.solving import described, solved_constant, unchanged
from onnxsurgeon_lite.debug.causes.trying import Bench, sampled
from onnxsurgeon_lite.passes.set_constant import SetConstant
from onnxsurgeon_lite.tensors.dtypes import Array, is_float

_MOST = 64  # numbers: their variants run side by side
_ROUNDS = 12
_STEP = 1e-2  # of a difference, relative to the largest number
_DAMPED = (1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3)
"""Below which share of the largest singular value the directions of a step count less."""
_BETTER = 0.9  # times the error, at least, with each step
_NOISE = 1e-6  # an error, relative to the reference, that no step makes smaller
_CLOSE = 1e-3  # one that is worth a run
_INDEPENDENT = (
    1e-4  # of the largest singular value: a smaller one is that of numbers that are not told apart
)
_DIGITS = 6  # after which floats are equal


def solved_small(place: Place, bench: Bench) -> Iterator[Hypothesis]:
    """Yield small constants with the numbers at which the error is the smallest."""
    for number, slot, name, array in place.constants():
        if slot < 0 or array.size < 2 or not is_float(array.dtype):
            continue
        old, zero = wide(array), array == 0
        for free in (zero, np.ones_like(zero)) if zero.any() else (~zero,):
            if not 1 < free.sum() <= _MOST:
                continue
            solving = _Solving(place, bench, number, name, array, free)
            solved = solving.solved()
            if solved is not None:
                solved = np.where(unchanged(old, solved), old, solved)
                how, right = described(old, solved), solved.astype(array.dtype)
                unknowns, equations = int(free.sum()), solving.equations()
                yield solved_constant(place, number, name, right, how, unknowns, equations)


class _Solving:
    """Solves for one constant, where it is free."""

    def __init__(
        self, place: Place, bench: Bench, number: int, name: str, array: Array, free: Array
    ) -> None:
        self.place, self.bench, self.token = place, bench, place.node(number)
        self.name, self.array, self.free = name, array, free
        self.wanted = np.nan_to_num(wide(sampled(place.wanted)))
        self.scale = float(np.sqrt(np.mean(np.square(self.wanted)))) or 1.0
        self.slopes = np.zeros((self.wanted.size, 0))

    def equations(self) -> int:
        """Return how many numbers of the reference depend on the free ones; their rank where it leaves some open."""
        lengths = np.linalg.norm(self.slopes, axis=0)
        sizes = np.linalg.svd(self.slopes / np.where(lengths > 0, lengths, 1), compute_uv=False)
        rank = int((sizes > _INDEPENDENT * sizes.max(initial=0.0)).sum())
        there = self.wanted[self.slopes.any(axis=1)] / self.scale
        return rank if rank < self.free.sum() else np.unique(np.round(there, _DIGITS)).size

    def solved(self) -> Wide | None:
        """Return the numbers at which the error is the smallest; None where the steps lead nowhere."""
        actual = self.place.actual
        if actual is None or actual.shape != self.place.wanted.shape or not is_float(actual.dtype):
            return None
        numbers, made = wide(self.array), wide(sampled(actual))
        best = self._error(made)
        for _ in range(_ROUNDS):
            tried = [numbers + step for step in self._steps(numbers, made)]
            found = self._made(tried)
            least = min(map(self._error, found), default=np.inf)
            if not least < _BETTER * best:
                break
            at = [*map(self._error, found)].index(least)
            numbers, made, best = tried[at], found[at], least
            if best <= _NOISE:
                break
        return numbers if best <= _CLOSE else None

    def _steps(self, numbers: Wide, made: Wide) -> list[Wide]:
        """Return steps that would take error back if the place were linear, the boldest first."""
        width = _STEP * (float(np.abs(numbers).max()) or 1.0)
        moves = (width * np.eye(numbers.size)).reshape(-1, *numbers.shape)[self.free.ravel()]
        moved = self._made([numbers + each for each in moves])
        if len(moved) < len(moves) or not np.isfinite([made, *moved]).all():
            return []
        self.slopes = (np.array(moved) - made).T / width
        left, sizes, right = np.linalg.svd(self.slopes, full_matrices=False)
        along = left.T @ (self.wanted - made)
        damped = (sizes**2 + np.square(share * sizes.max(initial=0.0)) for share in _DAMPED)
        changes = (right.T @ (along * sizes / each) for each in damped if each.all())
        return [np.tensordot(change, moves, 1) / width for change in changes]

    def _error(self, made: Wide) -> float:
        """Return the root mean square error: a step that makes it smaller may make the largest one larger."""
        with np.errstate(all="ignore"):
            error = float(np.sqrt(np.mean(np.square(made - self.wanted)))) / self.scale
        return error if np.isfinite(error) else np.inf

    def _made(self, variants: list[Wide]) -> list[Wide]:
        """Compute the place's value with each of several numbers."""
        edits = (
            SetConstant(self.name, v.astype(self.array.dtype), (self.token,)) for v in variants
        )
        outcomes = self.bench.outcomes(Hypothesis("", "", (edit,)) for edit in edits)
        return [outcome.made for outcome in outcomes if outcome.made is not None]
