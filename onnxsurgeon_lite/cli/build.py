"""Build: a model from text."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.cli import options
from onnxsurgeon_lite.cli.outputs import Target
from onnxsurgeon_lite.report import plain


@options.command
def build(
    text: Path,
    *,
    output: Path | None = None,
    initializer: Annotated[Sequence[str], options.Typed(metavar="NAME=FILE.npy")] = (),
    force: bool = False,
    dry_run: bool = False,
) -> None:
    """Build a model from ONNX text syntax, and check it.

    Args:
        text: File in ONNX text syntax; a graph alone will do.
        initializer: Array for a name.
    """
    model = osl.build(text, dict(options.pairs("--initializer", initializer)))
    if dry_run:
        plain.show_graph(f"graph {model.proto.graph.name!r}", model.proto.graph)
    options.save(model, Target(text, "build", output, force), dry_run=dry_run)
