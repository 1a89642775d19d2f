"""Run models and compare what they give: run, record, compare_sets. The runtime's process starts first."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, cast

from onnxsurgeon_lite.api.call import (
    Call,
    ComparingSamples,
    OptLevel,
    RecordingSamples,
    Running,
    RunOnFeeds,
    as_names,
    byte_size,
)
from onnxsurgeon_lite.api.page import Place
from onnxsurgeon_lite.api.spelling import spelled
from onnxsurgeon_lite.errors import RuntimeTimeout, SurgeonError, UsageError
from onnxsurgeon_lite.names import few, is_function, listed
from onnxsurgeon_lite.system import TemporaryFolder

if TYPE_CHECKING:
    from onnxsurgeon_lite.graph import GraphIndex
    from onnxsurgeon_lite.matching.decode import DecodeComparison, Decoder
    from onnxsurgeon_lite.matching.over_samples import CompareSamples, SampleComparison
    from onnxsurgeon_lite.matching.sets import SetComparison
    from onnxsurgeon_lite.matching.suite import SuiteResult
    from onnxsurgeon_lite.model import ModelLike
    from onnxsurgeon_lite.recording.from_model import Recording
    from onnxsurgeon_lite.runtime.child import Child
    from onnxsurgeon_lite.runtime.feeds import Feeds, SampleFeeds
    from onnxsurgeon_lite.runtime.run import RunResult
    from onnxsurgeon_lite.runtime.session import Runtime
    from onnxsurgeon_lite.tensors.comparison import Tolerance
    from onnxsurgeon_lite.tensors.dtypes import Array
    from onnxsurgeon_lite.tensors.references import ReferenceSet, Tensors

    Module = Callable[..., object] | tuple[object, ...]


@spelled
def run(
    model: "ModelLike",
    feeds: "Tensors | None" = None,
    fetch: "str | Sequence[str]" = (),
    opt: OptLevel = "all",
    **how: Unpack[RunOnFeeds],
) -> "RunResult":
    """Run a model in a process of its own.

    Args:
        fetch: Values to return instead of the outputs; also inside bodies (`@12/body/q`), and after `kernel:` of the
            graph that the runtime makes of the model.

    Returns:
        Name -> array; `print` shows shape, dtype and range of each.

    Raises:
        FeedsError: A feed of a wrong name, dtype or shape.
        UnknownNameError: A fetched value does not exist.
        RuntimeFailure: The runtime refuses the model, fails, dies or takes too long.

    Example:
        >>> outputs = osl.run("whole_model.onnx", seed=1)
        >>> outputs["31"].shape
        (1, 3, 20, 20)
    """
    with Call(opt=opt, **how) as call:
        child = call.child()
        from onnxsurgeon_lite.graph import BodyName
        from onnxsurgeon_lite.graph.selecting.select import select_values
        from onnxsurgeon_lite.runtime import run as running
        from onnxsurgeon_lite.runtime.optimized import kernel_values
        from onnxsurgeon_lite.runtime.run import computed_wider

        index = call.index(model)
        wanted, kernels = _wanted(index, as_names(fetch))
        # names, globs and selectors, inside bodies too
        selected = select_values(index, wanted, inner=True)
        call.notes += selected.notes
        given = call.feeds(index, feeds)
        runtime = call.started(child)
        try:
            names = selected.names
            values = running.run(index, given, runtime, names) if names or not kernels else {}
        # say which node does not end
        except RuntimeTimeout as error:
            raise _with_node(error, index, given, runtime, selected.names) from error
        call.notes += (
            f"{provider} ran {len(nodes)} of the nodes: {few(nodes)}"
            for provider, nodes in runtime.elsewhere.items()
        )
        call.notes += (
            f"{name!r} was not computed: its body did not run then"
            for name, value in values.items()
            if value is None and BodyName.of(name)
        )
        call.notes += computed_wider(index, given, runtime, values)
        call.notes += _unfused(index, runtime, selected.names)
        if kernels:
            values |= kernel_values(index, runtime, given, kernels)
        return call.done(running.RunResult(values, call.made))


def _wanted(index: "GraphIndex", fetch: "Sequence[str]") -> tuple[list[str], list[str]]:
    """Return selectors of the model's own values, and of those that are asked of the optimized graph."""
    from onnxsurgeon_lite.graph.selecting.select import split_names
    from onnxsurgeon_lite.runtime.optimized import KERNEL

    names = split_names(index, fetch)
    kernels = [name for name in names if name.startswith(KERNEL) and name not in index]
    own = [listed([name]) for name in names if name not in kernels]
    return own, [listed([name.removeprefix(KERNEL)]) for name in kernels]


