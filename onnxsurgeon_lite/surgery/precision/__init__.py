"""Give a model's float32 values a narrower float dtype."""

from onnxsurgeon_lite.surgery.precision.plan import EXACT, Plan, Scope, Site, Step
from onnxsurgeon_lite.surgery.precision.rewrite import Rewriting

__all__ = ["EXACT", "Plan", "Rewriting", "Scope", "Site", "Step"]
