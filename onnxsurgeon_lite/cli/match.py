"""Names across exports: match, weights."""

from pathlib import Path
from typing import Annotated

import typer

from onnxsurgeon_lite.cli import options
from onnxsurgeon_lite.cli.boundary import MISMATCH
from onnxsurgeon_lite.runtime.child import Child


def match(
    a: Annotated[Path, typer.Argument(help="A model, or a set of tensors.", show_default=False)],
    b: Annotated[Path, typer.Argument(help="A model.", show_default=False)],
    feeds: options.Feeds = None,
    seed: options.Seed = 0,
    dim: options.Dims = None,
    fill: options.Fills = None,
    save: Annotated[
        Path | None,
        typer.Option(
            "--save", "-o", help="Write the pairs to a file for --map.", show_default=False
        ),
    ] = None,
    provider: options.Provider = "cpu",
    timeout: options.Timeout = None,
    ops_library: options.OpsLibraries = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Say which value of one model, or of a reference set, is which value of another, whatever they are called."""
    if save is not None:
        options.require_absent(save, force)
    with Child() as child:
        from onnxsurgeon_lite.graph.index import GraphIndex
        from onnxsurgeon_lite.matching.values import feeds_in_order, save_map
        from onnxsurgeon_lite.matching.values.run_both import match_models, match_references
        from onnxsurgeon_lite.model import load
        from onnxsurgeon_lite.report import json as data
        from onnxsurgeon_lite.report import matching, plain
        from onnxsurgeon_lite.report.progress import progress
        from onnxsurgeon_lite.runtime.feeds import given_or_made, read_feeds, required_inputs
        from onnxsurgeon_lite.runtime.session import Runtime
        from onnxsurgeon_lite.tensors.references import open_references

        index = GraphIndex.of(load(b))
        how = options.runtime_options("none", provider, 0, timeout, ops_library, lean=True)
        with progress("matching") as tell, Runtime(how, child) as runtime:
            if a.suffix == ".onnx":
                other = GraphIndex.of(load(a))
                given, made = given_or_made(other, feeds, options.recipe(seed, dim, fill))
                plain.show_notes(f"made {line}" for line in made)
                result = match_models(other, index, given, runtime, tell)
            else:
                stored = open_references(a, required_inputs(index), list(index.outputs))
                given = read_feeds(index, feeds) if feeds else feeds_in_order(index, stored)
                result = match_references(stored, index, given, runtime, tell)
    (data.show_json if json else matching.show_matching)(result)
    if save is not None:
        save_map(result.matching, save)
        plain.show_written(save)


def weights(
    model: options.Model,
    against: Annotated[
        Path,
        typer.Option(
            "--against", help="Checkpoint: .safetensors, .pt, .pth or .npz.", show_default=False
        ),
    ],
    rtol: options.Rtol = None,
    atol: options.Atol = None,
    json: options.Json = False,
) -> None:
    """Compare a model's weights with the checkpoint it was exported from: renamed, transposed or folded."""
    from onnxsurgeon_lite.graph.index import GraphIndex
    from onnxsurgeon_lite.matching.weights import compare_weights
    from onnxsurgeon_lite.model import load
    from onnxsurgeon_lite.recording.checkpoint import open_checkpoint
    from onnxsurgeon_lite.report import json as data
    from onnxsurgeon_lite.report import matching
    from onnxsurgeon_lite.report.progress import progress

    index, stored = GraphIndex.of(load(model)), open_checkpoint(against)
    with progress("comparing weights") as tell:
        result = compare_weights(index, stored, options.tolerance(rtol, atol), tell)
    (data.show_json if json else matching.show_weights)(result)
    if not result.match:
        raise typer.Exit(MISMATCH)
