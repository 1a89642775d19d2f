"""Express every size of a model in the symbols of its inputs: `batch`, `4*seq`, `(H + 1)//2`."""

from onnxsurgeon_lite.surgery.symbolic.expressions import Expressions
from onnxsurgeon_lite.surgery.symbolic.shapes import (
    as_declared,
    begin_types,
    carry_types,
    infer_types,
    is_unknown,
    onnx_types,
)

__all__ = [
    "Expressions",
    "as_declared",
    "begin_types",
    "carry_types",
    "infer_types",
    "is_unknown",
    "onnx_types",
]
