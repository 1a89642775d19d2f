"""What the nodes of a graph read and make, found in their encoding, because protobuf answers slowly.

In a `NodeTable` a name is a number, a hash of its bytes: no text is made of the names that nobody asks for.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, TensorProto

from onnxsurgeon_lite.model import plain_domain, walk
from onnxsurgeon_lite.model.wire import Messages, fields

_INPUT, _OUTPUT, _OPERATOR, _ATTRIBUTE, _DOMAIN = 1, 2, 4, 5, 7  # fields of a NodeProto
_NAMES = _INPUT, _OUTPUT
_READ = frozenset(_NAMES + (_OPERATOR, _ATTRIBUTE, _DOMAIN))
FEW = 256
"""Nodes that protobuf reads as fast."""

_MOST_BYTES = 1 << 26  # of a graph that is serialized with all that is around its nodes
_MOST_FIELDS = 64  # of a node that is read in columns
_MOST_BODIED = 64  # nodes
_MOST_ALONE = 16  # names that are looked for one by one
_CHUNK = 1 << 12  # numbers of an array that are objects at a time
_MOST_WORDS = 64  # of a name that count for its number
_WORD = 8  # bytes
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # 2 ** 64 / the golden ratio, which mixes bits well

_Places = NDArray[np.int64]
_Numbers = NDArray[np.uint64]
_NOTHING = np.empty((4, 0), np.int64)


class NodeRow(NamedTuple):
    """A node as plain data.

    Attributes:
        domain: '' for ONNX's own.
        needs: the values it needs; raw inputs, with repeats and '', where it has no attribute.
        attributed: it has an attribute.
    """

    op_type: str
    domain: str
    needs: list[str]
    outputs: list[str]
    attributed: bool

    @classmethod
    def of(cls, node: NodeProto) -> "NodeRow":
        """Read a node."""
        attributed, needs = bool(node.attribute), node.input[:]
        if attributed:
            needs = _distinct(needs, captured(node) if walk.bodies(node) else ())
        return cls(node.op_type, plain_domain(node.domain), needs, node.output[:], attributed)


def rows_of(nodes: Sequence[NodeProto]) -> list[NodeRow]:
    """Read nodes."""
    if len(nodes) <= FEW:
        return list(map(NodeRow.of, nodes))
    return NodeTable(GraphProto(node=nodes).SerializeToString()).rows


class NodeTable:
    """The nodes of a graph in columns.

    Attributes:
        encoded: the nodes' bytes.
    """

    def __init__(self, encoded: bytes, like: "NodeTable | None" = None) -> None:
        """Read the nodes of a serialized graph, but for those that another version of it begins and ends with."""
        known = None if like is None else like.encoded
        self.encoded: Messages = Messages(encoded, GraphProto.NODE_FIELD_NUMBER, known)
        # with some bytes behind, so that a word can be read at the end
        self._bytes = np.frombuffer(encoded + bytes(_WORD), np.uint8)
        self._strings = dict[int, frozenset[str]]()  # in the fields of a number
        # field number -> columns without empty names; -> numbers in order
        self._with_names = dict[int, _Places]()
        self._sorted = dict[int, tuple[_Numbers, _Places]]()
        if like is not None:
            self._take_over(like)

    @classmethod
    def of(cls, graph: GraphProto) -> "NodeTable":
        """Return the table of a graph; the latest ones are known."""
        # large weights: nodes alone, so that the comparison below stays cheap
        if sum(map(TensorProto.ByteSize, graph.initializer)) > _MOST_BYTES:
            graph = GraphProto(node=graph.node)
        encoded = graph.SerializeToString()
        known = list(_latest)
        found = next((table for table in known if table.encoded.whole == encoded), None)
        if found is None:
            # the newest table is probably of the graph before the edit
            found = cls(encoded, *known[-1:])
            if len(found.encoded) > FEW:
                _latest.append(found)
        return found

    def _take_over(self, like: "NodeTable") -> None:
        # Nodes at the begin and at the end are the same in both: only those between are read anew.
        one, two = self.encoded, like.encoded
        head, tail = one.same(two)
        first, last = len(one) - tail, len(two) - tail
        if head == len(one) == len(two):  # no node changed
            self._strings = like._strings
        if "rows" in vars(like) and head + tail:  # rows between may be equal, too, at other places
            known = dict(zip(two.among(head, last), like.rows[head:last], strict=True))
            each = enumerate(one.among(head, first), head)
            new = (known.get(encoded) or NodeRow.of(self.node(place)) for place, encoded in each)
            self.rows = [*like.rows[:head], *new, *like.rows[last:]]
        if "_columns" in vars(like) and head + tail:
            further = int(one.stops[-1] - two.stops[-1])  # bytes that the end moved by
            # one for each row of columns: node, start, stop, number
            moved = np.array([[first - last], [further], [further], [0]])
            between = self._scanned(range(head, first))
            self._columns = {}
            for number in like._columns.keys() | between.keys():
                old = like._columns.get(number, _NOTHING)
                start, stop = np.searchsorted(old[0], [head, last])
                parts = old[:, :start], between.get(number, _NOTHING), old[:, stop:] + moved
                self._columns[number] = np.concatenate(parts, axis=1)

    def node(self, place: int) -> NodeProto:
        """Return a node."""
        node: NodeProto = NodeProto.FromString(self.encoded[place])
        return node

    @cached_property
    def bodied(self) -> list[int]:
        """The nodes that hold graphs."""
        # bytes that a body begins with; few other nodes have them
        may = self.encoded.containing(walk.GRAPH_TYPES)
        return [place for place in may if walk.bodies(self.node(place))]

    @cached_property
    def attributed(self) -> set[int]:
        """The nodes that have attributes."""
        return set(self._fields(_ATTRIBUTE)[0].tolist())

    @cached_property
    def made(self) -> tuple[_Numbers, _Places]:
        """The numbers of the values that nodes make, and who makes each."""
        nodes, _, _, numbers = self._named(_OUTPUT)
        return numbers.view(np.uint64), nodes

    def makers(self, name: str) -> list[int]:
        """Return the nodes that make a value."""
        numbers, nodes = self.made
        # a number may belong to two names: look at the node itself
        may = sorted(set(nodes[numbers == _numbers_of([name])].tolist()))
        return [place for place in may if name in self.node(place).output[:]]

    def readers(self, names: Collection[str]) -> dict[str, list[int]]:
        """Return the nodes whose inputs are these values; those that capture them are not among them."""
        return self._of_names(_INPUT, names)

    def reading(self, names: Collection[str]) -> list[int]:
        """Return the nodes that have one of these values as an input; it can hold a few others."""
        nodes = self._named(_INPUT)[0][self._having(_INPUT, np.sort(_numbers_of(names)))]
        found: list[int] = np.unique(nodes).tolist()
        return found

    def reading_only(self, names: Collection[str]) -> list[int]:
        """Return the nodes whose inputs are all among these values, or omitted; it can hold a few others."""
        reads = np.zeros(len(self.encoded), np.bool_)
        nodes = self._named(_INPUT)[0]
        reads[nodes] = True  # a node without inputs is not among them
        reads[nodes[~np.isin(self._read, _numbers_of(names), kind="sort")]] = False
        return np.flatnonzero(reads).tolist()

    def read_by(self, places: Iterable[int]) -> set[str]:
        """Return the inputs of some nodes."""
        return self._at(_INPUT, places)

    def made_by(self, places: Iterable[int]) -> set[str]:
        """Return what some nodes make."""
        return self._at(_OUTPUT, places)

    def feeding(self, places: Iterable[int]) -> list[int]:
        """Return the nodes that make inputs of some nodes; it can hold a few others."""
        found, made = self._made_of_read
        wanted = self._among(places)[self._named(_INPUT)[0]]
        makers = np.zeros(len(self.encoded), np.bool_)
        makers[self.made[1][made[found & wanted]]] = True
        return np.flatnonzero(makers).tolist()

    def _among(self, places: Iterable[int]) -> NDArray[np.bool_]:
        """Return for each node whether it is one of some."""
        chosen = np.zeros(len(self.encoded), np.bool_)
        chosen[list(places)] = True
        return chosen

    def _at(self, number: int, places: Iterable[int]) -> set[str]:
        """Return the strings in the fields of a number of some nodes, less those that are empty."""
        nodes, starts, stops, _ = self._named(number)
        wanted = self._among(places)[nodes]
        return set(self._decoded(starts[wanted], stops[wanted]))

    def made_among(self, names: Collection[str]) -> set[str]:
        """Return those of some values that nodes make."""
        return {name for name, nodes in self._of_names(_OUTPUT, names).items() if nodes}

    def _of_names(self, number: int, names: Collection[str]) -> dict[str, list[int]]:
        """Return the nodes that have these names in the fields of a number."""
        nodes, starts, stops, _ = self._named(number)
        found = self._having(number, np.sort(_numbers_of(names)))
        encoded = [name.encode() for name in names]
        whole, readers = self.encoded.whole, {name: dict[int, None]() for name in encoded}
        spans = zip(*(column[found].tolist() for column in (nodes, starts, stops)), strict=True)
        for node, start, stop in spans:
            if (name := whole[start:stop]) in readers:  # the same number, and the same name
                readers[name][node] = None
        return {name: list(readers[each]) for name, each in zip(names, encoded, strict=True)}

    def _having(self, number: int, asked: _Numbers) -> _Places:
        """Return the places in `_named` of names with these numbers."""
        # few names: one comparison each is faster than sorting all
        if len(asked) <= _MOST_ALONE and number not in self._sorted:
            named = self._named(number)[3].view(np.uint64)
            return np.flatnonzero(np.logical_or.reduce([named == each for each in asked], axis=0))
        numbers, order = self._by_number(number)
        begins, ends = (np.searchsorted(numbers, asked, side) for side in ("left", "right"))
        sizes = ends - begins
        # all places between begins and ends, in one array
        places = np.repeat(begins - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
        return np.sort(order[places])

    def outside(self) -> set[str]:
        """Return the inputs of nodes that no node makes; it can hold a few others."""
        _, starts, stops, _ = self._named(_INPUT)[:, ~self._is_inside]
        whole, spans = self.encoded.whole, zip(starts.tolist(), stops.tolist(), strict=True)
        return {each.decode() for each in {whole[start:stop] for start, stop in spans}}

    def is_used(self, names: Collection[str]) -> bool:
        """Return whether each node is known to make one of these values, or one that the inputs of nodes are."""
        makers = self.made[1][self._made_of_read[1][self._is_inside]]
        # nodes with outputs, until a reader is found
        unused = np.bincount(self._fields(_OUTPUT)[0], minlength=len(self.encoded)) > 0
        unused[makers] = False
        unused[list(chain.from_iterable(map(self.makers, names)))] = False
        return not unused.any()

    @cached_property
    def _is_inside(self) -> NDArray[np.bool_]:
        """For each input of a node: whether a node makes it, as far as `_made_of_read` tells."""
        found, made = self._made_of_read
        _, starts, stops, _ = self._named(_INPUT)
        inside = np.flatnonzero(found)
        same = _same(  # where the numbers are equal, the bytes decide
            self._bytes, starts[inside], stops[inside], *self._named(_OUTPUT)[1:3, made[inside]]
        )
        known = found.copy()
        known[inside] = same
        return known

    @cached_property
    def _read(self) -> _Numbers:
        """The numbers of the inputs of nodes."""
        numbers: _Numbers = self._named(_INPUT)[3].view(np.uint64)
        return numbers

    @cached_property
    def is_made_once(self) -> bool:
        """Whether each value is known to have one producer."""
        numbers, _ = self._by_number(_OUTPUT)
        # equal neighbors in a sorted list: made twice, or (hardly ever) two names with one number
        return not np.any(numbers[1:] == numbers[:-1])

    @cached_property
    def is_sorted(self) -> bool:
        """Whether the nodes are known to be in topological order."""
        if not len(self.made[0]):
            return True
        if not self.is_made_once or len(self.bodied) > _MOST_BODIED:
            return False
        # bodies capture values: those reads are not among the inputs
        return not self._reads_late() and not any(
            place >= reader
            for reader in self.bodied
            for name in captured(self.node(reader))
            for place in self.makers(name)
        )

    def _reads_late(self) -> bool:
        """Return whether an input is made by its node, or behind it."""
        found, places = self._made_of_read
        # made at the node or behind it
        return bool(np.any(found & (self.made[1][places] >= self._named(_INPUT)[0])))

    def _by_number(self, number: int) -> tuple[_Numbers, _Places]:
        """Return the numbers of the names in the fields of a number, sorted, and the place of each in `_named`."""
        if number not in self._sorted:
            numbers = self._named(number)[3].view(np.uint64)
            order = np.argsort(numbers, kind="stable")
            self._sorted[number] = numbers[order], order
        return self._sorted[number]

    @cached_property
    def _made_of_read(self) -> tuple[NDArray[np.bool_], _Places]:
        """For each input of a node: whether a node makes a value of its number, and its place in `made`."""
        numbers, order = self._by_number(_OUTPUT)
        if not len(numbers):
            return np.zeros(len(self._read), np.bool_), np.zeros(0, np.int64)
        # binary search of all inputs among all outputs at once
        places = np.minimum(np.searchsorted(numbers, self._read), len(numbers) - 1)
        found = numbers[places] == self._read
        return found, order[places]

    @property
    def operators(self) -> frozenset[str]:
        """The operators of nodes, of any domain."""
        return self._distinct(_OPERATOR)

    @property
    def domains(self) -> frozenset[str]:
        """The domains of operators, '' for ONNX's own."""
        return frozenset({""}.union(map(plain_domain, self._distinct(_DOMAIN))))

    def _distinct(self, number: int) -> frozenset[str]:
        """Return the strings in the fields of a number."""
        if number not in self._strings:
            whole = self.encoded.whole
            found = {whole[start:stop] for start, stop in in_rows(*self._fields(number)[1:3])}
            self._strings[number] = frozenset(each.decode() for each in found)
        return self._strings[number]

    def unlike(self) -> list[int]:
        """Return the first node of each operator, number of values and attributes."""
        # one number for each node, refined by one property after the other
        kinds = np.zeros(len(self.encoded), np.int64)
        for number in (_OPERATOR, _DOMAIN):
            kinds = _together(kinds, np.unique(self._hashed(number), return_inverse=True)[1])
        for number in _NAMES:
            counts = np.bincount(self._fields(number)[0], minlength=len(self.encoded))
            kinds = _together(kinds, counts)
        # nodes with attributes are compared by the bytes of these
        attributes = defaultdict[int, list[bytes]](list)
        for node, start, stop in in_rows(*self._fields(_ATTRIBUTE)[:3]):
            attributes[node].append(self.encoded.whole[start:stop])
        # of all others, the first of each kind
        plain = np.setdiff1d(np.arange(len(self.encoded)), self._fields(_ATTRIBUTE)[0])
        found = plain[np.unique(kinds[plain], return_index=True)[1]].tolist()
        seen = dict[tuple[int | bytes, ...], int]()
        for node, held in attributes.items():
            seen.setdefault((kinds[node].item(), *held), node)
        return sorted(chain(found, seen.values()))

    def _hashed(self, number: int) -> _Numbers:
        """Return for each node the number of the string in a field that it has at most once."""
        nodes, starts, stops, _ = self._fields(number)
        numbers = np.zeros(len(self.encoded), np.uint64)
        numbers[nodes] = _numbers(self._bytes, starts, stops)
        return numbers

    def twins(self, alike: Mapping[str, bytes]) -> list[int]:
        """Return the nodes whose operator and inputs another one has, too; it can hold a few others.

        Args:
            alike: content of constants; those with one content are one input.
        """
        # The sum of mixed numbers of (input, slot): equal for equal inputs in equal slots.
        count, nodes = len(self.encoded), self._fields(_INPUT)[0]
        read = self._fields(_INPUT)[3].view(np.uint64).copy()
        for names in _of_one_content(alike):  # constants of one content count as one name
            numbers = _numbers_of(names)
            read[np.isin(read, numbers, kind="sort")] = numbers[0]
        kinds = self._hashed(_OPERATOR)
        begins = _begins(nodes)  # of the inputs of one node
        slots = np.arange(len(nodes)) - np.repeat(begins, np.diff(begins, append=len(nodes)))
        mixed = (read ^ (read >> np.uint64(29)) ^ _FACTOR) * (2 * slots.astype(np.uint64) + _FACTOR)
        kinds[nodes[begins]] += np.add.reduceat(mixed, begins) if len(begins) else 0
        order = np.argsort(kinds, kind="stable")
        same = np.zeros(count + 1, np.bool_)  # in sorted order, neighbors with one number are twins
        same[1:-1] = kinds[order][1:] == kinds[order][:-1]
        found: list[int] = np.sort(order[same[1:] | same[:-1]]).tolist()
        return found

    def downstream(self, values: Collection[str]) -> set[str]:
        """Return what nodes make that depends on values; they are in topological order, and have no bodies."""
        # one byte for each node; in topological order, one walk is enough
        seen = bytearray(len(self.encoded))
        for place in chain.from_iterable(self.readers(values).values()):
            seen[place] = True
        inside = np.flatnonzero(self._is_inside)
        makers = self.made[1][self._made_of_read[1][inside]]
        # for each input that a node makes
        for reader, maker in in_rows(self._named(_INPUT)[0][inside], makers):
            if seen[maker]:
                seen[reader] = True
        columns = self._named(_OUTPUT)
        spans = columns[1:3, np.frombuffer(seen, np.bool_)[columns[0]]]
        return {self.encoded.whole[start:stop].decode() for start, stop in in_rows(*spans)}

    @cached_property
    def rows(self) -> list[NodeRow]:
        """Every node as plain data."""
        return list(map(NodeRow.of, GraphProto.FromString(self.encoded.whole).node))

    def _decoded(self, starts: _Places, stops: _Places) -> list[str]:
        """Return the strings between some places."""
        whole = self.encoded.whole
        text = whole.decode("latin-1")  # one character for each byte, so that places stay the same
        found = [text[start:stop] for start, stop in in_rows(starts, stops)]
        if not all(map(str.isascii, found)):
            for place, each in enumerate(found):
                if not each.isascii():
                    found[place] = whole[starts[place] : stops[place]].decode()
        return found

    def _named(self, number: int) -> _Places:
        """Return the fields of a number that are not empty, as `_fields`."""
        if number not in self._with_names:
            columns = self._fields(number)
            named = columns[2] > columns[1]  # '' is an omitted input
            self._with_names[number] = columns if named.all() else columns[:, named]
        return self._with_names[number]

    def _fields(self, number: int) -> _Places:
        """Return the fields of a number, in order: rows of nodes, starts, stops, numbers of those that are names."""
        return self._columns.get(number, _NOTHING)

    @cached_property
    def _columns(self) -> dict[int, _Places]:
        """Field number -> fields."""
        return self._scanned(range(len(self.encoded)))

    def _scanned(self, places: range) -> dict[int, _Places]:
        """Return the fields of some nodes."""
        nodes, chosen = np.arange(places.start, places.stop), slice(places.start, places.stop)
        at, end = self.encoded.starts[chosen], self.encoded.stops[chosen]
        found = list[tuple[int, _Places]]()
        odd = np.zeros(places.stop, np.bool_)
        # One field of every node in each round, for all nodes at once: nodes with few fields drop out early.
        for _ in range(_MOST_FIELDS):
            left = at < end
            if not left.all():
                nodes, at, end = nodes[left], at[left], end[left]
            if not len(nodes):
                break
            tags = self._bytes[at]
            starts, at = self._ends(at + 1)
            # 0x87 keeps the wire type and the mark of longer tags: what is left must be a short field of bytes (2).
            foreign = (tags & 0x87 != 2) | (at > end)  # tag byte: field number * 8 + wire type
            if foreign.any():
                odd[nodes[foreign]] = True  # read one by one below
                at[foreign] = end[foreign]
            columns = np.stack((nodes, starts, at))
            # one block of columns for each field number in this round
            for tag in (present := np.flatnonzero(np.bincount(tags)).tolist()):
                if tag >> 3 in _READ:
                    found.append(
                        (tag >> 3, columns if len(present) == 1 else columns[:, tags == tag])
                    )
        odd[nodes[at < end]] = True  # more than _MOST_FIELDS
        if odd.any():
            found = [(number, columns[:, ~odd[columns[0]]]) for number, columns in found]
            found += self._one_by_one(np.flatnonzero(odd).tolist())
        by_number = defaultdict[int, list[_Places]](list)
        for number, columns in found:
            by_number[number].append(columns)
        return {number: self._in_order(number, some) for number, some in by_number.items()}

    def _in_order(self, number: int, some: Sequence[_Places]) -> _Places:
        """Return the fields of a number as `_fields`."""
        columns = np.concatenate(some, axis=1)
        if len(some) > 1:  # rounds do not keep the order of nodes
            columns = columns[:, np.argsort(columns[0], kind="stable")]
        names = _numbers(self._bytes, *columns[1:]) if number in _NAMES else columns[0]
        return np.concatenate((columns, names.view(np.int64)[None]))

    def _ends(self, at: _Places) -> tuple[_Places, _Places]:
        """Return where fields start and stop, whose sizes are at these places."""
        sizes = self._bytes[at].astype(np.int64)
        # a varint: seven bits in each byte, the eighth says that more follow
        start, shift = at + 1, 7
        more = np.flatnonzero(sizes > 127)
        while len(more) and shift < 35:
            digit = self._bytes[start[more]].astype(np.int64)
            sizes[more] += (digit - 1) << shift  # less the mark in the digit before
            start[more] += 1
            more, shift = more[digit > 127], shift + 7
        return start, start + sizes

    def _one_by_one(self, nodes: Iterable[int]) -> Iterator[tuple[int, _Places]]:
        """Yield the fields of nodes that have many, or some that ONNX does not know."""
        encoded = self.encoded
        for node in nodes:
            for number, start, stop in fields(
                encoded.whole, encoded.starts[node].item(), encoded.stops[node].item()
            ):
                yield number, np.array([[node], [start], [stop]])


