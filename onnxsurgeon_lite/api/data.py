"""Where a model's tensors are, and putting them elsewhere, file to file: `osl.data.ls`, `osl.data.embed` and others."""

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from onnxsurgeon_lite.api.call import byte_size
from onnxsurgeon_lite.api.spelling import spelled
from onnxsurgeon_lite.shown import Progress, quiet

if TYPE_CHECKING:
    from onnxsurgeon_lite.model import ModelLike, Written
    from onnxsurgeon_lite.model.storage import Collected, DataListing, Manifest, Moved, Stripped

__all__ = ["embed", "external", "gc", "link", "ls", "manifest", "move", "strip", "unstrip"]


@spelled
def ls(model: "ModelLike", fingerprint: bool = True) -> "DataListing":
    """List the large tensors: file, offset, bytes, dtype, shape, fingerprint.

    Args:
        fingerprint: Read the data, block by block, for fingerprints.

    Raises:
        SourceChangedError: A file changed after the load.

    Example:
        >>> [tensor.file for tensor in osl.data.ls("external.onnx")][:1]
        ['external.data']
    """
    from onnxsurgeon_lite.model import loaded
    from onnxsurgeon_lite.model.storage import DataListing, list_data

    return DataListing(list_data(loaded(model), fingerprint))


@spelled
def embed(
    model: "ModelLike", output: str | PathLike[str], force: bool = False, dry_run: bool = False
) -> "Written":
    """Write a model with all its data inside.

    Raises:
        WriteError: The file would have more bytes than protobuf reads.

    Example:
        >>> print(osl.data.embed("external.onnx", "whole.onnx"))
        wrote 'whole.onnx'
    """
    from onnxsurgeon_lite.model import loaded, storage

    return storage.embed(loaded(model), Path(output), force=force, dry_run=dry_run)


@spelled
def external(
    model: "ModelLike",
    output: str | PathLike[str],
    location: str = "",
    force: bool = False,
    dry_run: bool = False,
    *,
    max_shard: int | str = 0,
    min_size: int | str = 0,
) -> "Written":
    """Write a model with its data beside it, in one file or in several.

    Args:
        location: The data's path relative to the model; `<name>.data` when empty. A `.safetensors` file is one that
            other libraries read, too.
        max_shard: Most bytes of a data file, or `2GB`; 0 for one file.
        min_size: Tensors of fewer bytes, or `1KB`, stay in the model.

    Raises:
        UsageError: The location is outside the model's folder.
        OutputExistsError: The data file belongs to something else.

    Example:
        >>> print(osl.data.external("external.onnx", "moved.onnx", "weights.bin"))
        wrote 'moved.onnx' with its data in 'weights.bin'
    """
    from onnxsurgeon_lite.model import loaded, save

    return save(
        loaded(model),
        Path(output),
        True,
        location=location,
        max_shard=byte_size(max_shard),
        min_size=byte_size(min_size),
        force=force,
        dry_run=dry_run,
    )


@spelled
def move(
    model: "ModelLike",
    location: str,
    force: bool = False,
    dry_run: bool = False,
    *,
    max_shard: int | str = 0,
    min_size: int | str = 0,
    progress: Progress = quiet,
) -> "Moved":
    """Move a model's data to another file, or to several, in place: the model refers to it there.

    Args:
        model: The path of a model, or a `Model` that was loaded from one.
        location: The new path, relative to the model.
        max_shard: Most bytes of a data file, or `2GB`; 0 for one file, 1 for a file for each tensor.
        min_size: Tensors of fewer bytes, or `1KB`, go into the model.
        progress: Called for each file before it is removed.

    Raises:
        UsageError: The location is outside the model's folder.
        SharedDataError: The data is there already, and another model refers to it.

    Example:
        >>> osl.data.move("external.onnx", "data/weights.bin", dry_run=True).written.path.name
        'external.onnx'
    """
    from onnxsurgeon_lite.model import loaded, storage

    return storage.move(
        loaded(model),
        location,
        force=force,
        dry_run=dry_run,
        max_shard=byte_size(max_shard),
        min_size=byte_size(min_size),
        tell=progress,
    )


