"""Save a `Model` as complete files on disk."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path, PurePosixPath
from tempfile import TemporaryFile
from typing import BinaryIO

from onnx import ModelProto, TensorProto

from onnxsurgeon_lite.atomic import Staging
from onnxsurgeon_lite.errors import (
    ExternalDataError,
    ModelFileError,
    OutputExistsError,
)
from onnxsurgeon_lite.model import walk
from onnxsurgeon_lite.model.copying import copy_span, same_contents, write_pieces
from onnxsurgeon_lite.model.datafile import DataFile, locate, require_inside
from onnxsurgeon_lite.model.formats import written, written_format
from onnxsurgeon_lite.model.loading import HoldsModel, load, loaded
from onnxsurgeon_lite.model.messages import copied
from onnxsurgeon_lite.model.model import Model, external_tensors, is_external, refer, refers
from onnxsurgeon_lite.model.shards import ONE_FILE, DataLayout, Shards
from onnxsurgeon_lite.model.sharing import compiled, has_own_name, require_no_data, require_unshared
from onnxsurgeon_lite.model.wire import LARGE, expand
from onnxsurgeon_lite.names import command
from onnxsurgeon_lite.remote import Remote, placed
from onnxsurgeon_lite.shown import Shown
from onnxsurgeon_lite.system import TemporaryFolder

MAX_PROTOBUF = (1 << 31) - 1
"""The largest message that protobuf parses, in bytes."""


@dataclass(frozen=True, repr=False)
class Written(Shown):
    """The files that `save` wrote: the model and its data files, with those that existed already.

    Attributes:
        sizes: the files that were written, or would be written, and their bytes.
        planned: nothing was written, by `dry_run`.
    """

    path: Path
    data_files: tuple[Path, ...] = ()
    sizes: Mapping[Path, int] = field(default_factory=dict)
    planned: bool = False


def save(
    model: Model | HoldsModel,
    path: str | Path,
    external: bool | None = None,
    *,
    location: str = "",
    max_shard: int = 0,
    min_size: int = 0,
    force: bool = False,
    dry_run: bool = False,
) -> Written:
    """Write a model with the data files that it needs; an unedited model is written byte for byte.

    The target and the data files appear complete or not at all. A model may overwrite the files that it was loaded
    from; load it again afterwards.

    Args:
        model: the model, or the result of an edit.
        path: the file to write; its extension decides whether it is protobuf, textproto or JSON.
        external: None keeps the layout of the source (its data files are copied, and named after the target), unless a
            single file would exceed protobuf's 2 GiB; True moves every large initializer into one `<name>.data`;
            False embeds all data, whatever the size.
        location: with external=True, the path of the data file relative to the model; `<name>.data` if empty. A
            `.safetensors` file holds the tensors as that format does.
        max_shard: with external=True, most bytes of tensors in one data file; 0 for one file.
        min_size: with external=True, tensors of fewer bytes stay in the model.
        force: overwrite a data file that belongs to another model.
        dry_run: write nothing, only report the files and their sizes.

    Raises:
        OutputExistsError: a data file that belongs to another model would be overwritten.
        ExternalDataError: the model's data is missing, and would be looked for in another folder.
        SharedDataError: a data file that a model refers to would be overwritten.
        UsageError: the location is outside the model's folder, or the name is that of another format.
        WriteError: the folder is missing or read-only, or the disk is full.
        SourceChangedError: a file that holds the model's tensors changed after the load.

    Example:
        >>> print(osl.save(osl.load("external.onnx"), "inside.onnx", external=False))
        wrote 'inside.onnx'
    """
    return save_settled(
        loaded(model),
        path,
        external,
        None,
        layout=DataLayout(location, max_shard, min_size),
        force=force,
        dry_run=dry_run,
    )


def save_settled(
    model: Model,
    path: str | Path,
    external: bool | None,
    settle: Callable[[ModelProto], None] | None,
    *,
    layout: DataLayout = ONE_FILE,
    force: bool = False,
    dry_run: bool = False,
) -> Written:
    """Save a model; `settle` adds to the structure what is known only after its data files are written."""
    path = placed(path)
    text = written_format(path)
    if isinstance(path, Remote):
        return _upload(model, path, external, settle, layout, force, dry_run)
    encoded = model.encoded()
    with Staging(dry_run) as staging:
        # what providers have compiled has the same name everywhere
        is_moved = model.path and not _is_same_file(model.path.parent, path.parent)
        moved = compiled(model) if is_moved else ()
        beside = {path.parent / str(file.location): file for file in moved}
        data_files = _copy_files(beside, path, staging, force)
        is_small = len(encoded) <= MAX_PROTOBUF
        if is_small and external is None and not text and _is_unedited(model, encoded):
            return _copy_source(model, path, data_files, staging, force)  # as it was loaded
        # data of another dtype, or more than protobuf takes
        is_large = external is None and embedded_size(model, False) > MAX_PROTOBUF
        if is_large or (external is None and _is_rewritten(model)):
            external = True
        # written as it is, if it refers to nothing that may be elsewhere then
        stays = external is None and settle is None and not refers(encoded)
        del encoded
        proto = model.proto if stays else copied(model.proto)
        if external is None:
            data_files += _copy_data_files(model, proto, path, staging, force)
        elif external:
            data_files += _gather(model, proto, path, layout, staging, force)
        if settle is not None:
            settle(proto)  # the structure comes last: it knows where the data went
        return finish(staging, model, proto, path, data_files)


def _upload(
    model: Model,
    path: Remote,
    external: bool | None,
    settle: Callable[[ModelProto], None] | None,
    layout: DataLayout,
    force: bool,
    dry_run: bool,
) -> Written:
    """Write a model here, then to a URL: the data files first, so that the model refers to complete ones."""
    with TemporaryFolder() as folder:
        how = {"layout": layout, "force": force, "dry_run": dry_run}
        written = save_settled(model, Path(folder, path.name), external, settle, **how)  # type: ignore[arg-type]
        sizes = dict[Path, int]()
        for file in sorted(written.sizes, key=lambda file: file == written.path):  # the model last
            target = path.parent / file.relative_to(folder)
            sizes[target] = written.sizes[file]
            if not dry_run:
                target.upload(file)
        return Written(path, tuple(p for p in sizes if p != path), sizes, dry_run)


def finish(
    staging: Staging,
    model: Model,
    proto: ModelProto,
    path: Path,
    data_files: Sequence[Path],
    unedited: DataFile | None = None,
) -> Written:
    """Write the structure after its data files, and rename all of them into place.

    Args:
        unedited: the file to copy instead, which says the same.
    """
    require_no_data(path)

    def write(out: BinaryIO, instead: Mapping[Path, Path]) -> None:
        if unedited is not None and not instead:  # no data file has another name than it says
            copy_span(out, unedited, 0, unedited.size)
            return
        structure = _referring(proto, path, instead) if instead else proto
        pieces = expand(structure.SerializeToString(), model.files)
        if text := written_format(path):
            with TemporaryFile() as whole:
                write_pieces(whole, pieces, model.files)
                whole.seek(0)
                out.write(written(whole.read(), text))
        else:
            write_pieces(out, pieces, model.files)

    def check() -> None:  # that others refer to data since it was looked at, too
        _verify(model, path)
        written = dict(staging.waiting)
        replaced = {str(target) for target in written.values() if target.exists()}
        for target in replaced.intersection(map(os.path.realpath, data_files)):
            # another model may have begun to refer to a file since
            require_unshared(Path(target), path, written)

    kept = staging.finish(path, write, check)
    places = (kept.get(Path(os.path.realpath(target)), target) for target in data_files)
    return Written(path, tuple(places), staging.sizes, staging.dry_run)


def _referring(proto: ModelProto, path: Path, instead: Mapping[Path, Path]) -> ModelProto:
    """Return a structure with references to other data files of the same folders."""
    result = copied(proto)
    for tensor in external_tensors(result):
        for entry in tensor.external_data:
            place = instead.get(Path(os.path.realpath(path.parent / entry.value)))
            if entry.key == "location" and place is not None:
                entry.value = str(PurePosixPath(entry.value).with_name(place.name))
    return result


def _read_files(model: Model) -> Mapping[DataFile, None]:
    """Return the files that tensors are in, in the order of the tensors."""
    return dict.fromkeys(model.span(tensor)[0] for tensor in external_tensors(model.proto))


def _verify(model: Model, path: Path) -> None:
    """Raise `SourceChangedError` if what is written, or overwritten, is not what was loaded."""
    used = _read_files(model)
    for file in model.files.values():
        # files that the result reads, and one that it overwrites
        if not file.is_missing and (file in used or _is_same_file(file.path, path)):
            file.verify()


def _is_rewritten(model: Model) -> bool:
    """Return whether data files of the source are not what the model holds."""
    return any(file.location is not None and not file.is_verbatim for file in _read_files(model))


def movable(model: Model) -> bool | None:
    """Return the `external` option that saves a part of a model without the source's data files."""
    files = _read_files(model)
    here = not any(file.is_missing for file in files)
    return (here and any(file.location is not None for file in files)) or None


