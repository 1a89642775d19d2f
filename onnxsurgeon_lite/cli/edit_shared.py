"""What all edits do around their pass: load, apply, show what changed, prove or verify, save."""

import contextlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from onnxsurgeon_lite.cli import options
from onnxsurgeon_lite.cli.boundary import MISMATCH
from onnxsurgeon_lite.runtime.child import Child

if TYPE_CHECKING:
    from onnxsurgeon_lite.model import Model
    from onnxsurgeon_lite.passes import Pass, PassResult
    from onnxsurgeon_lite.runtime.feeds import Recipe
    from onnxsurgeon_lite.runtime.session import Runtime


_PROVED = ("set-shape", "rebatch")
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
    seed: options.Seed = 0
    dim: options.Dims = None
    fill: options.Fills = None
    timeout: options.Timeout = None
    ops_library: options.OpsLibraries = None


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
    own = inspect.signature(make).parameters
    foreign = {*own} if proved or listed else {*own, "unproved"}
    foreign |= {*_WRITING} if keep else set()
    shared = {n: p for n, p in inspect.signature(Shared).parameters.items() if n not in foreign}
    model = inspect.Parameter("model", inspect.Parameter.KEYWORD_ONLY, annotation=options.Model)

    def command(**given: object) -> None:
        how = make_shared(**{name: given[name] for name in shared})
        with Child() if proved or how.verify else contextlib.nullcontext() as child:
            step = make(**{name: given[name] for name in own})
            _edit(step, cast(Path, given["model"]), how, child, keep)

    named = [*own.values(), model] if of_a_file else [model, *own.values()]
    parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in (*named, *shared.values())]
    vars(command).update(__signature__=inspect.Signature(parameters))
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    command.__doc__ = make.__doc__
    return command


def _edit(
    step: "Pass", source: Path, shared: Shared, child: Child | None, keep: Keep | None
) -> None:
    """Load, apply, show the changes, prove and verify them where that is due, save or keep."""
    from onnxsurgeon_lite.errors import UsageError
    from onnxsurgeon_lite.matching.diff import edit_diff
    from onnxsurgeon_lite.model import load
    from onnxsurgeon_lite.report import differences, plain

    if shared.in_place and shared.output:
        raise UsageError("-o and --in-place exclude each other", "leave one of them out")
    target = source
    if not shared.in_place and not shared.dry_run and not keep:
        target = options.default_output(source, step.name, shared.output, shared.force)
    original = load(source)
    result = step.apply(original)
    plain.show_notes(result.notes)
    plain.show_changes(result.changes if result.changed else ["nothing to change"])
    if result.changed:
        differences.show_edit(edit_diff(original, result.model))
    proved = _is_proved(step)
    if proved and shared.unproved:
        plain.show_notes(["the new sizes were not proved: neither model was run"])
    if result.changed and (shared.verify or (proved and not shared.unproved)):
        _run(step, original, result.model, child, shared)
    if keep and result.changed and not shared.dry_run:
        keep(step, result)
    if not keep and not shared.dry_run and (result.changed or not shared.in_place):
        _save(result.model, source, target, shared)


def _is_proved(step: "Pass") -> bool:
    """Whether a pass, or one of its steps, is always proved by running."""
    return step.name in _PROVED or any(map(_is_proved, getattr(step, "passes", ())))


def _run(
    step: "Pass", original: "Model", edited: "Model", child: Child | None, shared: Shared
) -> None:
    """Prove what other sizes were given to, and verify where that was asked for.

    Raises:
        ShapeError: it is not proved.
        typer.Exit: both were run, and differ.
    """
    from onnxsurgeon_lite.matching.prove import prove_step
    from onnxsurgeon_lite.report import plain
    from onnxsurgeon_lite.report.progress import progress
    from onnxsurgeon_lite.runtime.session import Runtime

    how = options.runtime_options(
        "none", timeout=shared.timeout, ops_libraries=shared.ops_library, lean=True
    )
    recipe = options.recipe(shared.seed, shared.dim, shared.fill)
    with Runtime(how, child) as runtime:
        with progress("proving by running"):
            proof = [] if shared.unproved else prove_step(step, original, edited, runtime, recipe)
        for line in proof:
            plain.out(line)
        if shared.verify and not _agrees(original, edited, runtime, recipe, shared.feeds):
            raise typer.Exit(MISMATCH)


def _agrees(
    original: "Model", edited: "Model", runtime: "Runtime", recipe: "Recipe", given: str | None
) -> bool:
    """Whether both compute the same; what does not is shown."""
    from onnxsurgeon_lite.graph.index import GraphIndex
    from onnxsurgeon_lite.matching.verify import verify
    from onnxsurgeon_lite.report import bisection, plain
    from onnxsurgeon_lite.runtime.feeds import given_or_made

    index = GraphIndex.of(original)
    feeds, made = given_or_made(index, given, recipe)
    plain.show_notes(f"made {line}" for line in made)
    result = verify(index, GraphIndex.of(edited), feeds, runtime)
    if not result.match:
        bisection.show_comparison(result)
        plain.show_notes(["the outputs differ: nothing was written"])
        return False
    plain.out(f"verified: {len(result.compared)} outputs agree")
    return True


def _save(model: "Model", source: Path, target: Path, shared: Shared) -> None:
    from onnxsurgeon_lite.model import save
    from onnxsurgeon_lite.report import plain
    from onnxsurgeon_lite.report.progress import progress

    with progress(f"writing {target}"):
        external = True if shared.copy_data else None
        written = save(model, target, external, force=shared.force or shared.in_place)
    plain.show_written(written.path, written.data_files)
    kept = {file.path for file in model.files.values() if file.location is not None}
    if target != source and kept.intersection(path.absolute() for path in written.data_files):
        plain.show_notes([f"{str(source)!r} uses this data too; --copy-data gives each its own"])
