"""Judge the parts of a model side by side, each computed from the references before it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onnxsurgeon_lite.debug.bisection.walk import Walk
from onnxsurgeon_lite.debug.judge import AgainstReferences
from onnxsurgeon_lite.debug.search_space import Space
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.matching.over_samples import CompareSamples
from onnxsurgeon_lite.matching.samples import Sample
from onnxsurgeon_lite.runtime.choice import runtime_of
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.runtime.pool import Pool

_FOR_EACH = 4  # parts for each runtime: one that is slow holds up little


@dataclass(frozen=True)
class JudgeParts:
    """Say which values of a part of a model agree, on one sample.

    Attributes:
        memory: bytes of values that one probe may compute at once.
    """

    samples: CompareSamples
    sample: Sample
    memory: int

    @property
    def key(self) -> str:
        """What tells it from other jobs."""
        return self.samples.key

    def opened(self) -> "_JudgingParts":
        """Open what judges."""
        return _JudgingParts(self)


class _JudgingParts:
    def __init__(self, job: JudgeParts) -> None:
        index = GraphIndex.of(job.samples.model)
        self._references, self._feeds = job.samples.read(index, job.sample)
        self._judge = AgainstReferences.of(index, job.samples.tolerance)
        self._judge.references = self._references
        self._space, self._memory = Space(index), job.memory
        self._runtime = runtime_of(job.samples.options)

    def __call__(self, parts: Sequence[range]) -> Iterator[list[str]]:
        return map(self._agreeing, parts)

    def close(self) -> None:
        """End the runtime's process."""
        with self._runtime:
            pass

    def _agreeing(self, part: range) -> list[str]:
        """Return the values of a part that agree, up to the first that does not."""
        space, judge = self._space, self._judge
        positions = dict.fromkeys(map(space.position, part))
        # what enters this part from other parts is replaced by its references
        before = [
            name
            for name in space.entering(list(positions))
            if name in space.number and judge.can_judge(name)
        ]
        observer = Observer(space.index, self._runtime)
        observer.feed(self._feeds)
        walk = Walk(space, observer, judge.only(space.names(part)), "unoptimized", self._memory)
        walk.replay({name: self._references.read(name) for name in before})
        # up to the first origins: below these, values must be searched in the usual way
        next(walk.every(lambda items: items), None)
        observer.forget()
        return [n for known in walk.journal.answers.values() for n, good in known.items() if good]


def agreeing_in_parts(job: CompareSamples, index: GraphIndex, memory: int, pool: Pool) -> set[str]:
    """Return the values of the only sample that agree, as those see who each judge a part of the model.

    Raises:
        FeedsError, ReferenceSetError: the sample cannot be read, or does not fit the model.
        RuntimeFailure: the runtime cannot run the model.
    """
    space, sample = Space(index), next(job.items(pool.local))
    references, _ = job.read(index, sample)
    known = references.entries
    sizes = [max(1, known[name].size) if name in known else 1 for name in space.values]
    parts = _alike(sizes, _FOR_EACH * pool.width())
    found = pool.run(JudgeParts(job, sample, memory), parts, most=1)
    return set[str]().union(*found)


def _alike(sizes: Sequence[int], count: int) -> list[range]:
    """Cut a sequence into at most some parts of about the same size in sum."""
    each, held, starts = sum(sizes) / count, 0, [0]
    for place, size in enumerate(sizes):
        # the sum so far reaches the next multiple of a part's share
        if held >= each * len(starts) and place > starts[-1]:
            starts.append(place)
        held += size
    return [range(*ends) for ends in zip(starts, starts[1:] + [len(sizes)], strict=True)]