def _unfused(index: "GraphIndex", runtime: "Runtime", names: "Sequence[str]") -> list[str]:
    """Say which fetched values the runtime does not compute where nobody fetches them."""
    from onnxsurgeon_lite.runtime.optimized import unfused

    inner = [name for name in names if name in index.producer and name not in index.outputs]
    unfusing = runtime.options.opt == "none" or not runtime.abilities.optimized_graph
    if not inner or unfusing:
        return []
    found = unfused(index, runtime, inner)
    return (
        [f"the optimizer spares {few(found)} unless fetched: last bits may differ"] if found else []
    )


def _with_node(
    error: RuntimeTimeout,
    index: "GraphIndex",
    feeds: "Feeds",
    runtime: "Runtime",
    names: "Sequence[str]",
) -> RuntimeTimeout:
    """Return the error with the node that does not end; a program may never answer, whatever the node."""
    from onnxsurgeon_lite.debug.bisection.crash import crash_of
    from onnxsurgeon_lite.debug.search_space import Space
    from onnxsurgeon_lite.runtime.options import ORT
    from onnxsurgeon_lite.tensors.references import ReferenceSet

    if runtime.options.runtime != ORT:
        return error
    runtime.options = replace(runtime.options, opt="none")
    # run on without optimization, in smaller and smaller parts
    wanted = [name for name in names or index.outputs if name in index.producer]
    targets = wanted or list(index.outputs)
    try:
        culprit, _ = crash_of(error, Space(index), feeds, runtime, targets, ReferenceSet("", {}))
    except RuntimeTimeout:
        return error
    node, because = f"{culprit.nodes[culprit.id]} ({culprit.id})", culprit.findings[0].because
    return RuntimeTimeout(f"{because}: it was in {node}", error.hint)


