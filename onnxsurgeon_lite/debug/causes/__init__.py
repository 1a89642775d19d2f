"""What is wrong with a culprit: hypotheses, one file a family, what tries them, and what repairs a model by them."""

from onnxsurgeon_lite.debug.causes.finding import explain_causes
from onnxsurgeon_lite.debug.causes.repairing import (
    repair_files,
    repaired,
    repairs,
    require_elsewhere,
)

__all__ = ["explain_causes", "repair_files", "repaired", "repairs", "require_elsewhere"]
