"""Operators that onnxruntime has and ONNX does not define: their schemas, put into ONNX's own registry.

So the checker, the parser, type inference and all that asks for a schema know them. onnxruntime is asked once, in a
process of its own; its answer is kept in the user's cache folder until another version is installed.
"""

import importlib
import importlib.util
import json
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TypedDict

import onnx
from onnx import AttributeProto, ModelProto, defs

from onnxsurgeon_lite.atomic import write_text
from onnxsurgeon_lite.errors import WriteError
from onnxsurgeon_lite.graph.operator_types import INFERENCES
from onnxsurgeon_lite.model import call_key, function_key, walk
from onnxsurgeon_lite.system import user_folder

Schema = defs.OpSchema
_Formals = list[tuple[str, str, str, bool]]

RUNTIME_DOMAIN = "com.microsoft"
_SIGNS = RUNTIME_DOMAIN.encode(), b"SimplifiedLayerNormalization"
"""What a serialized model holds that needs operators of onnxruntime."""
# a room above: run, not imported
_SCRIPT = Path(__file__).parent.parent / "runtime" / "operators_worker.py"
_SETTER = "set_type_and_shape_inference_function"
_PATIENCE = 60.0  # seconds


class _Operator(TypedDict):
    key: tuple[str, str, int]
    inputs: _Formals
    outputs: _Formals
    types: list[tuple[str, list[str], str]]
    attributes: list[tuple[str, str, bool, str]]


def find_schema(op_type: str, version: int, domain: str) -> Schema | None:
    """Return the schema of an operator in a version of its domain, onnxruntime's own included; None without one."""
    with suppress(defs.SchemaError, TypeError):  # TypeError: the version is beyond an int32
        # ONNX's own first: it costs nothing
        if defs.has(op_type, version, domain) or (op_type, domain) in register():
            return defs.get_schema(op_type, version, domain)
    return None


def needed(model: ModelProto) -> tuple[str, ...]:
    """Return the operators of a model that are onnxruntime's and not ONNX's, as DOMAIN:OPERATOR, sorted."""
    # functions of the model are no operators
    called = set(map(call_key, walk.nodes(walk.holders(model))))
    found = called.difference(map(function_key, model.functions))
    strange = {(name, domain) for domain, name, _ in found if domain or not _is_known(name)}
    mine = strange & register() if strange else ()
    return tuple(sorted(f"{domain or 'ai.onnx'}:{name}" for name, domain in mine))


@cache
def _is_known(operator: str) -> bool:
    """Return whether ONNX's own domain has an operator."""
    return defs.has(operator)


def register_for(model: bytes | str) -> None:
    """Register onnxruntime's operators if a model, serialized or as text, may need them."""
    encoded = model.encode(errors="replace") if isinstance(model, str) else model
    if any(sign in encoded for sign in _SIGNS):
        register(types=True)


@cache
def register(types: bool = False) -> frozenset[tuple[str, str]]:
    """Register onnxruntime's operators with ONNX; return the (operator, domain) of each.

    Args:
        types: with what infers their types. Only for a process that ends without an orderly exit, as a fork does:
            ONNX would release these functions when Python has ended already.
    """
    operators = _operators()
    if operators:  # it cannot be imported once two domains have operators of one name
        importlib.import_module("onnx.reference.op_run")
    for operator in operators:
        name, domain, version = operator["key"]
        _is_known(name)  # asked now: after this ONNX says that it has it
        schema = _schema(operator)
        if types and name in INFERENCES and hasattr(schema, _SETTER):  # an old onnx lacks it
            schema.set_type_and_shape_inference_function(INFERENCES[name])
        with suppress(defs.SchemaError):  # the version with inference replaces the one without
            defs.deregister_schema(name, version, domain)
        defs.register_schema(schema)
    return frozenset((o["key"][0], o["key"][1]) for o in operators)


def _schema(operator: _Operator) -> Schema:
    attributes = [
        Schema.Attribute(name, AttributeProto.FromString(bytes.fromhex(default)))
        if default
        else Schema.Attribute(name, getattr(Schema.AttrType, kind), required=required)
        for name, kind, required, default in operator["attributes"]
    ]
    name, domain, version = operator["key"]
    return Schema(
        name,
        domain,
        version,
        inputs=_formals(operator["inputs"]),
        outputs=_formals(operator["outputs"]),
        type_constraints=operator["types"],
        attributes=attributes,
    )


def _formals(described: _Formals) -> list[defs.OpSchema.FormalParameter]:
    return [
        Schema.FormalParameter(
            name, kind, param_option=getattr(Schema.FormalParameterOption, option), is_homogeneous=h
        )
        for name, kind, option, h in described
    ]


@cache
def _operators() -> list[_Operator]:
    """Return onnxruntime's operators that ONNX lacks; from the cache if it has what this version answers."""
    from hashlib import sha256

    found = importlib.util.find_spec("onnxruntime")  # nothing is imported
    if found is None or not found.origin:
        return []
    # another onnxruntime or onnx: ask again
    state = f"{found.origin} {Path(found.origin).stat().st_mtime_ns} {onnx.__version__}"
    name = f"operators-{sha256(state.encode()).hexdigest()[:16]}.json"
    with suppress(OSError, ValueError, RecursionError):
        place = user_folder("XDG_CACHE_HOME", ".cache") / name
        kept: list[_Operator] = json.loads(place.read_text(encoding="utf-8"))
        return kept
    try:
        answer = subprocess.run(
            [sys.executable, "-P", str(_SCRIPT)],
            capture_output=True,
            timeout=_PATIENCE,
            check=True,
        )
        # ONNX has these operators itself
        known = {(s.name, s.domain) for s in defs.get_all_schemas_with_history()}
        operators = [o for o in json.loads(answer.stdout) if tuple(o["key"][:2]) not in known]
    except (OSError, ValueError, subprocess.SubprocessError):
        return []  # what the runtime has is not known: its operators stay unknown, too
    with suppress(OSError, WriteError):
        place = user_folder("XDG_CACHE_HOME", ".cache") / name
        place.parent.mkdir(parents=True, exist_ok=True)
        write_text(place, json.dumps(operators))
    return operators
