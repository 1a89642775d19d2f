"""Models as protobuf's own text and as JSON, which onnx reads and writes: `.textproto`, `.json` and their kin."""

from pathlib import Path

from onnx import ModelProto, serialization

from onnxsurgeon_lite.errors import ModelFileError, UsageError
from onnxsurgeon_lite.names import command

_TEXTS = "textproto", "json"
_MOST_BYTES = 1 << 30  # of a text; its parser takes many times as much memory


def text_format(path: Path) -> str | None:
    """Return the format of a text by its extension, None for protobuf's binary one."""
    kind: str | None = serialization.registry.get_format_from_file_extension(path.suffix)
    return kind if kind != "protobuf" else None


def written_format(path: Path) -> str | None:
    """Return like `text_format`; raise `UsageError` for ONNX text, which is no copy of a model."""
    kind = text_format(path)
    if kind is None or kind in _TEXTS:
        return kind
    raise UsageError(
        f"{str(path)!r} has the name of a model in ONNX text syntax",
        f"write {command('-o', str(path.with_suffix('.onnx')))}; onnxdbg print shows it as text",
    )


def parsed(path: Path, kind: str) -> bytes:
    """Return the serialized `ModelProto` of a text.

    Raises:
        ModelFileError: the text is not that of a model, or too large.
        OSError: it cannot be read.
    """
    if kind not in _TEXTS:
        to = command("onnxdbg", "build", str(path), "-o", str(path.with_suffix(".onnx")))
        raise ModelFileError(f"{str(path)!r} is ONNX text, not a model", f"build it first: {to}")
    with path.open("rb") as file:
        text = file.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:  # one byte more was asked for than is allowed
        raise ModelFileError(
            f"{str(path)!r} has more than {_MOST_BYTES} bytes of text",
            "write the model as protobuf, with onnx",
        )
    try:
        model = serialization.registry.get(kind).deserialize_proto(text, ModelProto())
        return bytes(model.SerializeToString())
    # ParseError of protobuf, which has two; RecursionError of what is nested too deep
    except Exception as error:
        raise ModelFileError(f"{str(path)!r} is not an ONNX model as {kind}: {error}") from error


def written(encoded: bytes, kind: str) -> bytes:
    """Return the text of a serialized `ModelProto`."""
    return bytes(serialization.registry.get(kind).serialize_proto(ModelProto.FromString(encoded)))
