"""What giving dimensions other sizes means for a model: what must change, and every size that results."""

from dataclasses import dataclass, field

from onnx import GraphProto

from onnxsurgeon_lite.graph.index import described
from onnxsurgeon_lite.surgery.resizing.inference import State
from onnxsurgeon_lite.surgery.resizing.sizes import Size, ratio, varies

Entry = int | Size
"""An element of a shape: a number (0 and -1 as Reshape reads them), or a size that the model must compute."""


_BEFORE = 2  # trials with other sizes than those asked for: the model's own, and one that shows what follows


def after(size: Size) -> Size:
    """A size at the trials in which every dimension that gets a fixed size has it."""
    return size[_BEFORE:]


@dataclass(frozen=True)
class Symbol:
    """A dimension of inputs.

    Attributes:
        name: what it is called after the change; '' for a fixed size, and where the model has no name for it.
        own: the model's own size, None where the dimension is symbolic already.
        sizes: at each trial.
        places: (input, axis) of each dimension that is this one.
        changes: whether it is to be changed.
    """

    name: str
    own: int | None
    sizes: Size
    places: tuple[tuple[str, int], ...]
    changes: bool


@dataclass
class Scope:
    """A graph, and what is known of its values.

    Attributes:
        carried: inputs of a body that begin with an operand of its node.
    """

    graph: GraphProto
    path: str
    outer: "Scope | None" = None
    carried: frozenset[str] = frozenset()
    states: dict[str, State] = field(default_factory=dict)
    producers: dict[str, int] = field(default_factory=dict)

    def find(self, name: str) -> State | None:
        """The state of a value of this graph or of one around it."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.states:
                return scope.states[name]
            scope = scope.outer
        return None

    def place(self, position: int) -> str:
        """A node's id."""
        return f"{self.path}/@{position}" if self.path else f"@{position}"

    def describe(self, position: int) -> str:
        """A node as a message shows it."""
        return described(self.graph.node[position], self.place(position))


@dataclass(frozen=True)
class Refill:
    """New elements for an operand that a node reads as a shape."""

    scope: Scope
    position: int
    slot: int
    before: tuple[int, ...]
    entries: tuple[Entry, ...]
    reason: str


@dataclass(frozen=True)
class Stretch:
    """An operand that does not follow, expanded along one axis where a node needs it.

    Attributes:
        thin: whether it repeats one slice along the axis, of which the first is taken.
    """

    scope: Scope
    position: int
    slot: int
    axis: int
    rank: int
    entry: Entry
    thin: bool
    reason: str


@dataclass
class Plan:
    """What must change, in the graphs that were traced.

    Attributes:
        kept: constants that equal a size that changes and do not follow it, a line each.
    """

    symbols: list[Symbol]
    scopes: list[Scope] = field(default_factory=list)
    refills: list[Refill] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)

    def settled(self, size: Size) -> Entry:
        """The number that a size is after the change; the size itself where it stays open."""
        return size if varies(after(size)) else size[-1]

    def symbol_of(self, size: Size) -> Symbol | None:
        """The open dimension that has just this size."""
        return next((s for s in self.symbols if s.sizes == size and varies(after(size))), None)

    def text(self, size: Size) -> str:
        """A size as a message shows it: `17`, `N`, `4*N`, `?`."""
        settled = self.settled(size)
        if isinstance(settled, int):
            return str(settled)
        for symbol in self.symbols:
            times = ratio(size, symbol.sizes) if varies(symbol.sizes) else None
            if times is not None:
                return (symbol.name or "?") if times == 1 else f"{times}*{symbol.name or '?'}"
        return "?"
