"""Several samples: which fail, which is worst, and whether they fail at the same node."""

from collections.abc import Sequence
from dataclasses import replace

from onnxsurgeon_lite.debug.bisection.bisect import Search, bisect
from onnxsurgeon_lite.debug.bisection.effect import output_error
from onnxsurgeon_lite.debug.bisection.judge import AgainstReferences
from onnxsurgeon_lite.debug.bisection.result import BisectResult, Samples
from onnxsurgeon_lite.debug.bisection.walk import Progress
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.run import run
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.tensors.references import ReferenceSet

_SEARCHED = 8  # failing samples whose culprit is looked for


def bisect_samples(
    model: Model,
    samples: Sequence[tuple[ReferenceSet, Feeds]],
    runtime: Runtime,
    optimized: Runtime | None = None,
    search: Search | None = None,
    progress: Progress = lambda _: None,
) -> BisectResult:
    """Judge every sample, explain the worst, and find the culprit of others that fail.

    See `bisect`, which is all there is to it for one sample, for the arguments and errors.
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
    result = bisect(model, *samples[worst], runtime, optimized, search, progress)
    told = Samples(len(samples), failing, worst)
    quick = replace(search, quick=True, journal=None)
    for number in failing[:_SEARCHED]:
        if number != worst:
            other = bisect(model, *samples[number], runtime, None, quick, progress)
            told.culprits[number] = [culprit.id for culprit in other.culprits]
    ours = {culprit.id for culprit in result.culprits}
    told.same = all(ours.issuperset(ids) for ids in told.culprits.values())
    result.samples = told
    return result


def _error(
    model: Model, references: ReferenceSet, feeds: Feeds, runtime: Runtime, search: Search
) -> float:
    """How far the outputs are off, 0 where they agree."""
    index = GraphIndex.of(model)
    judge = AgainstReferences(references, search.tolerance)
    names = [name for name in index.outputs if judge.tells(name)]
    names = names or [name for name in index.producer if judge.tells(name)][-1:]
    found = run(index, feeds, runtime, names)
    compared = (judge.compared(value, references.read(name)) for name, value in found.items())
    return sum(output_error(c) for c in compared if c is not None and not c.match)