def _is_unedited(model: Model, encoded: bytes) -> bool:
    """Return whether the source file still says exactly what the model says."""
    if hash(encoded) != model.loaded:
        return False
    for file in model.files.values():
        if not file.is_missing:
            file.verify()
    return True


def _copy_source(
    model: Model, path: Path, data_files: list[Path], staging: Staging, force: bool
) -> Written:
    """Write an unedited model; byte for byte, unless its data files get other names."""
    source = next(file for file in model.files.values() if file.location is None)
    proto = copied(model.proto)
    places = _places(model, path)
    data_files += _copy_data_files(model, proto, path, staging, force)
    if _is_same_file(source.path, path):
        return Written(path, tuple(data_files), staging.sizes, staging.dry_run)
    # only if every reference still holds
    same = all(file.location == location for file, location in places.items())
    return finish(staging, model, proto, path, data_files, source if same else None)


def embedded_size(model: Model, everything: bool = True) -> int:
    """Return the size of the model file with all data inside, or only with the data that is inside already."""
    encoded = model.encoded()
    found = external_tensors(model.proto) if refers(encoded) else ()
    inside = (n for file, _, n in map(model.span, found) if everything or file.location is None)
    return len(encoded) + sum(inside)


def size_beside(model: Model, path: Path) -> int:
    """Return the bytes that `save` writes at a path: data files that stay where they are count nothing."""
    if all(file.location is None for file in model.files.values()):
        return embedded_size(model)
    places = _places(model, path)
    kept = {f for f, location in places.items() if _is_same_file(f.path, path.parent / location)}
    spans = (model.span(tensor) for tensor in external_tensors(model.proto))
    return embedded_size(model) - sum(length for file, _, length in spans if file in kept)


