"""Edits of shapes: set-shape, rebatch, pad-outputs, batch-outputs, name-outputs."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxsurgeon_lite.cli import options
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.runtime.child import Child

if TYPE_CHECKING:
    from onnxsurgeon_lite.passes import PassResult

_Seed = Annotated[int, typer.Option("--seed", help="Seed of the feeds that it is proved with.")]
_TwoExports = Annotated[
    bool,
    typer.Option("--two-exports", help="Learn what follows from an export at another size."),
]


def set_shape(
    model: options.Model,
    shapes: Annotated[
        list[str],
        typer.Argument(
            help="Shapes of inputs: x=N,3,H,W; with --two-exports the second export before them.",
            show_default=False,
        ),
    ],
    two_exports: _TwoExports = False,
    output: options.Output = None,
    seed: _Seed = 0,
    dim: options.Dims = None,
    fill: options.Fills = None,
    timeout: options.Timeout = None,
    ops_library: options.OpsLibraries = None,
    force: options.Force = False,
) -> None:
    """Give inputs other shapes, all the way through: numbers fix dimensions, names open them. Proved by running."""
    with Child() as child:
        from onnxsurgeon_lite import proving
        from onnxsurgeon_lite.model import load
        from onnxsurgeon_lite.passes import SetShape
        from onnxsurgeon_lite.report.progress import progress
        from onnxsurgeon_lite.runtime.session import Runtime

        target = options.default_output(model, SetShape.name, output, force)
        second = load(shapes.pop(0)) if two_exports else None
        step = SetShape(dict(map(_shape, shapes)), second)
        source = load(model)
        how = options.runtime_options("none", "cpu", 0, timeout, ops_library, lean=True)
        recipe = options.recipe(seed, dim, fill)
        with progress("proving by running"), Runtime(how, child) as runtime:
            result = step.apply(source)
            proof = (
                proving.prove(source, result.model, step.shapes, runtime, recipe, second=second)
                if result.changed
                else []
            )
    _write(result, target, force, proof)


def rebatch(
    model: options.Model,
    other: Annotated[
        Path | None,
        typer.Argument(help="With --two-exports: the second export.", show_default=False),
    ] = None,
    to: Annotated[
        str, typer.Option("--to", help="A number for a fixed size, a name for an open one.")
    ] = "N",
    inputs: Annotated[
        list[str] | None,
        typer.Option("--inputs", help="Inputs that have the batch, comma-separated; all."),
    ] = None,
    axis: Annotated[
        int, typer.Option("--axis", min=0, help="Which dimension of the inputs it is.")
    ] = 0,
    two_exports: _TwoExports = False,
    output: options.Output = None,
    seed: _Seed = 0,
    dim: options.Dims = None,
    fill: options.Fills = None,
    timeout: options.Timeout = None,
    ops_library: options.OpsLibraries = None,
    force: options.Force = False,
) -> None:
    """Give the batch another size, or open it, all the way through. Proved by running, sample by sample."""
    if two_exports != (other is not None):
        raise UsageError(
            "--two-exports takes two models, other uses one",
            "write onnxdbg edit rebatch --two-exports a.onnx b.onnx",
        )
    with Child() as child:
        from onnxsurgeon_lite import proving
        from onnxsurgeon_lite.graph import GraphIndex
        from onnxsurgeon_lite.model import load
        from onnxsurgeon_lite.names import split
        from onnxsurgeon_lite.passes import Rebatch
        from onnxsurgeon_lite.report.progress import progress
        from onnxsurgeon_lite.runtime.session import Runtime

        target = options.default_output(model, Rebatch.name, output, force)
        source = load(model)
        index = GraphIndex.of(source)
        size = int(to) if to.isdecimal() else to
        second = None if other is None else load(other)
        step = Rebatch(size, tuple(split(inputs or (), index.inputs)), axis, second)
        how = options.runtime_options("none", "cpu", 0, timeout, ops_library, lean=True)
        recipe = options.recipe(seed, dim, fill)
        with progress("proving by running"), Runtime(how, child) as runtime:
            result = step.apply(source)
            shapes = step.shapes(index)
            proof = (
                proving.prove(source, result.model, shapes, runtime, recipe, axis, second)
                if result.changed
                else []
            )
    _write(result, target, force, proof)


def _shape(text: str) -> tuple[str, tuple[int | str, ...]]:
    name, equals, shape = text.rpartition("=")
    sizes = [size.strip() for size in shape.split(",")]
    if not equals or not all(sizes):
        raise UsageError(f"{text!r} gives no input and shape", "write x=N,3,H,W")
    return name, tuple(int(size) if size.isdecimal() else size for size in sizes)


def _write(result: "PassResult", target: Path, force: bool, proof: Iterable[str] = ()) -> None:
    """Say what was done, save, say so."""
    from onnxsurgeon_lite.model import save
    from onnxsurgeon_lite.report import lines

    lines.show_notes(result.notes)
    if not result.changed:
        lines.show_notes(["nothing had to change"])
    for line in proof:
        lines.out(line)
    written = save(result.model, target, force=force)
    lines.show_written(written.path, written.data_files)


_Max = Annotated[
    int, typer.Option("--max", min=1, help="Detections to hold of an image.", show_default=False)
]
_Fill = Annotated[
    list[str] | None,
    typer.Option("--fill", help="What an output is padded with; 0.", metavar="NAME=NUMBER"),
]
_Count = Annotated[str, typer.Option("--count", help="Output that says how many count.")]


def pad_outputs(
    model: options.Model,
    most: _Max,
    outputs: Annotated[
        list[str] | None,
        typer.Option("--outputs", help="Outputs to pad, comma-separated; the ragged ones."),
    ] = None,
    fill: _Fill = None,
    count: _Count = "num_detections",
    output: options.Output = None,
    force: options.Force = False,
) -> None:
    """Pad the ragged outputs of one image to a fixed length: boxes of n x 4 to 100 x 4."""
    from onnxsurgeon_lite.model import load
    from onnxsurgeon_lite.names import split
    from onnxsurgeon_lite.passes import PadOutputs

    target = options.default_output(model, PadOutputs.name, output, force)
    source = load(model)
    names = split(outputs or (), {info.name for info in source.proto.graph.output})
    step = PadOutputs(most, tuple(names), dict(map(_fill, fill or ())), count)
    _write(step.apply(source), target, force)


def batch_outputs(
    model: options.Model,
    most: _Max,
    groups: Annotated[
        list[str] | None,
        typer.Argument(
            help="boxes=OUTPUT,OUTPUT for each group; those numbered boxes.0, boxes.1 by default."
        ),
    ] = None,
    fill: _Fill = None,
    count: _Count = "num_detections",
    output: options.Output = None,
    force: options.Force = False,
) -> None:
    """Stack the ragged outputs of several images, padded: boxes of n x 4 and m x 4 to 2 x 100 x 4."""
    from onnxsurgeon_lite.model import load
    from onnxsurgeon_lite.passes import BatchOutputs

    target = options.default_output(model, BatchOutputs.name, output, force)
    step = BatchOutputs(most, dict(map(_group, groups or ())), dict(map(_fill, fill or ())), count)
    _write(step.apply(load(model)), target, force)


def name_outputs(
    model: options.Model,
    names: Annotated[
        list[str],
        typer.Argument(
            help="Names of one image's outputs, comma-separated; numbered where there are more images.",
            show_default=False,
        ),
    ],
    output: options.Output = None,
    force: options.Force = False,
) -> None:
    """Name the outputs in their order: boxes,labels,scores gives boxes.0, labels.0, scores.0, boxes.1."""
    from onnxsurgeon_lite.model import load
    from onnxsurgeon_lite.names import split
    from onnxsurgeon_lite.passes import NameOutputs

    target = options.default_output(model, NameOutputs.name, output, force)
    _write(NameOutputs(tuple(split(names))).apply(load(model)), target, force)


def _group(text: str) -> tuple[str, tuple[str, ...]]:
    from onnxsurgeon_lite.names import split

    name, equals, outputs = text.partition("=")
    if not equals or not name or not outputs:
        raise UsageError(f"{text!r} gives no group", "write boxes=OUTPUT,OUTPUT")
    return name, tuple(split([outputs]))


def _fill(text: str) -> tuple[str, float]:
    name, equals, number = text.rpartition("=")
    try:
        return name, float(number if equals else "")
    except ValueError as error:
        raise UsageError(f"--fill {text!r} gives no number", "write --fill labels=-1") from error


VERBS = (set_shape, rebatch, pad_outputs, batch_outputs, name_outputs)
