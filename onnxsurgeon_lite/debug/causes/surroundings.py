"""What is known around a culprit: its inputs, the output it should have, and other values it could read."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain

import numpy as np

from onnxsurgeon_lite.debug.causes.masks import shown
from onnxsurgeon_lite.debug.causes.norms import is_sum
from onnxsurgeon_lite.debug.causes.operations import RESHAPING
from onnxsurgeon_lite.debug.causes.place import Ints, Place, RegionSample, fits
from onnxsurgeon_lite.debug.computed_references import ChangedInitializers
from onnxsurgeon_lite.debug.judge import cast_like
from onnxsurgeon_lite.debug.result import BisectResult, Case, Culprit
from onnxsurgeon_lite.errors import RuntimeFailure
from onnxsurgeon_lite.graph import (
    RANDOM,
    GraphIndex,
    constant,
    dims_of,
)
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.tensors.dtypes import Array, RunValue, is_array, is_float, numpy_dtype
from onnxsurgeon_lite.tensors.references import ReferenceSet

_ARRANGING = ("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Mul", "Div", "Cast", "Slice", "Gather")  # fmt: skip
_STEPS_BEFORE = 4
_LARGEST = 512  # nodes of a region that compute something
_TOGETHER = 16  # values whose shapes are found at once
_AROUND = 256  # values among which those that could be read are chosen
_OPEN = 8  # values whose shape is known only when they are computed; as many of their sums
_MASKING = ("Softmax", "ReduceMean", "ReduceSum", "ReduceMax")
_NEARBY_MASKS = 32  # values that may be masks
_NEARBY = 48  # recorded values that a node could read instead


@dataclass(frozen=True, eq=False)
class Known:
    """The right values of a model in one sample: its references and its feeds."""

    case: Case
    references: ReferenceSet
    feeds: Feeds

    @cached_property
    def names(self) -> set[str]:
        """The values whose right numbers are known."""
        return set(self.feeds) | (self.references.entries.keys() & self.case.index.producer.keys())

    def read(self, name: str) -> RunValue:
        """Return a reference, else a feed."""
        return self.references.read(name) if name in self.references else self.feeds[name]

    def arrays(self, names: Iterable[str]) -> dict[str, Array]:
        """Return the references that are one tensor."""
        known = self.references
        return {n: v for n in names if n in known and is_array(v := known.read(n))}

    def prefetch(self, names: Iterable[str]) -> None:
        """Announce values that are read next."""
        self.references.prefetch([name for name in names if name in self.references])

    def entering(self, outputs: Sequence[str]) -> list[str]:
        """Return the known values that values are computed from."""
        index = self.case.index
        positions = index.ancestors(outputs, stop=self.names - set(outputs))
        read = index.inputs_of(sorted(positions))
        known = self.names - index.made_by(positions)
        return [name for name in dict.fromkeys(read) if name in known]

    def alone(
        self, index: GraphIndex, names: Sequence[str], but: Iterable[str] = ()
    ) -> dict[str, RunValue]:
        """Compute values of a model from the references before them, but for those of some values."""
        if not names:
            return {}
        known = self.names - set(names).union(but)
        positions = index.in_order(index.ancestors(names, stop=known))
        reads = index.read_by(positions) & known
        self.prefetch(reads)
        inputs = {name: self._typed(name) for name in reads}
        return Observer(index, self.case.runtime).alone(positions, inputs, names)

    def computed(self, names: Sequence[str]) -> dict[str, RunValue]:
        """Compute values of the model as it is, from the references before them; nothing where that fails."""
        try:
            return self.alone(self.case.index, names)
        except RuntimeFailure:
            return {}

    def recorded(self, name: str) -> RunValue:
        """Return a known value, or what the model computes from known ones."""
        is_known = name in self.references or name in self.feeds
        return self.read(name) if is_known else self.computed([name])[name]

    def _typed(self, name: str) -> RunValue:
        """Return a known value in the dtype that the model gives it."""
        value, element = self.read(name), self.case.index.element_of(name)
        if not is_array(value) or not element:
            return value
        return value.astype(numpy_dtype(element), copy=False)


@dataclass(frozen=True)
class Surroundings:
    """What is known of the values of a model, and of those around a culprit."""

    case: Case
    result: BisectResult

    @property
    def index(self) -> GraphIndex:
        return self.case.index

    @cached_property
    def samples(self) -> list[Known]:
        """What is known in each sample, the explained one first."""
        return [Known(self.case, references, feeds) for references, feeds in self.case.samples]

    @property
    def first(self) -> Known:
        """What is known in the explained sample."""
        return self.samples[0]

    def place(self, culprit: Culprit, entering: Sequence[str] = ()) -> Place | None:
        """Return a culprit's region as a place; None if no edit can be tried there."""
        index, entering = self.index, entering or culprit.inputs
        region = partial(index.ancestors, culprit.outputs)
        nodes = region(stop=entering)
        # of a large region, what no agreeing reference depends on, and of that the last nodes
        if len(nodes) > _LARGEST:
            new = self._computing(region(stop=self.nearest(culprit) or entering))
            if len(new) > _LARGEST:
                left = f"{len(new) - _LARGEST} nodes before {culprit.value!r} were not searched for a cause"
                self.result.notes += [] if left in self.result.notes else [left]
            entering = self._entering(set(new[-_LARGEST:]))
            nodes = region(stop=entering)
        positions = index.in_order(nodes)
        if any(index.nodes[position].op_type in RANDOM for position in positions):
            culprit.unexplained = "not searched: the region draws random numbers"
            return None
        samples = [self._sample(culprit, entering, known) for known in self.samples]
        if samples[0] is None or culprit.value not in samples[0].wanted:
            return None
        nearby = self._nearby(culprit, samples[0])
        there = [sample for sample in samples if sample is not None]
        observer = Observer(index, self.case.runtime)
        place = Place.at(observer, positions, culprit.value, there, self.case.judge, nearby)
        # what the model that computed the references, or its modules, say
        place.changed, entries = self.case.changed, self.first.references.entries
        if isinstance(place.changed, ChangedInitializers):
            place.other = place.changed.theirs
            place.stored_as = {name: each.stored_as for name, each in entries.items()}
        place.lacking = self.first.arrays(culprit.lacking)
        place.module = entries[culprit.value].class_name
        return place

    def _computing(self, nodes: Iterable[int]) -> list[int]:
        """Return nodes in order, without those that only name constants: TorchScript writes one for each reader."""
        index = self.index
        reads = ((p, index.reads[p]) for p in index.in_order(nodes))
        return [p for p, names in reads if any(constant(index, name) is None for name in names)]

    def before(self, culprit: Culprit) -> list[str]:
        """Return where a region begins that has the nodes before it, too, which only arrange what it reads."""
        begins = (self._behind(read, _STEPS_BEFORE) for read in culprit.inputs)
        return list(dict.fromkeys(chain.from_iterable(begins)))

    def nearest(self, culprit: Culprit) -> list[str]:
        """Return where the nodes of a region begin on which no reference depends that agrees; nothing if all do.

        What they read has no references, but is as right as what was computed from it.
        """
        index, known = self.index, self.first.names
        wrong = self._below(self.result.culprits)
        region = index.ancestors(culprit.outputs, stop=culprit.inputs)
        new = region - index.ancestors(known - wrong, stop=())
        return self._entering(new) if new < region else []

    def _entering(self, nodes: set[int]) -> list[str]:
        """Return what some nodes read that others compute, or that is known."""
        index, made = self.index, self.index.made_by(nodes)
        read = dict.fromkeys(index.inputs_of(sorted(nodes)))
        there = (n for n in read if n in index.producer or n in self.first.names)
        return [n for n in there if n not in made and constant(index, n) is None]

    def _behind(self, name: str, steps: int) -> list[str]:
        """Return the known values that a value is an arrangement of, that alone; else the value itself."""
        index = self.index
        position = index.producer.get(name)
        alone = len(index.users(name)) == 1 and name not in index.outputs
        if position is None or not alone or not steps:
            return [name]
        if index.nodes[position].op_type not in _ARRANGING:
            return [name]
        reads = [read for read in index.reads[position] if constant(index, read) is None]
        found = list(chain.from_iterable(self._behind(read, steps - 1) for read in reads))
        known = self.first.references.entries.keys() | index.inputs.keys()
        return found if all(n in known or self._laid_out(n) for n in found) else [name]

    def _laid_out(self, name: str) -> str:
        """Return the value with a reference that has a value's elements in another shape; '' if there is none."""
        readers = self.index.users(name)
        node = self.index.nodes[readers[0]] if len(readers) == 1 else None
        if node is None or node.op_type not in RESHAPING or node.input[0] != name:
            return ""
        made = node.output[0]
        return made if made in self.first.references and self._shape_of(name) else ""

    def _shape_of(self, name: str) -> Ints:
        self.index.learn_types([name])
        return self._declared(name)

    def _sample(
        self, culprit: Culprit, entering: Sequence[str], known: Known
    ) -> RegionSample | None:
        """Return what enters a culprit in a sample and what should come out; None if that is not known."""
        references, inputs = known.references, dict[str, RunValue]()
        known.prefetch(list(entering) + culprit.outputs)
        lacking = [n for n in entering if n not in known.names and n not in self.result.tensors]
        computed = known.computed(lacking)
        for name in entering:
            _, now = self.result.tensors.get(name, (None, computed.get(name)))
            stored = references.read(name) if name in references else known.feeds.get(name)
            laid_out = self._laid_out(name) if stored is None else ""
            if laid_out and is_array(there := references.read(laid_out)):
                shape = now.shape if is_array(now) else self._shape_of(name)
                stored = there.reshape(shape) if math.prod(shape) == there.size else None
            inputs[name] = now if stored is None else stored
            if is_array(now) and is_array(stored):
                inputs[name] = cast_like(now, stored)
        # what should come out
        wanted = known.arrays(culprit.outputs)
        return RegionSample(inputs, wanted, known.recorded) if wanted else None

    def _nearby(self, culprit: Culprit, sample: RegionSample) -> dict[str, Array]:
        """Return values that do not depend on a culprit, of the shapes that it deals with, the nearest ones."""
        index, known = self.index, self.first
        wanted = sample.wanted[culprit.value].shape
        values = chain(sample.inputs.values(), sample.wanted.values())
        shapes = {value.shape for value in values if is_array(value)}

        def may_be_read(shape: Ints) -> bool:
            broadcast = any(fits(shape, other) for other in chain([wanted], shapes))
            return shape in shapes or (max(shape, default=0) > 1 and broadcast)

        # the nearest values of the graph, without those that depend on the culprit
        here = index.rank.get(culprit.value, 0)
        near = sorted(index.rank, key=lambda name: abs(index.rank[name] - here))[:_AROUND]
        index.learn_types(near)
        near += [name for name in known.feeds if name in index.inputs]
        below = self._below([culprit]) | self._wrong_behind(culprit)
        own = sample.inputs.keys() | culprit.outputs | below
        shapes_of = self._shapes([name for name in near if name not in own])
        # those of a fitting shape, some whose shape is not known, masks
        names = [name for name, shape in shapes_of.items() if may_be_read(shape)][:_NEARBY]
        open_ = [n for n in shapes_of if n not in known.references and self._of_any_shape(n)]
        sums = [name for name in open_[_OPEN:] if is_sum(index, name)]
        masks = self._masks(culprit, shapes_of, shapes)
        elsewhere = [name for name in self._read_elsewhere(culprit) if name not in own]
        names = list(dict.fromkeys(elsewhere + names + open_[:_OPEN] + sums[:_OPEN] + masks))
        # their numbers, as many as fit into memory
        known.prefetch(names)
        unknown = [n for n in names if n not in known.references and n not in known.feeds]
        computed, found, size = known.computed(unknown), dict[str, Array](), 0
        for name in names:
            value = computed[name] if name in computed else sample.recorded(name)
            if not is_array(value):
                continue
            size += value.nbytes
            is_mask = name in masks and shown(value) is not None
            fits_here = is_mask or name in elsewhere or may_be_read(value.shape)
            if fits_here and size <= self.case.memory:
                found[name] = value
        return found

    def _read_elsewhere(self, culprit: Culprit) -> list[str]:
        """Return the values from which the model that computed the references computes a culprit."""
        if not isinstance(self.case.changed, ChangedInitializers):
            return []
        other, wrong = self.case.changed.theirs, self._below([culprit])
        entries = self.first.references.entries
        # values that both models have, and that do not depend on the culprit
        right = (name for name in entries if name in self.index and name not in wrong)
        names = {entries[name].stored_as or name: name for name in right}
        names |= {name: name for name in self.index.inputs}
        # what the other model reads of them, as late as possible
        ends = [entries[name].stored_as or name for name in culprit.outputs if name in entries]
        there = [name for name in ends if name in other.producer]
        nodes = other.ancestors(there, stop=names.keys())
        return [
            names[name] for name in dict.fromkeys(other.inputs_of(sorted(nodes))) if name in names
        ]

    def _wrong_behind(self, culprit: Culprit) -> set[str]:
        """Return the values computed from culprits after one: its right value does not depend on them."""
        rank = self.index.rank
        wrong = (c for c in self.result.culprits if not c.unexplained)
        return self._below(c for c in wrong if rank.get(c.value, 0) > rank.get(culprit.value, 0))

    def _masks(
        self, culprit: Culprit, values: Mapping[str, Ints], shapes: Iterable[Ints]
    ) -> list[str]:
        """Return values whose shapes masks of a region's scores have; none where nothing attends or averages."""
        index, sizes = self.index, {1}.union(*shapes)
        region = index.ancestors(culprit.outputs, stop=culprit.inputs)
        # masks matter where a Softmax or a mean is in the region, or reads what it makes
        behind = chain.from_iterable(index.readers(culprit.outputs).values())
        if not any(index.nodes[p].op_type in _MASKING for p in chain(region, behind)):
            return []
        most = max((math.prod(shape) for shape in shapes), default=0)
        fitting = [
            n for n, s in values.items() if s and set(s) <= sizes and 1 < math.prod(s) <= most
        ]
        fitting.sort(key=lambda n: n not in index.inputs and self._may_be_float(n))
        return fitting[:_NEARBY_MASKS]

    def _shapes(self, names: Sequence[str]) -> dict[str, Ints]:
        """Return the shapes of values that have references, are fed or are declared; () where it is not known."""
        references, feeds = self.first.references, self.first.feeds
        found = {name: self._declared(name) for name in names}
        for name in names:
            stored = references.entries[name].shape if name in references else None
            found[name] = found[name] if stored is None else stored
            if name in feeds:
                found[name] = np.shape(feeds[name])
        # what neither a declaration nor the set says is read
        unknown = [n for n, shape in found.items() if (not shape or 0 in shape) and n in references]
        # forward: a model that computes references goes on from what it has
        unknown.sort(key=lambda name: self.index.rank.get(name, -1))
        for start in range(0, len(unknown), _TOGETHER):
            several = unknown[start : start + _TOGETHER]
            references.prefetch(several)
            found |= {n: v.shape for n, v in self.first.arrays(several).items()}
        return found

    def _may_be_float(self, name: str) -> bool:
        kind = self.index.types.get(name)
        element = 0 if kind is None else kind.tensor_type.elem_type
        return not element or is_float(numpy_dtype(element))

    def _of_any_shape(self, name: str) -> bool:
        """Return whether a value may have floats, and has no shape that is known before it is computed."""
        kind = self.index.types.get(name)
        has_shape = kind is not None and kind.tensor_type.HasField("shape")
        return self._may_be_float(name) and not (has_shape and all(self._declared(name)))

    def _declared(self, name: str) -> Ints:
        return tuple(dim.dim_value for dim in dims_of(self.index.types.get(name)))

    def _below(self, culprits: Iterable[Culprit]) -> set[str]:
        """Return the values of culprits, what they are seen at, and all that is computed from these."""
        index = self.index
        names = chain.from_iterable(culprit.outputs + culprit.seen for culprit in culprits)
        makers = {index.producer[name] for name in names if name in index.producer}
        return index.made_by(index.descendants(makers))
