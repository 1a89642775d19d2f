"""`Model`: structure in memory, weights on disk."""

from onnxsurgeon_lite.model.calls import (
    FunctionKey,
    call_key,
    check_functions,
    function_key,
    is_standard,
    plain_domain,
)
from onnxsurgeon_lite.model.datafile import DataFile
from onnxsurgeon_lite.model.loading import ModelLike, load, loaded
from onnxsurgeon_lite.model.messages import (
    assign,
    attributes_of,
    by_name,
    copied,
    declare,
    drop,
    drop_at,
    entries,
    integer,
    integers,
    operand,
    scan_layout,
    take_fields,
)
from onnxsurgeon_lite.model.model import (
    Enclosing,
    Model,
    external_tensors,
    is_external,
    refer,
    refers,
)
from onnxsurgeon_lite.model.saving import Written, embedded_size, movable, save
from onnxsurgeon_lite.model.sharing import require_replaceable
from onnxsurgeon_lite.model.wire import unknown_fields

__all__ = [
    "DataFile",
    "Enclosing",
    "FunctionKey",
    "Model",
    "ModelLike",
    "Written",
    "assign",
    "attributes_of",
    "by_name",
    "call_key",
    "check_functions",
    "copied",
    "declare",
    "drop",
    "drop_at",
    "embedded_size",
    "entries",
    "external_tensors",
    "function_key",
    "integer",
    "integers",
    "is_external",
    "is_standard",
    "load",
    "loaded",
    "movable",
    "operand",
    "plain_domain",
    "refer",
    "refers",
    "require_replaceable",
    "save",
    "scan_layout",
    "take_fields",
    "unknown_fields",
]
