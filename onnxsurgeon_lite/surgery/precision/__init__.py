"""Give a model's float32 values a narrower float dtype."""

from onnxsurgeon_lite.surgery.precision.plan import Plan
from onnxsurgeon_lite.surgery.precision.rewrite import Rewriting
from onnxsurgeon_lite.surgery.precision.sites import EXACT, PrecisionScope, PrecisionStep, Site

__all__ = ["EXACT", "Plan", "PrecisionScope", "PrecisionStep", "Rewriting", "Site"]
