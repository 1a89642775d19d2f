"""Cut: extract, expose, split."""

from typing import TYPE_CHECKING, Annotated

import typer

from onnxsurgeon_lite.cli import completion, options
from onnxsurgeon_lite.cli.boundary import MISMATCH

if TYPE_CHECKING:
    from pathlib import Path

    from onnxsurgeon_lite.passes import Pass


def extract(
    model: options.Model,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--inputs",
            help="Values to cut at, comma-separated; the model's own by default.",
            autocompletion=completion.values,
        ),
    ] = None,
    outputs: Annotated[
        list[str] | None,
        typer.Option(
            "--outputs",
            help="Values to keep, comma-separated; the model's own by default.",
            autocompletion=completion.values,
        ),
    ] = None,
    output: options.Output = None,
    auto_inputs: Annotated[
        bool, typer.Option("--auto-inputs", help="Add the inputs that close the cut.")
    ] = False,
    force: options.Force = False,
    dry_run: options.DryRun = False,
) -> None:
    """Cut out the part of a model between values: `--inputs 22 --outputs 28`."""
    from onnxsurgeon_lite.passes import Extract

    step = Extract(tuple(inputs or ()), tuple(outputs or ()), auto_inputs)
    _apply(step, model, output, force, dry_run, complete=True)


def expose(
    model: options.Model,
    values: Annotated[
        list[str] | None,
        typer.Argument(
            help="Values to expose: names, ids, globs, op:Conv.", autocompletion=completion.values
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Expose every value.")] = False,
    output: options.Output = None,
    force: options.Force = False,
    dry_run: options.DryRun = False,
) -> None:
    """Declare intermediate values as graph outputs."""
    from onnxsurgeon_lite.errors import UsageError
    from onnxsurgeon_lite.passes import Expose

    if not values and not every:
        raise UsageError("no value is named", "name some, or expose every one with --all")
    _apply(Expose(tuple(values or ()), every), model, output, force, dry_run)


def split(
    model: options.Model,
    at: Annotated[
        list[str],
        typer.Option(
            "--at", help="Values to split at, comma-separated.", autocompletion=completion.values
        ),
    ],
    output: options.Output = None,
    feeds: options.Feeds = None,
    seed: options.Seed = 0,
    dim: options.Dims = None,
    fill: options.Fills = None,
    opt: options.Opt = "none",
    timeout: options.Timeout = None,
    ops_library: options.OpsLibraries = None,
    force: options.Force = False,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Split a model at values into parts, and run the parts, one after another, against the whole."""
    from onnxsurgeon_lite.debug.bisection.reproducer import require_free
    from onnxsurgeon_lite.graph.index import GraphIndex
    from onnxsurgeon_lite.matching import split as splitting
    from onnxsurgeon_lite.model import load
    from onnxsurgeon_lite.report import json as data
    from onnxsurgeon_lite.report import plain
    from onnxsurgeon_lite.report import split as parts
    from onnxsurgeon_lite.report.progress import progress
    from onnxsurgeon_lite.runtime.feeds import given_or_made
    from onnxsurgeon_lite.runtime.session import Runtime

    index = GraphIndex.of(load(model))
    found = splitting.split(index, at)
    show = data.show_json if json else parts.show_split
    if dry_run:
        plain.show_notes(found.notes)
        show(found)
        return
    folder = options.default_output(model, "split", output, force, suffix="")
    require_free(folder, force)
    given, made = given_or_made(index, feeds, options.recipe(seed, dim, fill))
    plain.show_notes([*found.notes, *(f"made {line}" for line in made)])
    how = options.runtime_options(opt, timeout=timeout, ops_libraries=ops_library, lean=True)
    with progress(f"writing {folder}"), Runtime(how) as runtime:
        found = splitting.write_parts(index, found, folder)
        found = splitting.compare_chain(index, found, given, runtime)
    show(found)
    if not found.match:
        raise typer.Exit(MISMATCH)


def _apply(
    step: "Pass",
    source: "Path",
    output: "Path | None",
    force: bool,
    dry_run: bool,
    complete: bool = False,
) -> None:
    """Load, apply, save, say so; `complete` writes files that need none of the source's."""
    from onnxsurgeon_lite.model import load, movable, save
    from onnxsurgeon_lite.report import plain
    from onnxsurgeon_lite.report.progress import progress

    target = None if dry_run else options.default_output(source, step.name, output, force)
    result = step.apply(load(source))
    plain.show_notes(result.notes)
    if target is None:
        plain.show_graph(step.name, result.model.proto.graph)
        return
    with progress(f"writing {target}"):
        external = movable(result.model) if complete else None
        written = save(result.model, target, external, force=force)
    plain.show_written(written.path, written.data_files)
