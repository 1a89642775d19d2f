"""Build: a model from text."""

from pathlib import Path
from typing import Annotated

import typer

from onnxsurgeon_lite.cli import options


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
    from onnxsurgeon_lite.graph.check import require_valid
    from onnxsurgeon_lite.model import save
    from onnxsurgeon_lite.passes.build import add_initializers, parse_text
    from onnxsurgeon_lite.report import plain

    target = None if dry_run else options.default_output(text, "build", output, force)
    model = parse_text(options.text_of(text))
    model = add_initializers(model, options.files(initializer))
    require_valid(model)
    if target is None:
        plain.show_graph(f"graph {model.proto.graph.name!r}", model.proto.graph)
        return
    written = save(model, target, force=force)
    plain.show_written(written.path, written.data_files)
