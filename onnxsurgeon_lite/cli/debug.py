"""Debug: bisect, demo."""

import contextlib
from pathlib import Path
from typing import Annotated, Literal

import typer

from onnxsurgeon_lite.cli import options
from onnxsurgeon_lite.cli.boundary import MISMATCH
from onnxsurgeon_lite.runtime.child import Child


def bisect(
    model: options.Model,
    reference: options.Reference,
    feeds: options.Feeds = None,
    look: Annotated[
        Literal["auto", "written", "shipped", "node"],
        typer.Option(
            "--look", help="As written, as the runtime's optimiser ships it, or per node."
        ),
    ] = "auto",
    quick: Annotated[
        bool, typer.Option("--quick", help="Find one culprit, say no more about it.")
    ] = False,
    rtol: options.Rtol = None,
    atol: options.Atol = None,
    output: options.Output = None,
    opt: options.Opt = "all",
    provider: options.Provider = "cpu",
    threads: options.Threads = 0,
    timeout: options.Timeout = None,
    memory: Annotated[
        str, typer.Option("--memory", help="Values computed at once, in bytes.")
    ] = "64MB",
    memory_limit: options.MemoryLimit = "0",
    ops_library: options.OpsLibraries = None,
    journal: Annotated[
        Path | None,
        typer.Option("--journal", help="Keep the answers in a file.", show_default=False),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on from the journal of a search that was cut short."),
    ] = False,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Find the nodes where a model leaves its reference tensors, say why, and write a reproducer folder."""
    limit = options.byte_size(memory_limit)
    with contextlib.ExitStack() as children:
        child = children.enter_context(Child(limit))
        second = None if quick else children.enter_context(Child(limit))

        from onnxsurgeon_lite import bisection
        from onnxsurgeon_lite.bisection import reproducer
        from onnxsurgeon_lite.feeds import feeds_from, read_feeds, required_inputs
        from onnxsurgeon_lite.graph import GraphIndex
        from onnxsurgeon_lite.model import load
        from onnxsurgeon_lite.references import open_references
        from onnxsurgeon_lite.report import data, numbers
        from onnxsurgeon_lite.report.progress import progress
        from onnxsurgeon_lite.runtime.session import Runtime

        folder = options.default_output(model, "culprit", output, force, suffix="")
        reproducer.require_free(folder, force)
        loaded = load(model)
        index = GraphIndex.of(loaded)
        stored = open_references(reference, required_inputs(index), list(index.outputs))
        given = read_feeds(index, feeds) if feeds else feeds_from(index, stored)
        written = options.runtime_options(
            "none", provider, threads, timeout, ops_library, lean=True
        )
        usual = options.runtime_options(opt, provider, threads, timeout, ops_library)
        search = bisection.Search(
            options.tolerance(rtol, atol),
            None if look == "auto" else look,
            quick,
            options.byte_size(memory),
            journal,
            resume,
        )
        runtime = children.enter_context(Runtime(written, child))
        shipped = children.enter_context(Runtime(usual, second)) if second else None
        with progress("bisecting") as tell:
            result = bisection.bisect(loaded, stored, given, runtime, shipped, search, tell)
    made = reproducer.write_reproducer(loaded, result, folder) if result.culprits else None
    result.reproducer = made.folder if made else None
    if json:
        data.show_json(result.contract())
    else:
        numbers.show_bisection(result, made.words if made else [])
    if result.verdict == "mismatch":
        raise typer.Exit(MISMATCH)


def demo() -> None:
    """Show the main job on a small model that is made on the spot."""
    from onnxsurgeon_lite.cli.demonstration import demonstrate

    demonstrate()
