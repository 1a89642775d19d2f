"""Bisect several samples: find the failing ones, explain the worst, group the others by their culprits."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from onnxsurgeon_lite.debug.result import BisectResult, CulpritGroup, SampleSummary
from onnxsurgeon_lite.errors import RuntimeFailure
from onnxsurgeon_lite.matching.over_samples import (
    CompareSamples,
    MeasuredMetric,
    SampleOutcome,
    Tally,
)
from onnxsurgeon_lite.runtime.pool import Pool
from onnxsurgeon_lite.search.grouping import groups
from onnxsurgeon_lite.shown import Progress

SEARCHED = 16  # failing samples that are searched for a culprit


def judged(
    job: CompareSamples, pool: Pool, progress: Progress
) -> tuple[list[SampleOutcome], MeasuredMetric | None, list[str]]:
    """Return (what each sample gave, what the metric says, what was done again)."""
    outcomes = list[SampleOutcome]()

    def passing() -> Iterator[SampleOutcome]:
        # keep the number, the error and the verdict of each sample, and let its tensors go
        for outcome in pool.run(job, job.items(pool.local), progress=progress):
            outcomes.append(replace(outcome, compared={}, values=None, found=None))
            yield outcome

    tally = Tally(job.metric)
    tally.take(passing())
    if len(tally.raised) == tally.total and not isinstance(tally.raised[0], RuntimeFailure):
        raise tally.raised[0]  # what a model does to its runtime is searched
    metric = tally.measured()
    if metric is not None and metric.whole and metric.value > metric.limit:
        outcomes = [replace(o, match=o.error <= 1) for o in outcomes]  # any may be to blame
    return outcomes, metric, pool.repeated


def agreeing(total: int) -> BisectResult:
    """Return the result for samples that all agree, by their metric."""
    return BisectResult("agrees", samples=SampleSummary(total, [], 0))


def explain_samples(
    outcomes: Sequence[SampleOutcome],
    explain: Callable[[int, Sequence[int]], BisectResult],
    search: Callable[[int], BisectResult],
    steps: bool,
) -> BisectResult:
    """Explain the worst sample, or the first step, and group the worst of the failing ones by their culprits.

    Args:
        outcomes: of all samples.
        explain: explains a sample; others are those on which a cause must hold, too.
        search: finds the culprits of a sample, quickly.
    """
    bad = [outcome for outcome in outcomes if not outcome.match]
    bad.sort(key=lambda o: o.number if steps else -o.error)  # earlier steps passed the error on
    # the worst sample is explained; its causes must hold on the next failing ones, then on those that agree
    failing = [outcome.number for outcome in bad]
    worst = failing[0] if failing else outcomes[0].number
    beside = failing[1:] + [o.number for o in outcomes if o.match and o.number != worst]
    result = explain(worst, beside[:SEARCHED])
    summary = result.samples = SampleSummary(len(outcomes), sorted(failing), worst, steps=steps)
    if steps and failing and result.verdict == "agrees":
        result.verdict = "inconclusive"
        result.notes.append(f"step {worst} differs only because of earlier steps")
    for number in [] if steps else failing[1:SEARCHED]:
        summary.culprits[number] = [culprit.id for culprit in search(number).culprits]
    # culprit ids -> the samples with exactly these
    ours = [culprit.id for culprit in result.culprits]
    summary.same = all(set(ours).issuperset(ids) for ids in summary.culprits.values())
    named = ({worst: ours} if failing else {}) | summary.culprits
    alike = groups((tuple(ids), number) for number, ids in named.items())
    found = [CulpritGroup(list(ids), sorted(numbers)) for ids, numbers in alike.items()]
    summary.groups = sorted(found, key=lambda group: -len(group.samples))
    return result
