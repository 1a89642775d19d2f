"""Find the large tensors of a protobuf file without reading them.

`skeleton` walks the length-delimited fields of a serialized `ModelProto` over a memory map. It returns the same
message, with the payload of each large tensor replaced by an external-data reference (key, offset, length). It enters
only large messages, so the cost depends on the structure, not on the weights. This is the only way to load files above
2 GiB, which protobuf refuses to parse. `expand` is the inverse: it lists the bytes, and the spans of files, that make
up the complete message.

Source: https://protobuf.dev/programming-guides/encoding/ and onnx.proto for the field numbers.
"""

import contextlib
import functools
import io
import mmap
import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from numpy.typing import NDArray

from onnxsurgeon_lite.errors import ModelFileError
from onnxsurgeon_lite.remote import RangeBuffer, RangeFile

LARGE = 1024
"""Payloads of more bytes stay in their file; smaller ones are read, because shape inference needs them."""

_READ_WHOLE = 1 << 25  # bytes
_WINDOW = 1 << 14  # bytes
_FEW = 64  # strings
_LONGEST = 5  # bytes of a tag, and of a length
_MAX_DEPTH = 100  # protobuf's own limit on nested messages

# message -> field number -> the message in that field, for every path from a model to a tensor
_CHILDREN: dict[str, dict[int, str]] = {
    "Model": {7: "Graph", 20: "TrainingInfo", 25: "Function"},
    "TrainingInfo": {1: "Graph", 2: "Graph"},
    "Graph": {1: "Node", 5: "Tensor"},
    "Function": {7: "Node", 11: "Attribute"},
    "Node": {5: "Attribute"},
    "Attribute": {5: "Tensor", 6: "Graph", 10: "Tensor", 11: "Graph"},
}
_FLOAT_DATA, _RAW_DATA, _DOUBLE_DATA = 4, 9, 10
_PAYLOADS = (_FLOAT_DATA, _RAW_DATA, _DOUBLE_DATA)  # little-endian elements, as raw_data holds them
# every large payload starts with its tag and a length of at least `LARGE`, which takes two bytes or more
_PAYLOAD_HEAD = re.compile(rb"[\x22\x4a\x52][\x80-\xff][\x08-\xff]")
_DATA_TYPE, _EXTERNAL_DATA, _DATA_LOCATION = 2, 13, 14
_GRAPH = 7  # of a model
_VARINT, _I64, _LEN, _GROUP_START, _GROUP_END, _I32 = range(6)
# FLOAT, COMPLEX64; DOUBLE, COMPLEX128
_SIZES = {_FLOAT_DATA: 4, _RAW_DATA: 1, _DOUBLE_DATA: 8}  # bytes of what is packed
_PACKED_TYPES = {_FLOAT_DATA: (1, 14), _DOUBLE_DATA: (11, 15)}

Buffer = mmap.mmap | bytes | RangeBuffer
_Places = NDArray[np.int64]


@dataclass(frozen=True)
class Span:
    """`length` bytes from `offset` in the file known as `key`."""

    key: str
    offset: int
    length: int

    def __len__(self) -> int:
        return self.length


Piece = bytes | Span


class _MalformedError(Exception):
    """The bytes are not a message of the expected type."""


@dataclass
class _Rewrite:
    """One walk over a message: what to enter, what to do with a tensor, and the resulting pieces."""

    source: Buffer
    worth_entering: Callable[[int, int], bool]
    tensor: Callable[[Buffer, int, int], list[Piece] | None]
    pieces: list[Piece] = field(default_factory=list)


def skeleton(path: Path, key: str) -> bytes:
    """Serialize the `ModelProto` at `path`, with large payloads replaced by references into `key`.

    Raises:
        ModelFileError: the file is empty, truncated or not a serialized protobuf message.
    """
    with path.open("rb", buffering=0) as file:
        size = file.seek(0, 2)
        if size == 0:
            raise ModelFileError(
                f"{str(path)!r} is empty, not an ONNX model",
                "was it copied or downloaded completely?",
            )
        try:
            with _whole(file, size) as source:
                if isinstance(source, bytes) and not _has_payload(source):
                    return source
                refer = functools.partial(_refer_to_payload, key.encode())
                walk = _Rewrite(source, lambda start, stop: stop - start > LARGE, refer)
                # nothing large in it: the file as it is
                if _rewrite(walk, "Model", 0, size, 0) is None:
                    return source[:]
                # payloads are not among the pieces: references took their places
                return b"".join(piece for piece in walk.pieces if isinstance(piece, bytes))
        except _MalformedError as error:
            raise ModelFileError(
                f"{str(path)!r} is not a readable ONNX model: {error}",
                f"the file had {size} bytes: was it copied or downloaded completely?",
            ) from error


