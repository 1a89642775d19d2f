"""Data: where a model's tensors are, and putting them elsewhere."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.cli import options

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnxsurgeon_lite.shown import Shown

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
        "embed",
        output,
        force,
        lambda target: osl.data.embed(model, target, force=force, dry_run=dry_run),
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
        "external",
        output,
        force,
        lambda target: osl.data.external(model, target, location, force=force, dry_run=dry_run),
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
    from onnxsurgeon_lite.report.progress import progress

    with progress(f"moving the data of {model}"):
        moved = osl.data.move(model, location, force, dry_run, progress=plain.show_note)
    options.show(moved)


@data.command()
def gc(model: options.Model, dry_run: options.DryRun = False) -> None:
    """Rewrite a model's data files, in place, to exactly the bytes that it refers to."""
    from onnxsurgeon_lite.report import plain
    from onnxsurgeon_lite.report.progress import progress

    with progress(f"collecting the data of {model}"):
        found = osl.data.gc(model, dry_run, progress=plain.show_note)
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
        "strip",
        output,
        force,
        lambda target: osl.data.strip(model, target, seed, force, dry_run),
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
        "unstrip",
        output,
        force,
        lambda target: osl.data.unstrip(model, original, target, force, dry_run),
    )


def _write(
    model: Path,
    verb: str,
    output: Path | None,
    force: bool,
    write: "Callable[[Path], Shown]",
) -> None:
    from onnxsurgeon_lite.report.progress import progress

    target = options.default_output(model, verb, output, force)
    with progress(f"writing {target}"):
        written = write(target)
    options.show(written)
