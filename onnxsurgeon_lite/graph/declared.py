"""Declarations of many values, read and written in their encoding, because protobuf answers slowly."""

from collections import deque
from collections.abc import Callable, Container, Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, TypeProto, ValueInfoProto

from onnxsurgeon_lite.graph.table import FEW, NodeTable
from onnxsurgeon_lite.model.messages import copied, drop
from onnxsurgeon_lite.model.wire import len_field, sections

_VALUE_INFO, _OUTPUT = GraphProto.VALUE_INFO_FIELD_NUMBER, GraphProto.OUTPUT_FIELD_NUMBER
_INPUT = GraphProto.INPUT_FIELD_NUMBER
_NAME, _TYPE = 1, 2
_LEN = 2  # wire type
_ONE_BYTE = 127  # the largest size that takes one byte
_HEAD = 2  # bytes of a tag and such a size
_BEHIND = bytes(2 * (_HEAD + 255))  # what is read past the end of a message is nothing

_Places = NDArray[np.int64]
_NONE = np.empty((2, 0), np.int64)


class Declarations:
    """Declarations of values, one after the other in the encoding of a graph.

    Attributes:
        encoded: the fields that hold them.
    """

    def __init__(self, encoded: bytes, number: int, places: _Places) -> None:
        """Read fields of one number whose messages start and stop at these places."""
        self.encoded = encoded
        self._number = number
        self._starts, self._stops = places

    @classmethod
    def of(cls, graph: bytes, number: int = _VALUE_INFO) -> "Declarations":
        """Return the declarations in the fields of a number of a serialized graph; the latest ones are known."""
        start, stop, places = sections(graph).get(number, (0, 0, _NONE))
        encoded = graph[start:stop]
        for known in [*_latest]:
            if known._number == number and known.encoded == encoded:
                return known
        found = cls(encoded, number, places - start)
        if len(found.names) > FEW:
            _latest.append(found)
        return found

    @classmethod
    def apart(cls, graph: bytes) -> tuple["Declarations", bytes]:
        """Return the value_info of a serialized graph, and what is around it."""
        start, stop, _ = sections(graph).get(_VALUE_INFO, (0, 0, _NONE))
        return cls.of(graph), graph[:start] + graph[stop:]

    @cached_property
    def names(self) -> list[str]:
        """The name of each."""
        text = self.encoded.decode("latin-1")
        spans = zip((self._starts + _HEAD).tolist(), self._types[0].tolist(), strict=True)
        found = [text[start:stop] for start, stop in spans]
        if not all(map(str.isascii, found)):
            found = [each.encode("latin-1").decode(errors="replace") for each in found]
        for place in self._unusual:
            found[place] = self._message(place).name
        return found

    @cached_property
    def kinds(self) -> list[bytes]:
        """The type of each, serialized; equal ones are the same object, b'' is none."""
        whole, same = self.encoded, dict[bytes, bytes]()
        starts, stops = self._types
        spans = zip((starts + _HEAD).tolist(), stops.tolist(), strict=True)
        found = [whole[start:stop] for start, stop in spans]
        for place in self._unusual:
            found[place] = self._message(place).type.SerializeToString()
        return [same.setdefault(kind, kind) for kind in found]

    def of_values(self, chosen: Callable[[str], bool]) -> bytes:
        """Return the fields that declare some values."""
        kept = np.array(list(map(chosen, self.names)), np.bool_)
        return self.encoded if kept.all() else _joined(self.encoded, *self._fields[:, kept])

    def retyped(self, types: Mapping[str, TypeProto], gone: Container[str]) -> bytes:
        """Return the fields with new types for some values, and without those in `gone` that get none."""
        kinds = list({id(kind): kind for kind in types.values()}.values())
        numbers = {id(kind): number for number, kind in enumerate(kinds)}
        new = [numbers[id(types[name])] if name in types else -1 for name in self.names]
        spans = np.zeros((2, 4, len(new)), np.int64)  # head, name, type, what is behind it
        spans[:, 0] = self._fields
        more = bytearray(self.encoded)
        for number, kind in enumerate(kinds):
            self._retype(np.flatnonzero(np.array(new) == number), kind, spans, more)
        kept = [place >= 0 or name not in gone for place, name in zip(new, self.names, strict=True)]
        chosen = spans[:, :, np.array(kept, np.bool_)]
        return _joined(bytes(more), *chosen.transpose(0, 2, 1).reshape(2, -1))

    def _retype(self, rows: _Places, kind: TypeProto, spans: _Places, more: bytearray) -> None:
        """Set where the parts of some fields are, of a type, in what is encoded already and in `more`."""

        def add(part: bytes) -> tuple[int, int]:
            more.extend(part)
            return len(more) - len(part), len(more)

        for row in set(self._unusual).intersection(rows.tolist()):
            message = self._message(row)
            message.type.CopyFrom(kind)
            spans[:, :, row] = 0
            spans[:, 0, row] = add(len_field(self._number, message.SerializeToString()))
        rows = np.setdiff1d(rows, self._unusual, assume_unique=True)
        field = len_field(_TYPE, kind.SerializeToString())
        starts, stops = self._starts[rows], self._stops[rows]
        before, behind = self._types[:, rows]
        spans[:, 1, rows], spans[:, 3, rows] = (starts, before), (behind, stops)
        spans[:, 2, rows] = np.array(add(field))[:, None]
        sizes = before - starts + len(field) + stops - behind
        for size in np.unique(sizes).tolist():
            head = add(len_field(self._number, bytes(size))[:-size])
            spans[:, 0, rows[sizes == size]] = np.array(head)[:, None]

    @property
    def _fields(self) -> _Places:
        """Where the fields start and stop."""
        return np.stack((np.concatenate(([0], self._stops[:-1])), self._stops))

    @cached_property
    def _types(self) -> _Places:
        """Where the fields of types start and stop, in usual messages."""
        data = np.frombuffer(self.encoded + _BEHIND, np.uint8)
        starts = self._starts + _HEAD + data[self._starts + 1]
        return np.stack((starts, starts + _HEAD + data[starts + 1]))

    @cached_property
    def _unusual(self) -> list[int]:
        """The messages that do not begin with a short name and a short type."""
        data = np.frombuffer(self.encoded + _BEHIND, np.uint8)
        usual = self._types[1] <= self._stops
        for number, at in ((_NAME, self._starts), (_TYPE, self._types[0])):
            usual &= (data[at] == number << 3 | _LEN) & (data[at + 1] <= _ONE_BYTE)
        found: list[int] = np.flatnonzero(~usual).tolist()
        return found

    def _message(self, place: int) -> ValueInfoProto:
        encoded = self.encoded[self._starts[place] : self._stops[place]]
        message: ValueInfoProto = ValueInfoProto.FromString(encoded)
        return message


