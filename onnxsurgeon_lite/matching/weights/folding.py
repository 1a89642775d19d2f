"""Find the BatchNorm that was folded into a convolution, and fold stored weights and biases with it.

With y = scale * (x - mean) / sqrt(variance + epsilon) + shift, folding multiplies a channel's weights by
scale / sqrt(variance + epsilon). The ratio of folded to stored weights gives this factor, and the factor gives
epsilon, which checkpoints do not contain.
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
_RELATED = 0.1  # largest relative error of the median channel's factor


@dataclass(frozen=True)
class BatchNorm:
    """A BatchNorm in a checkpoint; missing weights are ones, missing biases zeros."""

    name: str
    scale: Floats
    shift: Floats
    mean: Floats
    variance: Floats


@dataclass(frozen=True)
class Fold:
    """A BatchNorm folded into a convolution. error: relative error of the median channel's factor."""

    norm: BatchNorm
    epsilon: float
    error: float

    @property
    def factor(self) -> Floats:
        """The factor of each channel's weights."""
        return _factor(self.norm, self.epsilon)

    def weight(self, stored: Array, axis: int) -> Floats:
        """Fold a stored weight with output channels on `axis`."""
        shape = [1] * stored.ndim
        shape[axis] = -1
        return np.asarray(stored.astype(np.float64) * self.factor.reshape(shape))

    def bias(self, stored: Array | None) -> Floats:
        """Fold a stored bias; None for a convolution without one."""
        bias = np.zeros_like(self.norm.mean) if stored is None else stored.astype(np.float64)
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


def find_fold(array: Array, stored: Array, axis: int, norms: Iterable[BatchNorm]) -> Fold | None:
    """Return the BatchNorm that turns the stored weight into the array, None if none fits."""
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
