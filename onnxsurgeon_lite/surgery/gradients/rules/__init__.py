"""The gradient of each operator: one rule for each input, by the operator's name."""

from onnxsurgeon_lite.surgery.gradients.rules import (
    convolution,
    formulas,
    indexing,
    normalization,
    pooling,
    products,
    resizing,
    shapes,
)
from onnxsurgeon_lite.surgery.gradients.step import Rule

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
}

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
