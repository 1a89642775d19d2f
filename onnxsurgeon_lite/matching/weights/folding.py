"""Find what an export folded: a BatchNorm into a convolution, or 1 into the weight of a norm.

With y = scale * (x - mean) / sqrt(variance + epsilon) + shift, folding multiplies a channel's weights by
scale / sqrt(variance + epsilon). The ratio of folded to stored weights gives this factor, and the factor gives
epsilon, which checkpoints do not contain.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from onnxsurgeon_lite.tensors.dtypes import Array, DType, by_channel, eps, wide
from onnxsurgeon_lite.tensors.references import ReferenceSet

Floats = NDArray[np.float64]

_VARIANCE = ".running_var"
_USUAL_EPSILON, _LARGEST_EPSILON = 1e-5, 1e-1
_USUAL_EPSILONS = (1e-5, 1e-3, 1e-6, 1e-4, 1e-12)
_NOISE = 32.0  # rounding errors of a factor that are none of epsilon
_RELATED = 0.1  # largest relative error of the median channel's factor
_CLOSE = 1e-3  # two such errors that differ by less are equal
PLUS_ONE = "folded as 1 + it"


@dataclass(frozen=True)
class BatchNorm:
    """A BatchNorm in a checkpoint; missing weights are ones, missing biases zeros."""

    name: str
    scale: Floats
    shift: Floats
    mean: Floats
    variance: Floats

    def is_as(self, other: "BatchNorm") -> bool:
        """Return whether another BatchNorm has the same numbers."""
        mine, theirs = ((n.scale, n.shift, n.mean, n.variance) for n in (self, other))
        return all(map(np.array_equal, mine, theirs))


@dataclass(frozen=True)
class FoldedWeight:
    """A BatchNorm folded into a convolution.

    Attributes:
        ratio: of each channel's weights to the stored ones. rounding: of the weights, relative.
        error: relative error of the median channel's factor. rivals: other BatchNorms that fit as well.
    """

    norm: BatchNorm
    epsilon: float
    ratio: Floats
    rounding: float
    error: float
    rivals: tuple[str, ...] = ()

    def allows(self, epsilon: float) -> bool:
        """Return whether an epsilon gives these weights, up to their rounding."""
        with np.errstate(all="ignore"):
            # both sides squared: scale / ratio = sqrt(variance + epsilon)
            apart = np.abs((self.norm.scale / self.ratio) ** 2 / (self.norm.variance + epsilon) - 1)
        return bool(np.median(apart) <= _NOISE * self.rounding)

    @property
    def factor(self) -> Floats:
        """The factor of each channel's weights."""
        return _factor(self.norm, self.epsilon)

    def weight(self, stored: Array, axis: int) -> Floats:
        """Fold a stored weight with output channels on `axis`."""
        shape = [1] * stored.ndim
        shape[axis] = -1
        return np.asarray(wide(stored) * self.factor.reshape(shape))

    def bias(self, stored: Array | None) -> Floats:
        """Fold a stored bias; None for a convolution without one."""
        bias = np.zeros_like(self.norm.mean) if stored is None else wide(stored)
        return (bias - self.norm.mean) * self.factor + self.norm.shift


def batch_norms(checkpoint: ReferenceSet) -> list[BatchNorm]:
    """Return every BatchNorm of a checkpoint, recognized by running variance and mean."""
    names = [p.removesuffix(_VARIANCE) for p in checkpoint if p.endswith(_VARIANCE)]
    return [norm for name in names if (norm := batch_norm(checkpoint, name)) is not None]


def batch_norm(checkpoint: ReferenceSet, name: str) -> BatchNorm | None:
    """Return a BatchNorm by its name; None if the checkpoint lacks its variance or mean."""
    if f"{name}{_VARIANCE}" not in checkpoint or f"{name}.running_mean" not in checkpoint:
        return None
    variance = _floats(checkpoint, f"{name}{_VARIANCE}")
    keys = ("weight", np.ones), ("bias", np.zeros), ("running_mean", np.zeros)
    scale, shift, mean = (
        _floats(checkpoint, f"{name}.{key}")
        if f"{name}.{key}" in checkpoint
        else usual(variance.shape)
        for key, usual in keys
    )
    return BatchNorm(name, scale, shift, mean, variance)


def find_fold(
    array: Array, stored: Array, axis: int, norms: Iterable[BatchNorm]
) -> FoldedWeight | None:
    """Return the BatchNorm that turns the stored weight into the array, None if none fits."""
    mine, theirs = (wide(by_channel(side, axis)) for side in (array, stored))
    with np.errstate(all="ignore"):
        # least squares of folded = ratio * stored, for each output channel
        ratio = (mine * theirs).sum(axis=1) / (theirs * theirs).sum(axis=1)
        rounding = eps(array.dtype)
        folds = [
            _fold(ratio, norm, rounding) for norm in norms if norm.variance.shape == ratio.shape
        ]
    best = min(folds, key=lambda fold: fold.error, default=None)
    if best is None or best.error >= _RELATED:
        return None
    near = [f.norm.name for f in folds if f is not best and f.error < best.error + _CLOSE]
    return replace(best, rivals=tuple(near))


def _fold(ratio: Floats, norm: BatchNorm, rounding: float) -> FoldedWeight:
    # the median over channels: some have tiny factors, which rounding dominates
    epsilon = float(np.median((norm.scale / ratio) ** 2 - norm.variance))
    if not -1e-6 <= epsilon <= _LARGEST_EPSILON:  # also for NaN
        epsilon = _USUAL_EPSILON
    epsilon = max(epsilon, 0.0)
    error = float(np.median(np.abs(ratio / _factor(norm, epsilon) - 1)))
    return FoldedWeight(norm, epsilon, ratio, rounding, error if np.isfinite(error) else np.inf)


def common_epsilon(folds: Sequence[FoldedWeight]) -> float | None:
    """Return the epsilon that most folds allow, a usual one if several do; None without folds."""
    known = _USUAL_EPSILONS + tuple(fold.epsilon for fold in folds)
    return max(known, key=lambda e: sum(fold.allows(e) for fold in folds)) if folds else None


def settled(fold: FoldedWeight, epsilon: float | None) -> FoldedWeight:
    """Return a fold with the common epsilon, or a usual one, unless only its own one explains the weights."""
    if epsilon is None:
        return fold
    known = (epsilon, *_USUAL_EPSILONS, fold.epsilon)
    return replace(fold, epsilon=next(filter(fold.allows, known), epsilon))


def _factor(norm: BatchNorm, epsilon: float) -> Floats:
    return norm.scale / np.sqrt(norm.variance + epsilon)


def _floats(checkpoint: ReferenceSet, name: str) -> Floats:
    return wide(np.asarray(checkpoint.read(name))).reshape(-1)


def sums(stored: Array, dtype: DType) -> Iterator[tuple[DType, Array]]:
    """Yield (dtype that 1 is added in, the sum as the model holds it): float32 or wider, and the parameter's own."""
    # `dict.fromkeys`: a float32 parameter has only one such dtype
    for added in dict.fromkeys((np.promote_types(np.float32, stored.dtype), stored.dtype)):
        yield added, plus_one(stored, added).astype(dtype)


def plus_one(stored: Array, added: DType) -> Array:
    """Return 1 + the parameter, added in a dtype."""
    return np.asarray(stored.astype(added) + np.ones((), added))


def kind(parameter: str) -> str:
    """Return what norms at the same place of several layers share: the name without numbers."""
    return re.sub(r"\d+", "", parameter)
