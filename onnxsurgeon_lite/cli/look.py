"""Look: inspect, print, check, diff."""

from pathlib import Path
from typing import Annotated, Unpack

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.api.call import ComparingOnFeeds, Limiting, OptLevel, RunOnFeeds
from onnxsurgeon_lite.cli import options
from onnxsurgeon_lite.cli.options import Node, Typed, Value
from onnxsurgeon_lite.report import plain
from onnxsurgeon_lite.report.progress import progress


@options.command
def inspect(
    model: Path,
    *,
    node: Node | None = None,
    value: Value | None = None,
    ops: bool = False,
    tree: bool = False,
    histogram: bool = False,
    html: Path | None = None,
    force: bool = False,
    json: bool = False,
    **how: Unpack[Limiting],
) -> None:
    """Show what a model is: inputs, outputs, opsets, parameters, operators. No weight is read.

    $ onnxdbg inspect model.onnx --node Add_7
    $ onnxdbg inspect weights.safetensors --histogram

    Args:
        model: Model to read; with --histogram also tensors: .npz, .npy, .safetensors, .pb or a folder.
        node: Show this node: name, id or op:Conv[2].
        value: Show this value.
        ops: Count every operator.
        tree: Show the modules of the source program.
        histogram: Read the numbers: statistics, outliers and a histogram of each tensor, or initializer;
            --value names some.
    """
    found = osl.inspect(model, node, value, ops, tree, histogram, html, force, **how)
    options.show(found, json, html=html)


@options.command
def print_model(
    model: Path, *, weights: Path | None = None, force: bool = False, **how: Unpack[Limiting]
) -> None:
    """Print a model in ONNX text syntax, weights elided.

    $ onnxdbg print model.onnx
    $ onnxdbg print linear.onnx --weights linear.safetensors --force > linear.txt

    Args:
        weights: Write what the text elides to this .safetensors file, for build --weights.
    """
    from onnxsurgeon_lite.model.sharing import require_replaceable

    if weights is not None:
        require_replaceable(weights, force)
    plain.out(osl.text(model, weights, **how))


@options.command
def check(
    model: Path,
    *,
    full: bool = False,
    run: bool = False,
    json: bool = False,
    **how: Unpack[RunOnFeeds],
) -> None:
    """Check a model against the ONNX specification, and find what is suspicious, without materializing weights.

    $ onnxdbg check model.onnx
    $ onnxdbg check model.onnx --full --run

    Args:
        full: Strict type and shape inference, too.
        run: Run it once; name the nodes that the runtime refuses alone.
    """
    result = osl.check(model, full, run, **how)
    options.show(result, json)
    options.require(result.valid)


@options.command
def diff(
    first: Path,
    second: Path,
    *,
    run: bool = False,
    mapping: Annotated[str | None, Typed(("--map",), metavar="auto|FILE")] = None,
    feeds: str | None = None,
    opt: OptLevel = "all",
    html: Path | None = None,
    force: bool = False,
    json: bool = False,
    **how: Unpack[ComparingOnFeeds],
) -> None:
    """Compare two models by structure, whatever their values and nodes are called and however they are ordered.

    $ onnxdbg diff model.onnx faulty.onnx
    $ onnxdbg diff model.onnx dynamo.onnx --map auto --run

    Args:
        first: Model to read.
        second: Model to compare it with.
        run: Run both on the same feeds, too.
        mapping: Take nodes for the same whose values are: as `onnxdbg match` finds, or its file says.
    """
    with progress(f"comparing {first} with {second}") as how["progress"]:
        found = osl.diff(first, second, run, mapping, feeds, html, force, opt=opt, **how)
    options.show(found, json, html=html)
    options.require(found.same)
