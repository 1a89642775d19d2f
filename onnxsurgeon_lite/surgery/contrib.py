"""Operators of onnxruntime as functions of ONNX's own, written as ONNX text in `contrib.onnxtxt`."""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from onnx import FunctionProto, NodeProto, TensorProto, TypeProto, defs, helper

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph import (
    GraphIndex,
    attribute_type,
    dims_of,
    has_shape,
    node_title,
    onnx_opset,
)
from onnxsurgeon_lite.graph.operators import RUNTIME_DOMAIN, Schema, find_schema
from onnxsurgeon_lite.model import Model, by_name, is_standard, walk
from onnxsurgeon_lite.surgery.expansion import expand
from onnxsurgeon_lite.surgery.text_functions import Fact, text_functions

_PLACE = Path(__file__).with_name("contrib.onnxtxt")
LEAST_OPSET = 18  # since then, the operators that these functions use have kept their meaning
_REQUIRED = defs.OpSchema.FormalParameterOption.Single
_NARROW = TensorProto.FLOAT16, TensorProto.BFLOAT16


def is_contrib(node: NodeProto) -> bool:
    """Return whether a node's operator is onnxruntime's, and has a function here."""
    # onnxruntime registers this one in ONNX's own domain, too
    is_in_onnx = node.op_type == "SimplifiedLayerNormalization" and is_standard(node)
    is_its_own = is_in_onnx or node.domain == RUNTIME_DOMAIN
    return is_its_own and node.op_type in text_functions(_PLACE) and any(node.output)


def in_standard(model: Model) -> tuple[Model, Counter[str], dict[str, str]]:
    """Return (the model in ONNX's operators, how many nodes of each operator went, why others stay).

    Raises:
        EditError: the opset is before `LEAST_OPSET`.
    """
    reasons, version = dict[str, str](), onnx_opset(model.proto)
    if version < LEAST_OPSET and any(map(is_contrib, walk.nodes(walk.graphs(model.proto)))):
        raise EditError(
            f"standard forms need opset {LEAST_OPSET}, the model imports {version}",
            f"onnxdbg edit opset MODEL {LEAST_OPSET}",
        )

    def function_of(part: GraphIndex, node: NodeProto, version: int) -> FunctionProto | None:
        """Return the standard function of a node; None where the node stays."""
        if not is_contrib(node):
            return None
        try:
            # the form depends on the types of the operands; all are inferred at once, not node by node
            part.learn_types(part.producer)
            kinds = [part.types.get(name) for name in node.input]
            return contrib_function(node, kinds, version)
        except EditError as error:
            reasons[node.output[0]] = f"{node_title(node)} stays: {error.message}"
            return None

    result, counts = expand(model, lambda _: True, function_of)
    # functions are made of others
    found = counts
    while found:
        result, found = expand(result, lambda _: True, function_of)
    return result, counts, reasons


def contrib_function(
    node: NodeProto, types: Sequence[TypeProto | None], version: int
) -> FunctionProto:
    """Return the function that computes what a node of onnxruntime's does.

    Args:
        types: of its inputs. version: the opset version of the model.

    Raises:
        EditError: the node has something that its function does not do.
    """
    written = text_functions(_PLACE)[node.op_type]
    facts = _attributes(node, _schema(node)) | written.facts(node, types)
    # facts about the first input alone
    last = [-1]  # the numbers of the last axis
    first = types[0] if types else None
    if first is not None:
        facts["narrow"] = first.tensor_type.elem_type in _NARROW
        if has_shape(first):
            last.append(len(dims_of(first)) - 1)
    facts |= {"other_axis": facts.get("axis", -1) not in last, "opset_21": version >= 21}
    imports = f'"" : {max(version, LEAST_OPSET)}, "{RUNTIME_DOMAIN}" : 1'
    return written.function(facts, f'<domain: "{RUNTIME_DOMAIN}", opset_import: [{imports}]>')


def _schema(node: NodeProto) -> Schema:
    """Return the schema of a node's operator, whose inputs the node must have."""
    # The domain of onnxruntime has one version; in ONNX's own, any recent one finds the operator.
    schema = find_schema(node.op_type, 21 if is_standard(node) else 1, node.domain)
    if schema is None:
        raise EditError("onnxruntime, which knows its defaults, is not installed")
    for slot, formal in enumerate(schema.inputs):
        is_given = slot < len(node.input) and node.input[slot]
        if formal.option == _REQUIRED and not is_given:
            raise EditError(f"it has no {formal.name}")
    return schema


def _attributes(node: NodeProto, schema: Schema) -> dict[str, Fact]:
    """Return a node's attributes with their defaults, 0 and '' for what is not set, and numbers that follow."""
    given = by_name(node.attribute)
    found = dict[str, Fact]()
    for name, attribute in schema.attributes.items():
        proto = given.get(name, attribute.default_value)
        if proto.name and proto.type != attribute_type(schema, name):
            raise EditError(f"its {name} is of another type than the operator's")
        # not set, and without a default
        value = helper.get_attribute_value(proto) if proto.name else 0
        if isinstance(value, float) and not math.isfinite(value):
            raise EditError(f"its {name} is {value}")
        found[name] = value.decode(errors="replace") if isinstance(value, bytes) else value
        found[f"{name}_{found[name]}"] = True  # `bits_4`
    # Attention: `group` query heads share one key head; `all_heads` counts queries, keys and values.
    if "kv_num_heads" in found:
        heads, own = int(found["num_heads"]), int(found["kv_num_heads"])
        found |= {"all_heads": heads + 2 * own, "group": heads // max(1, own)}
    return found
