"""Compare a model's values with references, sample by sample; the worst first, and quantiles of each value."""

import heapq
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import inf

import numpy as np

from onnxsurgeon_lite.errors import FeedsError, ReferenceSetError, RuntimeFailure, SurgeonError
from onnxsurgeon_lite.graph.half import coarse_values
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.matching.judge import Metric, ValueRule, Values
from onnxsurgeon_lite.matching.samples import Carried, OpenModel, Sample, SampleJob, side_by_side
from onnxsurgeon_lite.matching.sets import SetComparison, compare_sets, compared, wanted
from onnxsurgeon_lite.matching.values import feeds_of_other, set_alignment
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.options import RuntimeOptions
from onnxsurgeon_lite.shown import Shown, hidden
from onnxsurgeon_lite.tensors.comparison import Comparison, Tolerance
from onnxsurgeon_lite.tensors.dtypes import is_array, present
from onnxsurgeon_lite.tensors.references import ReferenceSet, Samples

_WORST = 8  # samples that are shown
_QUANTILES = (0.5, 0.9, 0.99, 1.0)

_TOGETHER = 16  # samples that run together at most
_BYTES = 4 << 20  # of what they read and give

_Place = tuple[int, RuntimeOptions, tuple[str, ...]]  # a graph, how it runs, what is fetched

OF_A_SAMPLE = (RuntimeFailure, FeedsError, ReferenceSetError)
"""What may be wrong with one sample alone."""


@dataclass(frozen=True)
class SampleOutcome:
    """What one sample gave.

    Attributes:
        match: whether it agrees: each value within its tolerance, or the metric within its limit.
        error: how far it is off: the largest multiple of what an element is allowed, or what the metric says.
        failure: why it could not be compared; '' otherwise.
        found: the whole comparison; None where it is no longer needed.
    """

    number: int
    match: bool
    error: float
    compared: dict[str, Comparison] = field(default_factory=dict)
    failure: str = ""
    raised: SurgeonError | None = hidden(None)
    values: tuple[Values, Values] | None = hidden(None)
    found: SetComparison | None = hidden(None)


@dataclass(frozen=True)
class ValueQuantiles:
    """How far a value is off, over all samples.

    Attributes:
        samples: how many have a reference for it. failing: how many of them mismatch.
        median, q90, q99, largest: of the largest absolute error in a sample.
        exceeds: the largest multiple of what an element is allowed.
    """

    samples: int
    failing: int
    median: float
    q90: float
    q99: float
    largest: float
    exceeds: float


@dataclass(frozen=True)
class MeasuredMetric:
    """What a user's metric says.

    Attributes:
        value: the largest of any sample, or that of all together.
        whole: it is of all together.
    """

    name: str
    value: float
    limit: float
    whole: bool


@dataclass(frozen=True)
class SampleComparison(Shown):
    """The comparison of many samples, numbered from 0.

    Attributes:
        match: every sample agrees.
        failing: the numbers of those that do not, in their order; those that failed to run among them.
        values: quantiles of each value.
        worst: the worst samples, the worst first.
        metric: what decided instead of tolerances, if a metric was given.
        repeated: what was done again because a worker or a runtime was lost.

    Example:
        >>> images = np.random.default_rng(0).standard_normal((5, 3, 20, 20)).astype("float32")
        >>> osl.compare_sets("whole_model.onnx", "whole_model.onnx", {"input.1": images}).total
        5
    """

    total: int
    match: bool
    failing: list[int]
    values: dict[str, ValueQuantiles]
    worst: list[SampleOutcome]
    metric: MeasuredMetric | None
    repeated: list[str]

    def worst_set(self) -> SetComparison:
        """Return the comparison of the worst sample.

        Raises:
            SurgeonError: it could not be compared.
        """
        worst = self.worst[0]
        if worst.raised is not None:
            raise worst.raised
        return worst.found or SetComparison(worst.compared)


@dataclass(frozen=True, kw_only=True)
class CompareSamples(SampleJob):
    """Compare each sample.

    Attributes:
        other: the model whose values are the references. other_options: its runtime's, the same by default.
        named: value of the other model -> that of the model, where the names differ.
        second: another way to run the model; a sample is as bad as the worse of both.
        every: compare all values.
    """

    other: Model | None = None
    other_options: RuntimeOptions | None = None
    named: Mapping[str, str] = field(default_factory=dict)
    second: RuntimeOptions | None = None
    tolerance: Tolerance | None
    every: bool = False
    metric: Metric | None

    def opened(self) -> "SampleComparing":
        """Open what compares."""
        return SampleComparing(self)


