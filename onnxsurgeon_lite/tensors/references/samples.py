"""Several samples: folders, files, rows of arrays, a generator, a data set; each is read when it is needed."""

import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import cast

import numpy as np

from onnxsurgeon_lite.errors import ReferenceSetError, UsageError
from onnxsurgeon_lite.names import calling, function_at, is_function
from onnxsurgeon_lite.remote import placed
from onnxsurgeon_lite.tensors.dtypes import Array, Stored, is_array
from onnxsurgeon_lite.tensors.in_file import Rows
from onnxsurgeon_lite.tensors.references.reading import (
    INDEX,
    Tensors,
    numpy_array,
    open_references,
    own_samples,
    read_npz,
    readable,
    sample_folders,
)
from onnxsurgeon_lite.tensors.references.sets import Entry, ReferenceSet
from onnxsurgeon_lite.tensors.references.writing import FolderWriter

Axes = tuple[int, int | None]
"""How many axes an input has, and the size of the first one, None where it is open."""

At = Callable[[int], ReferenceSet]
HUGGINGFACE = "hf:"
_IN_MEMORY = 64 << 20  # bytes of a compressed array that is read whole


@dataclass(frozen=True)
class Samples:
    """Reference sets by the number of their sample; a copy in another process opens them there.

    Attributes:
        given: a path, tensors by name, or a list of these; `FILE.py:function` yields them, `hf:NAME:SPLIT` is a data
            set of HuggingFace.
        inputs, outputs: the model's names, for tensors that have none.
        axes: of the model's inputs: an array of one axis more, or of some times the first size, holds rows of samples.
        rows: how many samples the arrays hold, where that is known; None where the axes tell.

    Example:
        >>> osl.Samples("references/whole_model.npz").count
        1
    """

    given: Tensors | Sequence[Tensors]
    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    axes: Mapping[str, Axes] = field(default_factory=dict)
    rows: int | None = None

    @property
    def count(self) -> int | None:
        """How many there are; None where that shows at the end."""
        return None if self.flows else self._opened[0]

    @property
    def flows(self) -> bool:
        """Whether they come one after the other, and only once."""
        place = self.given
        # a file may be called like a function
        if not isinstance(place, str) or os.path.lexists(place):
            return False
        return is_function(place) or place.startswith(HUGGINGFACE)

    @property
    def travels(self) -> bool:
        """Whether another process can open them."""
        return isinstance(self.given, str | PathLike) and not self.flows

    def at(self, number: int) -> ReferenceSet:
        """Open one sample.

        Raises:
            ReferenceSetError: there is nothing readable.
        """
        count, at = self._opened
        if not 0 <= number < count:
            raise ReferenceSetError(f"{self.place!r} has {count} samples, none of number {number}")
        return at(number)

    @property
    def place(self) -> str:
        """How messages call them."""
        return str(self.given) if isinstance(self.given, str | PathLike) else "the tensors given"

    def first(self) -> ReferenceSet:
        """Return the first sample."""
        return self.at(0)

    def in_rows(self, count: int | None) -> "Samples":
        """Return the samples whose arrays hold rows of so many; None for a number that is not known."""
        return self if count is None else replace(self, rows=count)

    def __iter__(self) -> Iterator[ReferenceSet]:
        if self.flows:
            return map(self._named, _flow(str(self.given)))
        return map(self.at, range(self._opened[0]))

    def __getstate__(self) -> dict[str, object]:
        # what is open stays in this process
        return {name: value for name, value in vars(self).items() if name != "_opened"}

    @cached_property
    def _opened(self) -> tuple[int, At]:
        """(how many, what opens one)."""
        if isinstance(self.given, list | tuple):
            # each is one sample
            several = [Samples(each, self.inputs, self.outputs) for each in self.given]
            return len(several), lambda number: several[number].at(0)
        if isinstance(self.given, str | PathLike):
            path = placed(self.given)
            with readable(path):
                found = self._of_folder(path)
            if found is not None:
                return found
        whole = open_references(cast(Tensors, self.given), self.inputs, self.outputs)
        return _rows(whole, self.axes, self.rows) or (1, lambda _: whole)

    def _of_folder(self, path: Path) -> tuple[int, At] | None:
        if not path.is_dir():
            return None
        if (path / INDEX).is_file():  # our own folder: several samples in one index
            found = own_samples(path)
            numbers = sorted(found) or [0]
            return len(numbers), lambda n: found.get(numbers[n], ReferenceSet(str(path), {}))
        files = sample_folders(path)
        if not files and not any(path.glob("*.pb")):  # files of samples
            files = sorted(chain(path.glob("*.npz"), path.glob("*.safetensors")))
        if not files:
            return None
        return len(files), lambda n: open_references(files[n], self.inputs, self.outputs)

    def _named(self, row: object) -> ReferenceSet:
        """Return what a generator yielded: tensors by name, or in the order of the inputs."""
        if isinstance(row, ReferenceSet):
            return row
        if not isinstance(row, Mapping):
            # a tuple has the inputs in order, anything else is the first
            values = row if isinstance(row, tuple) else (row,)
            row = dict(zip(self.inputs, values, strict=False))
        named = {str(name): self._batched(str(name), value) for name, value in row.items()}
        return open_references(named, self.inputs)

    def _batched(self, name: str, value: Stored) -> Stored:
        """Return what was yielded for an input, with the first axis, of one, where only that lacks."""
        rank, first = self.axes.get(name, (0, None))
        # [3, 224, 224] for an input [1, 3, 224, 224]
        lacks = is_array(value) and value.ndim == rank - 1 and first in (None, 1)
        return np.expand_dims(value, 0) if lacks else value


