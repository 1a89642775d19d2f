"""The inner values that are requested, as a tree of graphs and bodies."""

from dataclasses import dataclass, field

from onnxsurgeon_lite.graph.bodies import FUNCTION, BodyName, InnerGraph, iterations_of
from onnxsurgeon_lite.graph.index import GraphIndex, onnx_opset

BODIES = {"If": ("then_branch", "else_branch"), "Loop": ("body",), "Scan": ("body",)}
"""The operators whose inner values can be exposed."""


@dataclass
class Demand:
    """The values that are requested of one graph and of the bodies in it.

    Attributes:
        path: `@12/body`; '' for the main graph.
        kinds: the operators whose bodies lead here, or bodies that these have not, calls excluded.
        values: requested values of the graph itself.
        inside: position of a node -> name of a body -> its demand.
    """

    index: GraphIndex
    path: str = ""
    kinds: tuple[str, ...] = ()
    values: list[str] = field(default_factory=list)
    inside: dict[int, dict[str, "Demand"]] = field(default_factory=dict)

    def add(self, name: str) -> str:
        """Request another value; return its name without iteration indices."""
        inside = None if name in self.index else BodyName.of(name)
        if inside is None:
            value = name if name in self.index or not self.path else iterations_of(name)[0]
            self.index.require(value)
            if value not in self.values:
                self.values.append(value)
            return value
        found = self.inside.setdefault(inside.position, {})
        if inside.body not in found:
            found[inside.body] = self._body(inside)
        return f"{inside.path}/{found[inside.body].add(inside.rest)}"

    def _body(self, inside: BodyName) -> "Demand":
        inner = InnerGraph.of(self.index, inside.position, inside.body)
        op_type = self.index.nodes[inside.position].op_type
        if inside.body not in BODIES.get(op_type, (inside.body,)):
            op_type = f"the body {inside.body!r} of {op_type}"
        kinds = self.kinds if inside.body == FUNCTION else (*self.kinds, op_type)
        return Demand(inner.index, f"{self.path}/{inside.path}".lstrip("/"), kinds)

    @property
    def opset(self) -> int:
        """The version of ONNX's own operators in this graph."""
        return onnx_opset(self.index.model.proto)

    @property
    def loops(self) -> int:
        """The number of loops around this graph."""
        return sum(kind != "If" for kind in self.kinds)

    @property
    def needs_table(self) -> bool:
        """True if the order of the tensors does not tell their iterations."""
        return any(kind != "If" for kind in self.kinds[:-1])