def in_rows(*columns: _Places) -> Iterator[tuple[int, ...]]:
    """Yield the rows of columns of numbers; few of them are objects at a time."""
    for start in range(0, len(columns[0]), _CHUNK):
        some = (column[start : start + _CHUNK].tolist() for column in columns)
        yield from zip(*some, strict=True)


_latest = deque[NodeTable](maxlen=2)


def _together(kinds: _Places, others: _Places) -> _Places:
    """Return a number for each pair of small numbers."""
    pairs = kinds * (others.max(initial=0) + 1) + others  # a pair as one number, then numbered anew
    found: _Places = np.unique(pairs, return_inverse=True)[1]
    return found


def _of_one_content(alike: Mapping[str, bytes]) -> Iterator[list[str]]:
    """Yield the names that share a content."""
    names = defaultdict[bytes, list[str]](list)
    for name, content in alike.items():
        names[content].append(name)
    return (each for each in names.values() if len(each) > 1)


def _begins(numbers: _Numbers | _Places) -> _Places:
    """Return where runs of one number begin."""
    return np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]) if len(numbers) else numbers)


def _numbers_of(names: Iterable[str]) -> _Numbers:
    """Return the number of each name."""
    encoded = [name.encode() for name in names]
    ends = np.cumsum([0, *map(len, encoded)])
    data = np.frombuffer(b"".join(encoded) + bytes(_WORD), np.uint8)
    return _numbers(data, ends[:-1], ends[1:])


