"""Declarations of many values, read and written in their encoding, because protobuf answers slowly."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, TypeProto, ValueInfoProto

from onnxsurgeon_lite.graph.table import FEW, NodeTable
from onnxsurgeon_lite.model import copied, drop
from onnxsurgeon_lite.model.wire import Messages, field_start, fields

INPUT = GraphProto.INPUT_FIELD_NUMBER
OUTPUT = GraphProto.OUTPUT_FIELD_NUMBER
VALUE_INFO = GraphProto.VALUE_INFO_FIELD_NUMBER
DECLARING = VALUE_INFO, OUTPUT
"""The fields that declare values which nodes make."""
_NAME, _TYPE = 1, 2
_LEN = 2  # wire type
_ONE_BYTE = 127  # the largest size that takes one byte
_SMALL = 1 << 16  # bytes of a graph that protobuf reads as fast
_HEAD = 2  # bytes of a tag and such a size
_CHUNK = 1 << 12  # numbers of an array that are objects at a time
_BEHIND = bytes(2 * (_HEAD + 255))  # what is read past the end of a message is nothing

_Places = NDArray[np.int64]


class Declarations:
    """Declarations of values, one after the other in the encoding of a graph.

    Attributes:
        encoded: the fields that hold them.
    """

    def __init__(self, begin: bytes, number: int) -> None:
        """Read the fields of a number that come first."""
        self._number = number
        self._messages = Messages(begin, number)
        self._starts, self._stops = self._messages.starts, self._messages.stops
        # up to the end of the last of these fields
        self.encoded = begin.removesuffix(self._messages.behind)
        self._unusual = dict[int, str]()  # names where no short name and short type come first

    @classmethod
    def of(cls, graph: bytes, number: int = VALUE_INFO) -> "Declarations":
        """Return the declarations in the fields of a number of a serialized graph; the latest ones are known."""
        return cls._found(graph, number)[1]

    @classmethod
    def apart(cls, graph: bytes) -> tuple["Declarations", bytes]:
        """Return the value_info of a serialized graph, and what is around it."""
        start, found = cls._found(graph, VALUE_INFO)
        return found, graph[:start] + graph[start + len(found.encoded) :]

    @classmethod
    def _found(cls, graph: bytes, number: int) -> tuple[int, "Declarations"]:
        start = field_start(graph, number)
        # Many edits read the same declarations again: the last ones are recognized by their bytes.
        for known in list(_latest):
            stop = start + len(known.encoded)
            same = known._number == number and graph.startswith(known.encoded, start)
            # the next field must not be one more of these
            if same and graph[stop : stop + 1] != graph[start : start + 1]:
                return start, known
        found = cls(graph[start:], number)
        if len(found._starts) > FEW:
            _latest.append(found)
        return start, found

    @cached_property
    def names(self) -> list[str]:
        """The name of each."""
        before, _, _ = self._types
        # one character for each byte, so that places in the text are places in the bytes
        text = self.encoded.decode("latin-1")
        spans = _in_rows(self._starts + _HEAD, before)
        found = [text[start:stop] for start, stop in spans]
        if not all(map(str.isascii, found)):  # the few names with other characters
            found = [each.encode("latin-1").decode(errors="replace") for each in found]
        for place, name in self._unusual.items():
            found[place] = name
        return found

    @cached_property
    def kinds(self) -> list[bytes]:
        """The type of each, serialized; equal ones are the same object, b'' is none."""
        whole = self.encoded
        same = dict[bytes, bytes]()
        _, starts, stops = self._types
        found = (whole[start:stop] for start, stop in _in_rows(starts, stops))
        return [same.setdefault(kind, kind) for kind in found]

    def of_values(self, chosen: Callable[[str], bool]) -> bytes:
        """Return the fields that declare some values."""
        kept = np.array(list(map(chosen, self.names)), np.bool_)
        return self.encoded if kept.all() else _joined(self.encoded, *self._fields[:, kept])

    def unlike(self, other: "Declarations") -> set[str]:
        """Return the values that only one of two declares, or that they declare in other ways."""
        one, two = self._messages, other._messages
        head, tail = one.same(two)
        # in one of the two only, with its type
        differing = set(one.among(head, len(one) - tail)) ^ set(two.among(head, len(two) - tail))
        return {ValueInfoProto.FromString(each).name for each in differing}

    @property
    def _fields(self) -> _Places:
        """Where the fields start and stop."""
        return np.stack((np.concatenate(([0], self._stops[:-1])), self._stops))

    @cached_property
    def _types(self) -> tuple[_Places, _Places, _Places]:
        """Where the fields of types start, where their contents do, and where both stop."""
        # A message is usually: tag and size of the name, the name, tag and size of the type, the type. numpy finds
        # all of these at once; the others (long names, other orders) are read field by field.
        data = np.frombuffer(self.encoded + _BEHIND, np.uint8)
        before = self._starts + _HEAD + data[self._starts + 1]  # after the name
        stops = before + _HEAD + data[before + 1]
        usual = stops <= self._stops
        for number, places in ((_NAME, self._starts), (_TYPE, before)):
            usual &= (data[places] == number << 3 | _LEN) & (data[places + 1] <= _ONE_BYTE)
        found = before, before + _HEAD, stops
        for place in np.flatnonzero(~usual).tolist():
            self._unusual[place] = ""
            # no type, unless a field says otherwise
            at = self._starts[place].item()
            end = self._stops[place].item()
            for column in found:
                column[place] = end
            for field, start, stop in fields(self.encoded, at, end):
                if field == _NAME:
                    self._unusual[place] = self.encoded[start:stop].decode()
                elif field == _TYPE:
                    before[place], found[1][place], stops[place] = at, start, stop
                at = stop
        return found


_latest = deque[Declarations](maxlen=2)


def around_nodes(graph: GraphProto) -> bytes:
    """Return a graph without its nodes, serialized."""
    # the bytes that the table was made of have it already
    behind = NodeTable.of(graph).encoded.behind
    if behind:
        return behind
    rest = copied(graph)
    del rest.node[:]
    return bytes(rest.SerializeToString())


def declared_types(
    graph: bytes,
    numbers: Iterable[int] = DECLARING,
    chosen: Callable[[TypeProto], bool] = lambda _: True,
) -> dict[str, TypeProto]:
    """Return types that a serialized graph declares, to read, not to change: equal ones are the same object.

    Args:
        numbers: of the fields that hold declarations; of two of one value the later one counts.
        chosen: tells which types to return.
    """
    kinds = dict[bytes, TypeProto]()
    found = dict[str, TypeProto]()
    if len(graph) <= _SMALL:
        parsed = GraphProto.FromString(graph)
        known = {VALUE_INFO: parsed.value_info, OUTPUT: parsed.output, INPUT: parsed.input}
        for info in chain.from_iterable(map(known.__getitem__, numbers)):
            same = kinds.setdefault(info.type.SerializeToString(), info.type)
            if info.HasField("type") and chosen(same):
                found[info.name] = same
        return found
    for each in (Declarations.of(graph, number) for number in numbers):
        # each different type is parsed once
        for encoded in (own := set(each.kinds)) - kinds.keys():
            kinds[encoded] = TypeProto.FromString(encoded)
        left_out = {kind for kind in own if not (kind and chosen(kinds[kind]))}
        if left_out == own:  # no value has a type that is wanted
            continue
        pairs = zip(each.names, each.kinds, strict=True)
        found |= {name: kinds[kind] for name, kind in pairs if kind not in left_out}
    return found


def declare_anew(
    graph: GraphProto,
    types: Mapping[str, TypeProto],
    gone: Set[str] = frozenset(),
    with_outputs: bool = False,
) -> None:
    """Give the value_info of a graph new types, its outputs too, and remove that of values in `gone` without one."""
    if lost := gone - types.keys():
        drop(graph.value_info, lambda info: info.name in lost)
    for info in chain(graph.value_info, graph.output if with_outputs else ()):
        # fields besides the type stay as they are
        if (kind := types.get(info.name)) is not None:
            info.type.CopyFrom(kind)


def _in_rows(*columns: _Places) -> Iterator[tuple[int, ...]]:
    """Yield the rows of columns of numbers; few of them are objects at a time."""
    for start in range(0, len(columns[0]), _CHUNK):
        some = (column[start : start + _CHUNK].tolist() for column in columns)
        yield from zip(*some, strict=True)


def _joined(data: bytes, starts: _Places, stops: _Places) -> bytes:
    """Return some spans of data, one after the other."""
    sizes = stops - starts
    ends = np.cumsum(sizes)
    # for each byte of the result, where it comes from
    places = np.repeat(starts - ends + sizes, sizes) + np.arange(sizes.sum())
    joined: bytes = np.frombuffer(data, np.uint8)[places].tobytes()
    return joined