def spooled(samples: Iterable[ReferenceSet], folder: Path) -> Samples:
    """Store samples that come only once, so that each can be read again."""
    with FolderWriter(folder) as writer:
        for number, sample in enumerate(samples):
            for name in sample:
                writer.add(name, sample.read(name), {"kind": "input"}, number)
    return Samples(str(folder))


def _flow(place: str) -> Iterator[object]:
    """Yield the rows of a generator or a data set."""
    rows = _data_set(place) if place.startswith(HUGGINGFACE) else _generated(place)
    with calling(place):
        yield from rows


def _generated(place: str) -> Iterable[object]:
    with calling(place):
        return cast(Iterable[object], function_at(place, "samples")())


def _data_set(place: str) -> Iterable[object]:
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise UsageError(f"{place!r} needs datasets", "pip install datasets") from error
    name, _, split = place.removeprefix(HUGGINGFACE).partition(":")
    with calling(place):
        # a data set that was stored with save_to_disk
        if any(Path(name, file).is_file() for file in ("state.json", "dataset_dict.json")):
            stored = datasets.load_from_disk(name)
            stored = stored[split] if split else stored
        else:
            stored = datasets.load_dataset(name, split=split or "train", streaming=True)
        return cast(Iterable[object], stored.with_format("numpy"))


def _rows(whole: ReferenceSet, axes: Mapping[str, Axes], rows: int | None) -> tuple[int, At] | None:
    """Return the samples of a set whose arrays hold rows of them; None if it is a sample itself."""
    # each array whole, mapped from its file where that is possible
    stacks = {name: _stack(whole.entries[name]) for name in axes if name in whole}
    steps = {name: _step(stack, *axes[name]) for name, stack in stacks.items()}
    cut = {name: step for name, step in steps.items() if step is not None}
    # all inputs that are cut must give the same number of samples
    counts = {len(stacks[name]) // (step or 1) for name, step in cut.items()}
    count = counts.pop() if counts else rows
    if counts or count is None:  # they disagree, or no array holds rows
        return None
    for name in whole.entries.keys() - axes.keys():  # references and labels beside the inputs
        stacks[name] = stack = _stack(whole.entries[name])
        if stack.ndim and len(stack) % count == 0:
            # labels without a batch axis follow the inputs
            cut[name] = 0 if 0 in cut.values() and len(stack) == count else len(stack) // count

    def at(number: int) -> ReferenceSet:
        entries = dict(whole.entries)
        for name, step in cut.items():
            read = partial(_row, stacks[name], number, step, f"{whole.place}:{name}")
            entries[name] = replace(entries[name], read=read, shape=None, size=0)
        return replace(whole, entries=entries)

    return count, at


def _step(stack: Rows, rank: int, first: int | None) -> int | None:
    """Return how many rows are a sample, 0 for one without its axis; None if the whole array is a sample."""
    if stack.ndim == rank + 1:  # one axis more than the input has: one row is a sample
        return 0
    if first is None or stack.ndim != rank or not first < len(stack):
        return None
    return first if first > 0 and len(stack) % first == 0 else None  # whole samples only


def _row(stack: Rows, number: int, step: int, place: str) -> Array:
    rows = (
        stack[number : number + 1][0] if step == 0 else stack[number * step : (number + 1) * step]
    )
    return numpy_array(lambda: np.asarray(rows), place)


def _stack(entry: Entry) -> Rows:
    """Return an array, or what reads its rows where they lie in a file as in memory; of a sequence one without axes."""
    if (rows := entry.in_file) is not None:
        return rows
    place = entry.read
    if entry.size > _IN_MEMORY and isinstance(place, partial) and place.func is read_npz:
        return _unpacked(*place.args)
    found = entry.read()
    return found if is_array(found) else np.empty(())


def _unpacked(archive: zipfile.ZipFile, member: str) -> Array:
    """Return a member of a compressed archive, mapped from a file that ends with the array."""
    # unpacked once into a file, which the system removes when the array goes
    with tempfile.NamedTemporaryFile() as file, archive.open(member) as packed:
        shutil.copyfileobj(packed, file)
        file.flush()
        return np.asarray(np.load(file.name, mmap_mode="r", allow_pickle=False))
