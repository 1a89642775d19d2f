"""What is wanted of a graph and of the bodies in it, as a tree."""

from dataclasses import dataclass, field

from onnxsurgeon_lite.graph.bodies import FUNCTION, BodyName, InnerGraph, iterations_of
from onnxsurgeon_lite.graph.index import GraphIndex


@dataclass
class Demand:
    """What is wanted of one graph.

    Attributes:
        path: `@12/body`; '' for the main graph.
        kinds: the operators whose bodies lead here, calls left out.
        values: of the graph itself.
        inside: position of a node -> name of a body -> what is wanted of it.
    """

    index: GraphIndex
    path: str = ""
    kinds: tuple[str, ...] = ()
    values: list[str] = field(default_factory=list)
    inside: dict[int, dict[str, "Demand"]] = field(default_factory=dict)

    def add(self, name: str) -> str:
        """Want one value more; returns its name without iterations.

        Raises:
            UnknownNameError: there is no such body, or no such value in it.
        """
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
        kinds = self.kinds if inside.body == FUNCTION else (*self.kinds, op_type)
        return Demand(inner.index, f"{self.path}/{inside.path}".lstrip("/"), kinds)

    @property
    def opset(self) -> int:
        """The version of ONNX's own operators here."""
        imported = self.index.model.proto.opset_import
        return max((o.version for o in imported if o.domain in ("", "ai.onnx")), default=1)

    @property
    def loops(self) -> int:
        """How many loops this is in."""
        return sum(kind != "If" for kind in self.kinds)

    @property
    def needs_table(self) -> bool:
        """Whether the order of the tensors does not say at which iterations they were computed."""
        return any(kind != "If" for kind in self.kinds[:-1])
