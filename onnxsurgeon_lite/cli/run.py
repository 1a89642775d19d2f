"""Run: run, record, compare. The runtime's process starts first and gets ready while the rest is imported."""

from pathlib import Path
from typing import Annotated

import typer

from onnxsurgeon_lite.cli import completion, options
from onnxsurgeon_lite.cli.boundary import MISMATCH
from onnxsurgeon_lite.runtime.child import Child


def run(
    model: options.Model,
    feeds: options.Feeds = None,
    seed: options.Seed = 0,
    dim: options.Dims = None,
    fill: options.Fills = None,
    fetch: Annotated[
        list[str] | None,
        typer.Option(
            "--fetch",
            help="Values to return instead of the outputs, comma-separated.",
            autocompletion=completion.values,
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            "--save", "-o", help="Store what was returned: .npz, .safetensors or a folder."
        ),
    ] = None,
    opt: options.Opt = "all",
    provider: options.Provider = "cpu",
    threads: options.Threads = 0,
    timeout: options.Timeout = None,
    memory_limit: options.MemoryLimit = "0",
    ops_library: options.OpsLibraries = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Run a model in a process of its own and show shape, dtype and range of what comes out."""
    if save is not None:
        options.require_absent(save, force)
    with Child(options.byte_size(memory_limit)) as child:
        from onnxsurgeon_lite.graph.bodies import BodyName
        from onnxsurgeon_lite.graph.index import GraphIndex
        from onnxsurgeon_lite.graph.select import select_values
        from onnxsurgeon_lite.model import load
        from onnxsurgeon_lite.report import json as data
        from onnxsurgeon_lite.report import plain
        from onnxsurgeon_lite.report.progress import progress
        from onnxsurgeon_lite.runtime import run as running
        from onnxsurgeon_lite.runtime.feeds import given_or_made
        from onnxsurgeon_lite.runtime.session import Runtime
        from onnxsurgeon_lite.tensors.references import save_tensors

        index = GraphIndex.of(load(model))
        selected = select_values(index, fetch or (), inner=True)
        given, made = given_or_made(index, feeds, options.recipe(seed, dim, fill))
        plain.show_notes([*selected.notes, *(f"made {line}" for line in made)])
        how = options.runtime_options(opt, provider, threads, timeout, ops_library, lean=True)
        with progress(f"running {model}"), Runtime(how, child) as runtime:
            values = running.run(index, given, runtime, selected.names)
    if save is not None:
        save_tensors(save, {name: value for name, value in values.items() if value is not None})
        plain.show_written(save)
    without = [name for name, value in values.items() if value is None and BodyName.of(name)]
    plain.show_notes(f"{name!r} was not computed: its body did not run then" for name in without)
    summary = [line for name, value in values.items() for line in running.statistics(name, value)]
    if json:
        data.show_json({"feeds": made, "values": summary})
    else:
        from onnxsurgeon_lite.report import bisection

        bisection.show_statistics(summary)


def record(
    model: Annotated[
        Path,
        typer.Argument(
            help="Model to read, or FILE.py:function that returns a PyTorch module, or (module, args).",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="Where to store: a folder, .npz or .safetensors.",
            show_default=False,
        ),
    ],
    feeds: options.Feeds = None,
    value: Annotated[
        list[str] | None,
        typer.Option(
            "--value",
            help="Values to record, comma-separated; all by default.",
            autocompletion=completion.values,
        ),
    ] = None,
    inner: Annotated[
        bool,
        typer.Option("--inner", help="Values inside branches, loops and functions as well."),
    ] = False,
    seed: options.Seed = 0,
    dim: options.Dims = None,
    fill: options.Fills = None,
    wide: Annotated[
        bool, typer.Option("--float64", help="Compute an ONNX model in float64, node by node.")
    ] = False,
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", help="PyTorch: only what lies in this module, such as layer.4.*."),
    ] = None,
    operators: Annotated[
        bool,
        typer.Option("--operators", help="PyTorch: every operator's output, by torch.export."),
    ] = False,
    names_of: Annotated[
        Path | None,
        typer.Option("--model", help="PyTorch: store inputs under this model's names."),
    ] = None,
    provider: options.Provider = "cpu",
    timeout: options.Timeout = None,
    ops_library: options.OpsLibraries = None,
    force: options.Force = False,
) -> None:
    """Record reference tensors: the feeds and every value, as this runtime or PyTorch computes them."""
    options.require_absent(output, force)
    is_factory = ".py:" in str(model)
    options.refuse(
        is_factory, "a PyTorch module", {"--value": value, "--float64": wide, "--fill": fill}
    )
    torch_only = {"--scope": scope, "--operators": operators, "--model": names_of}
    options.refuse(not is_factory, "an ONNX model", torch_only, "--value scope:layer.4.* chooses")
    if is_factory:
        from onnxsurgeon_lite.recording.from_torch import record_factory
        from onnxsurgeon_lite.report import plain

        done = record_factory(str(model), output, feeds, names_of, scope or (), operators)
        plain.show_notes(done.notes)
        plain.out(f"recorded {done.values} values in {str(output)!r}")
        return
    with Child() as child:
        from onnxsurgeon_lite.graph.index import GraphIndex
        from onnxsurgeon_lite.graph.select import select_values
        from onnxsurgeon_lite.model import load
        from onnxsurgeon_lite.recording import from_model
        from onnxsurgeon_lite.report import plain
        from onnxsurgeon_lite.report.progress import progress
        from onnxsurgeon_lite.runtime.feeds import given_or_made
        from onnxsurgeon_lite.runtime.session import Runtime
        from onnxsurgeon_lite.surgery.exposing import liftable

        index = GraphIndex.of(load(model))
        selected = select_values(index, value or (), inner=True)
        if inner:
            names, left = liftable(index)
            selected.names = list(dict.fromkeys([*(selected.names or index.producer), *names]))
            selected.notes += left
        given, made = given_or_made(index, feeds, options.recipe(seed, dim, fill))
        plain.show_notes([*selected.notes, *(f"made {line}" for line in made)])
        how = options.runtime_options("none", provider, 0, timeout, ops_library, lean=True)
        with progress(f"recording {model}") as tell, Runtime(how, child) as runtime:
            count = from_model.record(index, given, runtime, output, selected.names, tell, wide)
    plain.out(f"recorded {count} values in {str(output)!r}")


def compare(
    actual: Annotated[
        Path, typer.Argument(help="A model, or a set of tensors.", show_default=False)
    ],
    reference: Annotated[
        Path, typer.Argument(help="The set of tensors to compare with.", show_default=False)
    ],
    rtol: options.Rtol = None,
    atol: options.Atol = None,
    feeds: options.Feeds = None,
    mapping: options.Map = None,
    opt: options.Opt = "all",
    provider: options.Provider = "cpu",
    timeout: options.Timeout = None,
    ops_library: options.OpsLibraries = None,
    json: options.Json = False,
) -> None:
    """Compare two sets of tensors, or a model's outputs with a set: shape, dtype, then values."""
    from onnxsurgeon_lite.matching.sets import compare_model, compare_sets
    from onnxsurgeon_lite.report import bisection, plain
    from onnxsurgeon_lite.report import json as data
    from onnxsurgeon_lite.tensors.references import open_references

    allowed = options.tolerance(rtol, atol)
    if actual.suffix == ".onnx":
        with Child() as child:
            from onnxsurgeon_lite.graph.index import GraphIndex
            from onnxsurgeon_lite.matching.values import aligned, feeds_in_order
            from onnxsurgeon_lite.model import load
            from onnxsurgeon_lite.runtime.feeds import read_feeds, required_inputs
            from onnxsurgeon_lite.runtime.session import Runtime

            index = GraphIndex.of(load(actual))
            stored = open_references(reference, required_inputs(index), list(index.outputs))
            given = read_feeds(index, feeds) if feeds else feeds_in_order(index, stored)
            how = options.runtime_options(opt, provider, 0, timeout, ops_library, lean=True)
            with Runtime(how, child) as runtime:
                stored = aligned(stored, index, given, runtime, mapping)
                plain.show_notes(stored.notes)
                result = compare_model(index, stored, given, runtime, allowed)
    else:
        result = compare_sets(open_references(actual), open_references(reference), allowed)
    (data.show_json if json else bisection.show_comparison)(result)
    if not result.match:
        raise typer.Exit(MISMATCH)