@spelled
def record(
    model: "ModelLike | Module",
    output: Place = None,
    feeds: "Tensors | Sequence[Tensors] | None" = None,
    value: "str | Sequence[str]" = (),
    inner: bool = False,
    float64: bool = False,
    scope: "Sequence[str]" = (),
    operators: bool = False,
    *,
    names_of: "ModelLike | None" = None,
    python: str = "",
    force: bool = True,
    memory: int | str = "64MB",
    args: "tuple[object, ...] | Sequence[tuple[object, ...]] | None" = None,
    kwargs: "Mapping[str, object] | None" = None,
    program: bool = True,
    **how: Unpack[RecordingSamples],
) -> "Recording":
    """Record reference tensors: the feeds and every value, as this runtime or PyTorch computes them.

    Args:
        model: An ONNX model; or a PyTorch module: `(module, args)`, a function that returns one, `FILE.py:function`.
        output: Where to store: a folder, `.npz` or `.safetensors`; of a PyTorch module a folder. Without it a folder
            that is gone when the result is.
        feeds: Input name -> array, or a path; made by default, for PyTorch the arguments given. Several samples of an
            ONNX model: a list, a folder, arrays of rows, `FILE.py:function` that yields them, `hf:NAME:SPLIT`.
        value: Values to record; all by default.
        inner: Record values inside branches, loops and functions as well.
        float64: Compute an ONNX model in float64, node by node.
        scope: PyTorch: only what lies in these modules, such as `layer.4.*`.
        operators: PyTorch: every operator's output, by `torch.export`.
        names_of: PyTorch: store inputs under this model's names.
        python: PyTorch: the interpreter whose torch records `FILE.py:function`; this one by default.
        args: PyTorch: the arguments of a module's `forward`; a list of tuples for several samples.
        kwargs: PyTorch: its arguments by name.
        program: PyTorch: store the module as ONNX too, if torch can trace it and its weights take 256 MB at most:
            `bisect` then knows what computes each reference.
        force: Write over what stands at `output`.
        memory: Bytes of values of an ONNX model that are computed at once, or `64MB`.

    Returns:
        How many values were stored, and where.

    Raises:
        UsageError: An option that means nothing for such a model; torch is not installed.
        ReferenceSetError: The format cannot hold a value, or the module cannot be recorded.
        RuntimeFailure: The runtime cannot run the model.

    Example:
        >>> print(osl.record("whole_model.onnx", "recorded", seed=1))
        recorded 12 values in 'recorded'
    """
    from onnxsurgeon_lite.model import require_replaceable

    is_torch = is_function(str(model)) if isinstance(model, str | PathLike) else _is_module(model)
    # without a place it is a folder that lives as long as the recording
    kept = TemporaryFolder() if output is None else None
    target = Path(output or "") if kept is None else Path(kept.name, "references")
    with Call(**how) as call:
        # a PyTorch module
        if is_torch:
            # options that would be ignored are refused
            useless = {"--value": value, "--float64": float64, "--fill": call.fill}
            _refuse("a PyTorch module", useless, "leave it out")
            require_replaceable(target, force)
            made = fspath(model) if isinstance(model, str | PathLike) else model
            if python:
                if not isinstance(made, str) or feeds is not None or args or kwargs:
                    raise UsageError(
                        "another interpreter records FILE.py:function, with the arguments that it returns",
                        "leave out --feeds",
                    )
                from onnxsurgeon_lite.recording.other_python import record_with

                done = record_with(
                    python, made, target, names_of, scope, operators, program, call.timeout
                )
                return replace(done, kept=kept)
            if args is not None or kwargs is not None:
                made = cast("Module", (made, args or (), kwargs or {}))
            given_to = cast("Tensors | None", feeds)
            recorder = torch_recorder()
            done = recorder(made, target, given_to, names_of, scope, operators, program=program)
            return replace(done, kept=kept)
        # an ONNX model
        torch_only: dict[str, object] = {"--scope": scope, "--operators": operators}
        torch_only |= {"--model": names_of, "--python": python, "args": args, "kwargs": kwargs}
        _refuse("an ONNX model", torch_only, "--value scope:layer.4.* chooses")
        child = call.child()
        from onnxsurgeon_lite.graph.selecting.select import select_values
        from onnxsurgeon_lite.recording import from_model
        from onnxsurgeon_lite.recording.from_model import Recording
        from onnxsurgeon_lite.surgery.exposing import exposable

        index = call.index(model)
        selected = select_values(index, as_names(value), inner=True)
        if inner:
            names, left = exposable(index)
            selected.names = list(dict.fromkeys(chain(selected.names or index.producer, names)))
            selected.notes += left
        call.notes += selected.notes
        runtime = call.started(child, "none")
        require_replaceable(target, force)
        # samples: a list, or a path that holds several
        several = None if feeds is None else call.sample_feeds(index, feeds, again=False)
        steps = call.carry(index)
        if several is not None and (steps or isinstance(feeds, list | tuple) or several.many):
            done = _recorded(call, several, runtime, target, selected.names, float64, memory)
            return call.done(replace(done, kept=kept))
        given = call.feeds(index, cast("Tensors | None", feeds))
        count = from_model.record(
            index, given, runtime, target, selected.names, call.progress, float64, byte_size(memory)
        )
        return call.done(Recording(count, target, kept=kept))


def _recorded(
    call: Call,
    feeds: "SampleFeeds",
    runtime: "Runtime",
    target: Path,
    names: "Sequence[str]",
    float64: bool,
    memory: int | str,
) -> "Recording":
    """Record several samples."""
    from onnxsurgeon_lite.matching.samples import RecordSamples, Sample, fitted, record_samples
    from onnxsurgeon_lite.recording.from_model import Recording

    index = feeds.graph
    samples = feeds.samples
    job = RecordSamples(
        model=index.model,
        options=runtime.options,
        references=None,
        feeds=samples,
        dims=call.dim or {},
        carry=call.carry(index),
        values=names,
        wide=float64,
        budget=byte_size(memory),
    )
    # the first sample says whether all its values fit into the budget, and can be computed together
    if not samples.flows:
        job = fitted(job, index, job.read(index, Sample(0))[1], runtime)
    return Recording(record_samples(job, call.pool(), target, call.progress), target)


def torch_recorder() -> "Callable[..., Recording]":
    """Return what records a PyTorch module.

    Raises:
        UsageError: torch is not installed.
    """
    try:
        from onnxsurgeon_lite.recording.from_torch import record_factory
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise UsageError("recording a PyTorch module needs torch", "pip install torch") from error
    return record_factory


def _is_module(model: object) -> bool:
    """Return whether it is a PyTorch module, what makes one, or one with its arguments."""
    from onnx import ModelProto

    from onnxsurgeon_lite.model.loading import held

    return not (held(model) or isinstance(model, ModelProto | bytes | bytearray | memoryview))


