"""Find what is wrong with culprits: try every family of hypotheses, and prove on the model itself what fits."""

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from onnxsurgeon_lite.debug.bisection.bisect import Case
from onnxsurgeon_lite.debug.bisection.diagnose import cast_like
from onnxsurgeon_lite.debug.bisection.result import BisectResult, Cause, Culprit
from onnxsurgeon_lite.debug.causes.attributes import attributes
from onnxsurgeon_lite.debug.causes.constants import constants
from onnxsurgeon_lite.debug.causes.feeding import feeding
from onnxsurgeon_lite.debug.causes.hypothesis import Hypothesis
from onnxsurgeon_lite.debug.causes.operations import operations, other_operations
from onnxsurgeon_lite.debug.causes.place import Place, Sample
from onnxsurgeon_lite.debug.causes.precision import precision
from onnxsurgeon_lite.debug.causes.solving import solved_constants, solved_numbers
from onnxsurgeon_lite.debug.causes.trying import Bench, Outcome, OutOfTime
from onnxsurgeon_lite.debug.causes.wiring import wiring
from onnxsurgeon_lite.errors import RuntimeFailure, SurgeonError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.schemas import RANDOM
from onnxsurgeon_lite.passes.pipeline import Pipeline
from onnxsurgeon_lite.passes.typed import as_command, as_step
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.tensors.comparison import Comparison
from onnxsurgeon_lite.tensors.dtypes import Array, RunValue
from onnxsurgeon_lite.tensors.references import ReferenceSet

Family = Callable[[Place], Iterable[Hypothesis]]

FAMILIES: Sequence[Family] = (
    attributes,
    operations,
    constants,
    wiring,
    other_operations,
    precision,
    feeding,
)
"""Families of hypotheses, the cheapest first."""
SOLVED: Sequence[Callable[[Place, Bench], Iterable[Hypothesis]]] = (
    solved_numbers,
    solved_constants,
)
"""Families whose numbers are computed from the reference; tried where no known mistake fits."""

_LARGEST = 64  # nodes of a region
_SHOWN = 2  # causes that fit equally
_EQUAL = 4.0  # errors within this factor are equal
_NOISE = 1e-7  # a smaller relative error says nothing
_CAUSED = ("wrong node", "wrong constant", "shape or layout", "non-finite", "overflow", "tie")
_NEARBY = 48  # recorded values that a node could read instead
_KNOWN = 0.7  # the share of the time for mistakes that need not be solved for
_SECONDS = 8.0  # the least time for causes


def explain_causes(result: BisectResult, case: Case) -> None:
    """Give the culprits of a result their causes, proved by running the edited model.

    Culprits that the runtime's own error, an optimizer or random numbers make have none.
    """
    until = time.monotonic() + max(_SECONDS, 2 * case.seconds)
    finder = Finder(case, result)
    for culprit in result.culprits:
        if culprit.inside or not _explainable(culprit):
            continue
        case.progress(f"searching the cause at {culprit.id}")
        try:
            finder.explain(culprit, until)
        except OutOfTime:
            result.notes.append(f"the time to search causes was over at {culprit.id}")
            break


