"""Quantize a model, with the layers left in float that a goal needs.

What quantizing a weight or an activation moves the outputs by is measured to first order.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from math import inf, sqrt
from typing import NamedTuple

import numpy as np
from onnx import NodeProto, TensorProto

from onnxsurgeon_lite.debug.conversion.effects import Slopes, measured
from onnxsurgeon_lite.debug.conversion.goal import Goal, require_finite
from onnxsurgeon_lite.debug.conversion.in_blocks import InBlocks
from onnxsurgeon_lite.debug.conversion.result import Conversion, Kept
from onnxsurgeon_lite.debug.conversion.spool import Spooled
from onnxsurgeon_lite.debug.ranking.bits import rounded
from onnxsurgeon_lite.errors import EditError, NoKernel, SurgeonError
from onnxsurgeon_lite.graph import GraphIndex, constant
from onnxsurgeon_lite.graph.selecting.select import selected_nodes
from onnxsurgeon_lite.model import Model, embedded_size, function_key
from onnxsurgeon_lite.passes.dequantize import Dequantize
from onnxsurgeon_lite.passes.derivative import Derivative
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.quantizing import Quantizing
from onnxsurgeon_lite.runtime.run import opened
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.search.subsets import by_worth, shortest, smallest
from onnxsurgeon_lite.shown import Progress
from onnxsurgeon_lite.surgery import inline
from onnxsurgeon_lite.surgery.gradients.tape import Term
from onnxsurgeon_lite.tensors.dtypes import rms, wide

_FLOAT = TensorProto.FLOAT
_BITS, _LEVELS = 8, 255


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
    def of(cls, index: GraphIndex, node: NodeProto, quantizing: Quantizing | InBlocks) -> "Layer":
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
        if isinstance(quantizing, InBlocks):
            narrow = quantizing.narrow(node)
            held = weight if narrow is None else narrow.restored()
        elif is_whole:  # without calibration one scale for all
            held = rounded(weight.reshape(1, -1), _BITS, 0).reshape(weight.shape)
        else:
            held = rounded(weight, _BITS, -1 if last else 0)
        error = rms(wide(held) - wide(weight))
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


_WEIGHTED = ("MatMul", "Gemm", "Conv", "ConvTranspose", "Gather", "LSTM", "Attention") + (
    "EmbedLayerNormalization",
)
# Operators with weights that the tool quantizes; with calibration, activations of others as well.
_STATIC = (
    *_WEIGHTED, "Add", "AveragePool", "Clip", "Concat", "GlobalAveragePool", "LayerNormalization", "LeakyRelu",
    "MaxPool", "Mul", "Relu", "Reshape", "Resize", "Sigmoid", "Softmax", "Split", "Squeeze", "Transpose", "Unsqueeze",
    "InstanceNormalization", "Where", "Pad", "ArgMax",
)  # fmt: skip
_QUESTIONS = 12  # quantizations of each step of a search


def named(model: Model) -> Model:
    """Return the model as the tools need it: without functions, each node with a name, types to be inferred anew."""
    result = inline(model, [function_key(function) for function in model.proto.functions])
    del result.graph.value_info[:]
    seen = set[str]()
    for position, node in enumerate(result.graph.node):
        # the tools choose nodes by name, so each needs one of its own
        if not node.name or node.name in seen:
            node.name = f"@{position}"
        seen.add(node.name)
    return result


class Quantized(NamedTuple):
    """A quantized model: its error as a multiple of the limit, the measured number, its share of the bytes."""

    excess: float
    measured: float
    share: float


@dataclass
class Integers:
    """A search for the nodes that stay in float.

    Attributes:
        keep: selectors of nodes that stay in any case.
        points: what was tried, by the nodes in float.
    """

    quantizing: Quantizing | InBlocks
    keep: Sequence[str]
    goal: Goal | None
    samples: Sequence[Feeds]
    runtime: Runtime
    progress: Progress
    points: dict[frozenset[str], Quantized] = field(default_factory=dict)
    _last: tuple[frozenset[str], Model] | None = None
    _no_kernel: str = ""

    def result(self) -> Conversion:
        """Return the quantized model.

        Raises:
            EditError: no node of it can be quantized.
        """
        if not self.nodes:
            raise EditError(f"no node of the model can be quantized to {self.quantizing.to}")
        # without a goal everything is quantized
        left = self._left() if self.goal is not None else []
        model = self._quantized(left)
        kept = [self._kept(name) for name in self.nodes if name in left]
        share = embedded_size(model) / embedded_size(self.quantizing.model)
        done = Conversion(model, self.quantizing.to, len(self.nodes), kept, 0, share)
        if self.goal is None:
            return done
        excess = self._excess(left)
        met, text = self.goal.judged(excess, self.points[frozenset(left)].measured)
        return replace(done, met=met, measured=text, ran=self._no_kernel, curve=self._curve())

    @cached_property
    def index(self) -> GraphIndex:
        """The float model."""
        return GraphIndex.of(self.quantizing.model)

    @cached_property
    def nodes(self) -> list[str]:
        """The names of the nodes that may be quantized."""
        index = self.index
        kept = selected_nodes(index, self.keep)
        return [n.name for p, n in enumerate(index.nodes) if p not in kept and self._fits(n)]

    def _fits(self, node: NodeProto) -> bool:
        """Return whether the tool quantizes a node: with calibration also one without weights."""
        if isinstance(self.quantizing, InBlocks):
            return self.quantizing.narrow(node) is not None
        if self.quantizing.calibrate:
            return node.op_type in _STATIC
        is_weighted = (constant(self.index, name) is not None for name in node.input)
        return node.op_type in _WEIGHTED and any(is_weighted)

    def _kept(self, name: str) -> Kept:
        position = self.index.named[name][0]
        node = self.index.nodes[position]
        place = str(self.index.origins[position])
        return Kept(f"@{position}", node.name, node.op_type, "for the goal", place)

    # the search

    def _left(self) -> list[str]:
        """Return the names of nodes that stay in float, as few as the questions find."""
        if self._excess(()) <= 1:
            return []
        layers = self._layers()
        # as in `guard`: predicted effects order the groups, quantized models that run decide
        groups, left = by_worth(self._effects(list(layers)), list(layers.values()))

        def first(count: int) -> list[str]:
            return list(chain.from_iterable(groups[:count]))

        count = shortest(left, lambda n: self._excess(first(n)), _QUESTIONS)
        fewest = smallest(first(count), lambda some: self._excess(some) <= 1, _QUESTIONS)
        return fewest or first(count)

    def _excess(self, left: Sequence[str]) -> float:
        """Return the error as a multiple of the limit, with these nodes in float."""
        key = frozenset(left)
        if key not in self.points:
            self.progress(f"quantizing {len(self.nodes) - len(key)} of {len(self.nodes)} nodes")
            model = self._quantized(left)
            share = embedded_size(model) / embedded_size(self.quantizing.model)
            self.points[key] = Quantized(*self._measured(model), share)
        return self.points[key].excess

    def _quantized(self, left: Sequence[str]) -> Model:
        """Return the model with all nodes quantized but these; the last one is not made twice."""
        key = frozenset(left)
        if self._last is None or self._last[0] != key:
            quantized = [name for name in self.nodes if name not in key]
            self._last = key, self.quantizing.quantized(quantized)
        return self._last[1]

    def _layers(self) -> dict[Layer | Activation, frozenset[str]]:
        """Return what is quantized, with the nodes that must stay in float for it to be, too."""
        found = dict[Layer | Activation, frozenset[str]]()
        # activation -> the nodes around it: a pair of quantizers stays as long as one of them is quantized
        around = defaultdict[str, set[str]](set)
        for name in self.nodes:
            node = self.index.nodes[self.index.named[name][0]]
            found[Layer.of(self.index, node, self.quantizing)] = frozenset((name,))
            for value in chain(node.input, node.output):
                if value and self._is_activation(value):
                    around[value].add(name)
        if self.quantizing.calibrate:
            found |= {Activation(value): frozenset(names) for value, names in around.items()}
        return found

    def _is_activation(self, value: str) -> bool:
        floats = self.index.element_of(value) == TensorProto.FLOAT
        return floats and constant(self.index, value) is None

    def _effects(self, layers: Sequence[Layer | Activation]) -> list[float]:
        """Return how far quantizing each moves the outputs, to first order; Inf if that is not known."""
        assert self.goal is not None

        def write(work: Derivative, slopes: Slopes) -> list[Term]:
            zero = work.tape.number(0.0, TensorProto.FLOAT)
            return [x.effect(work, slopes) if x.result in slopes else zero for x in layers]

        try:
            found = measured(
                self.quantizing.model,
                self.goal,
                self.samples,
                self.reference,
                self.runtime,
                {layer.result for layer in layers},
                write,
            )
        except SurgeonError:
            return [inf] * len(layers)
        # what is not finite has no slope: a mask that reaches to infinity
        return list(map(float, np.linalg.norm(np.nan_to_num(found, posinf=0.0), axis=0)))

    def _curve(self) -> list[tuple[int, float, float]]:
        """Return what was tried, without what something smaller is better than."""
        found = list[tuple[int, float, float]]()
        best = inf
        # from the smallest model to the largest: each further one must be better than all before
        for left, point in sorted(self.points.items(), key=lambda item: item[1].share):
            if point.excess < best:
                best = point.excess
                found.append((len(left), point.share, point.measured))
        return found

    def _measured(self, model: Model) -> tuple[float, float]:
        assert self.goal is not None
        right = self.reference  # of the original, which is opened before this model
        try:
            run = opened(GraphIndex.of(model), self.runtime)
        except NoKernel as error:
            # of float4, for example: the same numbers in float give the same products
            self._no_kernel = f"in float alone: {error.message.splitlines()[0]}"
            run = opened(GraphIndex.of(Dequantize().apply(model).model), self.runtime)
        return self.goal.worst(zip(right, map(run, self.samples), strict=True))

    @cached_property
    def reference(self) -> Spooled:
        """The outputs of the float model."""
        found = Spooled(map(opened(self.index, self.runtime), self.samples))
        for values in found:
            require_finite(values)
        return found