def _numbers(data: NDArray[np.uint8], starts: _Places, stops: _Places) -> _Numbers:
    """Return the number of each name; equal names have one number, others nearly always have another."""
    sizes = stops - starts
    # Eight bytes of every name in each round, mixed into its number; short names drop out early.
    numbers = sizes.astype(np.uint64)
    left = np.arange(len(sizes))
    for step in range(0, _WORD * _MOST_WORDS, _WORD):
        left = left[sizes[left] > step]
        if not len(left):
            break
        mixed = (numbers[left] ^ _words(data, starts[left], stops[left], step)) * _FACTOR
        numbers[left] = mixed ^ (mixed >> np.uint64(29))
    return numbers


def _same(
    data: NDArray[np.uint8], starts: _Places, stops: _Places, others: _Places, ends: _Places
) -> NDArray[np.bool_]:
    """Return whether names are equal, pair by pair."""
    sizes = stops - starts
    same: NDArray[np.bool_] = sizes == ends - others
    left = np.flatnonzero(same)
    for step in range(0, int(sizes.max(initial=0)), _WORD):
        left = left[sizes[left] > step]
        one = _words(data, starts[left], stops[left], step)
        same[left] &= one == _words(data, others[left], ends[left], step)
    return same


def _words(data: NDArray[np.uint8], starts: _Places, stops: _Places, step: int) -> _Numbers:
    """Return eight bytes of each name, which is longer than `step`, from there on, with zeros for those behind it."""
    # a view of the bytes as overlapping words
    words: _Numbers = np.ndarray(len(data) - _WORD + 1, "<u8", data, strides=(1,))
    # bytes of the word that are behind the name are shifted out
    missing = np.maximum(_WORD + step - (stops - starts), 0).astype(np.uint64)
    found: _Numbers = words[starts + step] << (missing * np.uint64(8))
    return found


def _distinct(*names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(chain.from_iterable(names)) if name]


def captured(node: NodeProto) -> list[str]:
    """Return the values of enclosing scopes that a node's subgraphs use, at any depth."""
    return list(chain.from_iterable(map(captured_by, walk.inner([node]))))


def every_read(node: NodeProto) -> list[str]:
    """Return the names that a node reads, then those that its subgraphs capture; with repeats and ''."""
    names: list[str] = node.input[:]
    return names + captured(node) if node.attribute else names


def captured_by(graph: GraphProto) -> list[str]:
    """Return the values of enclosing scopes that a subgraph uses, at any depth."""
    # A name is captured if nothing in the subgraph defines it.
    local = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    local |= {sparse.values.name for sparse in graph.sparse_initializer}
    used = list[str]()
    for inner in graph.node:
        local.update(inner.output)
        used += inner.input
        if inner.attribute:
            used += captured(inner)
    used += (v.name for v in graph.output)
    return [name for name in used if name and name not in local]
