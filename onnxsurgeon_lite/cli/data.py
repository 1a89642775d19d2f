"""Data: where a model's tensors are, and putting them elsewhere."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxsurgeon_lite.api.call import byte_size
from onnxsurgeon_lite.atomic import require_free
from onnxsurgeon_lite.cli import options
from onnxsurgeon_lite.cli.options import Typed, command
from onnxsurgeon_lite.cli.outputs import Target
from onnxsurgeon_lite.report import plain
from onnxsurgeon_lite.report.progress import announce, writing

if TYPE_CHECKING:
    from onnxsurgeon_lite.model import Model, Written
    from onnxsurgeon_lite.model.storage import Manifest, Moved, Stripped
    from onnxsurgeon_lite.shown import Shown

    Change = Callable[..., Written | Stripped | Moved]

_Bytes = Annotated[str, Typed(metavar="<str>", parser=byte_size)]
data = typer.Typer(no_args_is_help=True, help="Show and move the data of large tensors.")


@data.command()
@command("reading the data of {model}", "data.ls", "json")
def ls(
    _: "Shown",
    *,
    fingerprint: Annotated[bool, Typed(("--fingerprint/--no-fingerprint",))] = True,
) -> None:
    """List the large tensors: file, offset, bytes, dtype, fingerprint.

    $ onnxdbg data ls external.onnx
    $ onnxdbg data ls external.onnx --no-fingerprint

    Args:
        fingerprint: Read the data for fingerprints.
    """


@data.command()
@command(of="data.embed")
def embed(call: "Change", target: Target) -> None:
    """Write a model with all its data inside.

    $ onnxdbg data embed external.onnx
    $ onnxdbg data embed external.onnx -o inside.onnx --dry-run
    """
    _write(call, target)


@data.command()
@command(of="data.external")
def external(
    call: "Change", target: Target, *, max_shard: _Bytes = "0", min_size: _Bytes = "0"
) -> None:
    """Write a model with its data beside it, in one file or in several.

    $ onnxdbg data external model.onnx --location model.safetensors --max-shard 2GB
    $ onnxdbg data external model.onnx --location weights/all.data -o outside.onnx

    Args:
        location: The data's path relative to the model; NAME.data if none. .safetensors is that format.
        max_shard: Most bytes of a data file, such as 2GB; 1 for a file for each tensor.
        min_size: Tensors of fewer bytes stay in the model.
    """
    _write(call, target)


@data.command()
@command(of="data.move")
def move(
    call: Callable[..., "Shown"],
    model: Path,
    *,
    max_shard: _Bytes = "0",
    min_size: _Bytes = "0",
    dry_run: bool = False,
) -> None:
    """Move a model's data to another file, in place: the model refers to it there.

    $ onnxdbg data move outside.onnx moved.data
    $ onnxdbg data move outside.onnx parts.data --max-shard 2GB --dry-run

    Args:
        location: The new path, relative to the model.
        max_shard: Most bytes of a data file, such as 2GB; 1 for a file for each tensor.
        min_size: Tensors of fewer bytes go into the model.
    """
    _in_place(call, model, dry_run)


@data.command()
@command(of="data.link")
def link(call: "Change", target: Target) -> None:
    """Write a model whose data is a checkpoint's own file: tensors with the same bytes refer to it.

    $ onnxdbg data link layer.onnx layer.safetensors
    $ onnxdbg data link layer.onnx layer.safetensors -o linked.onnx --dry-run

    Args:
        checkpoint: A safetensors file, in the folder of the output or below.
    """
    _write(call, target)


@data.command()
@command("reading the files of {model}", "data.manifest", "json")
def manifest(found: "Manifest") -> None:
    """Write the SHA-256 of a model's files beside it, as sha256sum does; of a folder those of all its files.

    $ onnxdbg data manifest outside.onnx
    $ onnxdbg data manifest outside.onnx --check

    Args:
        check: Compare the files with what was written.
    """
    options.require(found.match)


@data.command()
@command(of="data.gc")
def gc(call: Callable[..., "Shown"], model: Path, *, dry_run: bool = False) -> None:
    """Rewrite a model's data files, in place, to exactly the bytes that it refers to.

    $ onnxdbg data gc outside.onnx
    $ onnxdbg data gc outside.onnx --dry-run
    """
    _in_place(call, model, dry_run)


@data.command()
@command(of="data.strip")
def strip(call: "Change", target: Target) -> None:
    """Write a model whose weights are noise of the same mean, deviation and range.

    $ onnxdbg data strip external.onnx
    $ onnxdbg data strip external.onnx --seed 1 -o noise.onnx

    Args:
        seed: Seed of the noise.
        keep_sources: Keep documentation, metadata and training info, which may name the author's machine.
    """
    _write(call, target)


@data.command()
@command(of="data.unstrip")
def unstrip(call: "Change", target: Target) -> None:
    """Write a stripped model with the weights of the original.

    $ onnxdbg data unstrip noise.onnx external.onnx
    $ onnxdbg data unstrip noise.onnx external.onnx -o again.onnx

    Args:
        original: The model that was stripped.
    """
    _write(call, target)


def _in_place(call: Callable[..., "Shown"], model: Path, dry_run: bool) -> None:
    """Write a model where it is, and say so."""
    with _announced(model, dry_run) as loaded:
        done = call(loaded, progress=plain.show_note)
    options.show(done)


def _write(change: "Change", target: Target) -> None:
    """Write a model with its data elsewhere, and say so."""
    from onnxsurgeon_lite.model import Written

    with _announced(target.source, target.dry_run, target.path) as model:
        if not target.dry_run:
            require_free(target.path, target.replaceable())
        done = change(model, output=target.path)
    if not target.dry_run:
        target.wrote((done if isinstance(done, Written) else done.written).data_files)
    options.show(done)


@contextlib.contextmanager
def _announced(path: Path, dry_run: bool, target: Path | None = None) -> "Iterator[Model]":
    """A loaded model while its data is written; a message comes first if that is much."""
    from onnxsurgeon_lite.model import embedded_size, load

    model = load(path)
    size = embedded_size(model)
    if dry_run:
        announce("would write", target or path, size)
    with contextlib.nullcontext() if dry_run else writing(target or path, size):
        yield model
