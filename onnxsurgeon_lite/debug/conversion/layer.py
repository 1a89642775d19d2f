"""What quantizing one node moves the outputs by, to first order."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import hypot, sqrt

import numpy as np
from onnx import NodeProto, TensorProto

from onnxsurgeon_lite.debug.bits import rounded
from onnxsurgeon_lite.debug.conversion.slopes import Slopes
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.schemas import constant
from onnxsurgeon_lite.passes.derivative import Derivative
from onnxsurgeon_lite.runtime.quantizing import Quantizing
from onnxsurgeon_lite.surgery.gradients.tape import Term
from onnxsurgeon_lite.tensors.dtypes import Array
from onnxsurgeon_lite.tensors.grid import Wide

_FLOAT = TensorProto.FLOAT
_BLOCK = 32  # weights of 4 bits with one scale
_STEP = 1 / 255 / sqrt(12)  # the error of 8 bits, as a share of the range


@dataclass(frozen=True)
class Layer:
    """A node that may be quantized.

    Attributes:
        result: what it makes. given: the activation that it reads; '' for none.
        terms: how many products a number of the result adds up. size, error: of a weight, and of its rounding, as
            root mean squares; 1 and 0 without a weight.
        is_whole: activations are quantized, too.
    """

    result: str
    given: str
    terms: float
    size: float
    error: float
    is_whole: bool

    @classmethod
    def of(cls, index: GraphIndex, node: NodeProto, quantizing: Quantizing) -> "Layer":
        """Read a node of the float model."""
        given = ""
        tensor = None
        for name in node.input:
            found = constant(index, name) if name else None
            kind = index.type_of(name) if name and found is None else None
            if found is not None and found.data_type == _FLOAT and len(found.dims) > 1:
                tensor = tensor or found
            elif kind is not None and kind.tensor_type.elem_type == _FLOAT:
                given = given or name
        is_whole = quantizing.to == "int8"
        if tensor is None:
            return cls(node.output[0], given, 1.0, 1.0, 0.0, is_whole)
        weight = index.model.array(tensor)
        last = node.op_type in ("MatMul", "Gemm", "Gather")
        channels = weight.shape[-1 if last else 0]
        terms = weight.size / channels if given else 1.0
        error = _rms(_quantized(weight, -1 if last else 0, quantizing), weight)
        return cls(node.output[0], given, terms, _rms(weight), error, is_whole)

    def numbers(self, work: Derivative, slopes: Slopes) -> Iterator[Term]:
        """Yield the norm of the gradient, then the largest, smallest and mean square number of the activation."""
        tape, zero = work.tape, work.tape.number(0.0, _FLOAT)
        slope = slopes.get(self.result)
        yield zero if slope is None else tape.op("ReduceL2", slope, keepdims=0)
        value = Term(tape, self.given, _FLOAT) if self.given else zero
        yield tape.op("ReduceMax", value, keepdims=0)
        yield tape.op("ReduceMin", value, keepdims=0)
        yield tape.op("ReduceMean", value * value, keepdims=0)

    def effect(self, numbers: Wide) -> float:
        """Return how far quantizing moves the outputs."""
        slope, high, low, square = map(float, numbers)
        step = _STEP * (max(high, 0.0) - min(low, 0.0)) if self.is_whole else 0.0
        size = sqrt(square) if self.given else 1.0
        return slope * sqrt(self.terms) * hypot(self.error * size, step * self.size)


def _quantized(weight: Array, axis: int, quantizing: Quantizing) -> Array:
    """Return a weight as the tool's integers hold it, roughly."""
    if quantizing.to != "int8":
        blocks = np.resize(weight.swapaxes(-1, -2), (-(-weight.size // _BLOCK), _BLOCK))
        flat = rounded(blocks, 4, 0).ravel()[: weight.size]
        return flat.reshape(weight.swapaxes(-1, -2).shape).swapaxes(-1, -2)
    if quantizing.calibrate:
        return rounded(weight, 8, axis)
    return rounded(weight.reshape(1, -1), 8, 0).reshape(weight.shape)


def _rms(array: Array, other: Array | float = 0.0) -> float:
    """Return the root mean square of a difference."""
    gap = array.astype(np.float64) - np.asarray(other, np.float64)
    return float(np.sqrt(np.mean(gap**2))) if gap.size else 0.0
