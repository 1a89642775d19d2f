"""Measure how much of the outputs' error healing one culprit removes."""

from collections.abc import Mapping
from itertools import chain

import numpy as np

from onnxsurgeon_lite.debug.bisection.walk import Walk
from onnxsurgeon_lite.debug.judge import AgainstReferences, cast_like, unlike
from onnxsurgeon_lite.debug.result import Culprit
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.tensors.comparison import Comparison
from onnxsurgeon_lite.tensors.dtypes import RunValue


def effect_of(
    culprit: Culprit,
    walk: Walk,
    judge: AgainstReferences,
    feeds: Feeds,
    tensors: Mapping[str, tuple[RunValue, RunValue]],
) -> float:
    """Return the share of the outputs' error that healing only this culprit removes.

    Args:
        walk: the walk that found the culprit.
        tensors: (reference, actual) of the culprit's outputs, by name.
    """
    # a run of its own, without the other values that the walk healed
    alone = walk.alone(feeds, walk.observer.by_node)
    # heal this culprit alone
    for name in chain(culprit.outputs, culprit.seen):
        stored, actual = tensors[name]
        if stored is not None and not unlike(actual, stored):
            value = cast_like(actual, stored)
            alone.put(name, value)
    after = alone.fetch(walk.targets)
    before = sum(map(output_error, filter(None, judge.outputs.values())))
    left = sum(
        output_error(judge.compared(name, value, judge.references.read(name)))
        for name, value in after.items()
    )
    # with NaN or Inf in the outputs, healing explains all of the error or none of it
    if not np.isfinite(before):
        return float(np.isfinite(left))
    return max(0.0, 1 - left / before) if before else 0.0


def output_error(comparison: Comparison) -> float:
    """Return the relative RMS error of two tensors, independent of their unit."""
    if comparison.reason in ("shape", "dtype", "non-finite"):
        return float("inf")
    # SQNR in dB is 20 log10(|signal| / |error|)
    return float(10 ** (-comparison.metric("sqnr") / 20))
