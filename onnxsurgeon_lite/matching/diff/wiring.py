"""Say which values of two graphs correspond, once the nodes are paired."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from onnxsurgeon_lite.matching.nodes import NamedGraph, NodeAlignment

_MOST_BETWEEN = 256  # unpaired nodes between two values; more of them are the difference themselves


@dataclass
class Wiring:
    """Correspondence of values of two graphs; `outer` is that of the enclosing graphs.

    Attributes:
        constants: corresponding initializers (first, second), as paired nodes read them.
        replaced: (initializer, input) or (input, initializer) pairs where one replaced the other.
    """

    alignment: NodeAlignment
    outer: "Wiring | None"
    constants: dict[tuple[str, str], None] = field(default_factory=dict)
    replaced: dict[tuple[str, str], None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        alignment = self.alignment
        self.scopes = (alignment.first, alignment.second)
        self.back = {other: name for name, other in alignment.values.items()}
        self.unpaired = (set(alignment.removed), set(alignment.added))

    def corresponds(self, name: str, other: str) -> bool:
        """Return whether two values correspond, or another difference already reports the change."""
        if not name or not other:
            return name == other
        values = self.alignment.values
        # a paired value corresponds to its partner alone, unless unpaired nodes in between are reported already
        if name in values or other in self.back:
            return values.get(name) == other or self._reported_elsewhere(name, other)
        sides = list(zip(self.scopes, (name, other), strict=True))
        if not any(_holds(scope, value) for scope, value in sides):  # of an outer graph, or of none
            return self.outer.corresponds(name, other) if self.outer else name == other
        constant = [value in scope.index.initializers for scope, value in sides]
        if all(constant):
            self.constants[name, other] = None
            return True
        inputs = [value in scope.index.inputs for scope, value in sides]
        # the reader sees another kind of leaf; `replaced` reports it once, not at each reader
        if any(constant) and any(inputs):
            self.replaced[name, other] = None
            return True
        return self._reported_elsewhere(name, other)

    @property
    def names(self) -> dict[str, str]:
        """Name of a value or initializer of the first graph -> in the second."""
        return dict(self.constants.keys()) | self.alignment.values

    def counterparts(self, names: Iterable[str]) -> dict[str, str]:
        """Map values of this and enclosing graphs to their names in the second model."""
        known = self.names
        found = dict[str, str]()
        further = []
        for name in names:
            if name in known:
                found[name] = known[name]
            elif not _holds(self.scopes[0], name):
                further.append(name)
        return found | self.outer.counterparts(further) if self.outer else found

    def _reported_elsewhere(self, name: str, other: str) -> bool:
        """Return whether only added or removed nodes and constants lie between two values."""
        mine, theirs = self._origins(0, name), self._origins(1, other)
        # too many nodes in between to follow: these are the difference
        if mine is None or theirs is None:
            return True
        return not mine.isdisjoint(theirs) or not mine | theirs

    def _origins(self, side: int, value: str) -> set[str] | None:
        """Return the paired values that feed a value through unpaired nodes, in first-graph names."""
        scope, unpaired = self.scopes[side], self.unpaired[side]
        found = set[str]()
        pending = [value]
        seen = set[int]()
        while pending:
            name = pending.pop()
            position = scope.index.producer.get(name)
            if position in unpaired and position is not None:
                if position not in seen:
                    seen.add(position)
                    pending += scope.needs(position)
                if len(seen) > _MOST_BETWEEN:
                    return None
            # a value that paired nodes share, or an input: the search ends there
            elif name and name not in scope.index.initializers:
                # the prefix keeps a name of the second graph from being taken for one of the first
                found.add(name if side == 0 else self.back.get(name, f"second:{name}"))
        return found


def _holds(scope: NamedGraph, name: str) -> bool:
    return not name or name in scope.index
