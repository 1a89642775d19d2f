"""Convert models to other precisions, with the accuracy guarded."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from onnxsurgeon_lite.api.call import Call, RunOnFeeds, as_names
from onnxsurgeon_lite.api.page import Place
from onnxsurgeon_lite.api.spelling import spelled
from onnxsurgeon_lite.errors import FeedsError, RuntimeFailure, UsageError
from onnxsurgeon_lite.runtime.options import require_ort
from onnxsurgeon_lite.system import TemporaryFolder
from onnxsurgeon_lite.untrusted import text_of

if TYPE_CHECKING:
    from onnxsurgeon_lite.debug.conversion.goal import Goal
    from onnxsurgeon_lite.debug.conversion.guard import Guard
    from onnxsurgeon_lite.debug.conversion.result import Conversion
    from onnxsurgeon_lite.graph import GraphIndex
    from onnxsurgeon_lite.matching.judge import MetricFunction
    from onnxsurgeon_lite.model import ModelLike
    from onnxsurgeon_lite.runtime.feeds import Feeds
    from onnxsurgeon_lite.tensors.references import Tensors


@spelled
def convert(
    model: "ModelLike",
    to: str,
    keep: str | Sequence[str] = (),
    io: bool = False,
    tolerance: float | None = None,
    min_sqnr: float | None = None,
    metric: "str | MetricFunction | None" = None,
    feeds: "Tensors | Sequence[Tensors] | None" = None,
    *,
    report: bool = False,
    calibrate: str | None = None,
    qdq: bool = False,
    html: Place = None,
    force: bool = False,
    **how: Unpack[RunOnFeeds],
) -> "Conversion":
    """Convert a model to half precision or to integers; with a goal, keep the nodes in float that the outputs need.

    The goal is held where each value is rounded once, as hardware with half precision does, whatever this machine's
    runtime does.

    Args:
        to: `float16`, `bfloat16`, `int8`, or for the weights of MatMul alone, in blocks of 32: `int4`, `uint4`, `int2`,
            `uint2`, `float8e4m3fn`, `float8e5m2` and `float4e2m1`.
        keep: Nodes that stay in float32: selectors, or a file that `rank --json` wrote; after `rank --bits`, weights in
            blocks get as many bits as it says.
        io: Convert inputs and outputs, too.
        qdq: Write integers in blocks as ONNX's DequantizeLinear, and not as MatMulNBits of onnxruntime.
        tolerance: The largest error that an element of the outputs may have, or that `metric` may give.
        min_sqnr: The smallest SQNR that each output may have, in decibels.
        metric: A function (outputs, outputs of the converted model) -> error, or `FILE.py:function`; with one
            parameter it gets an iterator of these pairs, of all samples.
        feeds: Samples: input name -> array, or a path; made by default. Several: a list, a folder, arrays of rows,
            `FILE.py:function` that yields them, `hf:NAME:SPLIT`.
        report: Measure the error that each node introduces alone.
        calibrate: For `int8`: find the ranges of activations in the samples, by `minmax`, `entropy` or `percentile`;
            without, each run finds them.
        html: Where to write the result as a page for a browser. force: Replace files that exist.

    Returns:
        The converted model, the nodes in float32, what was measured; `met` is False if the goal was not reached.

    Raises:
        UsageError: No such dtype, or a goal without a limit.
        UnknownNameError: No such node to keep.
        EditError: The model has no float32.
        FeedsError: An output is not finite in float32 already.

    Example:
        >>> osl.convert("whole_model.onnx", "float16", tolerance=0.1).met
        True
    """
    with Call(html=html, force=force, **how) as call:
        require_ort("convert", call.options())
        from onnxsurgeon_lite.debug.conversion.goal import Goal

        goal = Goal.of(tolerance, min_sqnr, metric)
        _require_fitting(to, goal, io, report, calibrate, qdq)
        if to in _QUANTIZED:
            return call.done(_quantized(model, to, keep, goal, feeds, calibrate, qdq, call))
        # without a goal nothing runs
        child = call.child() if goal is not None else None
        index = call.index(model)
        kept = _kept(keep, {})
        if goal is None:
            from onnxsurgeon_lite.debug.conversion.guard import converted

            return call.done(converted(index.model, to, kept, io))
        from onnxsurgeon_lite.debug.conversion.guard import Guard

        # simulations run without optimization: it could take roundings out again
        simulating = call.runtime_of(replace(call.options("none"), lean=True), child)
        samples = _samples(index, feeds, call)
        guard = Guard(index.model, to, kept, io, goal, samples, simulating, call.progress, report)
        result = _guarded(guard)
        if report:
            from onnxsurgeon_lite.debug.conversion.guard import introduced

            result = replace(result, report=introduced(guard, {k.id for k in result.kept}))
        return call.done(result)


_BLOCKS = ("int4", "uint4", "int2", "uint2", "float8e4m3fn", "float8e5m2", "float4e2m1")
_QUANTIZED = _BLOCKS + ("int8",)
_CALIBRATIONS = ("minmax", "entropy", "percentile")


def _require_fitting(
    to: str, goal: "Goal | None", io: bool, report: bool, calibrate: str | None, qdq: bool
) -> None:
    """Raise `UsageError` for options that do not go together."""
    if report and goal is None:
        raise UsageError("a report needs a goal", "give --tolerance or --min-sqnr")
    if qdq and to not in _BLOCKS:
        raise UsageError(f"{to} has no blocks", f"--qdq is for {', '.join(_BLOCKS)}")
    if to in _QUANTIZED and (io or report):
        raise UsageError(f"{to} has neither --io nor --report", "they are for float16 and bfloat16")
    if calibrate is not None and (to != "int8" or calibrate not in _CALIBRATIONS):
        raise UsageError(
            f"{to} has no calibration {calibrate!r}", f"int8 has {', '.join(_CALIBRATIONS)}"
        )


def _quantized(
    model: "ModelLike",
    to: str,
    keep: str | Sequence[str],
    goal: "Goal | None",
    feeds: "Tensors | Sequence[Tensors] | None",
    calibrate: str | None,
    qdq: bool,
    call: Call,
) -> "Conversion":
    """Quantize weights in blocks, or all with onnxruntime's tools."""
    # only a goal, or a calibration, runs models
    child = call.child() if goal is not None or calibrate else None
    from onnxsurgeon_lite.debug.conversion.in_blocks import InBlocks
    from onnxsurgeon_lite.debug.conversion.integers import Integers, named
    from onnxsurgeon_lite.runtime.quantizing import Quantizing

    index = call.index(model)
    samples = _samples(index, feeds, call) if child is not None else []
    source, bits = named(index.model), dict[str, int]()
    kept = _kept(keep, bits)
    tools: Quantizing | InBlocks = InBlocks(source, to, bits, qdq)
    if to == "int8":
        folder = Path(call.stack.enter_context(TemporaryFolder()))
        tools = Quantizing(source, folder, calibrate or "", samples, call.timeout)
    return Integers(tools, kept, goal, samples, call.started(child), call.progress).result()


