"""LSTM, GRU and RNN cells from known states: what they compute, and the numbers with which they compute what is wanted.

Where the state before each step is known, a unit depends on no other one. It has few unknowns, and an equation at
each step of each sequence.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onnxsurgeon_lite.debug.causes.place import Indices, Wide

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
SLOTS = BIAS, INPUTS, STATE = 3, 1, 2  # the fewest unknowns first
_WRONG = 1e-5  # an error of a unit, relative to the largest state: a smaller one is noise
_CLOSE = 1e-3  # an error that is worth a run
_BETTER = 0.99  # times the error, at least, with each step
_FIRST = 3  # units that are solved for before others
_AGAIN = 6  # beginnings for units that fit from none before
_ROUNDS = 40
_DAMPED = 1e-2  # of the diagonal, at first
_LEAST = 1e-12
_FAILED = 6  # steps in a row that make the error no smaller
_NOISE = 1e-6  # an error that few steps make smaller
_INDEPENDENT = (
    1e-4  # of the largest singular value: a smaller one is that of numbers that are not told apart
)
_DIGITS = 6  # after which floats are equal
_WORK = 1e9  # multiplications of a step
_HELD = 1 << 24  # slopes that are held at once


@dataclass(frozen=True)
class Way:
    """One direction of a recurrent node in one sample, its steps in their order.

    Attributes:
        given: [steps, batch, inputs]. before: [steps, batch, hidden], the state before each step.
        cell: [batch, hidden], of an LSTM before the first step. wanted: [steps, batch, hidden].
    """

    given: Wide
    before: Wide
    cell: Wide
    wanted: Wide


@dataclass(frozen=True)
class _Made:
    """States, and how they change with the sums of the gates.

    Attributes:
        state: [steps, batch, units]. direct: [sums, steps, batch, units], the slopes of the state.
        inner: the slopes of the cell. kept: that of the cell by the one before. outer: that of the state by the cell.
    """

    state: Wide
    direct: Wide
    inner: Wide | None = None
    kept: Wide | None = None
    outer: Wide | None = None

    def slopes(self, features: Wide, sums: Sequence[int]) -> Wide:
        """Return [units, steps * batch, sums * features]: how the states change with the weights of features."""
        steps, batch, units = self.state.shape
        found = np.einsum("ktnu,tnf->tnukf", self.direct[[*sums]], features)
        if self.inner is not None and self.kept is not None and self.outer is not None:
            cell = np.zeros(found.shape[1:])
            for step in range(steps):
                fresh = np.einsum("knu,nf->nukf", self.inner[[*sums], step], features[step])
                cell = self.kept[step][:, :, None, None] * cell + fresh
                found[step] += self.outer[step][:, :, None, None] * cell
        by_unit = found.transpose(2, 0, 1, 3, 4)
        return np.asarray(by_unit.reshape(units, steps * batch, -1))


def _lstm(sums: Wide, _: Wide, cell: Wide) -> _Made:
    """Return what an LSTM computes from the sums of its gates, in the order of ONNX."""
    i, o, f = _sigmoid(sums[:3])
    g = np.tanh(sums[3])
    cells = [cell]
    for step in range(len(g)):
        cells.append(f[step] * cells[-1] + i[step] * g[step])
    before, squashed = np.array(cells[:-1]).reshape(g.shape), np.tanh(np.array(cells[1:]))
    none = np.zeros_like(g)
    direct = np.array([none, o * (1 - o) * squashed, none, none])
    inner = np.array([g * i * (1 - i), none, before * f * (1 - f), i * (1 - g * g)])
    return _Made(o * squashed, direct, inner, f, o * (1 - squashed * squashed))


def _gru(sums: Wide, before: Wide, _: Wide) -> _Made:
    """Return what a GRU computes that resets behind the product; its last sums are of inputs and of the state."""
    z, r = _sigmoid(sums[:2])
    h = np.tanh(sums[2] + r * sums[3])
    by_h = (1 - z) * (1 - h * h)
    by_z = z * (1 - z) * (before - h)
    direct = np.array([by_z, by_h * sums[3] * r * (1 - r), by_h, by_h * r])
    return _Made((1 - z) * h + z * before, direct)


def _rnn(sums: Wide, _: Wide, __: Wide) -> _Made:
    h = np.tanh(sums[0])
    return _Made(h, 1 - h[None] * h)


def _sigmoid(sums: Wide) -> Wide:
    return np.asarray(0.5 + 0.5 * np.tanh(0.5 * sums))


_CELLS: dict[str, Callable[[Wide, Wide, Wide], _Made]] = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}


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
    ways: Sequence[Way]

    @property
    def hidden(self) -> int:
        return int(self.ways[0].wanted.shape[-1])

    @property
    def rows(self) -> int:
        """The steps of all sequences: each is an equation of every unit."""
        return sum(way.wanted[..., 0].size for way in self.ways)

    def states(self) -> list[Wide]:
        """Return what the direction computes in each sample, from the wanted states before each step."""
        return [self._made(way, self._sums(way)).state for way in self.ways]

    def _made(self, way: Way, sums: Wide, units: slice | Indices = slice(None)) -> _Made:
        return _CELLS[self.kind](sums, way.before[..., units], way.cell[:, units])

    def _sums(self, way: Way) -> Wide:
        """Return the sums [sums, steps, batch, units] that the gates are computed from."""
        weight, state, bias = self.numbers
        shape = (*way.wanted.shape[:2], GATES[self.kind], self.hidden)
        of_inputs = way.given @ weight.T + bias[: len(weight)]
        of_state = way.before @ state.T + bias[len(weight) :]
        x, h = (np.moveaxis(a.reshape(shape), 2, 0) for a in (of_inputs, of_state))
        return np.concatenate([x[:2] + h[:2], x[2:], h[2:]]) if self.kind == "GRU" else x + h

    def solved(self, slot: int, free: NDArray[np.bool_]) -> Solved | None:
        """Solve for the change of a constant, where it is free: [units, sums, features]; None where none fits."""
        scale = max(float(np.abs(way.wanted).max(initial=0.0)) for way in self.ways) or 1.0
        off = [np.abs(s - w.wanted) for s, w in zip(self.states(), self.ways, strict=True)]
        error = np.max([each.max(axis=(0, 1)) for each in off], axis=0)
        wrong = np.flatnonzero(~(error <= _WRONG * scale))
        change = np.zeros(free.shape)
        if not wrong.size:
            return Solved(change)
        rows, width = self.rows, free[0].size
        if max(rows, width) * wrong.size * float(width) ** 2 > _WORK:
            return None
        least: tuple[int, int, int, bool] | None = None
        for units in _chunks(wrong, max(1, _HELD // (rows * width))):
            part = _Part(self, slot, units, free[units], scale)
            found = part.solved(self._spread(slot))
            if found is None:
                return None
            change[units] = found
            told = part.told(found)
            least = told if least is None else min(least, told)
        assert least is not None
        return Solved(change, *least[1:])

    def _spread(self, slot: int) -> float:
        """Return by how much the numbers of a constant differ, or should."""
        numbers = self.numbers[slot - 1]
        return float(numbers.std()) or float(numbers.shape[-1] ** -0.5)


def _chunks(units: Indices, several: int) -> Iterator[Indices]:
    """Yield units that are solved for together, few at first: where they do not fit, no more need to."""
    yield units[:_FIRST]
    for start in range(_FIRST, units.size, several):
        yield units[start : start + several]


class _Part:
    """Some units of a direction that are solved for together, each by itself."""

    def __init__(
        self, cells: Cells, slot: int, units: Indices, free: NDArray[np.bool_], scale: float
    ) -> None:
        self.cells, self.slot, self.units = cells, slot, units
        self.free, self.scale = free, scale
        self.which = sums_of(cells.kind, slot)
        ones = [np.ones((*way.wanted.shape[:2], 1)) for way in cells.ways]
        named = {INPUTS: [w.given for w in cells.ways], STATE: [w.before for w in cells.ways]}
        self.features = named.get(slot, ones)
        self.sums = [cells._sums(way)[..., units] for way in cells.ways]
        self.wanted = np.concatenate(
            [way.wanted[..., units].reshape(-1, units.size) for way in cells.ways]
        ).T

    def solved(self, spread: float) -> Wide | None:
        """Return the change [units, sums, features]; None where it does not fit.

        A few units may have to begin elsewhere.
        """
        change = self._descended(np.zeros(self.free.shape))
        stuck = self._stuck(change)
        draw = np.random.default_rng(0)
        for _ in range(_AGAIN if 2 * stuck.size <= self.units.size else 0):
            if stuck.size:
                units, free = self.units[stuck], self.free[stuck]
                again = _Part(self.cells, self.slot, units, free, self.scale)
                start = spread * draw.standard_normal(free.shape) * free
                change[stuck] = again._descended(start)
                stuck = stuck[again._stuck(change[stuck])]
        return None if stuck.size else change

    def _stuck(self, change: Wide) -> Indices:
        """Return the units that do not fit."""
        error = np.abs(self._at(change)[0]).max(axis=1)
        return np.flatnonzero(~(error <= _CLOSE * self.scale))

    def _descended(self, start: Wide) -> Wide:
        """Return the change at which Levenberg-Marquardt steps end.

        Source: Marquardt, "An algorithm for least-squares estimation of nonlinear parameters", 1963.
        """
        change = start.reshape(len(start), -1)
        left, slopes = self._at(start)
        error, damped = _root_mean_square(left), np.full(len(change), _DAMPED)
        failed, done = np.zeros(len(change)), np.zeros(len(change), bool)
        for _ in range(_ROUNDS):
            lengths = np.linalg.norm(slopes, axis=1)
            lengths[lengths == 0] = 1
            scaled = slopes / lengths[:, None]
            normal = scaled.transpose(0, 2, 1) @ scaled
            normal += damped[:, None, None] * np.eye(change.shape[1])
            along = np.einsum("urp,ur->up", scaled, left)
            tried = change + np.linalg.solve(normal, along[..., None])[..., 0] / lengths
            left_then, slopes_then = self._at(tried.reshape(start.shape))
            error_then = _root_mean_square(left_then)
            better = error_then < error
            damped = np.maximum(np.where(better, damped / 10, damped * 10), _LEAST)
            failed = np.where(better, 0, failed + 1)
            ended = better & (error_then > _BETTER * error) & (error <= _NOISE * self.scale)
            done |= (failed >= _FAILED) | ended
            change = np.where(better[:, None], tried, change)
            left[better], slopes[better] = left_then[better], slopes_then[better]
            error[better] = error_then[better]
            if done.all():
                break
        return change.reshape(start.shape)

    def told(self, change: Wide) -> tuple[int, int, int, bool]:
        """Return (equations to spare, unknowns, equations, whether they determine it), of the unit with the fewest."""
        slopes = self._at(change)[1]
        return min(self._told(unit, slopes[unit]) for unit in range(self.units.size))

    def _told(self, unit: int, slopes: Wide) -> tuple[int, int, int, bool]:
        slopes = slopes[:, self.free[unit].reshape(-1)]
        unknowns = slopes.shape[1]
        known, determined = equations(slopes, self.wanted[unit] / self.scale)
        return known - unknowns - unknowns // 8, unknowns, known, determined

    def _at(self, change: Wide) -> tuple[Wide, Wide]:
        """Return (what is left of the error [units, rows], slopes [units, rows, sums * features])."""
        states, slopes = [], []
        for way, sums, features in zip(self.cells.ways, self.sums, self.features, strict=True):
            moved = sums.copy()
            moved[[*self.which]] += np.einsum("tnf,ukf->ktnu", features, change)
            made = self.cells._made(way, moved, self.units)
            states.append(made.state.reshape(-1, self.units.size))
            slopes.append(made.slopes(features, self.which))
        free = self.free.reshape(self.units.size, 1, -1)
        return self.wanted - np.concatenate(states).T, np.concatenate(slopes, axis=1) * free


def equations(slopes: Wide, wanted: Wide) -> tuple[int, bool]:
    """Return (how many numbers of a reference depend on the unknowns, whether they determine these).

    Args:
        slopes: [numbers, unknowns], how the numbers change. Where they leave some unknowns open, their rank counts.
    """
    lengths = np.linalg.norm(slopes, axis=0)
    scaled = slopes / np.where(lengths > 0, lengths, 1)
    sizes = np.linalg.eigvalsh(scaled.T @ scaled)  # squares of singular values
    rank = int((sizes > _INDEPENDENT**2 * sizes.max(initial=0.0)).sum())
    if rank < slopes.shape[1]:
        return rank, False
    return np.unique(np.round(wanted[slopes.any(axis=1)], _DIGITS)).size, True


def _root_mean_square(left: Wide) -> Wide:
    """Return that of each unit; infinite where a number is not finite."""
    with np.errstate(all="ignore"):
        error = np.sqrt(np.mean(np.square(left), axis=1))
    return np.where(np.isfinite(error), error, np.inf)


def sums_of(kind: str, slot: int) -> tuple[int, ...]:
    """Return the sums that a constant adds to: the last gate of a GRU has one of inputs and one of the state."""
    if kind == "GRU":
        return {INPUTS: (0, 1, 2), STATE: (0, 1, 3)}.get(slot, (0, 1, 2, 3))
    return tuple(range(GATES[kind]))
