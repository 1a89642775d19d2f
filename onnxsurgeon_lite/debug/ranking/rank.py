"""Rank nodes by the accuracy that they lose against references, on one sample or on many."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from statistics import median_low

from onnxsurgeon_lite.debug.bisection.quantized.isolated import FloatValues, Isolated
from onnxsurgeon_lite.debug.computed_references import computed_references
from onnxsurgeon_lite.errors import ReferenceSetError, RuntimeFailure
from onnxsurgeon_lite.graph import GraphIndex, Quantizers
from onnxsurgeon_lite.matching.samples import Sample, SampleJob
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.runtime.choice import runtime_of
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.search.grouping import groups
from onnxsurgeon_lite.shown import Progress, Shown, hidden, quiet
from onnxsurgeon_lite.tensors.comparison import compare
from onnxsurgeon_lite.tensors.dtypes import RunValue, is_array
from onnxsurgeon_lite.tensors.references import ReferenceSet

_PART = 64  # values that are computed at once


@dataclass(frozen=True)
class RankedNode:
    """The accuracy loss of one node, as signal-to-quantization-noise ratio (SQNR) in decibels.

    Attributes:
        value: the measured output.
        own_db: SQNR of its result from *reference* inputs: the node's own loss.
        total_db: SQNR of its result in the whole model.
        place: the module, class and source line of the node.
        median_db: of several samples the median of `own_db`, which is the worst, as `total_db` is.
        samples: how many.
    """

    id: str
    name: str
    op_type: str
    value: str
    own_db: float
    total_db: float
    place: str
    median_db: float | None = None
    samples: int = 1


@dataclass(frozen=True)
class Ranking(Shown):
    """Nodes by the accuracy they lose, the lossiest first.

    Attributes:
        exclude: the names of those below `below` decibels, for a quantizer's exclude list.
    """

    nodes: list[RankedNode]
    exclude: list[str]
    below: float = hidden(20.0)


def ranking(nodes: list[RankedNode], below: float) -> Ranking:
    """Return nodes with the names of those that lose too much."""
    lossy = [node.name or node.id for node in nodes if node.own_db < below]
    return Ranking(nodes, list(dict.fromkeys(lossy)), below)


def rank(
    index: GraphIndex,
    references: ReferenceSet,
    feeds: Feeds,
    runtime: Runtime,
    progress: Progress = quiet,
) -> list[RankedNode]:
    """Rank the nodes with a reference, largest loss first, each measured behind the quantizers of its result.

    Raises:
        ReferenceSetError: no value that the model computes has a reference.
    """
    values = FloatValues(index, Quantizers.of(index), references, feeds).behind_quantizers()
    places = measured(values)
    observer = Observer(index, runtime)
    observer.feed(feeds)
    made = observer.sweep(places, progress, values.hold)
    # once in the whole model, once each from references alone
    total = {name: sqnr(value, values.read(name)) for name, value in made}
    own = {n: sqnr(v, values.read(n)) for n, v in alone(values, observer, list(total), progress)}
    found = []
    for name, position in places.items():
        node = index.nodes[position]
        found.append(
            RankedNode(
                f"@{position}",
                node.name,
                node.op_type,
                values.known[name],
                own[name],
                total[name],
                str(index.origins[position]),
            )
        )
    return sorted(found, key=lambda node: (node.own_db, node.total_db))


def measured(values: FloatValues) -> dict[str, int]:
    """Return the values with a reference, each with the node that makes it.

    Raises:
        ReferenceSetError: there is none.
    """
    index, sources = values.index, values.quantizers.sources
    # the value behind a pair of quantizers belongs to the node before them
    makers = {name: index.producer.get(sources.get(name, name)) for name in values.known}
    places = {name: place for name, place in makers.items() if place is not None}
    if not places:
        raise ReferenceSetError(
            f"{values.references.place!r} has no value that the model computes",
            "record the values of the float model: onnxdbg record FLOAT_MODEL -o references",
        )
    return places


def alone(
    values: FloatValues, observer: Observer, names: Sequence[str], progress: Progress
) -> Iterator[tuple[str, RunValue]]:
    """Yield values that are computed from references alone; None where the references have another dtype."""
    for start in range(0, len(names), _PART):
        progress(f"{start} of {len(names)} nodes run alone")
        together = names[start : start + _PART]
        part = Isolated(values, observer, together)
        values.hold(part.inputs + list(together))
        try:
            yield from next(part.run(part.part())).items()
        except RuntimeFailure:
            # one that cannot run spoils the part: run each alone
            for name in together if len(together) > 1 else ():
                yield from alone(values, observer, [name], lambda _: None)
            yield from ((name, None) for name in together if len(together) == 1)


def sqnr(actual: RunValue, expected: RunValue) -> float:
    """Return the SQNR in decibels; -inf when the values cannot be compared."""
    if not is_array(actual) or not is_array(expected):
        return float("-inf")
    comparison = compare(actual, expected)
    if comparison.reason in ("shape", "dtype", "non-finite"):
        return float("-inf")
    return comparison.metric("sqnr")


@dataclass(frozen=True, kw_only=True)
class RankSamples(SampleJob):
    """Rank the nodes on each sample.

    Attributes:
        other: the model whose values are the references.
    """

    other: Model | None

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
    every = chain.from_iterable(rankings)
    found = groups(((node.id, node.value), node) for node in every)
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
