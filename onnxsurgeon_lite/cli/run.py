"""Run: run, record, compare."""

from pathlib import Path
from typing import Annotated, Unpack

import typer

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.api.call import Comparing, RunOnFeeds
from onnxsurgeon_lite.cli import completion, options
from onnxsurgeon_lite.cli.boundary import MISMATCH


@options.shared
def run(
    model: options.Model,
    feeds: options.Feeds = None,
    fetch: Annotated[
        list[str] | None,
        typer.Option(
            "--fetch",
            help="Values to return instead of the outputs, comma-separated.",
            autocompletion=completion.values,
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            "--save", "-o", help="Store what was returned: .npz, .safetensors or a folder."
        ),
    ] = None,
    opt: options.Opt = "all",
    force: options.Force = False,
    json: options.Json = False,
    **how: Unpack[RunOnFeeds],
) -> None:
    """Run a model in a process of its own and show shape, dtype and range of what comes out."""
    from onnxsurgeon_lite.atomic import require_free
    from onnxsurgeon_lite.report import plain
    from onnxsurgeon_lite.report.progress import progress

    with progress(f"running {model}"):
        result = osl.run(model, feeds, fetch or (), opt=opt, **how)
    options.show(result, json)
    if save is not None:
        require_free(save, force)
        result.save(save)
        plain.show_written(save)


@options.shared
def record(
    model: Annotated[
        Path,
        typer.Argument(
            help="Model to read, or FILE.py:function that returns a PyTorch module, or (module, args).",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="Where to store: a folder, .npz or .safetensors.",
            show_default=False,
        ),
    ],
    feeds: options.Feeds = None,
    value: Annotated[
        list[str] | None,
        typer.Option(
            "--value",
            help="Values to record, comma-separated; all by default.",
            autocompletion=completion.values,
        ),
    ] = None,
    inner: Annotated[
        bool,
        typer.Option("--inner", help="Values inside branches, loops and functions as well."),
    ] = False,
    wide: Annotated[
        bool, typer.Option("--float64", help="Compute an ONNX model in float64, node by node.")
    ] = False,
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", help="PyTorch: only what lies in this module, such as layer.4.*."),
    ] = None,
    operators: Annotated[
        bool,
        typer.Option("--operators", help="PyTorch: every operator's output, by torch.export."),
    ] = False,
    names_of: Annotated[
        Path | None,
        typer.Option("--model", help="PyTorch: store inputs under this model's names."),
    ] = None,
    force: options.Force = False,
    **how: Unpack[RunOnFeeds],
) -> None:
    """Record reference tensors: the feeds and every value, as this runtime or PyTorch computes them."""
    from onnxsurgeon_lite.report.progress import progress

    with progress(f"recording {model}") as tell:
        how["progress"] = tell
        done = osl.record(
            model,
            output,
            feeds,
            value or (),
            inner,
            wide,
            scope or (),
            operators,
            names_of,
            force,
            **how,
        )
    options.show(done)


@options.shared
def compare(
    actual: Annotated[
        Path, typer.Argument(help="A model, or a set of tensors.", show_default=False)
    ],
    reference: Annotated[
        Path, typer.Argument(help="The set of tensors to compare with.", show_default=False)
    ],
    feeds: options.Feeds = None,
    mapping: options.Map = None,
    opt: options.Opt = "all",
    metrics: options.Metrics = "usual",
    json: options.Json = False,
    **how: Unpack[Comparing],
) -> None:
    """Compare two sets of tensors, or a model's outputs with a set: shape, dtype, then values."""
    result = osl.compare_sets(actual, reference, feeds, mapping, opt=opt, **how)
    options.show(result, json, metrics)
    if not result.match:
        raise typer.Exit(MISMATCH)
