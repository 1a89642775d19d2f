"""`Model`: structure in memory, weights on disk."""

from onnxsurgeon_lite.model.datafile import DataFile
from onnxsurgeon_lite.model.loading import ModelLike, load, loaded
from onnxsurgeon_lite.model.model import Model
from onnxsurgeon_lite.model.saving import Written, movable, save

__all__ = ["DataFile", "Model", "ModelLike", "Written", "load", "loaded", "movable", "save"]
