"""Move a model's data into the model file, into one data file, or into a data file without gaps."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto

from onnxsurgeon_lite.atomic import Staging
from onnxsurgeon_lite.errors import ModelFileError, SharedDataError, UsageError, WriteError
from onnxsurgeon_lite.model import DataFile, Model, Written, save
from onnxsurgeon_lite.model.copying import copy_span, write_pieces
from onnxsurgeon_lite.model.messages import copied
from onnxsurgeon_lite.model.model import external_tensors, refer
from onnxsurgeon_lite.model.saving import MAX_PROTOBUF, embedded_size
from onnxsurgeon_lite.model.wire import expand, skeleton
from onnxsurgeon_lite.shown import Shown


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
    planned: bool = False


@dataclass(frozen=True, repr=False)
class Moved(Shown):
    """What moving a model's data wrote, and a note for each old file that stays."""

    written: Written
    notes: tuple[str, ...] = ()


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
    model: Model, location: str, *, force: bool = False, dry_run: bool = False
) -> tuple[Written, list[str]]:
    """Move a model's data to another file, below the folder of the model.

    The old data files are removed, unless another model in the folder refers to them.

    Returns:
        The written files, and a note for each file that stays; with `dry_run`, what would be written and removed.

    Raises:
        UsageError: the location is outside the model's folder.
        OutputExistsError: another file already exists there.
        SharedDataError: the data is already there, and another model refers to it.
    """
    path = _source_of(model)
    old = [file for file in model.files.values() if file.location is not None]
    for file in old:
        if PurePosixPath(location) == PurePosixPath(str(file.location)):
            _require_unshared(path, file)
    written = save(model, path, external=True, location=location, force=force, dry_run=dry_run)
    notes = []
    for file in old:
        if any(kept.exists() and file.path.samefile(kept) for kept in written.data_files):
            continue
        others = [repr(str(other)) for other in other_users(path, file)]
        if others:
            notes.append(f"{file.location!r} stays: {', '.join(others)} refers to it")
        elif dry_run:
            notes.append(f"{file.location!r} would be removed")
        else:
            file.path.unlink()
    return written, notes


def collect(model: Model, *, dry_run: bool = False) -> Collected:
    """Rewrite a model's data files in place, to exactly the bytes that the model refers to.

    Args:
        dry_run: write nothing, only report the sizes.

    Raises:
        SharedDataError: another model in the folder refers to one of the files.
        SourceChangedError: a file changed after the load.
    """
    path = _source_of(model)
    proto = copied(model.proto)
    by_file = defaultdict[DataFile, list[TensorProto]](list)
    for tensor in external_tensors(proto):
        by_file[model.span(tensor)[0]].append(tensor)
    kept = {file: _intervals(model, found) for file, found in by_file.items()}
    loose = {
        file: found
        for file, found in by_file.items()
        if file.location is not None and kept[file] != [(0, file.size)]
    }
    for file in loose:
        _require_unshared(path, file)
    before = sum(file.size for file in loose)
    after = sum(stop - start for file in loose for start, stop in kept[file])
    with Staging(dry_run) as staging:
        for file, found in loose.items():
            with staging.open(file.path) as out:
                _pack(model, file, found, kept[file], out)
        if loose:
            with staging.open(path) as out:
                write_pieces(out, expand(proto.SerializeToString(), model.files), model.files)
        staging.commit()
    return Collected(staging.sizes, before, after, dry_run)


def other_users(path: Path, file: DataFile) -> Iterator[Path]:
    """Yield the other models, in the folders of a model and of its data, that refer to a data file.

    Unreadable models are skipped.
    """
    folders = dict.fromkeys((path.parent, *_folders_between(path.parent, file.path.parent)))
    for folder in folders:
        for other in sorted(folder.glob("*.onnx")):
            if not other.samefile(path) and _refers(other, file.path):
                yield other


def _require_unshared(path: Path, file: DataFile) -> None:
    for other in other_users(path, file):
        raise SharedDataError(
            f"{str(other)!r} refers to {file.location!r} too: nothing was changed",
            "give one of the two models its own data first, with onnxdbg data external",
        )


def _folders_between(top: Path, folder: Path) -> Iterator[Path]:
    while folder not in (top, folder.parent):
        yield folder
        folder = folder.parent


def _refers(path: Path, data: Path) -> bool:
    try:
        proto = ModelProto.FromString(skeleton(path, ""))
    except (ModelFileError, DecodeError, OSError):
        return False
    for tensor in external_tensors(proto):
        location = next((e.value for e in tensor.external_data if e.key == "location"), "")
        target = path.parent / location.replace("\0", "")
        if location and target.exists() and target.samefile(data):
            return True
    return False


def _intervals(model: Model, tensors: Iterable[TensorProto]) -> list[tuple[int, int]]:
    """Return the sorted (start, stop) byte ranges that tensors use in a file, merged where they touch or overlap."""
    merged: list[tuple[int, int]] = []
    spans = (model.span(tensor) for tensor in tensors)
    for start, stop in sorted((offset, offset + length) for _, offset, length in spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], stop)
        else:
            merged.append((start, stop))
    return merged


def _pack(
    model: Model,
    file: DataFile,
    tensors: Iterable[TensorProto],
    intervals: list[tuple[int, int]],
    out: BinaryIO,
) -> None:
    """Copy the byte ranges one after the other, and point the tensors there."""
    starts, moved = [start for start, _ in intervals], []
    for start, stop in intervals:
        moved.append(out.tell() - start)
        copy_span(out, file, start, stop - start)
    for tensor in tensors:
        _, offset, length = model.span(tensor)
        refer(tensor, str(file.location), offset + moved[bisect_right(starts, offset) - 1], length)


def _source_of(model: Model) -> Path:
    """Return the file that a model was loaded from, links resolved."""
    if model.path is None:
        raise UsageError("the model was made in memory: it has no data files", "save it first")
    return model.path.resolve()
