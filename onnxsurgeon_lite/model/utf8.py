"""Check that a model's text is UTF-8, as the specification requires; proto2 parsing does not check it."""

from collections.abc import Iterator
from functools import cache

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message
from onnx import ModelProto


def is_utf8(data: bytes) -> bool:
    """Return whether all strings of a serialized, parsable model are UTF-8."""
    try:
        _strict_model().FromString(data)
    except DecodeError:
        return False
    return True


@cache
def _strict_model() -> type[Message]:
    """Return onnx's model message in a protobuf edition whose parser checks UTF-8.

    Its fields are not repeated: each item is parsed over the one before, which needs no memory.
    """
    file = descriptor_pb2.FileDescriptorProto()
    ModelProto.DESCRIPTOR.file.CopyToProto(file)
    file.syntax, file.edition = "editions", descriptor_pb2.EDITION_2023
    features = descriptor_pb2.FeatureSet
    file.options.features.utf8_validation = features.VERIFY
    file.options.features.enum_type = features.CLOSED
    for message in file.message_type:
        for field in message.field:
            field.label = field.LABEL_OPTIONAL
            field.ClearField("options")  # `packed` is a feature in editions
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found: type[Message] = message_factory.GetMessageClass(
        pool.FindMessageTypeByName("onnx.ModelProto")
    )
    return found


def not_utf8(message: Message, place: str = "") -> Iterator[tuple[str, bytes]]:
    """Yield each string that is not UTF-8: its path (`graph.node[3].name`) and its bytes."""
    for field, value in message.ListFields():
        values = list(value) if field.is_repeated else [value]
        for number, item in enumerate(values):
            here = f"{place}{field.name}" + (f"[{number}]" if field.is_repeated else "")
            if field.message_type is not None:  # messages in it, with their path in front
                yield from not_utf8(item, f"{here}.")
            elif field.type == field.TYPE_STRING and isinstance(item, bytes):
                yield here, item
