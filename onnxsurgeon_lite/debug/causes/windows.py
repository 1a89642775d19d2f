"""Windows: the few nodes of a large region that an edit touches, edited alone; the region runs on behind them."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from onnxsurgeon_lite.debug.causes.place import Place
from onnxsurgeon_lite.model import Model, copied
from onnxsurgeon_lite.model.messages import assign, declare
from onnxsurgeon_lite.passes import Pass, Remove, Replace
from onnxsurgeon_lite.passes.in_bodies import named
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.tensors.dtypes import data_type_of_numpy

_LEAST = 24  # nodes of a region: in a smaller one, a copy of all takes no longer
_MOST = 0.5  # of its nodes
COMPUTED, GIVEN, IS_GIVEN = "\x04computed", "\x04given", "\x04is given"
"""End the names of what a region computes for a value, of another that it is given, and of whether it is."""


@dataclass
class Windows:
    """The windows of a place, each a model with all that lies between its nodes.

    Attributes:
        budget: bytes of values that the runtime may hold for them. closed: there are none for now.
    """

    place: Place
    budget: int
    closed: bool = False
    _made: dict[tuple[frozenset[int], frozenset[str]], Model | None] = field(default_factory=dict)

    @cached_property
    def sizes(self) -> list[int]:
        """The bytes of each value that a window may make."""
        return [array.nbytes for array in self.place.values.values()]

    @property
    def has_any(self) -> bool:
        """Whether the place has many nodes, and small values: at worst the runtime holds all of them."""
        is_open = len(self.place.nodes) >= _LEAST and not self.closed
        return is_open and sum(self.sizes) < self.budget

    def around(self, edits: Sequence[Pass]) -> Model | None:
        """Return the window of some edits; None if it is about as large as the region."""
        if not edits or not self.has_any:
            return None
        # passes of other packages may name nodes in other ways
        try:
            nodes, values = touched(self.place, edits)
        except (KeyError, ValueError):
            return None
        # many edits touch the same nodes
        key = frozenset(nodes), frozenset(values)
        if key not in self._made:
            self._made[key] = self._between(nodes, values)
        return self._made[key]

    def _between(self, nodes: set[int], values: set[str]) -> Model | None:
        """Return the window of what an edit touches."""
        # what lies between the nodes, and the constants that they read
        place, index = self.place, self.place.index
        nodes = index.descendants(nodes) & index.ancestors(index.made_by(nodes))
        reads = index.read_by(nodes) & index.producer.keys()
        nodes |= {index.producer[name] for name in reads if place.is_constant(name)}
        few = 0 < len(nodes) <= _MOST * len(index.nodes)
        return self._window(nodes, values) if few else None

    def _window(self, nodes: set[int], values: set[str]) -> Model | None:
        """Return some nodes as a model that has some values and constants, too; None where a value is no tensor."""
        place, index = self.place, self.place.index
        made = index.made_by(nodes)
        others = set(range(len(index.nodes))) - nodes
        ends = sorted(made & (index.read_by(others) | index.outputs.keys()))
        if not place.values.keys() >= set(ends):
            return None
        known = {name: kind for name, kind in place.types.items() if name not in made}
        part = Observer(index, place.runtime).part(sorted(nodes), known, ends)
        declare(part.graph, {name: index.types[name] for name in made if name in index.types})
        # what an edit reads, and these nodes do not
        there = index.read_by(nodes) | made
        for name in sorted(values - there):
            if name in index.initializers:
                part.graph.initializer.append(index.initializers[name])
            elif name in known:
                part.graph.input.add(name=name, type=known[name])
        return index.model.with_proto(part)


def touched(place: Place, steps: Iterable[Pass]) -> tuple[set[int], set[str]]:
    """Return (the nodes that edits touch, the values that they name)."""
    index, touches, names = place.index, set[int](), set[str]()
    for step in steps:
        values, tokens = named(step)
        nodes = set(map(place.number, tokens))
        if isinstance(step, Remove):
            nodes |= set(index.next_to(index.made_by(nodes)))
        # the makers of values that others make afterwards
        ends = getattr(step, "outputs", ()) or values * getattr(step, "before", False)
        makers = {index.producer[name] for name in ends if name in index.producer}
        if not nodes:
            nodes = set(index.next_to(values))
            # what a replacement reads besides, as a mask, has other readers
            if isinstance(step, Replace):
                nodes &= index.ancestors(ends) if makers else set(index.next_to(values[:1]))
        touches |= nodes | makers
        names.update(values)
    return touches, names


def switched(place: Place, values: Collection[str]) -> ModelProto:
    """Return a region in which some values are computed or given, each as its switch says."""
    region = copied(place.index.model.proto)
    nodes = list[NodeProto]()
    for node in place.nodes:
        own = copied(node)
        nodes.append(own)
        for slot, name in enumerate(own.output):
            if name in values:
                own.output[slot] = name + COMPUTED
                element = data_type_of_numpy(place.values[name].dtype)
                nodes.append(_switch(name, element))
                for end, kind, shape in ((IS_GIVEN, TensorProto.BOOL, []), (GIVEN, element, None)):
                    given = helper.make_tensor_value_info(name + end, kind, shape)
                    region.graph.input.append(given)
    assign(region.graph.node, nodes)
    return region


def _switch(name: str, element: int) -> NodeProto:
    def taking(end: str) -> GraphProto:
        taken = helper.make_node("Identity", [name + end], [end])
        return helper.make_graph(
            [taken], end, [], [helper.make_tensor_value_info(end, element, None)]
        )

    branches = {"then_branch": taking(GIVEN), "else_branch": taking(COMPUTED)}
    return helper.make_node("If", [name + IS_GIVEN], [name], **branches)
