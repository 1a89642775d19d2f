"""Types, shapes and attributes as one line of text."""

import re

from onnx import AttributeProto, NodeProto, TensorShapeProto, TypeProto, helper

from onnxsurgeon_lite.tensors import dtypes

Dimension = TensorShapeProto.Dimension


def shape_text(kind: TypeProto) -> str:
    """Return a tensor type's dimensions as `[batch, 3, ?]`; '[...]' if the rank is unknown."""
    if not kind.tensor_type.HasField("shape"):
        return "[...]"
    dims = (
        str(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or "?"
        for dim in kind.tensor_type.shape.dim
    )
    return f"[{', '.join(dims)}]"


def attribute_texts(node: NodeProto) -> dict[str, str]:
    """Return a node's attributes by name, as text; a long tensor or graph is abridged."""
    return {attribute.name: attribute_text(attribute) for attribute in node.attribute}


def attribute_text(attribute: AttributeProto) -> str:
    """Return an attribute's value as text; a long tensor or graph is abridged, what a call decides is `@alpha`."""
    if attribute.ref_attr_name:
        return f"@{attribute.ref_attr_name}"
    try:
        return str(helper.printable_attribute(attribute)).partition("=")[2].strip()
    except KeyError:  # a number of a dtype that does not exist
        return "<Tensor>"


def operator_text(domain: str, op_type: str) -> str:
    """Return an operator with its domain: `com.microsoft::Gelu`."""
    return "::".join(filter(None, (domain, op_type)))


def node_title(node: NodeProto) -> str:
    """Return a node's operator, and its name if it has one: `Conv 'Conv_6'`."""
    return f"{node.op_type} {node.name!r}" if node.name else str(node.op_type)


def type_text(kind: TypeProto | None) -> str:
    """Return a type as `float [batch, 3]`, `sequence of float [...]`."""
    if kind is None:
        return "unknown type"
    match kind.WhichOneof("value"):
        case "tensor_type":
            return f"{dtypes.dtype_name(kind.tensor_type.elem_type)} {shape_text(kind)}"
        case "sequence_type":
            return f"sequence of {type_text(kind.sequence_type.elem_type)}"
        case "optional_type":
            return f"optional {type_text(kind.optional_type.elem_type)}"
        case None:
            return "unknown type"
        case other:
            return str(other).removesuffix("_type")


def parse_message(message: str, header: str = "") -> str:
    """Return the message of ONNX's text parser on one line, its line numbers without an added header."""
    added = header.count("\n")
    counted = re.sub(r"line: (\d{1,9})", lambda found: f"line: {int(found[1]) - added}", message)
    return " ".join(counted.split())
