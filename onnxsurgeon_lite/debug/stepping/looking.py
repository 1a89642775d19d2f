"""Finding values by the names that a user gives, and saying what they are."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

from onnxsurgeon_lite.debug.stepping.breakpoints import Breakpoints
from onnxsurgeon_lite.debug.stepping.control import iterations
from onnxsurgeon_lite.debug.stepping.execution import Execution
from onnxsurgeon_lite.debug.stepping.frames import Frame
from onnxsurgeon_lite.errors import ReferenceSetError, UnknownNameError, UsageError
from onnxsurgeon_lite.graph import BodyName, iterations_in
from onnxsurgeon_lite.graph.selecting.select import select_values
from onnxsurgeon_lite.matching.given import difference
from onnxsurgeon_lite.matching.judge import ValueRule
from onnxsurgeon_lite.names import listed, split
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.tensors.comparison import Comparison, Tolerance
from onnxsurgeon_lite.tensors.dtypes import RunValue, RunValues, Stored
from onnxsurgeon_lite.tensors.references import ReferenceSet
from onnxsurgeon_lite.tensors.statistics import Statistics, statistics


@dataclass(frozen=True)
class Reading:
    """A value that was looked at.

    Attributes:
        producer: the node that makes it, as a message shows it, or what it is instead.
        comparisons: with its reference; one, or one for each tensor of a sequence; empty where there is none.
        value: the numbers, where they were asked for.
    """

    name: str
    producer: str
    statistics: Sequence[Statistics]
    comparisons: Mapping[str, Comparison] = field(default_factory=dict)
    value: RunValue = None

    @property
    def match(self) -> bool:
        """True unless a comparison mismatches."""
        return all(comparison.match for comparison in self.comparisons.values())


@dataclass(frozen=True)
class Stop:
    """A place where stepping stopped: after a node.

    Attributes:
        reason: `start`, `breakpoint`, `step`, `over` (a body that it cannot go into), `returned` (from one) or `end`.
        node: the node that was computed last, as a message shows it; '' at the start and the end.
        origin: its place in the source program.
        readings: what it made; at the end the model's outputs.
        watched: the values that are watched, those that are there already.
        breakpoints: numbers of those that stopped it.
        unhit: at the end, the breakpoints that never stopped it.
    """

    reason: str
    node: str = ""
    origin: str = ""
    readings: Sequence[Reading] = ()
    watched: Sequence[Reading] = ()
    breakpoints: Sequence[int] = ()
    unhit: Sequence[str] = ()


@dataclass(frozen=True)
class Level:
    """A frame as `where` shows it.

    Attributes:
        graph: the frame's path; '' is the main graph.
        node: what was computed last, or runs the next frame.
        passed, nodes: how far it is.
        chosen: names are resolved in it, although another frame is being run.
    """

    graph: str
    node: str
    origin: str
    passed: int
    nodes: int
    chosen: bool


class Readings(list[Reading]):
    """Values that were looked at together."""


class Listing(list[str]):
    """Lines of nodes in the order in which they are computed; `end` is the place after the last."""

    end = 0


class Stack(list[Level]):
    """The frames, the main graph first."""


@dataclass
class Looker:
    """Reads values of an execution.

    Attributes:
        references: what values are compared with, where there is one of that name.
        recorded: the inputs that the references belong to, as far as they are known.
        watched: values that every stop shows.
    """

    execution: Execution
    points: Breakpoints
    references: ReferenceSet | None
    tolerance: Tolerance | None
    recorded: Feeds
    watched: list[str] = field(default_factory=list)
    _checked: tuple[Feeds, str] = field(default_factory=lambda: ({}, ""))

    @cached_property
    def rule(self) -> ValueRule:
        """What decides whether a value agrees with its reference."""
        return ValueRule.of(self.execution.index, self.tolerance)

    def find(self, name: str) -> tuple[Frame, list[str]]:
        """The innermost frame that has a value, and the values that the name means there.

        Raises:
            UnknownNameError: no frame has it; the hint names where it would be.
        """
        try:
            return self.execution.find(name)
        except UnknownNameError as error:
            scopes = self.points.scopes
            # raises a better error if there is no such body
            if BodyName.of(name):
                scopes.find(name)
                error.hint = f"go there first: break {name}"
            elif path := scopes.computing(name):
                error.hint = f"a body that is not being run computes it: break {path}/{name}"
            raise

    def read(self, name: str) -> Readings:
        """Values with their numbers; those of a body that is not being run are computed aside.

        Raises:
            UnknownNameError: there is none.
        """
        where = self._where(name)
        with self.execution.at_work():
            found = [
                replace(self._reading(frame, each, value), value=value)
                for frame, names in where
                for each, value in frame.fetch(names).items()
            ]
        return Readings(found or [Reading(name, "not computed", statistics(name, None))])

    def reference(self, name: str) -> Stored:
        """Return the reference of a value; errors as of `required`."""
        return self.required().read(name)

    def required(self) -> ReferenceSet:
        """Return the references.

        Raises:
            ReferenceSetError: there are none, or they belong to other inputs.
        """
        if self.references is None:
            raise ReferenceSetError(
                "there are no references: none were given", "start with --reference REFERENCES"
            )
        if other := self.other_inputs():
            raise ReferenceSetError(
                f"the references belong to other inputs: {other}",
                "feed those again, or start with references of these",
            )
        return self.references

    def other_inputs(self) -> str:
        """Say which input is another one than the references belong to; '' for none."""
        if self.references is None:
            return ""
        # compared once for each set of feeds: `_checked` holds (feeds, answer)
        fed = self.execution.fed or dict(self.execution.feeds)
        if fed is not self._checked[0]:
            self.note_inputs(fed)
            found = {name: difference(value, self.recorded[name]) for name, value in fed.items()}
            other = (f"input {name!r} {what}" for name, what in found.items() if what)
            self._checked = fed, next(other, "")
        return self._checked[1]

    def note_inputs(self, feeds: Feeds) -> None:
        """Take inputs for those of the references where none are known."""
        self.recorded = {**feeds, **self.recorded}

    def watch(self, name: str) -> None:
        """Watch a value from now on, or no longer."""
        frame, names = self.find(name)
        # without iterations: it is watched in each of them
        for each in (f"{frame.path}/{own}".lstrip("/") for own in names):
            (self.watched.remove if each in self.watched else self.watched.append)(each)

    def at_stop(self) -> Readings:
        """Read the watched values that were passed, except in bodies that are not being run."""
        readings = Readings()
        for name in self.watched:
            try:
                frame, names = self.execution.find(name)
            except UnknownNameError:
                continue
            # a value that is not reached yet is not computed for a stop; inputs have no rank and count as passed
            passed = [n for n in names if frame.index.rank.get(n, -1) < frame.place]
            readings += self.readings(frame, frame.fetch(passed))
        return readings

    def readings(self, frame: Frame, values: RunValues) -> Readings:
        """Values of a frame without their numbers."""
        return Readings(self._reading(frame, name, value) for name, value in values.items())

    def _reading(self, frame: Frame, name: str, value: RunValue) -> Reading:
        position = frame.index.producer.get(name)
        constant = name in frame.index.initializers
        producer = frame.describe(position) if position is not None else ""
        what = producer or ("an initializer" if constant else "an input")
        full = frame.name(name)
        compared = dict[str, Comparison]()
        known = self.references is not None and full in self.references
        if self.references is not None and known and not self.other_inputs():
            # a rule may need another value than the compared one: what a node selects from
            rule = replace(self.rule, read=lambda other: frame.fetch([other]).get(other))
            compared = rule.each(full, value, self.references.read(full))
        return Reading(full, what, statistics(full, value), compared)

    def _where(self, name: str) -> Iterable[tuple[Frame, list[str]]]:
        """The frames that have what is to be looked at; those of bodies that are not being run come as they are run."""
        parts = [name] if name in self.execution.index else split([name])
        if not any(map(BodyName.of, parts)):
            return [self.find(name)]
        frames, running = self.execution.frames, self.execution.running
        return chain.from_iterable(
            visits(frames, part)
            if BodyName.of(part) and running(part) is None
            else [self.find(listed([part]))]
            for part in parts
        )


def visits(frames: Sequence[Frame], selector: str) -> Iterator[tuple[Frame, list[str]]]:
    """Each frame that computes what a selector behind a body means, with its values; nothing else changes.

    Args:
        frames: those being run, the main graph first.

    Raises:
        UnknownNameError: there is no such body or value.
        UsageError: values were set there, or what the body gives was.
    """
    main, *running = frames
    found = select_values(main.index, [listed([selector])], inner=True).names
    inside = BodyName.of(found[0])
    assert inside is not None
    # The body would be run anew from the start, without what was set in it.
    after = main.fixed & set(main.index.nodes[inside.position].output)
    if after or any(f.touched for f in running if f.path.startswith(inside.path)):
        raise UsageError(
            f"{selector!r} is no longer known: values in or after {inside.path} were set",
            f"break {selector}, then run",
        )
    # a frame of its own, so that what is being run stays as it is
    aside = Frame(main.index, main.machine)
    reads = main.index.reads[inside.position]
    kept = main.observer.kept
    aside.take({n: n for n in reads if n in main.index.producer or n in kept}, main)
    for frame in _executions(aside, found[0]):
        # `@3/body/q[2]` asks for iteration 2; `@3/body/q` for all
        own = [iterations_in(frame.index, n.removeprefix(f"{frame.path}/")) for n in found]
        asked = own[0][1]
        here = frame.numbers[: len(asked)]
        if here == asked:
            yield frame, [value for value, _ in own]
        elif here > asked:
            break
    aside.forget()


def _executions(frame: Frame, name: str) -> Iterator[Frame]:
    """The frames of the body that a name leads to."""
    inside = None if name in frame.index else BodyName.of(name)
    if inside is None:
        yield frame
        return
    for inner in iterations(frame, inside.position) or ():
        if inner.path.rpartition("/")[2] == inside.body:
            yield from _executions(inner, inside.rest)
