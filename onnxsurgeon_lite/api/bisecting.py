"""The sides of a search: stored references, or another model or other settings; of one sample, or of many.

Everything that a search needs is imported here: who calls it starts the runtime's process first.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from onnxsurgeon_lite.api.asked import Searching, Writing
from onnxsurgeon_lite.api.call import Call
from onnxsurgeon_lite.api.page import Place
from onnxsurgeon_lite.api.run import torch_recorder
from onnxsurgeon_lite.api.traced import beside_program, program_of
from onnxsurgeon_lite.debug.bisection.bisect import Search, bisect
from onnxsurgeon_lite.debug.bisection.parts import agreeing_in_parts
from onnxsurgeon_lite.debug.bisection.reproducer import (
    Reproducer,
    finished,
    reproducing,
    strip_weights,
)
from onnxsurgeon_lite.debug.bisection.samples import agreeing, explain_samples, judged
from onnxsurgeon_lite.debug.causes.hypothesis import ONE_EXAMPLE
from onnxsurgeon_lite.debug.computed_references import ChangedInitializers, computed_references
from onnxsurgeon_lite.debug.result import BesideEager, BisectResult, Case, Culprit, Repair
from onnxsurgeon_lite.errors import FeedsError, ReferenceSetError, SurgeonError, UsageError
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.matching.given import unlike_models
from onnxsurgeon_lite.matching.judge import ValueRule
from onnxsurgeon_lite.matching.over_samples import CompareSamples
from onnxsurgeon_lite.matching.samples import RecordSamples, Sample, record_samples
from onnxsurgeon_lite.matching.sets import compare_sets
from onnxsurgeon_lite.matching.values import (
    Alignment,
    aligned_models,
    alignment,
    feeds_in_order,
)
from onnxsurgeon_lite.model import Model, ModelLike, require_replaceable
from onnxsurgeon_lite.runtime.choice import runtime_of
from onnxsurgeon_lite.runtime.feeds import Feeds, feeds_from
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.runtime.options import (
    TARGET,
    TORCH,
    RuntimeOptions,
    in_full_precision,
)
from onnxsurgeon_lite.runtime.run import run
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.system import TemporaryFolder
from onnxsurgeon_lite.tensors.dtypes import Stored, arrays_in, has_floats, is_array, present
from onnxsurgeon_lite.tensors.references import ReferenceSet, Samples, Tensors, open_references
from onnxsurgeon_lite.tensors.statistics import magnitude

Given = Tensors | Sequence[Tensors] | None
Opened = tuple[ReferenceSet, Feeds]
Right = Callable[[ExitStack], tuple[Feeds, ModelLike | Path | None]]
"""Returns fresh inputs, and what is right for them while the stack is open."""


def eager_beside(folder: Path) -> Path:
    """Return where the values of a module are before it is compiled, beside those after."""
    return folder.with_name("eager")


def judging(call: Call, index: GraphIndex, reference: Given, feeds: Given) -> CompareSamples:
    """Return where the samples are, and what says which of them fail; made feeds are one sample."""
    # feeds that are made are made once, so that all that follows sees the same
    if reference is None and feeds is None:
        feeds = call.feeds(index, None)
    stored, given = call.sources(index, reference, feeds, again=True)
    return CompareSamples(
        model=index.model,
        options=call.options("none"),
        references=stored,
        feeds=given,
        dims=call.dim or {},
        carry=call.carry(index),
        tolerance=call.allowed(),
        metric=call.measure(),
    )


def first_sample(call: Call, index: GraphIndex, job: CompareSamples) -> Opened:
    """Return references and feeds of the first sample, with what there is to say about them."""
    if job.carry:
        return job.read(index, Sample(0))
    stored = ReferenceSet("", {}) if job.references is None else job.references.first()
    if job.feeds is not None:
        return stored, call.feeds_beside(index, stored, job.feeds.first())
    # a recording says which tensors are inputs; in other sets names, or the order, tell
    recorded = any(entry.is_input for entry in stored.entries.values())
    return stored, _own_feeds(index, stored, feeds_in_order if recorded else feeds_from, call)


def _own_feeds(
    index: GraphIndex,
    stored: ReferenceSet,
    read: Callable[[GraphIndex, ReferenceSet, list[str]], Feeds],
    call: Call,
) -> Feeds:
    """Return the feeds that the references hold; those of another model are an error that says so."""
    try:
        given = read(index, stored, call.notes)
    except FeedsError as error:
        # the set has no inputs at all: the error is about feeds; else the references are another model's
        if not any(name in stored for name in index.inputs):
            raise
        raise ReferenceSetError(
            f"{stored.place!r} belongs to another model: {error.message}",
            "give the references of this model, or its inputs with --feeds",
        ) from error
    return call.sized(index, given)


@contextmanager
def other_side(
    index: GraphIndex, feeds: Feeds, how: RuntimeOptions, fused: bool = False
) -> Iterator[ReferenceSet]:
    """Return the references that a model gives under some settings; `fused` as of `computed_references`."""
    with ExitStack() as stack:
        runtime = stack.enter_context(runtime_of(replace(how, opt="none", lean=True)))
        optimized = None
        # values of the optimized graph are what the other side really computes
        if how.opt != "none" and runtime.abilities.optimized_graph:
            optimized = stack.enter_context(runtime_of(how))
        with computed_references(index, feeds, runtime, optimized, fused) as references:
            yield references


@dataclass
class Bisecting:
    """A search against references that are stored, or that another side computes.

    Attributes:
        other: the model that computes references where none are stored, and its options.
        program: the recorded module as a model, if it is stored beside the references and computes them.
        mapping: how names are matched.
        explained: the sample that was explained: its references, open until the call ends, and its feeds.
    """

    call: Call
    index: GraphIndex
    job: CompareSamples
    runtime: Runtime
    optimized: Runtime | None
    search: Search
    mapping: str | None
    other: tuple[GraphIndex, RuntimeOptions] | None = None
    explained: Opened = field(init=False)
    program: GraphIndex | None = None
    _alignment: Alignment | None = None

    def result(self) -> BisectResult:
        """Explain the only sample, or the worst one."""
        if self.other is not None:
            self.call.notes += unlike_models(self.index, self.other[0])
        result = self._result()
        if any("precision" in culprit.verdicts for culprit in result.culprits):
            self._in_full_precision(result.culprits[0])
        branches = any(node.op_type in ("If", "Loop") for node in self.index.nodes)
        if self.call.made and branches and result.verdict == "agrees":
            result.notes.append(
                "the feeds were made: branches and iterations that they do not take were not compared"
            )
        return result

    def _in_full_precision(self, culprit: Culprit) -> None:
        """Say what turns a lower precision off, where that is known, and whether the outputs agree then."""
        stored, given = self.explained
        # run both sides once more with the lower precision switched off, where a switch is known
        ours = (self.optimized or self.runtime).options
        sides = [ours] if self.other is None else [ours, self.other[1]]
        switched = [in_full_precision(side) for side in sides]
        made = list[dict[str, Stored]]()
        for side, full in zip(sides, switched, strict=True) if any(switched) else ():
            with runtime_of(full or side) as runtime:
                made.append(present(run(self.index, given, runtime)))
        says = "no switch is known here that turns it off"
        if made:
            right = ReferenceSet.of(made[-1]) if self.other else stored
            agree = compare_sets(made[0], right).match
            words = ", ".join("=".join(full.settings[-1]) for full in switched if full)
            says = f"with {words} the outputs {'agree' if agree else 'still differ'}"
        lower = culprit.findings[0]
        culprit.findings[0] = replace(lower, because=f"{lower.because}; {says}")

    def _result(self) -> BisectResult:
        if self.job.carry and self.other is not None:
            self.job = replace(self.job, feeds=self._steps(*self.other))
        first = first_sample(self.call, self.index, self.job)
        allowed = self.call.allowed_beside_noise(
            self.search.tolerance, self.index, first[1], self.index.producer
        )
        self.search = replace(self.search, tolerance=allowed)
        self.job = replace(self.job, tolerance=allowed)
        # 1. one sample: search it
        if not self.job.several and self.job.metric is None:
            self.explained = self.call.stack.enter_context(self._sides(*first))
            if self.call.cluster is None or self.other is not None:
                return self._searched([])
            return self._by_parts()

        if self.other is None:
            # entered once for the alignment that it makes
            with self._sides(*first):  # the names are matched once
                pass
            self._confirm_names(first[1])
        # 2. many: judge all, then explain the worst; its references stay open until the call ends
        outcomes, metric, repeated = judged(self._many(), self.call.pool(), self.call.progress)
        if metric is not None and all(outcome.match for outcome in outcomes):
            self.explained = first
            result = agreeing(len(outcomes))
        else:
            steps = bool(self.job.carry)
            result = explain_samples(outcomes, self._explain, self._quickly, steps)
            result.notes += self._of_metric(result)
        if result.samples is not None:
            result.samples.metric = metric
            result.samples.repeated = repeated
        return result

    def _confirm_names(self, first: Feeds) -> None:
        """Match the names at the second sample, too."""
        known = self._alignment
        if known is not None and self.job.has_second:
            self._alignment = known.confirmed(
                first,
                partial(self._sample, 1),
                self.index,
                self.runtime,
                self.mapping,
                self.call.progress,
            )

    def _by_parts(self) -> BisectResult:
        """Search the only sample; a cluster tells which parts of the model agree."""
        job = self._many()
        pool = self.call.pool()
        memory = self.search.memory
        alone = replace(self.search, resume=False)
        self.search = replace(
            self.search, agreeing=lambda: agreeing_in_parts(job, self.index, memory, pool)
        )
        result = self._bisect(self.explained, self.search)
        if result.verdict == "mismatch" and all(c.inherits for c in result.culprits):
            # what differs builds up from part to part
            self.search = alone
            result = self._bisect(self.explained, self.search)
        result.notes += pool.repeated
        return result

    def narrowed(self, result: BisectResult, factory: str) -> BisectResult:
        """Return a search beside the model of a PyTorch module if that says more, else the first one.

        A module that cannot be traced, or a search that fails, becomes a note: the result before it stays.

        Args:
            factory: `FILE.py:function`, which returns the module.
        """
        # a search beside the module must say more than this one
        known = _known(result)
        # a narrow region whose cause is known, or not asked for, needs no module
        if self.program is not None or known <= (not self.search.explain, _WIDE):
            return result
        try:
            with program_of(factory, self.index, self.explained[1]) as program:
                again = self._bisect(self._beside(program), self.search)
        except SurgeonError as error:
            result.notes.append(f"{factory!r} does not narrow the region: {error.message}")
            return result
        finally:
            # it is gone with its folder: the module itself proves repairs
            used, self.program = self.program, None
        if used is None or not again.culprits or _known(again) >= known:
            result.notes.append(f"{factory!r} does not narrow the region")
            return result
        again.notes.insert(0, f"traced {factory!r} to narrow the region")
        return again

    def share(self, result: BisectResult) -> None:
        """Share the error of the worst output among the nodes; note why where it has no shares."""
        from onnxsurgeon_lite.debug.ranking.blame import blame

        stored, given = self.explained
        try:
            result.blame = blame(self.index, stored, given, self.runtime, None, self.call.progress)
        except SurgeonError as error:
            result.notes.append(f"no shares of the error: {error.message}")

    def beside_eager(self, folder: Path) -> Iterator[tuple[str, BesideEager]]:
        """Yield how far the compiled module and the export are from the eager module, which is recorded in a folder."""
        compiled, given = self.explained
        how = self.runtime, self.mapping, self.call.progress
        eager = open_references(folder)
        eager = alignment(eager, self.index, given, *how).of(eager, self.index)
        rule = ValueRule.of(self.index, self.search.tolerance)
        export = run(self.index, given, self.optimized or self.runtime)
        for name in (n for n in self.index.outputs if n in eager and n in compiled):
            stored = eager.read(name)
            theirs, ours = (
                rule.each(name, value, stored) for value in (compiled.read(name), export[name])
            )
            parts = zip(theirs, arrays_in(stored), theirs.values(), ours.values(), strict=False)
            # one row for each tensor of an output that is a sequence
            yield from ((each, BesideEager(magnitude(array), *off)) for each, array, *off in parts)

    def _of_metric(self, result: BisectResult) -> Iterator[str]:
        """Say what the metric makes of the explained sample with each culprit healed: tolerances found the culprits."""
        metric, (stored, given) = self.job.metric, self.explained
        if metric is None:
            return
        if not result.culprits:
            yield "nodes are judged by tolerances, which all values keep: give smaller --rtol, --atol"
        wanted = [name for name in self.index.outputs if name in stored]
        for culprit in result.culprits:
            # run the model with this culprit alone healed, and ask the metric
            healed = [name for name in culprit.outputs if name in stored and name in self.index]
            observer = Observer(self.index, self.runtime)
            observer.feed(given)
            for name in healed:
                value = stored.read(name)
                observer.put(name, value)
            error = metric.of_sample({n: stored.read(n) for n in wanted}, observer.fetch(wanted))
            verdict = "more than" if error > metric.limit else "within"
            yield f"with {culprit.name or culprit.id} healed, {metric.name} is {error:.4g}: {verdict} {metric.limit:g}"

    def _steps(self, index: GraphIndex, options: RuntimeOptions) -> Samples:
        """Record the feeds of each step of the other side, with its own carried outputs."""
        folder = self.call.stack.enter_context(TemporaryFolder())
        job = RecordSamples(
            model=index.model,
            options=options,
            references=None,
            feeds=self.job.feeds,
            dims=self.job.dims,
            carry=self.job.carry,
            values=list(index.outputs),
            budget=0,
            together=True,
        )
        record_samples(job, self.call.pool(), Path(folder, "steps"), self.call.progress)
        return Samples(str(Path(folder, "steps")))

    def _many(self) -> CompareSamples:
        """Return the job that judges all samples."""
        second = None if self.optimized is None else self.optimized.options
        job = replace(self.job, options=self.runtime.options, second=second)
        if self.other is not None:
            index, options = self.other
            return replace(job, other=index.model, other_options=options)
        return replace(job, alignment=self._alignment) if self._alignment else job

    def _explain(self, number: int, others: Sequence[int]) -> BisectResult:
        self.explained = self.call.stack.enter_context(self._sides(*self._sample(number)))
        # further samples need stored references: another model would have to compute all of theirs
        beside = [] if self.other is not None else [self._aligned(n) for n in others]
        return self._searched(beside)

    def _searched(self, others: Sequence[Opened]) -> BisectResult:
        """Search the explained sample; for causes beside the recorded module's own model, if it is stored."""
        program = None if self.other else self.explained[0].program
        if program is not None and self.search.explain:
            soon = replace(self.search.inner, explain=None)
            result = self._bisect(self.explained, soon, others)
            if result.verdict != "mismatch":
                return result
            self.search.tell(result)
            self.explained = self._beside(program)
        return self._bisect(self.explained, self.search, others)

    def _quickly(self, number: int) -> BisectResult:
        quick = replace(self.search, quick=True, journal=None, explain=None)
        with self._sides(*self._sample(number)) as opened:
            return self._bisect(opened, quick)

    def _bisect(
        self, opened: Opened, search: Search, others: "Sequence[Opened]" = ()
    ) -> BisectResult:
        # a quick search of further samples leaves the optimized look out
        optimized = None if search is not self.search else self.optimized
        model = self.index.model
        theirs = self.program if self.other is None else self.other[0]
        changed = {} if theirs is None else ChangedInitializers(self.index, theirs)
        return bisect(
            model,
            *opened,
            self.runtime,
            optimized,
            search,
            self.call.progress,
            changed,
            others=others,
        )

    def _sample(self, number: int) -> Opened:
        return self.job.read(self.index, Sample(number))

    def _aligned(self, number: int) -> Opened:
        stored, given = self._sample(number)
        return self._alignment.of(stored, self.index) if self._alignment else stored, given

    def _beside(self, program: Path | None) -> Opened:
        """Return the explained sample with what the module's own model computes, where it returns the same."""
        named, given = self.explained
        both, self.program = beside_program(
            program, named, self.index, given, self.runtime, self.call
        )
        return both, given

    @contextmanager
    def _sides(self, stored: ReferenceSet, given: Feeds) -> Iterator[Opened]:
        """Yield the references of a sample under the model's names, and its feeds."""
        tell = self.call.progress
        if self.other is None:
            if self._alignment is None:
                self._alignment = alignment(
                    stored, self.index, given, self.runtime, self.mapping, tell
                )
            yield self._alignment.of(stored, self.index), given
            return
        other, theirs = self.other
        apart = theirs.runtime != self.runtime.options.runtime  # what one fuses the other may not
        with other_side(other, given, theirs, apart) as references:
            named = aligned_models(
                references, other, self.index, given, self.runtime, self.mapping, tell
            )
            yield named, given


