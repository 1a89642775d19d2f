"""Shared by work on many samples: where each sample comes from, and runtimes that are opened again after a crash."""

import re
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path

import numpy as np
from onnx import TensorProto

from onnxsurgeon_lite.errors import (
    ReferenceSetError,
    RuntimeCrash,
    RuntimeLost,
    RuntimeTimeout,
    UnknownNameError,
    UsageError,
    require_known,
)
from onnxsurgeon_lite.graph.half import coarse_values
from onnxsurgeon_lite.graph.index import GraphIndex, known_size
from onnxsurgeon_lite.matching.given import require_same_inputs
from onnxsurgeon_lite.matching.values import Alignment, feeds_in_order
from onnxsurgeon_lite.model import Model, embedded_size
from onnxsurgeon_lite.recording.from_model import (
    computed,
    computed_outputs,
    computed_wide,
    place_of,
)
from onnxsurgeon_lite.runtime.choice import runtime_of
from onnxsurgeon_lite.runtime.feeds import Feeds, feeds_from, sizes_of
from onnxsurgeon_lite.runtime.options import RuntimeOptions, words_of
from onnxsurgeon_lite.runtime.pool import Pool
from onnxsurgeon_lite.runtime.run import Opened, opened
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.shown import Progress
from onnxsurgeon_lite.tensors.dtypes import (
    Array,
    RunValue,
    RunValues,
    Stored,
    arrays_in,
    numpy_dtype,
    present,
)
from onnxsurgeon_lite.tensors.references import FolderWriter, ReferenceSet, Samples

_PREPARED = 4 << 30  # bytes of weights, at most, that a session keeps as its kernels read them, too


@dataclass(frozen=True)
class Sample:
    """A sample's number; its references and feeds where another process cannot open them."""

    number: int
    references: ReferenceSet | None = None
    feeds: ReferenceSet | None = None


@dataclass(frozen=True, kw_only=True)
class SampleJob:
    """Work on samples: the model's structure, and where the samples are.

    Attributes:
        references: None where another model computes them, or none are needed.
        feeds: None where the references hold them.
        dims: sizes that symbolic dimensions must have.
        carry: the samples are steps: input -> the output of the step before that it gets.
    """

    model: Model
    options: RuntimeOptions
    references: Samples | None
    feeds: Samples | None
    dims: Mapping[str, int] = field(default_factory=dict)
    alignment: Alignment = Alignment()
    carry: Mapping[str, str] = field(default_factory=dict)
    key: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def several(self) -> bool:
        """Whether there may be more than one sample."""
        return any(source.count != 1 for source in self._sources)

    @property
    def has_second(self) -> bool:
        """Whether the references are known to have a second sample."""
        return self.references is not None and (self.references.count or 1) > 1

    @property
    def _sources(self) -> list[Samples]:
        return [source for source in (self.references, self.feeds) if source is not None]

    def items(self, local: bool = True) -> Iterator[Sample]:
        """Yield all samples; with what they hold, where a worker cannot open it.

        Args:
            local: the workers are threads of this process.

        Raises:
            ReferenceSetError: there are more samples of the one than of the other.
        """
        sources = self._sources
        # all counts are known, and workers can open the sources: the numbers of the samples are enough
        counts = {source.count for source in sources}
        if None not in counts and (local or all(source.travels for source in sources)):
            _require_even(sources)
            yield from map(Sample, range(counts.pop() or 0))
            return
        for number, sets in enumerate(side_by_side(sources)):
            # by identity: references and feeds may be one source
            loaded = {id(source): _loaded(each) for source, each in zip(sources, sets, strict=True)}
            mine = (loaded.get(id(source)) for source in (self.references, self.feeds))
            yield Sample(number, *mine)

    def read(self, index: GraphIndex, sample: Sample) -> tuple[ReferenceSet, Feeds]:
        """Return the references of a sample, which may be none, and its feeds.

        Raises:
            FeedsError, ReferenceSetError: they cannot be read, or do not fit the model.
        """
        stored = sample.references or _at(self.references, sample)
        fed = sample.feeds or _at(self.feeds, sample)
        if self.carry:
            stored, fed = (_begun(index, each, self.carry, self.dims) for each in (stored, fed))
        # without feeds of their own, the references hold them
        feeds: Feeds = feeds_in_order(index, stored) if stored and fed is None else {}
        if fed is not None:
            feeds = feeds_from(index, fed)
        if stored is not None and fed is not None:
            require_same_inputs(index, stored, feeds, self.carry)
        if self.dims:
            sizes_of(index, feeds, self.dims)
        return self.alignment.of(stored or ReferenceSet("no references", {}), index), feeds


def _begun(
    index: GraphIndex, given: ReferenceSet | None, carry: Mapping[str, str], dims: Mapping[str, int]
) -> ReferenceSet | None:
    """Return a step's set with an empty array for each input that it gets from the step before."""
    # only the first step lacks what it gets from another one
    lacking = [name for name in carry if given is not None and name not in given]
    if given is None or not lacking:
        return given
    there = {n: given.read(n) for n in index.inputs if n in given}
    sizes = {**sizes_of(index, there, dims), **dims}
    made = {name: empty(index, name, sizes) for name in lacking}
    return replace(
        given, entries={**given.entries, **ReferenceSet.of(made, inputs=lacking).entries}
    )


def empty(index: GraphIndex, name: str, sizes: Mapping[str, int]) -> Array:
    """Return zeros for an input, without elements where nothing says the size of a dimension."""
    kind = index.inputs[name].type.tensor_type
    shape = [known_size(d) or sizes.get(d.dim_param, 0) for d in kind.shape.dim]
    return np.zeros(shape, numpy_dtype(kind.elem_type))


