"""Build: a model from text."""

from pathlib import Path
from typing import Annotated

import typer

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.cli import options
from onnxsurgeon_lite.cli.outputs import Target


def build(
    text: Annotated[Path, typer.Argument(help="File in ONNX text syntax; a graph alone will do.")],
    output: options.Output = None,
    initializer: Annotated[
        list[str] | None,
        typer.Option("--initializer", help="Array for a name.", metavar="NAME=FILE.npy"),
    ] = None,
    force: options.Force = False,
    dry_run: options.DryRun = False,
) -> None:
    """Build a model from ONNX text syntax, and check it."""
    from onnxsurgeon_lite.report import plain

    model = osl.build(text, dict(options.pairs("--initializer", initializer)))
    if dry_run:
        plain.show_graph(f"graph {model.proto.graph.name!r}", model.proto.graph)
    options.save(model, Target(text, "build", output, force), dry_run=dry_run)
