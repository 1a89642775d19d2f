"""Read the tables of a flatbuffer by the numbers of their fields (https://flatbuffers.dev/internals).

The file is untrusted: every offset is read from its bytes, and vectors that overlap end the reading.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from onnxsurgeon_lite.errors import ReferenceSetError
from onnxsurgeon_lite.untrusted import require_regular

_LARGEST = 1 << 31  # bytes: the format's own limit


@dataclass(frozen=True)
class Fields:
    """A table of a flatbuffer; fields that are absent are empty, or have their default.

    Attributes:
        at: the place of the first byte.
        looked_at: counts elements of vectors, which may overlap in a hostile file.
    """

    data: bytes
    at: int
    looked_at: Iterator[int]

    def number(self, field: int, layout: str, default: int = 0) -> int:
        return self._read(layout, at) if (at := self._place(field)) else default

    def table(self, field: int) -> "list[Fields]":
        """Return the table in a field, if there is one."""
        return [self._behind(at)] if (at := self._place(field)) else []

    def tables(self, field: int) -> "list[Fields]":
        return [self._behind(at) for at in self._elements(field, 4)]

    def numbers(self, field: int) -> tuple[int, ...]:
        return tuple(self._read("q", at) for at in self._elements(field, 8))

    def text(self, field: int) -> str:
        return bytes(self.data[at] for at in self._elements(field, 1)).decode()

    def _behind(self, at: int) -> "Fields":
        return Fields(self.data, at + self._read("I", at), self.looked_at)

    def _elements(self, field: int, size: int) -> Iterator[int]:
        """Yield the place of each element of a vector."""
        for vector in self.table(field):
            for index in range(vector._read("I", vector.at)):
                if next(self.looked_at) > len(self.data):
                    raise ReferenceSetError("its vectors overlap")
                yield vector.at + 4 + size * index

    def _place(self, field: int) -> int:
        """Return where a field lies, 0 if it is absent; the list of places lies before the table."""
        # where the list begins, counted backwards from the table; its own size is its first entry
        places = self.at - self._read("i", self.at)
        entry = 4 + 2 * field
        offset = self._read("H", places + entry) if entry < self._read("H", places) else 0
        return offset and self.at + offset

    def _read(self, layout: str, at: int) -> int:
        return int(struct.unpack_from(f"<{layout}", self.data, at)[0])


def root_of(path: Path, identifier: bytes, kind: str) -> Fields:
    """Return the table that a flatbuffer with this identifier begins with."""
    data = require_regular(path, None, _LARGEST).read_bytes()
    # the file may begin with its size
    for start in (0, 4):
        if data[start + 4 : start + 8] == identifier:
            return Fields(data, start, count())._behind(start)
    raise ReferenceSetError(f"{str(path)!r} is no {kind}")
