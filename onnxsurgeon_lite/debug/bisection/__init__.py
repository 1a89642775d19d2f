"""Bisect a mismatch to its nodes and reasons: looks, search, verdicts, reproducer."""

from onnxsurgeon_lite.debug.bisection.bisect import Search, bisect
from onnxsurgeon_lite.debug.bisection.find import find
from onnxsurgeon_lite.debug.bisection.parts import agreeing_in_parts
from onnxsurgeon_lite.debug.bisection.reproducer import finished, reproducing, strip_weights
from onnxsurgeon_lite.debug.bisection.samples import (
    agreeing,
    explain_samples,
    judged,
)
from onnxsurgeon_lite.debug.computed_references import (
    ChangedInitializers,
    computed_references,
)
from onnxsurgeon_lite.debug.result import BisectResult

__all__ = [
    "BisectResult",
    "ChangedInitializers",
    "Search",
    "bisect",
    "agreeing",
    "agreeing_in_parts",
    "explain_samples",
    "judged",
    "computed_references",
    "find",
    "strip_weights",
    "finished",
    "reproducing",
]
