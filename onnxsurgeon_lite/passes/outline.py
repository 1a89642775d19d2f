"""Outline the nodes of a module as a function."""

from dataclasses import dataclass
from typing import ClassVar

from onnx import FunctionProto, NodeProto

from onnxsurgeon_lite.errors import EditError, UnknownNameError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.model.messages import drop_at
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.surgery.edits import drop_declarations, fresh, settle

_MIN_IR = 8  # the first IR version with functions


@dataclass(frozen=True)
class Outline:
    """Move the nodes of a module path (`encoder.layer.4` and below) into a model-local function and call it.

    `Inline` is the inverse, except for names.

    Attributes:
        scope: the module path.

    Example:
        >>> osl.outline("whole_model_dynamo.onnx", "convs1").changes
        ('outlined 3 nodes as function local::convs1',)
    """

    scope: str
    domain: str = "local"
    name: ClassVar[str] = "outline"

    def apply(self, model: Model) -> PassResult:
        """Outline.

        Raises:
            UnknownNameError: no node has this scope.
            EditError: a path leaves the scope and enters it again.
        """
        index = GraphIndex.of(model)
        scopes = [origin.scope for origin in index.origins]
        known = dict.fromkeys(filter(None, scopes))
        below = {scope for scope in known if f"{scope}.".startswith(f"{self.scope}.")}
        inside = [position for position, scope in enumerate(scopes) if scope in below]
        if not inside:
            raise UnknownNameError(self.scope, f"graph {index.graph.name!r}", known, kind="scope")
        _require_convex(index, set(inside), self.scope)
        result = model.copy()
        proto = result.proto
        function = self._function(index, inside, {f.name for f in proto.functions})
        call = NodeProto(op_type=function.name, domain=self.domain, name=self.scope)
        call.input[:] = function.input
        call.output[:] = function.output
        drop_at(proto.graph.node, inside)
        proto.graph.node.insert(inside[-1] - len(inside) + 1, call)
        proto.functions.append(function)
        inner = {name for p in inside for name in index.nodes[p].output} - {*function.output}
        lost = [a for a in index.graph.quantization_annotation if a.tensor_name in inner]
        drop_declarations(proto.graph, inner)
        notes = (
            [f"functions cannot hold quantization annotations: dropped {len(lost)}"] if lost else []
        )
        if self.domain not in {opset.domain for opset in proto.opset_import}:
            proto.opset_import.add(domain=self.domain, version=1)
        if proto.ir_version < _MIN_IR:
            notes.append(f"IR version {proto.ir_version} -> {_MIN_IR}, as functions require")
            proto.ir_version = _MIN_IR
        settle(index, result)
        change = f"outlined {len(inside)} nodes as function {self.domain}::{function.name}"
        return PassResult.of(model, result, [change], notes)

    def _function(self, index: GraphIndex, inside: list[int], taken: set[str]) -> FunctionProto:
        name = fresh(self.scope.replace(".", "_"), set(taken))
        function = FunctionProto(name=name, domain=self.domain)
        function.node.extend(index.nodes[position] for position in inside)
        made = {n: None for p in inside for n in index.nodes[p].output if n}
        reads = dict.fromkeys(n for p in inside for n in index.reads[p] if n not in made)
        members, readers = set(inside), index.readers(made)
        function.input.extend(reads)
        function.output.extend(
            n for n in made if n in index.outputs or not members.issuperset(readers[n])
        )
        function.opset_import.extend(index.model.proto.opset_import)
        function.value_info.extend(v for v in index.graph.value_info if v.name in made)
        return function


def _require_convex(index: GraphIndex, inside: set[int], scope: str) -> None:
    """Raise `EditError` if a path leaves the nodes and enters them again: one call cannot run in two parts."""
    places = sorted(index.places[position] for position in inside)
    after: set[int] = set()  # nodes outside that depend on those inside
    for position in index.order[places[0] : places[-1] + 1]:
        needed = {index.producer[name] for name in index.reads[position] if name in index.producer}
        if position not in inside:
            if not needed.isdisjoint(inside) or not needed.isdisjoint(after):
                after.add(position)
        elif not needed.isdisjoint(after):
            raise EditError(
                f"a path leaves {scope!r} and enters it again, from {index.describe(min(needed & after))} "
                f"to {index.describe(position)}",
                "outline a larger or a smaller scope",
            )
