"""Data: where a model's tensors are, and putting them elsewhere."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxsurgeon_lite.cli import options

if TYPE_CHECKING:
    from onnxsurgeon_lite.model import Written

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
    from onnxsurgeon_lite.model import load
    from onnxsurgeon_lite.model.storage import list_data
    from onnxsurgeon_lite.report import json as reporting
    from onnxsurgeon_lite.report import storage as tables
    from onnxsurgeon_lite.report.progress import progress

    with progress(f"reading the data of {model}"):
        found = list(list_data(load(model), fingerprints))
    (reporting.show_json if json else tables.show_data)(found)


@data.command()
def embed(
    model: options.Model,
    output: options.Output = None,
    force: options.Force = False,
    dry_run: options.DryRun = False,
) -> None:
    """Write a model with all its data inside."""
    from onnxsurgeon_lite.model import load, storage
    from onnxsurgeon_lite.report.progress import progress

    target = options.default_output(model, "embed", output, force)
    with progress(f"writing {target}"):
        written = storage.embed(load(model), target, force=force, dry_run=dry_run)
    _show(written, dry_run)


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
    from onnxsurgeon_lite.model import load, save
    from onnxsurgeon_lite.report.progress import progress

    target = options.default_output(model, "external", output, force)
    with progress(f"writing {target}"):
        written = save(load(model), target, True, location=location, force=force, dry_run=dry_run)
    _show(written, dry_run)


@data.command()
def move(
    model: options.Model,
    location: Annotated[str, typer.Argument(help="The new path, relative to the model.")],
    force: options.Force = False,
    dry_run: options.DryRun = False,
) -> None:
    """Move a model's data to another file, in place: the model refers to it there."""
    from onnxsurgeon_lite.model import load, storage
    from onnxsurgeon_lite.report import plain
    from onnxsurgeon_lite.report.progress import progress

    with progress(f"moving the data of {model}"):
        written, notes = storage.move(
            load(model), location, force=force, dry_run=dry_run, tell=plain.show_note
        )
    plain.show_notes(notes)
    _show(written, dry_run)


@data.command()
def gc(model: options.Model, dry_run: options.DryRun = False) -> None:
    """Rewrite a model's data files, in place, to exactly the bytes that it refers to."""
    from onnxsurgeon_lite.model import load, storage
    from onnxsurgeon_lite.report import plain
    from onnxsurgeon_lite.report.progress import progress

    with progress(f"collecting the data of {model}"):
        found = storage.collect(load(model), dry_run=dry_run, tell=plain.show_note)
    if dry_run:
        plain.show_planned(found.files)
    for file in () if dry_run else found.files:
        plain.show_written(file)
    plain.out(f"{found.before - found.after} bytes less")


@data.command()
def strip(
    model: options.Model,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the noise.")] = 0,
    output: options.Output = None,
    force: options.Force = False,
    dry_run: options.DryRun = False,
) -> None:
    """Write a model whose weights are noise of the same mean, deviation and range."""
    from onnxsurgeon_lite.model import load, storage
    from onnxsurgeon_lite.report import plain
    from onnxsurgeon_lite.report.progress import progress

    target = options.default_output(model, "strip", output, force)
    with progress(f"writing {target}"):
        found = storage.strip(load(model), target, seed, force=force, dry_run=dry_run)
    plain.show_notes(f"no floats, so kept as they are: {name!r}" for name in found.kept)
    plain.out(f"stripped {found.changed} tensors")
    _show(found.written, dry_run)


@data.command()
def unstrip(
    model: options.Model,
    original: Annotated[Path, typer.Argument(help="The model that was stripped.")],
    output: options.Output = None,
    force: options.Force = False,
    dry_run: options.DryRun = False,
) -> None:
    """Write a stripped model with the weights of the original."""
    from onnxsurgeon_lite.model import load, storage
    from onnxsurgeon_lite.report.progress import progress

    target = options.default_output(model, "unstrip", output, force)
    with progress(f"writing {target}"):
        written = storage.unstrip(load(model), load(original), target, force=force, dry_run=dry_run)
    _show(written, dry_run)


def _show(written: "Written", dry_run: bool) -> None:
    from onnxsurgeon_lite.report import plain

    if dry_run:
        plain.show_planned(written.sizes)
    else:
        plain.show_written(written.path, written.data_files)
