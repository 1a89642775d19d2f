"""Look: inspect, print, check, diff, view."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from onnxsurgeon_lite.cli import options
from onnxsurgeon_lite.cli.options import Node, Typed, Value, command
from onnxsurgeon_lite.report import plain

if TYPE_CHECKING:
    from onnxsurgeon_lite.graph.check import CheckResult
    from onnxsurgeon_lite.matching.diff import ModelDiff
    from onnxsurgeon_lite.report.page.view import View
    from onnxsurgeon_lite.shown import Shown


@command(shows="json")
def inspect(
    _: "Shown",
    *,
    node: Node | None = None,
    value: Value | None = None,
    depth: Annotated[int | None, Typed(least=0)] = None,
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
        depth: With --tree: how many modules deep.
        placement: Show which execution provider runs each node, and what passes between providers.
        optimized: Show what the runtime fuses, and what keeps it from fusing more.
        histogram: Read the numbers: statistics, outliers and a histogram of each tensor, or initializer;
            --value names some.
    """


@command(of="text")
def print_model(
    call: Callable[[], str], *, weights: Path | None = None, force: bool = False
) -> None:
    """Print a model in ONNX text syntax, weights elided.

    $ onnxdbg print model.onnx
    $ onnxdbg print linear.onnx --weights linear.safetensors --force > linear.txt

    Args:
        weights: Write what the text elides to this .safetensors file, for build --weights.
    """
    from onnxsurgeon_lite.model import require_replaceable

    if weights is not None:
        require_replaceable(weights, force)
    plain.out(call())


@command(shows="json")
def check(result: "CheckResult") -> None:
    """Check a model against the ONNX specification, and find what is suspicious, without materializing weights.

    $ onnxdbg check model.onnx
    $ onnxdbg check model.onnx --full --run

    Args:
        config: Compare a language model with the config.json of its source, field by field.
        full: Strict type and shape inference, too.
        run: Run it once; name the nodes that the runtime refuses alone.
    """
    options.require(result.match)


@command("comparing {first} with {second}", shows="json")
def diff(
    result: "ModelDiff", *, map: Annotated[str | None, Typed(metavar="auto|FILE")] = None
) -> None:
    """Compare two models by structure, whatever their values and nodes are called and however they are ordered.

    $ onnxdbg diff model.onnx faulty.onnx
    $ onnxdbg diff model.onnx dynamo.onnx --map auto --run

    Args:
        first: Model to read.
        second: Model to compare it with; optimized:MODEL is what onnxruntime makes of one.
        run: Run both on the same feeds, too.
        map: Take nodes for the same whose values are: as `onnxdbg match` finds, or its file says.
    """
    options.require(result.same)


@command()
def view(
    shown: "View",
    result: Path | None = None,
    *,
    open: Annotated[bool, Typed(("--open/--no-open",))] = True,
) -> None:
    """Open a model in the browser: its graph, what a result says of it, and any tensor.

    $ onnxdbg view model.onnx --no-open -o view.html
    $ onnxdbg view faulty.onnx result.json --no-open

    Args:
        result: What a command printed with --json for this model: marks its culprits, colors its nodes.
        output: Where to write the page; a temporary file by default.
        serve: Serve the page to this machine alone, to see the tensors of any node; so do --reference, --feeds,
            and a page above 50 MB.
        open: Open it in the browser; else print where it is, no more.
    """
    with shown:
        options.show(shown)
        shown.wait()
