"""Run: run, record, compare, test, profile."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from onnxsurgeon_lite.cli import completion, options
from onnxsurgeon_lite.cli.boundary import FAILED
from onnxsurgeon_lite.cli.options import Typed, Values, command, named
from onnxsurgeon_lite.cli.outputs import note_factory
from onnxsurgeon_lite.names import is_function
from onnxsurgeon_lite.report import plain

if TYPE_CHECKING:
    from onnxsurgeon_lite.matching.sets import SetComparison
    from onnxsurgeon_lite.matching.suite import SuiteResult
    from onnxsurgeon_lite.runtime.run import RunResult
    from onnxsurgeon_lite.shown import Shown


@command("running {model}")
def run(
    result: "RunResult",
    *,
    fetch: Values = (),
    save: options.Save = None,
    force: bool = False,
    json: bool = False,
) -> None:
    """Run a model in a process of its own and show shape, dtype and range of what comes out.

    $ onnxdbg run model.onnx
    $ onnxdbg run block.onnx --dim batch=2 --fetch output -o out.npz

    Args:
        fetch: Values to return instead of the outputs, comma-separated; kernel:NAME is one of the optimized graph.
        save: Store what was returned: .npz, .safetensors or a folder.
    """
    options.store(result, save, force, json)


@command("recording {model}", shows="")
def record(
    _: "Shown",
    model: Path,
    *,
    output: Annotated[Path, Typed(("--output", "-o"))],
    value: Values = (),
    float64: Annotated[bool, Typed(("--float64",))] = False,
    names_of: Annotated[Path | None, Typed(("--model",))] = None,
    program: Annotated[bool, Typed(("--program/--no-program",))] = True,
) -> None:
    """Record reference tensors: the feeds and every value, as this runtime or PyTorch computes them.

    $ onnxdbg record model.onnx -o refs
    $ onnxdbg record model.py:factory -o torch_refs

    Args:
        model: Model to read, or FILE.py:function that returns a PyTorch module, or (module, args).
        output: Where to store: a folder, .npz or .safetensors.
        value: Values to record, comma-separated; all by default.
        inner: Values inside branches, loops and functions as well.
        float64: Compute an ONNX model in float64, node by node.
        scope: PyTorch: only what lies in this module, such as layer.4.*.
        operators: PyTorch: every operator's output, by torch.export.
        program: PyTorch: store the module as ONNX too, if torch can trace it: bisect then knows what computes a value.
        names_of: PyTorch: store inputs under this model's names.
        python: PyTorch: the interpreter whose torch records, such as VENV/bin/python; this one by default.
        memory: Bytes of values that are computed at once.
    """
    # `bisect` may record operators of the same module later
    if is_function(str(model)):
        note_factory(str(model), output)


@command("comparing {actual}", "compare_sets", "json metrics")
def compare(
    result: "SetComparison",
    reference: Path,
    *,
    decode: Annotated[
        Sequence[str], Typed((), completion.steps, "LOGITS=TOKENS", reads=named)
    ] = (),
    steps: Annotated[int, Typed(least=1)] = 32,
    every: Annotated[bool, Typed(("--all",))] = False,
) -> None:
    """Compare two sets of tensors, or a model's outputs with a set: shape, dtype, then values.

    $ onnxdbg compare faulty.onnx refs
    $ onnxdbg compare faulty.onnx model.onnx --jobs 2

    Several samples (a folder, rows of arrays, FILE.py:FN, hf:NAME:SPLIT) are shown worst first, with quantiles.

    Args:
        actual: A model, or a set of tensors.
        reference: The set of tensors to compare with; of a model also another model.
        feeds: Tensors for the inputs, those of the references by default; of several samples a folder, arrays of
            rows, FILE.py:FN that yields them, or hf:NAME:SPLIT.
        every: Of a model every value that has a reference, in order, with optimization off.
        decode: Decode greedily with two language models, or one and a recording: logits=input_ids. --sequence
            says which outputs are the cache.
        steps: How many tokens are decoded.
        step_feeds: Write what the model was fed at the first token that differs, for bisect --feeds.
    """
    options.require(result.match)


@command("testing", shows="json")
def test(
    result: "SuiteResult",
    only: Annotated[Sequence[str], Typed(completes=completion.checks)] = (),
    *,
    junit: Path | None = None,
    github: bool = False,
    json: bool = False,
) -> None:
    """Run the checks that onnxdbg.toml holds: models against their references, each with tolerances of its own.

    $ onnxdbg test
    $ onnxdbg test 'whole*' --junit results.xml

    Exit code 1 when a check mismatches, 2 when one could not be run.

    Args:
        only: Names or globs of the checks to run; all by default.
        config: The file with the [[check]] tables; paths in it are relative to its folder. By default
            onnxdbg.toml, which may then name nothing outside this folder.
        junit: Write the results as JUnit XML, too.
        github: Print annotations for GitHub's workflows, too.
    """
    # annotations among JSON would break it
    if github and not json:
        from onnxsurgeon_lite.report.suite import show_annotations

        show_annotations(result)
    if junit is not None:
        plain.show_written(junit)
    if result.errors:
        raise typer.Exit(FAILED)
    options.require(result.match)


@command("profiling {model}")
def profile(
    result: "Shown",
    *,
    runs: Annotated[int, Typed(least=1)] = 10,
    by: Literal["node", "operator", "module"] = "node",
    against: Path | None = None,
    a: str | None = None,
    b: str | None = None,
    trace: Path | None = None,
    html: Path | None = None,
    node_data: Path | None = None,
    json: bool = False,
) -> None:
    """Time every node; say what it computes, moves and holds, and which nodes of the model it stands for.

    $ onnxdbg profile model.onnx --by operator
    $ onnxdbg profile model.onnx --a opt=none --b opt=all --runs 3

    Args:
        runs: How many runs are timed, after one that is not.
        by: What the table shows.
        against: Another model, to see what takes longer and by how much; or what trtexec --exportProfile wrote.
        layers: The file of trtexec --exportLayerInfo: it names the nodes of each TensorRT layer.
        a: Settings of what comes before: opt=none,threads=1.
        b: Settings of what comes after.
        trace: Write the runtime's own trace, for chrome://tracing or ui.perfetto.dev.
    """
    options.show(result, json, by="" if against or a or b else by, html=html, node_data=node_data)
    if trace is not None and not json:
        plain.show_written(trace)
