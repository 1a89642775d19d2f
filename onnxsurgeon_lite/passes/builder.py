"""Build a model node by node in Python."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, helper

from onnxsurgeon_lite.errors import BuildError
from onnxsurgeon_lite.graph import GraphIndex, check_node, schema_of, tensor_type
from onnxsurgeon_lite.model import Model, assign
from onnxsurgeon_lite.passes.targets import data_type_of_operand
from onnxsurgeon_lite.surgery import Numbers, data_type_named, make_tensor
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array


@dataclass(eq=False)
class BuiltValue:
    """A value of a graph under construction; `Builder.model` gives it a name."""

    name: str = ""


Operand = BuiltValue | Numbers
"""A value, or numbers that become a constant."""


@dataclass(frozen=True, eq=False)
class _BuiltNode:
    op_type: str
    domain: str
    inputs: tuple[BuiltValue | None, ...]
    outputs: tuple[BuiltValue, ...]
    attributes: dict[str, object]


@dataclass
class Builder:
    """Builds a model.

    A subgraph is a builder from `body()`, passed as an attribute; its nodes may read the values of this graph.

    Example:
        >>> g = osl.Builder()
        >>> x = g.input("x", "float", ["N", 4])
        >>> g.output("y", g.op("Softmax", x, axis=-1))
        >>> osl.run(g.model("soft"), {"x": np.zeros((1, 4), np.float32)})["y"]
        array([[0.25, 0.25, 0.25, 0.25]], dtype=float32)
    """

    opset: int = 21
    ir_version: int = 10
    domains: dict[str, int] = field(default_factory=dict)
    _inputs: list[tuple[BuiltValue, ValueInfoProto]] = field(default_factory=list)
    _outputs: list[tuple[str, BuiltValue]] = field(default_factory=list)
    _constants: list[tuple[BuiltValue, TensorProto]] = field(default_factory=list)
    _nodes: list[_BuiltNode] = field(default_factory=list)
    _types: dict[BuiltValue, TypeProto] = field(default_factory=dict)

    def input(
        self, name: str, dtype: str, shape: Sequence[int | str | None] | None = None
    ) -> BuiltValue:
        """Add a graph input; dimensions are numbers, names, or None when unknown.

        Args:
            dtype: the name that ONNX or numpy has, such as `float`, `float32` or `int64`.
        """
        value = BuiltValue(name)
        info = helper.make_tensor_value_info(name, data_type_named(dtype), shape)
        self._inputs.append((value, info))
        self._types[value] = info.type
        return value

    def constant(self, array: Array, name: str = "") -> BuiltValue:
        """An initializer."""
        value = BuiltValue(name)
        tensor = dtypes.from_array(array)
        self._constants.append((value, tensor))
        self._types[value] = tensor_type(tensor)
        return value

    def op(
        self, op_type: str, *inputs: Operand | None, domain: str = "", **attributes: object
    ) -> BuiltValue:
        """Add a node with one output; inputs and attributes that are None are omitted.

        Numbers and arrays as inputs become constants, numbers of the dtype that the operator needs there.
        """
        return self.ops(op_type, 1, *inputs, domain=domain, **attributes)[0]

    def ops(
        self,
        op_type: str,
        outputs: int,
        *inputs: Operand | None,
        domain: str = "",
        **attributes: object,
    ) -> tuple[BuiltValue, ...]:
        """Add a node with several outputs; see `op`.

        Raises:
            UnknownNameError: the opset has no such operator.
            EditError: it does not take these inputs or attributes.
        """
        made = tuple(BuiltValue() for _ in range(outputs))
        if domain:
            self.domains.setdefault(domain, 1)
        operands = tuple(self._operands(op_type, domain, inputs))
        node = _BuiltNode(op_type, domain, operands, made, attributes)
        self._check(node)
        self._nodes.append(node)
        return made

    def _operands(
        self, op_type: str, domain: str, inputs: Sequence[Operand | None]
    ) -> Iterator[BuiltValue | None]:
        """Yield the inputs of a node, new constants in the place of numbers."""
        # without numbers there is nothing to find a dtype for
        if all(value is None or isinstance(value, BuiltValue) for value in inputs):
            yield from cast("Sequence[BuiltValue | None]", inputs)
            return
        # stand-in names: the schema asks for types by the names of a node
        names = [f"input {slot}" if value is not None else "" for slot, value in enumerate(inputs)]
        node = NodeProto(op_type=op_type, domain=domain, input=names)
        known = {
            name: self._types[value]
            for name, value in zip(names, inputs, strict=True)
            if isinstance(value, BuiltValue) and value in self._types
        }
        schema = schema_of(GraphIndex.of(Model(self._proto())), node)
        for slot, value in enumerate(inputs):
            if value is None or isinstance(value, BuiltValue):
                yield value
            elif dtypes.is_array(value):
                yield self.constant(value)
            else:
                data_type = data_type_of_operand(schema, node, slot, known, value)
                yield self.constant(dtypes.to_array(make_tensor(names[slot], value, data_type)))

    def _check(self, node: _BuiltNode) -> None:
        """Check a node by itself, on the types known so far; of one with a body only the operator."""
        part = self._proto()
        names = dict[BuiltValue, str]()
        # a model of this node alone, with its operands as inputs or initializers
        for value in filter(None, node.inputs):
            if value not in names:
                names[value] = f"input {len(names)}"
                name = names[value]
                # by identity: values with equal fields are different values
                constant = next(
                    (tensor for known, tensor in self._constants if known is value), None
                )
                if constant is None:
                    part.graph.input.add(name=name, type=self._types.get(value))
                else:
                    part.graph.initializer.append(constant)
                    part.graph.initializer[-1].name = name
        index = GraphIndex.of(Model(part))
        # a body is not complete yet, so its node cannot be checked
        if any(isinstance(attribute, Builder) for attribute in node.attributes.values()):
            schema_of(index, NodeProto(op_type=node.op_type, domain=node.domain))
            return
        inputs = [names[value] if value is not None else "" for value in node.inputs]
        outputs = [f"output {n}" for n in range(len(node.outputs))]
        proto = helper.make_node(node.op_type, inputs, outputs, domain=node.domain)
        given = ((name, value) for name, value in node.attributes.items() if value is not None)
        proto.attribute.extend(helper.make_attribute(*pair) for pair in given)
        types = check_node(index, proto, f"the new {node.op_type}")
        for value, name in zip(node.outputs, outputs, strict=True):
            if name in types:
                self._types[value] = types[name]

    def _proto(self) -> ModelProto:
        opsets = {"": self.opset} | self.domains
        proto = ModelProto(ir_version=self.ir_version, producer_name="onnxsurgeon-lite")
        proto.opset_import.extend(helper.make_opsetid(*opset) for opset in opsets.items())
        return proto

    def output(self, name: str, value: BuiltValue) -> None:
        """Declare a graph output; a value that has a name already is copied by an Identity."""
        # a graph output has one name; a second one needs a value of its own
        if value.name:
            value = self.op("Identity", value)
        value.name = name
        self._outputs.append((name, value))

    def body(self) -> "Builder":
        """Return a builder for a subgraph of one of this graph's nodes."""
        return Builder(self.opset, self.ir_version, self.domains, _types=self._types)

    def model(self, name: str = "built") -> Model:
        """Return the model, with the types of its outputs inferred.

        Raises:
            BuildError: two values have one name, or a node reads a value of another builder.
        """
        _give_names(self)
        proto = self._proto()
        proto.graph.CopyFrom(self._graph(name))
        model = Model(proto)
        index = GraphIndex.of(model)
        declared = [index.value_info(output.name) for output in proto.graph.output]
        assign(proto.graph.output, declared)
        return model

    def _graph(self, name: str, outside: frozenset[BuiltValue] = frozenset()) -> GraphProto:
        graph = GraphProto(name=name)
        # what a node may read at this point: values outside a body, inputs, constants, nodes before it
        known = {*outside, *(value for value, _ in self._inputs), *(v for v, _ in self._constants)}
        graph.input.extend(info for _, info in self._inputs)
        for value, tensor in self._constants:
            tensor.name = value.name
            graph.initializer.append(tensor)
        for node in self._nodes:
            if not known.issuperset(filter(None, node.inputs)):
                raise BuildError(f"{node.op_type} reads a value of another builder")
            known.update(node.outputs)
            graph.node.append(_proto(node, frozenset(known)))
        graph.output.extend(ValueInfoProto(name=value.name) for _, value in self._outputs)
        return graph


