"""Names across exports: match, weights."""

from pathlib import Path
from typing import Annotated, Unpack

import typer

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.api.call import RunOnFeeds
from onnxsurgeon_lite.cli import options
from onnxsurgeon_lite.cli.boundary import MISMATCH


@options.shared
def match(
    a: Annotated[Path, typer.Argument(help="A model, or a set of tensors.", show_default=False)],
    b: Annotated[Path, typer.Argument(help="A model.", show_default=False)],
    feeds: options.Feeds = None,
    save: Annotated[
        Path | None,
        typer.Option(
            "--save", "-o", help="Write the pairs to a file for --map.", show_default=False
        ),
    ] = None,
    force: options.Force = False,
    json: options.Json = False,
    **how: Unpack[RunOnFeeds],
) -> None:
    """Say which value of one model, or of a reference set, is which value of another, whatever they are called."""
    from onnxsurgeon_lite.atomic import require_free
    from onnxsurgeon_lite.report import plain
    from onnxsurgeon_lite.report.progress import progress

    with progress("matching") as tell:
        how["progress"] = tell
        result = osl.match(a, b, feeds, **how)
    options.show(result, json)
    if save is not None:
        require_free(save, force)
        result.save(save)
        plain.show_written(save)


def weights(
    model: options.Model,
    against: Annotated[
        Path,
        typer.Option(
            "--against", help="Checkpoint: .safetensors, .pt, .pth or .npz.", show_default=False
        ),
    ],
    rtol: options.Rtol = None,
    atol: options.Atol = None,
    json: options.Json = False,
) -> None:
    """Compare a model's weights with the checkpoint it was exported from: renamed, transposed or folded."""
    from onnxsurgeon_lite.report.progress import progress

    with progress("comparing weights") as tell:
        result = osl.weights(model, against, tell, rtol=rtol, atol=atol)
    options.show(result, json)
    if not result.match:
        raise typer.Exit(MISMATCH)
