"""Set attributes of nodes."""

from collections.abc import MutableSequence, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, cast

from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto, TypeProto, helper

from onnxsurgeon_lite.errors import EditError, UnknownNameError
from onnxsurgeon_lite.graph import (
    GraphIndex,
    attribute_text,
    attribute_type,
    check_node,
    described,
    function_model,
    function_path,
    schema_of,
)
from onnxsurgeon_lite.graph.schemas import type_text
from onnxsurgeon_lite.graph.selecting.select import split_names
from onnxsurgeon_lite.model import Model, call_key, drop, function_key, walk
from onnxsurgeon_lite.names import listed, split
from onnxsurgeon_lite.passes.in_bodies import in_bodies
from onnxsurgeon_lite.passes.protocol import Attributes, AttributeValue, PassResult
from onnxsurgeon_lite.passes.targets import chosen_nodes
from onnxsurgeon_lite.surgery import downstream, follow, retype
from onnxsurgeon_lite.surgery.open_body import callers

_FLOATS = (AttributeProto.FLOAT, AttributeProto.FLOATS)
_LISTS = (AttributeProto.FLOATS, AttributeProto.INTS, AttributeProto.STRINGS)


@dataclass(frozen=True)
class SetAttr:
    """Set attributes of nodes to numbers, strings or lists of them, or remove attributes.

    Ids select nodes inside bodies and functions. A function itself (`fn:local::f`) takes defaults, which calls without
    the attribute use; without its default, the attribute is one that a call may omit. Attributes with tensors and
    graphs are not supported.

    Attributes:
        remove: the names of attributes to remove.

    Example:
        >>> osl.set_attr("whole_model.onnx", "Conv_6", {"dilations": [2, 2], "pads": [2, 2, 2, 2]}).changed
        True
    """

    nodes: tuple[str, ...]
    attributes: Attributes = ()
    remove: tuple[str, ...] = ()
    name: ClassVar[str] = "set-attr"
    retypes: ClassVar[bool] = True

    @in_bodies(nodes=("nodes",), each="nodes")
    def apply(self, model: Model) -> PassResult:
        """Set and remove attributes.

        Raises:
            UnknownNameError: no such node, no such attribute to remove.
            EditError: the operator has no such attribute, requires a removed one, or takes another type.
        """
        before = GraphIndex.of(model)
        result = model.copy()
        known = {function_path(function): function for function in result.proto.functions}
        # functions by their path are set apart: their attributes are defaults
        selectors = split_names(before, self.nodes)
        functions = [known[selector] for selector in selectors if selector in known]
        changes, notes = self._set_defaults(before, result, functions)
        nodes = [listed([selector]) for selector in selectors if selector not in known]
        index = GraphIndex.of(result)
        types = dict[str, TypeProto]()
        for node_id, node in chosen_nodes(index, nodes).items():
            what = described(node, node_id)
            for name in split(self.remove):
                _remove(node.attribute, name, what)
                changes.append(f"{what}: attribute {name!r} removed")
            for name, value in self.attributes:
                new = make_attribute(index, node, name, value)
                changes += _put(node.attribute, new, f"{what}:")
            types.update(check_node(index, node, what))
        notes += follow(before, index, types)
        return PassResult.of(model, result, changes, notes)

    def _set_defaults(
        self,
        before: GraphIndex,
        result: Model,
        functions: Sequence[FunctionProto],
    ) -> tuple[list[str], list[str]]:
        """Set and remove defaults of functions; return changes and notes."""
        changes = list[str]()
        for function in functions:
            what = f"function {function.name!r}"
            for name in split(self.remove):
                _remove(function.attribute_proto, name, what)
                # without a default the attribute is declared by its name alone
                function.attribute.append(name)
                changes.append(f"{what}: default of attribute {name!r} removed")
            # a call of the function, by which `make_attribute` finds it
            call = NodeProto(
                domain=function.domain, op_type=function.name, overload=function.overload
            )
            for name, value in self.attributes:
                new = make_attribute(before, call, name, value)
                changes += _put(function.attribute_proto, new, f"{what}: default of")
            given = dict(self.attributes)
            # an attribute with a default is not in the list of names, too
            function.attribute[:] = [name for name in function.attribute if name not in given]
            _forget_types(result.proto, function, {*split(self.remove), *dict(self.attributes)})
        if not changes:
            return [], []
        users = list(chain.from_iterable(callers(result.proto, each) for each in functions))
        # what the calls make may have another type now
        made = list(walk.outputs(users))
        return changes, retype(before.model, GraphIndex.of(result), made)


