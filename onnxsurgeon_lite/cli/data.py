"""Data: where a model's tensors are, and putting them elsewhere."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.cli import options
from onnxsurgeon_lite.cli.outputs import Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onnxsurgeon_lite.model import Model, Written
    from onnxsurgeon_lite.model.storage import Stripped

data = typer.Typer(no_args_is_help=True, help="Show and move the data of large tensors.")


@data.command()
def ls(
    model: options.Model,
    fingerprints: Annotated[
        bool, typer.Option("--fingerprint/--no-fingerprint", help="Read the data for fingerprints.")
    ] = True,
    json: options.Json = False,
) -> None:
    """List the large tensors: file, offset, bytes, dtype, fingerprint."""
    from onnxsurgeon_lite.report.progress import progress

    with progress(f"reading the data of {model}"):
        found = osl.data.ls(model, fingerprints)
    options.show(found, json)


@data.command()
def embed(
    model: options.Model,
    output: options.Output = None,
    force: options.Force = False,
    dry_run: options.DryRun = False,
) -> None:
    """Write a model with all its data inside."""
    _write(
        model,
        Target(model, "embed", output, force),
        dry_run,
        lambda loaded, path: osl.data.embed(loaded, path, force=force, dry_run=dry_run),
    )


@data.command()
def external(
    model: options.Model,
    location: Annotated[
        str,
        typer.Option(
            "--location", help="The data's path relative to the model; NAME.data if none."
        ),
    ] = "",
    output: options.Output = None,
    force: options.Force = False,
    dry_run: options.DryRun = False,
) -> None:
    """Write a model with its data in one file beside it."""
    _write(
        model,
        Target(model, "external", output, force),
        dry_run,
        lambda loaded, path: osl.data.external(
            loaded, path, location, force=force, dry_run=dry_run
        ),
    )


@data.command()
def move(
    model: options.Model,
    location: Annotated[str, typer.Argument(help="The new path, relative to the model.")],
    force: options.Force = False,
    dry_run: options.DryRun = False,
) -> None:
    """Move a model's data to another file, in place: the model refers to it there."""
    from onnxsurgeon_lite.report import plain

    with _announced(model, dry_run) as loaded:
        moved = osl.data.move(loaded, location, force, dry_run, progress=plain.show_note)
    options.show(moved)


@data.command()
def gc(model: options.Model, dry_run: options.DryRun = False) -> None:
    """Rewrite a model's data files, in place, to exactly the bytes that it refers to."""
    from onnxsurgeon_lite.report import plain

    with _announced(model, dry_run) as loaded:
        found = osl.data.gc(loaded, dry_run, progress=plain.show_note)
    options.show(found)


@data.command()
def strip(
    model: options.Model,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the noise.")] = 0,
    output: options.Output = None,
    force: options.Force = False,
    dry_run: options.DryRun = False,
) -> None:
    """Write a model whose weights are noise of the same mean, deviation and range."""
    _write(
        model,
        Target(model, "strip", output, force),
        dry_run,
        lambda loaded, path: osl.data.strip(loaded, path, seed, force, dry_run),
    )


@data.command()
def unstrip(
    model: options.Model,
    original: Annotated[Path, typer.Argument(help="The model that was stripped.")],
    output: options.Output = None,
    force: options.Force = False,
    dry_run: options.DryRun = False,
) -> None:
    """Write a stripped model with the weights of the original."""
    _write(
        model,
        Target(model, "unstrip", output, force),
        dry_run,
        lambda loaded, path: osl.data.unstrip(loaded, original, path, force, dry_run),
    )


def _write(
    path: Path,
    target: Target,
    dry_run: bool,
    write: "Callable[[Model, Path], Written | Stripped]",
) -> None:
    """Write a model's data elsewhere, and say so."""
    from onnxsurgeon_lite.atomic import require_free
    from onnxsurgeon_lite.model.storage import Stripped

    with _announced(path, dry_run, target.path) as model:
        if not dry_run:
            require_free(target.path, target.replaceable())
        done = write(model, target.path)
    if not dry_run:
        target.wrote((done.written if isinstance(done, Stripped) else done).data_files)
    options.show(done)


@contextlib.contextmanager
def _announced(path: Path, dry_run: bool, target: Path | None = None) -> "Iterator[Model]":
    """A loaded model, while its data is written: of much it is said before."""
    from onnxsurgeon_lite.model import load
    from onnxsurgeon_lite.model.saving import embedded_size
    from onnxsurgeon_lite.report.progress import announce, writing

    model = load(path)
    size = embedded_size(model)
    if dry_run:
        announce("would write", target or path, size)
    with contextlib.nullcontext() if dry_run else writing(target or path, size):
        yield model