def is_model(path: Path) -> bool:
    """Return whether a file is a message with a graph, as far as its outermost fields tell."""
    try:
        with path.open("rb", buffering=0) as file:
            size = file.seek(0, 2)
            with _whole(file, size) as source:
                stops = {number: stop for number, _, stop in fields(source, 0, size)}
    except (_MalformedError, OSError, ValueError):  # nothing can be mapped of an empty file
        return False
    # the last field ends where the file ends, or before
    return _GRAPH in stops and max(stops.values()) <= size


def _has_payload(source: bytes) -> bool:
    """Return whether there can be a large payload; plain text, which most of a structure is, cannot hold its head."""
    # two bytes more, because a head may lie across windows
    parts = (source[at : at + _WINDOW + 2] for at in range(0, len(source), _WINDOW))
    return any(not part.isascii() and _PAYLOAD_HEAD.search(part) for part in parts)


def _whole(file: io.RawIOBase, size: int) -> contextlib.AbstractContextManager[Buffer]:
    """Return a file's bytes: read if small, which is faster to walk, otherwise memory-mapped, or read by ranges."""
    if isinstance(file, RangeFile):
        return contextlib.nullcontext(RangeBuffer(file))
    if size <= _READ_WHOLE:
        file.seek(0)
        source = file.readall()
        if len(source) < size:
            raise _MalformedError("it was cut off while it was read")
        return contextlib.nullcontext(source)
    return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)


def expand(structure: bytes, keys: Container[str]) -> list[Piece]:
    """Return the complete message: each reference in `structure` into one of `keys` becomes the payload's span."""
    embed = functools.partial(_embed_payload, keys)
    walk = _Rewrite(structure, lambda a, b: structure.find(b"location", a, b) >= 0, embed)
    if _rewrite(walk, "Model", 0, len(structure), 0) is None:
        return [structure]
    return walk.pieces


def _rewrite(walk: _Rewrite, kind: str, start: int, end: int, depth: int) -> int | None:
    """Append the rewritten message to `walk.pieces`; return its new length, or None if nothing changed."""
    source, pieces = walk.source, walk.pieces
    if kind == "Tensor":  # a leaf: the caller says what to put instead
        tensor = walk.tensor(source, start, end)
        if tensor is None:
            return None
        pieces.extend(tensor)
        return sum(map(len, tensor))
    if depth > _MAX_DEPTH:
        raise _MalformedError(f"messages nested deeper than {_MAX_DEPTH} at byte {start}")

    # tag (number and wire type) -> the message in that field
    children = {number << 3 | _LEN: child for number, child in _CHILDREN[kind].items()}
    copied, length, at = start, 0, start
    while at < end:
        field_start = at
        tag, at = _varint(source, at, end)
        if tag & 7 != _LEN:  # numbers: nothing to enter
            at = _skip(source, tag, at, end)
            continue
        tag_end = at
        size, at = _varint(source, at, end)
        stop = at + size
        if stop > end:
            raise _MalformedError(
                f"a field at byte {field_start} needs {size} bytes, {end - at} are left"
            )
        if (  # worth entering, and written as protobuf itself would
            tag in children
            and walk.worth_entering(at, stop)
            and _is_usual(field_start, tag_end, at)
        ):
            slot = len(pieces)
            pieces.extend((b"", b""))  # the bytes before the child, and its new tag and length
            new_size = _rewrite(walk, children[tag], at, stop, depth + 1)
            if new_size is None:  # nothing changed below: its bytes stay with those around
                del pieces[slot:]
            else:
                # a changed child has a new length, so all messages around it have
                before, header = source[copied:field_start], _encode(tag) + _encode(new_size)
                pieces[slot : slot + 2] = before, header
                length += len(before) + len(header) + new_size
                copied = stop
        at = stop
    if copied == start:  # no child changed
        return None
    pieces.append(source[copied:end])
    return length + end - copied


@dataclass
class _TensorFields:
    """The fields of one serialized `TensorProto` that a rewrite needs."""

    data_type: int = 0
    external: bool = False
    usual: bool = True
    # number, field, start, stop
    payloads: list[tuple[int, int, int, int]] = field(default_factory=list)
    references: list[tuple[int, int]] = field(default_factory=list)  # external_data, data_location
    entries: dict[bytes, bytes] = field(default_factory=dict)


def _is_usual(start: int, tag_end: int, end: int) -> bool:
    """Return whether a tag and a length are numbers of a size that protobuf takes."""
    return tag_end - start <= _LONGEST >= end - tag_end


