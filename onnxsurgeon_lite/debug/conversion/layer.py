"""What quantizing a weight or an activation moves the outputs by, to first order."""

from dataclasses import dataclass
from math import sqrt

import numpy as np
from onnx import NodeProto, TensorProto

from onnxsurgeon_lite.debug.conversion.effects import Slopes
from onnxsurgeon_lite.debug.ranking.bits import rounded
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.schemas import constant
from onnxsurgeon_lite.passes.derivative import Derivative
from onnxsurgeon_lite.runtime.quantizing import Quantizing
from onnxsurgeon_lite.surgery.gradients.tape import Term
from onnxsurgeon_lite.tensors.dtypes import Array, rms, wide

_FLOAT = TensorProto.FLOAT
_BLOCK = 32  # weights of 4 bits with one scale
_LEVELS = 255  # of 8 bits


@dataclass(frozen=True)
class Activation:
    """A value that a pair of QuantizeLinear and DequantizeLinear stands on."""

    result: str

    def effect(self, work: Derivative, slopes: Slopes) -> Term:
        """Return how far quantizing moves the outputs."""
        value = Term(work.tape, self.result, _FLOAT)
        step = _range(value) / _LEVELS
        # a grid over the range that the value really has
        gap = value - (value / step).function("Round") * step
        return _norm(slopes[self.result] * gap)


@dataclass(frozen=True)
class Layer:
    """A node whose operands are quantized.

    Attributes:
        result: what it makes. given: the activation that it reads; '' for none.
        terms: how many products a number of the result adds up. size, error: of a weight, and of its rounding, as
            root mean squares; 1 and 0 without a weight.
        is_whole: the activation is quantized, too.
    """

    result: str
    given: str
    terms: float
    size: float
    error: float
    is_whole: bool

    @classmethod
    def of(cls, index: GraphIndex, node: NodeProto, quantizing: Quantizing) -> "Layer":
        """Read a node of the float model. Its activations count as values where calibration places pairs on them."""
        given = ""
        # the first weight with two axes or more, and the first activation
        tensor = None
        for name in node.input:
            found = constant(index, name) if name else None
            kind = index.type_of(name) if name and found is None else None
            if found is not None and found.data_type == _FLOAT and len(found.dims) > 1:
                tensor = tensor or found
            elif kind is not None and kind.tensor_type.elem_type == _FLOAT:
                given = given or name
        is_whole = quantizing.to == "int8" and not quantizing.calibrate
        if tensor is None:
            return cls(node.output[0], given, 1.0, 1.0, 0.0, is_whole)
        weight = index.model.array(tensor)
        last = node.op_type in ("MatMul", "Gemm", "Gather")
        # products for one number of the result: the weight's elements by its output channels
        terms = weight.size / weight.shape[-1 if last else 0] if given else 1.0
        error = rms(wide(_quantized(weight, -1 if last else 0, quantizing)) - wide(weight))
        return cls(node.output[0], given, terms, rms(wide(weight)), error, is_whole)

    def effect(self, work: Derivative, slopes: Slopes) -> Term:
        """Return how far quantizing moves the outputs."""
        # Independent errors of n products add up to sqrt(n) times one of them: x * error of the weight, weight * error
        # of x.
        slope = _norm(slopes[self.result]) * sqrt(self.terms)
        if not self.given:
            return slope * self.error
        value = Term(work.tape, self.given, _FLOAT)
        square = work.tape.op("ReduceMean", value * value, keepdims=0) * self.error**2
        if self.is_whole:
            # rounding to a step has a standard deviation of step / sqrt(12)
            step = _range(value) * (self.size / _LEVELS / sqrt(12))
            square += step * step
        return slope * square.function("Sqrt")


def _norm(term: Term) -> Term:
    return term.tape.op("ReduceL2", term, keepdims=0)


def _range(value: Term) -> Term:
    """Return from where to where the numbers reach, with 0 among them."""
    high, low = (value.tape.op(f"Reduce{end}", value, keepdims=0) for end in ("Max", "Min"))
    return high.function("Relu") + (-low).function("Relu")


def _quantized(weight: Array, axis: int, quantizing: Quantizing) -> Array:
    """Return a weight as the tool's integers hold it, roughly."""
    if quantizing.to != "int8":
        # 4 bits: blocks of 32 along the rows; the last one is filled up
        blocks = np.resize(weight.swapaxes(-1, -2), (-(-weight.size // _BLOCK), _BLOCK))
        flat = rounded(blocks, 4, 0).ravel()[: weight.size]
        return flat.reshape(weight.swapaxes(-1, -2).shape).swapaxes(-1, -2)
    if quantizing.calibrate:
        return rounded(weight, 8, axis)
    return rounded(weight.reshape(1, -1), 8, 0).reshape(weight.shape)
