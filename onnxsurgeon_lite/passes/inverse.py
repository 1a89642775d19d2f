"""What a promoted constant or a frozen input was, kept in its metadata so that the inverse edit gives it back.

The entry holds the place it had in its list and the message itself without its payload. Another one holds the types
that were declared of values whose sizes hung on a promoted constant.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import DecodeError, Message
from onnx import NodeProto, TensorProto, TypeProto, ValueInfoProto

from onnxsurgeon_lite.model.messages import drop

KEY = "onnxsurgeon_lite.origin"
_LOOSENED = "onnxsurgeon_lite.loosened"
_Kind = TypeVar("_Kind", TensorProto, NodeProto, ValueInfoProto)


@dataclass(frozen=True)
class ReplacedMessage:
    """A message that stood at `place` of its list; `typed` when its numbers were not raw bytes."""

    kind: str
    place: int
    data: bytes
    typed: bool = False

    def message(self, kind: type[_Kind]) -> _Kind | None:
        """The message, None where the origin is of another kind or damaged."""
        if self.kind != kind.__name__:
            return None
        message = kind()
        try:
            message.ParseFromString(self.data)
        except DecodeError:
            return None
        return message


def remember(
    target: TensorProto | ValueInfoProto, place: int, message: Message, typed: bool = False
) -> None:
    """Note what became `target`."""
    entry = {
        "kind": type(message).__name__,
        "place": place,
        "data": _encoded(message),
        "typed": typed,
    }
    target.metadata_props.add(key=KEY, value=json.dumps(entry))


def recall(source: TensorProto | ValueInfoProto) -> ReplacedMessage | None:
    """What `source` was before it was promoted or frozen, None where nothing readable is noted."""
    for entry in source.metadata_props:
        if entry.key == KEY:
            try:
                noted = json.loads(entry.value)
                data = base64.b64decode(noted["data"], validate=True)
                return ReplacedMessage(
                    str(noted["kind"]), max(0, int(noted["place"])), data, noted["typed"] is True
                )
            except (ValueError, TypeError, KeyError, binascii.Error):
                return None
    return None


def remember_types(target: ValueInfoProto, types: Mapping[str, TypeProto]) -> None:
    """Note what was declared of the values whose sizes hang on `target` from now on."""
    if types:
        same: dict[bytes, list[str]] = {}  # most values are of few types
        for name, kind in types.items():
            same.setdefault(kind.SerializeToString(deterministic=True), []).append(name)
        entry = {base64.b64encode(kind).decode(): names for kind, names in same.items()}
        target.metadata_props.add(key=_LOOSENED, value=json.dumps(entry))


def recall_types(source: ValueInfoProto) -> dict[str, TypeProto]:
    """What was declared of the values whose sizes hang on `source`, none where nothing readable is noted."""
    for entry in source.metadata_props:
        if entry.key == _LOOSENED:
            try:
                noted = json.loads(entry.value)
                return {
                    str(name): kind
                    for data, names in noted.items()
                    for kind in [TypeProto.FromString(base64.b64decode(data, validate=True))]
                    for name in names
                }
            except (ValueError, TypeError, AttributeError, DecodeError):
                return {}
    return {}


def forget(target: TensorProto | ValueInfoProto) -> None:
    """Remove the notes."""
    drop(target.metadata_props, lambda entry: entry.key in (KEY, _LOOSENED))


def _encoded(message: Message) -> str:
    return base64.b64encode(message.SerializeToString(deterministic=True)).decode()
