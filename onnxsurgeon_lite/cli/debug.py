"""Debug: bisect, rank, demo."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxsurgeon_lite.cli import options
from onnxsurgeon_lite.cli.boundary import MISMATCH
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.runtime.child import Child

if TYPE_CHECKING:
    from onnxsurgeon_lite.debug.bisection import BisectResult
    from onnxsurgeon_lite.graph.index import GraphIndex
    from onnxsurgeon_lite.model import Model
    from onnxsurgeon_lite.runtime.feeds import Feeds, Recipe
    from onnxsurgeon_lite.runtime.session import RuntimeOptions
    from onnxsurgeon_lite.tensors.references import ReferenceSet


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
    seed: options.Seed = 0,
    dim: options.Dims = None,
    fill: options.Fills = None,
    look: Annotated[
        str,
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
    rtol: options.Rtol = None,
    atol: options.Atol = None,
    output: options.Output = None,
    opt: options.Opt = "all",
    provider: options.Provider = "cpu",
    threads: options.Threads = 0,
    timeout: options.Timeout = None,
    memory: Annotated[
        str, typer.Option("--memory", help="Bytes of values that are computed at once.")
    ] = "64MB",
    memory_limit: options.MemoryLimit = "0",
    ops_library: options.OpsLibraries = None,
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
    json: options.Json = False,
) -> None:
    """Find the nodes where a model leaves its references, say why, and write a reproducer folder.

    Without arguments it takes what onnxdbg.toml says, or the one model and the one reference set in this folder.
    """
    model, reference, against = _asked(model, reference, against, a or b, find)
    if resume and journal is None:
        raise UsageError("there is nothing to resume", "name the file: --journal FILE --resume")
    limit = options.byte_size(memory_limit)
    with contextlib.ExitStack() as stack:
        child = stack.enter_context(Child(limit))
        second = stack.enter_context(Child(limit)) if not quick and not find else None

        from onnxsurgeon_lite.debug import bisection
        from onnxsurgeon_lite.debug.bisection import reproducer
        from onnxsurgeon_lite.graph.index import GraphIndex
        from onnxsurgeon_lite.matching.values import aligned
        from onnxsurgeon_lite.model import load
        from onnxsurgeon_lite.report.progress import progress
        from onnxsurgeon_lite.runtime.session import Runtime

        folder = options.default_output(model, "culprit", output, force, suffix="")
        reproducer.require_free(folder, force)
        loaded = load(model)
        usual = options.runtime_options(opt, provider, threads, timeout, ops_library)
        ours = options.with_settings(usual, b)
        runtime = stack.enter_context(Runtime(options.unoptimized(ours), child))
        optimized = None
        if second is not None and ours.opt != "none":
            optimized = stack.enter_context(Runtime(ours, second))
        search = bisection.Search(
            options.tolerance(rtol, atol),
            options.LOOKS[look],
            quick,
            options.byte_size(memory),
            journal,
            resume,
        )
        tell = stack.enter_context(progress("bisecting"))
        index = GraphIndex.of(loaded)
        if reference is not None:
            samples = [
                (aligned(stored, index, given, runtime, mapping, tell), given)
                for stored, given in _samples(index, reference, feeds)
            ]
            result = bisection.bisect_samples(loaded, samples, runtime, optimized, search, tell)
        else:
            given = _given(index, feeds, options.recipe(seed, dim, fill))
            if find is not None:
                result = bisection.find(loaded, find, given, runtime, search, tell)
            else:
                theirs = options.with_settings(usual, a) if a or b else runtime.options
                other = index if against is None else GraphIndex.of(load(against))
                stored = stack.enter_context(_other_side(other, given, theirs, limit))
                changed = bisection.ChangedInitializers(index, other)
                result = bisection.bisect(
                    loaded, stored, given, runtime, optimized, search, tell, changed
                )
    _show(result, loaded, folder, quick, strip, json)


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


def _samples(
    index: "GraphIndex", reference: str, feeds: str | None
) -> "list[tuple[ReferenceSet, Feeds]]":
    from onnxsurgeon_lite.matching.values import feeds_in_order
    from onnxsurgeon_lite.runtime.feeds import feeds_from, read_feeds, required_inputs
    from onnxsurgeon_lite.tensors.references import count_samples, open_references

    samples, count = [], count_samples(reference)
    for number in range(count):
        stored = open_references(reference, required_inputs(index), list(index.outputs), number)
        if count > 1:
            stored = replace(stored, notes=())  # all are taken
        named = feeds_in_order if any(e.is_input for e in stored.entries.values()) else feeds_from
        given = read_feeds(index, feeds, number) if feeds else named(index, stored)
        samples.append((stored, given))
    return samples


def _given(index: "GraphIndex", feeds: str | None, recipe: "Recipe") -> "Feeds":
    from onnxsurgeon_lite.report.plain import show_notes
    from onnxsurgeon_lite.runtime.feeds import given_or_made

    given, made = given_or_made(index, feeds, recipe)
    show_notes(f"made {line}" for line in made)
    return given


@contextlib.contextmanager
def _other_side(
    index: "GraphIndex", feeds: "Feeds", how: "RuntimeOptions", limit: int
) -> "Iterator[ReferenceSet]":
    """The references that a model gives under some settings."""
    from onnxsurgeon_lite.debug.bisection import computed_references
    from onnxsurgeon_lite.runtime.session import Runtime

    with contextlib.ExitStack() as stack:
        runtime = stack.enter_context(Runtime(options.unoptimized(how), Child(limit)))
        optimized = None
        if how.opt != "none":
            optimized = stack.enter_context(Runtime(how, Child(limit)))
        yield stack.enter_context(computed_references(index, feeds, runtime, optimized))


def _show(
    result: "BisectResult", model: "Model", folder: Path, quick: bool, strip: bool, json: bool
) -> None:
    from onnxsurgeon_lite.debug.bisection import strip_weights, write_reproducer
    from onnxsurgeon_lite.report import bisection as numbers
    from onnxsurgeon_lite.report import json as data

    made = write_reproducer(model, result, folder, not quick) if result.culprits else None
    result.reproducer = made.folder if made else None
    if made is not None and strip:
        result.notes.append(strip_weights(made, result))
    if json:
        data.show_json(result.contract())
    else:
        numbers.show_bisection(result, made.words if made else [])
    if result.verdict == "mismatch":
        raise typer.Exit(MISMATCH)


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
    seed: options.Seed = 0,
    dim: options.Dims = None,
    fill: options.Fills = None,
    provider: options.Provider = "cpu",
    timeout: options.Timeout = None,
    ops_library: options.OpsLibraries = None,
    json: options.Json = False,
) -> None:
    """Order nodes by the accuracy they lose, and print the names that a quantiser or converter should exclude."""
    if sum(map(bool, (reference, against, risk))) != 1:
        raise UsageError(
            "say what to rank by",
            "give one of --reference REFERENCES, --against FLOAT_MODEL, --fp16-risk",
        )
    with Child() as child, contextlib.ExitStack() as stack:
        from onnxsurgeon_lite.debug import rank as ranking
        from onnxsurgeon_lite.graph.index import GraphIndex
        from onnxsurgeon_lite.model import load
        from onnxsurgeon_lite.report import bisection as numbers
        from onnxsurgeon_lite.report import json as data
        from onnxsurgeon_lite.report.progress import progress
        from onnxsurgeon_lite.runtime.session import Runtime

        index = GraphIndex.of(load(model))
        how = options.runtime_options("none", provider, 0, timeout, ops_library, lean=True)
        runtime = stack.enter_context(Runtime(how, child))
        tell = stack.enter_context(progress("ranking"))
        recipe = options.recipe(seed, dim, fill)
        risks, ranked = [], []
        if reference is not None:
            stored, given = _samples(index, reference, feeds)[0]
            ranked = ranking.rank(index, stored, given, runtime, tell)
        elif against is not None:
            given = _given(index, feeds, recipe)
            other = _other_side(GraphIndex.of(load(against)), given, how, 0)
            stored = stack.enter_context(other)
            ranked = ranking.rank(index, stored, given, runtime, tell)
        else:
            risks = ranking.float16_risk(index, _given(index, feeds, recipe), runtime, tell)
    keep = [r for r in risks if r.keep] if risk else [n for n in ranked if n.own_db < below]
    names = list(dict.fromkeys(node.name or node.id for node in keep))
    if json:
        data.show_json({"nodes": risks or ranked, "exclude": names})
    elif risk:
        numbers.show_risks(risks, names)
    else:
        numbers.show_ranking(ranked, names, below)


def demo() -> None:
    """Show the main job on a small model that is made on the spot."""
    from onnxsurgeon_lite.cli.demo import demonstrate

    demonstrate()
