"""Change the operator of nodes."""

from dataclasses import dataclass
from typing import ClassVar

from onnx import TypeProto

from onnxsurgeon_lite.graph import GraphIndex, check_node, described, schema_of
from onnxsurgeon_lite.model import Model, walk
from onnxsurgeon_lite.passes.in_bodies import in_bodies
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.passes.targets import chosen_nodes
from onnxsurgeon_lite.surgery import follow, importing


@dataclass(frozen=True)
class SetOp:
    """Change the operator of nodes; their inputs, outputs, attributes and names stay.

    Ids select nodes inside bodies and functions. A new domain is imported at version 1.

    Example:
        >>> osl.set_op("whole_model.onnx", "Add_7", "Sub").changes
        ("Add 'Add_7' (@7): operator Add -> Sub",)
    """

    nodes: tuple[str, ...]
    op_type: str
    domain: str | None = None
    name: ClassVar[str] = "set-op"
    retypes: ClassVar[bool] = True

    @in_bodies(nodes=("nodes",), each="nodes")
    def apply(self, model: Model) -> PassResult:
        """Change the operator.

        Raises:
            UnknownNameError: no such node, or no such operator in the model's opset.
            EditError: the operator does not take the node's inputs or attributes.
        """
        before = GraphIndex.of(model)
        chosen = chosen_nodes(before, self.nodes)
        # values around the node: with a single one, their types can be found while the model is copied
        touched = set(walk.names(chosen.values()))
        known = {name for name in touched if name and name in before} if len(chosen) == 1 else set()
        # inference for one node starts before the model is copied
        before.foresee(known)
        notes = list[str]()
        result = importing(model, self.domain, notes).copy()
        index = GraphIndex.of(result)
        changes = []
        types = dict[str, TypeProto]()
        # change each node, and check that the operator takes what it has
        for node_id, node in chosen_nodes(index, self.nodes).items():
            old = node.op_type
            what = described(node, node_id)
            node.op_type = self.op_type
            if self.domain is not None:
                node.domain = self.domain
            if known and schema_of(index, node) is not None:  # it reads nothing that it changes
                before.learn_types(known)
                index.types.update((n, before.types[n]) for n in node.input if n in before.types)
            types.update(check_node(index, node, what))
            changes.append(f"{what}: operator {old} -> {self.op_type}")
        notes += follow(before, index, types)
        return PassResult.of(model, result, changes, notes)
