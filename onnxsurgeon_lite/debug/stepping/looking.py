"""Finding values by the names that a user gives, and saying what they are."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

from onnxsurgeon_lite.debug.stepping.breakpoints import Breakpoints
from onnxsurgeon_lite.debug.stepping.execution import Execution
from onnxsurgeon_lite.debug.stepping.frames import Frame
from onnxsurgeon_lite.debug.stepping.results import Reading, Readings
from onnxsurgeon_lite.debug.stepping.visiting import visits
from onnxsurgeon_lite.errors import ReferenceSetError, UnknownNameError
from onnxsurgeon_lite.graph.bodies import BodyName
from onnxsurgeon_lite.matching.given import difference
from onnxsurgeon_lite.matching.judge import ValueRule
from onnxsurgeon_lite.names import listed, split
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.tensors.comparison import Comparison, Tolerance
from onnxsurgeon_lite.tensors.dtypes import RunValue, RunValues, Stored
from onnxsurgeon_lite.tensors.references import ReferenceSet
from onnxsurgeon_lite.tensors.statistics import statistics


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
        compared: dict[str, Comparison] = {}
        known = self.references is not None and full in self.references
        if self.references is not None and known and not self.other_inputs():
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