_SMALLER = 0.5, 0.9  # times the floats of fresh inputs
_WIDE = 3  # nodes of a region that need no narrowing


def _known(result: BisectResult) -> tuple[bool, int]:
    """Return whether the first culprit lacks a cause, and the nodes of its region: less is better."""
    first = result.culprits[:1]
    return any(not culprit.causes for culprit in first), sum(len(c.region) for c in first)


def explained(case: Bisecting, factory: str | None, recorded: Path | None) -> BisectResult:
    """Return what a search found.

    Args:
        factory: of the PyTorch module whose operators may narrow a region.
        recorded: where the values of a module are that is compared with.
    """
    result = case.result()
    if recorded is not None and eager_beside(recorded).is_dir():
        result.beside_eager = dict(case.beside_eager(eager_beside(recorded)))
    if factory is not None and not case.job.several:
        result = case.narrowed(result, factory)
        result.has_factory = True
    return result


def require_places(model: Model, writing: Writing, searching: Searching) -> None:
    """Refuse to write over what is there."""
    journal = None if searching.resume else searching.journal
    for path in (writing.output, journal):
        if path is not None:
            require_replaceable(Path(path), writing.force)
    if writing.repair is not None:
        from onnxsurgeon_lite.debug.causes.repairing import require_elsewhere

        require_elsewhere(model, Path(writing.repair), writing.force)


