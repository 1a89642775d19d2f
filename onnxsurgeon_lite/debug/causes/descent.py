"""Least squares of what is not linear: Levenberg-Marquardt steps, for many small problems at once."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from onnxsurgeon_lite.debug.causes.place import Wide

_LEAST = 1e-10  # of the damping, at least
_BETTER = 0.99  # times the error, at least, with each step
_INDEPENDENT = 1e-4  # of the largest singular value: numbers of a smaller one are not told apart
_DIGITS = 6  # after which floats are equal


@dataclass(frozen=True)
class Descent:
    """How far steps go, and when they end.

    Attributes:
        damped: shares of the diagonal; each step takes the best one. A single share adapts.
        patience: steps in a row that may make an error no smaller.
        noise: an error that few steps make smaller. enough: one at which the steps end.
        much: slopes serve once more after a step that makes every error smaller by this factor.
    """

    rounds: int
    noise: float
    damped: Sequence[float] = (1e-2,)
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
        error, factor = root_mean_square(left), np.ones(len(start))
        failed, done = np.zeros(len(start)), error <= self.enough
        for _ in range(0 if done.all() else self.rounds):
            least, best, best_left = np.full(len(start), np.inf), change.copy(), left.copy()
            for tried in self._tried(change, left, slopes, factor):
                left_then = left_at(tried)
                error_then = root_mean_square(left_then)
                nearer = error_then < least
                least[nearer], best[nearer] = error_then[nearer], tried[nearer]
                best_left[nearer] = left_then[nearer]
            # keep what is better; damp less after it, more after what is worse
            better = least < error
            if len(self.damped) == 1:
                factor = np.maximum(np.where(better, factor / 10, factor * 10), _LEAST)
            failed = np.where(better | (not fresh), 0, failed + 1)
            slow = better & (least > _BETTER * error) & (error <= self.noise)
            done |= (failed >= self.patience) | slow
            serve = bool((least < self.much * error).all())
            change = np.where(better[:, None], best, change)
            left[better], error[better] = best_left[better], least[better]
            if (done | (error <= self.enough)).all():
                break
            if not serve and (better.any() or not fresh):
                slopes = slopes_at(change)
            fresh = not serve
        return change

    def _tried(self, change: Wide, left: Wide, slopes: Wide, factor: Wide) -> Iterator[Wide]:
        """Yield the numbers after a step by the damped normal equations, with unknowns scaled by their slopes."""
        lengths = np.linalg.norm(slopes, axis=1)
        lengths[lengths == 0] = 1
        scaled = slopes / lengths[:, None]
        normal = scaled.transpose(0, 2, 1) @ scaled
        along = np.einsum("urp,ur->up", scaled, left)[..., None]
        for damped in self.damped:
            more = (damped * factor)[:, None, None] * np.eye(change.shape[1])
            yield change + np.linalg.solve(normal + more, along)[..., 0] / lengths


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
