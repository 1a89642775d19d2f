"""Try hypotheses at a place: edited copies run side by side in one session, without those that it would refuse."""

import math
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto

from onnxsurgeon_lite.debug.causes.hypothesis import Edits, Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.place import Place
from onnxsurgeon_lite.debug.causes.windows import GIVEN, IS_GIVEN, Windows, switched
from onnxsurgeon_lite.debug.journal import Journal, digest
from onnxsurgeon_lite.errors import OutOfTime, RuntimeFailure, RuntimeLost, SurgeonError
from onnxsurgeon_lite.graph import GraphIndex, every_read, native
from onnxsurgeon_lite.graph.settling import tried
from onnxsurgeon_lite.model import Model, copied, external_tensors
from onnxsurgeon_lite.model.messages import assign
from onnxsurgeon_lite.passes.protocol import Pipeline, key
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.search.grouping import groups
from onnxsurgeon_lite.surgery.edits import rename_uses
from onnxsurgeon_lite.tensors.comparison import OWN, Tolerance, compare
from onnxsurgeon_lite.tensors.dtypes import (
    Array,
    RunValue,
    is_array,
    rms,
    wide,
)

Copies = dict[int, ModelProto]
Made = dict[int, dict[str, RunValue]]


@dataclass(frozen=True)
class Edited:
    """A place with the edits of a hypothesis, or a window of it: its nodes, and the constants that are other ones."""

    hypothesis: Hypothesis
    proto: ModelProto
    is_window: bool


