"""Compare a model's weights with their checkpoint: renamed, transposed, reshaped or folded."""

from onnxsurgeon_lite.matching.weights.branches import add_branches
from onnxsurgeon_lite.matching.weights.compare import Weight, WeightsResult, compare_weights
from onnxsurgeon_lite.matching.weights.update import update_weights

__all__ = ["Weight", "WeightsResult", "add_branches", "compare_weights", "update_weights"]
