"""The values and nodes of a model under conversion, of its graph, its bodies and its functions."""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

from onnx import FunctionProto, GraphProto, NodeProto, TensorProto

from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.graph.schemas import MOVING
from onnxsurgeon_lite.model import walk
from onnxsurgeon_lite.surgery.precision.operators import Schema

EXACT = MOVING | {
    "Abs", "ArgMax", "ArgMin", "Compress", "Concat", "GlobalMaxPool", "Max", "MaxPool", "Min", "Neg", "NonZero", "Pad",
    "ReduceMax", "ReduceMin", "Relu", "ReverseSequence", "ScatterElements", "ScatterND", "TopK", "Where",
}  # fmt: skip
"""Operators that move or choose numbers: in any dtype that holds their inputs they give the same."""
_ANY = frozenset(("Cast", "CastLike", "Shape", "Size", "IsNaN", "IsInf"))
"""Operators that read their first input in whichever dtype it is made."""


@dataclass(eq=False)
class Site:
    """A float32 value, and in which dtypes it is needed.

    Attributes:
        maker: the node that makes it; None for inputs and constants.
        constant: its tensor, for an initializer or the output of a Constant node.
        required: the dtype of a graph output, narrow or not.
        readers: (node, input) of all that read it, in bodies too.
        is_narrow: it is made narrow. read: the dtypes in which it is read.
    """

    name: str
    scope: "PrecisionScope"
    maker: "PrecisionStep | None" = None
    constant: TensorProto | None = None
    required: bool | None = None
    readers: list[tuple["PrecisionStep", int]] = field(default_factory=list)
    is_narrow: bool = False
    read: set[bool] = field(default_factory=set)


@dataclass(eq=False)
class PrecisionStep:
    """A node, and what becomes of it.

    Attributes:
        kind: `none` touches no float32 value; `wide` and `narrow` are decided; `free` goes with its neighbors.
        why: the reason for `wide`.
        takes, makes: of each input and output, whether the operator can have it narrow.
    """

    id: str
    node: NodeProto
    schema: Schema | None
    kind: str = "none"
    why: str = ""
    inputs: list[Site | None] = field(default_factory=list)
    outputs: list[Site | None] = field(default_factory=list)
    takes: list[bool] = field(default_factory=list)
    makes: list[bool] = field(default_factory=list)
    bodies: list["PrecisionScope"] = field(default_factory=list)

    @property
    def is_narrow(self) -> bool:
        return self.kind == "narrow"

    @property
    def entering(self) -> list[Site]:
        """The float32 inputs of its bodies."""
        sites = chain.from_iterable(body.sites.values() for body in self.bodies)
        return [site for site in sites if site.maker is None and site.constant is None]

    def wants(self, slot: int) -> bool:
        """Return whether it reads an input narrow."""
        site = self.inputs[slot]
        if self.node.op_type in _ANY and slot == 0 and site is not None:
            # such an operator takes whatever there is, so no Cast is needed for it
            return site.is_narrow and self.takes[slot]
        return self.is_narrow and self.takes[slot]


@dataclass(eq=False)
class PrecisionScope:
    """A graph, a body or a function."""

    path: str
    index: GraphIndex
    target: GraphProto | FunctionProto
    outer: "PrecisionScope | None"
    steps: list[PrecisionStep] = field(default_factory=list)
    sites: dict[str, Site] = field(default_factory=dict)

    def find(self, name: str) -> Site | None:
        """Return the float32 value of a name, of an outer graph if the body captures it."""
        # from inside to outside; a name that is defined inside is not looked for outside
        scope: PrecisionScope | None = self
        while scope is not None:
            if name in scope.sites:
                return scope.sites[name]
            scope = None if name in scope.own else scope.outer
        return None

    @cached_property
    def own(self) -> set[str]:
        """The names that the body itself defines, of any dtype."""
        if self.outer is None:
            return set()
        graph = self.target
        made = set(walk.outputs(graph.node))
        if isinstance(graph, FunctionProto):
            return made.union(graph.input)
        return made.union((v.name for v in graph.input), (t.name for t in graph.initializer))