def _copy_data_files(
    model: Model, proto: ModelProto, path: Path, staging: Staging, force: bool
) -> list[Path]:
    """Copy the source's data files beside the target, unless they are there, and refer to them there."""
    places = _places(model, path)
    for tensor in external_tensors(proto):
        file, offset, length = model.span(tensor)
        if file in places:  # data inside of the model's file stays there
            refer(tensor, places[file], offset, length)
    targets = {path.parent / location: file for file, location in places.items()}
    return _copy_files(targets, path, staging, force)


def _copy_files(
    targets: Mapping[Path, DataFile], path: Path, staging: Staging, force: bool
) -> list[Path]:
    """Copy files beside the model at `path`, unless they are there; return where they are then."""
    for target, file in targets.items():
        if file.is_missing or _is_same_file(file.path, target):
            continue
        if os.path.lexists(target):
            # the same bytes are there already
            if target.is_file() and same_contents(file, DataFile.of(target)):
                continue
            _require_replaceable(target, path, force)
        with staging.open(target, parents=True) as out:
            copy_span(out, file, 0, file.size)
    return [target for target, file in targets.items() if not file.is_missing]


def _places(model: Model, path: Path) -> dict[DataFile, str]:
    """Return where the data files go: they stay where they are, or get names of the target's.

    A model is untrusted: beside another target its locations name no file, except as the target's name would.
    In another folder, the location of missing data may name a file of somebody else.
    """
    files = _read_files(model)
    places = dict[DataFile, str]()
    for file in files:
        if file.location is None:
            continue
        target = path.parent / file.location
        if file.is_missing and os.path.realpath(target) != os.path.realpath(file.path):
            raise ExternalDataError(
                f"the data of the model is missing, and {str(target)!r} may be that of another: {str(file.path)!r}",
                f"put {file.location!r} there first, or write {command('-o', str(_beside(file, path.name)))}",
            )
        plain = "/" not in file.location and has_own_name(file.location, path)
        # `weights.bin` beside another model is not this model's, unless it has the model's name
        if plain or file.is_missing or _is_same_file(file.path, target):
            places[file] = file.location
    stem = path.name.removesuffix(".onnx")
    # otherwise `<name>.data`, `<name>.1.data`, ...
    free = (f"{stem}.data" if n == 0 else f"{stem}.{n}.data" for n in count())
    unused = (name for name in free if name not in places.values())
    return places | {f: next(unused) for f in files if f.location is not None and f not in places}