def _refuse(what: str, given: "Mapping[str, object]", hint: str) -> None:
    useless = [name for name, value in given.items() if value]
    if useless:
        raise UsageError(f"{', '.join(useless)} is not for {what}", hint)


@spelled
def compare_sets(
    actual: "ModelLike | Tensors",
    reference: "ModelLike | Tensors | Sequence[Tensors]",
    feeds: "Tensors | Sequence[Tensors] | None" = None,
    map: "str | PathLike[str] | None" = None,
    every: bool = False,
    html: Place = None,
    force: bool = False,
    opt: OptLevel = "all",
    *,
    decode: "Mapping[str, str] | None" = None,
    steps: int = 32,
    step_feeds: Place = None,
    **how: Unpack[ComparingSamples],
) -> "SetComparison | SampleComparison | DecodeComparison":
    """Compare two sets of tensors, or a model's outputs with a set: shape, dtype, then values.

    Args:
        actual: Tensors (a path, name -> array, a `ReferenceSet`, several samples), or a model to run.
        reference: The tensors to compare with, as many samples; of a model also another model.
        feeds: For a model: input name -> array, or a path; those of the references by default. Several samples: a
            list, a folder, arrays of rows, `FILE.py:function` that yields them, `hf:NAME:SPLIT`.
        every: For a model: compare every value that has a reference, computed with optimization off.
        decode: Of two language models, or one and its recording: decode greedily, and compare the tokens. Its
            logits -> its input of tokens; `sequence` says which outputs are the cache. The prompt is in `feeds`, or
            the first step of the recording.
        steps: How many tokens are decoded.
        step_feeds: Where to write what the model was fed at the first token that differs.
        html: Where to write the result as a page for a browser. force: Replace files that exist.

    Returns:
        A `Comparison` for each tensor that both have, and the names that only one has; of several samples the worst
        ones, and quantiles of each value.

    Raises:
        ReferenceSetError: A set cannot be read, or they have nothing in common.
        RuntimeFailure: The runtime refuses the model.

    Example:
        >>> osl.compare_sets("faulty_constant.onnx", "references/whole_model.npz").match
        False
        >>> osl.compare_sets({"y": np.ones(3)}, {"y": np.ones(3)}).match
        True
    """
    with Call(opt=opt, html=html, force=force, **how) as call:
        links = None if map is None else fspath(map)
        if decode:
            return _decoded(call, actual, reference, feeds, decode, steps, step_feeds)
        # a model is run; else both sides are tensors
        if is_model(actual):
            model = cast("ModelLike", actual)
            allowed = call.allowed()
            return _compared(call, model, reference, feeds, links, allowed, every)
        from onnxsurgeon_lite.matching import over_samples, sets
        from onnxsurgeon_lite.matching.values import set_alignment
        from onnxsurgeon_lite.tensors.comparison import require_used
        from onnxsurgeon_lite.tensors.references import Samples

        # tensors on both sides: one sample, or as many on each
        sides = Samples(cast("Tensors", actual)), Samples(cast("Tensors", reference))
        allowed, metric = call.allowed(), call.measure()
        if metric is not None or any(side.count != 1 for side in sides):
            found = over_samples.compare_sets_of_samples(*sides, links, allowed, metric)
            require_used(allowed, found.values)
            return call.done(found)
        tensors, stored = (side.first() for side in sides)
        # references under the names of the other side
        stored = set_alignment(stored, tensors, links)(stored, tensors)
        compared = sets.compare_sets(tensors, stored, allowed, call.see())
        require_used(allowed, compared.compared)
        return call.done(compared)


def _decoded(
    call: Call,
    actual: object,
    reference: object,
    feeds: "Tensors | Sequence[Tensors] | None",
    decode: "Mapping[str, str]",
    steps: int,
    step_feeds: Place,
) -> "DecodeComparison":
    """Let a model decode beside another one, or a recording."""
    child = call.child()
    from onnxsurgeon_lite.matching import decode as decoding
    from onnxsurgeon_lite.tensors.references import Samples, save_tensors

    given = None if feeds is None else Samples(cast("Tensors", feeds)).first()
    model = _decoder(call, actual, given, decode, child)
    if model is None:
        raise UsageError("a model is needed to decode", "give an .onnx file first")
    # a recording has its own prompt, as a model has none
    if other := _decoder(call, reference, given, decode):
        wanted = decoding.greedy(other, _prompt(call, model, given))
    else:
        stored = Samples(cast("Tensors", reference))
        wanted = decoding.recorded(stored, model.tokens, model.logits)
    result = decoding.decode(model, wanted, steps, call.progress)
    if step_feeds is not None and result.feeds:
        save_tensors(Path(step_feeds), result.feeds)
    return call.done(result)


