"""A model and its feeds, which a reduction makes smaller, and the values that a run of it sees."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from onnx import ModelProto, TensorProto

from onnxsurgeon_lite.debug.journal import digest
from onnxsurgeon_lite.errors import EditError, RuntimeCrash, RuntimeTimeout, SurgeonError
from onnxsurgeon_lite.graph import GraphIndex, symbols_of
from onnxsurgeon_lite.model import Model, walk
from onnxsurgeon_lite.names import counted
from onnxsurgeon_lite.passes import Clean, Pass, Pipeline
from onnxsurgeon_lite.runtime.feeds import Feeds, Recipe, as_declared, make_feeds
from onnxsurgeon_lite.runtime.run import run
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.surgery.edits import names_in
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array, RunValue, RunValues, arrays_in, type_of
from onnxsurgeon_lite.tensors.references import ReferenceSet

MANY = 1 << 28  # bytes of constants: it takes long to compute with them


@dataclass(frozen=True, order=True)
class Extent:
    """How large a model is: nodes, those of bodies and functions included, and bytes of constants and feeds."""

    nodes: int
    bytes: int

    def __str__(self) -> str:
        return f"{counted(self.nodes, 'node')}, {self.bytes:,} bytes"


@dataclass(frozen=True)
class Failing:
    """A model with feeds that may fail.

    Attributes:
        steps: the edits that made the model of the first one.
        named: the names of the first one, which messages about smaller ones may lack.
        blind: whether the condition sees no feeds; then they are no part of the key.
    """

    model: Model
    feeds: Feeds
    steps: tuple[Pass, ...] = ()
    named: frozenset[str] = frozenset()
    blind: bool = False

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of this model and of the first one."""
        # a message may still name what an edit left out
        own = names_in(walk.graphs(self.model.proto)).union(self.index.node_names)
        return self.named.union(own)

    @cached_property
    def index(self) -> GraphIndex:
        """The model's main graph."""
        return GraphIndex.of(self.model)

    @cached_property
    def key(self) -> str:
        """A digest of what the condition sees."""
        return digest(self.model.encoded(), "", {} if self.blind else self.feeds)

    @cached_property
    def extent(self) -> Extent:
        """How large it is."""
        proto = self.model.proto
        nodes = sum(len(holder.node) for holder in walk.holders(proto))
        weights = sum(dtypes.byte_count(t.data_type, t.dims) for t in walk.tensors(proto))
        fed = sum(array.nbytes for value in self.feeds.values() for array in arrays_in(value))
        return Extent(nodes, weights + fed)

    @property
    def constants(self) -> dict[str, TensorProto]:
        """The dense initializers of the main graph."""
        found = self.index.initializers.items()
        return {name: each for name, each in found if isinstance(each, TensorProto)}

    def edited(self, step: Pass, values: RunValues | None = None) -> "Failing":
        """Return the model after an edit, without what no output needs, and its feeds.

        Args:
            values: feeds of inputs that are new, or that change.

        Raises:
            EditError: nothing changes, or an input has no feed.
            FeedsError: a feed does not fit its input.
        """
        # Clean drops what no output needs any more: it counts as part of the edit
        result = Pipeline((step, Clean())).apply(self.model)
        if not result.changed:
            raise EditError(f"{step.name} changes nothing")
        feeds = Feeds()
        index = GraphIndex.of(result.model)
        # each input needs a feed: a new one, or the one that it had
        for name in index.required_inputs:
            value = (values or {}).get(name, self.feeds.get(name))
            if value is None:
                raise EditError(f"input {name!r} has no feed")
            feeds[name] = value
            # a new input of unknown type gets that of its feed
            if index.inputs[name].type.WhichOneof("value") is None:
                index.inputs[name].type.CopyFrom(type_of(value))
        steps = self.steps + (step, Clean())
        feeds = as_declared(index, feeds)
        named = self.named or self.names
        return Failing(result.model, feeds, steps, named, self.blind)

    def fed(self, name: str, value: Array) -> "Failing":
        """Return the model with another feed."""
        return replace(self, feeds=self.feeds | {name: value})


@dataclass
class SeenValues:
    """Values of a model, computed when they are asked for: they take the place of nodes that are left out.

    What is downstream of the failure cannot be computed: it is made from its type. Where references are what the model
    should compute, only they take the place of nodes.

    Attributes:
        runtime: computes them without optimization. recipe: how others are made.
        references: what is right for the model's values, where that is stored.
        any_fit: the failure needs no certain values: none is computed while that would read many weights.
    """

    runtime: Runtime
    recipe: Recipe
    references: ReferenceSet | None = None
    any_fit: bool = False
    _key: str = ""
    _known: dict[str, RunValue] = field(default_factory=dict)

    def values(self, failing: Failing, places: Mapping[str, str], graph: GraphIndex) -> Feeds:
        """Return values for inputs of a graph.

        Args:
            places: name -> where the value is in the model; in a body it has its path.
            graph: has the types of the names.

        Raises:
            FeedsError: a value can be neither computed nor made.
        """
        found = self.computed(failing, places.values())
        proto = ModelProto()
        feeds = Feeds()
        graph.learn_types(places)
        for name, place in places.items():
            # not computed: it is declared as an input of an empty model below, and made from its type
            if (value := found.get(place)) is None:
                if self.references is not None:
                    raise EditError(f"{place!r} has no reference")
                proto.graph.input.append(graph.value_info(name))
            else:
                feeds[name] = value
        # fills and sizes may belong to inputs that are not among these
        made = GraphIndex.of(Model(proto))
        known = {""}.union(symbols_of(made.inputs.values()))
        dims = {name: size for name, size in self.recipe.dims.items() if name in known}
        return feeds | make_feeds(made, Recipe(self.recipe.seed, dims))[0]

    def computed(self, failing: Failing, names: Iterable[str]) -> dict[str, RunValue]:
        """Return values of a run, or what is known without it where it fails."""
        if (stored := self.references) is not None:
            return {name: stored.read(name) for name in names if name in stored}
        if self.any_fit and failing.extent.bytes > MANY:
            return {}
        # the values are those of one model; asking about another drops them
        if self._key != failing.key:
            self._key, self._known = failing.key, {}
        try:
            missing = [name for name in names if name not in self._known]
            if missing:
                self._known |= run(failing.index, failing.feeds, self.runtime, missing)
        except (RuntimeCrash, RuntimeTimeout):
            self.runtime.restart()
        except SurgeonError:
            pass
        return self._known
