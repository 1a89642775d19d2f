"""Store the original of a promoted constant or frozen input in metadata, so that the inverse edit restores it.

One entry holds the original's position in its list and its message; numbers of more than `MOST_KEPT` bytes stay in the
graph instead, as an initializer that nothing reads. Another holds the declared types of values whose sizes depended on
a promoted constant.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import DecodeError, Message
from onnx import NodeProto, TensorProto, TypeProto, ValueInfoProto

from onnxsurgeon_lite.model import drop, entries
from onnxsurgeon_lite.search.grouping import groups
from onnxsurgeon_lite.surgery import distinct

KEY = "onnxsurgeon_lite.origin"
MOST_KEPT = 1 << 20  # bytes
_RELAXED = "onnxsurgeon_lite.loosened"
UNREADABLE = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    DecodeError,
)
"""What a note that somebody else wrote raises."""
_Kind = TypeVar("_Kind", TensorProto, NodeProto, ValueInfoProto)


@dataclass(frozen=True)
class ReplacedMessage:
    """The original message at `place` in its list.

    Attributes:
        typed: its numbers were not raw bytes.
        kept: where its numbers are: in the message for '', else in the initializer of this name; None if they are not.
    """

    kind: str
    place: int
    data: bytes
    typed: bool = False
    kept: str | None = None

    def message(self, kind: type[_Kind]) -> _Kind | None:
        """Return the message, None when it has another kind or is damaged."""
        if self.kind != kind.__name__:
            return None
        message = kind()
        try:
            message.ParseFromString(self.data)
        except DecodeError:
            return None
        return message


def remember(
    target: TensorProto | ValueInfoProto,
    place: int,
    message: Message,
    typed: bool = False,
    kept: str | None = None,
) -> None:
    """Store the original of `target`."""
    entry = {
        "kind": type(message).__name__,
        "place": place,
        "data": base64.b64encode(message.SerializeToString(deterministic=True)).decode(),
        "typed": typed,
        "kept": kept,
    }
    target.metadata_props.add(key=KEY, value=json.dumps(entry))


def recall(source: TensorProto | ValueInfoProto) -> ReplacedMessage | None:
    """Return the original of a promoted or frozen `source`, None when no readable entry exists."""
    try:
        noted = json.loads(entries(source.metadata_props)[KEY])
        data = base64.b64decode(noted["data"], validate=True)
        # a position from outside: never negative
        kind, place = str(noted["kind"]), max(0, int(noted["place"]))
        kept = noted.get("kept")
        held = kept if isinstance(kept, str) else None
        return ReplacedMessage(kind, place, data, noted["typed"] is True, held)
    except UNREADABLE:
        return None


def remember_types(target: ValueInfoProto, types: Mapping[str, TypeProto]) -> None:
    """Store the declared types of values whose sizes now depend on `target`."""
    if types:
        # id of a type -> its bytes
        encoded = {
            place: kind.SerializeToString(deterministic=True)
            for place, kind in distinct(types).items()
        }
        # many values share few types
        same = groups((encoded[id(kind)], name) for name, kind in types.items())
        entry = {base64.b64encode(kind).decode(): names for kind, names in same.items()}
        target.metadata_props.add(key=_RELAXED, value=json.dumps(entry))


def recall_types(source: ValueInfoProto) -> dict[str, TypeProto]:
    """Return the stored types of values whose sizes depend on `source`."""
    found = dict[str, TypeProto]()
    try:
        for data, names in json.loads(entries(source.metadata_props)[_RELAXED]).items():
            kind = TypeProto.FromString(base64.b64decode(data, validate=True))
            found.update((str(name), kind) for name in names)
    except UNREADABLE:
        return {}
    return found


def forget(target: TensorProto | ValueInfoProto) -> None:
    """Remove both entries."""
    drop(target.metadata_props, lambda entry: entry.key in (KEY, _RELAXED))
