"""Debug: bisect, rank, demo."""

from pathlib import Path
from typing import Annotated, Unpack

import typer

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.api.call import ComparingOnFeeds, RunOnFeeds
from onnxsurgeon_lite.cli import options
from onnxsurgeon_lite.cli.boundary import MISMATCH
from onnxsurgeon_lite.cli.outputs import Target
from onnxsurgeon_lite.errors import UsageError


@options.shared
def bisect(
    model: Annotated[
        Path | None,
        typer.Argument(
            help="Model to read; by default the one in this folder.", show_default=False
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option("--reference", help=options.REFERENCES, show_default=False),
    ] = None,
    against: options.Against = None,
    a: Annotated[
        str | None,
        typer.Option(
            "--a", help="Settings that give the references: opt=none,threads=1.", show_default=False
        ),
    ] = None,
    b: Annotated[
        str | None,
        typer.Option(
            "--b", help="Settings that are searched: opt=all,provider=cpu.", show_default=False
        ),
    ] = None,
    find: Annotated[
        str | None,
        typer.Option(
            "--find", help="Look for nan, inf or overflow:float16 instead.", show_default=False
        ),
    ] = None,
    mapping: options.Map = None,
    feeds: options.Feeds = None,
    look: Annotated[
        options.Look,
        typer.Option(
            "--look",
            help="Search the optimized graph, the unoptimized one, or run every node alone.",
            metavar=f"[{'|'.join(options.LOOKS)}]",
            parser=options.look,
            autocompletion=lambda: [*options.LOOKS],
        ),
    ] = "auto",
    quick: Annotated[
        bool, typer.Option("--quick", help="Find one culprit and say no more about it.")
    ] = False,
    output: options.Output = None,
    opt: options.Opt = "all",
    memory: Annotated[
        str, typer.Option("--memory", help="Bytes of values that are computed at once.")
    ] = "64MB",
    journal: Annotated[
        Path | None,
        typer.Option("--journal", help="File that keeps the answers.", show_default=False),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on from the journal of a search that was cut short."),
    ] = False,
    strip: Annotated[
        bool,
        typer.Option(
            "--strip-weights", help="Noise for weights in the reproducer, if it still fails."
        ),
    ] = False,
    force: options.Force = False,
    metrics: options.Metrics = "usual",
    verbose: options.Verbose = False,
    json: options.Json = False,
    **how: Unpack[ComparingOnFeeds],
) -> None:
    """Find the nodes where a model leaves its references, say why, and write a reproducer folder.

    Without arguments it takes what onnxdbg.toml says, or the one model and the one reference set in this folder.
    """
    model, reference, against = _asked(model, reference, against, a or b, find)
    from onnxsurgeon_lite.report.progress import progress

    target = Target(model, "culprit", output, force, suffix="")
    with progress("bisecting") as tell:
        how["progress"] = tell
        result = osl.bisect(
            model,
            reference,
            against,
            a,
            b,
            find,
            mapping,
            feeds,
            look,
            quick,
            target.path,
            memory,
            journal,
            resume,
            strip,
            target.replaceable(),
            opt=opt,
            **how,
        )
    if result.reproducer is not None:
        target.wrote()
    options.show(result, json, metrics, verbose)
    if result.verdict == "mismatch":
        raise typer.Exit(MISMATCH)


def _asked(
    model: Path | None,
    reference: str | None,
    against: Path | None,
    settings: str | None,
    find: str | None,
) -> tuple[Path, str | None, Path | None]:
    """(model, references, other model): as given, else what the folder offers."""
    ways = [way for way in (reference, against, settings, find) if way]
    if len(ways) > 1:
        raise UsageError(
            "there are several things to compare with",
            "give one of --reference, --against, --a with --b, --find",
        )
    if model is not None and ways:
        return model, reference, against
    from onnxsurgeon_lite.cli.discover import look_around
    from onnxsurgeon_lite.report.plain import show_notes

    found = look_around(model, not ways)
    show_notes([found.said])
    return found.model, found.reference or reference, found.against or against


@options.shared
def rank(
    model: options.Model,
    reference: Annotated[
        str | None, typer.Option("--reference", help=options.REFERENCES, show_default=False)
    ] = None,
    against: options.Against = None,
    risk: Annotated[
        bool, typer.Option("--fp16-risk", help="What float16 would lose, from one float32 run.")
    ] = False,
    below: Annotated[
        float, typer.Option("--below", help="Decibels under which a node is on the exclude list.")
    ] = 20.0,
    feeds: options.Feeds = None,
    json: options.Json = False,
    **how: Unpack[RunOnFeeds],
) -> None:
    """Order nodes by the accuracy they lose, and print the names that a quantizer or converter should exclude."""
    from onnxsurgeon_lite.report.progress import progress

    with progress("ranking") as tell:
        how["progress"] = tell
        result = osl.rank(model, reference, against, risk, below, feeds, **how)
    options.show(result, json)


def demo(
    folder: Annotated[Path, typer.Argument(help="With --keep: the folder for the files.")] = Path(
        "onnxdbg-demo"
    ),
    keep: Annotated[bool, typer.Option("--keep", help="Leave the files to play with.")] = False,
) -> None:
    """Show the main job on a small model that is made on the spot."""
    from onnxsurgeon_lite.report.plain import say

    osl.demo(folder if keep else None)
    if keep:
        say(
            f"\nthe files stay in {str(folder)!r}: a model, a faulty copy, references, a reproducer"
        )
    else:
        say("\nthe files are gone; onnxdbg demo --keep leaves them in a folder to play with")
