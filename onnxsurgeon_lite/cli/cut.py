"""Cut: extract, expose, split."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.api.call import OptLevel, RunOnFeeds
from onnxsurgeon_lite.cli import options
from onnxsurgeon_lite.cli.options import Nodes, Typed, Values
from onnxsurgeon_lite.cli.outputs import Target, Writing
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.report import plain
from onnxsurgeon_lite.report.progress import progress

if TYPE_CHECKING:
    from onnxsurgeon_lite.passes import PassResult


@options.command
def extract(
    model: Path,
    part: Nodes = (),
    *,
    inputs: Values = (),
    outputs: Values = (),
    auto_inputs: bool = False,
    timeout: float | None = None,
    memory_limit: str = "0",
    **how: Unpack[Writing],
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
    from onnxsurgeon_lite.model import movable

    result = osl.extract(
        model, inputs, outputs, auto_inputs, part, timeout=timeout, memory_limit=memory_limit
    )
    _save(result, Target(model, "extract", **how), movable(result.model))


@options.command
def expose(
    model: Path,
    values: Values = (),
    *,
    every: Annotated[bool, Typed(("--all",))] = False,
    timeout: float | None = None,
    memory_limit: str = "0",
    **how: Unpack[Writing],
) -> None:
    """Declare intermediate values as graph outputs.

    $ onnxdbg expose model.onnx 23 op:Add
    $ onnxdbg expose dynamo.onnx scope:convs2 -o module.onnx

    Args:
        values: Values to expose; a module (scope:layer.0) stands for its inputs and outputs.
        every: Expose every value, or every one of the modules named.
    """
    if not values and not every:
        raise UsageError("no value is named", "name some, or expose every one with --all")
    result = osl.expose(model, values, every, timeout=timeout, memory_limit=memory_limit)
    _save(result, Target(model, "expose", **how))


@options.command
def split(
    model: Path,
    *,
    at: Values,
    output: Path | None = None,
    feeds: str | None = None,
    opt: OptLevel = "none",
    force: bool = False,
    dry_run: bool = False,
    json: bool = False,
    **how: Unpack[RunOnFeeds],
) -> None:
    """Split a model at values into parts, and run the parts, one after another, against the whole.

    $ onnxdbg split model.onnx --at 23,28
    $ onnxdbg split model.onnx --at 28 -o halves

    Args:
        at: Values to split at, comma-separated.
    """
    target = Target(model, "split", output, force, suffix="")
    folder = None if dry_run else target.path
    with progress(f"writing {target.path}"):
        found = osl.split(model, at, folder, feeds, target.replaceable(), opt=opt, **how)
    if not dry_run:
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
