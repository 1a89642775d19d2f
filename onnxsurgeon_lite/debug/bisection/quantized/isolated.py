"""Values of a quantized model, each computed from the float model's values alone."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from onnx import ModelProto

from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.quantizers import (
    DYNAMIC,
    INTEGERS,
    QUANTIZE,
    Quantizers,
    computes_quantized,
)
from onnxsurgeon_lite.model.messages import attributes_of
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.observe import Observer, recomputed
from onnxsurgeon_lite.tensors.dtypes import Array, Stored, is_array, is_float, numpy_dtype, type_of
from onnxsurgeon_lite.tensors.references import ReferenceSet


@dataclass
class FloatValues:
    """The values of the float model under the names of the quantized one.

    Attributes:
        known: value of the quantized model -> the name of its reference.
        cuts: give references cut off at 0 where a merged Relu may cut: they may be those before the Relu.
    """

    index: GraphIndex
    quantizers: Quantizers
    references: ReferenceSet
    feeds: Feeds
    cuts: bool = True
    known: Mapping[str, str] = field(init=False)
    _held: dict[str, Stored] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        found = {}
        self.index.learn_types(self.index.producer)
        # the name of the float model's value is found through the quantizers that stand between: `origin`
        for name in self.index.producer:
            if name in self.quantizers.weights or not self._may_be_float(name):
                continue
            origin = next((n for n in self.quantizers.origin(name) if n in self.references), None)
            if origin is not None:
                found[name] = origin
        self.known = found

    def _may_be_float(self, name: str) -> bool:
        if self.index.operator_of(name) in (QUANTIZE, DYNAMIC):
            return False
        element = self.index.element_of(name)
        # where no pair of quantizers renames values, a reference of the same name is its own, whatever the dtype
        own = not self.quantizers.sources and name in self.references
        if not element:
            return own or not name.endswith(INTEGERS)
        return own or is_float(numpy_dtype(element))

    def behind_quantizers(self) -> "FloatValues":
        """Return the same without the values that are known behind their quantizers."""
        behind = self.quantizers.behind
        known = {n: o for n, o in self.known.items() if behind.get(n) not in self.known}
        result = replace(self)
        result.known = known
        return result

    @classmethod
    def of(cls, index: GraphIndex, references: ReferenceSet, feeds: Feeds) -> "FloatValues | None":
        """Return the values if the model is quantized and the references are those of a float model, else None."""
        quantizers = Quantizers.of(index)
        # references of integer values can only be the quantized model's own
        integers = {index.nodes[index.producer[name]].input[0] for name in quantizers.sources}
        integers |= {n.output[0] for n in index.nodes if n.op_type == DYNAMIC}
        rounds = any(map(computes_quantized, index.nodes))
        if not (quantizers.sources or quantizers.weights or rounds):
            return None
        if integers & references.entries.keys():
            return None
        dequantized = quantizers.sources.keys() & references.entries.keys()
        # float references that lie exactly on a quantizer's grid are the quantized model's own, too
        stored = ((quantizers.grids[n], references.read(n)) for n in sorted(dequantized))
        if any(is_array(array) and grid.holds(array) for grid, array in stored):
            return None  # the references are those of the quantized model
        found = cls(index, quantizers, references, feeds)
        return found if found.known else None

    def named(self) -> ReferenceSet:
        """Return the references under the names of the quantized model, those that it lacks under their own."""
        # example: known = {"y_dequantized": "y"} -> the entry of "y" under the name "y_dequantized"
        given, named = self.references.entries, set(self.known.values())
        lacking = {name: entry for name, entry in given.items() if name not in named}
        entries = lacking | {name: given[origin] for name, origin in self.known.items()}
        return replace(self.references, entries=entries, prefetch=self._prefetch)

    def hold(self, names: Iterable[str]) -> None:
        """Read references together, and let go of those that were held before."""
        names = [name for name in names if name in self.known]
        self._prefetch(names)
        self._held = {n: self._held[n] if n in self._held else self.read(n) for n in names}

    def _prefetch(self, names: Iterable[str]) -> None:
        self.references.prefetch(list(dict.fromkeys(self.known.get(n, n) for n in names)))

    @cached_property
    def computed(self) -> list[str]:
        """The values with a reference that nodes make of others, in topological order: all but quantized ones."""
        left = set(self.left)
        names = [n for n in self.known if n not in left and not self._is_quantized(n)]
        return sorted(names, key=self.index.rank.__getitem__)

    @cached_property
    def left(self) -> list[str]:
        """The values that an operator computes in a way that is not known here."""
        unknown = {p for p in range(len(self.index.nodes)) if self.rounds_within(p)}
        return [name for name in self.known if unknown and unknown & self.region(name)]

    def rounds_within(self, position: int) -> bool:
        """Return whether a node computes on integers, and rounds within: a quantized operator, or means of pixels."""
        node = self.index.nodes[position]
        if node.op_type != "Resize":
            return computes_quantized(node)
        # a Resize of integers takes means of pixels, unless it takes the nearest
        mode = attributes_of(node).get("mode", b"nearest")
        element = self.index.element_of(node.input[0])
        return mode != b"nearest" and bool(element) and not is_float(numpy_dtype(element))

    def _is_quantized(self, name: str) -> bool:
        """Return whether a value is another one, quantized; if both have their own references, it should be."""
        if self.index.operator_of(name) != QUANTIZE and name not in self.quantizers.sources:
            return False
        # the same reference before and after the quantizers: one value, compared once
        source = self.quantizers.sources.get(name, name)
        return self.known.get(source, self.known[name]) == self.known[name]

    def read(self, name: str) -> Stored:
        """Return the reference of a value, or a feed."""
        if name in self.feeds:
            return self.feeds[name]
        return self._held[name] if name in self._held else self.references.read(self.known[name])

    def given(self, name: str) -> Stored:
        """Return the reference of a value in the dtype that the model gives it."""
        stored = self.read(name)
        grid = self.quantizers.grids.get(name) if self.cuts else None
        # integers that begin at zero hold nothing below 0: a Relu may be merged into this quantizer
        if grid is not None and is_array(stored) and (grid.zero == grid.low).all():
            stored = np.maximum(stored, 0)
        element = self.index.element_of(name)
        if not is_array(stored) or not element:
            return stored
        with np.errstate(all="ignore"):
            return stored.astype(numpy_dtype(element), copy=False)

    def region(self, name: str) -> set[int]:
        """Return the nodes between the references before a value and the value."""
        position = self.index.producer[name]
        # `stop` ends the walk at values with references, but not at `name` itself: it is computed
        stop = self.known.keys() | self.feeds.keys()
        reads = [read for read in self.index.reads[position] if read not in stop]
        return {position} | self.index.ancestors(reads, stop)


@dataclass
class Isolated:
    """A part of the model that computes values from references; each run of it may shake what is quantized."""

    values: FloatValues
    observer: Observer
    names: Sequence[str]

    @cached_property
    def positions(self) -> list[int]:
        found = set[int]().union(*map(self.values.region, self.names))
        return self.values.index.in_order(found)

    @cached_property
    def inputs(self) -> list[str]:
        known = self.values.known.keys() | self.values.feeds.keys()
        reads = dict.fromkeys(self.values.index.inputs_of(self.positions))
        return [name for name in reads if name in known]

    def part(self) -> ModelProto:
        """Return the part as a model; its outputs are `outputs`."""
        types = {name: type_of(self.values.given(name)) for name in self.inputs}
        part = self.observer.part(self.positions, types, ())
        for name in self.outputs:
            part.graph.output.add(name=name)
        return part

    @cached_property
    def outputs(self) -> list[str]:
        """What the part calls its values: a value may be an input of it as well."""
        return [recomputed(n) if n in self.inputs else n for n in self.names]

    def run(
        self, part: ModelProto, more: Sequence[Mapping[str, Array]] = ({},)
    ) -> Iterator[dict[str, Stored]]:
        """Yield the values of the part, once for each mapping of further inputs."""
        given = {name: self.values.given(name) for name in self.inputs}
        for found in self.observer.runs(part, given, self.outputs, more):
            values = zip(self.names, map(found.__getitem__, self.outputs), strict=True)
            yield {name: value for name, value in values if value is not None}
