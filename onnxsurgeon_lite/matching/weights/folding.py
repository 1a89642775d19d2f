"""A BatchNorm that was folded into the convolution before it: which one, and what comes of the weight and the bias.

With y = scale * (x - mean) / sqrt(variance + epsilon) + shift, a channel's weights are multiplied by
scale / sqrt(variance + epsilon). That factor shows in the ratio of the folded weight to the stored one; the epsilon,
which no checkpoint holds, follows from it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onnxsurgeon_lite.tensors.dtypes import Array
from onnxsurgeon_lite.tensors.references import ReferenceSet

Floats = NDArray[np.float64]

_VARIANCE = ".running_var"
_USUAL_EPSILON, _LARGEST_EPSILON = 1e-5, 1e-1
_RELATED = (
    0.1  # ratios that are farther from a BatchNorm's factors in the middle channel are another's
)


@dataclass(frozen=True)
class BatchNorm:
    """What a checkpoint holds of one; without weight and bias they are ones and zeros."""

    name: str
    scale: Floats
    shift: Floats
    mean: Floats
    variance: Floats


@dataclass(frozen=True)
class Fold:
    """A BatchNorm in a convolution. error: of the middle channel's factor, relative."""

    norm: BatchNorm
    epsilon: float
    error: float

    @property
    def factor(self) -> Floats:
        """What each channel's weights are multiplied by."""
        return _factor(self.norm, self.epsilon)

    def weight(self, stored: Array, axis: int) -> Floats:
        """A stored weight, folded; its output channels lie on an axis."""
        shape = [1] * stored.ndim
        shape[axis] = -1
        return np.asarray(stored.astype(np.float64) * self.factor.reshape(shape))

    def bias(self, stored: Array | None) -> Floats:
        """The bias beside it, folded; None for a convolution that had none."""
        bias = np.zeros_like(self.norm.mean) if stored is None else stored.astype(np.float64)
        return (bias - self.norm.mean) * self.factor + self.norm.shift


def batch_norms(checkpoint: ReferenceSet) -> list[BatchNorm]:
    """Every BatchNorm of a checkpoint: what has a running variance and mean."""
    found = []
    for parameter in checkpoint:
        name = parameter.removesuffix(_VARIANCE)
        if name != parameter and f"{name}.running_mean" in checkpoint:
            variance = _floats(checkpoint, parameter)
            keys = ("weight", np.ones), ("bias", np.zeros), ("running_mean", np.zeros)
            scale, shift, mean = (
                _floats(checkpoint, f"{name}.{key}")
                if f"{name}.{key}" in checkpoint
                else usual(variance.shape)
                for key, usual in keys
            )
            found.append(BatchNorm(name, scale, shift, mean, variance))
    return found


def find_fold(array: Array, stored: Array, axis: int, norms: Iterable[BatchNorm]) -> Fold | None:
    """The BatchNorm that makes one weight of the other, if one does about."""
    mine, theirs = (
        np.moveaxis(side, axis, 0).reshape(side.shape[axis], -1).astype(np.float64)
        for side in (array, stored)
    )
    with np.errstate(all="ignore"):
        ratio = (mine * theirs).sum(axis=1) / (theirs * theirs).sum(axis=1)
        folds = [_fold(ratio, norm) for norm in norms if norm.variance.shape == ratio.shape]
    best = min(folds, key=lambda fold: fold.error, default=None)
    return best if best is not None and best.error < _RELATED else None


def _fold(ratio: Floats, norm: BatchNorm) -> Fold:
    epsilon = float(np.median((norm.scale / ratio) ** 2 - norm.variance))
    if not -1e-6 <= epsilon <= _LARGEST_EPSILON:  # also for NaN
        epsilon = _USUAL_EPSILON
    epsilon = max(epsilon, 0.0)
    error = float(np.median(np.abs(ratio / _factor(norm, epsilon) - 1)))
    return Fold(norm, epsilon, error if np.isfinite(error) else np.inf)


def _factor(norm: BatchNorm, epsilon: float) -> Floats:
    return norm.scale / np.sqrt(norm.variance + epsilon)


def _floats(checkpoint: ReferenceSet, name: str) -> Floats:
    return np.asarray(checkpoint.read(name)).astype(np.float64).reshape(-1)
