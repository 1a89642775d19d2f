"""From "the outputs differ" to the node: search, verdict, reproducer."""

from onnxsurgeon_lite.bisection.bisecting import Search, bisect
from onnxsurgeon_lite.bisection.reproducer import write_reproducer
from onnxsurgeon_lite.bisection.result import BisectResult, Culprit, ValueReport

__all__ = ["BisectResult", "Culprit", "Search", "ValueReport", "bisect", "write_reproducer"]
