"""Edits of shapes and outputs: the passes that set-shape, rebatch, pad-outputs, batch-outputs and name-outputs make."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxsurgeon_lite.cli import completion
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.names import is_count, key_value, split

if TYPE_CHECKING:
    from onnxsurgeon_lite.passes import Pass

_TwoExports = Annotated[
    bool,
    typer.Option("--two-exports", help="Learn what follows from an export at another size."),
]


def set_shape(
    shapes: Annotated[
        list[str],
        typer.Argument(
            help="Shapes of inputs: x=N,3,H,W; with --two-exports the second export before them.",
            show_default=False,
            autocompletion=completion.of_inputs,
        ),
    ],
    two_exports: _TwoExports = False,
) -> "Pass":
    """Give inputs other shapes, all the way through: numbers fix dimensions, names open them. Proved by running."""
    from onnxsurgeon_lite.passes import SetShape

    second = shapes.pop(0) if two_exports else None
    return SetShape(dict(map(_shape, shapes)), second)


def rebatch(
    other: Annotated[
        Path | None,
        typer.Argument(help="With --two-exports: the second export.", show_default=False),
    ] = None,
    to: Annotated[
        str, typer.Option("--to", help="A number for a fixed size, a name for an open one.")
    ] = "N",
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--inputs",
            help="Inputs that have the batch, comma-separated; all.",
            autocompletion=completion.inputs,
        ),
    ] = None,
    axis: Annotated[
        int, typer.Option("--axis", min=0, help="Which dimension of the inputs it is.")
    ] = 0,
    two_exports: _TwoExports = False,
) -> "Pass":
    """Give the batch another size, or open it, all the way through. Proved by running, sample by sample."""
    from onnxsurgeon_lite.passes import Rebatch

    if two_exports != (other is not None):
        raise UsageError(
            "--two-exports takes two models, other uses one",
            "write onnxdbg edit rebatch --two-exports a.onnx b.onnx",
        )
    size = int(to) if is_count(to) else to
    return Rebatch(size, tuple(inputs or ()), axis, None if other is None else str(other))


def _shape(text: str) -> tuple[str, tuple[int | str, ...]]:
    name, shape = key_value(text)
    sizes = [size.strip() for size in (shape or "").split(",")]
    if not all(sizes):
        raise UsageError(f"{text!r} gives no input and shape", "write x=N,3,H,W")
    return name, tuple(int(size) if is_count(size) else size for size in sizes)


_Max = Annotated[
    int, typer.Option("--max", min=1, help="Detections to hold of an image.", show_default=False)
]
_Fill = Annotated[
    list[str] | None,
    typer.Option(
        "--fill",
        help="What an output is padded with; 0.",
        metavar="NAME=NUMBER",
        autocompletion=completion.of_outputs,
    ),
]
_Count = Annotated[str, typer.Option("--count", help="Output that says how many count.")]


def pad_outputs(
    most: _Max,
    outputs: Annotated[
        list[str] | None,
        typer.Option(
            "--outputs",
            help="Outputs to pad, comma-separated; the ragged ones.",
            autocompletion=completion.outputs,
        ),
    ] = None,
    fill: _Fill = None,
    count: _Count = "num_detections",
) -> "Pass":
    """Pad the ragged outputs of one image to a fixed length: boxes of n x 4 to 100 x 4."""
    from onnxsurgeon_lite.passes import PadOutputs

    return PadOutputs(most, tuple(outputs or ()), dict(map(_fill, fill or ())), count)


def batch_outputs(
    most: _Max,
    groups: Annotated[
        list[str] | None,
        typer.Argument(
            help="boxes=OUTPUT,OUTPUT for each group; those numbered boxes.0, boxes.1 by default.",
            autocompletion=completion.to_outputs,
        ),
    ] = None,
    fill: _Fill = None,
    count: _Count = "num_detections",
) -> "Pass":
    """Stack the ragged outputs of several images, padded: boxes of n x 4 and m x 4 to 2 x 100 x 4."""
    from onnxsurgeon_lite.passes import BatchOutputs

    return BatchOutputs(most, dict(map(_group, groups or ())), dict(map(_fill, fill or ())), count)


def name_outputs(
    names: Annotated[
        list[str],
        typer.Argument(
            help="Names of one image's outputs, comma-separated; numbered where there are more images.",
            show_default=False,
        ),
    ],
) -> "Pass":
    """Name the outputs in their order: boxes,labels,scores gives boxes.0, labels.0, scores.0, boxes.1."""
    from onnxsurgeon_lite.passes import NameOutputs

    return NameOutputs(tuple(split(names)))


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
