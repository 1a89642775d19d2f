"""What is known around a culprit: its inputs, the output it should have, and other values it could read."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onnxsurgeon_lite.debug.causes.layers import is_sum
from onnxsurgeon_lite.debug.causes.masks import shown
from onnxsurgeon_lite.debug.causes.operations import RESHAPING
from onnxsurgeon_lite.debug.causes.place import Ints, Place, RegionSample, fits
from onnxsurgeon_lite.debug.judge import cast_like
from onnxsurgeon_lite.debug.result import BisectResult, Case, Culprit
from onnxsurgeon_lite.errors import RuntimeFailure
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.schemas import RANDOM, constant
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.tensors.dtypes import Array, RunValue, is_array, is_float, numpy_dtype
from onnxsurgeon_lite.tensors.references import ReferenceSet

_ARRANGING = ("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Mul", "Div", "Cast", "Slice", "Gather")  # fmt: skip
_STEPS_BEFORE = 4
_LARGEST = 128  # nodes of a region
_TOGETHER = 16  # values whose shapes are found at once
_AROUND = 256  # values among which those that could be read are chosen
_OPEN = 8  # values whose shape is known only when they are computed; as many of their sums
_NEARBY_MASKS = 32  # values that may be masks
_NEARBY = 48  # recorded values that a node could read instead


@dataclass(frozen=True)
class Surroundings:
    """What is known of the values of a model, and of those around a culprit."""

    case: Case
    result: BisectResult

    @property
    def index(self) -> GraphIndex:
        return self.case.index

    def place(self, culprit: Culprit, entering: Sequence[str] = ()) -> Place | None:
        """Return a culprit's region as a place; None if no edit can be tried there."""
        index = self.index
        entering = entering or culprit.inputs
        positions = sorted(
            index.ancestors(culprit.outputs, stop=entering), key=index.places.__getitem__
        )
        nodes = [index.nodes[position] for position in positions]
        if any(node.op_type in RANDOM for node in nodes):
            culprit.unexplained = "not searched: the region draws random numbers"
            return None
        if len(nodes) > _LARGEST:
            culprit.unexplained = (
                f"not searched: the region has {len(nodes)} nodes, more than {_LARGEST}"
            )
            return None
        actual = {name: now for name, (_, now) in self.result.tensors.items()}
        samples = [self._sample(culprit, entering, actual, *sample) for sample in self.case.samples]
        if samples[0] is None or culprit.value not in samples[0].wanted:
            return None
        nearby = self._nearby(culprit, samples[0])
        there = [sample for sample in samples if sample is not None]
        observer = Observer(index, self.case.runtime)
        place = Place.at(observer, positions, culprit.value, there, self.case.judge, nearby)
        place.lacking, place.changed = self._lacking(culprit), self.case.changed
        place.module = self.case.first[0].entries[culprit.value].class_name
        return place

    def before(self, culprit: Culprit) -> list[str]:
        """Return where a region begins that has the nodes before it, too, which only arrange what it reads."""
        begins = (name for read in culprit.inputs for name in self._behind(read, _STEPS_BEFORE))
        return list(dict.fromkeys(begins))

    def _behind(self, name: str, steps: int) -> list[str]:
        """Return the known values that a value is an arrangement of, that alone; else the value itself."""
        index, references = self.index, self.case.first[0]
        node = index.nodes[index.producer[name]] if name in index.producer else None
        alone = len(index.consumers.get(name, [])) == 1 and name not in index.outputs
        if node is None or node.op_type not in _ARRANGING or not alone or not steps:
            return [name]
        reads = [n for n in index.reads[index.producer[name]] if constant(index, n) is None]
        found = [begin for read in reads for begin in self._behind(read, steps - 1)]
        known = (n in references or n in index.inputs or self._laid_out(n) for n in found)
        return found if all(known) else [name]

    def _laid_out(self, name: str) -> str:
        """Return the value with a reference that has a value's elements in another shape; '' if there is none."""
        readers = self.index.consumers.get(name, [])
        node = self.index.nodes[readers[0]] if len(readers) == 1 else None
        is_shape = node is not None and node.op_type in RESHAPING and node.input[0] == name
        made = node.output[0] if node is not None and is_shape else ""
        return made if made in self.case.first[0] and self._shape_of(name) else ""

    def _shape_of(self, name: str) -> Ints:
        self.index.learn_types([name])
        return self._declared(name)

    def _lacking(self, culprit: Culprit) -> dict[str, Array]:
        """Return the references nearby that the model has no value for."""
        references = self.case.first[0]
        read = {name: references.read(name) for name in culprit.lacking if name in references}
        return {name: value for name, value in read.items() if is_array(value)}

    def _sample(
        self,
        culprit: Culprit,
        entering: Sequence[str],
        actual: Mapping[str, RunValue],
        references: ReferenceSet,
        feeds: Feeds,
    ) -> RegionSample | None:
        """Return what enters a culprit in a sample and what should come out; None if that is not known."""
        inputs: dict[str, RunValue] = {}
        references.prefetch([n for n in (*entering, *culprit.outputs) if n in references])
        for name in entering:
            now = actual.get(name)
            stored = references.read(name) if name in references else feeds.get(name)
            laid_out = self._laid_out(name) if stored is None else ""
            if laid_out and is_array(there := references.read(laid_out)):
                shape = now.shape if is_array(now) else self._shape_of(name)
                stored = there.reshape(shape) if math.prod(shape) == there.size else None
            value = now if stored is None else stored
            if is_array(now) and is_array(stored):
                value = cast_like(now, stored)
            inputs[name] = value
        wanted = {n: references.read(n) for n in culprit.outputs if n in references}
        arrays = {name: value for name, value in wanted.items() if is_array(value)}

        def recorded(name: str) -> RunValue:
            if name in references or name in feeds:
                return references.read(name) if name in references else feeds[name]
            return self._computed([name], references, feeds)[name]

        return RegionSample(inputs, arrays, recorded) if arrays else None

    def _nearby(self, culprit: Culprit, sample: RegionSample) -> dict[str, Array]:
        """Return values that do not depend on a culprit, of the shapes that it deals with, the nearest ones."""
        references, feeds = self.case.first
        wanted = sample.wanted[culprit.value].shape
        values = (*sample.inputs.values(), *sample.wanted.values())
        shapes = {value.shape for value in values if is_array(value)}

        def may_be_read(shape: Ints) -> bool:
            return shape in shapes or (
                max(shape, default=0) > 1 and any(fits(shape, other) for other in (wanted, *shapes))
            )

        index = self.index
        here = index.rank.get(culprit.value, 0)
        near = sorted(index.rank, key=lambda name: abs(index.rank[name] - here))[:_AROUND]
        index.learn_types(near)
        names = [
            name
            for name in [*near, *(name for name in feeds if name in index.inputs)]
            if name not in sample.inputs and name not in culprit.outputs
        ]
        below = self._below(culprit) | self._wrong_behind(culprit)
        shapes_of = self._shapes([name for name in names if name not in below])
        open_ = [n for n in shapes_of if n not in references and self._of_any_shape(n)]
        open_ = [*open_[:_OPEN], *[name for name in open_ if is_sum(index, name)][:_OPEN]]
        names = [name for name, shape in shapes_of.items() if may_be_read(shape)][:_NEARBY]
        masks = self._masks(culprit, shapes_of, shapes)
        names = list(dict.fromkeys([*names, *open_, *masks]))
        found, size = dict[str, Array](), 0
        references.prefetch([name for name in names if name in references])
        unknown = [n for n in names if n not in references and n not in feeds]
        computed = self._computed(unknown, references, feeds)
        for name in names:
            value = computed[name] if name in computed else sample.recorded(name)
            size += value.nbytes if is_array(value) else 0
            if not is_array(value) or size > self.case.memory:
                continue
            if may_be_read(value.shape) or (name in masks and shown(value) is not None):
                found[name] = value
        return found

    def _wrong_behind(self, culprit: Culprit) -> set[str]:
        """Return the values computed from culprits after one: its right value does not depend on them."""
        rank = self.index.rank
        here = rank.get(culprit.value, 0)
        wrong = (c for c in self.result.culprits if not c.unexplained)
        behind = (c for c in wrong if rank.get(c.value, 0) > here)
        return {name for other in behind for name in self._below(other)}

    def _masks(
        self,
        culprit: Culprit,
        values: Mapping[str, Ints],
        shapes: Iterable[Ints],
    ) -> list[str]:
        """Return values whose shapes masks of a region's scores have; none where nothing attends."""
        index, sizes = self.index, {1, *itertools.chain(*shapes)}
        region = index.ancestors(culprit.outputs, stop=culprit.inputs)
        behind = (p for name in culprit.outputs for p in index.consumers.get(name, ()))
        if not any(index.nodes[p].op_type == "Softmax" for p in (*region, *behind)):
            return []
        most = max((math.prod(shape) for shape in shapes), default=0)
        fitting = [n for n, s in values.items() if s and {*s} <= sizes and 1 < math.prod(s) <= most]
        fitting.sort(key=lambda n: n not in index.inputs and self._may_be_float(n))
        return fitting[:_NEARBY_MASKS]

    def _shapes(self, names: Sequence[str]) -> dict[str, Ints]:
        """Return the shapes of values that have references, are fed or are declared; () where it is not known."""
        references, feeds = self.case.first
        found = {name: self._declared(name) for name in names}
        stored = {n: references.entries[n].shape for n in names if n in references}
        found |= {name: shape for name, shape in stored.items() if shape is not None}
        found |= {name: np.shape(feeds[name]) for name in names if name in feeds}
        unknown = [n for n, shape in found.items() if (not shape or 0 in shape) and n in references]
        for start in range(0, len(unknown), _TOGETHER):
            several = unknown[start : start + _TOGETHER]
            references.prefetch(several)
            found |= {n: v.shape for n in several if is_array(v := references.read(n))}
        return found

    def _may_be_float(self, name: str) -> bool:
        kind = self.index.types.get(name)
        element = 0 if kind is None else kind.tensor_type.elem_type
        return not element or is_float(numpy_dtype(element))

    def _of_any_shape(self, name: str) -> bool:
        """Return whether a value may have floats, and has no shape that is known before it is computed."""
        kind = self.index.types.get(name)
        if kind is None or not kind.tensor_type.elem_type:
            return True
        tensor = kind.tensor_type
        known = tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim)
        return not known and is_float(numpy_dtype(tensor.elem_type))

    def _declared(self, name: str) -> Ints:
        kind = self.index.types.get(name)
        return () if kind is None else tuple(dim.dim_value for dim in kind.tensor_type.shape.dim)

    def _computed(
        self, names: Sequence[str], references: ReferenceSet, feeds: Feeds
    ) -> dict[str, RunValue]:
        """Compute values of the model as it is, from the references before them."""
        try:
            return self.alone(self.index, names, references, feeds) if names else {}
        except RuntimeFailure:
            return {}

    def _below(self, culprit: Culprit) -> set[str]:
        """Return a culprit's values, and all that is computed from them."""
        index = self.index
        makers = {index.producer[name] for name in culprit.outputs if name in index.producer}
        nodes = {below for position in makers for below in index.descendants(position)}
        return {name for position in nodes for name in index.nodes[position].output}

    def known(self, references: ReferenceSet, feeds: Feeds) -> set[str]:
        """Return the values of the model whose right numbers are known."""
        return {*feeds} | (references.entries.keys() & self.index.producer.keys())

    def entering(self, outputs: Sequence[str], references: ReferenceSet, feeds: Feeds) -> list[str]:
        """Return the known values that values are computed from."""
        known = self.known(references, feeds)
        positions = self.index.ancestors(outputs, stop=known - {*outputs})
        made = {name for position in positions for name in self.index.nodes[position].output}
        read = (name for p in sorted(positions) for name in self.index.reads[p])
        return [name for name in dict.fromkeys(read) if name in known - made]

    def alone(
        self,
        index: GraphIndex,
        names: Sequence[str],
        references: ReferenceSet,
        feeds: Feeds,
        but: Iterable[str] = (),
    ) -> dict[str, RunValue]:
        """Compute values of a model from the references before them, but for those of some values."""
        known = self.known(references, feeds) - {*names, *but}
        positions = sorted(index.ancestors(names, stop=known), key=index.places.__getitem__)
        reads = {name for position in positions for name in index.reads[position]} & known
        references.prefetch([name for name in reads if name in references])
        inputs = {name: self._right(name, references, feeds) for name in reads}
        return Observer(index, self.case.runtime).alone(positions, inputs, names)

    def _right(self, name: str, references: ReferenceSet, feeds: Feeds) -> RunValue:
        """Return the reference of a value in the dtype that the model gives it, or a feed."""
        value = references.read(name) if name in references else feeds[name]
        kind = self.index.type_of(name)
        if kind is None or not is_array(value) or not kind.tensor_type.elem_type:
            return value
        return value.astype(numpy_dtype(kind.tensor_type.elem_type), copy=False)
