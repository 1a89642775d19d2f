"""LSTM, GRU and RNN cells from known states: what they compute, and the numbers with which they compute what is wanted.

Where the state before each step is known, a unit depends on no other one. It has few unknowns, and an equation at
each step of each sequence.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from onnxsurgeon_lite.debug.causes.linear import Descent, equations
from onnxsurgeon_lite.debug.causes.place import Indices
from onnxsurgeon_lite.tensors.dtypes import Wide, peak

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
SLOTS = BIAS, INPUTS, STATE = 3, 1, 2  # the fewest unknowns first
_WRONG = 1e-5  # an error of a unit, relative to the largest state: a smaller one is noise
_CLOSE = 1e-3  # an error that is worth a run
_FIRST = 3  # units that are solved for before others
_AGAIN = 6  # beginnings for units that fit from none before
_ROUNDS = 40
_NOISE = 1e-6  # an error that few steps make smaller
_WORK = 1e9  # multiplications of a step
_HELD = 1 << 24  # slopes that are held at once
_STEP = 1e-20  # of an imaginary number, by which slopes are exact


Complex = NDArray[np.inexact]  # numbers, or numbers with an imaginary step


@dataclass(frozen=True)
class Direction:
    """One direction of a recurrent node in one sample, its steps in their order.

    Attributes:
        given: [steps, batch, inputs]. before: [steps, batch, hidden], the state before each step.
        cell: [batch, hidden], of an LSTM before the first step. wanted: [steps, batch, hidden].
    """

    given: Wide
    before: Wide
    cell: Wide
    wanted: Wide

    def of(self, units: Indices) -> "Direction":
        """Return what some units compute."""
        before, wanted = self.before[..., units], self.wanted[..., units]
        return replace(self, before=before, cell=self.cell[:, units], wanted=wanted)


def _lstm(sums: Complex, _: Wide, cell: Complex) -> tuple[Complex, Complex]:
    """Return (state, cell) after a step, of the sums of the gates in the order of ONNX."""
    i, o, f = _sigmoid(sums[:3])
    made = f * cell + i * np.tanh(sums[3])
    return o * np.tanh(made), made


def _gru(sums: Complex, before: Wide, cell: Complex) -> tuple[Complex, Complex]:
    """Return the state of a GRU that resets after the product; its last sums are of inputs and of the state."""
    z, r = _sigmoid(sums[:2])
    return (1 - z) * np.tanh(sums[2] + r * sums[3]) + z * before, cell


def _rnn(sums: Complex, _: Wide, cell: Complex) -> tuple[Complex, Complex]:
    return np.tanh(sums[0]), cell


def _sigmoid(sums: Complex) -> Complex:
    return np.asarray(0.5 + 0.5 * np.tanh(0.5 * sums))


_CELLS: dict[str, Callable[[Complex, Wide, Complex], tuple[Complex, Complex]]] = {
    "LSTM": _lstm,
    "GRU": _gru,
    "RNN": _rnn,
}


def _cells_before(kind: str, sums: Wide, way: Direction) -> Wide:
    """Return the cell before each step [steps, batch, units]; for what has none, the first one."""
    cells = [way.cell]
    for step in range(len(way.before) - 1):
        is_lstm = kind == "LSTM"
        made = _lstm(sums[:, step], way.before[step], cells[-1])[1] if is_lstm else way.cell
        cells.append(made.real)
    return np.array(cells).reshape(way.before.shape)


def _slopes(kind: str, sums: Wide, way: Direction, features: Wide, which: Sequence[int]) -> Wide:
    """Return [units, steps * batch, sums * features]: how the states change with the weights of features.

    An imaginary number added to a sum gives the slope of each step exactly.
    """
    cells, step_of = _cells_before(kind, sums, way), _CELLS[kind]
    by_sum = []
    for sum_ in which:
        moved = sums.astype(complex)
        moved[sum_] += 1j * _STEP
        by_sum.append([made.imag / _STEP for made in step_of(moved, way.before, cells)])
    found = np.einsum("ktnu,tnf->tnukf", np.array([state for state, _ in by_sum]), features)
    if kind == "LSTM":
        # the cell carries what earlier steps change
        outer, kept = (m.imag / _STEP for m in _lstm(sums, way.before, cells + 1j * _STEP))
        inner, carried = np.array([cell for _, cell in by_sum]), np.zeros(found.shape[1:])
        for step in range(len(found)):
            found[step] += outer[step][:, :, None, None] * carried
            fresh = np.einsum("knu,nf->nukf", inner[:, step], features[step])
            carried = kept[step][:, :, None, None] * carried + fresh
    steps, batch, units = way.wanted.shape
    return np.asarray(found.transpose(2, 0, 1, 3, 4).reshape(units, steps * batch, -1))


@dataclass(frozen=True)
class Solved:
    """The solution, judged by the unit that the references determine least."""

    change: Wide  # [units, sums, features]
    unknowns: int = 0
    equations: int = 0
    determined: bool = True


@dataclass(frozen=True)
class Cells:
    """One direction of a recurrent node: its numbers, and what enters and should come out in some samples."""

    kind: str
    numbers: tuple[Wide, Wide, Wide]  # of inputs, of the state, biases
    directions: Sequence[Direction]

    @property
    def hidden(self) -> int:
        return int(self.directions[0].wanted.shape[-1])

    @property
    def rows(self) -> int:
        """The steps of all sequences: each is an equation of every unit."""
        return sum(way.wanted[..., 0].size for way in self.directions)

    def states(self) -> list[Wide]:
        """Return what the direction computes in each sample, from the wanted states before each step."""
        return [states(self.kind, self.sums(way), way) for way in self.directions]

    def sums(self, way: Direction) -> Wide:
        """Return the sums [sums, steps, batch, units] that the gates are computed from."""
        weight, state, bias = self.numbers
        shape = way.wanted.shape[:2] + (GATES[self.kind], self.hidden)
        of_inputs = way.given @ weight.T + bias[: len(weight)]
        of_state = way.before @ state.T + bias[len(weight) :]
        x, h = (np.moveaxis(a.reshape(shape), 2, 0) for a in (of_inputs, of_state))
        return np.concatenate([x[:2] + h[:2], x[2:], h[2:]]) if self.kind == "GRU" else x + h

    def solved(self, slot: int, free: NDArray[np.bool_]) -> Solved | None:
        """Solve for the change of a constant, where it is free: [units, sums, features]; None where none fits."""
        # the units that are wrong
        scale = max(peak(way.wanted) for way in self.directions) or 1.0
        off = [np.abs(s - w.wanted) for s, w in zip(self.states(), self.directions, strict=True)]
        error = np.max([each.max(axis=(0, 1)) for each in off], axis=0)
        wrong = np.flatnonzero(~(error <= _WRONG * scale))
        change, least = np.zeros(free.shape), list[tuple[int, int, int, bool]]()
        rows, width = self.rows, free[0].size
        if max(rows, width) * wrong.size * float(width) ** 2 > _WORK:
            return None
        # few units first, then as many at once as memory holds
        numbers = self.numbers[slot - 1]
        spread = float(numbers.std()) or float(numbers.shape[-1] ** -0.5)
        for units in _chunks(wrong, max(1, _HELD // (rows * width))):
            part = _Part(self, slot, units, free[units], scale)
            found = part.solved(spread)
            if found is None:
                return None
            change[units] = found
            least.append(part.least_determined(found))
        return Solved(change, *min(least)[1:]) if least else Solved(change)


def states(kind: str, sums: Wide, way: Direction) -> Wide:
    """Return the states after each step, from the wanted ones before it."""
    return _CELLS[kind](sums, way.before, _cells_before(kind, sums, way))[0].real


def _chunks(units: Indices, several: int) -> Iterator[Indices]:
    """Yield units that are solved for together, few at first: where they do not fit, no more need to."""
    for start in [0, *range(_FIRST, units.size, several)] if units.size else ():
        yield units[start : start + (several if start else _FIRST)]


class _Part:
    """Some units of a direction that are solved for together, each by itself."""

    def __init__(
        self, cells: Cells, slot: int, units: Indices, free: NDArray[np.bool_], scale: float
    ) -> None:
        self.cells, self.slot, self.units = cells, slot, units
        self.free, self.scale = free, scale
        self.which = sums_of(cells.kind, slot)
        self.parts = []
        for way in cells.directions:
            ones = np.ones(way.wanted.shape[:2] + (1,))
            features = {INPUTS: way.given, STATE: way.before}.get(slot, ones)
            self.parts.append((way.of(units), cells.sums(way)[..., units], features))

    def solved(self, spread: float) -> Wide | None:
        """Return the change [units, sums, features]; None where it does not fit.

        A few units may have to begin elsewhere.
        """
        # from the present numbers on
        change = self._descended(np.zeros(self.free.shape))
        stuck = self._stuck(change)
        # the few that are stuck begin at random numbers
        draw = np.random.default_rng(0)
        for _ in range(_AGAIN if 2 * stuck.size <= self.units.size else 0):
            if stuck.size:
                units, free = self.units[stuck], self.free[stuck]
                again = _Part(self.cells, self.slot, units, free, self.scale)
                start = spread * draw.standard_normal(free.shape) * free
                change[stuck] = again._descended(start)
                stuck = stuck[again._stuck(change[stuck])]
        return None if stuck.size else change

    def _descended(self, start: Wide) -> Wide:
        steps, flat = Descent(_ROUNDS, _NOISE * self.scale), start.reshape(len(start), -1)
        return steps(flat, self._left, self._slopes).reshape(start.shape)

    def _stuck(self, change: Wide) -> Indices:
        """Return the units that do not fit."""
        error = np.abs(self._left(change)).max(axis=1)
        return np.flatnonzero(~(error <= _CLOSE * self.scale))

    def least_determined(self, change: Wide) -> tuple[int, int, int, bool]:
        """Return (equations to spare, unknowns, equations, whether they determine it), of the unit with the fewest."""
        found, every = [], self._slopes(change)
        wanted = np.concatenate([way.wanted.reshape(-1, self.units.size) for way, *_ in self.parts])
        for unit, free in enumerate(self.free.reshape(self.units.size, -1)):
            slopes = every[unit][:, free]
            unknowns = slopes.shape[1]
            known, determined = equations(slopes, wanted[:, unit] / self.scale)
            found.append((known - unknowns - unknowns // 8, unknowns, known, determined))
        return min(found)

    def _moved(self, sums: Wide, features: Wide, change: Wide) -> Wide:
        """Return the sums with a change of the weights of features."""
        moved = sums.copy()
        by_unit = change.reshape(self.free.shape)
        moved[list(self.which)] += np.einsum("tnf,ukf->ktnu", features, by_unit)
        return moved

    def _left(self, change: Wide) -> Wide:
        """Return what is left of the error [units, rows]."""
        left = []
        for way, sums, features in self.parts:
            made = states(self.cells.kind, self._moved(sums, features, change), way)
            left.append((way.wanted - made).reshape(-1, self.units.size))
        return np.concatenate(left).T

    def _slopes(self, change: Wide) -> Wide:
        """Return the slopes [units, rows, sums * features], zero for what is not free."""
        slopes = []
        for way, sums, features in self.parts:
            moved = self._moved(sums, features, change)
            slopes.append(_slopes(self.cells.kind, moved, way, features, self.which))
        return np.concatenate(slopes, axis=1) * self.free.reshape(self.units.size, 1, -1)


def sums_of(kind: str, slot: int) -> tuple[int, ...]:
    """Return the sums that a constant adds to: the last gate of a GRU has one of inputs and one of the state."""
    if kind == "GRU":
        return {INPUTS: (0, 1, 2), STATE: (0, 1, 3)}.get(slot, (0, 1, 2, 3))
    return tuple(range(GATES[kind]))