def write_edits(
    model: Model,
    result: BisectResult,
    workaround: bool,
    writing: Writing,
    again: Callable[..., BisectResult],
    right: Right,
) -> None:
    """Find what avoids errors of the runtime; write the repaired model, searched again, and its recipe."""
    from onnxsurgeon_lite.debug.causes.repairing import repair_files, work_around

    if workaround:
        work_around(model, result, partial(again, cause=False))
    if writing.repair is not None:
        again = partial(again, workaround=workaround)
        made = repair_files(model, result, Path(writing.repair), again, writing.force)
        result.repair = made
        if made.model is not None and made.verdict == "agrees":
            _prove(made, result.culprits, right)


def _prove(made: Repair, culprits: Sequence[Culprit], right: Right) -> None:
    """Compare a repaired model with what is right on fresh inputs: an edit may fit the sample alone."""
    holds = _holds(made, right)
    causes = [(culprit, cause) for culprit in culprits for cause in culprit.causes[:1]]
    if holds is None and any(cause.of_one_example for _, cause in causes):
        made.verdict = "inconclusive"
        made.fresh += f"; numbers were solved for {ONE_EXAMPLE}: record several"
    if holds is not False:
        return
    made.verdict = "mismatch"
    for culprit, cause in causes:
        culprit.unexplained = f"not known: {cause.sentence}, but not on fresh inputs"
        culprit.causes = []


