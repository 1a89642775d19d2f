"""Record many samples into one folder, in their order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.graph.half import coarse_values
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.matching.samples import Carried, OpenModel, Sample, SampleJob
from onnxsurgeon_lite.recording.from_model import (
    computed,
    computed_outputs,
    computed_wide,
    place_of,
)
from onnxsurgeon_lite.runtime.choice import runtime_of
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.pool import Pool
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.shown import Progress
from onnxsurgeon_lite.tensors.dtypes import Stored, arrays_in, present
from onnxsurgeon_lite.tensors.references import FolderWriter


@dataclass(frozen=True, kw_only=True)
class RecordSamples(SampleJob):
    """Compute the values of each sample.

    Attributes:
        values: those that are recorded, with those that are carried on; all by default. wide: in float64.
        budget: bytes of values that are computed at once. together: all values of a sample are less.
    """

    values: Sequence[str] = ()
    wide: bool = False
    budget: int
    together: bool = False

    def opened(self) -> "_Recording":
        """Open what computes."""
        return _Recording(self)


class _Recording:
    def __init__(self, job: RecordSamples) -> None:
        self.job, self.index = job, GraphIndex.of(job.model)
        self._runtime = runtime_of(job.options)
        self._carried = Carried(job.carry)
        self._session = OpenModel(
            self.index, self._runtime, list(job.values or self.index.producer)
        )

    def __call__(self, samples: Sequence[Sample]) -> Iterator[tuple[int, dict[str, Stored]]]:
        return map(self._recorded, samples)

    def _recorded(self, sample: Sample) -> tuple[int, dict[str, Stored]]:
        _, feeds = self.job.read(self.index, sample)
        made = self._computed(self._carried.into(feeds))
        self._carried.take(made)
        return sample.number, made

    def close(self) -> None:
        self._session.close()

    def _computed(self, feeds: Feeds) -> dict[str, Stored]:
        job = self.job
        if job.together:
            made = self._session.run(feeds)
            return {**feeds, **present(made)}
        given = self.index, feeds, self._runtime, job.values
        return dict(computed_wide(*given) if job.wide else computed(*given, budget=job.budget))


def record_samples(job: RecordSamples, pool: Pool, target: Path, progress: Progress) -> int:
    """Store the feeds and values of every sample in a folder; return how many.

    Raises:
        UsageError: the format holds one sample.
    """
    if target.suffix in (".npz", ".safetensors"):
        raise UsageError(
            f"{str(target)!r} holds one sample", f"name a folder: {str(target.with_suffix(''))!r}"
        )
    index, count = GraphIndex.of(job.model), 0
    coarse = coarse_values(index)
    with FolderWriter(target, computed_outputs(index)) as writer:
        for number, values in pool.run(job, job.items(pool.local), 1, progress):
            for name, value in values.items():
                writer.add(name, value, place_of(index, name, coarse), number)
                count += 1
    return count


def fitted(job: RecordSamples, index: GraphIndex, feeds: Feeds, runtime: Runtime) -> RecordSamples:
    """Return the job that computes a sample's values together, where those of this one fit into the budget."""
    inside = [name for name in job.values if name not in index]
    if job.wide or inside:
        return job
    size = 0
    for _, value in computed(index, feeds, runtime, job.values, budget=job.budget):
        size += sum(array.nbytes for array in arrays_in(value))
    return replace(job, together=size <= job.budget)
