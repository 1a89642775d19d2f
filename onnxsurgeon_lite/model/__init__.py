"""`Model`: structure in memory, weights on disk."""

from onnxsurgeon_lite.model.calls import function_key, is_standard, plain_domain
from onnxsurgeon_lite.model.datafile import DataFile
from onnxsurgeon_lite.model.loading import ModelLike, load, loaded
from onnxsurgeon_lite.model.messages import by_name, copied, drop, entries
from onnxsurgeon_lite.model.model import Model, is_external
from onnxsurgeon_lite.model.saving import Written, embedded_size, movable, save
from onnxsurgeon_lite.model.sharing import require_replaceable

__all__ = [
    "DataFile",
    "Model",
    "ModelLike",
    "Written",
    "by_name",
    "copied",
    "drop",
    "embedded_size",
    "entries",
    "function_key",
    "is_external",
    "is_standard",
    "load",
    "loaded",
    "movable",
    "plain_domain",
    "require_replaceable",
    "save",
]
