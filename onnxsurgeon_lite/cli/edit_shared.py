"""What all edits do around their pass: load, apply, show what changed, prove or verify, save."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, cast

from onnxsurgeon_lite.api.call import RunOnFeeds
from onnxsurgeon_lite.cli import options
from onnxsurgeon_lite.cli.outputs import Target
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.report import plain
from onnxsurgeon_lite.report.progress import progress

if TYPE_CHECKING:
    from onnxsurgeon_lite.model import Model
    from onnxsurgeon_lite.passes import Pass, PassResult


_WRITING = ("output", "in_place", "force", "copy_data", "undo")

Keep = Callable[["Pass", "PassResult"], object]
"""Takes a result in place of a file."""


@dataclass(frozen=True, kw_only=True)
class Shared:
    """The options of every edit.

    Args:
        in_place: Write over the model itself.
        copy_data: Give the result a data file of its own.
        verify: Run both; write nothing when their outputs differ (exit code 1).
        unproved: Write what was not run: nothing says that new sizes, or converted nodes, hold.
        undo: Write a recipe here that takes the edit back.
    """

    output: Path | None = None
    in_place: bool = False
    force: bool = False
    dry_run: bool = False
    copy_data: bool = False
    verify: bool = False
    unproved: bool = False
    feeds: str | None = None
    undo: Path | None = None


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
    verb = "pipeline" if of_a_file and listed else make.__name__.replace("_", "-")

    @cache
    def parameters() -> tuple[Mapping[str, Parameter], ...]:
        """Those of the verb, those of every edit, those of a run."""
        own = options.parameters(make)
        foreign = {*own} if proved or listed else {*own, "unproved"}
        foreign |= {*_WRITING} if keep else set()
        usual = options.parameters(options.usual)
        run = RunOnFeeds.__annotations__.keys() - own.keys()
        model = {"model": usual["model"]}
        return (
            own | model if of_a_file else model | own,
            {name: p for name, p in options.parameters(Shared).items() if name not in foreign},
            {name: p for name, p in usual.items() if name in run},
        )

    def command(**given: object) -> None:
        told = options.written(given)
        source = cast(Path, told.pop("model"))
        own, shared, run = ({n: told[n] for n in names if n in told} for names in parameters())
        make_shared: Callable[..., Shared] = Shared
        step, how = partial(make, **own), make_shared(**shared)
        _edit(verb, step, source, how, proved, options.library_options(run), keep)

    def every() -> Mapping[str, Parameter]:
        own, shared, run = parameters()
        return {**own, **shared, **run}

    return options.spelled(make, command, every)


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

    if shared.in_place and shared.output:
        raise UsageError("-o and --in-place exclude each other", "leave one of them out")
    with progress(f"editing {source}") as how["progress"]:
        result = applied(make, source, shared.verify, shared.unproved, shared.feeds, proved, **how)
    options.show(result)
    if not result.match:
        plain.show_notes(["the outputs differ: nothing was written"])
    options.require(result.match)
    if keep:
        if not shared.dry_run:
            keep(make(), result)
        return
    back = _undoing(source, result, shared) if shared.undo else None
    output = source if shared.in_place else shared.output
    target = Target(source, verb, output, shared.force or shared.in_place, shared.dry_run)
    if result.changed or not shared.in_place:
        _save(result.model, source, target, shared)
    if shared.undo and back and not shared.dry_run:
        from onnxsurgeon_lite.passes.recipe_writing import write_recipe

        write_recipe([back], shared.undo)
        plain.show_written(shared.undo)


def _undoing(source: Path, result: "PassResult", shared: Shared) -> "Pass":
    """Return the pass that takes an edit back, before anything is written."""
    from onnxsurgeon_lite.model import load
    from onnxsurgeon_lite.model.sharing import require_replaceable
    from onnxsurgeon_lite.passes.restore import Restore

    assert shared.undo is not None  # the caller looked
    require_replaceable(shared.undo, shared.force)
    return Restore.undoing(load(source), result.model)


def _save(model: "Model", source: Path, target: Target, shared: Shared) -> None:
    written = options.save(model, target, True if shared.copy_data else None)
    kept = {file.path for file in model.files.values() if file.location is not None}
    beside = {path.absolute() for path in written.data_files} if written else set()
    if target.path != source and kept & beside:
        plain.show_notes([f"{str(source)!r} uses this data too; --copy-data gives each its own"])
