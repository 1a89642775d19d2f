"""Operators of onnxruntime as functions of ONNX's own, written as ONNX text in `contrib.onnxtxt`."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template

from onnx import FunctionProto, NodeProto, TensorProto, TypeProto, defs, helper, parser

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph import GraphIndex, attribute_type, node_title, onnx_opset
from onnxsurgeon_lite.graph.operators import RUNTIME_DOMAIN, Schema, find_schema
from onnxsurgeon_lite.model import Model, by_name, drop, is_standard, walk
from onnxsurgeon_lite.surgery.edits import rename_uses
from onnxsurgeon_lite.surgery.expansion import expand
from onnxsurgeon_lite.tensors.dtypes import dtype_name

_PLACE = Path(__file__).with_name("contrib.onnxtxt")
LEAST_OPSET = 18  # since then, the operators that these functions use have kept their meaning
# `Name (inputs) => (outputs) {`, lines, `}`: name, inputs, outputs and lines are the groups.
_SIGNATURE = re.compile(r"^(\w+) \(([^)]*)\) => \(([^)]*)\) {\n(.*?)^}", re.DOTALL | re.MULTILINE)
_REQUIRED = defs.OpSchema.FormalParameterOption.Single
_NARROW = TensorProto.FLOAT16, TensorProto.BFLOAT16
_Value = int | float | str | bool


@dataclass(frozen=True)
class _Written:
    """An operator's function as it is written.

    Attributes:
        inputs, outputs: the names that its text has for them, in order.
        lines: its nodes, with the conditions under which they are there.
    """

    inputs: Sequence[str]
    outputs: Sequence[str]
    lines: Sequence[str]


@cache
def _written() -> Mapping[str, _Written]:
    """Return operator -> its text."""
    text = re.sub(r"^ *#.*\n", "", _PLACE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {
        name: _Written(inputs.replace(",", " ").split(), outputs.replace(",", " ").split(), body.splitlines())
        for name, inputs, outputs, body in _SIGNATURE.findall(text)
    }  # fmt: skip


def is_contrib(node: NodeProto) -> bool:
    """Return whether a node's operator is onnxruntime's, and has a function here."""
    # onnxruntime registers this one in ONNX's own domain, too
    is_in_onnx = node.op_type == "SimplifiedLayerNormalization" and is_standard(node)
    is_its_own = is_in_onnx or node.domain == RUNTIME_DOMAIN
    return is_its_own and node.op_type in _written() and any(node.output)


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
            # the form depends on the types of the operands
            kinds = [part.type_of(name) if name else None for name in node.input]
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
    written = _written()[node.op_type]
    facts = _facts(node, written, types) | {"opset_21": version >= 21}
    # A line is a node, a node after conditions, or one of two commands:
    # `? bias !narrow : y = Add (x, bias)`, `refuse mean`, `need bits_4 bits_8`.
    kept = []
    for line in written.lines:
        match line.split():
            case ["refuse", *names]:
                if found := [name for name in names if _holds(facts, name)]:
                    raise EditError(f"its {found[0].replace('_', ' ')} has no standard form here")
            case ["need", *names]:
                if not any(_holds(facts, name) for name in names):
                    wanted = " or ".join(names).replace("_", " ").replace("!", "no ")
                    raise EditError(f"it is not known to be {wanted}")
            case ["?", *_]:
                conditions, _, made = line.partition(" : ")
                if all(_holds(facts, name) for name in conditions.split()[1:]):
                    kept.append(made)
            case _:
                kept.append(line)
    body = Template("\n".join(kept)).substitute(facts)  # `$epsilon` -> its number
    imports = f'"" : {max(version, LEAST_OPSET)}, "{RUNTIME_DOMAIN}" : 1'
    header = f'<domain: "{RUNTIME_DOMAIN}", opset_import: [{imports}]>'
    signature = f"{node.op_type} ({', '.join(written.inputs)}) => ({', '.join(written.outputs)})"
    return _without_identities(parser.parse_function(f"{header} {signature} {{\n{body}\n}}"))


def _holds(facts: Mapping[str, _Value], name: str) -> bool:
    """Return whether a condition holds: what is switched off is 0, negative or NONE; a scale may be negative."""
    if name.startswith("!"):
        return not _holds(facts, name[1:])
    value = facts.get(name, 0)
    if isinstance(value, str | list):
        return value not in ("", "NONE", [])
    return value != 0 if name == "scale" else value > 0


def _facts(
    node: NodeProto, written: _Written, types: Sequence[TypeProto | None]
) -> dict[str, _Value]:
    """Return what the lines of a function may ask about a node."""
    found = _attributes(node, _schema(node))
    if any(node.input[len(written.inputs) :]):
        raise EditError(f"it has more inputs than {len(written.inputs)}")
    # What is given has its own name as a fact: `? bias :` asks whether the node has that input.
    for names, values in ((written.outputs, node.output), (written.inputs, node.input)):
        found |= {name: True for name, given in zip(names, values, strict=False) if given}
    last = [-1]  # the numbers of the last axis
    for name, kind in zip(written.inputs, types, strict=False):
        tensor = None if kind is None else kind.tensor_type
        if tensor is not None and tensor.HasField("shape"):
            found[f"{name}_{len(tensor.shape.dim)}d"] = True  # `x_3d`: the rank of `x`
        if tensor is not None:
            found[f"{name}_{dtype_name(tensor.elem_type)}"] = True  # `zero_points_uint8`
        if name == written.inputs[0] and tensor is not None:  # facts about the first input alone
            found["narrow"] = tensor.elem_type in _NARROW
            last.append(len(tensor.shape.dim) - 1)
    found["other_axis"] = found.get("axis", -1) not in last
    return found


def _schema(node: NodeProto) -> Schema:
    """Return the schema of a node's operator, whose inputs the node must have."""
    # The domain of onnxruntime has one version; in ONNX's own, any recent one finds the operator.
    schema = find_schema(node.op_type, 1 if not is_standard(node) else 21, node.domain)
    if schema is None:
        raise EditError("onnxruntime, which knows its defaults, is not installed")
    for slot, formal in enumerate(schema.inputs):
        is_given = slot < len(node.input) and node.input[slot]
        if formal.option == _REQUIRED and not is_given:
            raise EditError(f"it has no {formal.name}")
    return schema


def _attributes(node: NodeProto, schema: Schema) -> dict[str, _Value]:
    """Return a node's attributes with their defaults, 0 and '' for what is not set, and numbers that follow."""
    given = by_name(node.attribute)
    found = dict[str, _Value]()
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


def _without_identities(function: FunctionProto) -> FunctionProto:
    """Return a function whose inner values have one name."""
    names = dict[str, str]()
    for node in function.node:
        rename_uses([node], names)
        # its readers read its input instead
        if node.op_type == "Identity" and node.output[0] not in function.output:
            names[node.output[0]] = node.input[0]
    drop(function.node, lambda node: node.output[0] in names)
    return function
