"""Change: merge, which takes several models."""

from pathlib import Path
from typing import Annotated

import typer

from onnxsurgeon_lite.cli import completion, options


def merge(
    models: Annotated[
        list[Path], typer.Argument(help="Models to merge, two or more.", show_default=False)
    ],
    links: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            help="A value so far, and the input that it feeds.",
            metavar="VALUE=INPUT",
            autocompletion=completion.links,
        ),
    ] = None,
    share: Annotated[
        list[str] | None,
        typer.Option(
            "--share", help="An input that all have, as one.", autocompletion=completion.inputs
        ),
    ] = None,
    prefix: Annotated[
        list[str] | None,
        typer.Option("--prefix", help="Before every name of the next model; can be repeated."),
    ] = None,
    output: options.Output = None,
    force: options.Force = False,
    dry_run: options.DryRun = False,
) -> None:
    """Merge models into one: outputs of one feed inputs of the next, inputs are shared."""
    from onnxsurgeon_lite.errors import UsageError
    from onnxsurgeon_lite.model import load, movable, save
    from onnxsurgeon_lite.passes.merge import merge as merging
    from onnxsurgeon_lite.report import plain
    from onnxsurgeon_lite.report.progress import progress

    if len(models) < 2:
        raise UsageError("one model alone cannot be merged", "name two or more")
    target = None if dry_run else options.default_output(models[0], "merge", output, force)
    prefixes = [*(prefix or ()), *[""] * len(models)]
    pairs = options.pairs("--map", links)
    merged = load(models[0])
    for path, before in zip(models[1:], prefixes, strict=False):
        guest = load(path)
        inputs = {value.name for value in guest.proto.graph.input}
        here = [pair for pair in pairs if pair[1] in inputs or path == models[-1]]
        pairs = [pair for pair in pairs if pair not in here]
        result = merging(merged, guest, here, tuple(share or ()), before)
        plain.show_notes(result.notes)
        plain.show_changes(result.changes)
        merged = result.model
    plain.show_graph(f"merged {len(models)} models", merged.proto.graph)
    if target is None:
        return
    with progress(f"writing {target}"):
        written = save(merged, target, movable(merged), force=force)
    plain.show_written(written.path, written.data_files)
