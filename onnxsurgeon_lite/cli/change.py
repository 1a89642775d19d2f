"""Change: build, merge, convert."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from onnxsurgeon_lite.cli import completion, options
from onnxsurgeon_lite.cli.options import Inputs, Nodes, Typed, Values, command, named, pairs
from onnxsurgeon_lite.cli.outputs import Target
from onnxsurgeon_lite.report import plain

if TYPE_CHECKING:
    from onnxsurgeon_lite.debug.conversion.result import Conversion
    from onnxsurgeon_lite.matching.edit_result import EditResult
    from onnxsurgeon_lite.model import Model

_Dtype = Literal[
    "float16",
    "bfloat16",
    "int8",
    "int4",
    "uint4",
    "int2",
    "uint2",
    "float8e4m3fn",
    "float8e5m2",
    "float4e2m1",
]


@command()
def build(
    model: "Model",
    *,
    initializer: Annotated[Sequence[str], Typed(metavar="NAME=FILE.npy", reads=named)] = (),
    target: Target,
) -> None:
    """Build a model from ONNX text syntax, and check it.

    $ onnxdbg build linear.txt
    $ onnxdbg build linear.txt --initializer a=a.npy -o scaled.onnx

    Args:
        text: File in ONNX text syntax; a graph alone will do.
        initializer: Array for a name.
        weights: What print --weights wrote: the model comes back as it was.
    """
    if target.dry_run:
        plain.show_graph(f"graph {model.graph.name!r}", model.graph)
    options.save(model, target)


@command(shows="")
def merge(
    result: "EditResult",
    models: Sequence[Path],
    *,
    map: Annotated[Sequence[str], Typed((), completion.links, "VALUE=INPUT", reads=pairs)] = (),
    share: Inputs = (),
    keep: Values = (),
    target: Target,
) -> None:
    """Merge models into one: outputs of one feed inputs of the next, inputs are shared.

    $ onnxdbg merge model.onnx model.onnx --map 31=input.1 --prefix second/
    $ onnxdbg merge model.onnx faulty.onnx --share input.1 --prefix faulty/ -o both.onnx

    Args:
        models: Models to merge, two or more.
        map: An output of the models so far, and the input of the next model that it feeds.
        share: An input of several, as one.
        prefix: Before every name of the next model; can be repeated.
        by_name: Link outputs and inputs of one name, share inputs and constants of one name: undoes split.
        keep: An output that stays one though it feeds an input.
    """
    from onnxsurgeon_lite.model import movable

    options.save(result.model, target, movable(result.model))


@command("converting {model}", shows="json")
def convert(
    result: "Conversion",
    *,
    to: _Dtype,
    keep: Nodes = (),
    calibrate: Literal["minmax", "entropy", "percentile"] | None = None,
    best_effort: bool = False,
    target: Target,
) -> None:
    """Convert a model to half precision or to integers; with a goal, keep in float the few nodes that it needs.

    $ onnxdbg convert model.onnx --to float16
    $ onnxdbg convert block.onnx --to int8 --min-sqnr 20 --best-effort

    Args:
        to: The dtype; float8, float4 and those of 4 and 2 bits are for the weights of MatMul alone.
        keep: Nodes that stay in float32, comma-separated, or a file of rank --json; of rank --bits, too.
        io: Convert inputs and outputs, too.
        tolerance: Largest error that an element of the outputs, or the metric, may have.
        min_sqnr: Smallest SQNR of each output, in decibels.
        metric: A function (outputs, converted outputs) -> error, held below --tolerance.
        feeds: Samples: .npz, .npy, .safetensors, test_data_set_N folders or a recorded folder.
        calibrate: int8: find ranges of activations in the samples; by default each run finds them.
        report: List the nodes by the error that each introduces alone.
        qdq: Write integers in blocks as DequantizeLinear, and not as MatMulNBits of onnxruntime.
        best_effort: Write the result even when it misses the goal.
    """
    # the result is shown above; only the file is withheld
    if result.met is False and not best_effort:
        plain.show_notes(["the goal is not reached: nothing was written; --best-effort writes it"])
        options.require(False)
    options.save(result.model, target)
    options.require(result.met is not False)
