"""Which dtypes an operator's schema permits at its inputs and outputs."""

from functools import cache
from itertools import chain

from onnx import NodeProto, defs

from onnxsurgeon_lite.graph.operators import find_schema
from onnxsurgeon_lite.model import plain_domain
from onnxsurgeon_lite.tensors import dtypes

Schema = defs.OpSchema


@cache
def _schema(op_type: str, version: int, domain: str) -> Schema | None:
    return find_schema(op_type, version, domain)


def schema_at(node: NodeProto, versions: dict[str, int]) -> Schema | None:
    """Return the schema of a node's operator, if ONNX knows it."""
    domain = plain_domain(node.domain)
    version = versions.get(domain)
    return None if version is None else _schema(node.op_type, version, domain)


def can(schema: Schema | None, slot: int, is_input: bool, data_type: int) -> bool:
    """Return whether a schema permits a dtype at an input or output."""
    formals = (schema.inputs if is_input else schema.outputs) if schema is not None else ()
    if schema is None or not formals:
        return False
    # a variadic operator repeats its last formal input
    kind = formals[min(slot, len(formals) - 1)].type_str
    # type parameter -> dtypes; a formal without a parameter names its type itself
    return f"tensor({dtypes.dtype_name(data_type)})" in _allowed(schema).get(kind, (kind,))


def not_at(schema: Schema, data_type: int) -> str:
    """Return that an operator does not have a dtype, and which opset's version has it."""
    dtype = dtypes.dtype_name(data_type)
    newest = _schema(schema.name, defs.onnx_opset_version(), schema.domain)
    if newest is not None and can(newest, 0, True, data_type):
        step = f"onnxdbg edit opset MODEL {newest.since_version}"
        return f"{schema.name} has {dtype} from opset {newest.since_version} on: {step}"
    return f"{schema.name} has no {dtype}"


@cache
def _allowed(schema: Schema) -> dict[str, frozenset[str]]:
    return {c.type_param_str: frozenset(c.allowed_type_strs) for c in schema.type_constraints}


def has_sequences(schema: Schema) -> bool:
    """Return whether an operator needs a sequence or an optional."""
    allowed = _allowed(schema)
    kinds = (allowed.get(f.type_str, {f.type_str}) for f in chain(schema.inputs, schema.outputs))
    return any(all(not text.startswith("tensor") for text in kind) for kind in kinds)
