"""The gradient of each operator: one rule for each input, by the operator's name."""

from collections.abc import Callable

from onnxsurgeon_lite.surgery.gradients.rules import (
    convolution,
    formulas,
    indexing,
    normalization,
    pooling,
    products,
    recurrent,
    resizing,
    sampling,
    shapes,
    signals,
)
from onnxsurgeon_lite.surgery.gradients.step import GradientStep, Rule
from onnxsurgeon_lite.surgery.gradients.tape import Term

RULES: dict[str, Rule] = {
    **formulas.BROADCAST,
    **formulas.RULES,
    **products.RULES,
    **convolution.RULES,
    **pooling.RULES,
    **normalization.RULES,
    **shapes.RULES,
    **indexing.RULES,
    **resizing.RULES,
    **signals.RULES,
}

WRITTEN: dict[str, Callable[[GradientStep], list[Term]]] = {
    "CumProd": formulas.running_product,
    "DeformConv": sampling.deformed,
    "GridSample": sampling.grid_sample,
    "RoiAlign": sampling.aligned_regions,
    "STFT": signals.stft,
    **dict.fromkeys(recurrent.OPERATORS, recurrent.unrolled),
}
"""Operators that are differentiated by nodes that compute the same, written here."""

BROADCAST = formulas.BROADCAST.keys()
"""Operators whose inputs are broadcast to the output: the rules give gradients in the output's shape."""

SEVERAL = frozenset({"Split"})
"""Operators whose rules read the gradients of all outputs; those of others read that of the first."""

BY_SIZE = frozenset((
    "ConstantOfShape", "EyeLike", "RandomNormalLike", "RandomUniformLike", "Shape", "Size",
))  # fmt: skip
"""Operators whose output depends on the input's sizes, not on its numbers."""
ZERO = BY_SIZE | {"Bernoulli", "Ceil", "Floor", "Hardmax", "MelWeightMatrix", "Round", "Sign"}
"""Operators whose output does not change with small changes of the input."""
