"""What all edits do around their pass: load, apply, show what changed, prove or verify, save."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from onnxsurgeon_lite.api.call import RunOnFeeds
from onnxsurgeon_lite.cli import options
from onnxsurgeon_lite.cli.boundary import MISMATCH
from onnxsurgeon_lite.cli.outputs import Target

if TYPE_CHECKING:
    from onnxsurgeon_lite.model import Model
    from onnxsurgeon_lite.passes import Pass, PassResult


_WRITING = ("output", "in_place", "force", "copy_data")

Keep = Callable[["Pass", "PassResult"], object]
"""Takes a result in place of a file."""


@dataclass(frozen=True)
class Shared:
    """The options of every edit."""

    output: options.Output = None
    in_place: Annotated[bool, typer.Option("--in-place", help="Write over the model itself.")] = (
        False
    )
    force: options.Force = False
    dry_run: options.DryRun = False
    copy_data: Annotated[
        bool, typer.Option("--copy-data", help="Give the result a data file of its own.")
    ] = False
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Run both; write nothing when their outputs differ (exit code 1)."
        ),
    ] = False
    unproved: Annotated[
        bool,
        typer.Option(
            "--unproved",
            help="Write new sizes although they were not run: nothing says that they hold.",
        ),
    ] = False
    feeds: options.Feeds = None


def command(
    make: Callable[..., "Pass"],
    of_a_file: bool = False,
    proved: bool = False,
    listed: bool = False,
    keep: Keep | None = None,
) -> Callable[..., None]:
    """A command that applies the pass which `make` gives: its own parameters, and those of every edit.

    Args:
        of_a_file: its own file is the first argument, the model the second.
        proved: the runtime is needed in any case.
        listed: its steps may be such that are proved.
        keep: takes the result; nothing is written then.
    """
    make_shared: Callable[..., Shared] = Shared
    verb = "pipeline" if of_a_file and listed else make.__name__.replace("_", "-")
    own = inspect.signature(make).parameters
    foreign = {*own} if proved or listed else {*own, "unproved"}
    foreign |= {*_WRITING} if keep else set()
    shared = {n: p for n, p in inspect.signature(Shared).parameters.items() if n not in foreign}
    model = inspect.Parameter("model", inspect.Parameter.KEYWORD_ONLY, annotation=options.Model)

    def command(**given: object) -> None:
        how = make_shared(**{name: given[name] for name in shared})
        step = partial(make, **{name: given[name] for name in own})
        passed_on = options.library_options({n: given[n] for n in given.keys() - own.keys()})
        _edit(verb, step, cast(Path, given["model"]), how, proved, passed_on, keep)

    named = [*own.values(), model] if of_a_file else [model, *own.values()]
    run = [
        name for name in RunOnFeeds.__annotations__ if name in options.SHARED.keys() - own.keys()
    ]
    command.__doc__ = make.__doc__
    return options.spelled(command, [*named, *shared.values(), *map(options.option, run)])


def _edit(
    verb: str,
    make: "Callable[[], Pass]",
    source: Path,
    shared: Shared,
    proved: bool,
    how: RunOnFeeds,
    keep: Keep | None,
) -> None:
    """Edit, show what that changed and what running it showed, save or keep."""
    from onnxsurgeon_lite.api.edit import applied
    from onnxsurgeon_lite.errors import UsageError
    from onnxsurgeon_lite.report import plain
    from onnxsurgeon_lite.report.progress import progress

    if shared.in_place and shared.output:
        raise UsageError("-o and --in-place exclude each other", "leave one of them out")
    with progress(f"editing {source}") as tell:
        how["progress"] = tell
        result = applied(
            make,
            source,
            shared.verify,
            shared.unproved,
            shared.feeds,
            proved,
            **how,
        )
    options.show(result)
    if not result.match:
        plain.show_notes(["the outputs differ: nothing was written"])
        raise typer.Exit(MISMATCH)
    if keep:
        if not shared.dry_run:
            keep(make(), result)
        return
    if shared.in_place:
        target = Target(source, verb, source, force=True)
    else:
        target = Target(source, verb, shared.output, shared.force)
    if result.changed or not shared.in_place:
        _save(result.model, source, target, shared)


def _save(model: "Model", source: Path, target: Target, shared: Shared) -> None:
    from onnxsurgeon_lite.report import plain

    written = options.save(model, target, True if shared.copy_data else None, shared.dry_run)
    kept = {file.path for file in model.files.values() if file.location is not None}
    beside = {path.absolute() for path in written.data_files} if written else set()
    if target.path != source and kept & beside:
        plain.show_notes([f"{str(source)!r} uses this data too; --copy-data gives each its own"])