@dataclass
class Carried:
    """What steps pass to the next one: outputs that become inputs."""

    carry: Mapping[str, str]
    _held: Feeds = field(default_factory=dict)

    def into(self, feeds: Feeds) -> Feeds:
        """Return the feeds of a step, with the carried outputs of the step before."""
        return {**feeds, **self._held}

    def take(self, values: RunValues) -> None:
        """Keep what the next step gets."""
        made = {name: values[output] for name, output in self.carry.items()}
        self._held = present(made)


def carried_by(
    inputs: Collection[str], outputs: Collection[str], sequence: Mapping[str, str]
) -> dict[str, str]:
    """Return input -> output of a sequence, written output -> input; a `*` of both stands for the same text.

    Raises:
        UnknownNameError: there is no such output or input.
    """
    found = {}
    for output, name in sequence.items():
        # the text that `*` stands for, in the output and in the input
        pattern = re.compile("(.*)".join(map(re.escape, output.split("*", 1))))
        matches = [match for each in outputs if (match := pattern.fullmatch(each))]
        if not matches:
            raise UnknownNameError(output, "the model", outputs, kind="output")
        for match in matches:
            own = name.replace("*", match[1], 1) if "*" in output else name
            require_known([own], inputs, "the model", "input")
            found[own] = match[0]
    return found


def _at(samples: Samples | None, sample: Sample) -> ReferenceSet | None:
    return None if samples is None else samples.at(sample.number)


def side_by_side(sources: Sequence[Samples]) -> Iterator[list[ReferenceSet]]:
    """Yield the sets of each sample, one of each source.

    Raises:
        ReferenceSetError: a source has more samples than another one.
    """
    _require_even(sources)
    for sets in zip_longest(*sources):
        if None in sets:
            raise _uneven(sources)
        yield list(sets)


def _require_even(sources: Sequence[Samples]) -> None:
    if len({source.count for source in sources if source.count is not None}) > 1:
        raise _uneven(sources)


def _loaded(stored: ReferenceSet | None) -> ReferenceSet | None:
    """Return a set in memory, which can be sent."""
    if stored is None:
        return None
    inputs = [name for name, entry in stored.entries.items() if entry.is_input]
    return ReferenceSet.of({name: stored.read(name) for name in stored}, stored.place, inputs)


def _uneven(sources: Sequence[Samples]) -> ReferenceSetError:
    ones = " and ".join(f"{source.place!r} ({source.count or 'some'})" for source in sources)
    return ReferenceSetError(
        f"the numbers of samples differ: {ones}", "give the same samples on both sides"
    )


@dataclass
class OpenModel:
    """A model open in a runtime; after a crash it is opened again."""

    index: GraphIndex
    runtime: Runtime
    fetch: list[str]
    _run: Opened | None = None

    @property
    def takes_several(self) -> bool:
        """Whether several samples can be run in one request: tensors, in onnxruntime, without a time limit."""
        # kinds that cannot be stacked to one request
        kinds = [declared.type.tensor_type.elem_type for declared in self.index.inputs.values()]
        odd = {TensorProto.UNDEFINED, TensorProto.STRING}.intersection(kinds)
        options = self.runtime.options
        return not (odd or words_of(options) or options.otherwise or options.timeout)

    def run_together(self, samples: Sequence[Feeds]) -> list[dict[str, RunValue]]:
        """Return the values that are fetched of each of several samples.

        Raises:
            RuntimeFailure: one of them failed, if only because of the others.
        """
        if len(samples) == 1:
            return [self.run(samples[0])]
        try:
            return self._opened().each(samples)
        except RuntimeCrash:
            self._reopen()
            raise

    def run(self, feeds: Feeds) -> dict[str, RunValue]:
        """Return the values that are fetched.

        Raises:
            RuntimeFailure: it failed, and if the process died, once more in another one.
        """
        # once more in a fresh process after a crash; a timeout would only happen again
        try:
            return self._opened()(feeds)
        except RuntimeCrash:
            self._reopen()
        except RuntimeTimeout:
            self._reopen()
            raise
        try:
            return self._opened()(feeds)
        except RuntimeLost:
            self._reopen()
            raise

    @classmethod
    def of_many(cls, index: GraphIndex, options: RuntimeOptions, fetch: list[str]) -> "OpenModel":
        """Return a session for many runs: what it prepares once, each of them saves."""
        # prepacked weights take memory twice, so only those of limited size are
        lean = options.lean and embedded_size(index.model) > _PREPARED
        return cls(index, runtime_of(replace(options, lean=lean)), fetch)

    def close(self) -> None:
        """End the process."""
        with self.runtime:
            self._run = None

    def _opened(self) -> Opened:
        if self._run is None:
            self._run = opened(self.index, self.runtime, self.fetch)
        return self._run

    def _reopen(self) -> None:
        self._run = None
        self.runtime.restart()


@dataclass(frozen=True, kw_only=True)
class RecordSamples(SampleJob):
    """Compute the values of each sample.

    Attributes:
        values: those that are recorded, with those that are carried on; all by default. wide: in float64.
        budget: bytes of values that are computed at once. together: all values of a sample are less.
    """

    values: Sequence[str]
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
            # sent in one go where it fits; else part by part
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
    # a value inside of a body needs the other way of computing
    inside = [name for name in job.values if name not in index]
    if job.wide or inside:
        return job
    size = 0
    for _, value in computed(index, feeds, runtime, job.values, budget=job.budget):
        size += sum(array.nbytes for array in arrays_in(value))
    return replace(job, together=size <= job.budget)
