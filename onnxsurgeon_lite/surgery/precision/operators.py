"""Which dtypes an operator's schema permits at its inputs and outputs."""

from functools import cache
from itertools import chain

from onnx import NodeProto, defs

from onnxsurgeon_lite.graph import allowed_types, allows, variable_at
from onnxsurgeon_lite.graph.operators import find_schema
from onnxsurgeon_lite.model import plain_domain
from onnxsurgeon_lite.tensors import dtypes

Schema = defs.OpSchema


_schema = cache(find_schema)


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
    return allows(schema, variable_at(formals, slot), data_type)


def not_at(schema: Schema, data_type: int) -> str:
    """Return that an operator does not have a dtype, and which opset's version has it."""
    dtype = dtypes.dtype_name(data_type)
    newest = _schema(schema.name, defs.onnx_opset_version(), schema.domain)
    if newest is not None and can(newest, 0, True, data_type):
        step = f"onnxdbg edit opset MODEL {newest.since_version}"
        return f"{schema.name} has {dtype} from opset {newest.since_version} on: {step}"
    return f"{schema.name} has no {dtype}"


def has_sequences(schema: Schema) -> bool:
    """Return whether an operator needs a sequence or an optional."""
    formals = chain(schema.inputs, schema.outputs)
    kinds = (allowed_types(schema, formal.type_str) for formal in formals)
    return any(all(not text.startswith("tensor") for text in kind) for kind in kinds)
