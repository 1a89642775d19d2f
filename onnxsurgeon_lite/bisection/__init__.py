"""From "the outputs differ" to the nodes and the reasons: looks, search, verdicts, reproducer."""

from onnxsurgeon_lite.bisection.against import ChangedInitializers, computed_references
from onnxsurgeon_lite.bisection.bisecting import Search, bisect
from onnxsurgeon_lite.bisection.finding import find
from onnxsurgeon_lite.bisection.reproducer import Reproducer, strip_weights, write_reproducer
from onnxsurgeon_lite.bisection.result import BisectResult, Culprit, Finding, ValueReport
from onnxsurgeon_lite.bisection.samples import bisect_samples

__all__ = [
    "BisectResult",
    "ChangedInitializers",
    "Culprit",
    "Finding",
    "Reproducer",
    "Search",
    "ValueReport",
    "bisect",
    "bisect_samples",
    "computed_references",
    "find",
    "strip_weights",
    "write_reproducer",
]
