"""Bisect several samples: find the failing ones, explain the worst, compare their culprits."""

from collections.abc import Sequence
from dataclasses import replace

from onnxsurgeon_lite.debug.bisection.bisect import Search, bisect
from onnxsurgeon_lite.debug.bisection.healing_effect import output_error
from onnxsurgeon_lite.debug.bisection.judge import AgainstReferences, coarse_values
from onnxsurgeon_lite.debug.bisection.result import BisectResult, Samples
from onnxsurgeon_lite.debug.bisection.walk import Progress
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.run import run
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.tensors.references import ReferenceSet

_SEARCHED = 8  # failing samples to search for a culprit


def bisect_samples(
    model: Model,
    samples: Sequence[tuple[ReferenceSet, Feeds]],
    runtime: Runtime,
    optimized: Runtime | None = None,
    search: Search | None = None,
    progress: Progress = lambda _: None,
) -> BisectResult:
    """Run every sample, explain the worst, and find the culprit of other failing ones.

    See `bisect` for the arguments and errors; one sample is simply bisected.
    """
    if len(samples) == 1:
        return bisect(model, *samples[0], runtime, optimized, search, progress)
    search = search or Search()
    errors = []
    for number, (references, feeds) in enumerate(samples):
        progress(f"running sample {number + 1} of {len(samples)}")
        ways = [way for way in (runtime, optimized) if way is not None]
        errors.append(max(_error(model, references, feeds, way, search) for way in ways))
    failing = [i for i, error in enumerate(errors) if error > 0]
    worst = max(failing, key=errors.__getitem__, default=0)
    others = [sample for number, sample in enumerate(samples) if number != worst]
    result = bisect(model, *samples[worst], runtime, optimized, search, progress, others=others)
    summary = Samples(len(samples), failing, worst)
    quick = replace(search, quick=True, journal=None)
    for number in failing[:_SEARCHED]:
        if number != worst:
            other = bisect(model, *samples[number], runtime, None, quick, progress)
            summary.culprits[number] = [culprit.id for culprit in other.culprits]
    ours = {culprit.id for culprit in result.culprits}
    summary.same = all(ours.issuperset(ids) for ids in summary.culprits.values())
    result.samples = summary
    return result


def _error(
    model: Model, references: ReferenceSet, feeds: Feeds, runtime: Runtime, search: Search
) -> float:
    """Return the summed output error, 0 when the outputs agree."""
    index = GraphIndex.of(model)
    judge = AgainstReferences(references, search.tolerance, coarse_values(index))
    names = [name for name in index.outputs if judge.can_judge(name)]
    names = names or [name for name in index.producer if judge.can_judge(name)][-1:]
    found = run(index, feeds, runtime, names)
    compared = (judge.compared(name, value, references.read(name)) for name, value in found.items())
    return sum(output_error(c) for c in compared if c is not None and not c.match)