def _holds(made: Repair, right: Right) -> bool | None:
    """Return whether a repaired model is right on fresh inputs, and say so; None if that is not known."""
    from onnxsurgeon_lite.api.run import compare_sets as compared

    try:
        with ExitStack() as stack:
            fresh, known = right(stack)
            if known is None:
                made.fresh = "proved on the recorded samples alone, without --against or --factory"
                return None
            holds = compared(str(made.model), known, fresh).match
    except SurgeonError as error:
        made.fresh = f"proved on the recorded samples alone; on fresh inputs: {error.message}"
        return None
    made.fresh = "agrees on fresh inputs" if holds else "mismatch on fresh inputs: this is no cause"
    return holds


def right_for(
    index: GraphIndex,
    other: ModelLike | None,
    how: RuntimeOptions,
    factory: str | None,
    feeds: Feeds,
    stack: ExitStack,
) -> tuple[Feeds, ModelLike | Path | None]:
    """Return fresh inputs, and what is right for them: the other model, or the module's values; None if unknown.

    Fresh are the numbers of the sample in another order; floats are smaller, too, as no order changes the norm of an
    input. Shapes, signs, ranges and dtypes stay.

    Raises:
        FeedsError: no input changes so.
    """
    # `same` stays True if every order is the same, and nothing can be smaller: one integer
    rng = np.random.default_rng(0)
    fresh, same = {**feeds}, True
    for name, value in feeds.items():
        if is_array(value) and value.size:
            factor = rng.uniform(*_SMALLER) if has_floats(value) else 1
            made = rng.permutation(value.ravel()).reshape(value.shape) * factor
            fresh[name] = made = made.astype(value.dtype)
            same &= np.array_equal(made, value)
    if same:
        raise FeedsError(
            "no input has several different numbers", "give other samples with --feeds"
        )
    if other is not None:
        return fresh, other
    module = replace(how, runtime=TORCH, settings=((TARGET, factory),)) if factory else how
    return fresh, of_module(index, module, {**fresh}, stack)


