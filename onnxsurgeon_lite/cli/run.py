"""Run: run, record, compare, test."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Unpack

import typer

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.api.call import (
    ComparingSamples,
    OptLevel,
    RecordingSamples,
    Running,
    RunOnFeeds,
)
from onnxsurgeon_lite.cli import completion, options
from onnxsurgeon_lite.cli.boundary import FAILED
from onnxsurgeon_lite.cli.options import Typed, Values
from onnxsurgeon_lite.cli.outputs import note_factory
from onnxsurgeon_lite.names import is_function
from onnxsurgeon_lite.report import plain
from onnxsurgeon_lite.report.progress import progress


@options.command
def run(
    model: Path,
    *,
    feeds: str | None = None,
    fetch: Values = (),
    save: options.Save = None,
    opt: OptLevel = "all",
    force: bool = False,
    json: bool = False,
    **how: Unpack[RunOnFeeds],
) -> None:
    """Run a model in a process of its own and show shape, dtype and range of what comes out.

    $ onnxdbg run model.onnx
    $ onnxdbg run block.onnx --dim batch=2 --fetch output -o out.npz

    Args:
        fetch: Values to return instead of the outputs, comma-separated.
        save: Store what was returned: .npz, .safetensors or a folder.
    """
    with progress(f"running {model}"):
        result = osl.run(model, feeds, fetch, opt=opt, **how)
    options.store(result, save, force, json)


@options.command
def record(
    model: Path,
    *,
    output: Annotated[Path, Typed(("--output", "-o"))],
    feeds: str | None = None,
    value: Values = (),
    inner: bool = False,
    wide: Annotated[bool, Typed(("--float64",))] = False,
    scope: Sequence[str] = (),
    operators: bool = False,
    names_of: Annotated[Path | None, Typed(("--model",))] = None,
    force: bool = False,
    memory: str = "64MB",
    **how: Unpack[RecordingSamples],
) -> None:
    """Record reference tensors: the feeds and every value, as this runtime or PyTorch computes them.

    $ onnxdbg record model.onnx -o refs
    $ onnxdbg record model.py:factory -o torch_refs

    Args:
        model: Model to read, or FILE.py:function that returns a PyTorch module, or (module, args).
        output: Where to store: a folder, .npz or .safetensors.
        value: Values to record, comma-separated; all by default.
        inner: Values inside branches, loops and functions as well.
        wide: Compute an ONNX model in float64, node by node.
        scope: PyTorch: only what lies in this module, such as layer.4.*.
        operators: PyTorch: every operator's output, by torch.export.
        names_of: PyTorch: store inputs under this model's names.
        memory: Bytes of values that are computed at once.
    """
    with progress(f"recording {model}") as how["progress"]:
        done = osl.record(
            model,
            output,
            feeds,
            value,
            inner,
            wide,
            scope,
            operators,
            names_of,
            force,
            memory,
            **how,
        )
    if is_function(str(model)):
        note_factory(str(model), output)
    options.show(done)


@options.command
def compare(
    actual: Path,
    reference: Path,
    *,
    feeds: str | None = None,
    mapping: str | None = None,
    every: Annotated[bool, Typed(("--all",))] = False,
    opt: OptLevel = "all",
    metrics: options.Metrics = "usual",
    html: Path | None = None,
    force: bool = False,
    json: bool = False,
    **how: Unpack[ComparingSamples],
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
    """
    with progress(f"comparing {actual}") as how["progress"]:
        result = osl.compare_sets(
            actual, reference, feeds, mapping, every, html, force, opt=opt, **how
        )
    options.show(result, json, metrics, html=html)
    options.require(result.match)


@options.command
def test(
    only: Annotated[Sequence[str], Typed(completes=completion.checks)] = (),
    *,
    config: Path | None = None,
    junit: Path | None = None,
    github: bool = False,
    force: bool = False,
    json: bool = False,
    **how: Unpack[Running],
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
    with progress("testing") as how["progress"]:
        result = osl.test(config, only, junit, force, **how)
    options.show(result, json)
    if github and not json:
        from onnxsurgeon_lite.report.suite import show_annotations

        show_annotations(result)
    if junit is not None:
        plain.show_written(junit)
    if result.errors:
        raise typer.Exit(FAILED)
    options.require(result.match)


@options.command
def profile(
    model: Path,
    *,
    feeds: str | None = None,
    runs: Annotated[int, Typed(least=1)] = 10,
    by: Literal["node", "operator", "module"] = "node",
    against: Path | None = None,
    a: str | None = None,
    b: str | None = None,
    trace: Path | None = None,
    html: Path | None = None,
    node_data: Path | None = None,
    opt: OptLevel = "all",
    force: bool = False,
    json: bool = False,
    **how: Unpack[RunOnFeeds],
) -> None:
    """Time every node; say what it computes, moves and holds, and which nodes of the model it stands for.

    $ onnxdbg profile model.onnx --by operator
    $ onnxdbg profile model.onnx --a opt=none --b opt=all --runs 3

    Args:
        runs: How many runs are timed, after one that is not.
        by: What the table shows.
        against: Another model, to see what takes longer and by how much.
        a: Settings of what comes before: opt=none,threads=1.
        b: Settings of what comes after.
        trace: Write the runtime's own trace, for chrome://tracing or ui.perfetto.dev.
    """
    with progress(f"profiling {model}") as how["progress"]:
        result = osl.profile(
            model, feeds, runs, against, a, b, trace, html, node_data, opt, force, **how
        )
    options.show(result, json, by="" if against or a or b else by, html=html, node_data=node_data)
    if trace is not None and not json:
        plain.show_written(trace)
