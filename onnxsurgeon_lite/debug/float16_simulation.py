"""Simulate a model that was converted to float16, with some nodes kept in float32."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.runtime.run import run
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.tensors.comparison import DEFAULTS, Comparison, compare
from onnxsurgeon_lite.tensors.dtypes import RunValue

_HALF = DEFAULTS["float16"]
_ROUNDED = "\x01float16"
_STEP = 2.0**-24  # between the smallest numbers of float16
_PRUNED = 32  # kept nodes of which each is tried in float16


@dataclass
class Simulation:
    """Runs of a float32 model that round to float16 on each edge.

    An edge stays in float32 when the nodes on both its ends do. Inputs and outputs of the model stay as they are.
    """

    index: GraphIndex
    feeds: Feeds
    runtime: Runtime

    def sufficient(self, start: Collection[int]) -> tuple[set[int], str]:
        """Return (nodes whose staying in float32 makes the outputs right, a sentence on these)."""
        kept = set(start)
        while (more := self._needed(kept)) - kept:
            kept |= more
        for position in sorted(kept) if len(kept) <= _PRUNED else ():
            if position not in start and self._is_right(self._outputs(kept - {position})):
                kept.discard(position)
        worst = max(
            self._outputs(kept).values(), key=lambda c: c.share_over or c.max_abs, default=None
        )
        if worst is None:
            return kept, ""
        finite = "finite" if worst.non_finite is None else "not finite"
        gap = f"max abs {worst.max_abs:.3g} where {worst.allowed:.3g} is allowed"
        return kept, f"with these in float32, simulated, the outputs are {finite}: {gap}"

    def _needed(self, kept: Collection[int]) -> set[int]:
        """Return the nodes around the first value that is wrong; none if the outputs are right."""
        if self._is_right(self._outputs(kept)):
            return set()
        index = self.index
        simulated = run(self._indexed(kept), self.feeds, self.runtime, list(self._floats))
        for name in self._floats:
            if not _is_within(_compared(simulated[name], self._floats[name])):
                before = {
                    index.producer[read]
                    for read in index.reads[index.producer[name]]
                    if read in index.producer
                }
                around = {index.producer[name], *before, *index.consumers.get(name, ())}
                if around - {*kept}:
                    return around
        return {*range(len(index.nodes))}

    def _outputs(self, kept: Collection[int]) -> dict[str, Comparison]:
        names = [name for name in self.index.outputs if name in self._floats]
        found = run(self._indexed(kept), self.feeds, self.runtime, names)
        return {name: _compared(found[name], self._floats[name]) for name in names}

    def _is_right(self, outputs: Mapping[str, Comparison]) -> bool:
        return all(map(_is_within, outputs.values()))

    @cached_property
    def _floats(self) -> dict[str, RunValue]:
        """The float values of the model itself, in topological order."""
        observer = Observer(self.index, self.runtime)
        observer.feed(self.feeds)
        found = observer.sweep(self.index.producer)
        return {name: value for name, value in found if _is_float(value)}

    def _indexed(self, kept: Collection[int]) -> GraphIndex:
        return GraphIndex.of(self.index.model.with_proto(self._model(kept)))

    def _model(self, kept: Collection[int]) -> ModelProto:
        """Return the model with a rounding on each edge that is not between two kept nodes."""
        index, result = self.index, ModelProto()
        result.CopyFrom(index.model.proto)
        nodes = list(result.graph.node)
        del result.graph.node[:]
        rounded: set[str] = set()
        for position in index.order:
            node = nodes[position]
            for slot, name in enumerate(node.input):
                stays = position in kept and index.producer.get(name, position) in kept
                if name not in self._wide or stays:
                    continue
                if name not in rounded:
                    result.graph.node.extend(_rounding(name, name + _ROUNDED))
                    rounded.add(name)
                node.input[slot] = name + _ROUNDED
            rounds = [] if position in kept else self._rounded_outputs(node)
            result.graph.node.extend([node, *rounds])
        return result

    @cached_property
    def _wide(self) -> set[str]:
        """The names of the float32 values, weights and inputs."""
        tensors = self.index.initializers.items()
        weights = {n for n, t in tensors if getattr(t, "data_type", 0) == TensorProto.FLOAT}
        inputs = {name for name, value in self.feeds.items() if _is_float(value)}
        return self._floats.keys() | weights | inputs

    def _rounded_outputs(self, node: NodeProto) -> list[NodeProto]:
        """Round the outputs of the model that a node makes in float16."""
        found = []
        for slot, name in enumerate(node.output):
            if name in self.index.outputs and name in self._floats:
                node.output[slot] = f"{name}\x01wide"
                found += _rounding(node.output[slot], name)
        return found


def _is_float(value: RunValue) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.float32


def _is_within(comparison: Comparison) -> bool:
    finite = comparison.non_finite is None
    return comparison.match or (finite and comparison.max_abs <= _STEP)


def _rounding(name: str, result: str) -> list[NodeProto]:
    half = f"{result}\x01half"
    return [
        helper.make_node("Cast", [name], [half], to=TensorProto.FLOAT16),
        helper.make_node("Cast", [half], [result], to=TensorProto.FLOAT),
    ]


def _compared(actual: RunValue, expected: RunValue) -> Comparison:
    assert isinstance(actual, np.ndarray)
    assert isinstance(expected, np.ndarray)
    return compare(actual, expected, _HALF)