_TOGETHER = 64  # copies in one session
_PARTS = 8  # of copies with a refused one: a refusal takes long, and halves repeat it often
_LOOKED_AT = 1 << 14  # elements of a value from which its error is estimated
_STORED = "\x03"  # begins the names of what is fed, in the runtime
_MADE = "\x05"  # begins those of what windows make
_SWITCHES = {"\x04off": np.array(False), "\x04on": np.array(True)}
_RANGE = 1e-14, 1e6  # of a number that is solved for
_STEPS = 17  # numbers that are tried at once
_ROUNDS = 9
_AHEAD = 2  # batches that are edited while one runs, each by a fork
_GATHERED = 0.1  # seconds in which the hypotheses of one session are made
_TURN = 1.0  # seconds of a family before the next one has its turn
_FIRST = 20  # families that are tried in vain least often
_LONGER = 6.0  # seconds of their first turns
_MORE = 1024  # hypotheses at least for an explanation without numbers that one example gave
_COARSE = 2  # rounds before the error must depend on the number
_FLAT = 0.7  # of the error one step away: where a number explains it, the error there is a third of that
_NOISE = 1e-6  # relative error that no number makes smaller
_SURE = 7.0  # bits by which references must say more than a choice among what was tried
_APART = "\x02"


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
        until: when it stops, as `time.monotonic` counts. enough: hypotheses after which it stops with an explanation.
        journal: keeps what was tried in vain.
        nearest: the best outcome that does not fit.
    """

    place: Place
    budget: int
    until: float
    journal: Journal = field(default_factory=Journal)
    nearest: Outcome | None = None
    tried: int = 0
    enough: float = math.inf
    _fed: dict[str, str] = field(default_factory=dict)
    _same: set[bytes] = field(default_factory=set)
    _later: dict[str, Hypothesis] = field(default_factory=dict)
    _forks: list[native.Fork] = field(default_factory=list)

    @cached_property
    def _windows(self) -> Windows:
        return Windows(self.place, self.budget)

    @cached_property
    def _state(self) -> tuple[str, str]:
        """What distinguishes the place from others of the same search."""
        place = self.place
        nodes = [node.SerializeToString() for node in place.nodes]
        there = nodes, place.inputs, place.nearby, place.samples[0].wanted
        return "causes", digest(b"", key(there), {})

    def __enter__(self) -> "Bench":
        if not refused(self.place, self.place.index.model, ()):
            self._same = {node.SerializeToString() for node in self.place.nodes}
        self._feed(self.place.index.inputs)
        return self

    def __exit__(self, *exception: object) -> None:
        self._forks.clear()
        with suppress(RuntimeFailure):
            self.place.runtime.forget(self._fed.values())

    def _feed(self, names: Iterable[str]) -> dict[str, str]:
        """Store values of the place for the runtime; return their names there."""
        given = {**self.place.inputs, **self.place.nearby, **_SWITCHES}
        for name in names:
            value = given[name] if name in given else self.place.values.get(name)
            if value is not None and name not in self._fed:
                self.place.runtime.put(_STORED + name, value)
                self._fed[name] = _STORED + name
        return {name: self._fed[name] for name in names if name in self._fed}

    def fitting(self, families: Iterable[Iterable[Hypothesis]]) -> Iterator[list[Outcome]]:
        """Yield the hypotheses that fit, those of several that run together at once."""
        nearest = self.nearest
        for batch, outcomes in self._batches(map(self._untried, families)):
            fits = [outcome for outcome in outcomes if outcome.fits]
            if fits:
                # of several that are one mistake, one alone may be enough
                parts = chain.from_iterable(fit.hypothesis.parts for fit in fits)
                with suppress(OutOfTime):
                    fits += [each for each in self.outcomes(parts) if each.fits]
                yield fits
            elif nearest is self.nearest:  # else a report needs it once more
                for name in set(map(_named, batch)) - self._later.keys():
                    self.journal.add(self._state, name, False)
            nearest = self.nearest

    def _untried(self, family: Iterable[Hypothesis]) -> Hypotheses:
        """Yield the hypotheses that were not tried here in vain, by this search or by one that it resumes."""
        for hypothesis in family:
            known = self.journal.known(self._state, [_named(hypothesis)])
            self.tried += len(known)
            if not known:
                yield hypothesis

    def by_chance(self, hypothesis: Hypothesis) -> bool:
        """Return whether one of so many edits may fit by chance: the references say little of what it changes."""
        evidence = self.place.evidence
        bits = min(evidence.bits, evidence.passed(hypothesis.edits))
        return not hypothesis.known and self.says_little(bits)

    def says_little(self, bits: float) -> bool:
        return bits < math.log2(max(1, self.tried)) + _SURE

    def hurry(self) -> None:
        """End soon: it is explained, and only a simpler explanation would be better."""
        # as many once more as it took: on a busy machine the same
        self.enough = min(self.enough, self.tried + max(_MORE, self.tried))

    def outcomes(self, hypotheses: Iterable[Hypothesis]) -> Iterator[Outcome]:
        """Yield what each hypothesis that can be applied makes of the place."""
        # those of the search around this one have their turn there
        later, self._later = self._later, {}
        try:
            for _, outcomes in self._batches([hypotheses]):
                yield from outcomes
        finally:
            self._later = later

    def _batches(
        self, families: Iterable[Iterable[Hypothesis]]
    ) -> Iterator[tuple[list[Hypothesis], list[Outcome]]]:
        """Run hypotheses, several at once; those that change shapes between nodes come last: few of them fit."""
        yield from self._run_each(families)
        later = list(self._later.values())
        self._later.clear()
        # the nodes behind them change, too
        closed, self._windows.closed = self._windows.closed, True
        try:
            yield from self._run_each([later])
        finally:
            self._windows.closed = closed  # a search around this one may run them, too

    def _run_each(
        self, families: Iterable[Iterable[Hypothesis]]
    ) -> Iterator[tuple[list[Hypothesis], list[Outcome]]]:
        """Run hypotheses while the next ones are edited and those behind them are made."""
        size = sum(array.nbytes for array in self.place.samples[0].wanted.values())
        seconds = 0.0
        if self._windows.has_any:
            size, seconds = max([size] + self._windows.sizes), _GATHERED
        count = max(1, min(_TOGETHER, self.budget // max(1, 2 * size)))
        # edit the next batches while this one runs
        pending = _drawn(families, count, seconds)
        ahead = deque((batch, self._begun(batch)) for batch in islice(pending, _AHEAD))
        while ahead:
            batch, edited = ahead.popleft()
            if time.monotonic() > self.until or self.tried >= self.enough:
                raise OutOfTime
            copies = edited()
            ahead.extend((each, self._begun(each)) for each in islice(pending, 1))
            yield batch, self._run(copies)

    def _begun(self, batch: Sequence[Hypothesis]) -> Callable[[], list[Edited]]:
        """Begin to edit copies of a place; return what waits for them, without the constants that stay."""
        # a fork edits them while the runtime computes
        edits, closed = [hypothesis.edits for hypothesis in batch], self._windows.closed
        waiting = native.begin_together("an edit", self._edited, edits, closed, kept=self._forks)

        def wait() -> list[Edited]:
            try:
                made = waiting()
            except (RuntimeFailure, native.RejectedError):  # one of them
                half = len(batch) // 2
                parts = (batch[:half], batch[half:]) if half else ()
                return [copy for part in parts for copy in self._begun(part)()]
            return [
                Edited(hypothesis, ModelProto.FromString(encoded), is_window)
                for hypothesis, (encoded, is_window) in zip(batch, made, strict=True)
                if encoded
            ]

        return wait

    def _edited(self, edits: Iterable[Edits], closed: bool) -> list[tuple[bytes, bool]]:
        """Return a copy with each of some edits; a fork does it, whose windows are as open as they were before."""
        self._windows.closed = closed
        return list(map(self._copy, edits))

    def _copy(self, edits: Edits) -> tuple[bytes, bool]:
        """Return (the place or a window of it, edited, whether it is a window); nothing if no node takes the edit."""
        window, whole = self._windows.around(edits), self.place.index.model
        for model in (whole,) if window is None else (window, whole):
            with suppress(SurgeonError), tried(self.place.types):
                result = Pipeline(edits).apply(model)
                if result.changed and not (
                    self._same and refused(self.place, result.model, self._same)
                ):
                    return _encoded(self.place, result.model), model is not whole
        return b"", False

    def _run(self, edited: Sequence[Edited]) -> list[Outcome]:
        """Run copies together; those that the runtime refuses have no outcome."""
        kinds = groups((copy.is_window, (n, copy.proto)) for n, copy in enumerate(edited))
        windows, whole = (dict(kinds.get(kind, ())) for kind in (True, False))
        made = self._in_parts(self._run_windows, windows) | self._in_parts(self._run_whole, whole)
        self.tried += len(made)
        outcomes = [
            self._judged(edited[number].hypothesis, made[number]) for number in sorted(made)
        ]
        for outcome in outcomes:
            nearer = self.nearest is None or outcome.left < self.nearest.left
            if outcome.hypothesis.sentence and nearer and not outcome.fits:
                self.nearest = outcome
        # those that make other shapes
        later = (edited[number].hypothesis for number in windows.keys() - made.keys())
        self._later |= {_named(hypothesis): hypothesis for hypothesis in later}
        return outcomes

    def _in_parts(self, run: Callable[[Copies], Made], copies: Copies) -> Made:
        """Run copies together, in smaller parts where the runtime refuses one of them."""
        try:
            return run(copies) if copies else {}
        except RuntimeFailure as error:
            if isinstance(error, RuntimeLost):
                self.place.runtime.restart()
                again, self._fed = self._fed, {}
                self._feed(again)
            size, made = len(copies) // _PARTS + 1, Made()
            for start in range(0, len(copies), size) if len(copies) > 1 else ():
                part = dict(islice(copies.items(), start, start + size))
                made |= self._in_parts(run, part)
            return made

    def _run_whole(self, copies: Copies) -> Made:
        """Return what copies of the place make."""
        found, places = self._together(copies)
        return {n: {v: found[here] for v, here in ends.items()} for n, ends in places.items()}

    def _run_windows(self, copies: Copies) -> Made:
        """Return what the place makes with edited windows, but for those that make other shapes than before."""
        place = self.place
        found, places = self._together(copies, _MADE)
        places = {
            number: ends
            for number, ends in places.items()
            if all(_alike(found[here], place.values[name]) for name, here in ends.items())
        }
        if not places:
            return {}
        # one session for all: what it is given is fed, and whether it is (a session for each takes most of the time)
        every = chain.from_iterable(map(dict.items, places.values()))
        given = {v: _MADE + here for v, here in every}
        place.runtime.open(place.index.model.with_proto(switched(place, given)))
        off, on = self._feed(_SWITCHES).values()
        feeds = self._feed(place.index.inputs) | {v + GIVEN: other for v, other in given.items()}
        feeds |= dict.fromkeys((v + IS_GIVEN for v in given), off)
        each = [feeds | _instead(ends, on) for ends in places.values()]
        ran = place.runtime.tries(each, list(place.samples[0].wanted))
        made = {n: values for n, values in zip(places, ran, strict=True) if values is not None}
        place.runtime.forget(_MADE + here for here in found)
        return made

    def _together(
        self, copies: Copies, kept: str = ""
    ) -> tuple[dict[str, RunValue], dict[int, dict[str, str]]]:
        """Compute copies in one session; return (values, each copy's outputs with their names there).

        Args:
            kept: begins the names of values that the runtime keeps.
        """
        # what they share is computed once
        together = SideBySide.of(self.place.index.model.proto)
        together.read(chain.from_iterable(copy.graph.input for copy in copies.values()))
        places = {number: together.add(copy) for number, copy in copies.items()}
        names = list(dict.fromkeys(chain.from_iterable(map(dict.values, places.values()))))
        inputs = self._feed([declared.name for declared in together.proto.graph.input])
        self.place.runtime.open(self.place.index.model.with_proto(together.proto))
        stays = {name: kept + name for name in names} if kept else {}
        return self.place.runtime.run(inputs, names, stays).values, places

    def _judged(self, hypothesis: Hypothesis, outputs: dict[str, RunValue]) -> Outcome:
        # equal numbers are one
        equations = min(hypothesis.equations, self.place.evidence.different)
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


def _instead(ends: Mapping[str, str], on: str) -> dict[str, str]:
    """Return what a switched region is fed to take these values of a window instead of its own."""
    given = {value + GIVEN: _MADE + here for value, here in ends.items()}
    return given | dict.fromkeys((value + IS_GIVEN for value in ends), on)


def _encoded(place: Place, model: Model) -> bytes:
    """Return an edited place without the constants that stay."""
    # what comes from another model is in files that this one does not know
    known = set(place.index.model.files.values())
    if not known.issuperset(model.files.values()):
        foreign = (t for t in external_tensors(model.proto) if model.span(t)[0] not in known)
        model.fill(foreign)
    graph = model.proto.graph
    changed = [t for t in graph.initializer if place.index.initializers.get(t.name) != t]
    assign(graph.initializer, changed)
    return bytes(model.proto.SerializeToString())


def _alike(one: RunValue, other: Array) -> bool:
    """Return whether two tensors have the same dtype and shape."""
    return is_array(one) and (one.dtype, one.shape) == (other.dtype, other.shape)


def _named(hypothesis: Hypothesis) -> str:
    """Return what distinguishes a hypothesis from others at a place."""
    return digest(b"", key(hypothesis.edits), {})


def sampled(array: Array) -> Array:
    """Return some of an array's elements, at most `_LOOKED_AT`, spread over it."""
    return array.reshape(-1)[:: max(1, array.size // _LOOKED_AT)]


def relative_error(actual: RunValue, wanted: Array) -> float:
    """Return the root mean square error relative to that of the reference; inf where they cannot be compared."""
    if not is_array(actual) or actual.shape != wanted.shape or not wanted.size:
        return float("inf")
    if actual.dtype.kind in "OUS":
        return float((actual != wanted).any())
    # a sample shows how large errors are; NaN counts as zero
    a, w = (np.nan_to_num(wide(sampled(x))) for x in (actual, wanted))
    with np.errstate(all="ignore"):
        return rms(a - w) / (rms(w) or 1.0)


def _drawn(
    families: Iterable[Iterable[Hypothesis]], count: int, seconds: float
) -> Iterator[list[Hypothesis]]:
    """Yield the next hypotheses, of several families at once; one that takes long goes on after the others."""
    waiting = deque(enumerate(map(iter, families)))
    batch = list[Hypothesis]()
    begun = time.monotonic()
    while waiting:
        number, pending = waiting.popleft()
        turn = time.monotonic()
        longest = _LONGER if number < _FIRST else _TURN
        while more := _next(pending, count - len(batch)):
            batch += more
            if len(batch) == count or time.monotonic() > begun + seconds:
                yield batch
                batch, begun = [], time.monotonic()
            if time.monotonic() > turn + longest:
                waiting.append((_FIRST, pending))
                break
    if batch:
        yield batch


def _next(pending: Hypotheses, count: int) -> list[Hypothesis]:
    # no family need take care of numbers that overflow
    with np.errstate(all="ignore"):
        return list(islice(pending, count))


def refused(place: Place, copy: Model, same: Container[bytes]) -> bool:
    """Return whether type inference refuses what an edited copy computes otherwise than the place does.

    Args:
        same: the nodes that the place has, too.
    """
    index, stay = GraphIndex.of(copy), place.index.initializers
    # follow what the edit changes, with the types that the place knows
    differs = {n for n, t in index.initializers.items() if n not in stay or stay[n] != t}
    positions = list[int]()
    for position, node in enumerate(index.nodes):
        changed = node.SerializeToString() not in same or differs & set(index.reads[position])
        if changed:
            differs.update(node.output)
        if changed or node.op_type == "Constant":  # its numbers may be sizes
            positions.append(position)
    made = index.made_by(positions)
    types = {name: kind for name, kind in place.types.items() if name not in made}
    part = Observer(index, place.runtime).part(positions, types, list(made))
    try:
        native.infer(part, strict=True, data_prop=True)
    except (native.RejectedError, RuntimeFailure):
        return True
    return False


@dataclass
class SideBySide:
    """A model that grows by copies of another; equal nodes with equal inputs are there once.

    Attributes:
        proto: the model so far.
        tensors: the constants of the other model.
    """

    proto: ModelProto
    tensors: Mapping[str, TensorProto]
    _nodes: dict[bytes, list[str]] = field(default_factory=dict)
    _read: dict[bytes, tuple[str, ...]] = field(default_factory=dict)
    _known: dict[tuple[bytes, tuple[str, ...]], dict[str, str]] = field(default_factory=dict)
    _constants: dict[str, list[tuple[TensorProto, str]]] = field(default_factory=dict)

    @classmethod
    def of(cls, base: ModelProto) -> "SideBySide":
        """Begin with a model's inputs and functions."""
        proto = copied(base)
        graph = proto.graph
        for several in (graph.node, graph.output, graph.value_info, graph.initializer):
            del several[:]
        return cls(proto, {tensor.name: tensor for tensor in base.graph.initializer})

    def add(self, edited: ModelProto) -> dict[str, str]:
        """Add a copy, which need not hold the constants that stay; return its outputs with their names here."""
        tensors = {**self.tensors, **{tensor.name: tensor for tensor in edited.graph.initializer}}
        names = dict[str, str]()
        # a node that is there with the same inputs is not added again
        for node in edited.graph.node:
            encoded = node.SerializeToString(deterministic=True)
            if encoded not in self._read:
                self._read[encoded] = tuple(dict.fromkeys(every_read(node)))
            read = self._read[encoded]
            for name in read:
                if name in tensors and name not in names:
                    names[name] = self._constant(tensors[name])
            key = encoded, tuple(names.get(name, name) for name in read)
            if key not in self._known:
                self._known[key] = self._node(node, read, names)
            names |= self._known[key]
        found = {output.name: names.get(output.name, output.name) for output in edited.graph.output}
        there = {output.name for output in self.proto.graph.output}
        for name in dict.fromkeys(found.values()):
            if name not in there:
                self.proto.graph.output.add(name=name)
        return found

    def read(self, inputs: Iterable[ValueInfoProto]) -> None:
        """Let the model have more inputs."""
        there = {declared.name for declared in self.proto.graph.input}
        for declared in inputs:
            if declared.name not in there:
                there.add(declared.name)
                self.proto.graph.input.append(declared)

    def _constant(self, tensor: TensorProto) -> str:
        # copies that give a constant other numbers read another name
        known = self._constants.setdefault(tensor.name, [])
        for other, name in known:
            if other is tensor or other == tensor:
                return name
        name = f"{tensor.name}{_APART}{len(known)}" if known else tensor.name
        self.proto.graph.initializer.append(tensor)
        self.proto.graph.initializer[-1].name = name
        known.append((tensor, name))
        return name

    def _node(
        self, node: NodeProto, read: Sequence[str], names: Mapping[str, str]
    ) -> dict[str, str]:
        """Return the names of what a node makes here."""
        copy = NodeProto()
        copy.CopyFrom(node)
        copy.ClearField("name")
        rename_uses([copy], {old: names[old] for old in read if names.get(old, old) != old})
        # a node with equal inputs and attributes is there once, whatever its results are called
        made = list(copy.output)
        copy.output[:] = ["o" if name else "" for name in made]
        key = copy.SerializeToString(deterministic=True)
        if key not in self._nodes:
            number = len(self._nodes)
            copy.output[:] = [f"{name}{_APART}{number}" if name else "" for name in made]
            self.proto.graph.node.append(copy)
            self._nodes[key] = list(copy.output)
        return {old: new for old, new in zip(made, self._nodes[key], strict=True) if old}