def _kept(keep: str | Sequence[str], bits: dict[str, int]) -> tuple[str, ...]:
    """Return selectors, those of a file of `rank` included; add the bits of weights that it has."""
    found = list[str]()
    for argument in as_names(keep):
        if not argument.endswith(".json"):
            found.append(argument)
            continue
        try:
            stored = json.loads(text_of(Path(argument)))
            if "layers" in stored:  # of `rank --bits`
                bits |= {each["name"]: int(each["bits"]) for each in stored["layers"]}
                continue
            # `rank --json` writes names and ids: only the former need `name:`
            found += [
                name if name.startswith(("@", "fn:")) else f"name:{name}"
                for name in stored["exclude"]
            ]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UsageError(
                f"{argument!r} is not what rank wrote",
                "onnxdbg rank MODEL --fp16-risk --json > FILE.json",
            ) from error
    return tuple(found)


def _guarded(guard: "Guard") -> "Conversion":
    """Convert with the nodes kept that the goal needs; prove it by a simulation, and by a run."""
    from onnxsurgeon_lite.debug.conversion.guard import converted

    # the fewest nodes that the goal needs, then the model with these, then a run of it
    chosen, excess, measured = guard.kept()
    result = converted(guard.model, guard.to, guard.keep + tuple(sorted(chosen)), guard.io)
    met, text = guard.goal.judged(excess, measured)
    try:
        with TemporaryFolder() as folder:
            ran = guard.ran(Path(folder, "converted.onnx"), result.model)
    except RuntimeFailure as error:
        said = f"simulated alone: the runtime does not run it ({error.message.splitlines()[0]})"
    else:
        # both must reach the goal: the simulation, and the run on this machine
        met = met and ran[0] <= 1
        said = f"as run here: {guard.goal.text(ran[1])}"
    return replace(result, met=met, measured=text, ran=said).with_told(list(result.told))


def _samples(
    index: "GraphIndex", feeds: "Tensors | Sequence[Tensors] | None", call: Call
) -> "Sequence[Feeds]":
    """Return the feeds of each sample."""
    if feeds is None:
        return [call.feeds(index, None)]
    found = call.sample_feeds(index, feeds)
    if not found:
        raise FeedsError(f"{found.samples.place!r} has no samples")
    # the first sample is read now: its notes, or its error, come before the work
    found.read(found.samples.at(0), call.notes)
    return found
