"""Bisect a mismatch to its nodes and reasons: looks, search, verdicts, reproducer."""

from onnxsurgeon_lite.debug.bisection.bisect import Search, bisect
from onnxsurgeon_lite.debug.bisection.computed_references import (
    ChangedInitializers,
    computed_references,
)
from onnxsurgeon_lite.debug.bisection.find import find
from onnxsurgeon_lite.debug.bisection.reproducer import strip_weights, write_reproducer
from onnxsurgeon_lite.debug.bisection.result import BisectResult
from onnxsurgeon_lite.debug.bisection.samples import bisect_samples

__all__ = [
    "BisectResult",
    "ChangedInitializers",
    "Search",
    "bisect",
    "bisect_samples",
    "computed_references",
    "find",
    "strip_weights",
    "write_reproducer",
]