def make_attribute(
    index: GraphIndex, node: NodeProto, name: str, value: AttributeValue
) -> AttributeProto:
    """Create an attribute of the type in the schema or function, else of the present attribute, else of the value."""
    schema = schema_of(index, node)
    # the type of the attribute: of the operator, of the function, or of the attribute that is there
    expected = next((a.type for a in node.attribute if a.name == name), None)
    for function in index.model.proto.functions:
        if function_key(function) == call_key(node):
            expected = _type_in(function, name)
    if schema is not None and name in schema.attributes:
        expected = attribute_type(schema, name)
    if expected in _FLOATS:
        value = _as_floats(value)
    # one number for a list of numbers
    if expected in _LISTS and (isinstance(value, str) or not isinstance(value, Sequence)):
        value = cast("AttributeValue", [value])
    refused = EditError(
        f"attribute {name!r} of {node.op_type} has type {type_text(expected or 0)}, {value!r} does not",
        "write 3, 0.5, text or [1, 2]",
    )
    try:
        attribute = helper.make_attribute(name, value, attr_type=expected)
    except (TypeError, ValueError) as error:
        raise refused from error
    # a wrong type that `make_attribute` has not refused
    if expected is not None and attribute.type != expected:
        raise refused
    return attribute


def _type_in(function: FunctionProto, name: str) -> int | None:
    """Return the type of a function's attribute: that of its default, or of what reads it."""
    inner = chain.from_iterable(node.attribute for node in walk.with_inner(function.node))
    # attributes of inner nodes that refer to this one have its type
    types = {a.ref_attr_name: a.type for a in inner if a.ref_attr_name}
    types.update((a.name, a.type) for a in function.attribute_proto)
    if name not in types and name not in function.attribute:
        raise EditError(
            f"function {function.name!r} has no attribute {name!r}",
            f"it has {', '.join(map(repr, types)) or 'none'}",
        )
    return types.get(name)


def _as_floats(value: AttributeValue) -> AttributeValue:
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, str):
        return value
    return cast("AttributeValue", list(map(_as_floats, value)))


def _put(attributes: MutableSequence[AttributeProto], new: AttributeProto, what: str) -> list[str]:
    name = new.name
    text = attribute_text(new)
    old = next((a for a in attributes if a.name == name), None)
    if old is None:
        attributes.append(new)
        return [f"{what} attribute {name} = {text}"]
    if old.HasField("doc_string"):
        new.doc_string = old.doc_string
    if old == new:
        return []
    old_text = attribute_text(old)
    old.CopyFrom(new)
    return [f"{what} attribute {name} = {old_text} -> {text}"]


def _remove(attributes: MutableSequence[AttributeProto], name: str, what: str) -> None:
    if not drop(attributes, lambda attribute: attribute.name == name):
        raise UnknownNameError(name, what, [a.name for a in attributes], kind="attribute")


def _forget_types(proto: ModelProto, function: FunctionProto, names: Set[str]) -> None:
    """Drop the types that a function declares of what depends on its attributes."""
    if function.value_info:
        reading = {
            name
            for node in function.node
            for inner in walk.with_inner([node])
            if any(attribute.ref_attr_name in names for attribute in inner.attribute)
            for name in node.output
        }
        body = GraphIndex.of(Model(function_model(proto, function)))
        stale = downstream(body, reading)
        drop(function.value_info, lambda info: info.name in stale)
