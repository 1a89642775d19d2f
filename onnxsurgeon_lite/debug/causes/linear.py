"""Least squares: nodes that are linear in a constant, as matrices, and steps for what is not linear."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from onnxsurgeon_lite.debug.causes.place import (
    Constant,
    Indices,
    Ints,
    Place,
    RegionNode,
    small,
)
from onnxsurgeon_lite.model.messages import integer
from onnxsurgeon_lite.runtime.float64 import windows_of
from onnxsurgeon_lite.tensors.dtypes import Array, Wide, peak, wide

_ROWS = 4096  # rows of a convolution
_CHECKED = 8  # rows that a hypothesis is checked on
_SAMPLES = 8
_LARGEST = 1 << 29  # bytes of what a convolution reads


_DAMPED = 1e-2  # of the diagonal, at first
_LEAST = 1e-12  # of it, at least
_BETTER = 0.99  # times the error, at least, with each step
_INDEPENDENT = 1e-4  # of the largest singular value: numbers of a smaller one are not told apart
_DIGITS = 6  # after which floats are equal


@dataclass(frozen=True)
class Linear:
    """`rows @ weight = wanted` at one node, in each group of a convolution, without the bias.

    Attributes:
        matrix: the constant as it is stored -> [groups, inputs, outputs]. stored: the way back.
        rows: [groups, rows, inputs]; of a table [1, rows, 0]. wanted: [groups, rows, outputs].
        taken: of a table the index of each row.
    """

    constant: Constant
    matrix: Callable[[Array], Array]
    stored: Callable[[Wide], Wide]
    rows: Wide
    wanted: Wide
    taken: Indices | None = None

    def times(self, weight: Wide, at: Indices) -> Wide:
        """Return what a weight makes of some rows."""
        return self.rows[:, at] @ weight if self.taken is None else weight[:, self.taken[at]]

    @property
    def weight(self) -> Wide:
        return wide(self.matrix(self.constant.array))

    @property
    def groups(self) -> int:
        return len(self.rows)

    def close(self, right: Array) -> bool:
        """Return whether other numbers give what is wanted, in a few rows and outputs."""
        # a few rows and outputs already show most of what cannot fit
        rows, outputs = (some(size, _CHECKED) for size in self.wanted.shape[1:])
        try:
            made = self.times(wide(self.matrix(right)[:, :, outputs]), rows)
        except (ValueError, IndexError):
            return False
        wanted = self.wanted[:, rows][:, :, outputs]
        return made.shape == wanted.shape and peak(made - wanted) <= 2e-3 * (peak(wanted) or 1.0)

    def factor(self, right: Array) -> Wide | None:
        """Return the factor by output with which other numbers give what is wanted; None if none does, or it is 1."""
        rows = some(self.rows.shape[1], 8 * _CHECKED)
        matrix = self.matrix(right)
        if matrix.shape != self.weight.shape or len(rows) < _CHECKED:
            return None
        made, wanted = self.times(wide(matrix), rows), self.wanted[:, rows]
        factor = fitted(made, wanted, 1)[0]
        is_close = small(made * factor - wanted, wanted)
        return factor if is_close and (np.abs(factor - 1) > 1e-4).any() else None

    def factor_of_channels(self, right: Array) -> Wide | None:
        """Return the factor of exchanged channels, which had been scaled by output before; None if there is none.

        The scale `s` stands at the other channels: `s[output] / s[input]` takes it back.
        """
        # one factor for each input channel, solved for each output
        outputs, size = self.constant.array.shape[:2]
        matrix, found = wide(self.matrix(right)).reshape(size, -1, outputs), []
        every = slice(None, None, max(1, self.rows.shape[1] // (4 * size)))
        rows = self.rows[0, every].reshape(-1, size, matrix.shape[1])
        wanted = self.wanted[0, every]
        for output in range(outputs):
            made = np.einsum("rik,ik->ri", rows, matrix[:, :, output])
            factors = np.linalg.lstsq(made, wanted[:, output], rcond=1e-6)[0]
            if not small(made @ factors - wanted[:, output], wanted):
                return None
            found.append(factors)
        # all factors must be of rank one: s[output] / s[input]
        by_output, _, by_input = np.linalg.svd(np.array(found))
        scale = by_output[:, 0]
        if not np.abs(scale).min() > 0 or not by_input[0].any():
            return None
        return np.repeat(scale / scale[:, None], matrix.shape[1], axis=0)


def some(size: int, most: int) -> Indices:
    """Return some positions, spread evenly."""
    return np.linspace(0, size - 1, min(most, size)).astype(int)


def fitted(
    made: Wide, wanted: Wide, axis: int | Ints | None = 0, shifts: bool = False
) -> tuple[Wide, Wide]:
    """Return the (factor, shift) that turn one into the other best, for each column or for all."""
    # least squares in closed form; a shift is what is left of the means
    x, y = (a - a.mean(axis=axis, keepdims=True) if shifts else a for a in (made, wanted))
    power = np.square(x).sum(axis=axis, keepdims=True)
    products = (x * y).sum(axis=axis, keepdims=True)
    factor = np.divide(products, power, out=np.ones_like(power), where=power > 0)
    shift = (wanted - factor * made).mean(axis=axis, keepdims=True)
    return factor, shift if shifts else np.zeros_like(factor)


def linears(place: Place) -> Iterator[Linear]:
    """Yield the nodes that are linear in a constant and whose wanted result is known."""
    yield from (view for site in place.sites if (view := _view(site)) is not None)


def stacked(place: Place, view: Linear) -> Linear:
    """Return a view with the rows of all samples."""
    views = [view]
    for sample in place.samples[1:_SAMPLES]:
        there = replace(place, samples=[sample], nearby={})
        other = _view(there.sites[view.constant.site.number])
        views += [other] if other is not None else []
    rows, wanted = ([getattr(v, name) for v in views] for name in ("rows", "wanted"))
    return replace(view, rows=np.concatenate(rows, 1), wanted=np.concatenate(wanted, 1))


def _without_bias(site: RegionNode, result: Wide) -> Wide:
    """Return the result of a MatMul, a Gemm or a convolution without its bias."""
    # what is left is the product alone, linear in the weight
    bias = site.operand(2)
    if bias is None or site.op_type == "MatMul":
        return result
    if site.op_type == "Conv":
        return result - wide(bias).reshape(-1, *[1] * (result.ndim - 2))
    return result - _number(site, "beta") * wide(bias)


def _number(site: RegionNode, name: str) -> float:
    value = site.attributes.get(name)
    return value if isinstance(value, float) else 1.0


def _view(site: RegionNode) -> Linear | None:
    """Return a node as matrices; None if it is not linear in its second input, or in a table."""
    if site.op_type == "Gather":
        return _lookup(site)
    # the second input is the weight; its numbers and the wanted result must be known
    constant, given, wanted = site.constant(1), site.operand(0), site.wanted
    if constant is None or given is None or wanted is None or constant.array.dtype.kind not in "fV":
        return None
    if site.op_type not in ("MatMul", "Gemm", "Conv") or site.node.domain not in ("", "ai.onnx"):
        return None
    out = _without_bias(site, wanted)
    if site.op_type == "Conv":
        return _convolution(constant, out)
    # a product of matrices: rows of inputs, whatever axes are before the last one
    weight, transposed = constant.array, bool(site.attributes.get("transB"))
    alpha = _number(site, "alpha")
    if weight.ndim != 2 or given.ndim < 2 or site.attributes.get("transA") or not alpha:
        return None

    def matrix(array: Array) -> Array:
        return (array.T if transposed else array)[None]

    inputs, outputs = matrix(weight).shape[1:]
    if given.shape[-1] != inputs or out.shape != given.shape[:-1] + (outputs,):
        return None
    rows, out = wide(given).reshape(1, -1, inputs), out.reshape(1, -1, outputs) / alpha
    return Linear(constant, matrix, lambda m: m[0].T if transposed else m[0], rows, out)


def _lookup(site: RegionNode) -> Linear | None:
    """Return a Gather of rows as a table."""
    table, taken, wanted = site.constant(0), site.operand(1), site.wanted
    if table is None or taken is None or wanted is None or site.attributes.get("axis"):
        return None
    width = table.array.shape[-1] if table.array.ndim == 2 else 0
    if not table.is_float or wanted.shape != taken.shape + (width,):
        return None
    every = np.asarray(taken.reshape(-1) % max(1, len(table.array)), np.intp)
    rows, wanted = np.zeros((1, every.size, 0)), wanted.reshape(1, -1, width)
    return Linear(table, lambda array: array[None], lambda m: m[0], rows, wanted, every)


def _convolution(constant: Constant, wanted: Wide) -> Linear | None:
    """Return a convolution as matrices, one for each group."""
    site, weight = constant.site, constant.array
    groups, windows = integer(site.node, "group", 1), _windows(site, weight.shape[2:])
    if windows is None:
        return None
    axes = weight.ndim - 2
    # each position of the kernel is a row, each group a problem of its own
    positions, channels = windows.shape[: 1 + axes], windows.shape[1 + axes]
    if positions != wanted.shape[:1] + wanted.shape[2:] or channels != groups * weight.shape[1]:
        return None
    inputs, count = math.prod(weight.shape[1:]), math.prod(positions)
    every = slice(None, None, max(1, count // _ROWS))
    rows = windows.reshape(-1, groups, inputs)[every].swapaxes(0, 1)
    results = np.moveaxis(wanted, 1, -1).reshape(count, groups, -1)[every].swapaxes(0, 1)
    return Linear(
        constant,
        lambda array: array.reshape(groups, -1, inputs).swapaxes(1, 2),
        lambda m: m.swapaxes(1, 2).reshape(weight.shape),
        rows,
        results,
    )


def _windows(site: RegionNode, kernel: Ints) -> Wide | None:
    """Return what a convolution reads: [samples, each axis, channels, each axis of the kernel]."""
    given, axes = site.operand(0), len(kernel)
    if given is None or given.ndim != axes + 2 or not axes:
        return None
    if 8 * given.size * math.prod(kernel) > _LARGEST:
        return None
    windows = windows_of(site.node, given, kernel)
    return None if windows is None else np.moveaxis(windows, 1, axes + 1)


@dataclass(frozen=True)
class Descent:
    """How far steps go, and when they end.

    Attributes:
        noise: an error that few steps make smaller. enough: one at which the steps end.
        patience: steps in a row that may make an error no smaller.
        much: slopes serve once more after a step that makes every error smaller by this factor.
    """

    rounds: int
    noise: float
    patience: int = 6
    enough: float = 0.0
    much: float = 0.0

    def __call__(
        self, start: Wide, left_at: Callable[[Wide], Wide], slopes_at: Callable[[Wide], Wide]
    ) -> Wide:
        """Return the numbers [problems, unknowns] at which the steps end.

        Source: Marquardt, "An algorithm for least-squares estimation of nonlinear parameters", 1963.

        Args:
            left_at: numbers -> what is left of the error [problems, equations].
            slopes_at: numbers -> how what is made changes with each of them [problems, equations, unknowns].
        """
        change, left, slopes, fresh = start, left_at(start), slopes_at(start), True
        error, damped = root_mean_square(left), np.full(len(start), _DAMPED)
        failed, done = np.zeros(len(start)), error <= self.enough
        for _ in range(0 if done.all() else self.rounds):
            # the damped normal equations of each problem, with unknowns scaled by their slopes
            lengths = np.linalg.norm(slopes, axis=1)
            lengths[lengths == 0] = 1
            scaled = slopes / lengths[:, None]
            normal = scaled.transpose(0, 2, 1) @ scaled
            normal += damped[:, None, None] * np.eye(change.shape[1])
            along = np.einsum("urp,ur->up", scaled, left)[..., None]
            tried = change + np.linalg.solve(normal, along)[..., 0] / lengths
            left_then = left_at(tried)
            error_then = root_mean_square(left_then)
            # keep what is better; damp less after it, more after what is worse
            better = error_then < error
            damped = np.maximum(np.where(better, damped / 10, damped * 10), _LEAST)
            failed = np.where(better | (not fresh), 0, failed + 1)
            slow = better & (error_then > _BETTER * error) & (error <= self.noise)
            done |= (failed >= self.patience) | slow
            serve = bool((error_then < self.much * error).all())
            change = np.where(better[:, None], tried, change)
            left[better], error[better] = left_then[better], error_then[better]
            if (done | (error <= self.enough)).all():
                break
            if not serve and (better.any() or not fresh):
                slopes = slopes_at(change)
            fresh = not serve
        return change


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


def root_mean_square(left: Wide) -> Wide:
    """Return that of each problem; infinite where a number is not finite."""
    with np.errstate(all="ignore"):
        error = np.sqrt(np.mean(np.square(left), axis=1))
    return np.where(np.isfinite(error), error, np.inf)
