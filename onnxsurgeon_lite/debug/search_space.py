"""The search space: the values of a graph, numbered in topological order."""

from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from itertools import chain

from onnxsurgeon_lite.graph import GraphIndex

_ARRANGING = {"Constant", "Identity", "Cast", "Transpose", "Reshape", "Squeeze", "Unsqueeze"}
_STORED = _ARRANGING | {"DequantizeLinear"}


class Space:
    """The produced values of a graph as search items 0, 1, ... in topological order."""

    def __init__(self, index: GraphIndex) -> None:
        self.index = index
        self.values = list(index.outputs_of(index.order))
        self.number = {name: i for i, name in enumerate(self.values)}

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def _parents(self) -> list[list[int]]:
        # inputs and initializers have no number: they are right by definition
        number = self.number
        return [
            [number[read] for read in self.index.reads[self.index.producer[name]] if read in number]
            for name in self.values
        ]

    def parents(self, item: int) -> list[int]:
        """Return the values that a value is computed from; constants belong to their consumers."""
        return self._parents[item]

    def position(self, item: int) -> int:
        return self.index.producer[self.values[item]]

    def names(self, items: Iterable[int]) -> list[str]:
        return [self.values[item] for item in items]

    def ancestors(self, items: Iterable[int]) -> set[int]:
        """Return everything that the items depend on."""
        found = set[int]()
        pending = list(chain.from_iterable(map(self.parents, items)))
        while pending:
            item = pending.pop()
            if item not in found:
                found.add(item)
                pending += self.parents(item)
        return found

    def below(self, names: Collection[str], stop: Collection[str] = ()) -> set[str]:
        """Return the values that depend on these, except through values in `stop`."""
        found = set(names)
        first = min((self.number[name] for name in names), default=len(self))
        # topological order: one pass is enough
        for name in self.values[first:]:
            reads = self.index.reads[self.index.producer[name]]
            if name not in stop and not found.isdisjoint(reads):
                found.add(name)
        return found - set(names)

    def last_uses(self, items: Iterable[int]) -> dict[str, int]:
        """Map each value to its last direct user among the items and their ancestors."""
        items = list(items)
        uses = dict[str, int]()
        # later users overwrite earlier ones
        for item in sorted(self.ancestors(items) | set(items)):
            for name in self.index.reads[self.position(item)]:
                uses[name] = item
        return uses

    def entering(self, region: Sequence[int]) -> list[str]:
        """Return the values that the nodes read from outside, without initializers."""
        index = self.index
        made = index.made_by(region)
        reads = index.inputs_of(region)
        return list(
            dict.fromkeys(n for n in reads if n not in made and n not in index.initializers)
        )

    @cached_property
    def constant(self) -> set[str]:
        """The values that do not depend on a graph input."""
        index = self.index
        # an input with an initializer has a default, and counts as a constant
        given = index.required_inputs
        return index.producer.keys() - index.made_by(index.descendants(index.next_to(given)))

    @cached_property
    def stored(self) -> set[str]:
        """The constants that are just a stored tensor, in whatever layout and dtype."""
        index, found = self.index, set[str]()
        for position in index.order:
            node, reads = index.nodes[position], index.reads[position]
            if node.op_type in _STORED and found.issuperset(r for r in reads if r in self.number):
                found.update(name for name in node.output if name in self.constant)
        return found
