"""Change: convert."""

from pathlib import Path
from typing import Annotated, Literal, Unpack

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.api.call import RunOnFeeds
from onnxsurgeon_lite.cli import options
from onnxsurgeon_lite.cli.options import Nodes, Typed
from onnxsurgeon_lite.cli.outputs import Target
from onnxsurgeon_lite.report import plain
from onnxsurgeon_lite.report.progress import progress

_Precision = Literal["float16", "bfloat16", "int8", "int4", "uint4"]
_Calibration = Literal["minmax", "entropy", "percentile"]


@options.command
def convert(
    model: Path,
    *,
    to: _Precision,
    keep: Nodes = (),
    io: Annotated[bool, Typed(("--io",))] = False,
    tolerance: float | None = None,
    min_sqnr: float | None = None,
    metric: Annotated[str | None, Typed(metavar="FILE.py:FN")] = None,
    feeds: str | None = None,
    calibrate: _Calibration | None = None,
    report: Annotated[bool, Typed(("--report",))] = False,
    best_effort: Annotated[bool, Typed(("--best-effort",))] = False,
    output: Annotated[Path | None, Typed(("--output", "-o"))] = None,
    force: bool = False,
    dry_run: bool = False,
    html: Path | None = None,
    json: bool = False,
    **how: Unpack[RunOnFeeds],
) -> None:
    """Convert a model to half precision or to integers; with a goal, keep in float the few nodes that it needs.

    $ onnxdbg convert model.onnx --to float16
    $ onnxdbg convert block.onnx --to int8 --min-sqnr 20 --best-effort

    Args:
        to: The dtype; int4 and uint4 are for the weights of MatMul alone.
        keep: Nodes that stay in float32, comma-separated, or a file of rank --json.
        io: Convert inputs and outputs, too.
        tolerance: Largest error that an element of the outputs, or the metric, may have.
        min_sqnr: Smallest SQNR of each output, in decibels.
        metric: A function (outputs, converted outputs) -> error, held below --tolerance.
        feeds: Samples: .npz, .npy, .safetensors, test_data_set_N folders or a recorded folder.
        calibrate: int8: find ranges of activations in the samples; by default each run finds them.
        report: List the nodes by the error that each introduces alone.
        best_effort: Write the result even when it misses the goal.
    """
    with progress(f"converting {model}") as how["progress"]:
        result = osl.convert(
            model,
            to,
            keep,
            io,
            tolerance,
            min_sqnr,
            metric,
            feeds,
            report,
            calibrate,
            html,
            force,
            **how,
        )
    options.show(result, json, html=html)
    if result.met is False and not best_effort:
        plain.show_notes(["the goal is not reached: nothing was written; --best-effort writes it"])
        options.require(False)
    options.save(result.model, Target(model, "convert", output, force, dry_run))
    options.require(result.met is not False)
