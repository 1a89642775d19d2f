"""Debug: bisect, demo."""

import typer

from onnxsurgeon_lite.cli import options
from onnxsurgeon_lite.cli.boundary import MISMATCH
from onnxsurgeon_lite.runtime.child import Child


def bisect(
    model: options.Model,
    reference: options.Reference,
    feeds: options.Feeds = None,
    mapping: options.Map = None,
    rtol: options.Rtol = None,
    atol: options.Atol = None,
    output: options.Output = None,
    provider: options.Provider = "cpu",
    timeout: options.Timeout = None,
    memory_limit: options.MemoryLimit = "0",
    ops_library: options.OpsLibraries = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Find the node where a model leaves its reference tensors, and write a reproducer folder."""
    with Child(options.byte_size(memory_limit)) as child:
        from onnxsurgeon_lite import bisection
        from onnxsurgeon_lite.bisection import reproducer
        from onnxsurgeon_lite.feeds import read_feeds, required_inputs
        from onnxsurgeon_lite.graph import GraphIndex
        from onnxsurgeon_lite.match import aligned, feeds_in_order
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
        given = read_feeds(index, feeds) if feeds else feeds_in_order(index, stored)
        how = options.runtime_options("none", provider, 0, timeout, ops_library, lean=True)
        with progress("bisecting") as tell, Runtime(how, child) as runtime:
            allowed = options.tolerance(rtol, atol)
            stored = aligned(stored, index, given, runtime, mapping, tell)
            result = bisection.bisect(loaded, stored, given, runtime, allowed, tell)
    if result.culprits:
        result.reproducer = reproducer.write_reproducer(loaded, result, folder)
    if json:
        data.show_json(result.contract())
    else:
        numbers.show_bisection(result, reproducer.command_words(folder))
    if result.verdict == "mismatch":
        raise typer.Exit(MISMATCH)


def demo() -> None:
    """Show the main job on a small model that is made on the spot."""
    from onnxsurgeon_lite.cli.demonstration import demonstrate

    demonstrate()
