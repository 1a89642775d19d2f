"""Look: inspect, print, check, diff."""

from pathlib import Path
from typing import Annotated, Unpack

import typer

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.api.call import ComparingOnFeeds
from onnxsurgeon_lite.cli import completion, options
from onnxsurgeon_lite.cli.boundary import MISMATCH


def inspect(
    model: options.Model,
    node: Annotated[
        str | None,
        typer.Option(
            "--node",
            help="Show this node: name, id or op:Conv[2].",
            show_default=False,
            autocompletion=completion.nodes,
        ),
    ] = None,
    value: Annotated[
        str | None,
        typer.Option(
            "--value", help="Show this value.", show_default=False, autocompletion=completion.values
        ),
    ] = None,
    ops: Annotated[bool, typer.Option("--ops", help="Count every operator.")] = False,
    tree: Annotated[
        bool, typer.Option("--tree", help="Show the modules of the source program.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Show what a model is: inputs, outputs, opsets, parameters, operators. No weight is read."""
    found = osl.inspect(model, node, value, ops, tree)
    options.show(found, json)


def print_model(model: options.Model) -> None:
    """Print a model in ONNX text syntax, weights elided."""
    from onnxsurgeon_lite.report import plain

    plain.out(osl.text(model))


def check(
    model: options.Model,
    full: Annotated[
        bool, typer.Option("--full", help="Strict type and shape inference, too.")
    ] = False,
    timeout: options.Timeout = None,
    json: options.Json = False,
) -> None:
    """Check a model against the ONNX specification, and find what is suspicious, without materializing weights."""
    result = osl.check(model, full, timeout)
    options.show(result, json)
    if not result.valid:
        raise typer.Exit(MISMATCH)


@options.shared
def diff(
    first: options.Model,
    second: Annotated[Path, typer.Argument(help="Model to compare it with.", show_default=False)],
    run: Annotated[bool, typer.Option("--run", help="Run both on the same feeds, too.")] = False,
    mapping: Annotated[
        str | None,
        typer.Option(
            "--map",
            metavar="auto|FILE",
            help="Take nodes for the same whose values are: as `onnxdbg match` finds, or its file says.",
            show_default=False,
        ),
    ] = None,
    feeds: options.Feeds = None,
    opt: options.Opt = "all",
    json: options.Json = False,
    **how: Unpack[ComparingOnFeeds],
) -> None:
    """Compare two models by structure, whatever their values and nodes are called and however they are ordered."""
    from onnxsurgeon_lite.report.progress import progress

    with progress(f"comparing {first} with {second}") as tell:
        how["progress"] = tell
        found = osl.diff(first, second, run, mapping, feeds, opt=opt, **how)
    options.show(found, json)
    if not found.same:
        raise typer.Exit(MISMATCH)
