"""Quantize a model, with the layers left in float that a goal needs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf

from onnxsurgeon_lite.debug.conversion.goal import Goal, require_finite
from onnxsurgeon_lite.debug.conversion.result import Conversion, Kept
from onnxsurgeon_lite.debug.conversion.search import Asked, pruned, spoilers
from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.schemas import constant
from onnxsurgeon_lite.graph.select import select_nodes, split_names
from onnxsurgeon_lite.matching.metric import Values
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.model.saving import embedded_size
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.quantizing import Quantizing
from onnxsurgeon_lite.runtime.run import opened
from onnxsurgeon_lite.runtime.session import Runtime

_WEIGHTED = (
    "MatMul",
    "Gemm",
    "Conv",
    "ConvTranspose",
    "Gather",
    "LSTM",
    "Attention",
    "EmbedLayerNormalization",
)
_STATIC = (
    *_WEIGHTED, "Add", "AveragePool", "Clip", "Concat", "GlobalAveragePool", "LayerNormalization", "LeakyRelu",
    "MaxPool", "Mul", "Relu", "Reshape", "Resize", "Sigmoid", "Softmax", "Split", "Squeeze", "Transpose", "Unsqueeze",
    "InstanceNormalization", "Where", "Pad", "ArgMax",
)  # fmt: skip
_QUESTIONS = 24  # quantizations of a search


def named(model: Model) -> Model:
    """Return the model as the tools need it: each node of the main graph has a name, types are inferred anew."""
    result = model.copy()
    del result.proto.graph.value_info[:]
    seen: set[str] = set()
    for position, node in enumerate(result.proto.graph.node):
        if not node.name or node.name in seen:
            node.name = f"@{position}"
        seen.add(node.name)
    return result


@dataclass
class Integers:
    """A search for the nodes that stay in float.

    Attributes:
        keep: selectors of nodes that stay in any case.
        points: what was tried: (error, nodes in float, share of the bytes, measured number).
    """

    quantizing: Quantizing
    keep: Sequence[str]
    goal: Goal | None
    samples: Sequence[Feeds]
    runtime: Runtime
    progress: Callable[[str], None] = lambda _: None
    points: list[tuple[float, int, float, float]] = field(default_factory=list)

    def result(self) -> Conversion:
        """Return the quantized model.

        Raises:
            EditError: no node of it can be quantized.
        """
        if not self.nodes:
            raise EditError(f"no node of the model can be quantized to {self.quantizing.to}")
        everything = frozenset(range(len(self.nodes)))
        left = self._left(everything) if self.goal is not None else frozenset[int]()
        model = self.quantizing.quantized([self.nodes[n] for n in sorted(everything - left)])
        kept = [self._kept(number) for number in sorted(left)]
        share = embedded_size(model) / embedded_size(self.quantizing.model)
        done = Conversion(model, self.quantizing.to, len(self.nodes), kept, 0, share)
        if self.goal is None:
            return done
        excess, measured = self._measured(model)
        text = self.goal.text(measured)
        return replace(done, met=excess <= 1, measured=text, curve=self._curve())

    @cached_property
    def index(self) -> GraphIndex:
        """The float model."""
        return GraphIndex.of(self.quantizing.model)

    @cached_property
    def nodes(self) -> list[str]:
        """The names of the nodes that may be quantized."""
        kept = {
            p for each in split_names(self.index, self.keep) for p in select_nodes(self.index, each)
        }
        fits = self._fits_static if self.quantizing.calibrate else self._has_weights
        return [n.name for p, n in enumerate(self.index.nodes) if p not in kept and fits(p)]

    def _fits_static(self, position: int) -> bool:
        return self.index.nodes[position].op_type in _STATIC

    def _has_weights(self, position: int) -> bool:
        node = self.index.nodes[position]
        operators = _WEIGHTED if self.quantizing.to == "int8" else ("MatMul",)
        return node.op_type in operators and any(
            constant(self.index, n) is not None for n in node.input
        )

    def _kept(self, number: int) -> Kept:
        position = self.index.named[self.nodes[number]][0]
        node = self.index.nodes[position]
        place = str(self.index.origins[position])
        return Kept(f"@{position}", node.name, node.op_type, "for the goal", place)

    # the search

    def _left(self, everything: frozenset[int]) -> frozenset[int]:
        asked = Asked(lambda on: self._excess(on, everything), _QUESTIONS)
        if asked(everything) <= 1:
            return frozenset()
        groups = spoilers(len(everything), asked)
        few = pruned(groups, lambda some: self._suffice(some, asked, everything), _QUESTIONS)
        return frozenset(n for group in few for n in group)

    def _suffice(
        self, groups: Sequence[Sequence[int]], asked: Asked, everything: frozenset[int]
    ) -> bool:
        return asked(everything - {n for group in groups for n in group}) <= 1

    def _excess(self, on: frozenset[int], everything: frozenset[int]) -> float:
        if not on:
            return 0.0
        self.progress(f"quantizing {len(on)} of {len(everything)} nodes")
        model = self.quantizing.quantized([self.nodes[number] for number in sorted(on)])
        excess, measured = self._measured(model)
        share = embedded_size(model) / embedded_size(self.quantizing.model)
        self.points.append((excess, len(everything) - len(on), share, measured))
        return excess

    def _curve(self) -> list[tuple[int, float, float]]:
        """Return what was tried, without what something smaller is better than."""
        found: list[tuple[int, float, float]] = []
        best = inf
        for excess, out, share, measured in sorted(
            self.points, key=lambda point: (point[2], point[0])
        ):
            if excess < best:
                best = excess
                found.append((out, share, measured))
        return found

    def _measured(self, model: Model) -> tuple[float, float]:
        assert self.goal is not None
        pairs = zip(self.samples, self.reference, strict=True)
        run = opened(GraphIndex.of(model), self.runtime)
        return self.goal.worst((expected, run(feeds)) for feeds, expected in pairs)

    @cached_property
    def reference(self) -> list[Values]:
        """The outputs of the float model."""
        run = opened(self.index, self.runtime)
        found: list[Values] = [run(feeds) for feeds in self.samples]
        for values in found:
            require_finite(values)
        return found
