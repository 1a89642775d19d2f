"""Protobuf's own parser as the judge: what is loaded, and what is saved of it, is what the file holds."""

from pathlib import Path

from google.protobuf.message import DecodeError, EncodeError
from onnx import ModelProto, TensorProto

from onnxsurgeon_lite import load, save
from onnxsurgeon_lite.errors import GraphError, SurgeonError
from onnxsurgeon_lite.model import walk
from onnxsurgeon_lite.model.wire import LARGE

_PACKED = {"float_data": (1, 14), "double_data": (11, 15)}


def disagreement(data: bytes, folder: Path) -> str:
    """Return what differs; '' if nothing does, or if the file is refused."""
    path = folder / "judged.onnx"
    path.write_bytes(data)
    try:
        model = load(path)
    except SurgeonError:
        return ""
    try:
        expected = ModelProto.FromString(data)
        tensors = list(walk.tensors(expected))
    except DecodeError:
        return "loads what protobuf refuses"
    except GraphError:
        return ""  # every command refuses it: the name of a body has a slash
    if any(tensor.data_location == TensorProto.EXTERNAL for tensor in tensors):
        return ""  # its bytes are elsewhere
    if _plain(model.materialize()) != _plain(expected):
        return "loads something else"
    try:
        save(model, folder / "saved.onnx", force=True)
    except (SurgeonError, EncodeError):
        return ""
    saved = ModelProto.FromString((folder / "saved.onnx").read_bytes())
    return "" if _plain(saved) == _plain(expected) else "saves something else"


def _plain(model: ModelProto) -> bytes:
    """Serialize a model; large packed numbers are raw data, which is the same."""
    for tensor in walk.tensors(model):
        for name, kinds in _PACKED.items():
            values = getattr(tensor, name)
            size = len(values) * (4 if name == "float_data" else 8)
            if tensor.data_type in kinds and size > LARGE and not tensor.raw_data:
                encoded = TensorProto(**{name: values}).SerializeToString()
                tensor.ClearField(name)
                tensor.raw_data = encoded[-size:]
        if tensor.data_location == TensorProto.DEFAULT:
            tensor.ClearField("data_location")
    return bytes(model.SerializeToString(deterministic=True))
