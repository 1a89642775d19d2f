"""A frame: the main graph, or one execution of a body, with the values that were computed so far."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, count
from time import perf_counter

from onnx import TypeProto

from onnxsurgeon_lite.graph import GraphIndex, at, fixed_shape
from onnxsurgeon_lite.model import call_key, function_key, walk
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.tensors.dtypes import RunValue, Shape

_LONGEST = 256  # nodes that are computed together
_SOON = 0.5  # seconds that they should take, so that a slow one can be named when it is interrupted
_KNOWN = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft")
_NUMBERS = count()
_MUCH = 1e10  # multiplications: a tenth of a second and more
_CONTRACTIONS = {
    "MatMul", "Gemm", "Einsum", "MatMulInteger", "Conv", "ConvTranspose", "ConvInteger",
}  # fmt: skip


@dataclass
class Machine:
    """The state that all frames of a session share.

    Attributes:
        budget: bytes of values that the runtime may hold.
        working: the frame and its nodes that are being computed.
        slow: (scope, node): those that were interrupted together, and are run one by one from then on.
    """

    runtime: Runtime
    budget: int
    working: "tuple[Frame, Sequence[int]] | None" = None
    slow: set[tuple[str, int]] = field(default_factory=set)


@dataclass
class Frame:
    """The nodes of one graph; the first `place` in its order were passed.

    Values are computed when they are needed, with what they need and no more, some nodes at a time; they stay in the
    runtime while the budget lasts. What is given up first is what no later node reads.

    Attributes:
        path: of the body: '', `@3/body`. scope: the same, but a function has one for all its calls; see `places`.
        numbers: the iteration of each loop that this is in, the outermost first.
        outer: the frame whose node `call` runs this body.
        captured: the values that come from outer frames.
        iterations: goes on with what follows the frame; see `control`.
        fixed: values that were not computed: inputs, and what was set.
        done: nodes that run a body and were stepped through.
        touched: whether a value was set, here or in a frame that returned to here.
    """

    index: GraphIndex
    machine: Machine
    path: str = ""
    scope: str = ""
    numbers: Shape = ()
    outer: "Frame | None" = None
    call: int = 0
    captured: frozenset[str] = frozenset()
    iterations: Iterator["Frame"] = iter(())
    place: int = 0
    fixed: set[str] = field(default_factory=set)
    done: set[int] = field(default_factory=set)
    touched: bool = False

    def __post_init__(self) -> None:
        # frames share one runtime: the prefix keeps their values apart
        prefix = f"{next(_NUMBERS)}\0"
        self.observer = Observer(self.index, self.machine.runtime, prefix=prefix)
        # calls of these may run bodies
        self._functions = {function_key(f) for f in self.index.model.proto.functions}

    @property
    def ended(self) -> bool:
        """True once all nodes were passed."""
        return self.place >= len(self.index.nodes)

    def node_id(self, position: int) -> str:
        """The printable id of a node."""
        return self.inside(f"@{position}")

    def inside(self, name: str) -> str:
        """Return the name that something in the body has outside: `@3/body/q[2]`."""
        return at(f"{self.path}/{name}", self.numbers) if self.path else name

    def name(self, value: str) -> str:
        """The full name of a value; one that is captured has that of the frame it comes from."""
        if value in self.captured and self.outer is not None:
            return self.outer.name(value)
        return self.inside(value)

    @property
    def iteration(self) -> int | None:
        """The number of the iteration, None outside a loop."""
        # only a loop adds a number to those of the outer frame
        before = self.outer.numbers if self.outer is not None else ()
        return self.numbers[-1] if self.numbers != before else None

    @cached_property
    def typed(self) -> GraphIndex:
        """The index, its types inferred at once rather than anew for each body that asks for some."""
        self.index.learn_types(self.index.producer)
        return self.index

    def describe(self, position: int) -> str:
        """A node as a message shows it."""
        node = self.index.nodes[position]
        named = f" {node.name!r}" if node.name else ""
        return f"{node.op_type}{named} ({self.node_id(position)})"

    def made(self, position: int) -> list[str]:
        """The values of a node that something reads; the first one where nothing does."""
        index = self.index
        names = list(index.outputs_of([position]))
        used = [name for name in names if name in index.consumers or name in index.outputs]
        return used or names[:1]

    def put(self, name: str, value: RunValue, kind: TypeProto | None = None) -> None:
        """Have a value under a name, whatever the graph computes."""
        # a kept value wins over computing it: so a node need not be run, or is given other outputs
        self.observer.forget([name])
        self.observer.put(name, value, kind)
        self.fixed.add(name)

    def take(self, names: Mapping[str, str], source: "Frame") -> None:
        """Have values of another frame (name here -> name there); the runtime holds them once."""
        # Constants are in the model, not in the runtime: they are put there. All else is an alias, not a copy.
        for name, theirs in names.items():
            constant = source.constant(theirs)
            if constant is not None:
                self.put(name, constant)
        taken = {name: theirs for name, theirs in names.items() if source.constant(theirs) is None}
        source.need(taken.values())
        self.observer.forget(taken)
        stored = {self.observer.stored(n): source.observer.stored(o) for n, o in taken.items()}
        self.machine.runtime.alias(stored)
        self.observer.kept.update((n, source.observer.kept[o]) for n, o in taken.items())
        self.fixed.update(taken)

    def constant(self, name: str) -> RunValue:
        """The numbers of an initializer, None for other values and where it was fed or set."""
        tensor = self.index.dense(name)
        if tensor is None or name in self.observer.kept:
            return None
        return self.index.model.array(tensor)

    def fetch(self, names: Sequence[str]) -> dict[str, RunValue]:
        """Values, computed where they are not there."""
        self.need(names)
        constants = {name: self.constant(name) for name in names}
        there = [name for name in names if constants[name] is None]
        return {**constants, **self.observer.fetch(there)}

    def value(self, name: str) -> RunValue:
        """Return one value."""
        return self.fetch([name])[name]

    def need(self, names: Iterable[str]) -> None:
        """Compute values that are not there, and what they need."""
        # `wanted` are computed, the rest of the region is on the way to them
        kept, index = self.observer.kept, self.index
        wanted = {name for name in names if name in index.producer and name not in kept}
        if not wanted:
            return
        region = index.in_order(index.ancestors(wanted, stop=kept))
        # Parts of growing length: as many nodes as run in half a second, and whose results fit the budget. What later
        # nodes need is kept from part to part.
        start, length = 0, 8
        while start < len(region):
            part = self._together(region[start : start + length])
            began = perf_counter()
            self.machine.working = self, part
            produced = [n for n in self.index.outputs_of(part) if n in wanted]
            # all that the nodes make, as a stop may show it, and what was asked for
            keep = dict.fromkeys(n for p in part for n in chain(self.made(p), produced))
            self.observer.fetch([], [name for name in keep if name not in self.observer.kept])
            soon = int(len(part) * _SOON / (perf_counter() - began))
            start += len(part)
            length = max(1, min(_LONGEST, 2 * length, soon, self._affordable(part)))
            self._trim(region[start:], wanted)
        self.machine.working = None

    def _together(self, region: Sequence[int]) -> Sequence[int]:
        """The first nodes; one that might take long, or not end, is run by itself, so that it can be named."""
        # a node that may take long ends the part before it, or is a part by itself if it comes first
        for place, position in enumerate(region):
            slow = (self.scope, position) in self.machine.slow or takes_long(self.index, position)
            if slow or self._may_hang(position):
                return region[: max(1, place)]
        return region

    def _may_hang(self, position: int) -> bool:
        node = self.index.nodes[position]
        # custom operators, functions and bodies may loop for ever
        if node.domain not in _KNOWN or (self._functions and call_key(node) in self._functions):
            return True
        return bool(node.attribute) and bool(walk.bodies(node))

    def _affordable(self, part: Sequence[int]) -> int:
        """Return how many nodes like these fill a quarter of the budget."""
        held = self.machine.runtime.held
        size = sum(held.get(self.observer.stored(n), 0) for n in self.index.outputs_of(part))
        return max(1, len(part) * self.machine.budget // (4 * size)) if size else _LONGEST

    def _trim(self, rest: Sequence[int], wanted: set[str]) -> None:
        """Give up values until the others fit the budget, except what is needed for the rest."""
        held = self.machine.runtime.held
        over = sum(held.values()) - self.machine.budget
        if over <= 0:
            return
        # those whose last reader comes first go first: -1 for what nothing reads
        last_use = self.index.last_use
        needed = self.index.read_by(rest) | wanted | self.fixed
        free = [name for name in self.observer.kept if name not in needed]
        gone = []
        for name in sorted(free, key=lambda name: last_use.get(name, -1)):
            if over <= 0:
                break
            over -= held.get(self.observer.stored(name), 0)
            gone.append(name)
        self.observer.forget(gone)

    def set(self, name: str, value: RunValue, kind: TypeProto) -> None:
        """Have a value as given, and forget what was computed from it."""
        # names of all that depends on the value
        below = self.index.made_by(self.index.descendants(self.index.users(name)))
        self.observer.forget(below - self.fixed)
        # nodes below that ran a body must run it again
        self.done -= {self.index.producer[name] for name in below}
        self.put(name, value, kind)
        self.touched = True

    def forget(self) -> None:
        """Let go of every value."""
        self.observer.forget()


def takes_long(index: GraphIndex, position: int) -> bool:
    """Return True for a node that contracts large tensors, as far as types tell.

    The multiplications of A [m, k] and B [k, n] are the root of |A| |B| |AB|; a convolution's are a few times as many.
    """
    node = index.nodes[position]
    if node.op_type not in _CONTRACTIONS:
        return False
    # A [m, k], B [k, n], AB [m, n]: the product of their sizes is (m k n)^2
    operands = (*node.input[:2], *node.output[:1])
    return math.prod(_elements(index.types.get(name)) for name in operands) > _MUCH**2


def _elements(kind: TypeProto | None) -> int:
    """The number of elements of a tensor, 0 where it is not known."""
    shape = fixed_shape(kind)
    return 0 if shape is None else math.prod(shape)
