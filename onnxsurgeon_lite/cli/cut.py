"""Cut: extract, expose, split."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from onnxsurgeon_lite.cli import options
from onnxsurgeon_lite.cli.options import Nodes, Typed, Values, command
from onnxsurgeon_lite.cli.outputs import Target
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.report import plain
from onnxsurgeon_lite.report.progress import progress

if TYPE_CHECKING:
    from onnxsurgeon_lite.matching.split import Split
    from onnxsurgeon_lite.passes import PassResult


@command()
def extract(
    result: "PassResult",
    part: Nodes = (),
    *,
    inputs: Values = (),
    outputs: Values = (),
    target: Target,
) -> None:
    """Cut out the part of a model between values: `--inputs 22 --outputs 28`; or a module: `scope:layer.0`.

    $ onnxdbg extract model.onnx --inputs 22 --outputs 28
    $ onnxdbg extract dynamo.onnx scope:convs2 -o part.onnx

    Args:
        part: Nodes to cut out: scope:layer.0, class:Attention, names.
        inputs: Values to cut at, comma-separated; the model's own by default.
        outputs: Values to keep, comma-separated; the model's own by default.
        auto_inputs: Add the inputs that close the cut.
    """
    if not (part or inputs or outputs):
        raise UsageError("no value is named", "name some to cut at: --inputs 22 --outputs 28")
    from onnxsurgeon_lite.model import movable

    _save(result, target, movable(result.model))


@command()
def expose(
    call: Callable[[], "PassResult"],
    values: Values = (),
    *,
    all_values: Annotated[bool, Typed(("--all",))] = False,
    target: Target,
) -> None:
    """Declare intermediate values as graph outputs.

    $ onnxdbg expose model.onnx 23 op:Add
    $ onnxdbg expose dynamo.onnx scope:convs2 -o module.onnx

    Args:
        values: Values to expose; a module (scope:layer.0) stands for its inputs and outputs.
        all_values: Expose every value, or every one of the modules named.
    """
    if not values and not all_values:
        raise UsageError("no value is named", "name some, or expose every one with --all")
    _save(call(), target)


@command()
def split(
    call: Callable[..., "Split"],
    *,
    at: Values = (),
    json: bool = False,
    target: Target,
) -> None:
    """Split a model at values into parts, and run the parts, one after another, against the whole.

    $ onnxdbg split model.onnx --at 23,28
    $ onnxdbg split model.onnx --at 28 -o halves

    Args:
        at: Values to split at, comma-separated.
        by_device: Split by the devices that the nodes are configured for (IR 11), not at values.
    """
    # a folder
    target = replace(target, suffix="")
    with progress(f"writing {target.path}"):
        found = call(output=None if target.dry_run else target.path, force=target.replaceable())
    if not target.dry_run:
        target.wrote()
    options.show(found, json)
    options.require(found.match)


def _save(result: "PassResult", target: Target, external: bool | None = None) -> None:
    """Write what was made of a model; show it where nothing is written."""
    if target.dry_run:
        options.show(result)
    else:
        plain.show_notes(result.notes)
    options.save(result.model, target, external)