def _scan_tensor(source: Buffer, start: int, end: int) -> _TensorFields:
    fields, at = _TensorFields(), start
    while at < end:
        field_start = at
        tag, at = _varint(source, at, end)
        number = tag >> 3
        if tag & 7 == _LEN:
            tag_end = at
            size, at = _varint(source, at, end)
            stop = at + size
            if stop > end:
                raise _MalformedError(
                    f"a tensor at byte {start} needs {size} bytes, {end - at} are left"
                )
            # the numbers, or where they are in another file
            if number in _PAYLOADS:
                fields.payloads.append((number, field_start, at, stop))
                fields.usual &= _is_usual(field_start, tag_end, at)
            elif number == _EXTERNAL_DATA:
                fields.references.append((field_start, stop))
                key, value = _entry(source, at, stop)
                fields.entries[key] = value
            at = stop
        elif tag == _DATA_TYPE << 3 | _VARINT:
            # what is known of the numbers
            fields.data_type, at = _varint(source, at, end)
        elif tag == _DATA_LOCATION << 3 | _VARINT:
            location, at = _varint(source, at, end)
            fields.external = bool(location)
            fields.references.append((field_start, at))
        else:
            # names, sizes, documentation
            at = _skip(source, tag, at, end)
    return fields


def _entry(source: Buffer, at: int, end: int) -> tuple[bytes, bytes]:
    """Return (key, value) of a `StringStringEntryProto`."""
    pair = {1: b"", 2: b""}
    for number, start, stop in fields(source, at, end):
        if stop > end:
            raise _MalformedError(
                f"an entry at byte {start} needs {stop - start} bytes, {end - start} are left"
            )
        pair[number] = source[start:stop]
    return pair[1], pair[2]


def _refer_to_payload(key: bytes, source: Buffer, start: int, end: int) -> list[Piece] | None:
    """Replace the payload of a tensor, one large little-endian field, by a reference to it."""
    fields = _scan_tensor(source, start, end)
    if fields.external or fields.entries or len(fields.payloads) != 1:
        return None  # entries of a tensor that is not external mean nothing, and are kept
    number, field_start, payload, stop = fields.payloads[0]
    if stop - payload <= LARGE or (stop - payload) % _SIZES[number] or not fields.usual:
        return None  # protobuf itself refuses it, or reads it
    # packed numbers of another dtype than the field is for
    if fields.data_type not in _PACKED_TYPES.get(number, (fields.data_type,)):
        return None
    entries = {b"location": key, b"offset": b"%d" % payload, b"length": b"%d" % (stop - payload)}
    reference = b"".join(
        len_field(_EXTERNAL_DATA, len_field(1, name) + len_field(2, value))
        for name, value in entries.items()
    )
    external = _encode(_DATA_LOCATION << 3 | _VARINT) + b"\x01"
    # the tensor without its payload, then where that is
    return [source[start:field_start], source[stop:end], reference + external]


def _embed_payload(
    keys: Container[str], source: Buffer, start: int, end: int
) -> list[Piece] | None:
    """Replace a reference into one of `keys` by `raw_data`; the bytes are named, not read."""
    fields = _scan_tensor(source, start, end)
    key = fields.entries.get(b"location", b"").decode()
    if not fields.external or key not in keys:
        return None
    pieces = list[Piece]()
    copied = start
    for reference, stop in sorted(fields.references):  # everything but the reference itself
        pieces.append(source[copied:reference])
        copied = stop
    pieces.append(source[copied:end])
    span = Span(key, int(fields.entries[b"offset"]), int(fields.entries[b"length"]))
    pieces.append(_encode(_RAW_DATA << 3 | _LEN) + _encode(len(span)))
    pieces.append(span)
    return pieces


class Messages:
    """Serialized messages in the field with the least number of another message, which holds them one after the other.

    Attributes:
        whole: the other message.
        starts, stops: where each begins and ends there.
    """

    def __init__(self, whole: bytes, number: int) -> None:
        self.whole = whole
        self.starts: _Places
        self.stops: _Places
        self.starts, self.stops = _walked(whole, number << 3 | _LEN)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, place: int) -> bytes:
        return self.whole[self.starts[place] : self.stops[place]]

    def mentioning(self, names: Collection[str]) -> list[int]:
        """Return the positions of the messages that contain one of these strings, at any depth.

        The result can hold a few others; with many strings it holds all, because searching would take too long.
        """
        if len(names) > _FEW:
            return list(range(len(self)))
        return self.containing(map(_sized, names))

    def containing(self, parts: Iterable[bytes]) -> list[int]:
        """Return the positions of the messages that contain one of these parts; it can hold a few others."""
        found = set[int]()
        end = int(self.stops[-1]) if len(self) else 0
        for part in parts:
            at = self.whole.find(part, 0, end)
            while at >= 0:
                # the message that ends after it
                place = int(np.searchsorted(self.stops, at, "right"))
                found.add(place)
                at = self.whole.find(part, self.stops[place], end)  # go on in the next message
        return sorted(found)

    def same(self, others: "Messages") -> tuple[int, int]:
        """Return how many messages others begin with, too, and how many they end with."""
        count, sides = min(len(self), len(others)), (self, others)
        if not count:
            return 0, 0
        one, two = (np.frombuffer(side.whole, np.uint8)[: side.stops[-1]] for side in sides)
        head = _alike(one, two, self.stops, others.stops)
        one, two = one[::-1], two[::-1]
        # the same from the end, with both reversed
        tail = _alike(one, two, *(side.stops[-1] - side.starts[::-1] for side in sides))
        return head, min(tail, count - head)


