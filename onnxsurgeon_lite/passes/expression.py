"""Write a small graph as Python assignments: `y = (x / 255 - mean) / std; z = Transpose(y, perm=[0, 3, 1, 2])`.

`x: uint8[N, H, W, 3]` declares an input, a number or a list is a constant of the dtype that its operator needs, a call
is a node: names of attributes and of inputs are its keywords. `+ - * / ** @ < >` are their operators.
"""

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, helper

from onnxsurgeon_lite.errors import BuildError, SurgeonError
from onnxsurgeon_lite.graph import (
    GraphIndex,
    Schema,
    allowed_types,
    check_node,
    schema_of,
    variable_at,
)
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.names import few
from onnxsurgeon_lite.passes.protocol import AttributeValue
from onnxsurgeon_lite.passes.set_attr import make_attribute
from onnxsurgeon_lite.surgery import data_type_named, fresh, make_tensor
from onnxsurgeon_lite.tensors import dtypes

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.Div: "Div", ast.Pow: "Pow", ast.MatMult: "MatMul",
    ast.Mod: "Mod", ast.USub: "Neg", ast.Lt: "Less", ast.Gt: "Greater", ast.LtE: "LessOrEqual",
    ast.GtE: "GreaterOrEqual", ast.Eq: "Equal",
}  # fmt: skip
_HINT = "write: y = (x / 255 - 0.5) / 0.25; z = Transpose(y, perm=[0, 3, 1, 2])"

Known = Callable[[str], TypeProto | None]
"""Name -> the type of an input that the text does not declare."""

_Number = bool | int | float | list["_Number"]


@dataclass
class Expression:
    """Assignments as a graph.

    Attributes:
        model: the graph; its outputs are what the assignments make and do not read again.
        results: assigned name -> value, in order; a name that is also an input has a value of another name.
    """

    model: Model
    results: dict[str, str]


def parse_expression(text: str, like: Model, known: Known, taken: set[str]) -> Expression:
    """Parse assignments.

    Args:
        like: the model whose opsets and IR version the graph gets.
        known: the types of inputs that the text does not declare.
        taken: names that new values avoid.

    Raises:
        BuildError: the text is no assignments, or a node does not fit.
    """
    proto = ModelProto(ir_version=like.proto.ir_version, opset_import=like.proto.opset_import)
    proto.graph.name = "expression"
    writer = _Writer(proto.graph, Model(proto), like, known, taken)
    try:
        for statement in ast.parse(text.strip()).body:
            writer.statement(statement)
    # also for what is nested too deeply, and for a size that no dimension holds
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BuildError(f"the text is not a list of assignments: {error}", _HINT) from error
    # what is assigned last and not read after that is a result
    results = {name: writer.names[name] for name in writer.assigned if name not in writer.used}
    index = GraphIndex.of(writer.model)
    proto.graph.output.extend(index.value_info(value) for value in results.values())
    return Expression(writer.model, results)


