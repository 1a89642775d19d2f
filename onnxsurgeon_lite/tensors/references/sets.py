"""What a reference set is: names, and for each one tensor that is read when it is asked for."""

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
"""What reading a damaged file can raise."""


@dataclass(frozen=True)
class Entry:
    """One stored value.

    Attributes:
        read: brings the numbers.
        shape: where it is known without reading.
        data_type: the ONNX dtype's name, where it is known without reading.
        scope, class_name, source: the module that the value comes from, its class, and the line that calls it
            (`model.py:17`), where that was recorded.
        is_input: whether it was given to the model and not computed by it, where that was recorded.
        size: bytes that reading it brings here, about.
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
    """Stored tensors by name, of one sample.

    Attributes:
        place: where they are, as the user wrote it.
        notes: what a reader should know of how they were found.
        bodies: of a set whose tensors are computed: value -> those inside the node that makes it (`body/q[3]`).
        prefetch: told which are read next, for a set whose tensors are computed.
    """

    place: str
    entries: Mapping[str, Entry]
    notes: tuple[str, ...] = ()
    prefetch: Callable[[Sequence[str]], None] = lambda _: None
    bodies: Callable[[str], Mapping[str, Entry]] | None = None

    @classmethod
    def of(
        cls, tensors: Mapping[str, Stored], place: str = "the tensors given", inputs: Sequence[str] = ()
    ) -> "ReferenceSet":
        """Make a set of arrays in memory; `inputs` are those that were given to the model."""
        entries = {n: Entry(partial(_itself, t), is_input=n in inputs) for n, t in tensors.items()}
        return cls(place, entries)

    def inside(self, node_id: str, value: str) -> Mapping[str, Entry]:
        """What there is of the bodies of the node that makes a value (`body/q[3]`), stored under the node's id."""
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
        """The tensor stored under a name.

        Raises:
            UnknownNameError: there is none.
            ReferenceSetError: it cannot be read.
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
