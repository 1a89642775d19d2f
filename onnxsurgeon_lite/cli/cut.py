"""Cut: extract, expose, split."""

from typing import TYPE_CHECKING, Annotated, Unpack

import typer

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.api.call import RunOnFeeds
from onnxsurgeon_lite.cli import completion, options
from onnxsurgeon_lite.cli.boundary import MISMATCH
from onnxsurgeon_lite.cli.outputs import Target

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from onnxsurgeon_lite.passes import PassResult


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
    _make(
        "extract",
        lambda: osl.extract(model, inputs or (), outputs or (), auto_inputs),
        model,
        output,
        force,
        dry_run,
    )


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

    if not values and not every:
        raise UsageError("no value is named", "name some, or expose every one with --all")
    _make("expose", lambda: osl.expose(model, values or (), every), model, output, force, dry_run)


@options.shared
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
    opt: options.Opt = "none",
    force: options.Force = False,
    dry_run: options.DryRun = False,
    json: options.Json = False,
    **how: Unpack[RunOnFeeds],
) -> None:
    """Split a model at values into parts, and run the parts, one after another, against the whole."""
    from onnxsurgeon_lite.report.progress import progress

    target = Target(model, "split", output, force, suffix="")
    folder = None if dry_run else target.path
    with progress(f"writing {target.path}"):
        found = osl.split(model, at, folder, feeds, target.replaceable(), opt=opt, **how)
    if not dry_run:
        target.wrote()
    options.show(found, json)
    if not found.match:
        raise typer.Exit(MISMATCH)


def _make(
    verb: str,
    edit: "Callable[[], PassResult]",
    source: "Path",
    output: "Path | None",
    force: bool,
    dry_run: bool,
) -> None:
    """Make a part, or what is like one; write it complete, so that it needs none of the source's files."""
    from onnxsurgeon_lite.model import movable
    from onnxsurgeon_lite.report import plain

    result = edit()
    if dry_run:
        options.show(result)
    else:
        plain.show_notes(result.notes)
    external = movable(result.model) if verb == "extract" else None
    options.save(result.model, Target(source, verb, output, force), external, dry_run)