def _beside(file: DataFile, name: str) -> Path:
    """Return the path of a file beside the model that a data file belongs to."""
    return file.path.parents[len(PurePosixPath(str(file.location)).parts) - 1] / name


def _gather(
    model: Model, proto: ModelProto, path: Path, layout: DataLayout, staging: Staging, force: bool
) -> list[Path]:
    """Write the bytes of every large initializer, and of all external tensors, to data files."""
    location = layout.location or path.name.removesuffix(".onnx") + ".data"
    # external tensors of attributes, too
    found = large_initializers(proto)
    found += [
        t
        for t in walk.attribute_tensors(proto)
        if is_external(t) and model.span(t)[0].location is not None
    ]
    # small ones go into the model
    large = [t for t in found if _length(model, t) >= layout.min_size]
    if len(large) < len(found):
        small = (t for t in found if is_external(t) and _length(model, t) < layout.min_size)
        model.fill(t for t in small if model.span(t)[0].location is not None)
    # which tensor is in which file, and where
    shards = Shards(model, large, replace(layout, location=location))
    targets = []
    for name in shards.files if large else ():
        require_inside(name, path.name)
        locate(path.parent, name)
        targets.append(path.parent / name)
        if os.path.lexists(targets[-1]):
            _require_replaceable(targets[-1], path, force)
        with staging.open(targets[-1], parents=True) as out:
            shards.write(name, out)
    # references last: until then tensors are read from where they were
    shards.refer()
    return targets


def large_initializers(proto: ModelProto) -> list[TensorProto]:
    """Return those that go to data files: also tensors that are in other files, however small."""
    return [t for t in walk.initializers(proto) if is_external(t) or len(t.raw_data) > LARGE]


def _length(model: Model, tensor: TensorProto) -> int:
    return model.span(tensor)[2] if is_external(tensor) else len(tensor.raw_data)


def _require_replaceable(data: Path, path: Path, force: bool) -> None:
    """Raise unless a file may be replaced by data of the model at `path`."""
    if not force and not _belongs(data, path):
        raise OutputExistsError(
            f"{str(data)!r} already exists, and is not the data file of {str(path)!r}",
            "write to another folder, or overwrite it with --force",
        )
    require_unshared(data, path)


def _belongs(data: Path, path: Path) -> bool:
    """Return whether the model at `path` keeps its tensors in `data`."""
    if not path.exists():  # nothing is there, so nothing belongs to it
        return False
    try:
        return any(_is_same_file(file.path, data) for file in load(path).files.values())
    except ModelFileError:
        return False


def _is_same_file(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)
