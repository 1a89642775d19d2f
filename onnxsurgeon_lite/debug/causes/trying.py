"""Try hypotheses at a place: their edited copies run side by side, many in one session."""

import contextlib
import itertools
import math
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from onnx import ModelProto

from onnxsurgeon_lite.debug.causes.foresight import refused
from onnxsurgeon_lite.debug.causes.hypothesis import Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.place import Place, wide
from onnxsurgeon_lite.debug.causes.side_by_side import SideBySide
from onnxsurgeon_lite.errors import OutOfTime, RuntimeFailure, RuntimeLost, SurgeonError
from onnxsurgeon_lite.graph import native
from onnxsurgeon_lite.passes.pipeline import Pipeline
from onnxsurgeon_lite.tensors.comparison import OWN, Tolerance, compare
from onnxsurgeon_lite.tensors.dtypes import Array, RunValue, is_array

Edited = tuple[Hypothesis, ModelProto]

_TOGETHER = 64  # copies in one session
_PARTS = 8  # of copies with a refused one: a refusal takes long, and halves repeat it often
_LOOKED_AT = 1 << 14  # elements of a value from which its error is estimated
_STORED = "\x03"  # begins the names of what is fed, in the runtime
_RANGE = 1e-14, 1e6  # of a number that is solved for
_STEPS = 17  # numbers that are tried at once
_ROUNDS = 9
_COARSE = 2  # rounds before the error must depend on the number
_FLAT = 0.7  # of the error one step away: where a number explains it, the error there is a third of that
_NOISE = 1e-6  # relative error that no number makes smaller
_SURE = 7.0  # bits by which references must say more than a choice among what was tried


@dataclass(frozen=True)
class Outcome:
    """What a hypothesis makes of a place.

    Attributes:
        left: the share of the elements that still mismatch. error: root mean square, relative to the reference.
    """

    hypothesis: Hypothesis
    fits: bool
    left: float
    error: float


