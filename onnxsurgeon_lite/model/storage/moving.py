"""Move a model's data into the model file, into one data file, or into a data file without gaps."""

import hashlib
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from onnx import ModelProto, TensorProto

from onnxsurgeon_lite.atomic import Staging, held, write_text
from onnxsurgeon_lite.errors import ReferenceSetError, SharedDataError, UsageError, WriteError
from onnxsurgeon_lite.model import DataFile, Model, Written, load, save
from onnxsurgeon_lite.model.copying import copy_span
from onnxsurgeon_lite.model.datafile import locate, require_inside
from onnxsurgeon_lite.model.messages import copied
from onnxsurgeon_lite.model.model import external_tensors, refer
from onnxsurgeon_lite.model.saving import MAX_PROTOBUF, embedded_size, finish, large_initializers
from onnxsurgeon_lite.model.sharing import (
    compiled,
    foreign_content,
    other_users,
    require_replaceable,
    require_unshared,
)
from onnxsurgeon_lite.model.storage.listing import fingerprint
from onnxsurgeon_lite.names import command
from onnxsurgeon_lite.search.grouping import groups
from onnxsurgeon_lite.shown import Progress, Shown, quiet
from onnxsurgeon_lite.tensors.references import open_references
from onnxsurgeon_lite.untrusted import require_regular, text_of

Spans = list[tuple[int, int]]
"""(start, stop) of bytes of a file."""

_BETWEEN = "  "  # a digest and a name, as sha256sum writes them


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


@dataclass(frozen=True, repr=False)
class Manifest(Shown):
    """The digests of a model's files.

    Attributes:
        place: the file that holds them.
        digests: name, relative to the folder of `place` -> SHA-256.
        differing: of a check: what has other bytes now, or is gone.
    """

    place: Path
    digests: Mapping[str, str]
    differing: list[str] = field(default_factory=list)

    @property
    def match(self) -> bool:
        """True when no file differs."""
        return not self.differing


def manifest(path: Path, check: bool = False, force: bool = False) -> Manifest:
    """Write the digests of a model, its data and its compiled binaries; of a folder those of all its files.

    Args:
        check: compare the files with what is written, also those of a model that cannot be loaded.

    Raises:
        OutputExistsError: there is a manifest already.
        SourceChangedError, ExternalDataError: data is missing, or changes.
    """
    # beside the model itself, not beside a link to it
    path = path.resolve()
    place = path / "SHA256SUMS" if path.is_dir() else path.with_name(f"{path.name}.sha256")
    folder = place.parent
    if check:
        # the names are as untrusted as the files: none outside of the folder is read
        lines = (line.partition(_BETWEEN) for line in text_of(place).splitlines())
        digests = {name: digest for digest, _, name in lines}
        off = [name for name, digest in digests.items() if _digest(folder, name) != digest]
        return Manifest(place, digests, off)
    require_replaceable(place, force)
    files = folder.rglob("*") if path.is_dir() else _files(load(path))
    names = sorted(file.relative_to(folder).as_posix() for file in files if file.name != place.name)
    # folders have none, and links out of the folder
    digests = {name: digest for name in names if (digest := _digest(folder, name))}
    write_text(place, "".join(f"{each}{_BETWEEN}{name}\n" for name, each in digests.items()))
    return Manifest(place, digests)


def _files(model: Model) -> Iterator[Path]:
    for file in chain(model.files.values(), compiled(model)):
        # a digest of a file that has changed since would be that of another model
        file.verify()
        yield file.path.resolve()


def _digest(folder: Path, name: str) -> str:
    """Return the SHA-256 of a file; '' of what is missing, or is none of the folder."""
    try:
        with require_regular(folder / name, folder).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError, ReferenceSetError):
        return ""


