"""Data: where a model's tensors are, and putting them elsewhere."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack

import typer

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.atomic import require_free
from onnxsurgeon_lite.cli import options
from onnxsurgeon_lite.cli.outputs import Target, Writing
from onnxsurgeon_lite.report import plain
from onnxsurgeon_lite.report.progress import announce, progress, writing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onnxsurgeon_lite.model import Model, Written
    from onnxsurgeon_lite.model.storage import Stripped

data = typer.Typer(no_args_is_help=True, help="Show and move the data of large tensors.")


@data.command()
@options.command
def ls(
    model: Path,
    *,
    fingerprints: Annotated[bool, options.Typed(("--fingerprint/--no-fingerprint",))] = True,
    json: bool = False,
) -> None:
    """List the large tensors: file, offset, bytes, dtype, fingerprint.

    $ onnxdbg data ls external.onnx
    $ onnxdbg data ls external.onnx --no-fingerprint

    Args:
        fingerprints: Read the data for fingerprints.
    """
    with progress(f"reading the data of {model}"):
        found = osl.data.ls(model, fingerprints)
    options.show(found, json)


@data.command()
@options.command
def embed(model: Path, **how: Unpack[Writing]) -> None:
    """Write a model with all its data inside.

    $ onnxdbg data embed external.onnx
    $ onnxdbg data embed external.onnx -o inside.onnx --dry-run
    """
    _write(osl.data.embed, model, how)


@data.command()
@options.command
def external(model: Path, *, location: str = "", **how: Unpack[Writing]) -> None:
    """Write a model with its data in one file beside it.

    $ onnxdbg data external model.onnx
    $ onnxdbg data external model.onnx --location weights/all.data -o outside.onnx

    Args:
        location: The data's path relative to the model; NAME.data if none.
    """
    _write(osl.data.external, model, how, location=location)


@data.command()
@options.command
def move(model: Path, location: str, *, force: bool = False, dry_run: bool = False) -> None:
    """Move a model's data to another file, in place: the model refers to it there.

    $ onnxdbg data move outside.onnx moved.data
    $ onnxdbg data move outside.onnx weights.data --dry-run

    Args:
        location: The new path, relative to the model.
    """
    with _announced(model, dry_run) as loaded:
        moved = osl.data.move(loaded, location, force, dry_run, progress=plain.show_note)
    options.show(moved)


@data.command()
@options.command
def gc(model: Path, *, dry_run: bool = False) -> None:
    """Rewrite a model's data files, in place, to exactly the bytes that it refers to.

    $ onnxdbg data gc outside.onnx
    $ onnxdbg data gc outside.onnx --dry-run
    """
    with _announced(model, dry_run) as loaded:
        found = osl.data.gc(loaded, dry_run, progress=plain.show_note)
    options.show(found)


@data.command()
@options.command
def strip(
    model: Path,
    *,
    seed: Annotated[int, options.Typed(least=0)] = 0,
    keep_sources: bool = False,
    **how: Unpack[Writing],
) -> None:
    """Write a model whose weights are noise of the same mean, deviation and range.

    $ onnxdbg data strip external.onnx
    $ onnxdbg data strip external.onnx --seed 1 -o noise.onnx

    Args:
        seed: Seed of the noise.
        keep_sources: Keep documentation, metadata and training info, which may tell of the author's machine.
    """
    _write(osl.data.strip, model, how, seed=seed, keep_sources=keep_sources)


@data.command()
@options.command
def unstrip(model: Path, original: Path, **how: Unpack[Writing]) -> None:
    """Write a stripped model with the weights of the original.

    $ onnxdbg data unstrip noise.onnx external.onnx
    $ onnxdbg data unstrip noise.onnx external.onnx -o again.onnx

    Args:
        original: The model that was stripped.
    """
    _write(osl.data.unstrip, model, how, original=original)


def _write(
    change: "Callable[..., Written | Stripped]", source: Path, how: Writing, **more: object
) -> None:
    """Write a model with its data elsewhere, and say so."""
    from onnxsurgeon_lite.model.storage import Stripped

    target = Target(source, change.__name__, **how)
    with _announced(source, target.dry_run, target.path) as model:
        if not target.dry_run:
            require_free(target.path, target.replaceable())
        done = change(model, **(how | more | {"output": target.path}))
    if not target.dry_run:
        target.wrote((done.written if isinstance(done, Stripped) else done).data_files)
    options.show(done)


@contextlib.contextmanager
def _announced(path: Path, dry_run: bool, target: Path | None = None) -> "Iterator[Model]":
    """A loaded model while its data is written; a message comes first if that is much."""
    from onnxsurgeon_lite.model import load
    from onnxsurgeon_lite.model.saving import embedded_size

    model = load(path)
    size = embedded_size(model)
    if dry_run:
        announce("would write", target or path, size)
    with contextlib.nullcontext() if dry_run else writing(target or path, size):
        yield model
