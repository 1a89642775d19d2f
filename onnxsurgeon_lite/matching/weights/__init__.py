"""A model's weights against the checkpoint it was exported from, whatever the exporter did to them."""

from onnxsurgeon_lite.matching.weights.compare import Weight, WeightsResult, compare_weights

__all__ = ["Weight", "WeightsResult", "compare_weights"]