class SampleComparing:
    """Compares samples in open sessions."""

    def __init__(self, job: CompareSamples) -> None:
        self.job, self.index = job, GraphIndex.of(job.model)
        self._other = None if job.other is None else GraphIndex.of(job.other)
        self._sessions = dict[_Place, OpenModel]()
        self._carried = dict[_Place, Carried]()
        self.rule = ValueRule.of(self.index, job.tolerance)
        self._together = 1

    def __call__(self, samples: Sequence[Sample]) -> Iterator[SampleOutcome]:
        left = list(samples)
        while left:
            part, left = left[: self._together], left[self._together :]
            yield from self._tried(part)

    def _tried(self, samples: list[Sample]) -> list[SampleOutcome]:
        """Compare samples together; where that fails, each alone."""
        try:
            return self._outcomes(samples)
        except OF_A_SAMPLE as error:
            if len(samples) > 1:
                return self._each(samples)
            number, why = samples[0].number, error.message
            return [SampleOutcome(number, False, inf, failure=why, raised=error)]

    def _each(self, samples: list[Sample]) -> list[SampleOutcome]:
        """Compare samples one by one."""
        return list(chain.from_iterable(self._tried([sample]) for sample in samples))

    def close(self) -> None:
        """End the runtimes' processes."""
        for session in self._sessions.values():
            session.close()

    def _outcomes(self, samples: list[Sample]) -> list[SampleOutcome]:
        read = [self.job.read(self.index, sample) for sample in samples]
        feeds = [given for _, given in read]
        references = [stored for stored, _ in read]
        if self._other is not None:
            references = self._computed(self._other, feeds)
        # samples that run together must fetch the same values
        fetch = wanted(self.index, references[0], self.job.every)
        if any(wanted(self.index, each, self.job.every) != fetch for each in references[1:]):
            return self._each(samples)
        # the model's own runtime, and a second one if it is to be compared as well
        ways = [way for way in (self.job.options, self.job.second) if way is not None]
        made = [self._run(self.index, feeds, fetch, way) for way in ways]
        # learned from this part for the next ones
        self._together = self._fitting(feeds, *made)
        return [
            # of each sample the worse way counts: a mismatch before a match, then the larger error
            max(
                (self._judged(sample, stored, given, values, fetch) for values in of_ways),
                key=lambda outcome: (not outcome.match, outcome.error),
            )
            for sample, stored, given, *of_ways in zip(
                samples, references, feeds, *made, strict=True
            )
        ]

    def _judged(
        self,
        sample: Sample,
        references: ReferenceSet,
        feeds: Feeds,
        values: Values,
        fetch: list[str],
    ) -> SampleOutcome:
        if not self.job.carry:  # else the state of this step is over
            # indices are judged by the values that they select, which are computed only when asked for
            self.rule.read = lambda name: self._run(self.index, [feeds], [name], self.job.options)[
                0
            ][name]
        found = compared(self.index, references, values.items(), fetch, self.rule)
        outcome = _outcome(sample.number, found)
        return _by_metric(outcome, self.job.metric, references, values, fetch)

    def _computed(self, other: GraphIndex, feeds: Sequence[Feeds]) -> list[ReferenceSet]:
        """Return what the other model gives: its outputs, or all values that this one has, too."""
        # without `every` the outputs are computed
        named = self.job.named
        both = [n for n in other.producer if named.get(n, n) in self.index.producer]
        fetch = both if self.job.every else []
        given = [feeds_of_other(other, each) for each in feeds]
        way, place = self.job.other_options or self.job.options, str(other.model.path or "")
        return [
            ReferenceSet.of(
                {named.get(name, name): value for name, value in present(values).items()},
                place or "the other model",
                coarse=coarse_values(other),
            )
            for values in self._run(other, given, fetch or list(other.outputs), way)
        ]

    def _run(
        self, index: GraphIndex, feeds: list[Feeds], fetch: Sequence[str], way: RuntimeOptions
    ) -> Sequence[Values]:
        # a session is bound to what it fetches; carried outputs are fetched with each
        place, carry = (id(index), way, tuple(fetch)), self.job.carry
        if place not in self._sessions:
            every = dict.fromkeys(chain(fetch, carry.values()))
            self._sessions[place] = OpenModel.of_many(index, way, list(every))
            self._carried[place] = Carried(carry)
        session, carried = self._sessions[place], self._carried[place]
        if not carry:
            return session.run_together(feeds)
        values = session.run(carried.into(feeds[0]))
        carried.take(values)
        # what was only fetched to be carried is no result
        return [{n: values[n] for n in values if n not in carry.values() or n in fetch}]

    def _fitting(self, *sets: Sequence[Mapping[str, object]]) -> int:
        """Return how many samples can run together that are as large as these are, by what they read and give."""
        # steps that depend on each other run one by one
        if self.job.carry or not all(each.takes_several for each in self._sessions.values()):
            return 1
        every = (value for each in sets for values in each for value in values.values())
        size = sum(value.nbytes for value in every if is_array(value))
        # as many as fit into the limit, by the mean size of a sample
        return max(1, min(_TOGETHER, _BYTES * len(sets[0]) // max(1, size)))


def _by_metric(
    outcome: SampleOutcome,
    metric: Metric | None,
    references: ReferenceSet,
    values: Values,
    names: Iterable[str],
) -> SampleOutcome:
    """Let a user's metric decide, where there is one; that of all samples decides later."""
    if metric is None:
        return outcome
    pair = {name: references.read(name) for name in names if name in references}, values
    # kept until the metric has seen all samples
    if metric.whole:
        return replace(outcome, match=True, values=pair)
    error = metric.of_sample(*pair)
    return replace(outcome, match=error <= metric.limit, error=error)


def _outcome(number: int, found: SetComparison) -> SampleOutcome:
    error = max((each.excess for each in found.compared.values()), default=0.0)
    return SampleOutcome(number, found.match, error, found.compared, found=found)


def compare_sets_of_samples(
    actual: Samples,
    reference: Samples,
    links: str | None = None,
    tolerance: Tolerance | None = None,
    metric: Metric | None = None,
) -> SampleComparison:
    """Compare two sets of several samples; names are matched once, by the first.

    Raises:
        ReferenceSetError: a set has more samples than the other, or there is nothing to compare.
    """

    # a generator: `Tally` keeps numbers only, so one sample is in memory at a time
    def outcomes() -> Iterator[SampleOutcome]:
        align = None
        for number, (ours, theirs) in enumerate(side_by_side([actual, reference])):
            align = align or set_alignment(theirs, ours, links)
            named = align(theirs, ours)
            try:
                found = compare_sets(ours, named, tolerance)
            except ReferenceSetError as error:
                yield SampleOutcome(number, False, inf, failure=error.message, raised=error)
                continue
            values = {name: ours.read(name) for name in ours} if metric is not None else {}
            yield _by_metric(_outcome(number, found), metric, named, values, values)

    tally = Tally(metric)
    tally.take(outcomes())
    return tally.result()


@dataclass
class Tally:
    """What is known of all samples while they pass by: a number for each value and sample, and the worst outcomes."""

    metric: Metric | None
    total: int = 0
    failing: list[int] = field(default_factory=list)
    raised: list[SurgeonError] = field(default_factory=list)
    _errors: "dict[str, array[float]]" = field(
        default_factory=lambda: defaultdict(lambda: array("d"))
    )
    _wrong: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _exceeds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _worst: list[tuple[bool, float, int, SampleOutcome]] = field(default_factory=list)
    _measured: float = 0.0

    def take(self, outcomes: Iterable[SampleOutcome]) -> None:
        """Count all; a metric of all samples sees them as they pass."""
        if self.metric is not None and self.metric.whole:
            # the metric pulls the samples through `_pairs`, which counts them on their way
            self._measured = self.metric.of_all(self._pairs(outcomes))
        for outcome in outcomes:  # or what the metric left
            self._add(outcome)

    def _pairs(self, outcomes: Iterable[SampleOutcome]) -> Iterator[tuple[Values, Values]]:
        for outcome in outcomes:
            if outcome.values is not None:
                yield outcome.values
            # without the arrays, which would fill the memory
            self._add(replace(outcome, values=None))

    def _add(self, outcome: SampleOutcome) -> None:
        self.total += 1
        if outcome.raised is not None:
            self.raised.append(outcome.raised)
        elif self.metric is not None and not self.metric.whole:
            self._measured = max(self._measured, outcome.error)
        if not outcome.match:
            self.failing.append(outcome.number)
        for name, comparison in outcome.compared.items():
            self._errors[name].append(comparison.max_abs)
            self._wrong[name] += not comparison.match
            self._exceeds[name] = max(self._exceeds[name], comparison.excess)
        # a heap whose smallest entry is the best of the worst; -number prefers earlier samples in ties
        rank = not outcome.match, outcome.error, -outcome.number, outcome
        (heapq.heappush if len(self._worst) < _WORST else heapq.heappushpop)(self._worst, rank)

    def result(self, repeated: Sequence[str] = ()) -> SampleComparison:
        """Return what was found.

        Raises:
            SurgeonError: no sample could be compared; that of the first.
        """
        if not self.total:
            raise ReferenceSetError("there are no samples")
        if len(self.raised) == self.total:
            raise self.raised[0]
        worst = [outcome for *_, outcome in sorted(self._worst, reverse=True)]
        values = {name: self._quantiles(name) for name in self._errors}
        measured = self.measured()
        match = not self.failing and (measured is None or measured.value <= measured.limit)
        return SampleComparison(
            self.total, match, self.failing, values, worst, measured, list(repeated)
        )

    def measured(self) -> MeasuredMetric | None:
        """Return what the metric says; None without one."""
        if self.metric is None:
            return None
        return MeasuredMetric(
            self.metric.name, self._measured, self.metric.limit, self.metric.whole
        )

    def _quantiles(self, name: str) -> ValueQuantiles:
        errors = np.frombuffer(self._errors[name])
        at = [float(q) for q in np.quantile(errors, _QUANTILES, method="lower")]
        wrong, exceeds = self._wrong[name], self._exceeds[name]
        return ValueQuantiles(len(errors), wrong, at[0], at[1], at[2], at[3], exceeds)