_latest = deque[Declarations](maxlen=2)


def around_nodes(graph: GraphProto) -> bytes:
    """Return a graph without its nodes, serialized."""
    behind = NodeTable.of(graph).encoded.behind
    if behind:
        return behind
    rest = copied(graph)
    del rest.node[:]
    return bytes(rest.SerializeToString())


def declared_types(graph: bytes, with_inputs: bool = False) -> dict[str, TypeProto]:
    """Return the types that a serialized graph declares, to read, not to change: equal ones are the same object."""
    kinds: dict[bytes, TypeProto] = {}
    found: dict[str, TypeProto] = {}
    for field in (*((_INPUT,) if with_inputs else ()), _VALUE_INFO, _OUTPUT):
        each = Declarations.of(graph, field)
        for kind in {*each.kinds} - kinds.keys():
            kinds[kind] = TypeProto.FromString(kind)
        found.update((n, kinds[k]) for n, k in zip(each.names, each.kinds, strict=True) if k)
    return found


def declare_anew(
    graph: GraphProto, types: Mapping[str, TypeProto], gone: Container[str] = ()
) -> None:
    """Give the value_info of a graph new types, and remove that of values in `gone` that get none."""
    infos = graph.value_info
    if len(infos) <= FEW:
        drop(infos, lambda info: info.name in gone and info.name not in types)
        for info in infos:
            if info.name in types:
                info.type.CopyFrom(types[info.name])
        return
    declared = Declarations.of(around_nodes(graph)).retyped(types, gone)
    del infos[:]
    graph.MergeFromString(declared)


def _joined(data: bytes, starts: _Places, stops: _Places) -> bytes:
    """Return some spans of data, one after the other."""
    sizes = stops - starts
    ends = np.cumsum(sizes)
    places = np.repeat(starts - ends + sizes, sizes) + np.arange(sizes.sum())
    joined: bytes = np.frombuffer(data, np.uint8)[places].tobytes()
    return joined