@spelled
def link(
    model: "ModelLike",
    checkpoint: str | PathLike[str],
    output: str | PathLike[str],
    force: bool = False,
    dry_run: bool = False,
) -> "Moved":
    """Write a model whose data is a checkpoint's own file: tensors with the same bytes refer to it, nothing is copied.

    Args:
        checkpoint: A safetensors file, or one of numpy that is not compressed, in the folder of the output or below.

    Raises:
        UsageError: The file lies elsewhere, or has the bytes of no large tensor of the model.

    Example:
        >>> _ = osl.data.external("external.onnx", "a.onnx", "a.safetensors")
        >>> osl.data.link("external.onnx", "a.safetensors", "linked.onnx").notes
        ("4 of 4 large initializers are in 'a.safetensors'",)
    """
    from onnxsurgeon_lite.model import loaded, storage

    return storage.link(loaded(model), Path(checkpoint), Path(output), force=force, dry_run=dry_run)


@spelled
def manifest(model: str | PathLike[str], check: bool = False, force: bool = False) -> "Manifest":
    """Write the SHA-256 of a model's files beside it, as sha256sum does; or check what was written.

    Args:
        model: A model's path; or a folder, whose files are all written, as those of a language model package.
        check: Compare the files with what was written, and write nothing.

    Raises:
        OutputExistsError: There is a manifest already.

    Example:
        >>> sorted(osl.data.manifest("external.onnx").digests)
        ['external.data', 'external.onnx']
        >>> osl.data.manifest("external.onnx", check=True).match
        True
    """
    from onnxsurgeon_lite.model import storage

    return storage.manifest(Path(model), check, force)


@spelled
def gc(model: "ModelLike", dry_run: bool = False, *, progress: Progress = quiet) -> "Collected":
    """Rewrite a model's data files, in place, to exactly the bytes that it refers to.

    Args:
        model: The path of a model, or a `Model` that was loaded from one.
        dry_run: Find out what that gives, and write nothing.
        progress: Called with the bytes that are removed, before that.

    Raises:
        SharedDataError: Another model refers to one of the files, or one holds anything but a model's data.

    Example:
        >>> print(osl.data.gc("external.onnx", dry_run=True))
        0 bytes less
    """
    from onnxsurgeon_lite.model import loaded, storage

    return storage.collect(loaded(model), dry_run=dry_run, tell=progress)


@spelled
def strip(
    model: "ModelLike",
    output: str | PathLike[str],
    seed: int = 0,
    keep_sources: bool = False,
    force: bool = False,
    dry_run: bool = False,
) -> "Stripped":
    """Write a model whose weights are noise of the same mean, deviation and range, without what tells of its author.

    Args:
        seed: Seed of the noise.
        keep_sources: Keep documentation, metadata and training info, which may name the author's machine.

    Example:
        >>> osl.data.strip("whole_model.onnx", "noise.onnx").changed
        20
    """
    from onnxsurgeon_lite.model import loaded, storage

    return storage.strip(
        loaded(model), Path(output), seed, keep_sources, force=force, dry_run=dry_run
    )


@spelled
def unstrip(
    model: "ModelLike",
    original: "ModelLike",
    output: str | PathLike[str],
    force: bool = False,
    dry_run: bool = False,
) -> "Written":
    """Write a stripped model with the weights of the original.

    Args:
        model: The stripped model: a path, bytes, a `ModelProto` or a `Model`.
        original: The model that was stripped.

    Example:
        >>> noise = osl.data.strip("whole_model.onnx", "noisy.onnx").written.path
        >>> print(osl.data.unstrip(noise, "whole_model.onnx", "restored.onnx"))
        wrote 'restored.onnx'
    """
    from onnxsurgeon_lite.model import loaded, storage

    return storage.unstrip(
        loaded(model), loaded(original), Path(output), force=force, dry_run=dry_run
    )
