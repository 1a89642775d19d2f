"""Give a model's float32 values a narrower float dtype."""

from onnxsurgeon_lite.surgery.precision.plan import Plan
from onnxsurgeon_lite.surgery.precision.rewrite import Rewriting
from onnxsurgeon_lite.surgery.precision.sites import EXACT, Scope, Site, Step

__all__ = ["EXACT", "Plan", "Rewriting", "Scope", "Site", "Step"]