def _alike(
    one: NDArray[np.uint8], two: NDArray[np.uint8], ends: _Places, other_ends: _Places
) -> int:
    """Return how many messages two sequences of them begin with, that end at these places."""
    count = min(len(ends), len(other_ends))
    first = _alike_bytes(one, two)
    # where the lengths differ, equal bytes may be cut differently
    apart = ends[:count] != other_ends[:count]
    return min(
        int(np.searchsorted(ends, first, "right")), int(apart.argmax()) if apart.any() else count
    )


def _alike_bytes(one: NDArray[np.uint8], two: NDArray[np.uint8]) -> int:
    """Return how many bytes two sequences begin with."""
    size = min(len(one), len(two))
    differ = one[:size] != two[:size]
    return int(differ.argmax()) if differ.any() else size


def _walked(whole: bytes, tag: int) -> _Places:
    """Return where fields of one tag start and stop, as many as come first."""
    # start and stop in turn
    found = list[int]()
    add, at, end = found.append, 0, len(whole)
    while at < end and whole[at] == tag:
        size, at = whole[at + 1], at + 2
        if size > 127:
            size, at = _varint(whole, at - 1, end)  # a longer length: read it from its first byte
        add(at)
        at += size
        add(at)
    return np.array(found, np.int64).reshape(-1, 2).T


def fields(source: Buffer, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (number, start, stop) of each length-delimited field of a message."""
    while at < end:
        tag, at = _varint(source, at, end)
        if tag & 7 != _LEN:
            at = _skip(source, tag, at, end)
            continue
        size, at = _varint(source, at, end)
        yield tag >> 3, at, at + size
        at += size


def _sized(text: str) -> bytes:
    encoded = text.encode()
    return _encode(len(encoded)) + encoded


def unknown_fields(message: Message) -> bytes:
    """Serialize the fields of a message that this version of ONNX does not know."""
    # most messages have none, and need no copy
    if not len(UnknownFieldSet(message)):
        return b""
    rest = type(message)()
    rest.CopyFrom(message)
    # without the known ones, the others are left
    for known, _ in rest.ListFields():
        rest.ClearField(known.name)
    return bytes(rest.SerializeToString())


def _skip(source: Buffer, tag: int, at: int, end: int) -> int:
    """Return the position after a field that is not length-delimited."""
    wire_type = tag & 7
    if tag >> 3 == 0:
        raise _MalformedError(f"field number 0 at byte {at}")
    if wire_type == _VARINT:
        at = _varint(source, at, end)[1]
    elif wire_type == _I64:
        at += 8
    elif wire_type == _I32:
        at += 4
    elif wire_type == _GROUP_START:
        at = _skip_group(source, tag, at, end)
    else:
        raise _MalformedError(f"unexpected wire type {wire_type} at byte {at}")
    if at > end:
        raise _MalformedError(f"the message ends inside a field at byte {end}")
    return at


def _skip_group(source: Buffer, tag: int, at: int, end: int) -> int:
    """Skip a group: groups are obsolete but still legal as unknown fields."""
    open_groups = [tag >> 3]
    while open_groups:
        tag, at = _varint(source, at, end)
        if tag & 7 == _GROUP_START:
            open_groups.append(tag >> 3)
        elif tag & 7 == _GROUP_END:
            if open_groups.pop() != tag >> 3:
                raise _MalformedError(f"a group ends with another number at byte {at}")
        elif tag & 7 == _LEN:
            size, at = _varint(source, at, end)
            at += size
        else:
            at = _skip(source, tag, at, end)
    return at


def _varint(source: Buffer, at: int, end: int) -> tuple[int, int]:
    """Return (value, position after it)."""
    if at < end and source[at] < 128:  # the most frequent case
        return source[at], at + 1
    value = shift = 0
    while at < end:
        byte = source[at]
        at += 1
        value |= (byte & 0x7F) << shift  # seven bits at a time, the lowest first
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise _MalformedError(f"a number longer than 64 bits at byte {at}")
    raise _MalformedError(f"the message ends inside a number at byte {end}")


def _encode(value: int) -> bytes:
    if value < 128:  # the most frequent case
        return value.to_bytes()
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def len_field(number: int, payload: bytes) -> bytes:
    """Return a length-delimited field."""
    return _encode(number << 3 | _LEN) + _encode(len(payload)) + payload
