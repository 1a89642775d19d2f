"""Move a model's data into the model file, into one data file, or into a data file without gaps."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from onnx import ModelProto, TensorProto

from onnxsurgeon_lite.atomic import Staging, held
from onnxsurgeon_lite.errors import SharedDataError, UsageError, WriteError
from onnxsurgeon_lite.model import DataFile, Model, Written, save
from onnxsurgeon_lite.model.copying import copy_span
from onnxsurgeon_lite.model.messages import copied
from onnxsurgeon_lite.model.model import external_tensors, refer
from onnxsurgeon_lite.model.saving import MAX_PROTOBUF, embedded_size, finish
from onnxsurgeon_lite.model.sharing import foreign_content, other_users, require_unshared
from onnxsurgeon_lite.names import command
from onnxsurgeon_lite.shown import Progress, Shown, quiet

Spans = list[tuple[int, int]]
"""(start, stop) of bytes of a file."""


@dataclass(frozen=True, repr=False)
class Collected(Shown):
    """The result of `collect`.

    Attributes:
        files: the written files and their bytes: data files with unused bytes, and the model.
        before, after: bytes of these data files.
        planned: nothing was written, by `dry_run`.
    """

    files: Mapping[Path, int]
    before: int
    after: int
    planned: bool


@dataclass(frozen=True, repr=False)
class Moved(Shown):
    """What moving a model's data wrote, and a note for each old file that stays."""

    written: Written
    notes: tuple[str, ...]


def embed(model: Model, path: Path, *, force: bool = False, dry_run: bool = False) -> Written:
    """Write a model with all its data inside.

    Raises:
        WriteError: the file would exceed the size that protobuf reads.
    """
    size = embedded_size(model)
    if size > MAX_PROTOBUF:
        raise WriteError(
            f"{str(path)!r} would have {size} bytes, but protobuf reads at most {MAX_PROTOBUF}",
            "keep the data in a separate file: onnxdbg data external",
        )
    return save(model, path, external=False, force=force, dry_run=dry_run)


def move(
    model: Model,
    location: str,
    *,
    force: bool = False,
    dry_run: bool = False,
    tell: Progress = quiet,
) -> tuple[Written, list[str]]:
    """Move a model's data to another file, below the folder of the model.

    The old data files are removed, unless another model refers to them, or they hold anything else.

    Args:
        tell: is called for each file before it is removed.

    Returns:
        The written files, and a note for each file that stays; with `dry_run`, what would be written and removed.

    Raises:
        UsageError: the location is outside the model's folder.
        OutputExistsError: another file already exists there.
        SharedDataError: the data is already there, and another model refers to it.
    """
    path = _source_of(model)
    spans = _used(model)
    old = [file for file in model.files.values() if file.location is not None]
    for file in old:
        # the data is in that file already: it is rewritten in place
        if PurePosixPath(location) == PurePosixPath(str(file.location)):
            _require_own(path, file, spans.get(file, []))
    written = save(model, path, external=True, location=location, force=force, dry_run=dry_run)
    notes = []
    # a model that refers to the data is there by now, or finds it gone before it is
    with held(path):
        for file in old:
            # the old file is the new one
            if any(kept.exists() and file.path.samefile(kept) for kept in written.data_files):
                continue
            if reason := _reason_to_stay(path, file, spans.get(file, [])):
                notes.append(f"{file.location!r} stays: {reason}")
            elif dry_run:
                notes.append(f"{file.location!r} would be removed")
            else:
                tell(f"{file.location!r} is removed: its data is in {location!r} now")
                file.path.unlink(missing_ok=True)
    return written, notes


def collect(model: Model, *, dry_run: bool = False, tell: Progress = quiet) -> Collected:
    """Rewrite a model's data files in place, to exactly the bytes that the model refers to.

    Args:
        dry_run: write nothing, only report the sizes.
        tell: is called with the bytes that are removed, before that.

    Raises:
        SharedDataError: another model refers to one of the files, or one holds anything but a model's data.
        SourceChangedError: a file changed after the load.
    """
    path = _source_of(model)
    proto = copied(model.proto)
    by_file = _by_file(model, proto)
    kept = _used(model)
    loose = {
        file: found
        for file, found in by_file.items()
        # a file whose bytes are all used needs nothing
        if file.location is not None and kept[file] != [(0, file.size)]
    }
    for file in loose:
        _require_own(path, file, kept[file])
    before = sum(file.size for file in loose)
    after = sum(stop - start for file in loose for start, stop in kept[file])
    for file in loose:
        used = sum(stop - start for start, stop in kept[file])
        tell(f"{file.size - used} bytes of {file.location!r} go: nothing refers to them")
    with Staging(dry_run) as staging:
        for file, found in loose.items():
            with staging.open(file.path) as out:
                _pack(model, file, found, kept[file], out)
        if loose:
            finish(staging, model, proto, path, [file.path for file in loose])
    return Collected(staging.sizes, before, after, dry_run)


def _require_own(path: Path, file: DataFile, used: Spans) -> None:
    """Raise `SharedDataError` unless a file holds only data of the model at `path`."""
    require_unshared(file.path, path)
    reason = foreign_content(file, used, path)
    if reason:
        raise SharedDataError(
            f"{file.location!r} may not be only data of {path.name!r}: {reason}; nothing was changed",
            f"copy the data out of it first: {command('onnxdbg', 'data', 'move', path.name, f'{path.stem}.data')}",
        )


def _reason_to_stay(path: Path, file: DataFile, used: Spans) -> str:
    others = [repr(str(other)) for other in other_users(file.path, path)]
    return f"{', '.join(others)} refers to it" if others else foreign_content(file, used, path)


def _used(model: Model) -> dict[DataFile, Spans]:
    """Return the byte ranges that a model uses in each of its files."""
    return {f: _intervals(model, found) for f, found in _by_file(model, model.proto).items()}


def _by_file(model: Model, proto: ModelProto) -> dict[DataFile, list[TensorProto]]:
    by_file = defaultdict[DataFile, list[TensorProto]](list)
    for tensor in external_tensors(proto):
        by_file[model.span(tensor)[0]].append(tensor)
    return by_file


def _intervals(model: Model, tensors: Iterable[TensorProto]) -> Spans:
    """Return the sorted (start, stop) byte ranges that tensors use in a file, merged where they touch or overlap."""
    merged = Spans()
    spans = (model.span(tensor) for tensor in tensors)
    for start, stop in sorted((offset, offset + length) for _, offset, length in spans):
        if merged and start <= merged[-1][1]:  # touching or overlapping: one range
            merged[-1] = merged[-1][0], max(merged[-1][1], stop)
        else:
            merged.append((start, stop))
    return merged


def _pack(
    model: Model,
    file: DataFile,
    tensors: Iterable[TensorProto],
    intervals: Spans,
    out: BinaryIO,
) -> None:
    """Copy the byte ranges one after the other, and point the tensors there."""
    starts, moved = [start for start, _ in intervals], []
    for start, stop in intervals:
        moved.append(out.tell() - start)  # how far each range moves
        copy_span(out, file, start, stop - start)
    for tensor in tensors:
        _, offset, length = model.span(tensor)
        # the last range that starts at or before the tensor
        refer(tensor, str(file.location), offset + moved[bisect_right(starts, offset) - 1], length)


def _source_of(model: Model) -> Path:
    """Return the file that a model was loaded from, links resolved."""
    if model.path is None:
        raise UsageError("the model was made in memory: it has no data files", "save it first")
    return model.path.resolve()
