"""Cut: extract, expose."""

from typing import TYPE_CHECKING, Annotated

import typer

from onnxsurgeon_lite.cli import options

if TYPE_CHECKING:
    from pathlib import Path

    from onnxsurgeon_lite.passes import Pass


def extract(
    model: options.Model,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--inputs", help="Values to cut at, comma-separated; the model's own by default."
        ),
    ] = None,
    outputs: Annotated[
        list[str] | None,
        typer.Option(
            "--outputs", help="Values to keep, comma-separated; the model's own by default."
        ),
    ] = None,
    output: options.Output = None,
    auto_inputs: Annotated[
        bool, typer.Option("--auto-inputs", help="Add the inputs that close the cut.")
    ] = False,
    force: options.Force = False,
) -> None:
    """Cut out the part of a model between values: `--inputs 22 --outputs 28`."""
    from onnxsurgeon_lite.passes import Extract

    step = Extract(tuple(inputs or ()), tuple(outputs or ()), auto_inputs)
    _apply(step, model, output, force, complete=True)


def expose(
    model: options.Model,
    values: Annotated[
        list[str] | None, typer.Argument(help="Values to expose: names, ids, globs, op:Conv.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Expose every value.")] = False,
    output: options.Output = None,
    force: options.Force = False,
) -> None:
    """Declare intermediate values as graph outputs."""
    from onnxsurgeon_lite.errors import UsageError
    from onnxsurgeon_lite.passes import Expose

    if not values and not every:
        raise UsageError("no value is named", "name some, or expose every one with --all")
    _apply(Expose(tuple(values or ()), every), model, output, force)


def _apply(
    step: "Pass", source: "Path", output: "Path | None", force: bool, complete: bool = False
) -> None:
    """Load, apply, save, say so; `complete` writes files that need none of the source's."""
    from onnxsurgeon_lite.model import load, movable, save
    from onnxsurgeon_lite.report import lines
    from onnxsurgeon_lite.report.progress import progress

    target = options.default_output(source, step.name, output, force)
    result = step.apply(load(source))
    lines.show_notes(result.notes)
    with progress(f"writing {target}"):
        external = movable(result.model) if complete else None
        written = save(result.model, target, external, force=force)
    lines.show_written(written.path, written.data_files)
