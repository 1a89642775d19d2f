"""From "the outputs differ" to the node: search, verdict, reproducer."""

from onnxsurgeon_lite.bisect.bisecting import bisect
from onnxsurgeon_lite.bisect.reproducer import write_reproducer
from onnxsurgeon_lite.bisect.result import BisectResult, Culprit, ValueReport

__all__ = ["BisectResult", "Culprit", "ValueReport", "bisect", "write_reproducer"]
