"""Insert a node on an edge."""

from dataclasses import dataclass, replace
from typing import ClassVar

from onnx import NodeProto

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph import GraphIndex, check_node, described
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.passes.in_bodies import in_bodies
from onnxsurgeon_lite.passes.protocol import Attributes, PassResult
from onnxsurgeon_lite.passes.set_attr import make_attribute
from onnxsurgeon_lite.passes.targets import Operands, one_value, readers
from onnxsurgeon_lite.surgery import Numbers, Taken, follow, fresh, importing, rename_uses, settle


@dataclass(frozen=True)
class Insert:
    """Insert a node after a value; the value's readers read the node's output instead.

    Attributes:
        value: the value.
        inputs: the node's inputs, when the value is not the only one; '' omits one. Numbers (`2.0`, `[0.5, 1]`, a file)
            become constants of the dtype that the operator needs; numbers alone come after the value.
        attributes: (name, value) pairs.
        to: the readers to connect to the node; all by default.
        before: the node's output takes the value's name, also as a graph output, and the producer's output gets a new
            one; so it is for a graph output unless `to` or `output` is given. Otherwise the node's output gets the new
            name and a graph output stays.
        output: the name of the new value.
        constants: (name, numbers) pairs: new constants that the node reads, behind the value where `inputs` is empty.
            They have the dtype that the operator takes.

    Example:
        >>> osl.insert("whole_model.onnx", "23", "Relu", to="Conv_3").changes
        ("inserted Relu @3 after '23', new value '23_relu'",)
    """

    value: str
    op_type: str
    inputs: tuple[str, ...] = ()
    attributes: Attributes = ()
    domain: str = ""
    to: tuple[str, ...] = ()
    before: bool = False
    output: str | None = None
    node_name: str = ""
    constants: tuple[tuple[str, Numbers], ...] = ()
    name: ClassVar[str] = "insert"
    retypes: ClassVar[bool] = True

    @in_bodies(values=("value", "inputs"), nodes=("to",))
    def apply(self, model: Model) -> PassResult:
        """Insert the node.

        Raises:
            UnknownNameError: no such value, node or operator.
            EditError: the operator does not take these inputs or attributes, no node produces the value (with
                `before`), or the edit makes a cycle.
        """
        notes = list[str]()
        index = GraphIndex.of(importing(model, self.domain, notes))
        value = one_value(index, self.value, notes)
        # at the end of the graph, "after" a value means before its name
        at_end = value in index.outputs and index.producer.get(value) is not None
        if at_end and not (self.before or self.to or self.output):
            return replace(self, before=True).apply(model)
        # read the operands; numbers alone come after the value
        taken = Taken(index)
        base = f"{value}_{self.op_type.lower()}"
        operands = Operands.read(index, self.inputs, base, taken, notes, self.constants)
        if operands.names == list(operands.numbers):  # numbers alone come after the value
            operands.names.insert(0, value)
        inputs = operands.names
        if value not in inputs:
            raise EditError(
                f"the inputs of the new {self.op_type} do not contain {value!r}",
                "add it to the inputs, at its position",
            )
        # the types of these are needed: their inference can begin
        index.foresee(name for name in inputs if name in index)
        result = index.model.copy()
        if self.output in taken:
            raise EditError(
                f"value {self.output!r} exists already", "choose another name for the new value"
            )
        # make the node and its constants, after all that it reads
        node = NodeProto(
            op_type=self.op_type, domain=self.domain or None, name=self.node_name or None
        )
        new = self.output or fresh(base, taken)
        node.input[:] = inputs
        result.graph.initializer.extend(operands.tensors(index, node))
        # right after the last node that makes an input
        place = 1 + max(index.makers(inputs), default=-1)
        # connect it: as the new producer of the value, or between the value and its readers
        if self.before:
            self._before(result, index, value, new)
            producer = index.nodes[index.producer[value]]
            node.metadata_props.extend(producer.metadata_props)  # it stands for the value
            if producer.name and not node.name:  # which names the module in some exports
                node.name = f"{producer.name}_{self.op_type.lower()}"
            # the producer's own output has the new name
            node.input[:] = [new if name == value else name for name in inputs]
            node.output[:] = [value]
        else:
            chosen = readers(index, value, self.to)
            rename_uses([result.graph.node[p] for p in chosen], {value: new})
            node.output[:] = [new]
            if value in index.outputs and not self.to:
                notes.append(
                    f"graph output {value!r} did not change; --before inserts the node before it"
                )
        # attributes have the types of the schema; then types follow the new node
        node.attribute.extend(make_attribute(index, node, *pair) for pair in self.attributes)
        result.graph.node.insert(place, node)
        notes += self._follow_types(index, settle(index, result), value, new)
        where = "before" if self.before else "after"
        change = (
            f"inserted {described(node, index.node_id(place))} {where} {value!r}, new value {new!r}"
        )
        return PassResult.of(model, result, [change], notes)

    def _before(self, result: Model, index: GraphIndex, value: str, new: str) -> None:
        position = index.producer.get(value)
        if position is None or self.to:
            raise EditError(
                f"cannot insert a node before {value!r}"
                + (" for some of its readers" if self.to else ": no node produces it"),
                "insert it after the value: leave out --before",
            )
        outputs = result.graph.node[position].output
        outputs[list(outputs).index(value)] = new

    def _follow_types(
        self,
        index: GraphIndex,
        after: GraphIndex,
        value: str,
        new: str,
    ) -> list[str]:
        """Update declared types downstream of the new node."""
        made = value if self.before else new
        # found again by its output: positions changed
        node = after.nodes[after.producer[made]]
        # with `before`, the new name stands for the value, with its type
        read = {new: value} if self.before else {}
        known = {name: read.get(name, name) for name in node.input if read.get(name, name) in index}
        index.learn_types(known.values())
        for name, own in known.items():
            kind = index.type_of(own)
            if kind is not None:
                after.types[name] = kind
        # the edit changes nothing before the node, and the whole graph is looked at below, in `follow`
        after.settled.update(known)
        types = check_node(after, node, f"the new {self.op_type}")
        after.types.update(types)
        after.settled.update(types)
        # the readers must accept the new type
        for user in after.readers([made])[made]:
            check_node(after, after.nodes[user], after.describe(user))
        return follow(index, after, types, {made: value})