@dataclass
class Finder:
    """Finds the causes of culprits.

    Attributes:
        mistakes: those that explained culprits so far.
    """

    case: Case
    result: BisectResult
    mistakes: list[tuple[object, ...]] = field(default_factory=list)

    @property
    def index(self) -> GraphIndex:
        return self.case.index

    def explain(self, culprit: Culprit, until: float) -> None:
        """Find what is wrong with one culprit."""
        place = self._place(culprit)
        if place is None:
            return
        with Bench(place, self.case.memory, until) as bench:
            fits = ordered(self._fitting(bench, until))
        proved = (self._proved(place, fit.hypothesis, culprit) for fit in fits)
        culprit.causes = list(itertools.islice(filter(None, proved), _SHOWN))
        culprit.unexplained = "" if culprit.causes else _unexplained(bench, fits)
        self.result.notes += place.left_out

    def _fitting(self, bench: Bench, until: float) -> list[Outcome]:
        """Return what fits: of the first family in which something does."""
        now = time.monotonic()
        bench.until = now + _KNOWN * (until - now)
        over: OutOfTime | None = None
        try:
            for family in FAMILIES:
                fits = [o for o in bench.outcomes(family(bench.place)) if o.fits]
                if fits:
                    return fits
        except OutOfTime as error:
            over = error
        bench.until = until
        for solving in SOLVED:
            fits = [o for o in bench.outcomes(solving(bench.place, bench)) if o.fits]
            if fits:
                return fits
        if over is not None:
            raise over
        return []

    def _place(self, culprit: Culprit) -> Place | None:
        """Return a culprit's region as a place; None if no edit can be tried there."""
        index = self.index
        entering = culprit.inputs
        positions = sorted(
            index.ancestors(culprit.outputs, stop=entering), key=index.places.__getitem__
        )
        nodes = [index.nodes[position] for position in positions]
        if any(node.op_type in RANDOM for node in nodes):
            self.result.notes.append(
                f"{culprit.id} draws random numbers: its cause was not searched"
            )
            return None
        if len(nodes) > _LARGEST:
            self.result.notes.append(
                f"the region at {culprit.id} has {len(nodes)} nodes, more than {_LARGEST}:"
                " its cause was not searched"
            )
            return None
        actual = {name: now for name, (_, now) in self.result.tensors.items()}
        samples = [self._sample(culprit, actual, *sample) for sample in self.case.samples]
        if samples[0] is None or culprit.value not in samples[0].wanted:
            return None
        nearby = self._nearby(culprit, samples[0])
        there = [sample for sample in samples if sample is not None]
        observer = Observer(index, self.case.runtime)
        return Place.at(observer, positions, culprit.value, there, self.case.judge, nearby)

    def _sample(
        self,
        culprit: Culprit,
        actual: Mapping[str, RunValue],
        references: ReferenceSet,
        feeds: Feeds,
    ) -> Sample | None:
        """Return what enters a culprit in a sample and what should come out; None if that is not known."""
        inputs: dict[str, RunValue] = {}
        for name in culprit.inputs:
            now = actual.get(name)
            stored = references.read(name) if name in references else feeds.get(name)
            value = now if stored is None else stored
            if isinstance(now, np.ndarray) and isinstance(stored, np.ndarray):
                value = cast_like(now, stored)
            inputs[name] = value
        wanted = {n: references.read(n) for n in culprit.outputs if n in references}
        arrays = {name: value for name, value in wanted.items() if isinstance(value, np.ndarray)}

        def recorded(name: str) -> RunValue:
            return references.read(name) if name in references else feeds[name]

        return Sample(inputs, arrays, recorded) if arrays else None

    def _nearby(self, culprit: Culprit, sample: Sample) -> dict[str, Array]:
        """Return recorded values that do not depend on the culprit, of the shapes that it deals with."""
        references, feeds = self.case.samples[0]
        index, found, size = self.index, dict[str, Array](), 0
        here = index.rank.get(culprit.value, 0)
        shapes = {
            v.shape
            for v in (*sample.inputs.values(), *sample.wanted.values())
            if isinstance(v, np.ndarray)
        }
        wanted = sample.wanted[culprit.value].shape
        near = sorted(
            (name for name in index.rank if name in references and name not in culprit.outputs),
            key=lambda name: abs(index.rank[name] - here),
        )
        for name in [*near, *(name for name in feeds if name in index.inputs)]:
            if name in sample.inputs or len(found) >= _NEARBY:
                continue
            entry = references.entries.get(name)
            shape = None if entry is None else entry.shape
            if shape is not None and not (shape in shapes or _broadcasts(shape, wanted)):
                continue
            value = references.read(name) if name in references else feeds[name]
            if not isinstance(value, np.ndarray) or not (
                value.shape in shapes or _broadcasts(value.shape, wanted)
            ):
                continue
            if name in index.rank and self._depends(name, culprit):
                continue
            size += value.nbytes
            if size > self.case.memory:
                break
            found[name] = value
        return found

    def _depends(self, name: str, culprit: Culprit) -> bool:
        """Return whether a value is computed from the culprit."""
        if self.index.rank[name] <= min(self.index.rank[n] for n in culprit.outputs):
            return False
        made = {self.index.producer[output] for output in culprit.outputs}
        return not made.isdisjoint(self.index.ancestors([name]))

    def _proved(self, place: Place, hypothesis: Hypothesis, culprit: Culprit) -> Cause | None:
        """Apply a hypothesis to the model itself, and run it there on every sample."""
        steps = place.outside(hypothesis.edits)
        if not hypothesis.proves:
            return None
        try:
            edited = Pipeline(steps).apply(self.index.model).model
            index = GraphIndex.of(edited)
            observer = Observer(index, self.case.runtime)
            after: Comparison | None = None
            for sample in place.samples:
                compared = self._compared(observer, place, sample, hypothesis.instead)
                if not all(c is not None and c.match for c in compared.values()):
                    return None
                after = after or compared[place.value]
        except (SurgeonError, RuntimeFailure):
            return None
        before = next((v.introduced for v in culprit.values if v.name == place.value), None)
        gap = "" if after is None else f" (max abs {after.max_abs:.2g})"
        return Cause(
            hypothesis.name,
            f"{hypothesis.sentence} {place.region} agrees{gap}",
            before,
            after,
            steps,
            [*map(as_step, steps)],
            as_command(steps, self.index.model.path),
            hypothesis.mistake,
        )

    def _compared(
        self, observer: Observer, place: Place, sample: Sample, instead: str
    ) -> dict[str, Comparison | None]:
        """Compute the region in the edited model, and compare."""
        index = observer.index
        stop = {*place.nearby, *sample.inputs}
        names = {
            name: instead if name == place.value and instead else name for name in sample.wanted
        }
        made = list(dict.fromkeys(name for name in names.values() if name not in stop))
        positions = sorted(index.ancestors(made, stop=stop), key=index.places.__getitem__)
        reads = {name for position in positions for name in index.reads[position]}
        given = {**sample.inputs}
        given |= {name: sample.recorded(name) for name in reads & place.nearby.keys()}
        found = {**given, **(observer.alone(positions, given, made) if made else {})}
        return {
            name: self.case.judge.compared(name, found[names[name]], wanted)
            for name, wanted in sample.wanted.items()
        }


