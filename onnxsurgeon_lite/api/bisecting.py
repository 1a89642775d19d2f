"""The sides of a search: stored references, or another model or other settings; of one sample, or of many."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from onnxsurgeon_lite.api.call import Call
from onnxsurgeon_lite.errors import FeedsError, ReferenceSetError

if TYPE_CHECKING:
    from onnxsurgeon_lite.debug.bisection import BisectResult, JudgeSamples, Search
    from onnxsurgeon_lite.debug.result import BesideEager
    from onnxsurgeon_lite.graph.index import GraphIndex
    from onnxsurgeon_lite.matching.values import Alignment
    from onnxsurgeon_lite.runtime.feeds import Feeds
    from onnxsurgeon_lite.runtime.options import RuntimeOptions
    from onnxsurgeon_lite.runtime.session import Runtime
    from onnxsurgeon_lite.tensors.references import ReferenceSet, Samples, Tensors

    Given = Tensors | Sequence[Tensors] | None
    Opened = tuple[ReferenceSet, Feeds]


def eager_beside(folder: Path) -> Path:
    """Return where the values of a module are before it is compiled, beside those after."""
    return folder.with_name("eager")


def judging(call: Call, index: "GraphIndex", reference: "Given", feeds: "Given") -> "JudgeSamples":
    """Return where the samples are, and what says which of them fail; made feeds are one sample."""
    from onnxsurgeon_lite.debug.bisection import JudgeSamples

    if reference is None and feeds is None:
        feeds = call.feeds(index, None)
    stored, given = call.sources(index, reference, feeds, again=True)
    return JudgeSamples(
        model=index.model,
        options=call.options("none"),
        references=stored,
        feeds=given,
        dims=call.dim or {},
        carry=call.carry(index),
        tolerance=call.allowed(),
        metric=call.measure(),
    )


def first_sample(call: Call, index: "GraphIndex", job: "JudgeSamples") -> "Opened":
    """Return references and feeds of the first sample, with what there is to say about them."""
    from onnxsurgeon_lite.matching.samples import Sample
    from onnxsurgeon_lite.matching.values import feeds_in_order
    from onnxsurgeon_lite.runtime.feeds import feeds_from
    from onnxsurgeon_lite.tensors.references import ReferenceSet

    if job.carry:
        return job.read(index, Sample(0))
    stored = ReferenceSet("", {}) if job.references is None else job.references.first()
    if job.feeds is not None:
        return stored, call.feeds_beside(index, stored, job.feeds.first())
    recorded = any(entry.is_input for entry in stored.entries.values())
    return stored, _own_feeds(index, stored, feeds_in_order if recorded else feeds_from, call)


def _own_feeds(
    index: "GraphIndex",
    stored: "ReferenceSet",
    read: "Callable[[GraphIndex, ReferenceSet, list[str]], Feeds]",
    call: Call,
) -> "Feeds":
    """Return the feeds that the references hold; those of another model are an error that says so."""
    try:
        given = read(index, stored, call.notes)
    except FeedsError as error:
        if not any(name in stored for name in index.inputs):
            raise
        raise ReferenceSetError(
            f"{stored.place!r} belongs to another model: {error.message}",
            "give the references of this model, or its inputs with --feeds",
        ) from error
    return call.sized(index, given)


@contextmanager
def other_side(
    index: "GraphIndex", feeds: "Feeds", how: "RuntimeOptions", fused: bool = False
) -> "Iterator[ReferenceSet]":
    """Return the references that a model gives under some settings; `fused` as of `computed_references`."""
    from onnxsurgeon_lite.debug.computed_references import computed_references
    from onnxsurgeon_lite.runtime.choice import runtime_of

    with ExitStack() as stack:
        runtime = stack.enter_context(runtime_of(replace(how, opt="none", lean=True)))
        optimized = None
        if how.opt != "none" and runtime.abilities.optimized_graph:
            optimized = stack.enter_context(runtime_of(how))
        with computed_references(index, feeds, runtime, optimized, fused) as references:
            yield references


@dataclass
class Bisecting:
    """A search against references that are stored, or that another side computes.

    Attributes:
        other: the model that computes references where none are stored, and its options.
        mapping: how names are matched.
        explained: the sample that was explained: its references, open until the call ends, and its feeds.
    """

    call: Call
    index: "GraphIndex"
    job: "JudgeSamples"
    runtime: "Runtime"
    optimized: "Runtime | None"
    search: "Search"
    mapping: str | None
    other: "tuple[GraphIndex, RuntimeOptions] | None" = None
    explained: "Opened" = field(init=False)
    _alignment: "Alignment | None" = None

    def result(self) -> "BisectResult":
        """Explain the only sample, or the worst one."""
        from onnxsurgeon_lite.matching.given import unlike_models

        if self.other is not None:
            self.call.notes += unlike_models(self.index, self.other[0])
        result = self._result()
        branches = any(node.op_type in ("If", "Loop") for node in self.index.nodes)
        if self.call.made and branches and result.verdict == "agrees":
            result.notes.append(
                "the feeds were made: branches and iterations that they do not take were not compared"
            )
        return result

    def _result(self) -> "BisectResult":
        if self.job.carry and self.other is not None:
            self.job = replace(self.job, feeds=self._steps(*self.other))
        first = first_sample(self.call, self.index, self.job)
        if not self.job.several and self.job.metric is None:
            self.explained = self.call.stack.enter_context(self._sides(*first))
            if self.call.cluster is None or self.other is not None:
                return self._bisect(self.explained, self.search)
            return self._by_parts()
        from onnxsurgeon_lite.debug.bisection import agreeing, explain_samples, judged

        if self.other is None:
            with self._sides(*first):  # the names are matched once
                pass
        outcomes, metric, repeated = judged(self._many(), self.call.pool(), self.call.progress)
        if metric is not None and all(outcome.match for outcome in outcomes):
            self.explained = first
            result = agreeing(len(outcomes))
        else:
            steps = bool(self.job.carry)
            result = explain_samples(outcomes, self._explain, self._quickly, steps)
            result.notes += self._of_metric(result)
        if result.samples is not None:
            result.samples.metric, result.samples.repeated = metric, repeated
        return result

    def _by_parts(self) -> "BisectResult":
        """Search the only sample; a cluster tells which parts of the model agree."""
        from onnxsurgeon_lite.debug.bisection import agreeing_in_parts

        job, pool, memory = self._many(), self.call.pool(), self.search.memory
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

    def beside_eager(self, folder: Path) -> "Iterator[tuple[str, BesideEager]]":
        """Yield how far the compiled module and the export are from the eager module, which is recorded in a folder."""
        from onnxsurgeon_lite.debug.result import BesideEager
        from onnxsurgeon_lite.matching.sets import compare_value
        from onnxsurgeon_lite.matching.values import aligned
        from onnxsurgeon_lite.runtime.run import run
        from onnxsurgeon_lite.tensors.dtypes import arrays_in
        from onnxsurgeon_lite.tensors.references import open_references
        from onnxsurgeon_lite.tensors.statistics import magnitude

        compiled, given = self.explained
        how = self.runtime, self.mapping, self.call.progress
        eager = aligned(open_references(folder), self.index, given, *how)
        export = run(self.index, given, self.optimized or self.runtime)
        for name in (n for n in self.index.outputs if n in eager and n in compiled):
            stored = eager.read(name)
            theirs, ours = (
                compare_value(name, value, stored, self.search.tolerance)
                for value in (compiled.read(name), export[name])
            )
            parts = zip(theirs, arrays_in(stored), theirs.values(), ours.values(), strict=False)
            yield from ((each, BesideEager(magnitude(array), *off)) for each, array, *off in parts)

    def _of_metric(self, result: "BisectResult") -> "Iterator[str]":
        """Say what the metric makes of the explained sample with each culprit healed: tolerances found the culprits."""
        from onnxsurgeon_lite.runtime.observe import Observer
        from onnxsurgeon_lite.tensors.dtypes import type_of

        metric, (stored, given) = self.job.metric, self.explained
        if metric is None:
            return
        if not result.culprits:
            yield "nodes are judged by tolerances, which all values keep: give smaller --rtol, --atol"
        wanted = [name for name in self.index.outputs if name in stored]
        for culprit in result.culprits:
            healed = [name for name in culprit.outputs if name in stored and name in self.index]
            observer = Observer(self.index, self.runtime)
            observer.feed(given)
            for name in healed:
                value = stored.read(name)
                observer.put(name, value, type_of(value))
            error = metric.of_sample({n: stored.read(n) for n in wanted}, observer.fetch(wanted))
            verdict = "more than" if error > metric.limit else "within"
            yield f"with {culprit.name or culprit.id} healed, {metric.name} is {error:.4g}: {verdict} {metric.limit:g}"

    def _steps(self, index: "GraphIndex", options: "RuntimeOptions") -> "Samples":
        """Record the feeds of each step of the other side, with its own carried outputs."""
        from onnxsurgeon_lite.matching.record_samples import RecordSamples, record_samples
        from onnxsurgeon_lite.tensors.references import Samples

        folder = self.call.stack.enter_context(TemporaryDirectory(prefix="onnxdbg-"))
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

    def _many(self) -> "JudgeSamples":
        """Return the job that judges all samples."""
        second = None if self.optimized is None else self.optimized.options
        job = replace(self.job, options=self.runtime.options, second=second)
        if self.other is not None:
            index, options = self.other
            return replace(job, other=index.model, other_options=options)
        return replace(job, alignment=self._alignment) if self._alignment else job

    def _explain(self, number: int, others: Sequence[int]) -> "BisectResult":
        self.explained = self.call.stack.enter_context(self._sides(*self._sample(number)))
        beside = [] if self.other is not None else [self._aligned(n) for n in others]
        return self._bisect(self.explained, self.search, beside)

    def _quickly(self, number: int) -> "BisectResult":
        quick = replace(self.search, quick=True, journal=None, explain=None)
        with self._sides(*self._sample(number)) as opened:
            return self._bisect(opened, quick)

    def _bisect(
        self, opened: "Opened", search: "Search", others: "Sequence[Opened]" = ()
    ) -> "BisectResult":
        from onnxsurgeon_lite.debug import bisection

        optimized = None if search is not self.search else self.optimized
        model, tell = self.index.model, self.call.progress
        if self.other is None:
            return bisection.bisect(
                model, *opened, self.runtime, optimized, search, tell, others=others
            )
        changed = bisection.ChangedInitializers(self.index, self.other[0])
        return bisection.bisect(model, *opened, self.runtime, optimized, search, tell, changed)

    def _sample(self, number: int) -> "Opened":
        from onnxsurgeon_lite.matching.samples import Sample

        return self.job.read(self.index, Sample(number))

    def _aligned(self, number: int) -> "Opened":
        stored, given = self._sample(number)
        return self._alignment.of(stored, self.index) if self._alignment else stored, given

    @contextmanager
    def _sides(self, stored: "ReferenceSet", given: "Feeds") -> "Iterator[Opened]":
        """Yield the references of a sample under the model's names, and its feeds."""
        from onnxsurgeon_lite.matching.values import aligned_models, alignment

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
