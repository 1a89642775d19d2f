"""Find out where values differ, and why: bisect, rank, match, weights, verify, prove."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack, cast

from onnxsurgeon_lite.api.asked import Against, Feeding, Searching, Writing
from onnxsurgeon_lite.api.call import (
    Call,
    ComparingOnFeeds,
    JudgingSamples,
    OptLevel,
    RankingSamples,
    RunOnFeeds,
    Tolerating,
    byte_size,
)
from onnxsurgeon_lite.api.page import Place, look_along
from onnxsurgeon_lite.api.run import is_model
from onnxsurgeon_lite.api.spelling import spelled
from onnxsurgeon_lite.errors import SurgeonError, UsageError
from onnxsurgeon_lite.runtime.options import (
    ORT,
    RuntimeOptions,
    Settings,
    with_settings,
    words_of,
)
from onnxsurgeon_lite.shown import Progress, quiet

if TYPE_CHECKING:
    from onnxsurgeon_lite.debug.conversion.float16 import Float16Risks
    from onnxsurgeon_lite.debug.ranking.bits import BitsPerLayer
    from onnxsurgeon_lite.debug.ranking.leave_one_out import LeaveOneOut
    from onnxsurgeon_lite.debug.ranking.rank import Ranking
    from onnxsurgeon_lite.debug.result import BisectResult
    from onnxsurgeon_lite.debug.shares import Blame
    from onnxsurgeon_lite.graph import GraphIndex
    from onnxsurgeon_lite.matching.over_samples import CompareSamples
    from onnxsurgeon_lite.matching.sets import SetComparison
    from onnxsurgeon_lite.matching.values.run_both import MatchResult
    from onnxsurgeon_lite.matching.weights import WeightsResult
    from onnxsurgeon_lite.model import Model, ModelLike
    from onnxsurgeon_lite.passes.protocol import PassResult
    from onnxsurgeon_lite.runtime.feeds import Feeds
    from onnxsurgeon_lite.tensors.references import Tensors


_REDUCED = {"crash": "stops", "optimizer": "mismatch"}  # verdict -> the condition of `reduce`
_QUICK = 4.0  # seconds for a smaller reproducer


@spelled
def bisect(
    model: "ModelLike",
    reference: "Tensors | Sequence[Tensors] | None" = None,
    against: "ModelLike | None" = None,
    a: Settings | None = None,
    b: Settings | None = None,
    find: str | None = None,
    map: Place = None,
    feeds: "Tensors | Sequence[Tensors] | None" = None,
    *,
    versions: str | None = None,
    look: Literal["auto", "unoptimized", "optimized", "node"] = "auto",
    quick: bool = False,
    output: Place = None,
    memory: int | str = "64MB",
    journal: Place = None,
    resume: bool = False,
    strip_weights: bool = False,
    force: bool = False,
    cause: bool = True,
    seconds: float | None = None,
    repair: Place = None,
    factory: str | None = None,
    blame: bool = False,
    workaround: bool = False,
    headline: "Callable[[BisectResult], None]" = lambda _: None,
    html: Place = None,
    node_data: Place = None,
    opt: OptLevel = "all",
    seed: int = 0,
    dim: Mapping[str, int] | None = None,
    fill: Mapping[str, str] | None = None,
    sequence: Mapping[str, str] | None = None,
    **how: Unpack[JudgingSamples],
) -> "BisectResult":
    """Find the nodes where a model leaves its references, and say why.

    Give one of `reference`, `against`, `a` with `b`, `find`, or `versions`.

    Args:
        reference: Tensors by name: a path, name -> array, a `ReferenceSet`; several samples as a list or one path.
        against: A model whose values are the references.
        a: Settings that give the references: `"opt=none,threads=1"`, or the same as a dict.
        b: Settings that are searched.
        find: Look for `nan`, `inf` or `overflow:float16` instead.
        versions: `FIRST..LAST`, or a list with commas, of onnxruntime: the first one that gives other outputs is found,
            then the node. pip makes an environment for each that is run, in the user's cache folder.
        feeds: Input name -> array, or a path; those of the references by default, else made. Several samples: a list,
            a folder, arrays of rows, `FILE.py:function` that yields them, `hf:NAME:SPLIT`.
        look: Search the unoptimized graph, the optimized one, or run every node alone; `auto` finds out.
        quick: Find one culprit and say no more about it.
        output: The folder for the reproducer; without it none is written.
        memory: Bytes of values that are computed at once, or `64MB`.
        journal: A file that keeps the answers.
        resume: Go on from the journal of a search that was cut short, also one for causes.
        strip_weights: Noise for weights in the reproducer, if it still fails.
        force: Write into a folder that is not empty.
        cause: Say what is wrong with the culprits, and what repairs them; a quick search does not.
        seconds: How long the search of causes may take; by default 45, or more where the bisection took longer.
        repair: Where to write the repaired model, and its recipe beside it; it is searched again, as proof.
        factory: `FILE.py:function` of the PyTorch module: it is traced where a region is wide, or its cause not known.
        blame: Share the error of the worst output among all nodes, to first order.
        node_data: Where to write its numbers of nodes for model-explorer.
        html: Where to write the result as a page for a browser.
        workaround: Where a kernel or an optimizer is wrong, find the nearest edit that avoids it; `repair` makes it.
        headline: Called with the culprits once they are certain: the first one, and all if there are more. Ctrl-C then
            ends only the search for more.

    Returns:
        `verdict` (`agrees`, `mismatch` or `inconclusive`), `culprits` with their findings; `print` shows it all.

    Raises:
        UsageError: There is nothing, or more than one thing, to compare with.
        ReferenceSetError: The references do not fit the model.
        FeedsError: A feed of a wrong name, dtype or shape.
        RuntimeFailure: The runtime cannot run the model.

    Example:
        >>> result = osl.bisect("faulty_attribute.onnx", "references/whole_model.npz")
        >>> result.verdict, result.culprits[0].name, result.culprits[0].findings[0].verdict
        ('mismatch', 'Conv_6', 'wrong node')
    """
    # the arguments become four values, which travel as these from here on
    links = None if map is None else fspath(map)
    side = Against(reference, against, a, b, find, links, versions)
    feeding = Feeding(feeds, seed, dim, fill, sequence)
    searching = Searching(
        look,
        quick,
        byte_size(memory),
        journal,
        resume,
        cause,
        factory,
        blame,
        workaround,
        seconds,
        headline,
    )
    writing = Writing(output, strip_weights, repair, html, node_data, force)
    # options of `Call`, which each search of this call is given
    how_all = {"opt": opt, **how}
    if versions is None:
        return _bisect(model, side, feeding, searching, writing, how_all)
    side.require_one()
    from onnxsurgeon_lite.api.versions import neighbors
    from onnxsurgeon_lite.atomic import write_text

    before, after, said = neighbors(model, feeding, versions, how_all)
    side = replace(side, a=before, b=after, versions=None)
    result = _bisect(model, side, feeding, searching, writing, how_all)
    # first of all which versions were compared; the report goes into an issue alone
    result.notes.insert(0, said)
    if result.reproducer is not None:
        report = result.reproducer / "report.md"
        write_text(report, f"{report.read_text(encoding='utf-8')}\n{said}.\n")
    return result


def _bisect(
    model: "ModelLike",
    against: Against,
    feeding: Feeding,
    searching: Searching,
    writing: Writing,
    how: Mapping[str, object],
) -> "BisectResult":
    """Search, and write what is wanted.

    Args:
        how: options of `Call`.
    """
    against.require_one()
    searching.require_possible(against, writing)
    # the runtime's process starts before the rest is imported
    begun: Callable[..., Call] = Call
    with begun(**feeding.made(), **writing.page(), **how) as call:
        # 1. start what runs: the side that is searched without optimization, and with it for the optimized look
        usual = call.options(lean=False)
        searched = with_settings(usual, against.b)
        theirs = with_settings(usual, against.a)
        child = call.start(searched)
        from onnxsurgeon_lite.api import bisecting
        from onnxsurgeon_lite.debug.bisection.bisect import Search
        from onnxsurgeon_lite.debug.bisection.find import find

        index = call.index(model)
        recorded = bisecting.of_module(index, theirs, feeding.feeds, call.stack)
        reference = recorded or against.reference
        runtime = call.runtime_of(replace(searched, opt="none", lean=True), child)
        optimized = None
        # the optimized look is left out where one culprit is enough, or nothing is compared
        also = not searching.quick and not against.find and searched.opt != "none"
        # a faithful runtime fuses nothing: there is no optimized graph to look at
        if also and not runtime.abilities.faithful:
            optimized = call.runtime_of(searched)

        # what is written, and the search with it
        made = bisecting.Reproduction(
            index.model,
            writing.output,
            words_of(searched),
            searching.seconds,
            lambda found: searching.headline(replace(found).with_told(call.notes)),
        )
        search = Search(
            call.allowed(),
            None if searching.look == "auto" else searching.look,
            searching.quick,
            searching.memory,
            None if searching.journal is None else Path(searching.journal),
            searching.resume,
            made.beside_causes if searching.cause else None,
            settings=bool(against.sides),
            sides=() if recorded else against.sides,
            tell=made.soon,
        )
        # 2. search: without references, or against them
        if against.find is not None:
            stored = program = None
            given = call.feeds(index, cast("Tensors | None", feeding.feeds))
            bisecting.require_places(index.model, writing, searching)
            result = made.certain = find(
                index.model, against.find, given, runtime, search, call.progress
            )
        else:
            job = bisecting.judging(call, index, reference, None if recorded else feeding.feeds)
            bisecting.require_places(index.model, writing, searching)
            # the culprits of many samples are known when the last one is searched
            made.late |= job.several or job.metric is not None
            case = bisecting.Bisecting(call, index, job, runtime, optimized, search, against.map)
            if reference is None:
                require_optimizers(index, theirs, searched, call)
                case.other = (
                    index if against.model is None else call.index(against.model),
                    theirs if against.a or against.b else runtime.options,
                )
            result = made.found(case, None if reference is None else searching.factory, recorded)
            stored, given = case.explained
            program = case.program and case.program.model
            # what else is asked for
            # 3. shares, a reproducer, a repaired model: where one fails, or is interrupted, the result stays
            if searching.blame and result.verdict == "mismatch":
                made.attempt("shares of the error", case.share, result)
        if writing.html or writing.node_data:
            call.sight = look_along(index, stored, given, runtime, call.allowed(), against.find)
    if result.culprits and writing.output is not None:
        made.attempt("a reproducer", made.finish, result, writing.strip_weights)
        made.attempt("a smaller reproducer", _reduce, result, words_of(searched), usual.timeout)
    if searching.workaround or writing.repair is not None:
        again = partial(_again, against, feeding, searching, how)
        right = partial(
            bisecting.right_for,
            index,
            against.model or program,
            theirs,
            searching.factory,
            given,
        )
        made.attempt(
            "a repaired model",
            bisecting.write_edits,
            index.model,
            result,
            searching.workaround,
            writing,
            again,
            right,
        )
    return call.done(made.complete(result))


def _again(
    against: Against,
    feeding: Feeding,
    searching: Searching,
    how: Mapping[str, object],
    edited: "ModelLike",
    cause: bool = True,
    workaround: bool = False,
) -> "BisectResult":
    """Search an edited model as the first one was."""
    look, seconds = searching.look, searching.seconds
    # without a journal, and nothing is written
    plainly = Searching(look, cause=cause, workaround=workaround, seconds=seconds)
    result = _bisect(edited, against, feeding, plainly, Writing(), how)
    # Ctrl-C within: it ends the outer call, too
    if result.lost:
        raise KeyboardInterrupt
    return result


def _reduce(result: "BisectResult", runtime: Sequence[str], timeout: float | None) -> None:
    """Make the reproducer smaller where that is quick, else say how; of a wrong number the node is all there is."""
    from onnxsurgeon_lite.api.reduce import reduce

    inner, _ = result.innermost()
    fails = _REDUCED.get(inner.culprits[0].verdict, inner.kind)
    folder = result.reproducer
    if fails not in ("stops", "mismatch", "nan", "inf") or not result.reproduce or not folder:
        return
    # fail as the search did: with optimization on, if it was there
    opt: OptLevel = "all" if inner.look == "optimized" or fails == "mismatch" else "none"
    model, data = folder / "model.onnx", folder / "test_data_set_0"
    words = ["onnxdbg", "reduce", str(model), "--feeds", str(data), "--fails", fails]
    words += ["--opt", opt] if opt != "all" else []
    words += [] if timeout is None else ["--timeout", f"{timeout:g}"]
    result.further = words + list(runtime)
    # another runtime may take long: the command is shown, not run
    if runtime:
        return
    with suppress(SurgeonError):
        found = reduce(
            model,
            "crash" if fails == "stops" else fails,  # each question about a hang takes its time
            feeds=str(data),
            opt=opt,
            output=folder / "reduced",
            seconds=_QUICK,
            timeout=timeout or _QUICK,
        )
        result.reduced = f"{found.after}"
        if found.complete and found.proved:
            result.further = []


def repair(model: "ModelLike", result: "BisectResult") -> "PassResult":
    """Repair a model by the causes of its culprits: the first one of each.

    Bisect the model that it returns to see that it agrees; `bisect` with `repair=` does both.

    Args:
        model: The model that was bisected.
        result: What `bisect` found.

    Returns:
        The edited model, and its changes; `save` writes it.

    Raises:
        EditError: No culprit has a cause.

    Example:
        >>> result = osl.bisect("faulty_attribute.onnx", "references/whole_model.npz")
        >>> fixed = osl.repair("faulty_attribute.onnx", result).model
        >>> osl.bisect(fixed, "references/whole_model.npz").verdict
        'agrees'
    """
    from onnxsurgeon_lite.debug.causes.repairing import repaired
    from onnxsurgeon_lite.model import loaded

    return repaired(loaded(model), result)


def require_optimizers(
    index: "GraphIndex", a: RuntimeOptions, b: RuntimeOptions, call: Call
) -> None:
    """Refuse to disable what is not an optimizer of the runtime, which would ignore it."""
    if not (a.disabled or b.disabled):
        return
    from onnxsurgeon_lite.runtime.optimized import known_optimizers

    for side in (a, b):
        if side.disabled and side.runtime != ORT:
            raise UsageError(f"{side.runtime} has no optimizers to disable", "leave out disabled=")
    # ask the runtime for the names of its optimizers
    options = replace(a if a.runtime == ORT else b, opt="all", disabled=())
    known = known_optimizers(index, call.runtime_of(options))
    for name in chain(a.disabled, b.disabled):
        if name not in known:
            raise UsageError(
                f"disabled={name}: the runtime has no such optimizer", f"it has {', '.join(known)}"
            )


@spelled
def rank(
    model: "ModelLike",
    reference: "Tensors | Sequence[Tensors] | None" = None,
    against: "ModelLike | None" = None,
    fp16_risk: bool = False,
    below: float = 20.0,
    feeds: "Tensors | Sequence[Tensors] | None" = None,
    leave_one_out: bool = False,
    reach: float | None = None,
    *,
    by: Literal["node", "output"] = "node",
    of: str | None = None,
    bits: float | None = None,
    html: Place = None,
    node_data: Place = None,
    force: bool = False,
    **how: Unpack[RankingSamples],
) -> "Ranking | Blame | BitsPerLayer | LeaveOneOut | Float16Risks":
    """Order nodes by the accuracy they lose, and name those that a quantizer or converter should exclude.

    Give one of `reference`, `against`, `fp16_risk`, `bits`.

    Args:
        model: A path, bytes, a `ModelProto` or a `Model`; quantized or of half precision.
        reference: Tensors of the float model, by name; several samples as a list or a folder.
        against: The float model, whose values are the references.
        fp16_risk: Say what float16 would lose, from one float32 run.
        below: Decibels under which a node is excluded, on any sample.
        feeds: Input name -> array, or a path; those of the references by default, else made. Several samples: a list,
            a folder, arrays of rows, `FILE.py:function` that yields them, `hf:NAME:SPLIT`.
        leave_one_out: Give each layer its float values back alone, and order layers by what the outputs gain; needs
            `against`.
        reach: With `leave_one_out`: the SQNR in decibels that the outputs should have; `exclude` then reaches it.
        by: What each `node` loses itself, or its share in the error of an `output`, to first order.
        of: The output whose error is shared, the worst by default; or that `bits` is about, the first by default.
        bits: Choose the bits of each weight (4, 8, 16 or all) for this SQNR of an output, in dB, at the least bytes.
        node_data: Where to write its numbers of nodes for model-explorer.
        html: Where to write the result as a page for a browser. force: Replace files that exist.

    Returns:
        The nodes, the lossiest first, and the names to `exclude`.

    Raises:
        UsageError: There is nothing, or more than one thing, to rank by.
        ReferenceSetError: No value that the model computes has a reference.

    Example:
        >>> ranking = osl.rank("faulty_constant.onnx", against="whole_model.onnx", below=60)
        >>> ranking.exclude
        ['Conv_4']
    """
    if sum((reference is not None, against is not None, fp16_risk, bits is not None)) != 1:
        raise UsageError(
            "say what to rank by",
            "give one of --reference REFERENCES, --against FLOAT_MODEL, --fp16-risk, --bits DB",
        )
    if (leave_one_out or reach is not None) and (against is None or not leave_one_out):
        raise UsageError(
            "--leave-one-out and --reach need the float model's weights",
            "give it: rank MODEL --against FLOAT_MODEL --leave-one-out --reach 30",
        )
    alone = fp16_risk or leave_one_out or bits is not None
    if (by == "output" and alone) or (of is not None and by != "output" and bits is None):
        raise UsageError(
            "an output's error is shared among the nodes of one run against references",
            "give --by output with --reference or --against alone",
        )
    with Call(html=html, node_data=node_data, force=force, **how) as call:
        child = call.child()
        from onnxsurgeon_lite.api import bisecting
        from onnxsurgeon_lite.debug.ranking import rank as ranking

        index = call.index(model)
        runtime = call.started(child, "none")
        given = _one(call, index, feeds) if alone else {}
        if leave_one_out and against is not None:
            from onnxsurgeon_lite.debug.ranking import leave_one_out as leaving

            other = call.index(against)
            found = leaving.leave_one_out(index, other, given, runtime, reach, call.progress)
            return call.done(found)
        if bits is not None:
            from onnxsurgeon_lite.debug.ranking.bits import bits_per_layer

            return call.done(bits_per_layer(index, [given], runtime, bits, of))
        if fp16_risk:
            from onnxsurgeon_lite.debug.conversion.float16 import float16_risk

            return call.done(float16_risk(index, given, runtime, call.progress))
        job = bisecting.judging(call, index, reference, feeds)
        # the ways to rank: layers left out, bits, float16, many samples, shares of an output, one sample
        if job.several and by == "node":
            float_model = None if against is None else call.index(against).model
            return call.done(_ranked_samples(call, job, float_model, below))
        stored, given = bisecting.first_sample(call, index, job)
        if reference is None:
            other = call.index(against)
            stored = call.stack.enter_context(bisecting.other_side(other, given, runtime.options))
        if by == "output":
            from onnxsurgeon_lite.debug.ranking.blame import blame

            return call.done(blame(index, stored, given, runtime, of, call.progress))
        ranked = ranking.rank(index, stored, given, runtime, call.progress)
        return call.done(ranking.ranking(ranked, below))


def _ranked_samples(
    call: Call, job: "CompareSamples", other: "Model | None", below: float
) -> "Ranking":
    """Rank over several samples."""
    from onnxsurgeon_lite.debug.ranking.rank import RankSamples, over_samples, ranking

    ranks = RankSamples(
        model=job.model,
        options=job.options,
        references=job.references,
        feeds=job.feeds,
        dims=job.dims,
        other=other,
    )
    pool = call.pool()
    nodes = over_samples(pool.run(ranks, ranks.items(pool.local), progress=call.progress))
    call.notes += pool.repeated
    return ranking(nodes, below)


def _one(call: Call, index: "GraphIndex", feeds: "Tensors | Sequence[Tensors] | None") -> "Feeds":
    """Return the feeds of one sample, the first, or made ones."""
    if feeds is None:
        return call.feeds(index, None)
    return call.read_feeds(index, call.sample_feeds(index, feeds).samples.first())


@spelled
def match(
    a: "ModelLike | Tensors",
    b: "ModelLike",
    feeds: "Tensors | None" = None,
    html: Place = None,
    force: bool = False,
    **how: Unpack[RunOnFeeds],
) -> "MatchResult":
    """Say which value of one model, or of a reference set, is which value of another, whatever they are called.

    Args:
        a: A model, or tensors: a path, name -> array, a `ReferenceSet`.
        b: A model.
        feeds: Input name -> array, or a path; those of the references by default, else made.
        html: Where to write the result as a page for a browser. force: Replace files that exist.

    Returns:
        The pairs with their evidence, and what is unmatched on either side; `save` writes a file for `map=`.

    Raises:
        FeedsError: A model does not take the feeds.
        RuntimeFailure: A model does not run.

    Example:
        >>> result = osl.match("whole_model_torchscript.onnx", "whole_model_dynamo.onnx")
        >>> len(result.only_a), len(result.only_b)
        (0, 0)
    """
    with Call(html=html, force=force, **how) as call:
        child = call.child()
        from onnxsurgeon_lite.matching.values.run_both import match_models, match_references
        from onnxsurgeon_lite.tensors.references import open_references

        other = call.index(a) if is_model(a) else None
        index = call.index(b)
        runtime = call.started(child, "none")
        if other is not None:
            given = call.feeds(other, feeds)
            return call.done(match_models(other, index, given, runtime, call.progress))
        tensors = cast("Tensors", a)
        stored = open_references(tensors, index.required_inputs, list(index.outputs))
        given = call.feeds_beside(index, stored, feeds)
        return call.done(match_references(stored, index, given, runtime, call.progress))


@spelled
def weights(
    model: "ModelLike",
    against: "Tensors | None" = None,
    progress: Progress = quiet,
    update: "Tensors | None" = None,
    partial: bool = False,
    *,
    lora: "Tensors | None" = None,
    lora_as: Literal["weights", "branches", "inputs"] = "weights",
    alpha: float | None = None,
    **how: Unpack[Tolerating],
) -> "WeightsResult":
    """Compare a model's weights with the checkpoint it was exported from: renamed, transposed or folded.

    Args:
        against: A `.safetensors`, `.pt`, `.pth` or `.npz` file, or name -> array (a state dict).
        update: A later checkpoint: `model` of the result has its numbers, each in the layout, fold and dtype of the
            weight whose parameter `against` says it is. Without `against`, this checkpoint says it itself.
        partial: Keep the weights whose new numbers are not known for sure, instead of an error.
        lora: An adapter: `model` of the result has it, on the numbers of `update`, or of `against`.
        lora_as: `weights` merges it into these. `branches` leaves W as it is, and adds x @ A^T @ B^T * scale to each
            product x @ W. With `inputs`, A, B and the scale are inputs that have these numbers as their default.
        alpha: The scale of the adapter is alpha / rank; by default that of `adapter_config.json` beside it.

    Returns:
        A `Comparison` for each weight that was found, and what only one side has.

    Raises:
        ReferenceSetError: A checkpoint cannot be read, has nothing of the model, or does not fit it; the new numbers of
            a weight are not known for sure.
        UsageError: It is a PyTorch file and torch is not installed.

    Example:
        >>> osl.weights("whole_model.onnx", "whole_model.safetensors").match
        True
    """
    from onnxsurgeon_lite.matching.weights import add_branches, compare_weights, update_weights
    from onnxsurgeon_lite.recording.checkpoint import open_checkpoint
    from onnxsurgeon_lite.recording.lora import loras, merged

    call = Call(**how)
    index = call.index(model)
    # the checkpoint that the model was exported from says which weight is which parameter
    exported = against if against is not None else update
    if exported is None:
        raise UsageError("no checkpoint is given", "name one with --against or --update")
    known = open_checkpoint(exported)
    result = compare_weights(index, known, call.allowed(), progress)
    if update is not None or lora is not None:
        progress("writing weights")
        new = known if against is None or update is None else open_checkpoint(update)
        adapted = {} if lora is None else loras(new, open_checkpoint(lora), alpha)
        is_merged = lora_as == "weights"
        if update is not None or is_merged:
            # an adapter is merged into the numbers that the weights were found by
            old = known if against is not None or adapted else None
            update_weights(index, result, old, merged(new, adapted if is_merged else {}), partial)
        if not is_merged:
            add_branches(index, result, new, adapted, lora_as == "inputs")
    return result


@spelled
def verify(
    original: "ModelLike",
    edited: "ModelLike",
    feeds: "Tensors | None" = None,
    **how: Unpack[ComparingOnFeeds],
) -> "SetComparison":
    """Run a model and an edited copy on the same feeds, and compare the outputs that both have.

    Made feeds are of two seeds; their symbolic dimensions have distinct sizes above 1, and loops run several times.

    Args:
        original: A path, bytes, a `ModelProto` or a `Model`.
        edited: The same, for the edited model; inputs and outputs that were renamed are matched by their place.

    Returns:
        A `Comparison` for each output.

    Raises:
        FeedsError: The edited model has an input that the original knows nothing of.
        ReferenceSetError: The models have no output in common.
        RuntimeFailure: The runtime refuses one of them.

    Example:
        >>> osl.verify("whole_model.onnx", osl.clean("whole_model.onnx").model).match
        True
    """
    with Call(**how) as call:
        child = call.child()
        from onnxsurgeon_lite.matching import verify as verifying
        from onnxsurgeon_lite.matching.trials import unmoved_notes

        sides = call.index(original), call.index(edited)
        runtime = call.started(child, "none")
        trials = call.trials(sides[0], feeds, runtime, verifying.known_feeds(*sides))
        compared = verifying.verify(*sides, trials, runtime, call.allowed())
        call.notes += unmoved_notes(compared.unmoved)
        return call.done(compared)


@spelled
def prove(
    original: "ModelLike",
    changed: "ModelLike",
    shapes: Mapping[str, Sequence[int | str]],
    axis: int = 0,
    second: "ModelLike | None" = None,
    **how: Unpack[ComparingOnFeeds],
) -> list[str]:
    """Prove by running that a model of other sizes computes what the original does.

    Dimension `axis` is a batch: samples are compared one by one. Another dimension is compared at its own size.

    Args:
        original: A path, bytes, a `ModelProto` or a `Model`.
        changed: The same, for the model whose sizes were changed.
        shapes: Input -> the shape that `changed` was asked to have: numbers and names.
        axis: Which dimension of an input holds samples.
        second: An export of the same network at other sizes, with which `changed` must agree too.

    Returns:
        What was shown, a line each.

    Raises:
        ShapeError: An output differs from the original's, or cannot be compared.
        RuntimeFailure: The original does not run.

    Example:
        >>> opened = osl.rebatch("frozen_batch.onnx", unproved=True).model
        >>> osl.prove("frozen_batch.onnx", opened, {"x": ("N", 4, 6)})
        ['agrees with the original at N = 2; N = 1; N = 3; N = 7']
    """
    with Call(**how) as call:
        child = call.child()
        from onnxsurgeon_lite.matching import prove as proving
        from onnxsurgeon_lite.model import loaded

        models = loaded(original), loaded(changed)
        sizes = {name: tuple(shape) for name, shape in shapes.items()}
        other = None if second is None else loaded(second)
        runtime = call.started(child, "none")
        return proving.prove(*models, sizes, runtime, call.recipe(), axis, other)