@dataclass
class _Writer:
    """Appends nodes to a graph.

    Attributes:
        like: the model that the graph is for.
        names: name in the text -> value.
        assigned: names in the order of their last assignments. used: those that are read after them.
    """

    graph: GraphProto
    model: Model
    like: Model
    known: Known
    taken: set[str]
    names: dict[str, str] = field(default_factory=dict)
    assigned: dict[str, None] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    constants: dict[str, _Number] = field(default_factory=dict)

    def statement(self, statement: ast.stmt) -> None:
        match statement:
            # x: uint8[N, 3] declares; x = 5 is a constant, which becomes a tensor where it is read
            case ast.AnnAssign(ast.Name(name), annotation, None):
                self._input(name, _declared(annotation))
            case ast.Assign([ast.Name(name)], value) if (number := _number(value)) is not None:
                self.constants[name] = number
            case ast.Assign([ast.Name(name)], value):
                self._assign([name], value)
            # a, b = Split(x)
            case ast.Assign([ast.Tuple(targets)], value):
                self._assign([ast.unparse(target) for target in targets], value)
            case _:
                raise BuildError(f"{ast.unparse(statement)!r} is no assignment", _HINT)

    def _input(self, name: str, kind: TypeProto | None) -> str:
        if kind is None:
            graph = self.like.graph
            known = few([info.name for info in chain(graph.input, graph.output)])
            raise BuildError(
                f"nothing says what {name!r} is",
                f"declare it: {name}: float[N, 3, 224, 224]; the model has {known}",
            )
        self.graph.input.add(name=name, type=kind)
        self.names[name] = name
        self.taken.add(name)
        return name

    def _assign(self, targets: Sequence[str], value: ast.expr) -> None:
        outputs = [fresh(name, self.taken) for name in targets]
        self._node(value, outputs)
        for name, output in zip(targets, outputs, strict=True):
            self.names[name] = output
            # the name is a value now, and moves to the end of what was assigned
            self.constants.pop(name, None)
            self.assigned.pop(name, None)
            self.assigned[name] = None
            self.used.discard(name)

    def _node(self, value: ast.expr, outputs: Sequence[str]) -> None:
        """Append the node of an expression."""
        match value:
            case ast.BinOp(left, kind, right) | ast.Compare(left, [kind], [right]) if (
                type(kind) in _OPERATORS
            ):
                self._append(_OPERATORS[type(kind)], [left, right], {}, outputs)
            case ast.UnaryOp(kind, operand) if type(kind) in _OPERATORS:
                self._append(_OPERATORS[type(kind)], [operand], {}, outputs)
            # Softmax(x, axis=1), com.microsoft.Gelu(x)
            case ast.Call(function, arguments, keywords):
                given = {keyword.arg or "": keyword.value for keyword in keywords}
                self._append(ast.unparse(function), arguments, given, outputs)
            case ast.Name():
                self._append("Identity", [value], {}, outputs)
            case _:
                raise BuildError(f"{ast.unparse(value)!r} is no node", _HINT)

    # A named constant gives its tensor the name.
    def _append(
        self,
        operator: str,
        operands: Sequence[ast.expr],
        given: Mapping[str, ast.expr],
        outputs: Sequence[str],
    ) -> None:
        # "com.microsoft.Gelu" -> "com.microsoft", "Gelu"
        domain, _, op_type = operator.rpartition(".")
        node = NodeProto(op_type=op_type, domain=domain, output=outputs)
        schema = schema_of(GraphIndex.of(self.model), node)
        inputs: list[ast.expr | None] = list(operands)
        slots = {formal.name: slot for slot, formal in enumerate(schema.inputs)} if schema else {}
        # keywords that are inputs of the operator fill their slots
        for word in given.keys() & slots.keys():
            inputs += [None] * (slots[word] + 1 - len(inputs))
            inputs[slots[word]] = given[word]
        # numbers are left open (None) until the types of the other operands are known
        values = [None if each is None else self._number(each) for each in inputs]
        names: list[str | None] = [
            "" if each is None else self._value(each) if number is None else None
            for each, number in zip(inputs, values, strict=True)
        ]
        # division is the only operator that Python defines on integers with a float result
        if op_type == "Div":
            names = [self._real(name) if name else name for name in names]
        for slot, (name, number) in enumerate(zip(names, values, strict=True)):
            if name is None and number is not None:
                kind, called = self._dtype(schema, slot, names, number), inputs[slot]
                base = called.id if isinstance(called, ast.Name) else "number"
                names[slot] = self._constant(number, kind, base)
        node.input.extend(name or "" for name in names)
        index = GraphIndex.of(self.model)
        for word in given.keys() - slots.keys():
            node.attribute.append(make_attribute(index, node, word, _attribute(word, given[word])))
        try:
            check_node(index, node, op_type)
        except SurgeonError as error:
            raise BuildError(f"in {operator}(...): {error.message}", error.hint) from error
        self.graph.node.append(node)

    def _number(self, value: ast.expr) -> _Number | None:
        if isinstance(value, ast.Name):
            return self.constants.get(value.id)
        return _number(value)

    def _value(self, value: ast.expr) -> str:
        """Return the value of an operand, made by nodes if it is an expression itself."""
        if isinstance(value, ast.Name):
            self.used.add(value.id)
            # an undeclared name is a value of the model, or an error
            return self.names.get(value.id) or self._input(value.id, self.known(value.id))
        output = fresh("part", self.taken)
        self._node(value, [output])
        return output

    def _real(self, name: str) -> str:
        """Return a value as float: 1 / 2 is 0.5."""
        if dtypes.is_float(dtypes.numpy_dtype(self._data_type(name) or TensorProto.FLOAT)):
            return name
        output = fresh(f"{name}_float", self.taken)
        self.graph.node.append(helper.make_node("Cast", [name], [output], to=TensorProto.FLOAT))
        return output

    def _data_type(self, name: str) -> int:
        return GraphIndex.of(self.model).element_of(name)

    def _dtype(
        self, schema: Schema | None, slot: int, names: Sequence[str | None], number: _Number
    ) -> int:
        """Return the dtype that a constant operand needs: the only one allowed, or that of an operand of its type."""
        usual = TensorProto.FLOAT if np.asarray(number).dtype.kind == "f" else TensorProto.INT64
        if schema is None:
            return usual
        formals = [variable_at(schema.inputs, n) for n in range(len(names))]
        # a slot with one allowed dtype, such as the int64 shape of Reshape
        kinds = allowed_types(schema, formals[slot])
        if len(kinds) == 1:
            return dtypes.data_type_of(kinds[0].removeprefix("tensor(").removesuffix(")"))
        # else as the other operands of the same type variable
        same = [n for n, kind in zip(names, formals, strict=True) if kind == formals[slot] and n]
        known = next(filter(None, map(self._data_type, same)), 0)
        return known or (int(TensorProto.FLOAT) if same else usual)

    def _constant(self, number: _Number, data_type: int, base: str) -> str:
        # an error, not another number, where the dtype cannot hold it: `x * 0.5` of integers
        tensor = make_tensor(fresh(base, self.taken), np.asarray(number), data_type)
        self.graph.initializer.append(tensor)
        return tensor.name


def _number(value: ast.expr) -> _Number | None:
    """Return a number or list of numbers that is written out; None for anything else."""
    try:
        found = ast.literal_eval(value)
        return found if np.asarray(found).dtype.kind in "bif" else None
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _attribute(name: str, value: ast.expr) -> AttributeValue:
    # to=float, to="float16"
    if name == "to" and not isinstance(_number(value), int):
        return data_type_named(ast.unparse(value).strip("'\"").lower())
    try:
        found: AttributeValue = ast.literal_eval(value)
    except ValueError as error:
        raise BuildError(
            f"attribute {name!r} is {ast.unparse(value)!r}, no number or text", _HINT
        ) from error
    return found


def _declared(annotation: ast.expr) -> TypeProto:
    """Return the type that `uint8[N, 3]` says."""
    shape: list[int | str | None] | None = None
    if isinstance(annotation, ast.Subscript):
        dims = (
            annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        )
        shape = [int(text) if (text := ast.unparse(dim)).isdecimal() else text for dim in dims]
        annotation = annotation.value
        wrong = [text for text in shape if isinstance(text, str) and text.startswith("-")]
        if wrong:
            raise BuildError(f"{wrong[0]!r} is neither a size nor a name", "name what is open: N")
    return helper.make_tensor_type_proto(data_type_named(ast.unparse(annotation)), shape)
