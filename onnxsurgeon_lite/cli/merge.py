"""Change: merge, which takes several models."""

from pathlib import Path
from typing import Annotated

import typer

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.cli import completion, options
from onnxsurgeon_lite.cli.outputs import Target


def merge(
    models: Annotated[
        list[Path], typer.Argument(help="Models to merge, two or more.", show_default=False)
    ],
    links: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            help="A value so far, and the input that it feeds.",
            metavar="VALUE=INPUT",
            autocompletion=completion.links,
        ),
    ] = None,
    share: Annotated[
        list[str] | None,
        typer.Option(
            "--share", help="An input that all have, as one.", autocompletion=completion.inputs
        ),
    ] = None,
    prefix: Annotated[
        list[str] | None,
        typer.Option("--prefix", help="Before every name of the next model; can be repeated."),
    ] = None,
    output: options.Output = None,
    force: options.Force = False,
    dry_run: options.DryRun = False,
) -> None:
    """Merge models into one: outputs of one feed inputs of the next, inputs are shared."""
    from onnxsurgeon_lite.model import movable

    pairs = options.pairs("--map", links)
    result = osl.merge(*models, map=pairs, share=share or (), prefix=prefix or ())
    options.show(result)
    target = Target(models[0], "merge", output, force)
    options.save(result.model, target, movable(result.model), dry_run)