def _proto(node: _BuiltNode, known: frozenset[BuiltValue]) -> NodeProto:
    names = [value.name if value is not None else "" for value in node.inputs]
    proto = helper.make_node(
        node.op_type, names, [v.name for v in node.outputs], domain=node.domain
    )
    for name, value in node.attributes.items():
        if value is not None:
            # a nested builder is the body that this attribute holds
            given = value._graph(name, known) if isinstance(value, Builder) else value
            proto.attribute.append(helper.make_attribute(name, given))
    return proto


def _give_names(builder: Builder) -> None:
    """Give every unnamed value a unique name, in bodies too."""
    # a value may be listed twice, in a body and outside
    values = list(dict.fromkeys(_values(builder)))
    taken = set[str]()
    for value in values:
        if value.name in taken:
            raise BuildError(f"two values have the name {value.name!r}", "rename one of them")
        taken.update(filter(None, [value.name]))
    number = 0
    # "v0", "v1", ... without those that the user has taken
    for value in values:
        while not value.name:
            name = f"v{number}"
            number += 1
            value.name = name if name not in taken else ""


def _values(builder: Builder) -> Iterator[BuiltValue]:
    yield from (value for value, _ in builder._inputs)
    yield from (value for value, _ in builder._constants)
    for node in builder._nodes:
        yield from node.outputs
        for attribute in node.attributes.values():
            if isinstance(attribute, Builder):
                yield from _values(attribute)