def ordered(fits: Iterable[Outcome]) -> list[Outcome]:
    """Return what fits: of those whose error is about the smallest the one with the fewest unknowns first."""
    fits = list(fits)
    least = max(_NOISE, min((fit.error for fit in fits), default=0.0)) * _EQUAL
    exact = [fit for fit in fits if fit.error <= least]
    return sorted(exact, key=lambda fit: fit.hypothesis.unknowns)


def _explainable(culprit: Culprit) -> bool:
    """Return whether a culprit is wrong alone, from right inputs, and not by the runtime's fault."""
    verdicts = [finding.verdict for finding in culprit.findings]
    if "random" in verdicts or "kernel" in verdicts or "crash" in verdicts or culprit.covers:
        return False
    return any(
        v.role == "output" and v.introduced is not None and not v.introduced.match
        for v in culprit.values
    )


def _broadcasts(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    try:
        return bool(shape) and np.broadcast_shapes(shape, wanted) == wanted and max(shape) > 1
    except ValueError:
        return False


def _unexplained(bench: Bench, fits: Sequence[Outcome]) -> str:
    """Say why a culprit has no cause."""
    solved = next((fit.hypothesis for fit in fits if not fit.hypothesis.proves), None)
    if solved is not None:
        return (
            f"no known mistake explains it; {solved.sentence} the region would agree, but that proves nothing:"
            f" {solved.unknowns} unknowns, {solved.equations} equations (more samples would tell)"
        )
    if bench.nearest is None or bench.nearest.left >= 1:
        return "no known mistake explains it"
    left = f"{bench.nearest.left:.2g}" if bench.nearest.left < 0.01 else f"{bench.nearest.left:.0%}"
    return (
        f"no known mistake explains it; the nearest: {bench.nearest.hypothesis.sentence}"
        f" {bench.place.region} still mismatches in {left} of the elements"
    )
