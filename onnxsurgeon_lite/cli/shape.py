"""Edits of shapes and outputs: the passes that set-shape, rebatch, pad-outputs, batch-outputs and name-outputs make."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from onnxsurgeon_lite import passes
from onnxsurgeon_lite.cli import completion, options
from onnxsurgeon_lite.cli.options import Typed
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.names import is_count, key_value, split

_Fill = Annotated[Sequence[str], Typed(completes=completion.of_outputs, metavar="NAME=NUMBER")]
_Most = Annotated[int, Typed(("--max",), least=1)]


def set_shape(
    shapes: Annotated[Sequence[str], Typed(completes=completion.of_inputs)],
    *,
    two_exports: bool = False,
) -> "passes.Pass":
    """Give inputs other shapes, all the way through: numbers fix dimensions, names open them. Proved by running.

    $ onnxdbg edit set-shape model.onnx input.1=1,3,H,W
    $ onnxdbg edit set-shape model.onnx input.1=1,3,32,32 --dry-run

    Args:
        shapes: Shapes of inputs: x=N,3,H,W; with --two-exports the second export before them.
        two_exports: Learn what follows from an export at another size.
    """
    second, given = (shapes[0], shapes[1:]) if two_exports else (None, shapes)
    return passes.SetShape(dict(map(_shape, given)), second)


def rebatch(
    other: Path | None = None,
    *,
    to: str = "N",
    inputs: options.Inputs = (),
    axis: Annotated[int, Typed(least=0)] = 0,
    two_exports: bool = False,
) -> "passes.Pass":
    """Give the batch another size, or open it, all the way through. Proved by running, sample by sample.

    $ onnxdbg edit rebatch fixed.onnx
    $ onnxdbg edit rebatch fixed.onnx --to 4 --dry-run

    Args:
        other: With --two-exports: the second export.
        to: A number for a fixed size, a name for an open one.
        inputs: Inputs that have the batch, comma-separated; all.
        axis: Which dimension of the inputs it is.
        two_exports: Learn what follows from an export at another size.
    """
    if two_exports != (other is not None):
        raise UsageError(
            "--two-exports takes two models, other uses one",
            "write onnxdbg edit rebatch --two-exports a.onnx b.onnx",
        )
    size = int(to) if is_count(to) else to
    return passes.Rebatch(size, tuple(inputs), axis, None if other is None else str(other))


def _shape(text: str) -> tuple[str, tuple[int | str, ...]]:
    name, shape = key_value(text)
    sizes = [size.strip() for size in (shape or "").strip("[]").split(",")]
    if not all(sizes):
        raise UsageError(f"{text!r} gives no input and shape", "write x=N,3,H,W")
    return name, tuple(int(size) if is_count(size) else size for size in sizes)


def pad_outputs(
    *,
    most: _Most,
    outputs: Annotated[Sequence[str], Typed(completes=completion.outputs)] = (),
    fill: _Fill = (),
    count: str = "num_detections",
) -> "passes.Pass":
    """Pad the ragged outputs of one image to a fixed length: boxes of n x 4 to 100 x 4.

    $ onnxdbg edit pad-outputs detector.onnx --max 4 --outputs boxes,labels,scores
    $ onnxdbg edit pad-outputs detector.onnx --max 4 --outputs boxes --dry-run

    Args:
        most: Detections to hold of an image.
        outputs: Outputs to pad, comma-separated; the ragged ones.
        fill: What an output is padded with; 0.
        count: Output that says how many count.
    """
    return passes.PadOutputs(most, tuple(outputs), dict(map(_fill, fill)), count)


def batch_outputs(
    groups: Annotated[Sequence[str], Typed(completes=completion.to_outputs)] = (),
    *,
    most: _Most,
    fill: _Fill = (),
    count: str = "num_detections",
) -> "passes.Pass":
    """Stack the ragged outputs of several images, padded: boxes of n x 4 and m x 4 to 2 x 100 x 4.

    $ onnxdbg edit batch-outputs named.onnx --max 4
    $ onnxdbg edit batch-outputs named.onnx --max 4 --fill labels=-1 --dry-run

    Args:
        groups: boxes=OUTPUT,OUTPUT for each group; those numbered boxes.0, boxes.1 by default.
        most: Detections to hold of an image.
        fill: What an output is padded with; 0.
        count: Output that says how many count.
    """
    return passes.BatchOutputs(most, dict(map(_group, groups)), dict(map(_fill, fill)), count)


def name_outputs(names: Sequence[str]) -> "passes.Pass":
    """Name the outputs in their order: boxes,labels,scores gives boxes.0, labels.0, scores.0, boxes.1.

    $ onnxdbg edit name-outputs detector.onnx boxes,labels,scores -o named.onnx
    $ onnxdbg edit name-outputs detector.onnx boxes,labels,scores --dry-run

    Args:
        names: Names of one image's outputs, comma-separated; numbered where there are more images.
    """
    return passes.NameOutputs(tuple(split(names)))


def _group(text: str) -> tuple[str, tuple[str, ...]]:
    name, outputs = key_value(text)
    if not name or not outputs:
        raise UsageError(f"{text!r} gives no group", "write boxes=OUTPUT,OUTPUT")
    return name, tuple(split([outputs]))


def _fill(text: str) -> tuple[str, float]:
    name, number = key_value(text)
    try:
        return name, float(number or "")
    except ValueError as error:
        raise UsageError(f"--fill {text!r} gives no number", "write --fill labels=-1") from error


PROVED = (set_shape, rebatch)
