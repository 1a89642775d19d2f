"""A reference set: named tensors, each read on demand."""

import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from google.protobuf.message import DecodeError

from onnxsurgeon_lite.errors import ReferenceSetError, SurgeonError, UnknownNameError
from onnxsurgeon_lite.tensors.dtypes import Array

Stored = Array | list[Array]

UNREADABLE = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    EOFError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
    DecodeError,
)
"""Exceptions that a damaged file can cause."""


@dataclass(frozen=True)
class Entry:
    """One stored value.

    Attributes:
        read: reads the tensor.
        shape: None if it is only known after reading.
        data_type: the ONNX name of the dtype; None if it is only known after reading.
        scope, class_name, source: the module that computed the value, its class, and the line that calls it
            (`model.py:17`), if recorded.
        is_input: the value was fed to the model, not computed by it.
        size: approximate memory that reading it takes, in bytes.
    """

    read: Callable[[], Stored]
    shape: tuple[int, ...] | None = None
    data_type: str | None = None
    scope: str = ""
    class_name: str = ""
    source: str = ""
    is_input: bool = False
    size: int = 0


@dataclass(frozen=True)
class ReferenceSet:
    """Stored tensors of one sample, by name.

    Attributes:
        place: the path, as the user wrote it.
        notes: remarks for the reader on how the tensors were found.
        bodies: for computed tensors: value -> the values inside the node that produces it (`body/q[3]`).
        prefetch: for computed tensors: receives the names that are read next.
    """

    place: str
    entries: Mapping[str, Entry]
    notes: tuple[str, ...] = ()
    prefetch: Callable[[Sequence[str]], None] = lambda _: None
    bodies: Callable[[str], Mapping[str, Entry]] | None = None

    @classmethod
    def of(
        cls,
        tensors: Mapping[str, Stored],
        place: str = "the tensors given",
        inputs: Sequence[str] = (),
    ) -> "ReferenceSet":
        """Make a set of arrays in memory; `inputs` are those that were given to the model."""
        entries = {n: Entry(partial(_itself, t), is_input=n in inputs) for n, t in tensors.items()}
        return cls(place, entries)

    def inside(self, node_id: str, value: str) -> Mapping[str, Entry]:
        """Return the values inside the node that produces a value (`body/q[3]`), stored under the node's id."""
        if self.bodies is not None:
            return self.bodies(value)
        start = f"{node_id}/"
        return {n.removeprefix(start): e for n, e in self.entries.items() if n.startswith(start)}

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def read(self, name: str) -> Stored:
        """Return the tensor stored under a name.

        Raises:
            UnknownNameError: the set has no such name.
            ReferenceSetError: the tensor cannot be read.
        """
        if name not in self.entries:
            raise UnknownNameError(name, repr(self.place), self.entries)
        try:
            return self.entries[name].read()
        except ReferenceSetError:
            raise
        except (*UNREADABLE, SurgeonError, MemoryError) as error:
            raise ReferenceSetError(f"cannot read {name!r} from {self.place!r}: {error}") from error


def _itself(tensor: Stored) -> Stored:
    return tensor
