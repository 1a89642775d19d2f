"""Remove what tells of the author and the author's machine: documentation, metadata, training, unknown fields."""

from collections import Counter
from collections.abc import Iterator

from google.protobuf.message import Message
from onnx import ModelProto


def remove_sources(proto: ModelProto) -> list[str]:
    """Remove, in place, everything that does not change what the model computes; return a line for each kind."""
    counts = Counter[str]()
    if proto.training_info:
        counts["training info"] = len(proto.training_info)
        del proto.training_info[:]
    size = proto.ByteSize()
    proto.DiscardUnknownFields()
    counts["bytes of unknown fields"] = size - proto.ByteSize()
    for message in _messages(proto):
        present = {field.name: value for field, value in message.ListFields()}
        counts["doc strings"] += "doc_string" in present
        counts.update(f"metadata {entry.key!r}" for entry in present.get("metadata_props", ()))
        for name in present.keys() & {"doc_string", "metadata_props"}:
            message.ClearField(name)
    return [f"removed {kind}: {count}" for kind, count in counts.items() if count]


def _messages(message: Message) -> Iterator[Message]:
    """Yield a message and those in it, types excluded, which have no documentation."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None and field.name != "type":
            for inner in value if field.is_repeated else [value]:
                yield from _messages(inner)