def _decoder(
    call: Call,
    given: object,
    feeds: "ReferenceSet | None",
    decode: "Mapping[str, str]",
    child: "Child | None" = None,
) -> "Decoder | None":
    """Return what decodes with a model, or with those of a folder; None of tensors."""
    from onnxsurgeon_lite.matching.decode import Decoder, begin
    from onnxsurgeon_lite.matching.stages import STEP, Stage, read_stages

    stages = read_stages(Path(given)) if isinstance(given, str | PathLike) else []
    # tensors, then: a recording
    if not stages and not is_model(given):
        return None
    indexes = [call.index(stage.model) for stage in stages] or [call.index(given)]
    # one model is a folder's only one
    stages = stages or [Stage(Path(), STEP, {}, {})]
    known = {} if feeds is None else {name: feeds.read(name) for name in feeds}
    # each keeps its session open; the process that is starting is for the first
    first = iter([child])
    models, passed = begin(stages, indexes, known, lambda: call.started(next(first, None)))
    return Decoder.of(models, passed, decode, call.sequence or {})


def _prompt(call: Call, model: "Decoder", feeds: "ReferenceSet | None") -> "Array":
    """Return the tokens that a decoder is fed first."""
    import numpy as np

    from onnxsurgeon_lite.runtime.feeds import make_feeds

    # the stage before may pass it on, where both read an input of this name
    if model.tokens in model.passed:
        return model.passed[model.tokens]
    if feeds is not None:
        return np.asarray(feeds.read(model.tokens))
    made, _ = make_feeds(model.models[0].session.index, call.recipe())
    prompt = np.asarray(made[model.tokens])
    call.notes.append(f"made the prompt {prompt.tolist()}; the cache is empty")
    return prompt


def _compared(
    call: Call,
    model: "ModelLike",
    reference: "ModelLike | Tensors | Sequence[Tensors]",
    feeds: "Tensors | Sequence[Tensors] | None",
    links: str | None,
    allowed: "Tolerance | None",
    every: bool = False,
) -> "SetComparison | SampleComparison":
    """Run a model and compare its outputs with references, or with those of another model."""
    child = call.child()
    from onnxsurgeon_lite.matching import sets
    from onnxsurgeon_lite.matching.given import unlike_models
    from onnxsurgeon_lite.matching.judge import ValueRule
    from onnxsurgeon_lite.matching.over_samples import CompareSamples
    from onnxsurgeon_lite.matching.samples import Sample
    from onnxsurgeon_lite.matching.values import alignment, outputs_of_other
    from onnxsurgeon_lite.tensors.comparison import require_used

    index = call.index(model)
    runtime = call.started(child, "none" if every else None)
    other, named = None, dict[str, str]()
    # two models: both run on the same feeds
    if is_model(reference):
        theirs = call.index(reference)
        call.notes += unlike_models(index, theirs)
        other, named = theirs.model, outputs_of_other(index, theirs, links)
        if links is None and named:
            ours, others = few(list(named.values())), few(list(named))
            call.notes.append(
                f"the other model's outputs are compared in order: {others} as {ours}"
            )
        feeds = call.feeds(index, None) if feeds is None else feeds
    tensors = None if other is not None else cast("Tensors", reference)
    stored, given = call.sources(index, tensors, feeds)
    job = CompareSamples(
        model=index.model,
        options=runtime.options,
        references=stored,
        feeds=given,
        dims=call.dim or {},
        carry=call.carry(index),
        other=other,
        named=named,
        tolerance=allowed,
        every=every,
        metric=call.measure(),
    )
    # names are matched on the first sample, and confirmed on the second
    if stored is not None and not stored.flows and not job.carry:
        first = stored.at(0)
        fed = call.feeds_beside(index, first, None if given is None else given.first())
        names = alignment(first, index, fed, runtime, links)
        if job.has_second:
            second = partial(job.read, index, Sample(1))
            names = names.confirmed(fed, second, index, runtime, links, call.progress)
        job = replace(job, alignment=names)
        first = job.alignment.of(first, index)
        call.notes += first.notes
        if not job.several and job.metric is None:
            see = call.see(index)
            judged = index.producer if every else index.outputs
            rule = ValueRule.of(index, call.allowed_beside_noise(allowed, index, fed, judged))
            result = sets.compare_model(index, first, fed, runtime, rule, every, see)
            require_used(allowed, result.compared)
            _clear_ties(index, first, fed, runtime, result, allowed)
            call.notes += () if result.match else first.doubts
            return call.done(result)
    return call.done(_tallied(call, job, allowed))