@dataclass
class Reproduction:
    """Takes the steps behind a headline, and writes the reproducer: only a command that fails is announced.

    Attributes:
        seconds: for the search of causes.
        tell: called with what is certain before the causes are searched.
        late: the culprits are known only when the causes are. searched: all of them are known.
        certain: what Ctrl-C keeps.
    """

    model: Model
    output: Place
    runtime: Sequence[str]
    seconds: float | None
    tell: Callable[[BisectResult], None]
    late: bool = False
    searched: bool = False
    certain: BisectResult | None = None
    _told: list[str] = field(default_factory=list)
    _begun: tuple[BisectResult, Generator[None, None, Reproducer]] | None = None

    def soon(self, result: BisectResult) -> None:
        """Tell what is certain, once for the same culprits; Ctrl-C keeps it."""
        if not self.late:
            self._announce(result)

    def _announce(self, result: BisectResult) -> None:
        self.certain = result
        values = [culprit.value for culprit in result.culprits]
        if values != self._told:
            self._told = values
            self.tell(result)

    def beside_causes(self, result: BisectResult, case: Case) -> None:
        """Find causes while what shows the failure runs."""
        from onnxsurgeon_lite.debug.causes.finding import explain_causes

        if case.index.model is not self.model:  # but a body
            with suppress(KeyboardInterrupt):
                explain_causes(result, case, self.seconds)
            return

        # called before the causes are searched: announce, and start what takes time beside them
        def begin() -> None:
            self.searched = True
            if self.certain is None or self.certain is result:
                self._announce(result)
            if not (self.output is None or self.runtime or self.late):
                self._begun = result, self._writing(result)
                next(self._begun[1])

        explain_causes(result, case, self.seconds, begin)

    def found(self, case: Bisecting, factory: str | None, recorded: Path | None) -> BisectResult:
        """Return what a search found, or what was certain when Ctrl-C ended it."""
        whole = self.attempt("more about the cause", explained, case, factory, recorded)
        self.certain = whole or self.certain
        assert self.certain is not None
        if whole is None and not self.searched:
            self.certain.lost.insert(0, "other culprits")
        return self.certain

    def attempt(
        self, what: str, step: Callable[..., BisectResult | None], *given: object
    ) -> BisectResult | None:
        """Take a step; where something is certain, Ctrl-C ends only this step and those behind it."""
        if not (self.certain and self.certain.lost):
            try:
                return step(*given)
            except KeyboardInterrupt:
                if self.certain is None:
                    raise
        self.certain.lost.append(what)
        return None

    def complete(self, result: BisectResult) -> BisectResult:
        """Return a result that says what Ctrl-C left out."""
        if result.lost:
            result.notes.append(f"interrupted: not looked for: {', '.join(result.lost)}")
        return result

    def finish(self, result: BisectResult, strip: bool) -> None:
        """Say in the result where the reproducer is."""
        begun = self._begun
        self._begun = None
        writing = begun[1] if begun and begun[0] is result else self._writing(result)
        made = finished(writing)
        result.reproducer = made.folder
        result.reproduce = made.words
        if not made.words:
            result.notes.append("run alone, the culprit does not show the failure")
        if strip:
            result.notes.append(strip_weights(made, result))

    def _writing(self, result: BisectResult) -> Generator[None, None, Reproducer]:
        folder = Path(self.output or "")
        return reproducing(self.model, result, folder, runtime=self.runtime)


def of_module(
    index: GraphIndex,
    how: RuntimeOptions,
    feeds: Given,
    stack: ExitStack,
) -> Path | None:
    """Return where the values of the PyTorch module are that a runtime `torch` names, recorded on these feeds."""
    if how.runtime != TORCH:
        return None
    settings = dict(how.settings)
    unknown = settings.keys() - {TARGET, "compile"}
    if unknown or TARGET not in settings:
        raise UsageError(
            "runtime torch needs a module, and has the setting compile",
            "write runtime=torch:FILE.py:FUNCTION, or runtime=torch:FILE.py:FUNCTION,compile=inductor",
        )
    folder = Path(stack.enter_context(TemporaryFolder()), "refs")
    target = settings[TARGET]
    compiler = settings.get("compile", "")
    torch_recorder()(target, folder, feeds, index.model, compiler=compiler)
    if compiler:
        torch_recorder()(target, eager_beside(folder), folder, index.model)
    return folder
