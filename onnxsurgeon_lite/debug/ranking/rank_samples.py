"""Rank nodes over many samples: by the worst of any, with the median of all."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from statistics import median_low

from onnxsurgeon_lite.debug.computed_references import computed_references
from onnxsurgeon_lite.debug.ranking.rank import RankedNode, rank
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.matching.samples import Sample, SampleJob
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.runtime.choice import runtime_of


@dataclass(frozen=True, kw_only=True)
class RankSamples(SampleJob):
    """Rank the nodes on each sample.

    Attributes:
        other: the model whose values are the references.
    """

    other: Model | None = None

    def opened(self) -> "_Ranking":
        """Open what ranks."""
        return _Ranking(self)


class _Ranking:
    def __init__(self, job: RankSamples) -> None:
        self.job, self.index = job, GraphIndex.of(job.model)
        self._other = None if job.other is None else GraphIndex.of(job.other)
        self._stack = ExitStack()
        # one for the model, one for the model that computes the references
        self._runtimes = [self._stack.enter_context(runtime_of(job.options)) for _ in range(2)]

    def __call__(self, samples: Sequence[Sample]) -> Iterator[list[RankedNode]]:
        return map(self._ranked, samples)

    def _ranked(self, sample: Sample) -> list[RankedNode]:
        references, feeds = self.job.read(self.index, sample)
        ours, theirs = self._runtimes
        with ExitStack() as stack:
            if self._other is not None:
                references = stack.enter_context(computed_references(self._other, feeds, theirs))
            return rank(self.index, references, feeds, ours)

    def close(self) -> None:
        self._stack.close()


def over_samples(rankings: Iterable[list[RankedNode]]) -> list[RankedNode]:
    """Return each node with what it loses on the sample where it loses most."""
    # (node, value) -> its results on all samples
    found = defaultdict[tuple[str, str], list[RankedNode]](list)
    for ranking in rankings:
        for node in ranking:
            found[node.id, node.value].append(node)
    worst = [
        replace(
            min(nodes, key=lambda node: node.own_db),
            total_db=min(node.total_db for node in nodes),
            median_db=median_low(node.own_db for node in nodes),
            samples=len(nodes),
        )
        for nodes in found.values()
    ]
    return sorted(worst, key=lambda node: (node.own_db, node.total_db))
