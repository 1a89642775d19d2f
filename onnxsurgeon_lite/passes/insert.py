"""A new node on an edge."""

from collections.abc import Set
from dataclasses import dataclass
from typing import ClassVar

from onnx import NodeProto

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.schemas import check_node
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.passes.set_attr import AttributeValue, make_attribute
from onnxsurgeon_lite.passes.targets import one_value, readers
from onnxsurgeon_lite.surgery.edits import described, fresh, rename_uses, settle, value_names
from onnxsurgeon_lite.surgery.types import follow


@dataclass(frozen=True)
class Insert:
    """Put a node behind a value: what read the value reads the node's output instead.

    Attributes:
        inputs: the node's inputs where the value is not the only one; '' is an omitted one.
        attributes: (name, value) pairs.
        to: the nodes whose edge is meant; all by default.
        before: the value keeps its name for its readers and as a graph output, and the node it comes from writes
            another; otherwise the new node's output gets the new name, and a graph output is not touched.
        output, node_name: names for what is new.
    """

    value: str
    op_type: str
    inputs: tuple[str, ...] = ()
    attributes: tuple[tuple[str, AttributeValue], ...] = ()
    domain: str = ""
    to: tuple[str, ...] = ()
    before: bool = False
    output: str | None = None
    node_name: str = ""
    name: ClassVar[str] = "insert"
    retypes: ClassVar[bool] = True

    def apply(self, model: Model, unsettled: Set[str] | None = None) -> PassResult:
        """Insert.

        Raises:
            UnknownNameError: no such value, node or operator.
            EditError: the operator does not take these inputs or attributes; the value cannot be had before; a cycle.
        """
        index = GraphIndex.of(model)
        waiting = None if unsettled is None else set(unsettled)
        notes: list[str] = []
        value = one_value(index, self.value, notes)
        inputs = [one_value(index, name, notes) if name else "" for name in self.inputs] or [value]
        if value not in inputs:
            raise EditError(
                f"the inputs of the new {self.op_type} lack {value!r} itself",
                "name it among them, in its place",
            )
        result = model.copy()
        taken = value_names(index)
        if self.output in taken:
            raise EditError(f"{self.output!r} is taken", "choose another name for the new value")
        node = NodeProto(
            op_type=self.op_type, domain=self.domain or None, name=self.node_name or None
        )
        new = self.output or fresh(f"{value}_{self.op_type.lower()}", taken)
        node.input[:] = inputs
        place = 1 + max((index.producer.get(name, -1) for name in inputs), default=-1)
        if self.before:
            self._before(result, index, value, new)
            node.input[:] = [new if name == value else name for name in inputs]
            node.output[:] = [value]
        else:
            chosen = readers(index, value, self.to)
            rename_uses([result.proto.graph.node[p] for p in chosen], {value: new})
            node.output[:] = [new]
            if value in index.outputs and not self.to:
                notes.append(
                    f"output {value!r} is as it was; --before puts the node in front of it"
                )
        node.attribute.extend(make_attribute(index, node, *pair) for pair in self.attributes)
        result.proto.graph.node.insert(place, node)
        notes += self._follow_types(index, settle(index, result), value, new, waiting)
        where = "before" if self.before else "after"
        change = f"inserted {described(node, f'@{place}')} {where} {value!r}, new value {new!r}"
        return PassResult.of(model, result, [change], notes, waiting)

    def _before(self, result: Model, index: GraphIndex, value: str, new: str) -> None:
        position = index.producer.get(value)
        if position is None or self.to:
            raise EditError(
                f"no node can be put before {value!r}"
                + (" for some of its readers" if self.to else ": no node makes it"),
                "put it after: leave out --before",
            )
        outputs = result.proto.graph.node[position].output
        outputs[list(outputs).index(value)] = new

    def _follow_types(
        self,
        index: GraphIndex,
        after: GraphIndex,
        value: str,
        new: str,
        unsettled: set[str] | None,
    ) -> list[str]:
        """What reads the new node was declared for the old value's type."""
        made = value if self.before else new
        node = after.nodes[after.producer[made]]
        read = {new: value} if self.before else {}
        known = {name: index.type_of(read.get(name, name)) for name in node.input if name}
        after.types.update((name, kind) for name, kind in known.items() if kind is not None)
        types = check_node(after, node, f"the new {self.op_type}", unsettled)
        after.types.update(types)
        for user in after.readers([made])[made]:
            check_node(after, after.nodes[user], after.describe(user), unsettled)
        return follow(index, after, types, {made: value}, unsettled)