def link(
    model: Model, checkpoint: Path, path: Path, *, force: bool = False, dry_run: bool = False
) -> Moved:
    """Write a model whose large initializers are in a checkpoint's file where that has their bytes; others stay.

    Args:
        checkpoint: a safetensors file, or one of numpy that is not compressed, in the folder of `path` or below.

    Raises:
        UsageError: the file lies elsewhere, or has the bytes of no initializer.
    """
    # the model may name only what is in its own folder
    folder = path.absolute().parent
    location = Path(os.path.relpath(checkpoint, folder)).as_posix()
    require_inside(location, path.name)
    file = DataFile.of(locate(folder, location), location)
    result = model.copy()
    result.files[file.key] = file
    known = dict(_places(result, file, checkpoint))
    # small ones stay in the model, as shape inference reads them
    found = large_initializers(result.proto)
    # each is read once, for its own fingerprint
    linked = 0
    for tensor in found:
        if place := known.get(fingerprint(result, tensor)):
            refer(tensor, file.key, *place)
            linked += 1
    if not linked:
        raise UsageError(
            f"{location!r} has the bytes of no initializer of {str(model.path)!r}",
            command("onnxdbg", "weights", str(model.path), "--against", str(checkpoint)),
        )
    note = f"{linked} of {len(found)} large initializers are in {location!r}"
    return Moved(save(result, path, force=force, dry_run=dry_run), (note,))


def _places(
    model: Model, file: DataFile, checkpoint: Path
) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the fingerprint of each tensor of a checkpoint, and where it is in the file."""
    for entry in open_references(checkpoint).entries.values():
        # those that lie there as in memory, not packed nor compressed
        if (place := entry.in_file) is not None:
            size = place.size * place.dtype.itemsize
            # as bytes, so that the dtype does not matter
            whole = TensorProto(data_type=TensorProto.UINT8, dims=[size])
            refer(whole, file.key, place.offset, size)
            yield fingerprint(model, whole), (place.offset, size)


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
    max_shard: int = 0,
    min_size: int = 0,
    tell: Progress = quiet,
) -> Moved:
    """Move a model's data to another file, or to several, below the folder of the model.

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
    written = save(
        model,
        path,
        external=True,
        location=location,
        max_shard=max_shard,
        min_size=min_size,
        force=force,
        dry_run=dry_run,
    )
    notes = []
    # a model that refers to the data is there by now, or finds it gone before it is
    with held(path):
        for file in old:
            # the old file is the new one
            if any(kept.exists() and file.path.samefile(kept) for kept in written.data_files):
                continue
            others = ", ".join(repr(str(other)) for other in other_users(file.path, path))
            reason = f"{others} refers to it" if others else ""
            if reason := reason or foreign_content(file, spans.get(file, []), path):
                notes.append(f"{file.location!r} stays: {reason}")
            elif dry_run:
                notes.append(f"{file.location!r} would be removed")
            else:
                tell(f"{file.location!r} is removed: its data is in {location!r} now")
                file.path.unlink(missing_ok=True)
    return Moved(written, tuple(notes))


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
    used = {file: sum(stop - start for start, stop in kept[file]) for file in loose}
    for file, size in used.items():
        tell(f"{file.size - size} bytes of {file.location!r} go: nothing refers to them")
    with Staging(dry_run) as staging:
        for file, found in loose.items():
            with staging.open(file.path) as out:
                _pack(model, file, found, kept[file], out)
        if loose:
            finish(staging, model, proto, path, [file.path for file in loose])
    return Collected(staging.sizes, before, sum(used.values()), dry_run)


def _require_own(path: Path, file: DataFile, used: Spans) -> None:
    """Raise `SharedDataError` unless a file holds only data of the model at `path`."""
    require_unshared(file.path, path)
    reason = foreign_content(file, used, path)
    if reason:
        raise SharedDataError(
            f"{file.location!r} may not be only data of {path.name!r}: {reason}; nothing was changed",
            f"copy the data out of it first: {command('onnxdbg', 'data', 'move', path.name, f'{path.stem}.data')}",
        )


def _used(model: Model) -> dict[DataFile, Spans]:
    """Return the byte ranges that a model uses in each of its files."""
    return {f: _intervals(model, found) for f, found in _by_file(model, model.proto).items()}


def _by_file(model: Model, proto: ModelProto) -> dict[DataFile, list[TensorProto]]:
    return groups((model.span(tensor)[0], tensor) for tensor in external_tensors(proto))


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
    starts = [start for start, _ in intervals]
    moved = []
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