@dataclass
class Bench:
    """Runs a place with edits.

    Attributes:
        budget: bytes of results that one session may hold.
        until: when it stops, as `time.monotonic` counts.
        nearest: the best outcome that does not fit.
    """

    place: Place
    budget: int
    until: float
    nearest: Outcome | None = None
    tried: int = 0
    _fed: dict[str, str] = field(default_factory=dict)
    _same: set[bytes] = field(default_factory=set)

    def __enter__(self) -> "Bench":
        if not refused(self.place, self.place.index.model, ()):
            self._same = {node.SerializeToString() for node in self.place.nodes}
        self._feed()
        return self

    def __exit__(self, *exception: object) -> None:
        with contextlib.suppress(RuntimeFailure):
            self.place.runtime.forget(self._fed.values())

    def _feed(self) -> None:
        given = {**self.place.inputs, **self.place.nearby}
        for name in self.place.index.inputs:
            value = given.get(name)
            if value is not None:
                self.place.runtime.put(_STORED + name, value)
                self._fed[name] = _STORED + name

    def fitting(self, families: Iterable[Iterable[Hypothesis]]) -> Iterator[list[Outcome]]:
        """Yield the hypotheses that fit, those of several that run together at once."""
        for outcomes in self._batches(families):
            fits = [outcome for outcome in outcomes if outcome.fits]
            if fits:
                yield fits

    def by_chance(self, hypothesis: Hypothesis) -> bool:
        """Return whether one of so many edits may fit by chance: the references say little of what it changes."""
        evidence = self.place.evidence
        if hypothesis.known:
            return False
        return self.says_little(evidence.bits) or self.says_little(
            evidence.passed(hypothesis.edits)
        )

    def says_little(self, bits: float) -> bool:
        return bits < math.log2(max(1, self.tried)) + _SURE

    def outcomes(self, hypotheses: Iterable[Hypothesis]) -> Iterator[Outcome]:
        """Yield what each hypothesis that can be applied makes of the place."""
        for outcomes in self._batches([hypotheses]):
            yield from outcomes

    def _batches(self, families: Iterable[Iterable[Hypothesis]]) -> Iterator[list[Outcome]]:
        """Run hypotheses, several at once, while the next ones are edited and those behind them are made."""
        size = sum(array.nbytes for array in self.place.samples[0].wanted.values())
        count = max(1, min(_TOGETHER, self.budget // max(1, 2 * size)))
        # edit the next batch while this one runs, and make the one after it
        pending = _drawn(families, count)
        edited, batch = self._begun(next(pending, [])), next(pending, [])
        while edited is not None:
            if time.monotonic() > self.until:
                raise OutOfTime
            copies = edited()
            edited, batch = self._begun(batch), []
            yield list(self._run(copies))
            batch = next(pending, [])

    def _begun(self, batch: Sequence[Hypothesis]) -> Callable[[], list[Edited]] | None:
        """Begin to edit copies of a place; return what waits for them, without the constants that stay."""
        if not batch:
            return None
        waiting = native.begin_together(
            "an edit", lambda: pickle.dumps(list(map(self._copy, batch)))
        )

        def wait() -> list[Edited]:
            try:
                made = waiting()
            except RuntimeFailure:  # one of them
                half = len(batch) // 2
                parts = (batch[:half], batch[half:]) if half else ()
                return [copy for p in parts if (there := self._begun(p)) for copy in there()]
            copies = zip(batch, pickle.loads(made), strict=True)
            return [(h, ModelProto.FromString(encoded)) for h, encoded in copies if encoded]

        return wait

    def _copy(self, hypothesis: Hypothesis) -> bytes:
        """Return the place, edited; nothing if that changes nothing, or a node does not take it."""
        try:
            result = Pipeline(hypothesis.edits).apply(self.place.index.model)
        except SurgeonError:
            return b""
        if not result.changed or (self._same and refused(self.place, result.model, self._same)):
            return b""
        graph = result.model.proto.graph
        # constants that stay are not sent
        changed = [t for t in graph.initializer if self.place.index.initializers.get(t.name) != t]
        del graph.initializer[:]
        graph.initializer.extend(changed)
        return bytes(result.model.proto.SerializeToString())

    def _run(self, edited: Sequence[Edited]) -> Iterator[Outcome]:
        """Run copies together, in smaller parts where the runtime refuses one of them."""
        if not edited:
            return
        # one session for all copies: what they share is computed once
        together = SideBySide.of(self.place.index.model.proto)
        places = [together.add(copy) for _, copy in edited]
        model = self.place.index.model.with_proto(together.proto)
        try:
            self.place.runtime.open(model)
            names = list(dict.fromkeys(name for outputs in places for name in outputs.values()))
            found = self.place.runtime.run(self._fed, names).values
        except RuntimeFailure as error:
            if isinstance(error, RuntimeLost):
                self.place.runtime.restart()
                self._feed()
            size = len(edited) // _PARTS + 1
            for start in range(0, len(edited), size) if len(edited) > 1 else ():
                yield from self._run(edited[start : start + size])
            return
        self.tried += len(edited)
        for (hypothesis, _), outputs in zip(edited, places, strict=True):
            outcome = self._judged(hypothesis, {n: found[v] for n, v in outputs.items()})
            nearer = self.nearest is None or outcome.left < self.nearest.left
            if hypothesis.sentence and nearer and not outcome.fits:
                self.nearest = outcome
            yield outcome

    def _judged(self, hypothesis: Hypothesis, outputs: dict[str, RunValue]) -> Outcome:
        equations = min(
            hypothesis.equations, self.place.evidence.different
        )  # equal numbers are one
        hypothesis = replace(hypothesis, equations=equations)
        left = self._left(outputs.get(self.place.value))
        wanted = self.place.samples[0].wanted
        fits = not left and all(self.place.agree(n, outputs.get(n), w) for n, w in wanted.items())
        error = relative_error(outputs.get(self.place.value), self.place.wanted)
        return Outcome(hypothesis, fits, left, error)

    def _left(self, actual: RunValue) -> float:
        """Return the share of elements that mismatch, of some of them; 1 where they cannot be compared."""
        wanted = self.place.wanted
        if not is_array(actual) or actual.shape != wanted.shape:
            return 1.0
        allowed = self.place.judge.allowed(self.place.value, actual) or OWN
        allowed = allowed.resolved(actual.dtype, wanted.dtype)
        # the scale of all elements counts, not that of some
        allowed = Tolerance(allowed.absolute(self.place.scale), allowed.rtol)
        found = compare(sampled(actual), sampled(wanted), allowed, ())
        return found.share_over if found.match or found.reason == "values" else 1.0

    def solve(self, make: Callable[[float], Hypothesis]) -> float | None:
        """Return the positive number that makes the error smallest; None if there is none."""
        grid, best = np.geomspace(*_RANGE, _STEPS), None
        for number in range(_ROUNDS):
            tried = list(self.outcomes(make(float(value)) for value in grid))
            errors = [outcome.error for outcome in tried]
            if len(errors) != len(grid) or not np.isfinite(errors).any():
                break
            # search on between the neighbors of the best number
            at = int(np.nanargmin(errors))
            around = np.nanmax(errors[max(0, at - 1) : at + 2])
            if number >= _COARSE and _FLAT * around < errors[at] > _NOISE:
                return None  # no number takes all error back
            best = float(grid[at])
            grid = np.geomspace(grid[max(0, at - 1)], grid[min(at + 1, _STEPS - 1)], _STEPS)
        return best


def sampled(array: Array) -> Array:
    """Return some of an array's elements, at most `_LOOKED_AT`, spread over it."""
    return array.reshape(-1)[:: max(1, array.size // _LOOKED_AT)]


def relative_error(actual: RunValue, wanted: Array) -> float:
    """Return the root mean square error relative to that of the reference; inf where they cannot be compared."""
    if not is_array(actual) or actual.shape != wanted.shape or not wanted.size:
        return float("inf")
    if actual.dtype.kind in "OUS":
        return float((actual != wanted).any())
    a, w = (np.nan_to_num(wide(sampled(x))) for x in (actual, wanted))
    with np.errstate(all="ignore"):
        scale = float(np.sqrt(np.mean(np.square(w)))) or 1.0
        return float(np.sqrt(np.mean(np.square(a - w)))) / scale


def _drawn(families: Iterable[Iterable[Hypothesis]], count: int) -> Iterator[list[Hypothesis]]:
    """Yield the next hypotheses, of one family at once; numbers that are solved for may overflow."""
    for family in families:
        pending = iter(family)
        while batch := _next(pending, count):
            yield batch


def _next(pending: Hypotheses, count: int) -> list[Hypothesis]:
    with np.errstate(all="ignore"):
        return list(itertools.islice(pending, count))
