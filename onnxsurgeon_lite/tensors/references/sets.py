"""A reference set: named tensors, each read on demand."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from onnxsurgeon_lite.errors import ReferenceSetError, UnknownNameError, said
from onnxsurgeon_lite.remote import Remote
from onnxsurgeon_lite.system import physical_memory
from onnxsurgeon_lite.tensors.dtypes import DType, Shape, Stored
from onnxsurgeon_lite.tensors.in_file import InFile, Rows
from onnxsurgeon_lite.untrusted import UNREADABLE


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
        stored_as: its name in the set, where it has another one here.
        computed_in: the half precision that went into it, which bounds its precision whatever its dtype.
    """

    read: Callable[[], Stored]
    shape: Shape | None = None
    data_type: str | None = None
    scope: str = ""
    class_name: str = ""
    source: str = ""
    is_input: bool = False
    size: int = 0
    stored_as: str = ""
    computed_in: DType | None = None

    def may_have(self, shape: Shape | None) -> bool:
        """Return whether it may have a shape: one that is not known is any."""
        return None in (shape, self.shape) or shape == self.shape

    @property
    def in_file(self) -> InFile | None:
        """What reads some of its rows, where its file permits that."""
        place = self.read
        if isinstance(place, InFile) and place.size:
            # each read of a remote file is a request
            return None if isinstance(place.path, Remote) else place
        return None


@dataclass(frozen=True)
class ReferenceSet:
    """Stored tensors of one sample, by name.

    Attributes:
        place: the path, as the user wrote it.
        notes: remarks for the reader on how the tensors were found.
        doubts: remarks that matter only where values mismatch.
        left_over: tensors behind the last one that matches a value of the model.
        exchanged: what tells that the model's outputs are in another order.
        outputs: what the recorded model returns, in order, if that is known.
        bodies: for computed tensors: value -> the values inside the node that produces it (`body/q[3]`).
        prefetch: for computed tensors: receives the names that are read next.

    Example:
        >>> references = osl.open_references("references/whole_model.npz")
        >>> references.read("28").shape
        (1, 3, 20, 20)
    """

    place: str
    entries: Mapping[str, Entry]
    notes: tuple[str, ...] = ()
    prefetch: Callable[[Sequence[str]], None] = lambda _: None
    bodies: Callable[[str], Mapping[str, Entry]] | None = None
    doubts: tuple[str, ...] = ()
    left_over: tuple[str, ...] = ()
    exchanged: str = ""
    outputs: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        tensors: Mapping[str, Stored],
        place: str = "the tensors given",
        inputs: Sequence[str] = (),
        coarse: Mapping[str, DType] | None = None,
    ) -> "ReferenceSet":
        """Make a set of arrays in memory.

        Args:
            inputs: those that were given to the model.
            coarse: the half precision that went into them; see `Entry.computed_in`.
        """
        half = coarse or {}
        entries = {
            n: Entry(partial(_itself, t), is_input=n in inputs, computed_in=half.get(n))
            for n, t in tensors.items()
        }
        return cls(place, entries)

    @property
    def program(self) -> Path | None:
        """The recorded module as an ONNX model, which a recording may hold beside the tensors."""
        stored = Path(self.place, "program.onnx")
        return stored if stored.is_file() else None

    def inside(self, node_id: str, value: str) -> Mapping[str, Entry]:
        """Return the values inside the node that produces a value (`body/q[3]`), stored under the node's id."""
        if self.bodies is not None:  # a model or module answers itself
            return self.bodies(value)
        start = f"{node_id}/"  # recorded sets hold inner values as `@12/body/q`
        return {n.removeprefix(start): e for n, e in self.entries.items() if n.startswith(start)}

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def rows(self, name: str) -> Rows:
        """Return a tensor whose rows are read when it is sliced, if its file permits that; a sequence is empty."""
        place = self.entries[name].in_file if name in self.entries else None
        stored = place or self.read(name)
        return np.empty(0) if isinstance(stored, list) else stored

    def read(self, name: str) -> Stored:
        """Return the tensor stored under a name.

        Raises:
            UnknownNameError: the set has no such name.
            ReferenceSetError: the tensor cannot be read.
        """
        if name not in self.entries:
            raise UnknownNameError(name, repr(self.place), self.entries)
        # a damaged size must not take all memory
        size = self.entries[name].size
        if size > (memory := _memory()):
            raise ReferenceSetError(
                f"{name!r} takes {size} bytes, more than this machine's memory of {memory}"
            )
        try:
            return self.entries[name].read()
        except ReferenceSetError:
            raise
        except UNREADABLE as error:
            raise ReferenceSetError(
                f"cannot read {name!r} from {self.place!r}: {said(error)}"
            ) from error


def chosen(sample: int, count: int, place: Path) -> tuple[int, list[str]]:
    """Return the number of a sample, that of the last one if there are fewer, and a note if there are others."""
    number = min(sample, count - 1)
    return number, [f"{str(place)!r} has {count} samples: using number {number}"] * (count > 1)


def _itself(tensor: Stored) -> Stored:
    return tensor


@functools.cache
def _memory() -> int:
    return physical_memory()
