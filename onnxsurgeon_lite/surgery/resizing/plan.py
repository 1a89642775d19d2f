"""The plan of a resize: what must change, and every size that results."""

from dataclasses import dataclass, field

from onnx import GraphProto

from onnxsurgeon_lite.graph import described, node_id
from onnxsurgeon_lite.surgery.resizing.inference import State
from onnxsurgeon_lite.surgery.resizing.sizes import Size, ratio, varies
from onnxsurgeon_lite.tensors.dtypes import Array

Entry = int | Size
"""An element of a shape: a number (0 and -1 as in Reshape), or a size that the model must compute."""


_BEFORE = 2  # trials before the requested sizes: the own sizes, and one that shows dependencies


def after(size: Size) -> Size:
    """Return a size over the trials in which every fixed dimension has its requested size."""
    return size[_BEFORE:]


@dataclass(frozen=True)
class Symbol:
    """A dimension of the inputs.

    Attributes:
        name: after the change; '' for a fixed size, or for a dimension without a name.
        own: the model's own size; None if the dimension is already symbolic.
        sizes: the size at each trial.
        places: (input, axis) of each dimension that this symbol stands for.
        changes: the user requested a change.
    """

    name: str
    own: int | None
    sizes: Size
    places: tuple[tuple[str, int], ...]
    changes: bool


@dataclass(eq=False)
class Scope:
    """A graph, and the states of its values.

    Attributes:
        carried: inputs of a body that start as an operand of its node.
    """

    graph: GraphProto
    path: str
    outer: "Scope | None" = None
    carried: frozenset[str] = frozenset()
    states: dict[str, State] = field(default_factory=dict)
    producers: dict[str, int] = field(default_factory=dict)

    def home(self, name: str) -> "Scope | None":
        """Return the graph that defines a value: this one, or an enclosing one."""
        scope: Scope | None = self
        while scope is not None and name not in scope.states:
            scope = scope.outer
        return scope

    def find(self, name: str) -> State | None:
        """Return the state of a value of this graph or of an enclosing one."""
        home = self.home(name)
        return None if home is None else home.states[name]


@dataclass
class Spot:
    """A node of a graph."""

    scope: Scope
    position: int

    @property
    def place(self) -> str:
        return node_id(self.scope.path, self.position)

    def __str__(self) -> str:
        return described(self.scope.graph.node[self.position], self.place)


@dataclass
class OperandChange(Spot):
    """A change of an operand of a node."""

    slot: int

    @property
    def name(self) -> str:
        """The operand."""
        return str(self.scope.graph.node[self.position].input[self.slot])


@dataclass
class Refill(OperandChange):
    """New elements for an operand that a node reads as a shape."""

    before: tuple[int, ...]
    entries: tuple[Entry, ...]
    reason: str


@dataclass
class Stretch(OperandChange):
    """An operand with a fixed size that is expanded along one axis, because the other operands change.

    Attributes:
        thin: it repeats one slice along the axis; the first slice is used.
    """

    axis: int
    rank: int
    entry: Entry
    thin: bool


@dataclass
class Ramp(OperandChange):
    """An operand that counts along one axis, as far as the axis of another operand reaches.

    Attributes:
        base: the first slice along the axis.
        step: from each slice to the next.
        onto: the numbers are added to the operand, which is computed.
    """

    axis: int
    base: Array
    step: Array
    entry: Entry
    onto: bool


@dataclass
class ResizePlan:
    """All changes to the traced graphs.

    Attributes:
        kept: a line for each constant that equals a changing size but does not depend on it.
        unfit: nodes whose inputs do not fit together at the sizes before the change.
    """

    symbols: list[Symbol]
    scopes: list[Scope] = field(default_factory=list)
    refills: list[Refill] = field(default_factory=list)
    stretches: list[Stretch | Ramp] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    unfit: int = 0

    def fixed(self, size: Size) -> Entry:
        """Return a size as a number after the change, or the size itself if it stays symbolic."""
        # the same after the change, at all trials: a number
        return size if varies(after(size)) else size[-1]

    def symbol_of(self, size: Size) -> Symbol | None:
        """Return the symbolic dimension with exactly this size."""
        return next((s for s in self.symbols if s.sizes == size and varies(after(size))), None)

    def text(self, size: Size) -> str:
        """Return a size's text for messages: `17`, `N`, `4*N`, `?`."""
        fixed = self.fixed(size)
        if isinstance(fixed, int):
            return str(fixed)
        for symbol in self.symbols:  # as a multiple of one symbol
            times = ratio(size, symbol.sizes) if varies(symbol.sizes) else None
            if times is not None:
                return (symbol.name or "?") if times == 1 else f"{times}*{symbol.name or '?'}"
        return "?"