def _clear_ties(
    index: "GraphIndex",
    reference: "ReferenceSet",
    feeds: "Feeds",
    runtime: "Runtime",
    found: "SetComparison",
    allowed: "Tolerance | None",
) -> None:
    """Let values match that differ only because near values change places in what they are computed from."""
    # only where TopK, ArgMax and the like lie before an output that mismatches: bisection says whether they are ties
    off = [name for name, each in found.compared.items() if not each.match]
    made = index.ancestors(name for name in off if name in index.producer)
    from onnxsurgeon_lite.debug.bisection.verdicts import TIES

    if not any(index.nodes[position].op_type in TIES for position in made):
        return
    from onnxsurgeon_lite.debug.bisection.bisect import Search, bisect

    try:
        result = bisect(index.model, reference, feeds, runtime, search=Search(allowed))
    except SurgeonError:
        return  # what cannot be searched is not cleared
    for finding in result.findings if result.verdict == "agrees" else ():
        for name in off if finding.verdict == "tie" else ():
            found.compared[name].clear(finding.because, found.compared[name].max_abs)


def _tallied(
    call: Call, job: "CompareSamples", allowed: "Tolerance | None"
) -> "SetComparison | SampleComparison":
    """Compare all samples."""
    from onnxsurgeon_lite.matching.over_samples import Tally
    from onnxsurgeon_lite.tensors.comparison import require_used

    pool = call.pool()
    tally = Tally(job.metric)
    tally.take(pool.run(job, job.items(pool.local), progress=call.progress))
    found = tally.result(pool.repeated)
    require_used(allowed, found.values)
    return found if job.several or job.metric is not None else found.worst_set()


@spelled
def test(
    config: Place = None,
    only: "str | Sequence[str]" = (),
    junit: Place = None,
    force: bool = True,
    **how: Unpack[Running],
) -> "SuiteResult":
    """Run the checks of a suite: each compares a model's outputs with references, within tolerances of its own.

    Args:
        config: A TOML file with `[[check]]` tables; paths in it are relative to its folder. By default the
            `onnxdbg.toml` of this folder, which may name nothing outside of it.
        only: Names or globs of the checks to run; all by default.
        junit: Write what was found as JUnit XML, too.
        force: Write over what stands at `junit`.

    Returns:
        What each check found. A model that cannot run, or a set that cannot be read, is an error of its check.

    Raises:
        UsageError: The file holds no checks, or one is not understood.

    Example:
        >>> osl.test("onnxdbg.toml", only="export").match
        True
    """
    import time

    from onnxsurgeon_lite.atomic import write_text
    from onnxsurgeon_lite.matching.suite import SuiteOutcome, SuiteResult, read_suite
    from onnxsurgeon_lite.model import require_replaceable
    from onnxsurgeon_lite.report.suite import junit_text

    if junit is not None:
        require_replaceable(Path(junit), force)
    result = SuiteResult()
    for check in read_suite(None if config is None else Path(config), as_names(only)):
        outcome = SuiteOutcome(check.name, check.model)
        start = time.perf_counter()
        try:
            with Call(opt=check.opt, **how) as call:
                call.progress(check.name)
                # each check is a call of its own: what one leaves behind does not touch the next
                found = _compared(
                    call,
                    check.model,
                    str(check.reference),
                    check.feeds and str(check.feeds),
                    check.map,
                    check.tolerance,
                )
                outcome.comparison = found.worst_set()
        except SurgeonError as error:
            outcome.error = error.message
        outcome.seconds = time.perf_counter() - start
        result.outcomes.append(outcome)
    if junit is not None:
        write_text(Path(junit), junit_text(result))
    return result


def is_model(given: object) -> bool:
    """Return whether it is a model and not tensors: the extension of a path says so."""
    from onnxsurgeon_lite.model.formats import text_format
    from onnxsurgeon_lite.tensors.references.foreign import is_polygraphy

    if isinstance(given, str | PathLike):
        path = Path(given)
        return path.suffix == ".onnx" or bool(text_format(path) and not is_polygraphy(path))
    return not isinstance(given, Mapping | list | tuple) and not hasattr(given, "entries")
