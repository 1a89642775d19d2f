"""Names across exports: match, weights."""

from pathlib import Path
from typing import Unpack

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.api.call import RunOnFeeds
from onnxsurgeon_lite.cli import options
from onnxsurgeon_lite.cli.outputs import Target, Writing
from onnxsurgeon_lite.report.progress import progress


@options.command
def match(
    a: Path,
    b: Path,
    *,
    feeds: str | None = None,
    save: options.Save = None,
    html: Path | None = None,
    force: bool = False,
    json: bool = False,
    **how: Unpack[RunOnFeeds],
) -> None:
    """Say which value of one model, or of a reference set, is which value of another, whatever they are called.

    $ onnxdbg match torch_refs model.onnx --save map.json
    $ onnxdbg match model.onnx dynamo.onnx

    Args:
        a: A model, or a set of tensors.
        b: A model.
        save: Write the pairs to a file for --map.
    """
    with progress("matching") as how["progress"]:
        result = osl.match(a, b, feeds, html, force, **how)
    options.store(result, save, force, json, html=html)


@options.command
def weights(
    model: Path,
    *,
    against: Path | None = None,
    update: Path | None = None,
    partial: bool = False,
    rtol: float | None = None,
    atol: float | None = None,
    json: bool = False,
    **how: Unpack[Writing],
) -> None:
    """Compare a model's weights with the checkpoint it was exported from: renamed, transposed or folded.

    $ onnxdbg weights model.onnx --against weights.safetensors
    $ onnxdbg weights faulty.onnx --against weights.safetensors --update weights.safetensors -o mended.onnx

    Args:
        against: Checkpoint: .safetensors, .pt, .pth or .npz.
        update: Write a model with the numbers of this one, each where and as the compared one is.
        partial: With --update: keep the weights whose new numbers are not known for sure.
    """
    from onnxsurgeon_lite.model import movable

    with progress("comparing weights") as tell:
        result = osl.weights(model, against, tell, update, partial, rtol=rtol, atol=atol)
    options.show(result, json)
    if result.model is None:
        options.require(result.match)
    else:
        options.save(result.model, Target(model, "weights", **how), movable(result.model))
