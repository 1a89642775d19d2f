"""Build: a model from text."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Unpack

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.cli import options
from onnxsurgeon_lite.cli.outputs import Target, Writing
from onnxsurgeon_lite.report import plain


@options.command
def build(
    text: Path,
    *,
    initializer: Annotated[Sequence[str], options.Typed(metavar="NAME=FILE.npy")] = (),
    **how: Unpack[Writing],
) -> None:
    """Build a model from ONNX text syntax, and check it.

    Args:
        text: File in ONNX text syntax; a graph alone will do.
        initializer: Array for a name.
    """
    model = osl.build(text, dict(options.pairs("--initializer", initializer)))
    target = Target(text, "build", **how)
    if target.dry_run:
        plain.show_graph(f"graph {model.proto.graph.name!r}", model.proto.graph)
    options.save(model, target)
